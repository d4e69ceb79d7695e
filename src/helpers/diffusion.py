"""Helpers of the chapter on diffusion models: noise schedules, DDPM sampling, guidance.

Source: Ho et al. 2020, "Denoising Diffusion Probabilistic Models".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from helpers import checks


def noise_schedule(steps: int, first: float = 0.1, last: float = 20.0) -> Tensor:
    """Return the betas of a linear schedule whose last alpha-bar is near 0 for any `steps`.

    The betas rise from `first / steps` to `last / steps`, at most 0.999. With 1,000 steps these are
    the values of DDPM, 1e-4 and 0.02.

    Args:
        steps: number of diffusion steps, at least 2.
        first: first beta, times the number of steps, above 0.
        last: last beta, times the number of steps.

    Returns:
        Shape (steps,), float32. The products of 1 - beta, `(1 - betas).cumprod(0)`, are the
        alpha-bars: the share of the data's variance that is left after each step.

    Raises:
        TypeError: `first` or `last` is not a number.
        ValueError: `steps` is not an int or below 2, or not 0 < first <= last, both finite.

    Source: Ho et al. 2020, section 4; for the scaling with the number of steps, Dhariwal and Nichol
    2021, https://github.com/openai/guided-diffusion
    """
    if not isinstance(steps, Integral) or steps < 2:
        raise ValueError(f"steps must be an int of at least 2, got {steps!r}")
    checks.number("first", first), checks.number("last", last)
    if not 0 < first <= last < math.inf:
        raise ValueError(f"expected 0 < first <= last, both finite, got {first} and {last}")
    betas = torch.linspace(first / steps, last / steps, steps, dtype=torch.float64)
    return betas.clamp(max=0.999).float()


def per_sample(values: Tensor, t: Tensor, like: Tensor) -> Tensor:
    """Return `values[t]` in the shape (N, 1, ..., 1), which broadcasts with `like`.

    Args:
        values: shape (T,), one coefficient for each diffusion step.
        t: step of each sample, int64, shape (N,), from 0 to T - 1.
        like: shape (N, ...), floating point; the result has its dtype and device.

    Raises:
        TypeError: `values` or `like` is not a tensor.
        ValueError: `t` is not of shape (N,) or not int64, a step is outside the schedule (on a GPU
            this check synchronizes), `values` has another number of dimensions, or `like` contains
            integers or has no batch dimension.
    """
    if checks.tensor("the coefficients", values).dim() != 1:
        raise ValueError(f"the coefficients must have shape (T,), got {tuple(values.shape)}")
    if not checks.tensor("the data", like).dim() or not (
        like.is_floating_point() or like.is_complex()
    ):
        raise ValueError(
            f"the data must be floating point, of shape (N, ...), got {like.dtype} of shape "
            f"{tuple(like.shape)}: convert images, for example by x / 127.5 - 1"
        )
    if not isinstance(t, Tensor) or t.shape != like.shape[:1] or t.dtype != torch.int64:
        got = f"{t.dtype} of shape {tuple(t.shape)}" if isinstance(t, Tensor) else repr(t)
        raise ValueError(f"t must be int64 of shape {tuple(like.shape[:1])}, got {got}")
    if t.numel() and (int(t.min()) < 0 or int(t.max()) >= len(values)):
        raise ValueError(
            f"steps must be from 0 to {len(values) - 1}, got {int(t.min())} to {int(t.max())}"
        )
    chosen = values.to(t.device)[t].to(like)
    return chosen.view(-1, *[1] * (like.dim() - 1))


def q_sample(x0: Tensor, t: Tensor, noise: Tensor, alpha_bars: Tensor) -> Tensor:
    """Return the data after t + 1 steps of noise: sqrt(alpha-bar) x0 + sqrt(1 - alpha-bar) noise.

    Args:
        x0: data, shape (N, ...), floating point, scaled to about [-1, 1].
        t: step of each sample, int64, shape (N,), from 0 to T - 1.
        noise: standard normal, shape and dtype of `x0`.
        alpha_bars: shape (T,), see `noise_schedule`.

    Returns:
        Shape and dtype of `x0`.

    Raises:
        TypeError: `x0`, `noise` or `alpha_bars` is not a tensor, or `noise` contains integers.
        ValueError: the shapes of data and noise differ, or an argument is invalid (see
            `per_sample`).
    """
    checks.tensor("alpha_bars", alpha_bars), checks.tensor("noise", noise)
    if checks.tensor("x0", x0).shape != noise.shape:
        raise ValueError(
            f"noise must have the shape of x0, {tuple(x0.shape)}, got {tuple(noise.shape)}"
        )
    if x0.is_floating_point():
        checks.floating("noise", noise)
    signal = per_sample(alpha_bars.sqrt(), t, x0)
    return signal * x0 + per_sample((1 - alpha_bars).sqrt(), t, x0) * noise


def _check_betas(betas: Tensor) -> None:
    if (
        checks.filled("betas", betas).dim() != 1
        or not len(betas)
        or not bool(((betas > 0) & (betas < 1)).all())
    ):
        raise ValueError(
            f"betas must have shape (T,), with values above 0 and below 1, got shape "
            f"{tuple(betas.shape)} with values {betas.flatten()[:3].tolist()} …"
        )


def reverse_step(x: Tensor, predicted: Tensor, t: int, betas: Tensor, noise: Tensor) -> Tensor:
    """Return the sample of step t - 1 from that of step t: one step of DDPM's reverse process.

    The mean is (x - beta / sqrt(1 - alpha-bar) predicted) / sqrt(1 - beta). Its variance is that
    of the posterior, beta (1 - previous alpha-bar) / (1 - alpha-bar), which is 0 in the last step,
    t = 0.

    Args:
        x: samples of step t, shape (N, ...), floating point.
        predicted: the model's prediction of the noise in `x`, the same shape.
        t: step, from 0 to T - 1, the same for all samples.
        betas: shape (T,), above 0 and below 1.
        noise: standard normal, the shape of `x`.

    Raises:
        TypeError: `x`, `predicted` or `noise` is not a floating-point tensor, or `betas` not a
            tensor with values.
        ValueError: `t` is not one step of the schedule, a beta is not between 0 and 1, or the
            shapes of prediction, noise and `x` differ.
    """
    _check_betas(betas)
    checks.floating("x", x)
    if isinstance(t, Tensor) and t.numel() == 1:
        t = t.item()
    if isinstance(t, bool) or not isinstance(t, Integral) or not 0 <= t < len(betas):
        raise ValueError(f"t must be one int from 0 to {len(betas) - 1}, got {t!r}")
    for name, other in (("predicted", predicted), ("noise", noise)):
        if not isinstance(other, Tensor) or other.shape != x.shape:
            got = tuple(other.shape) if isinstance(other, Tensor) else type(other).__name__
            raise ValueError(
                f"{name} must be a tensor of the shape of x, {tuple(x.shape)}, got {got}"
            )
        checks.floating(name, other)
    betas = betas.cpu().double()  # MPS has no float64
    alpha_bars = (1 - betas).cumprod(0)
    beta, left = betas[t].item(), alpha_bars[t].item()
    before = alpha_bars[t - 1].item() if t else 1.0
    mean = (x - beta / math.sqrt(1 - left) * predicted) / math.sqrt(1 - beta)
    return mean + math.sqrt(beta * (1 - before) / (1 - left)) * noise


@torch.no_grad()
def ddpm_sample(
    model: Callable[[Tensor, Tensor], Tensor],
    shape: Sequence[int],
    betas: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sample from noise by DDPM's reverse process, from the last step to step 0.

    Args:
        model: from `x`, shape (N, ...), and `t`, int64 of shape (N,), to the predicted noise, a
            tensor of the shape of `x`. It runs in its current mode, so call `eval()` first.
        shape: of the samples, (N, ...).
        betas: shape (T,), above 0 and below 1; samples are on its device.
        generator: of the noise, on the same device; None: the global one.

    Returns:
        Shape `shape`, float32 (float64 if the model returns that).

    Raises:
        TypeError: `model` cannot be called, `shape` contains no ints, or `betas` is not a tensor.
        ValueError: a beta is not between 0 and 1, `shape` is empty, or the model's output has
            another shape than `x`.
    """
    _check_betas(betas)
    checks.function("model", model)
    if not isinstance(shape, Sequence) or not shape:
        raise ValueError(f"shape must be a tuple such as (16, 2), got {shape!r}")
    shape = [checks.integer("each size of shape", size, 0) for size in shape]
    options = {"generator": generator, "device": betas.device, "dtype": torch.float32}
    x = torch.randn(*shape, **options)
    for t in range(len(betas) - 1, -1, -1):
        steps = torch.full((len(x),), t, device=x.device)
        noise = torch.randn(*shape, **options)
        x = reverse_step(x, model(x, steps), t, betas, noise)
    return x


