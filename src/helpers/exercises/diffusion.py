"""Checkers of the exercises of the chapter on diffusion models."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import same_gradient
from helpers.exercises.tools import a_tensor, between, close, in_dtypes, leaves

# ---------------------------------------------------------------- the loss of a batch


def _shaped(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like).view(-1, *[1] * (like.dim() - 1))


def _loss_call(f: Callable, x0: Tensor, bars: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the loss, the steps, the noise in the model's input and the model's weight."""
    weight = torch.tensor(0.5, dtype=x0.dtype, requires_grad=True)
    calls = []

    def model(x: Tensor, t: Tensor) -> Tensor:
        calls.append((x, t))
        a_tensor(x, x0.shape, x0.dtype, "x")
        a_tensor(t, (len(x0),), torch.int64, "t")
        inside = int(t.min()) >= 0 and int(t.max()) < len(bars)
        assert inside, f"expected steps from 0 to {len(bars) - 1}, got {t.tolist()[:5]} …"
        return weight * x + _shaped(t, x) / 10

    got = leaves(f, "the model", "x0", "alpha_bars")(model, x0, bars)
    assert len(calls) == 1, f"expected one call of the model, got {len(calls)}"
    ((x, t),) = calls
    left = _shaped(bars[t], x0)
    noise = (x.detach() - left.sqrt() * x0) / (1 - left).sqrt()
    return a_tensor(got, (), x0.dtype), t, noise, weight


def _loss_bars() -> Tensor:
    return torch.linspace(0.9, 0.1, between(4, 7))


def _loss_steps(f: Callable) -> None:
    bars, n = _loss_bars(), 4000
    _, t, _, _ = _loss_call(f, torch.zeros(n), bars)
    assert t.unique().numel() > 1, "all samples have the same step: draw one for each"
    again = _loss_call(f, torch.zeros(n), bars)[1]
    assert not torch.equal(t, again), "the steps are the same in each call: draw new ones"
    counts = torch.bincount(t, minlength=len(bars))
    assert counts.min() > 0.7 * n / len(bars), (
        f"expected each step with the same probability, counted {counts.tolist()}"
    )


def _loss_noise(f: Callable) -> None:
    _, _, noise, _ = _loss_call(f, torch.zeros(4000, 2), _loss_bars())
    assert noise[:, 0].unique().numel() > 1000, (
        "all samples have the same noise: draw it in the shape of x0"
    )
    far = (noise.abs() > 2).double().mean().item()
    normal = abs(noise.mean()) < 0.08 and abs(noise.std() - 1) < 0.08 and 0.03 < far < 0.07
    assert normal, (
        "for data of 0, the model's input is not sqrt(1 - alpha-bar) times standard normal noise"
    )
    assert torch.corrcoef(noise.T)[0, 1].abs() < 0.1, (
        "the elements of a sample have the same noise: draw it in the shape of x0"
    )
    again = _loss_call(f, torch.zeros(4000, 2), _loss_bars())[2]
    assert torch.corrcoef(torch.stack([noise[:, 0], again[:, 0]]))[0, 1].abs() < 0.1, (
        "the noise is the same in each call: draw new noise"
    )


def _loss_signal(f: Callable) -> None:
    for shape in ((6, 3), (5, 5, 5, 5), (7,), (1, 3)):
        _, _, noise, _ = _loss_call(f, torch.full(shape, 1000.0), _loss_bars())
        assert noise.abs().max() < 8, (
            f"for data of shape {shape}, the model's input is not sqrt(alpha-bar) x0 + "
            "sqrt(1 - alpha-bar) noise, with the coefficients of each sample"
        )


def _loss_value(f: Callable) -> None:
    for dtype, near in ((torch.float32, 1e-3), (torch.float64, 1e-5)):
        x0, bars = torch.randn(6, 3, 2, dtype=dtype), _loss_bars().to(dtype)
        got, t, noise, weight = _loss_call(f, x0, bars)
        left = _shaped(bars[t], x0)
        x = left.sqrt() * x0 + (1 - left).sqrt() * noise
        right = F.mse_loss(weight * x + _shaped(t, x) / 10, noise)
        complaint = "the loss is not the mean squared error of the noise"
        close(got, right, complaint, rtol=near, atol=near / 10)
        same_gradient(got, right, weight)


def check_diffusion_loss(
    answer: Callable[[Callable[[Tensor, Tensor], Tensor], Tensor, Tensor], Tensor],
) -> Verdict:
    """Check `answer(model, x0, alpha_bars)`: the loss of a diffusion model for one batch.

    `model` maps `x`, shape (N, ...), and `t`, int64 of shape (N,), to a tensor of the shape of `x`;
    `x0` is floating point, `alpha_bars` of shape (T,). Expected is the mean squared error of the
    predicted noise, after one call with a random step and new noise for each sample.
    """
    checks = [_loss_steps, _loss_noise, _loss_signal, _loss_value]
    return verdict(answer, checks, draws=True)


# ---------------------------------------------------------------- a step of DDIM


