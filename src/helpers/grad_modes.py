"""Helpers of the chapter on the modes of autograd.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from helpers.autograd import storage_id


def effects(net: nn.Module, x: Tensor) -> dict[str, bool]:
    """What a forward pass of `net` does, in the modes that are on now.

    Runs `net(x)` ten times and puts the buffers of `net` back afterwards, also after an error.

    Args:
        net: a module whose output is one tensor.
        x: what `net` takes.

    Returns:
        `dropout`: two passes over the same `x` differ, so something in `net` is random;
        `statistics`: a buffer of `net` changed, such as the running mean of a BatchNorm;
        `graph`: the output has a graph, which holds what a backward pass needs.
    """
    before = [b.clone() for b in net.buffers()]
    try:
        outputs = [net(x) for _ in range(10)]
        moved = any(not _same(a, b) for a, b in zip(before, net.buffers(), strict=True))
    finally:
        with torch.no_grad():
            for buffer, value in zip(net.buffers(), before, strict=True):
                buffer.copy_(value)
    return {
        "dropout": any(not _same(outputs[0], other) for other in outputs[1:]),
        "statistics": moved,
        "graph": outputs[0].grad_fn is not None,
    }


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape are equal, where a nan equals a nan."""
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def saved_bytes(net: nn.Module, x: Tensor) -> int:
    """Bytes that autograd keeps for the backward pass of `net(x)`, in the modes that are on now.

    What two operations save is kept once and counted once. The parameters and buffers of `net`
    and `x` itself do not count: they are there anyway.

    Args:
        net: any module, also on the meta device.
        x: what `net` takes.
    """
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage_id(tensor)] = storage  # held, so that no later storage takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(x)
    there = {storage_id(t) for t in (x, *net.parameters(), *net.buffers())}
    return sum(storage.nbytes() for key, storage in kept.items() if key not in there)
