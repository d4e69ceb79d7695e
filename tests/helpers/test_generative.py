"""Test the helpers, demonstrations and checkers of `generative`."""

from __future__ import annotations

import copy
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Normal, kl_divergence

from helpers import generative
from helpers.demos import generative as demos
from helpers.exercises import Verdict
from helpers.exercises import generative as exercises

seeds = st.integers(0, 10**6)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- modes


@given(seeds, st.integers(1, 9))
@settings(deadline=None, max_examples=30)
def test_ring_samples_cover_all_modes(seed, modes):
    centres = generative.ring_centres(modes)
    assert torch.allclose(centres.norm(dim=1), torch.ones(modes))
    x = generative.ring(200 * modes, modes, std=0.02, generator=seeded(seed))
    covered, share = generative.count_modes(x, centres, radius=0.12, least=0.5 / modes)
    assert (covered, share) == (modes, 1.0)


def test_ring_centres_have_equal_distances():
    centres = generative.ring_centres(8)
    gaps = (centres - centres.roll(1, 0)).norm(dim=1)
    assert torch.allclose(gaps, torch.full((8,), 2 * math.sin(math.pi / 8)))


def test_count_modes_requires_the_least_share_and_ignores_far_samples():
    centres = torch.tensor([[0.0], [1.0], [5.0]])
    x = torch.tensor([[0.01]] * 97 + [[1.0]] * 2 + [[3.0]])
    assert generative.count_modes(x, centres, radius=0.1) == (2, 0.99)
    assert generative.count_modes(x, centres, radius=0.1, least=0.05) == (1, 0.99)
    assert generative.count_modes(x + 0.1, centres, radius=0.05)[0] == 0
    assert generative.count_modes(x.double(), centres, radius=0.1) == (2, 0.99)


@pytest.mark.parametrize(
    ("samples", "centres", "words"),
    [
        (torch.zeros(0, 2), torch.zeros(3, 2), "at least one row, got none"),
        (torch.zeros(4, 2), torch.zeros(3, 1), r"got \(4, 2\) and \(3, 1\)"),
        (torch.zeros(4), torch.zeros(3, 1), r"\(N, D\) and centres \(K, D\)"),
        (torch.zeros(4, 2), torch.zeros(0, 2), "centres must contain at least one row"),
        (torch.zeros(4, 2).long(), torch.zeros(3, 2), "floating point, got torch.int64"),
    ],
)
def test_count_modes_rejects_invalid_samples(samples, centres, words):
    with pytest.raises(ValueError, match=words):
        generative.count_modes(samples, centres, 0.1)


