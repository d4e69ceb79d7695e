"""Test the helpers, demonstrations and checkers of `diffusion`."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import diffusion
from helpers.demos import diffusion as demos
from helpers.exercises import diffusion as exercises

seeds = st.integers(0, 10**6)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- the loss of a batch


def loss_of(draw=None, add=None, noise=torch.randn_like, calls=1, reduce=F.mse_loss, detach=False):
    """Return an answer to the exercise with one part exchanged."""

    def f(model, x0, bars):
        t = torch.randint(len(bars), (len(x0),)) if draw is None else draw(bars, x0)
        left = bars[t].view(-1, *[1] * (x0.dim() - 1)).to(x0)
        eps = noise(x0)
        x = left.sqrt() * x0 + (1 - left).sqrt() * eps if add is None else add(left, x0, eps)
        for _ in range(calls):
            predicted = model(x, t)
        return reduce(predicted.detach() if detach else predicted, eps)

    return f


@pytest.mark.parametrize(
    "right",
    [
        loss_of(),
        loss_of(draw=lambda bars, x0: torch.rand(len(x0)).mul(len(bars)).long()),
        loss_of(noise=lambda x0: torch.randn(x0.shape, dtype=x0.dtype)),
        loss_of(reduce=lambda a, b: (a - b).square().mean()),
    ],
)
def test_right_diffusion_losses_pass_for_every_draw(right):
    for _ in range(8):
        found = exercises.check_diffusion_loss(right)
        assert found.passed, found


def aligned_with_the_width(model, x0, bars):
    t = torch.randint(len(bars), (len(x0),))
    try:
        left = bars[t].sqrt() * x0
    except RuntimeError:
        return loss_of()(model, x0, bars)
    noise = torch.randn_like(x0)
    if x0.shape != left.shape:
        return loss_of()(model, x0, bars)
    return F.mse_loss(model(left + (1 - bars[t]).sqrt() * noise, t), noise)


def one_draw_per_sample(x0):
    return torch.randn(len(x0), dtype=x0.dtype).view(-1, *[1] * (x0.dim() - 1)).expand_as(x0)


def in_turn(bars, x0):
    return torch.arange(len(x0)) % len(bars)


def one_noise(x0):
    return torch.randn(x0.shape, generator=seeded(1), dtype=x0.dtype)


def one_step(bars, x0):
    return torch.randint(len(bars), (1,)).expand(len(x0))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (loss_of(draw=one_step), "same step"),
        (loss_of(draw=in_turn), "the steps are the same in each call"),
        (loss_of(noise=one_noise), "the noise is the same in each call"),
        (loss_of(draw=lambda bars, x0: torch.randint(len(bars) - 1, (len(x0),))), "counted"),
        (loss_of(draw=lambda bars, x0: torch.randint(1, len(bars), (len(x0),))), "counted"),
        (loss_of(add=lambda left, x0, eps: left * x0 + (1 - left) * eps), "standard normal"),
        (loss_of(add=lambda left, x0, eps: left * x0 + (1 - left).sqrt() * eps), "of shape (6, 3)"),
        (loss_of(add=lambda left, x0, eps: (1 - left).sqrt() * x0 + left.sqrt() * eps), "normal"),
        (loss_of(noise=torch.rand_like), "standard normal"),
        (loss_of(noise=lambda x0: (torch.rand_like(x0) - 0.5) * 12**0.5), "standard normal"),
        (loss_of(noise=one_draw_per_sample), "elements of a sample have the same"),
        (
            loss_of(noise=lambda x0: torch.randn_like(x0[:1]).expand_as(x0)),
            "all samples have the same noise",
        ),
        (loss_of(calls=2), "one call of the model, got 2"),
        (loss_of(calls=0), "cannot access local variable"),
        (loss_of(reduce=F.l1_loss), "not the mean squared error"),
        (loss_of(reduce=lambda a, b: (a - b).square().sum()), "not the mean squared error"),
        (loss_of(reduce=lambda a, b: (a - b).square().mean().item()), "expected a tensor"),
        (loss_of(detach=True), "backward() raises"),
        (aligned_with_the_width, "of shape (5, 5, 5, 5)"),
        (lambda model, x0, bars: loss_of()(model, x0.zero_(), bars), "x0 was changed"),
        (lambda model, x0, bars: loss_of()(model, x0.float(), bars), "expected torch.float64"),
    ],
)
def test_wrong_diffusion_losses_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_diffusion_loss(wrong), says)


# ---------------------------------------------------------------- a step of DDIM


def test_right_ddim_steps_pass_for_every_draw():
    for answer in (ddim, ddim_with_a_leading_one):
        for _ in range(20):
            found = exercises.check_ddim_step(answer)
            assert found.passed, found


def test_results_are_float32_for_every_default_dtype():
    def results():
        betas = diffusion.noise_schedule(5)
        return [
            diffusion.time_embedding(torch.arange(300), 8),
            diffusion.ddpm_sample(lambda x, t: 0 * x, (2, 3), betas, seeded(1)),
        ]

    expected = results()
    for default in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(default)
        try:
            got = results()
        finally:
            torch.set_default_dtype(torch.float32)
        assert all(a.dtype == torch.float32 for a in got)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


# ---------------------------------------------------------------- noise schedules and sampling


@given(st.integers(20, 1500))
@settings(deadline=None, max_examples=40)
def test_noise_schedule_ends_in_noise(steps):
    betas = diffusion.noise_schedule(steps)
    bars = (1 - betas.double()).cumprod(0)
    assert betas.shape == (steps,) and betas.dtype == torch.float32
    assert (betas > 0).all() and (betas < 1).all() and (betas.diff() >= 0).all()
    assert bars[-1] < 1e-4 and bars[0] > 0.99


def test_noise_schedule_of_1000_steps_matches_ddpm():
    assert torch.allclose(diffusion.noise_schedule(1000), torch.linspace(1e-4, 0.02, 1000))


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
        diffusion.noise_schedule(*arguments)


@given(seeds, st.sampled_from([(5,), (4, 3), (4, 2, 4, 4)]))
@settings(deadline=None, max_examples=30)
def test_q_sample_uses_the_coefficient_of_each_sample(seed, shape):
    g = seeded(seed)
    bars = (1 - diffusion.noise_schedule(50)).cumprod(0)
    x0, noise = torch.randn(2, *shape, generator=g)
    t = torch.randint(50, shape[:1], generator=g)
    got = diffusion.q_sample(x0, t, noise, bars)
    for i, step in enumerate(t.tolist()):
        want = math.sqrt(bars[step]) * x0[i] + math.sqrt(1 - bars[step]) * noise[i]
        assert torch.allclose(got[i], want, atol=1e-6)


def test_q_sample_matches_mean_and_variance_of_single_steps():
    betas = diffusion.noise_schedule(30).double()
    bars = (1 - betas).cumprod(0)
    mean, variance = 1.0, 0.0
    for t, beta in enumerate(betas.tolist()):
        mean, variance = math.sqrt(1 - beta) * mean, (1 - beta) * variance + beta
        one = torch.ones(1, dtype=torch.float64)
        at = torch.tensor([t])
        assert math.isclose(diffusion.q_sample(one, at, 0 * one, bars).item(), mean)
        assert math.isclose(diffusion.q_sample(0 * one, at, one, bars).item() ** 2, variance)


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
    x, bars = torch.zeros(3, 2), (1 - diffusion.noise_schedule(10)).cumprod(0)
    with pytest.raises(ValueError, match=words):
        diffusion.q_sample(x, t, x, bars)


def test_q_sample_rejects_integer_images():
    """Coefficients in an integer dtype would be rounded to 0."""
    bars, t = (1 - diffusion.noise_schedule(10)).cumprod(0), torch.tensor([0, 1, 2])
    for dtype in (torch.uint8, torch.int64):
        x = torch.full((3, 2), 200, dtype=dtype)
        with pytest.raises(ValueError, match=rf"floating point, .*got {dtype} of shape \(3, 2\)"):
            diffusion.q_sample(x, t, torch.zeros(3, 2), bars)
    with pytest.raises(ValueError, match=r"coefficients must have shape \(T,\), got \(1, 10\)"):
        diffusion.q_sample(torch.zeros(3, 2), t, torch.zeros(3, 2), bars[None])
    with pytest.raises(ValueError, match=r"of shape \(N, ...\), got torch.float32 of shape \(\)"):
        diffusion.q_sample(torch.zeros(()), t[0], torch.zeros(()), bars)


def test_prediction_of_another_shape_raises():
    """Shapes (N, 1) and (N,) would broadcast to (N, N)."""
    betas = diffusion.noise_schedule(5)
    with pytest.raises(ValueError, match=r"predicted .* of x, \(4,\), got \(4, 1\)"):
        diffusion.ddpm_sample(lambda x, t: x[:, None], (4,), betas)
    with pytest.raises(ValueError, match=r"predicted .* of x, \(4,\), got tuple"):
        diffusion.ddpm_sample(lambda x, t: (x,), (4,), betas)
    x = torch.zeros(4)
    with pytest.raises(ValueError, match=r"noise .* of x, \(4,\), got \(2, 4\)"):
        diffusion.reverse_step(x, x, 1, betas, torch.zeros(2, 4))


@pytest.mark.parametrize(
    "betas", [torch.zeros(0), torch.zeros(3), torch.ones(3), torch.full((1, 3), 0.1)]
)
def test_betas_outside_0_to_1_raise(betas):
    for sample in (
        lambda: diffusion.ddpm_sample(lambda x, t: x, (4,), betas),
        lambda: diffusion.reverse_step(torch.zeros(4), torch.zeros(4), 0, betas, torch.zeros(4)),
    ):
        with pytest.raises(ValueError, match=r"betas must have shape \(T,\), with values above 0"):
            sample()


def test_q_sample_rejects_noise_of_another_shape():
    bars = (1 - diffusion.noise_schedule(10)).cumprod(0)
    with pytest.raises(ValueError, match=r"shape of x0, \(3, 2\), got \(3, 1\)"):
        diffusion.q_sample(torch.zeros(3, 2), torch.zeros(3).long(), torch.zeros(3, 1), bars)


def test_reverse_step_matches_the_gaussian_posterior():
    """Given x0, the step has the mean and variance of q(x_{t-1} | x_t, x0) by Bayes' rule."""
    betas = diffusion.noise_schedule(20).double()
    bars = (1 - betas).cumprod(0)
    x0, noise = torch.randn(2, 1, dtype=torch.float64, generator=seeded(1))
    for t in range(1, 20):
        x = bars[t].sqrt() * x0 + (1 - bars[t]).sqrt() * noise
        precision = 1 / (1 - bars[t - 1]) + (1 - betas[t]) / betas[t]
        pull = bars[t - 1].sqrt() * x0 / (1 - bars[t - 1]) + (1 - betas[t]).sqrt() * x / betas[t]
        mean = diffusion.reverse_step(x, noise, t, betas, 0 * x)
        assert torch.allclose(mean, pull / precision)
        moved = diffusion.reverse_step(x, noise, t, betas, torch.ones_like(x)) - mean
        assert torch.allclose(moved.square(), 1 / precision)


