"""Helpers of the chapter on detach.

Source: `torch.Tensor.detach`, https://pytorch.org/docs/stable/generated/torch.Tensor.detach.html
"""

from __future__ import annotations

from torch import nn


def gradients(module: nn.Module) -> dict[str, bool]:
    """Which parameters of `module` hold a gradient."""
    return {name: p.grad is not None for name, p in module.named_parameters()}