@pytest.mark.parametrize("modes", [0, 1.5, "8"])
def test_ring_centres_requires_a_positive_int(modes):
    with pytest.raises(ValueError, match=f"an int of at least 1, got {modes!r}"):
        generative.ring_centres(modes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_count_modes_accepts_every_floating_point_dtype(dtype):
    centres = generative.ring_centres()
    assert generative.count_modes(centres.to(dtype), centres, 0.1) == (8, 1.0)


def test_count_modes_keeps_precision_far_from_0():
    centres = generative.ring_centres().repeat(8, 1) + 5000
    assert generative.count_modes(centres + 0.05, centres, 0.1)[1] == 1.0
    assert generative.count_modes(centres + 0.1, centres, 0.1)[1] == 0.0


def test_kl_of_an_empty_batch_is_empty():
    for shape in ((0, 3), (0,), (0, 2, 3), (0, 0)):
        got = generative.kl_to_standard_normal(torch.zeros(shape), torch.zeros(shape))
        assert got.shape == (0,)


# ---------------------------------------------------------------- KL


@given(seeds, st.sampled_from([(1,), (4, 3), (2, 3, 5)]))
@settings(deadline=None, max_examples=40)
def test_kl_matches_torch_distributions(seed, shape):
    mu, logvar = 3 * torch.randn(2, *shape, dtype=torch.float64, generator=seeded(seed))
    exact = kl_divergence(Normal(mu, (logvar / 2).exp()), Normal(0.0, 1.0))
    got = generative.kl_to_standard_normal(mu, logvar)
    assert got.dtype == torch.float64 and got.shape == shape[:1]
    assert torch.allclose(got, exact.reshape(shape[0], -1).sum(1))
    assert (got >= 0).all()


def test_kl_of_the_prior_is_0_and_small_values_keep_precision():
    zeros = torch.zeros(3, 4)
    assert torch.equal(generative.kl_to_standard_normal(zeros, zeros), torch.zeros(3))
    tiny = torch.full((1, 1), 1e-3)  # KL is logvar² / 4 for small logvar
    got = generative.kl_to_standard_normal(0 * tiny, tiny)
    assert math.isclose(got.item(), 1e-6 / 4, rel_tol=0.01)


def test_kl_passes_gradcheck():
    inputs = torch.randn(2, 3, 2, dtype=torch.float64, generator=seeded(0)).unbind(0)
    leaves = [x.clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(generative.kl_to_standard_normal, leaves)


@pytest.mark.parametrize("shapes", [((2, 3), (2, 1)), ((), ())])
def test_kl_rejects_mu_and_logvar_of_invalid_shapes(shapes):
    with pytest.raises(ValueError, match=r"the same shape \(N, ...\), got"):
        generative.kl_to_standard_normal(*(torch.zeros(s) for s in shapes))


# ---------------------------------------------------------------- diffusion


@given(st.integers(20, 1500))
@settings(deadline=None, max_examples=40)
def test_noise_schedule_ends_in_noise(steps):
    betas = generative.noise_schedule(steps)
    bars = (1 - betas.double()).cumprod(0)
    assert betas.shape == (steps,) and betas.dtype == torch.float32
    assert (betas > 0).all() and (betas < 1).all() and (betas.diff() >= 0).all()
    assert bars[-1] < 1e-4 and bars[0] > 0.99


def test_noise_schedule_of_1000_steps_matches_ddpm():
    assert torch.allclose(generative.noise_schedule(1000), torch.linspace(1e-4, 0.02, 1000))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1,), "at least 2, got 1"),
        ((2.5,), "an int of at least 2, got 2.5"),
        ((9, 0.0), "0 < first <= last"),
        ((9, 3.0, 2.0), "got 3.0 and"),
        ((9, 0.1, math.inf), "finite, got 0.1 and inf"),
    ],
)
def test_noise_schedule_rejects_invalid_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        generative.noise_schedule(*arguments)


@given(seeds, st.sampled_from([(5,), (4, 3), (4, 2, 4, 4)]))
@settings(deadline=None, max_examples=30)
def test_q_sample_uses_the_coefficient_of_each_sample(seed, shape):
    g = seeded(seed)
    bars = (1 - generative.noise_schedule(50)).cumprod(0)
    x0, noise = torch.randn(2, *shape, generator=g)
    t = torch.randint(50, shape[:1], generator=g)
    got = generative.q_sample(x0, t, noise, bars)
    for i, step in enumerate(t.tolist()):
        want = math.sqrt(bars[step]) * x0[i] + math.sqrt(1 - bars[step]) * noise[i]
        assert torch.allclose(got[i], want, atol=1e-6)


def test_q_sample_matches_mean_and_variance_of_single_steps():
    betas = generative.noise_schedule(30).double()
    bars = (1 - betas).cumprod(0)
    mean, variance = 1.0, 0.0
    for t, beta in enumerate(betas.tolist()):
        mean, variance = math.sqrt(1 - beta) * mean, (1 - beta) * variance + beta
        one = torch.ones(1, dtype=torch.float64)
        at = torch.tensor([t])
        assert math.isclose(generative.q_sample(one, at, 0 * one, bars).item(), mean)
        assert math.isclose(generative.q_sample(0 * one, at, one, bars).item() ** 2, variance)


@pytest.mark.parametrize(
    ("t", "words"),
    [
        (torch.tensor([0, 1]), r"int64 of shape \(3,\), got torch.int64 of shape \(2,\)"),
        (torch.tensor([0.0, 1.0, 2.0]), "got torch.float32"),
        (torch.tensor([0, 1, 10]), "from 0 to 9, got 0 to 10"),
        (torch.tensor([-1, 1, 2]), "from 0 to 9, got -1 to 2"),
    ],
)
def test_q_sample_rejects_invalid_steps(t, words):
    x, bars = torch.zeros(3, 2), (1 - generative.noise_schedule(10)).cumprod(0)
    with pytest.raises(ValueError, match=words):
        generative.q_sample(x, t, x, bars)