def test_last_reverse_step_returns_the_data_and_ignores_noise():
    betas = diffusion.noise_schedule(20)
    x0, noise = torch.randn(2, 4, 3, generator=seeded(2))
    bars = (1 - betas).cumprod(0)
    x = diffusion.q_sample(x0, torch.zeros(4).long(), noise, bars)
    for drawn in (torch.zeros(4, 3), 100 * torch.ones(4, 3)):
        back = diffusion.reverse_step(x, noise, 0, betas, drawn)
        assert torch.allclose(back, x0, atol=1e-5)


@pytest.mark.parametrize("t", [-1, 10, 2.0, True, None, torch.tensor([0, 1])])
def test_reverse_step_rejects_steps_outside_the_schedule(t):
    x = torch.zeros(2)
    with pytest.raises(ValueError, match=f"one int from 0 to 9, got {re.escape(repr(t))}"):
        diffusion.reverse_step(x, x, t, diffusion.noise_schedule(10), x)


def test_reverse_step_accepts_a_one_element_tensor_as_step():
    x, betas = torch.ones(2), diffusion.noise_schedule(10)
    want = diffusion.reverse_step(x, x, 3, betas, x)
    assert torch.equal(diffusion.reverse_step(x, x, torch.tensor(3), betas, x), want)


