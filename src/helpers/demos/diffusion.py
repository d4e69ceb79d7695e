"""Demonstrations of the chapter on diffusion models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.diffusion import per_sample


class Mixture(nn.Module):
    """The best possible noise prediction for a one-dimensional mixture of Gaussians.

    It has no parameters to train: the expected noise given `x` has a closed form.

    Args:
        centres: shape (K,).
        weights: shape (K,), with the sum 1.
        std: standard deviation of each Gaussian.
        alpha_bars: shape (T,).

    Raises:
        TypeError, ValueError: an argument is not a tensor, or `std` is not a finite number.
    """

    def __init__(self, centres: Tensor, weights: Tensor, std: float, alpha_bars: Tensor) -> None:
        super().__init__()
        checks.tensor("centres", centres), checks.tensor("weights", weights)
        checks.tensor("alpha_bars", alpha_bars), checks.finite("std", std)
        self.centres, self.weights = centres.double(), weights.double()
        self.std, self.alpha_bars = std, alpha_bars.double()

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Return data of shape (n,), float32."""
        chosen = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        return (self.centres[chosen] + self.std * torch.randn(n, generator=generator)).float()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Return the expected noise in `x`, shape (N,), after the steps `t`, int64 of shape (N,).

        The result has the shape and the dtype of `x`.
        """
        left = per_sample(self.alpha_bars, t, x.double())[:, None]
        variance = left * self.std**2 + 1 - left
        away = left.sqrt() * self.centres - x.double()[:, None]
        belongs = (self.weights.log() - away.square() / (2 * variance)).softmax(1)
        score = (belongs * away / variance).sum(1)
        return (-(1 - left[:, 0]).sqrt() * score).to(x.dtype)


def near(x: Tensor, centres: Sequence[float], radius: float) -> float:
    """Return the share of `x`, shape (N,), that is within `radius` of one of `centres`.

    Raises:
        TypeError: `x` is not a floating-point tensor, or `radius` not a number.
    """
    checks.floating("x", x), checks.number("radius", radius)
    distance = (x[:, None] - torch.tensor(centres)).abs().amin(1)
    return (distance < radius).double().mean().item()
