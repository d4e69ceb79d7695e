"""Test the helpers, demonstrations and checkers of `generative`."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Normal, kl_divergence
from verdicts import expect

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


@pytest.mark.parametrize(
    ("check", "right", "checks"),
    [
        (exercises.check_generator_step, step, 4),
        (exercises.check_generator_step, by_autograd_grad, 4),
        (exercises.check_generator_step, by_freezing, 4),
        (exercises.check_generator_step, by_a_copy, 4),
        (exercises.check_generator_step, by_a_closure, 4),
        (exercises.check_kl, kl, 5),
        (exercises.check_kl, kl_by_torch, 5),
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
    ("wrong", "says"),
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
def test_wrong_generator_steps_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_generator_step(wrong), says)


@pytest.mark.parametrize(
    ("wrong", "says"),
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
def test_wrong_kls_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_kl(wrong), says)


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


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_results_are_float32_for_every_default_dtype(default):
    def results():
        return [
            generative.ring_centres(3),
            generative.ring(5, generator=seeded(0)),
        ]

    expected = results()
    torch.set_default_dtype(default)
    try:
        got = results()
    finally:
        torch.set_default_dtype(torch.float32)
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine, theirs)
