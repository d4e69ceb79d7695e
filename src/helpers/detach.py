"""Helper of the chapter on detach: list the parameters that have a gradient.

Source: `torch.Tensor.detach`, https://pytorch.org/docs/stable/generated/torch.Tensor.detach.html
"""

from __future__ import annotations

from torch import nn

from helpers import checks


def gradients(module: nn.Module) -> dict[str, bool]:
    """Return for each parameter of `module`, by name, whether its `.grad` is set (not None).

    Raises:
        TypeError: `module` is not a module.
    """
    named = checks.module("module", module).named_parameters()
    return {name: p.grad is not None for name, p in named}
