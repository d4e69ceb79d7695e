"""Helpers of the chapter on generative models: GAN, VAE and diffusion.

Source: Goodfellow et al. 2014, "Generative Adversarial Nets"; Kingma and Welling 2014,
"Auto-Encoding Variational Bayes"; Ho et al. 2020, "Denoising Diffusion Probabilistic Models".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# ---------------------------------------------------------------- a mixture, and its modes


def ring_centres(modes: int = 8) -> Tensor:
    """Return `modes` points at equal distances on the unit circle: shape (modes, 2), float32.

    Raises:
        ValueError: `modes` is below 1.
    """
    if modes < 1:
        raise ValueError(f"modes must be at least 1, got {modes}")
    angles = torch.arange(modes) * (2 * math.pi / modes)
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def ring(
    n: int, modes: int = 8, std: float = 0.05, generator: torch.Generator | None = None
) -> Tensor:
    """Sample a mixture of Gaussians with equal weights on the unit circle: shape (n, 2), float32.

    Args:
        n: number of samples.
        modes: number of Gaussians.
        std: standard deviation of each Gaussian.
        generator: of the random numbers; None: the global one of the CPU.
    """
    centres = ring_centres(modes)
    chosen = torch.randint(modes, (n,), generator=generator)
    return centres[chosen] + std * torch.randn(n, 2, generator=generator)


def count_modes(
    samples: Tensor, centres: Tensor, radius: float, least: float = 0.02
) -> tuple[int, float]:
    """Return how many modes the samples cover, and the share of samples that are near a mode.

    A sample belongs to its nearest centre, and is near it if the distance is below `radius`.

    Args:
        samples: shape (N, D), floating point.
        centres: shape (K, D).
        radius: in the units of the data.
        least: a mode is covered if at least this share of all samples is near it.

    Returns:
        The number of covered modes, and the share of samples near any centre, from 0 to 1.

    Raises:
        ValueError: there is no sample, or the shapes do not fit.
    """
    if samples.dim() != 2 or centres.dim() != 2 or samples.shape[1] != centres.shape[1]:
        raise ValueError(
            f"samples must have shape (N, D) and centres (K, D), got {tuple(samples.shape)} and "
            f"{tuple(centres.shape)}"
        )
    if not len(samples):
        raise ValueError("samples must contain at least one row, got none")
    distance, nearest = torch.cdist(samples, centres.to(samples)).min(dim=1)
    near = distance < radius
    shares = torch.bincount(nearest[near], minlength=len(centres)) / len(samples)
    return int((shares >= least).sum()), near.double().mean().item()


# ---------------------------------------------------------------- VAE


def kl_to_standard_normal(mu: Tensor, logvar: Tensor) -> Tensor:
    """Return KL(N(mu, exp(logvar)) || N(0, 1)) of each sample, in nats, summed over its dimensions.

    Args:
        mu: means, shape (N, ...), floating point.
        logvar: logarithms of the variances (not of the standard deviations), the same shape.

    Returns:
        Shape (N,), with the dtype of the inputs; 0 where mu and logvar are 0.

    Raises:
        ValueError: the shapes differ, or there is no batch dimension.
    """
    if mu.shape != logvar.shape or not mu.dim():
        raise ValueError(
            f"mu and logvar must have the same shape (N, ...), got {tuple(mu.shape)} and "
            f"{tuple(logvar.shape)}"
        )
    each = 0.5 * (mu.square() + logvar.expm1() - logvar)
    return each.reshape(len(mu), -1).sum(dim=1)


# ---------------------------------------------------------------- diffusion


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
        ValueError: `steps` is below 2, or not 0 < first <= last.

    Source: Ho et al. 2020, section 4; for the scaling with the number of steps, Dhariwal and Nichol
    2021, https://github.com/openai/guided-diffusion
    """
    if steps < 2:
        raise ValueError(f"steps must be at least 2, got {steps}")
    if not 0 < first <= last:
        raise ValueError(f"expected 0 < first <= last, got {first} and {last}")
    betas = torch.linspace(first / steps, last / steps, steps, dtype=torch.float64)
    return betas.clamp(max=0.999).float()


