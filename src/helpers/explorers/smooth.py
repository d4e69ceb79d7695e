"""Show TensorBoard's smoothing of a noisy loss that falls and rises again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.explorers import Explorer

STEPS, SPIKE, LARGE = 100, 70, 3.0


def smooth(values: Sequence[float], weight: float, debias: bool = True) -> list[float]:
    """Return TensorBoard's smoothed curve: the exponential moving average of finite values.

    Args:
        values: values of the curve.
        weight: weight of the previous average in [0, 1); TensorBoard's default is 0.6.
        debias: divide by 1 - weight**n after n values, as TensorBoard does; else the average
            starts at zero and is biased towards it.

    Source: `classicSmoothing` in tensorboard/webapp/widgets/line_chart_v2/data_transformer.ts.
    """
    average, out = 0.0, []
    for n, value in enumerate(values, 1):
        average = weight * average + (1 - weight) * value
        out.append(average / (1 - weight**n) if debias else average)
    return out


def noisy_losses() -> tuple[Tensor, Tensor]:
    """Return an invented validation loss that falls, turns and rises slowly.

    Returns:
        The loss without noise, and the logged one, with noise and one large value; both float64
        of shape (100,).
    """
    step = torch.arange(STEPS, dtype=torch.float64)
    whole = 0.6 + 2.4 * (-step / 14).exp() + 0.007 * step
    g = torch.Generator().manual_seed(9)
    logged = whole + 0.2 * torch.randn(STEPS, generator=g, dtype=torch.float64)
    logged[SPIKE] = LARGE
    return whole, logged


def smooth_explorer(lang: str | None = None) -> Explorer:
    """Move TensorBoard's slider, and see when a turn and a spike disappear."""
    whole, logged = noisy_losses()
    data = {
        "whole": [round(v, 3) for v in whole.tolist()],
        "logged": [round(v, 3) for v in logged.tolist()],
        "turn": int(whole.argmin()),
        "spike": SPIKE,
        "start": 99,
    }
    return Explorer(
        "smooth",
        data,
        {
            "en": (
                "A noisy validation loss that rises from step 45 on, with one spike. Smoothed "
                "with 0.99, the line falls almost to the end and the spike is not visible; "
                "without smoothing, noise determines the lowest point. Near 0.75 the turning "
                "point is where it belongs."
            ),
            "zh": (
                "一条带噪声的验证损失，从第 45 步开始上升，还有一个尖峰。平滑系数为 0.99 时，曲"
                "线几乎一直下降，尖峰也看不见了；不平滑时，最低点由噪声决定。平滑系数在 0.75 附"
                "近时，转折点的位置是对的。"
            ),
        },
        lang,
    )
