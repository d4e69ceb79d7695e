"""Helpers of the chapter "Normalize activations, initialize weights".

Source: `torch.nn.BatchNorm2d`, https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html,
and `torch.nn.init`, https://pytorch.org/docs/stable/nn.init.html
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


def moving(model: nn.Module, x: Tensor) -> list[str]:
    """The names of the buffers that one forward pass of `x` would change.

    Run on a copy and without gradients, in the mode the model is in; the model stays as it is.
    An empty list means that the pass leaves no trace, as in evaluation.
    """
    model = copy.deepcopy(model)
    before = {name: b.clone() for name, b in model.named_buffers()}
    with torch.no_grad():
        model(x)
    return [name for name, b in model.named_buffers() if not torch.equal(b, before[name])]