def per_sample(values: Tensor, t: Tensor, like: Tensor) -> Tensor:
    """Return `values[t]` in the shape (N, 1, ..., 1), which broadcasts with `like`.

    Args:
        values: shape (T,), one coefficient for each diffusion step.
        t: step of each sample, int64, shape (N,), from 0 to T - 1.
        like: shape (N, ...); the result has its dtype and device.

    Raises:
        ValueError: `t` is not of shape (N,) or not int64, or a step is outside the schedule (on a
            GPU this check synchronizes).
    """
    if t.shape != like.shape[:1] or t.dtype != torch.int64:
        raise ValueError(
            f"t must be int64 of shape {tuple(like.shape[:1])}, got {t.dtype} of shape "
            f"{tuple(t.shape)}"
        )
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
        noise: standard normal, the shape of `x0`.
        alpha_bars: shape (T,), see `noise_schedule`.

    Returns:
        Shape and dtype of `x0`.

    Raises:
        ValueError: the shapes of data and noise differ, or a step is invalid (see `per_sample`).
    """
    if x0.shape != noise.shape:
        raise ValueError(
            f"noise must have the shape of x0, {tuple(x0.shape)}, got {tuple(noise.shape)}"
        )
    signal = per_sample(alpha_bars.sqrt(), t, x0)
    return signal * x0 + per_sample((1 - alpha_bars).sqrt(), t, x0) * noise


def reverse_step(x: Tensor, predicted: Tensor, t: int, betas: Tensor, noise: Tensor) -> Tensor:
    """Return the sample of step t - 1 from that of step t: one step of DDPM's reverse process.

    The mean is (x - beta / sqrt(1 - alpha-bar) predicted) / sqrt(1 - beta). Its variance is that
    of the posterior, beta (1 - previous alpha-bar) / (1 - alpha-bar), which is 0 in the last step,
    t = 0.

    Args:
        x: samples of step t, shape (N, ...), floating point.
        predicted: the model's prediction of the noise in `x`, the same shape.
        t: step, from 0 to T - 1, the same for all samples.
        betas: shape (T,).
        noise: standard normal, the shape of `x`.

    Raises:
        ValueError: `t` is outside the schedule.
    """
    if not 0 <= t < len(betas):
        raise ValueError(f"t must be from 0 to {len(betas) - 1}, got {t}")
    betas = betas.double()
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
        model: from `x`, shape (N, ...), and `t`, int64 of shape (N,), to the predicted noise. It
            runs in its current mode, so call `eval()` first.
        shape: of the samples, (N, ...).
        betas: shape (T,); samples are on its device.
        generator: of the noise, on the same device; None: the global one.

    Returns:
        Shape `shape`, float32.
    """
    options = {"generator": generator, "device": betas.device}
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
        longest: of the periods, divided by 2 pi, in steps.

    Returns:
        Shape (N, width), float32.

    Raises:
        ValueError: `width` is odd or below 2, or `t` has another number of dimensions.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    if width < 2 or width % 2:
        raise ValueError(f"width must be even and at least 2, got {width}")
    if t.dim() != 1:
        raise ValueError(f"t must have shape (N,), got {tuple(t.shape)}")
    half = width // 2
    powers = torch.arange(half, device=t.device) / half
    angles = t[:, None].float() * torch.exp(-math.log(longest) * powers)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def guided(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Return the prediction of classifier-free guidance: u + scale (c - u).

    Args:
        conditional: prediction with the condition, any shape.
        unconditional: prediction without it, the same shape.
        scale: 0: unconditional, 1: conditional, above 1: guided. The paper's w is `scale - 1`.

    Raises:
        ValueError: the shapes differ.

    Source: Ho and Salimans 2022, "Classifier-Free Diffusion Guidance",
    https://arxiv.org/abs/2207.12598
    """
    if conditional.shape != unconditional.shape:
        raise ValueError(
            f"both predictions must have the same shape, got {tuple(conditional.shape)} and "
            f"{tuple(unconditional.shape)}"
        )
    return unconditional + scale * (conditional - unconditional)