def test_q_sample_rejects_integer_images():
    """Coefficients in an integer dtype would be rounded to 0."""
    bars, t = (1 - generative.noise_schedule(10)).cumprod(0), torch.tensor([0, 1, 2])
    for dtype in (torch.uint8, torch.int64):
        x = torch.full((3, 2), 200, dtype=dtype)
        with pytest.raises(ValueError, match=rf"floating point, .*got {dtype} of shape \(3, 2\)"):
            generative.q_sample(x, t, torch.zeros(3, 2), bars)
    with pytest.raises(ValueError, match=r"coefficients must have shape \(T,\), got \(1, 10\)"):
        generative.q_sample(torch.zeros(3, 2), t, torch.zeros(3, 2), bars[None])
    with pytest.raises(ValueError, match=r"of shape \(N, ...\), got torch.float32 of shape \(\)"):
        generative.q_sample(torch.zeros(()), t[0], torch.zeros(()), bars)


def test_prediction_of_another_shape_raises():
    """Shapes (N, 1) and (N,) would broadcast to (N, N)."""
    betas = generative.noise_schedule(5)
    with pytest.raises(ValueError, match=r"predicted .* of x, \(4,\), got \(4, 1\)"):
        generative.ddpm_sample(lambda x, t: x[:, None], (4,), betas)
    with pytest.raises(ValueError, match=r"predicted .* of x, \(4,\), got tuple"):
        generative.ddpm_sample(lambda x, t: (x,), (4,), betas)
    x = torch.zeros(4)
    with pytest.raises(ValueError, match=r"noise .* of x, \(4,\), got \(2, 4\)"):
        generative.reverse_step(x, x, 1, betas, torch.zeros(2, 4))


@pytest.mark.parametrize(
    "betas", [torch.zeros(0), torch.zeros(3), torch.ones(3), torch.full((1, 3), 0.1)]
)
def test_betas_outside_0_to_1_raise(betas):
    for sample in (
        lambda: generative.ddpm_sample(lambda x, t: x, (4,), betas),
        lambda: generative.reverse_step(torch.zeros(4), torch.zeros(4), 0, betas, torch.zeros(4)),
    ):
        with pytest.raises(ValueError, match=r"betas must have shape \(T,\), with values above 0"):
            sample()


def test_q_sample_rejects_noise_of_another_shape():
    bars = (1 - generative.noise_schedule(10)).cumprod(0)
    with pytest.raises(ValueError, match=r"shape of x0, \(3, 2\), got \(3, 1\)"):
        generative.q_sample(torch.zeros(3, 2), torch.zeros(3).long(), torch.zeros(3, 1), bars)


def test_reverse_step_matches_the_gaussian_posterior():
    """Given x0, the step has the mean and variance of q(x_{t-1} | x_t, x0) by Bayes' rule."""
    betas = generative.noise_schedule(20).double()
    bars = (1 - betas).cumprod(0)
    x0, noise = torch.randn(2, 1, dtype=torch.float64, generator=seeded(1))
    for t in range(1, 20):
        x = bars[t].sqrt() * x0 + (1 - bars[t]).sqrt() * noise
        precision = 1 / (1 - bars[t - 1]) + (1 - betas[t]) / betas[t]
        pull = bars[t - 1].sqrt() * x0 / (1 - bars[t - 1]) + (1 - betas[t]).sqrt() * x / betas[t]
        mean = generative.reverse_step(x, noise, t, betas, 0 * x)
        assert torch.allclose(mean, pull / precision)
        moved = generative.reverse_step(x, noise, t, betas, torch.ones_like(x)) - mean
        assert torch.allclose(moved.square(), 1 / precision)


def test_last_reverse_step_returns_the_data_and_ignores_noise():
    betas = generative.noise_schedule(20)
    x0, noise = torch.randn(2, 4, 3, generator=seeded(2))
    bars = (1 - betas).cumprod(0)
    x = generative.q_sample(x0, torch.zeros(4).long(), noise, bars)
    for drawn in (torch.zeros(4, 3), 100 * torch.ones(4, 3)):
        back = generative.reverse_step(x, noise, 0, betas, drawn)
        assert torch.allclose(back, x0, atol=1e-5)


@pytest.mark.parametrize("t", [-1, 10, 2.0, True, None, torch.tensor([0, 1])])
def test_reverse_step_rejects_steps_outside_the_schedule(t):
    x = torch.zeros(2)
    with pytest.raises(ValueError, match=f"one int from 0 to 9, got {re.escape(repr(t))}"):
        generative.reverse_step(x, x, t, generative.noise_schedule(10), x)


