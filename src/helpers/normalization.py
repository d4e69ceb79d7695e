"""Helpers of the chapter on normalization: which buffers a forward pass moves.

Source: `torch.nn.BatchNorm2d`, https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html,
and `torch.nn.init`, https://pytorch.org/docs/stable/nn.init.html
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def moving(model: nn.Module, x: Tensor) -> list[str]:
    """The names of the buffers that one forward pass of `x` would change.

    The pass runs on copies of the buffers and without gradients, in the mode the model is in, so
    that parameters and buffers stay as they are. A nan that stays a nan counts as unchanged. An
    empty list means that the pass leaves no trace, as in evaluation.
    """
    before = {name: b.clone() for name, b in model.named_buffers()}
    after = {name: b.clone() for name, b in before.items()}
    with torch.no_grad():
        torch.func.functional_call(model, after, (x,))  # new tensors arrive in `after`, too
    return [name for name, b in after.items() if not _same(b, before[name])]


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