def _ddim(x: Tensor, predicted: Tensor, t: Tensor, before: Tensor, bars: Tensor) -> Tensor:
    def shaped(values: Tensor) -> Tensor:
        return values.to(x).view(-1, *[1] * (x.dim() - 1))

    left = shaped(bars[t])
    previous = shaped(torch.where(before < 0, 1.0, bars[before.clamp(min=0)]))
    x0 = (x - (1 - left).sqrt() * predicted) / left.sqrt()
    return previous.sqrt() * x0 + (1 - previous).sqrt() * predicted


def _ddim_draw(*shape: int) -> list[Tensor]:
    n = shape[0]
    steps = between(20, 30)
    betas = torch.rand(steps) * 0.1 + 0.01
    t = torch.randint(5, steps, (n,))
    before = t - torch.randint(1, 5, (n,))
    x, predicted = torch.randn(2, *shape)
    return [x, predicted, t, before, (1 - betas).cumprod(0)]


def _ddim_value(f: Callable) -> None:
    for shape in ((5, 3), (4, 2, 3, 6), (7,), (1, 3), (1, 1, 1, 1)):
        inputs = _ddim_draw(*shape)
        got = a_tensor(f(*inputs), shape, torch.float32)
        if torch.allclose(got, _ddim(*inputs), rtol=1e-4, atol=1e-4):
            continue
        x, predicted, t, _before, bars = inputs
        near = _ddim(x, predicted, t, t - 1, bars)
        assert not torch.allclose(got, near, rtol=1e-4, atol=1e-4), (
            "this is the step to t - 1: steps may be skipped, use `before`"
        )
        raise AssertionError(f"wrong value for samples of shape {shape}")


def _ddim_square(f: Callable) -> None:
    inputs = _ddim_draw(4, 4, 4, 4)
    close(
        f(*inputs),
        _ddim(*inputs),
        "wrong if the batch size equals the width: one coefficient per sample, (N, 1, 1, 1)",
        rtol=1e-4,
        atol=1e-4,
    )


def _ddim_last(f: Callable) -> None:
    x, predicted, t, before, bars = _ddim_draw(5, 3)
    before = torch.where(torch.arange(5) % 2 == 0, -1, before)
    got, want = f(x, predicted, t, before, bars), _ddim(x, predicted, t, before, bars)
    close(
        got,
        want,
        "wrong where before is -1, the data themselves: alpha-bar is 1 there, and bars[-1] is the "
        "last one",
        rtol=1e-4,
        atol=1e-4,
    )


def _ddim_first(f: Callable) -> None:
    """Check that step 0 is not treated as the data: alpha_bars[0] is below 1."""
    x, predicted, t, _, bars = _ddim_draw(5, 3)
    bars = bars * 0.9  # a first step that is clearly visible
    for start in (t, torch.ones_like(t)):
        before = torch.zeros_like(start)
        close(
            f(x, predicted, start, before, bars),
            _ddim(x, predicted, start, before, bars),
            "wrong where before is 0: the data after step 0 are noisy, with alpha_bars[0]",
            rtol=1e-4,
            atol=1e-4,
        )
    start, before = torch.zeros_like(t), torch.full_like(t, -1)
    close(
        f(x, predicted, start, before, bars),
        _ddim(x, predicted, start, before, bars),
        "wrong where t is 0 and before is -1",
        rtol=1e-4,
        atol=1e-4,
    )


def _ddim_exact(f: Callable) -> None:
    """Check that one step with the true noise returns the data."""
    x0, noise, t, _, bars = _ddim_draw(6, 2)
    left = bars[t][:, None]
    x = left.sqrt() * x0 + (1 - left).sqrt() * noise
    got = f(x, noise, t, torch.full_like(t, -1), bars)
    close(got, x0, "with the true noise, the step to -1 must give the data", rtol=1e-3, atol=1e-3)


def _ddim_gradient(f: Callable) -> None:
    x, predicted, *rest = _ddim_draw(5, 3)
    x.requires_grad_()
    predicted.requires_grad_()
    for one in (x, predicted):
        same_gradient(f(x, predicted, *rest).sum(), _ddim(x, predicted, *rest).sum(), one)


def _ddim_dtypes(f: Callable) -> None:
    x, predicted, t, before, bars = _ddim_draw(5, 3)
    in_dtypes(
        lambda x, predicted, bars: f(x, predicted, t, before, bars),
        lambda x, predicted, bars: _ddim(x, predicted, t, before, bars),
        x,
        predicted,
        bars,
    )


def check_ddim_step(
    answer: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Verdict:
    """Check `answer(x, predicted, t, before, alpha_bars)`: one deterministic step of DDIM.

    `x` and `predicted` have shape (N, ...), `t` and `before`, int64, shape (N,), and `alpha_bars`
    shape (T,). `before` is below `t`; -1 represents the data, whose alpha-bar is 1.
    """
    asked = leaves(answer, "x", "predicted", "t", "before", "alpha_bars")
    return verdict(
        asked,
        [
            _ddim_value,
            _ddim_square,
            _ddim_last,
            _ddim_first,
            _ddim_exact,
            _ddim_gradient,
            _ddim_dtypes,
        ],
    )