def test_reverse_step_accepts_a_one_element_tensor_as_step():
    x, betas = torch.ones(2), generative.noise_schedule(10)
    want = generative.reverse_step(x, x, 3, betas, x)
    assert torch.equal(generative.reverse_step(x, x, torch.tensor(3), betas, x), want)


@pytest.mark.parametrize("steps", [50, 200])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_optimal_model_samples_match_the_data_distribution(steps, share):
    betas = generative.noise_schedule(steps)
    weights = torch.tensor([share, 1 - share])
    model = demos.Mixture(torch.tensor([-1.0, 1.0]), weights, 0.1, (1 - betas).cumprod(0))
    x = generative.ddpm_sample(model, (3000,), betas, seeded(3))
    assert x.shape == (3000,) and x.dtype == torch.float32
    assert demos.near(x, [-1.0, 1.0], 0.4) > 0.98
    assert abs((x < 0).float().mean() - share) < 0.05
    again = generative.ddpm_sample(model, (3000,), betas, seeded(3))
    assert torch.equal(x, again)


def test_ddpm_sample_runs_every_step_and_records_no_graph():
    steps, w = [], torch.ones((), requires_grad=True)

    def model(x, t):
        assert t.shape == (3,) and t.dtype == torch.int64 and len(set(t.tolist())) == 1
        steps.append(int(t[0]))
        return w * x

    x = generative.ddpm_sample(model, (3, 1, 2, 2), generative.noise_schedule(7))
    assert steps == [6, 5, 4, 3, 2, 1, 0] and not x.requires_grad and x.shape == (3, 1, 2, 2)


def test_mixture_prediction_minimizes_the_noise_error():
    """Small changes of the prediction raise the loss."""
    bars = (1 - generative.noise_schedule(40)).cumprod(0)
    model = demos.Mixture(torch.tensor([-1.0, 1.0]), torch.tensor([0.3, 0.7]), 0.2, bars)
    g = seeded(4)
    x0, t = model.sample(40_000, g), torch.randint(40, (40_000,), generator=g)
    noise = torch.randn(40_000, generator=g)
    x = generative.q_sample(x0, t, noise, bars)
    best = model(x, t)
    assert best.dtype == torch.float32
    loss = F.mse_loss(best, noise)
    for other in (0.9 * best, 1.1 * best, best + 0.1, best - 0.1, best + 0.05 * x):
        assert F.mse_loss(other, noise) > loss


def test_single_gaussian_prediction_is_linear():
    bars = (1 - generative.noise_schedule(40)).cumprod(0)
    model = demos.Mixture(torch.tensor([0.0]), torch.tensor([1.0]), 1.0, bars)
    x, t = torch.randn(9, generator=seeded(5)), torch.arange(9)
    assert torch.allclose(model(x, t), (1 - bars[t]).sqrt() * x, atol=1e-6)


@given(st.integers(1, 20), st.floats(0, 1000, width=32))
@settings(deadline=None, max_examples=40)
def test_time_embedding_returns_cosines_and_sines(half, step):
    got = generative.time_embedding(torch.tensor([step, 0.0]), 2 * half)
    assert got.shape == (2, 2 * half) and got.dtype == torch.float32
    assert torch.allclose(got.square().sum(1), torch.full((2,), float(half)), rtol=1e-4)
    assert math.isclose(got[0, 0].item(), math.cos(step), abs_tol=1e-4)
    assert got[1].tolist() == [1.0] * half + [0.0] * half


def test_time_embeddings_of_all_steps_differ():
    codes = generative.time_embedding(torch.arange(1000), 16)
    assert (torch.cdist(codes, codes) + 9 * torch.eye(1000)).min() > 0.05


@pytest.mark.parametrize(
    ("t", "width", "words"),
    [
        (torch.zeros(3), 5, "even and at least 2, got 5"),
        (torch.zeros(3), 0, "even and at least 2, got 0"),
        (torch.zeros(3, 1), 4, r"shape \(N,\), got \(3, 1\)"),
    ],
)
def test_time_embedding_rejects_invalid_arguments(t, width, words):
    with pytest.raises(ValueError, match=words):
        generative.time_embedding(t, width)
    with pytest.raises(ValueError, match="longest must be above 0, got 0"):
        generative.time_embedding(torch.zeros(3), 4, longest=0)


