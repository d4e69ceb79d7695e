"""Run a forward pass for inspection without changing buffers or hiding compiled operations.

Source: `torch.nn.Module`, https://pytorch.org/docs/stable/generated/torch.nn.Module.html
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from helpers import checks
from helpers.sparse import dense_parts


@contextmanager
def copied_buffers(model: nn.Module) -> Iterator[None]:
    """Replace the buffers of `model` by copies inside the block and restore the originals after it.

    The original tensors are never written to, so a graph that saved them can still run backward.
    Shared buffers stay shared, and buffers that the block adds, fills or deletes are as before. A
    lazy buffer has no values yet and is not copied. Unlike `torch.func.functional_call`, it accepts
    `nn.DataParallel` and does not replace parameters.

    Raises:
        TypeError: `model` is not a module.
    """
    checks.module("model", model)
    own = [(m, dict(m._buffers.items())) for m in model.modules()]
    copies: dict[int, torch.Tensor] = {}
    try:
        for module, buffers in own:
            for name, buffer in buffers.items():
                if buffer is not None and not nn.parameter.is_lazy(buffer):
                    module._buffers[name] = copies.setdefault(id(buffer), buffer.clone())
        yield
    finally:
        for module, buffers in own:
            for name in module._buffers.keys() - buffers.keys():
                del module._buffers[name]
            for name, buffer in buffers.items():
                module._buffers[name] = buffer


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists, sets, mappings and dataclasses.

    Named tuples, `PackedSequence` and types registered with `torch.utils._pytree` are included.
    """
    if isinstance(value, torch.Tensor):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple, set, deque)):
        for item in value:
            yield from tensors_in(item)
    else:
        yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True if layouts, shapes and values are equal; a nan equals a nan.

    Raises:
        TypeError: `a` or `b` is not a tensor.
    """
    checks.tensor("a", a), checks.tensor("b", b)
    if a.layout != b.layout or a.shape != b.shape:
        return False
    parts = zip(dense_parts(a), dense_parts(b), strict=True)
    return all(
        p.shape == q.shape and bool(((p == q) | ((p != p) & (q != q))).all()) for p, q in parts
    )


def uncompiled() -> AbstractContextManager[None]:
    """Run compiled functions eagerly inside the block, so that hooks and modes see each operation.

    Source: https://pytorch.org/docs/stable/generated/torch.compiler.set_stance.html
    """
    compilers = {"torch._dynamo", "torch.nn.attention.flex_attention"}
    if compilers & sys.modules.keys():  # else nothing is compiled, and the import takes seconds
        return torch.compiler.set_stance("force_eager")
    return nullcontext()