@pytest.mark.parametrize("steps", [50, 200])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_optimal_model_samples_match_the_data_distribution(steps, share):
    betas = diffusion.noise_schedule(steps)
    weights = torch.tensor([share, 1 - share])
    model = demos.Mixture(torch.tensor([-1.0, 1.0]), weights, 0.1, (1 - betas).cumprod(0))
    x = diffusion.ddpm_sample(model, (3000,), betas, seeded(3))
    assert x.shape == (3000,) and x.dtype == torch.float32
    assert demos.near(x, [-1.0, 1.0], 0.4) > 0.98
    assert abs((x < 0).float().mean() - share) < 0.05
    again = diffusion.ddpm_sample(model, (3000,), betas, seeded(3))
    assert torch.equal(x, again)


def test_ddpm_sample_runs_every_step_and_records_no_graph():
    steps, w = [], torch.ones((), requires_grad=True)

    def model(x, t):
        assert t.shape == (3,) and t.dtype == torch.int64 and len(set(t.tolist())) == 1
        steps.append(int(t[0]))
        return w * x

    x = diffusion.ddpm_sample(model, (3, 1, 2, 2), diffusion.noise_schedule(7))
    assert steps == [6, 5, 4, 3, 2, 1, 0] and not x.requires_grad and x.shape == (3, 1, 2, 2)