def test_guidance_is_linear_in_the_scale():
    c, u = torch.randn(2, 5, generator=seeded(6))
    assert torch.equal(generative.guided(c, u, 0.0), u)
    assert torch.allclose(generative.guided(c, u, 1.0), c)
    assert torch.allclose(generative.guided(c, u, 4.0), 4 * c - 3 * u, atol=1e-5)
    with pytest.raises(ValueError, match=r"the same shape, got \(5,\) and \(1,\)"):
        generative.guided(c, u[:1], 2.0)


# ---------------------------------------------------------------- demonstrations


def test_blobs_contain_one_bright_spot_inside_the_image():
    images = demos.blobs(300, generator=seeded(7))
    assert images.shape == (300, 1, 8, 8) and images.min() >= 0 and images.max() <= 1
    brightest = images.flatten(1).max(1)
    assert (brightest.values > 0.7).all()
    rows, columns = brightest.indices // 8, brightest.indices % 8
    assert rows.min() >= 1 and rows.max() <= 6 and len(set(columns.tolist())) >= 5
    total = images.sum((1, 2, 3))
    assert total.min() > 0.7 * total.max()


def test_generator_gradients_match_the_formulas():
    z = torch.linspace(-20, 20, 41)
    found = demos.generator_gradients(z)
    assert torch.allclose(found["minimax"], -z.sigmoid(), atol=1e-6)
    assert torch.allclose(found["non-saturating"], -(-z).sigmoid(), atol=1e-6)


def test_figures_have_one_panel_or_row_per_name():
    centres = generative.ring_centres()
    figure = demos.draw_samples({"images": centres, "minimax": centres}, centres)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["images", "minimax"]
    rows = demos.draw_rows({"images": torch.rand(3, 1, 8, 8), "minimax": torch.rand(2, 1, 8, 8)})
    (axis,) = rows.axes
    assert len(axis.images) == 5 and [t.get_text() for t in axis.texts] == ["images", "minimax"]
    curves = demos.draw_generator_gradients().axes[0].lines
    assert [line.get_label() for line in curves] == ["minimax", "non-saturating"]


@pytest.mark.parametrize("latent", [2, 5])
def test_vae_returns_logits_mu_and_logvar(latent):
    logits, mu, logvar = demos.VAE(latent)(torch.rand(3, 1, 8, 8))
    assert logits.shape == (3, 1, 8, 8) and mu.shape == logvar.shape == (3, latent)


def test_new_gan_optimizers_contain_their_network_s_parameters():
    G, D, *optimizers = demos.new_gan(lr_G=0.1, lr_D=0.2)
    assert D(G(torch.randn(3, 16))).shape == (3, 1)
    for model, optimizer, lr in zip((G, D), optimizers, (0.1, 0.2), strict=True):
        (group,) = optimizer.param_groups
        assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]
        assert group["lr"] == lr


# ---------------------------------------------------------------- exercises


def step(G, D, optimizer, z):
    logits = D(G(z))
    loss = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))
    optimizer.zero_grad()
    loss.backward(inputs=list(G.parameters()))
    optimizer.step()
    return loss.item()


def by_autograd_grad(G, D, optimizer, z):
    loss = F.softplus(-D(G(z))).mean()
    parameters = list(G.parameters())
    for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        p.grad = g
    optimizer.step()
    return loss.item()


