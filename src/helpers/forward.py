"""Run a forward pass for inspection without changing the model's buffers or hiding its operations.

Source: `torch.nn.Module`, https://pytorch.org/docs/stable/generated/torch.nn.Module.html
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn


@contextmanager
def copied_buffers(model: nn.Module) -> Iterator[None]:
    """Replace the buffers of `model` by copies inside the block and restore the originals after it.

    The original tensors are never written to, so a graph that saved them can still run backward.
    Shared buffers stay shared. A lazy buffer has no values yet and is not copied. Unlike
    `torch.func.functional_call`, it accepts `nn.DataParallel` and does not replace parameters.
    """
    own = [(m, dict(m.named_buffers(recurse=False))) for m in model.modules()]
    copies: dict[int, torch.Tensor] = {}
    try:
        for module, buffers in own:
            for name, buffer in buffers.items():
                if not nn.parameter.is_lazy(buffer):
                    setattr(module, name, copies.setdefault(id(buffer), buffer.clone()))
        yield
    finally:
        for module, buffers in own:
            for name, buffer in buffers.items():
                setattr(module, name, buffer)


def uncompiled() -> AbstractContextManager[None]:
    """Run compiled functions eagerly inside the block, so that hooks and modes see each operation.

    Source: https://pytorch.org/docs/stable/generated/torch.compiler.set_stance.html
    """
    if "torch._dynamo" not in sys.modules:  # nothing can be compiled yet; importing it takes long
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