def time_embedding(t: Tensor, width: int, longest: float = 10_000.0) -> Tensor:
    """Return cosines and sines of the steps, at frequencies from 1 down to about 1 / `longest`.

    Args:
        t: steps, any dtype, shape (N,), in steps (0 … T - 1), not divided by T.
        width: even, the width of the embedding.
        longest: of the periods, divided by 2 pi, in steps, above 0.

    Returns:
        Shape (N, width), float32.

    Raises:
        TypeError: `width` is not an int, or `longest` not a number.
        ValueError: `width` is odd or below 2, `longest` is not above 0, or `t` has another number
            of dimensions.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    width = checks.integer("width", width)
    checks.finite("longest", longest)
    if width < 2 or width % 2:
        raise ValueError(f"width must be even and at least 2, got {width}")
    if not longest > 0:
        raise ValueError(f"longest must be above 0, got {longest}")
    if not isinstance(t, Tensor) or t.dim() != 1:
        got = tuple(t.shape) if isinstance(t, Tensor) else repr(t)
        raise ValueError(f"t must be a tensor of shape (N,), got {got}")
    half = width // 2
    powers = torch.arange(half, device=t.device, dtype=torch.float32) / half
    angles = t[:, None].float() * torch.exp(-math.log(longest) * powers)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def guided(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Return the prediction of classifier-free guidance: u + scale (c - u).

    Args:
        conditional: prediction with the condition, any shape.
        unconditional: prediction without it, the same shape.
        scale: 0: unconditional, 1: conditional, above 1: guided. The paper's w is `scale - 1`.

    Raises:
        TypeError: a prediction is not a floating-point tensor, or `scale` not a number.
        ValueError: the shapes differ.

    Source: Ho and Salimans 2022, "Classifier-Free Diffusion Guidance",
    https://arxiv.org/abs/2207.12598
    """
    checks.floating("conditional", conditional)
    checks.floating("unconditional", unconditional), checks.number("scale", scale)
    if conditional.shape != unconditional.shape:
        raise ValueError(
            f"both predictions must have the same shape, got {tuple(conditional.shape)} and "
            f"{tuple(unconditional.shape)}"
        )
    return unconditional + scale * (conditional - unconditional)