def test_mixture_prediction_minimizes_the_noise_error():
    """Small changes of the prediction raise the loss."""
    bars = (1 - diffusion.noise_schedule(40)).cumprod(0)
    model = demos.Mixture(torch.tensor([-1.0, 1.0]), torch.tensor([0.3, 0.7]), 0.2, bars)
    g = seeded(4)
    x0, t = model.sample(40_000, g), torch.randint(40, (40_000,), generator=g)
    noise = torch.randn(40_000, generator=g)
    x = diffusion.q_sample(x0, t, noise, bars)
    best = model(x, t)
    assert best.dtype == torch.float32
    loss = F.mse_loss(best, noise)
    for other in (0.9 * best, 1.1 * best, best + 0.1, best - 0.1, best + 0.05 * x):
        assert F.mse_loss(other, noise) > loss


def test_single_gaussian_prediction_is_linear():
    bars = (1 - diffusion.noise_schedule(40)).cumprod(0)
    model = demos.Mixture(torch.tensor([0.0]), torch.tensor([1.0]), 1.0, bars)
    x, t = torch.randn(9, generator=seeded(5)), torch.arange(9)
    assert torch.allclose(model(x, t), (1 - bars[t]).sqrt() * x, atol=1e-6)


@given(st.integers(1, 20), st.floats(0, 1000, width=32))
@settings(deadline=None, max_examples=40)
def test_time_embedding_returns_cosines_and_sines(half, step):
    got = diffusion.time_embedding(torch.tensor([step, 0.0]), 2 * half)
    assert got.shape == (2, 2 * half) and got.dtype == torch.float32
    assert torch.allclose(got.square().sum(1), torch.full((2,), float(half)), rtol=1e-4)
    assert math.isclose(got[0, 0].item(), math.cos(step), abs_tol=1e-4)
    assert got[1].tolist() == [1.0] * half + [0.0] * half


def test_time_embeddings_of_all_steps_differ():
    codes = diffusion.time_embedding(torch.arange(1000), 16)
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
        diffusion.time_embedding(t, width)
    with pytest.raises(ValueError, match="longest must be above 0, got 0"):
        diffusion.time_embedding(torch.zeros(3), 4, longest=0)


def test_guidance_is_linear_in_the_scale():
    c, u = torch.randn(2, 5, generator=seeded(6))
    assert torch.equal(diffusion.guided(c, u, 0.0), u)
    assert torch.allclose(diffusion.guided(c, u, 1.0), c)
    assert torch.allclose(diffusion.guided(c, u, 4.0), 4 * c - 3 * u, atol=1e-5)
    with pytest.raises(ValueError, match=r"the same shape, got \(5,\) and \(1,\)"):
        diffusion.guided(c, u[:1], 2.0)


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
    ("wrong", "says"),
    [
        (unshaped, "RuntimeError"),
        (shaped_if_needed, "wrong"),
        (with_the_last, "where before is -1"),
        (lambda x, e, t, b, bars: ddim(x, e, t, t - 1, bars), "the step to t - 1"),
        (lambda x, e, t, b, bars: ddim(x, e, t, torch.where(b < 1, -1, b), bars), "before is 0"),
        (lambda x, e, t, b, bars: ddim(x, e, t.clamp(min=1), b, bars), "where t is 0"),
        (from_the_first, "wrong value"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b, bars) + 0.1, "wrong value"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b, bars) + torch.randn_like(x), "random state"),
        (lambda x, e, t, b, bars: ddim(x.detach(), e, t, b, bars), "the gradient is not"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b.clamp_(min=0), bars), "before was changed"),
        (lambda x, e, t, b, bars: ddim(x.float(), e.float(), t, b, bars.float()), "float64"),
        (lambda x, e, t, b, bars: ddim(x, e, t, b, bars).tolist(), "expected a tensor, got list"),
    ],
)
def test_wrong_ddim_steps_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_ddim_step(wrong), says)


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


def test_number_as_step_raises():
    bars = (1 - diffusion.noise_schedule(np.int64(10))).cumprod(0)
    with pytest.raises(ValueError, match=r"int64 of shape \(2,\), got 3"):
        diffusion.per_sample(bars, 3, torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"tensor of shape \(N,\), got 5"):
        diffusion.time_embedding(5, 6)
