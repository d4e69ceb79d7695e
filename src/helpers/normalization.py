"""Helper of the chapter on normalization: the buffers that a forward pass changes.

Source: `torch.nn.BatchNorm2d`, https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html,
and `torch.nn.init`, https://pytorch.org/docs/stable/nn.init.html
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from helpers import checks
from helpers.forward import copied_buffers, equal, tensors_in


def moving(model: nn.Module, x: Any) -> list[str]:
    """Return the names of the buffers that one forward pass of `x` would change.

    The pass runs on copies of the buffers and without gradients, in the current mode of the model,
    so parameters, buffers and PyTorch's random state are not changed. A buffer that is added or
    deleted counts as changed, a nan that stays a nan does not. The result is empty if the pass
    changes nothing, as in evaluation mode.

    Raises:
        TypeError: `model` is not a module.
    """
    checks.module("model", model)
    lazy = {name for name, b in model.named_buffers() if is_lazy(b)}
    before = {name: b.clone() for name, b in model.named_buffers() if name not in lazy}
    devices = {t.device for t in tensors_in(x) if t.is_cuda}
    with torch.no_grad(), copied_buffers(model), torch.random.fork_rng(devices):
        model(x)
        after = dict(model.named_buffers())
    same = [name for name, b in before.items() if name in after and equal(b, after[name])]
    return [name for name in {**before, **after} if name not in lazy.union(same)]