def by_freezing(G, D, optimizer, z):
    before = [p.requires_grad for p in D.parameters()]
    D.requires_grad_(False)
    loss = -F.logsigmoid(D(G(z))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for p, required in zip(D.parameters(), before, strict=True):
        p.requires_grad_(required)
    return loss.detach().item()


def by_a_copy(G, D, optimizer, z):
    loss = F.softplus(-copy.deepcopy(D).requires_grad_(False)(G(z))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def by_a_closure(G, D, optimizer, z):
    def closure():
        optimizer.zero_grad()
        loss = F.softplus(-D(G(z))).mean()
        loss.backward(inputs=list(G.parameters()))
        return loss

    return optimizer.step(closure).item()


def kl(mu, logvar, prior_mu, prior_logvar):
    ratio = logvar - prior_logvar
    each = ratio.exp() + (mu - prior_mu) ** 2 / prior_logvar.exp() - 1 - ratio
    return 0.5 * each.sum(1).mean()


def kl_by_torch(mu, logvar, prior_mu, prior_logvar):
    posterior = Normal(mu, (logvar / 2).exp())
    return kl_divergence(posterior, Normal(prior_mu, (prior_logvar / 2).exp())).sum(1).mean()


def ddim(x, predicted, t, before, bars):
    shape = -1, *[1] * (x.dim() - 1)
    left = bars[t].view(shape)
    previous = torch.where(before < 0, 1.0, bars[before]).view(shape)
    x0 = (x - (1 - left).sqrt() * predicted) / left.sqrt()
    return previous.sqrt() * x0 + (1 - previous).sqrt() * predicted


def ddim_with_a_leading_one(x, predicted, t, before, bars):
    bars = torch.cat([bars.new_ones(1), bars])
    shape = -1, *[1] * (x.dim() - 1)
    left, previous = bars[t + 1].reshape(shape), bars[before + 1].reshape(shape)
    x0 = (x - (1 - left).sqrt() * predicted) / left.sqrt()
    return previous.sqrt() * x0 + (1 - previous).sqrt() * predicted


@pytest.mark.parametrize(
    ("check", "right", "checks"),
    [
        (exercises.check_generator_step, step, 4),
        (exercises.check_generator_step, by_autograd_grad, 4),
        (exercises.check_generator_step, by_freezing, 4),
        (exercises.check_generator_step, by_a_copy, 4),
        (exercises.check_generator_step, by_a_closure, 4),
        (exercises.check_kl, kl, 4),
        (exercises.check_kl, kl_by_torch, 4),
        (exercises.check_ddim_step, ddim, 7),
        (exercises.check_ddim_step, ddim_with_a_leading_one, 7),
    ],
)
def test_right_answers_pass_for_every_draw(check, right, checks):
    for _ in range(20):
        assert check(right) == Verdict(True, f"correct: {checks} checks passed")


def stepping(loss, *, clear=True, detach=False, d_mode=None, own=True, value=None):
    """Return a generator step with one fault."""

    def f(G, D, optimizer, z):
        if d_mode is not None:
            before = D.training
            D.train(d_mode)
        fake = G(z)
        total = loss(D(fake.detach() if detach else fake))
        if clear:
            optimizer.zero_grad()
        total.backward(inputs=list(G.parameters()) if own and not detach else None)
        optimizer.step()
        if d_mode is not None:
            D.train(before)
        return total.item() if value is None else value(D, G, z, total)

    return f


def right(y):
    return F.softplus(-y).mean()


def then_clears_D(G, D, optimizer, z):
    loss = right(D(G(z)))
    optimizer.zero_grad()
    loss.backward()
    D.zero_grad()
    optimizer.step()
    return loss.item()


def unfreezes(G, D, optimizer, z):
    D.requires_grad_(False)
    loss = right(D(G(z)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    D.requires_grad_(True)
    return loss.item()


def by_hand(G, D, optimizer, z):
    loss = right(D(G(z)))
    gradients = torch.autograd.grad(loss, list(G.parameters()))
    with torch.no_grad():
        for p, g in zip(G.parameters(), gradients, strict=True):
            p -= optimizer.param_groups[0]["lr"] * g
    return loss.item()


def clipping(G, D, optimizer, z):
    loss = right(D(G(z)))
    optimizer.zero_grad()
    loss.backward(inputs=list(G.parameters()))
    nn.utils.clip_grad_norm_(G.parameters(), 1.0)
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (by_hand, "one optimizer_G.step()"),
        (clipping, "the whole gradient"),
        (stepping(lambda y: (1 - y.sigmoid()).log().mean()), "the minimax loss"),
        (stepping(lambda y: F.softplus(y).mean()), "the label of its samples is 1"),
        (stepping(lambda y: F.softplus(-y).sum()), "the loss is a sum"),
        (stepping(lambda y: -y.mean()), "not those after one step"),
        (stepping(right, clear=False), "gradients of an earlier step"),
        (stepping(right, own=False), "of D was changed"),
        (stepping(right, detach=True), "of D was changed"),
        (stepping(right, d_mode=False), "in the mode in which it came"),
        (stepping(right, value=lambda D, G, z, loss: loss), "as a float, got Tensor"),
        (
            stepping(right, value=lambda D, G, z, loss: F.softplus(-D(G(z))).mean().item()),
            "the loss before the step",
        ),
        (
            stepping(lambda y: F.binary_cross_entropy_with_logits(y, torch.ones(len(y), 1))),
            "the digits of float32",
        ),
        (stepping(lambda y: -y.sigmoid().log().mean()), "a sigmoid rounds to 0"),
        (then_clears_D, "the gradient of 0.weight of D was changed"),
        (unfreezes, "requires_grad of 0.weight of D was changed"),
        (lambda G, D, optimizer, z: 0.0, "G did not change"),
    ],
)
def test_wrong_generator_steps_are_reported(wrong, words):
    for _ in range(3):
        found = exercises.check_generator_step(wrong)
        assert not found.passed and words in found.message, found


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda m, v, p, w: kl(m, v, p, w) / m.shape[1], "the mean over the latent dimensions"),
        (lambda m, v, p, w: kl(m, v, p, w) * len(m), "the sum over the batch"),
        (lambda m, v, p, w: kl(p, w, m, v), "KL(prior || posterior)"),
        (lambda m, v, p, w: -kl(m, v, p, w), "the sign is wrong"),
        (lambda m, v, p, w: 2 * kl(m, v, p, w), "the factor 1/2"),
        (lambda m, v, p, w: kl(m, 2 * v, p, 2 * w), "not of the standard deviation"),
        (lambda m, v, p, w: kl(m, v, 0 * p, 0 * w), "the prior is not N(0, 1)"),
        (lambda m, v, p, w: kl(m, v, 0 * p, 0 * w) / m.shape[1], "the mean of the KL to N(0, 1)"),
        (lambda m, v, p, w: kl(m, v, p, w) + 0.01, "wrong value"),
        (lambda m, v, p, w: kl(m, v, p.detach(), w), "the gradient is not"),
        (lambda m, v, p, w: kl(m, v, p, w).item(), "expected a tensor, got float"),
        (lambda m, v, p, w: kl(m, v.exp_(), p, w), "logvar was changed"),
        (lambda m, v, p, w: kl(m.float(), v.float(), p.float(), w.float()), "with float64"),
    ],
)
def test_wrong_kls_are_reported(wrong, words):
    for _ in range(3):
        found = exercises.check_kl(wrong)
        assert not found.passed and words in found.message, found


