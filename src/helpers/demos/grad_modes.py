"""Figures and demonstrations of the chapter on the grad modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.figures import COLORS, Figure, figure, legend
from helpers.grad_modes import saved_bytes

# The mode of the modules, and the mode of autograd, under each name.
MODES: dict[str, tuple[bool, Callable[[], AbstractContextManager[Any]]]] = {
    "train()": (True, torch.enable_grad),
    "eval()": (False, torch.enable_grad),
    "no_grad()": (False, torch.no_grad),
    "inference_mode()": (False, torch.inference_mode),
}


_CHINESE = {
    "depth, in blocks ({} samples)": "深度，单位是块（{} 个样本）",
    "batch size ({} blocks)": "批量大小（{} 块）",
    "saved for backward (MiB)": "为反向传播保存（MiB）",
}


def uses(tensor: Tensor) -> dict[str, bool]:
    """Return which uses of `tensor` succeed in code that records gradients; each one is run.

    Args:
        tensor: floating point. The in-place edit adds zero; if the edit raises, the tensor is not
            changed.

    Returns:
        For each use, whether it ran without a `RuntimeError`.

    Raises:
        TypeError: `tensor` is not a floating-point tensor.
    """
    checks.floating("tensor", tensor)
    with torch.inference_mode(False):
        weight = torch.ones((), dtype=tensor.dtype, device=tensor.device, requires_grad=True)

    def edit() -> None:
        with torch.no_grad():
            tensor.add_(0)

    tries: dict[str, Callable[[], Any]] = {
        "add it to a parameter": lambda: tensor + weight,
        "multiply a parameter by it": lambda: tensor * weight,
        "edit it in place": edit,
        "set requires_grad=True": lambda: tensor.detach().requires_grad_(),
        "read its version": lambda: tensor._version,
    }
    return {name: _works(attempt) for name, attempt in tries.items()}


def _works(attempt: Callable[[], Any]) -> bool:
    try:
        with torch.inference_mode(False), torch.enable_grad():
            attempt()
    except RuntimeError:
        return False
    return True


def tower(depth: int, width: int = 256) -> nn.Sequential:
    """Return `depth` blocks of Linear, ReLU and Dropout, for float32 of shape (n, `width`).

    Raises:
        TypeError: `depth` or `width` is not an int.
        ValueError: `depth` or `width` is not positive.
    """
    depth, width = checks.integer("depth", depth), checks.integer("width", width)
    if depth < 1 or width < 1:
        raise ValueError(f"expected a positive depth and width, got {depth} and {width}")
    layers = [(nn.Linear(width, width), nn.ReLU(), nn.Dropout()) for _ in range(depth)]
    return nn.Sequential(*(layer for group in layers for layer in group))


def memory_by_mode(depth: int, batch: int, width: int = 256) -> dict[str, int]:
    """Return the bytes saved for backward of a `tower` under each of `MODES`.

    Raises:
        TypeError: `depth`, `batch` or `width` is not an int.
        ValueError: `depth`, `batch` or `width` is not positive.
    """
    batch = checks.integer("batch", batch)
    if batch < 1:
        raise ValueError(f"expected a positive batch size, got {batch}")
    net, x = tower(depth, width), torch.ones(batch, width)
    sizes = {}
    for name, (training, mode) in MODES.items():
        net.train(training)
        with mode():
            sizes[name] = saved_bytes(net, x)
    return sizes


def memory_figure(
    depths: Sequence[int] = (1, 2, 4, 8, 16), batches: Sequence[int] = (16, 64, 128, 256)
) -> Figure:
    """Draw saved bytes of a `tower` over its depth (64 samples) and the batch size (8 blocks)."""
    looks = {
        "train()": {"color": COLORS["orange"], "marker": "o"},
        "eval()": {"color": COLORS["teal"], "marker": "s"},
        "no_grad()": {
            "color": COLORS["grey"],
            "marker": "D",
            "markersize": 8,
            "markerfacecolor": COLORS["white"],
        },
        "inference_mode()": {"color": COLORS["black"], "marker": "x", "linestyle": "--"},
    }
    panels = {
        "depth, in blocks (64 samples)": {d: memory_by_mode(d, 64) for d in depths},
        "batch size (8 blocks)": {b: memory_by_mode(8, b) for b in batches},
    }
    drawing, axes = figure(2, size=(3.5, 2.6), chinese=_CHINESE)
    for axis, (label, usage) in zip(axes, panels.items(), strict=True):
        for name, look in looks.items():
            sizes = [f[name] / 2**20 for f in usage.values()]
            axis.plot(list(usage), sizes, label=name, **{"markersize": 4} | look)
        axis.set(xlabel=label, xticks=list(usage), ylabel="saved for backward (MiB)")
        legend(axis, columns=2)
    return drawing
