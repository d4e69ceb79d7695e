"""Helpers of the chapter on generative models: the modes of a mixture, the KL of a VAE.

Source: Goodfellow et al. 2014, "Generative Adversarial Nets"; Kingma and Welling 2014,
"Auto-Encoding Variational Bayes".
"""

from __future__ import annotations

import math
from numbers import Integral

import torch
from torch import Tensor

from helpers import checks

# ---------------------------------------------------------------- a mixture, and its modes


def ring_centres(modes: int = 8) -> Tensor:
    """Return `modes` points at equal distances on the unit circle: shape (modes, 2), float32.

    Raises:
        ValueError: `modes` is not an int, or below 1.
    """
    if not isinstance(modes, Integral) or isinstance(modes, bool) or modes < 1:
        raise ValueError(f"modes must be an int of at least 1, got {modes!r}")
    angles = torch.arange(modes, dtype=torch.float32) * (2 * math.pi / modes)
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

    Raises:
        TypeError: `std` is not a number.
        ValueError: `n` or `modes` is not an int, `n` is negative, `modes` is below 1, or `std` is
            nan or infinite.
    """
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 0:
        raise ValueError(f"n must be an int of at least 0, got {n!r}")
    checks.finite("std", std)
    centres = ring_centres(modes)
    chosen = torch.randint(modes, (n,), generator=generator)
    noise = torch.randn(n, 2, generator=generator, dtype=torch.float32)
    return centres[chosen] + std * noise


def count_modes(
    samples: Tensor, centres: Tensor, radius: float, least: float = 0.02
) -> tuple[int, float]:
    """Return how many modes the samples cover, and the share of samples that are near a mode.

    A sample belongs to its nearest centre, and is near it if the distance is below `radius`.

    Args:
        samples: shape (N, D), any floating-point dtype.
        centres: shape (K, D).
        radius: in the units of the data.
        least: a mode is covered if at least this share of all samples is near it.

    Returns:
        The number of covered modes, and the share of samples near any centre, from 0 to 1.

    Raises:
        TypeError: the samples or the centres are not a tensor with values, or `radius` or `least`
            is not a number.
        ValueError: `radius` is not above 0, or `least` not from 0 to 1; there is no sample or no
            centre, the samples are not floating-point numbers, or
            the shapes do not fit.
    """
    checks.filled("samples", samples), checks.filled("centres", centres)
    checks.positive("radius", radius), checks.fraction("least", least)
    if samples.dim() != 2 or centres.dim() != 2 or samples.shape[1] != centres.shape[1]:
        raise ValueError(
            f"samples must have shape (N, D) and centres (K, D), got {tuple(samples.shape)} and "
            f"{tuple(centres.shape)}"
        )
    for name, points in (("samples", samples), ("centres", centres)):
        if not len(points):
            raise ValueError(f"{name} must contain at least one row, got none")
    if not samples.is_floating_point():
        raise ValueError(f"samples must be floating point, got {samples.dtype}")
    samples = samples.to(torch.promote_types(samples.dtype, torch.float32))  # cdist has no float16
    distance, nearest = torch.cdist(
        samples, centres.to(samples), compute_mode="donot_use_mm_for_euclid_dist"
    ).min(dim=1)
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
        TypeError: an argument is not a floating-point tensor.
        ValueError: the shapes differ, or there is no batch dimension.
    """
    for name, value in (("mu", mu), ("logvar", logvar)):
        if not checks.tensor(name, value).is_floating_point():
            raise TypeError(f"{name} must be floating point, got {value.dtype}")
    if mu.shape != logvar.shape or not mu.dim():
        raise ValueError(
            f"mu and logvar must have the same shape (N, ...), got {tuple(mu.shape)} and "
            f"{tuple(logvar.shape)}"
        )
    each = 0.5 * (mu.square() + logvar.expm1() - logvar)
    return each[:, None].flatten(1).sum(dim=1)