def unshaped(x, predicted, t, before, bars):
    left, previous = bars[t], torch.where(before < 0, 1.0, bars[before])
    x0 = (x - (1 - left).sqrt() * predicted) / left.sqrt()
    return previous.sqrt() * x0 + (1 - previous).sqrt() * predicted


def shaped_if_needed(x, predicted, t, before, bars):
    try:
        return unshaped(x, predicted, t, before, bars)
    except RuntimeError:
        return ddim(x, predicted, t, before, bars)


def with_the_last(x, predicted, t, before, bars):
    shape = -1, *[1] * (x.dim() - 1)
    left, previous = bars[t].view(shape), bars[before].view(shape)
    x0 = (x - (1 - left).sqrt() * predicted) / left.sqrt()
    return previous.sqrt() * x0 + (1 - previous).sqrt() * predicted


def from_the_first(x, predicted, t, before, bars):
    return ddim(x, predicted, t, torch.full_like(before, int(before[0])), bars)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (unshaped, "RuntimeError"),
        (shaped_if_needed, "wrong"),
        (with_the_last, "where before is -1"),
        (lambda x, e, t, b, bars: ddim(x, e, t, t - 1, bars), "the step to t - 1"),
        (lambda x, e, t, b, bars: ddim(x, e, t, torch.where(b < 1, -1, b), bars), "before is 0"),
        (lambda x, e, t, b, bars: ddim(x, e, t.clamp(min=1), b, bars), "where t is 0"),
        (from_the_first, "wrong value"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b, bars) + 0.1, "wrong value"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b, bars) + torch.randn_like(x), "wrong value"),
        (lambda x, e, t, b, bars: ddim(x.detach(), e, t, b, bars), "the gradient is not"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b.clamp_(min=0), bars), "before was changed"),
        (lambda x, e, t, b, bars: ddim(x.float(), e.float(), t, b, bars.float()), "float64"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b, bars).tolist(), "expected a tensor, got list"),
    ],
)
def test_wrong_ddim_steps_are_reported(wrong, words):
    for _ in range(3):
        found = exercises.check_ddim_step(wrong)
        assert not found.passed and words in found.message, found


