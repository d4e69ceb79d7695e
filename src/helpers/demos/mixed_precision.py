"""Demonstrations of the chapter on mixed precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def digit_model(seed: int = 0) -> nn.Module:
    """Return a small network for digits of 8 by 8 pixels, float32, the same for each seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def refusals() -> dict[str, str]:
    """Return the errors of operations on a float32 and a float16 tensor, by their names."""
    x, h = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2).half()
    flat, index = torch.zeros(3), torch.tensor([0])
    calls: Mapping[str, Callable[[], Tensor | None]] = {
        "linear": lambda: F.linear(x[0, 0], h[0, 0]),
        "bmm": lambda: torch.bmm(x[0], h[0]),
        "conv2d": lambda: F.conv2d(h, x, x[0, 0, 0, :1]),
        "grid_sample": lambda: F.grid_sample(h, torch.ones(1, 2, 2, 2), align_corners=False),
        "x[index] = h": lambda: flat.__setitem__(index, torch.ones(1).half()),
        "scatter_add": lambda: flat.scatter_add(0, index, torch.ones(1).half()),
    }
    messages = {}
    for name, call in calls.items():
        try:
            call()
        except RuntimeError as error:
            messages[name] = str(error).split(", got")[0].split(" but got ")[0]
    return messages
