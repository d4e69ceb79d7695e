"""Show gradients in float16, bfloat16 and float32, multiplied by a loss scale."""

from __future__ import annotations

import math

import torch

from helpers.explorers import Explorer

TYPES = (torch.float16, torch.bfloat16, torch.float32)
MANTISSA = 1.3
SMALLEST, LARGEST, STEP = -40, -4, 2  # exponents e of the gradients 1.3 * 2**e
SCALES = 32  # exponent of the largest scale, 2**32


def counts() -> list[int]:
    """Return an invented, bell-shaped histogram of gradients, smallest size first."""
    n = (LARGEST - SMALLEST) // STEP
    return [round(1000 * math.comb(n, i) / 2**n) + 5 for i in range(n + 1)]


def stored(exponent: int, dtype: torch.dtype) -> tuple[str, float]:
    """Return the result of storing `1.3 * 2**exponent` in a dtype.

    Returns:
        `"zero"`, `"few"` (subnormal, with fewer significant digits), `"normal"` or `"inf"`; and
        the relative error of the stored number in percent (0 for inf, 100 for zero).
    """
    value = torch.tensor(MANTISSA * 2.0**exponent, dtype=torch.float64)
    kept = value.to(dtype).double()
    if kept.isinf():
        return "inf", 0.0
    off = 100 * ((kept - value).abs() / value).item()
    if kept == 0:
        return "zero", 100.0
    return "few" if kept < torch.finfo(dtype).smallest_normal else "normal", float(f"{off:.2g}")


def halves_explorer(lang: str | None = None) -> Explorer:
    """Choose a dtype and a scale, and see which gradients become 0 or infinite."""
    exponents = range(SMALLEST, LARGEST + SCALES + 1)
    return Explorer(
        "halves",
        {
            "types": [str(dtype).removeprefix("torch.") for dtype in TYPES],
            "first": SMALLEST,
            "step": STEP,
            "scales": SCALES,
            "mantissa": MANTISSA,
            "counts": counts(),
            "stored": [[stored(e, dtype) for e in exponents] for dtype in TYPES],
        },
        {
            "en": (
                "Gradients from 1e-12 to 0.1 in float16. Without a scale a quarter of them "
                "become 0 and most others lose digits; a scale of 65536 moves all of them into "
                "its range, and a larger one makes the largest infinite. bfloat16 can represent "
                "them at every scale shown."
            ),
            "zh": (
                "从 1e-12 到 0.1 的梯度存成 float16。不缩放时，四分之一变成 0，其余大多损失有效"
                "数字；缩放因子 65536 使所有梯度都落入可表示的范围，更大的因子会使最大的梯度变成"
                "无穷大。在图中所有缩放因子下，bfloat16 都能表示这些梯度。"
            ),
        },
        lang,
    )
