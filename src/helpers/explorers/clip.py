"""Show the clipping of a two-dimensional gradient by norm and by value."""

from __future__ import annotations

import torch
from torch import nn

from helpers.explorers import Explorer

LARGEST = 8


def clipped(gradient: tuple[float, float], limit: float) -> dict[str, list[float] | float]:
    """Clip a gradient by norm and by value.

    Args:
        gradient: the two components.
        limit: used as `max_norm` and as `clip_value`.

    Returns:
        `norm` and `value`: the gradient after `clip_grad_norm_` and `clip_grad_value_`, and
        `returned`: return value of `clip_grad_norm_`; all rounded to two digits.
    """
    w, result = nn.Parameter(torch.zeros(2)), {}
    for name, clip in (("norm", nn.utils.clip_grad_norm_), ("value", nn.utils.clip_grad_value_)):
        w.grad = torch.tensor(gradient, dtype=torch.float32)
        returned = clip([w], limit)
        result[name] = [round(g, 2) for g in w.grad.tolist()]
        if returned is not None:
            result["returned"] = round(returned.item(), 2)
    return result


def clip_explorer(lang: str | None = None) -> Explorer:
    """Choose a gradient with the pointer, and a limit; compare both ways to clip."""
    sides, limits = range(LARGEST + 1), range(1, LARGEST + 1)
    data = [
        [[list(clipped((x, y), limit).values()) for limit in limits] for y in sides] for x in sides
    ]
    return Explorer(
        "clip",
        data,
        {
            "en": (
                "The gradient (8, 2), clipped to 2: by norm it becomes (1.94, 0.49) and keeps "
                "its direction; by value it becomes (2, 2) and turns to the diagonal."
            ),
            "zh": (
                "把梯度 (8, 2) 裁剪到 2：按范数裁剪得到 (1.94, 0.49)，方向不变；按值裁剪得到 "
                "(2, 2)，方向变成了对角线。"
            ),
        },
        lang,
    )
