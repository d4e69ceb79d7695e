"""Series and figures of the chapter on time series."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from helpers import checks
from helpers.figures import COLORS, Figure, figure, legend

_CHINESE = {
    "truth": "真实值",
    "forecast": "预测值",
    "step of the test part": "测试部分的步",
    "hours ahead": "提前的小时数",
    "one step, from true values": "单步，输入真实值",
    "recursive": "递归",
    "direct": "直接",
    "seasonal naive": "季节朴素预测",
}


def random_walk(n: int, generator: torch.Generator | None = None) -> Tensor:
    """Return `n` sums of standard normal steps: the best forecast of each is the value before.

    Returns:
        Shape (n,), float32.

    Raises:
        TypeError, ValueError: `n` is not an int, or negative.
    """
    return torch.randn(checks.integer("n", n, 0), generator=generator).cumsum(0)


def hourly(n: int, trend: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
    """Return `n` hours of a series with a daily cycle, a trend and noise that fades slowly.

    The mean is 20 and the cycle has the amplitude 5. The noise is 0.9 times that of the hour
    before plus a normal number with standard deviation 0.5.

    Args:
        n: number of hours.
        trend: increase per hour.
        generator: of the noise; None: the global one of the CPU.

    Returns:
        Shape (n,), float32.

    Raises:
        TypeError, ValueError: `n` is not an int or negative, or `trend` is not a finite number.
    """
    n = checks.integer("n", n, 0)
    checks.finite("trend", trend)
    t = torch.arange(n)
    noise, last = [], 0.0
    for shock in (0.5 * torch.randn(n, generator=generator)).tolist():
        last = 0.9 * last + shock
        noise.append(last)
    return 20 + trend * t + 5 * torch.sin(2 * math.pi * t / 24) + torch.tensor(noise)


def draw_forecast(prediction: Tensor, target: Tensor) -> Figure:
    """Draw a forecast and the true values of the same steps, both of shape (T,)."""
    drawing, axis = figure(chinese=_CHINESE)
    axis.plot(target.numpy(), ".-", color=COLORS["teal"], label="truth", linewidth=1)
    axis.plot(prediction.numpy(), "--", color=COLORS["orange"], label="forecast", linewidth=2)
    axis.set(xlabel="step of the test part")
    legend(axis)
    return drawing


def draw_errors(errors: Mapping[str, Tensor]) -> Figure:
    """Draw the error of each forecast, shape (H,), over the hours ahead."""
    drawing, axis = figure(chinese=_CHINESE)
    lines = ("-", "--", "-.", ":")
    colors = ("teal", "orange", "violet", "grey")
    for (name, error), line, color in zip(errors.items(), lines, colors, strict=False):
        hours = torch.arange(1, len(error) + 1).numpy()
        axis.plot(hours, error.numpy(), line, color=COLORS[color], label=name, linewidth=2)
    axis.set(xlabel="hours ahead", ylabel="RMSE", ylim=(0, None))
    legend(axis)
    return drawing