# ---------------------------------------------------------------- sentences of the chapter


def test_retain_graph_accumulates_both_losses_in_the_generator():
    torch.manual_seed(0)
    G, D = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    z = torch.randn(5, 3)
    losses = [lambda: F.softplus(D(G(z))).mean(), lambda: F.softplus(-D(G(z))).mean()]
    alone = [torch.autograd.grad(loss(), G.weight)[0] for loss in losses]
    fake = G(z)
    F.softplus(D(fake)).mean().backward(retain_graph=True)
    F.softplus(-D(fake)).mean().backward()
    assert torch.allclose(G.weight.grad, sum(alone))


@given(seeds)
@settings(deadline=None, max_examples=20)
def test_spectral_norm_bounds_logit_differences_by_distance(seed):
    torch.manual_seed(seed)
    wrap = nn.utils.parametrizations.spectral_norm
    D = nn.Sequential(wrap(nn.Linear(3, 16)), nn.LeakyReLU(0.2), wrap(nn.Linear(16, 1)))
    for _ in range(50):  # each forward pass improves the estimate of the singular value
        D(torch.randn(1, 3))
    D.eval()
    a, b = torch.randn(2, 100, 3)
    assert ((D(a) - D(b)).abs()[:, 0] <= 1.01 * (a - b).norm(dim=1)).all()


def test_summed_squared_error_equals_gaussian_nll_of_variance_half():
    x, mean = torch.rand(2, 9, dtype=torch.float64)
    for sigma in (math.sqrt(0.5), 0.1):
        exact = -Normal(mean, sigma).log_prob(x).sum()
        squares = (x - mean).square().sum() / (2 * sigma**2)
        constant = 9 * math.log(sigma * math.sqrt(2 * math.pi))
        assert torch.allclose(exact, squares + constant)


@pytest.mark.parametrize("use_buffers", [True, False])
def test_averaged_model_without_use_buffers_copies_statistics(use_buffers):
    torch.manual_seed(0)
    model = nn.BatchNorm1d(2)
    ema = torch.optim.swa_utils.AveragedModel(
        model, avg_fn=lambda average, value, count: (average + value) / 2, use_buffers=use_buffers
    )
    ema.update_parameters(model)
    for _ in range(3):
        model(torch.randn(8, 2) + 3)
        ema.update_parameters(model)
    same = torch.equal(ema.module.running_mean, model.running_mean)
    assert same is not use_buffers and not torch.equal(ema.module.running_mean, torch.zeros(2))


def test_spectral_norm_estimate_converges_from_below():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(128, 128))
    first = torch.linalg.matrix_norm(layer.eval().weight, 2).item()
    for _ in range(300):
        layer.train().weight  # noqa: B018
    last = torch.linalg.matrix_norm(layer.eval().weight, 2).item()
    assert 1.001 < first < 1.1 and 1 - 1e-4 < last < 1.001


def test_batch_norm_removes_shift_and_scale_of_a_batch():
    torch.manual_seed(0)
    x, norm = torch.randn(64, 3), nn.BatchNorm1d(3)
    assert torch.allclose(norm(x), norm(5 * x + 7), atol=1e-3)
    assert not torch.allclose(norm(x), norm(x**3), atol=0.1)  # the distribution's shape remains


def test_number_as_step_raises():
    bars = (1 - generative.noise_schedule(np.int64(10))).cumprod(0)
    with pytest.raises(ValueError, match=r"int64 of shape \(2,\), got 3"):
        generative.per_sample(bars, 3, torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"tensor of shape \(N,\), got 5"):
        generative.time_embedding(5, 6)


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_results_are_float32_for_every_default_dtype(default):
    def results():
        betas = generative.noise_schedule(5)
        return [
            generative.ring_centres(3),
            generative.ring(5, generator=seeded(0)),
            generative.time_embedding(torch.arange(300), 8),
            generative.ddpm_sample(lambda x, t: 0 * x, (2, 3), betas, seeded(1)),
        ]

    expected = results()
    torch.set_default_dtype(default)
    try:
        got = results()
    finally:
        torch.set_default_dtype(torch.float32)
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine, theirs)
