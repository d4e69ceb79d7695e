"""Helpers of the chapter on the grad modes: effects of a forward pass, bytes saved for backward.

Source: "Autograd mechanics", https://pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.autograd import storage_id
from helpers.forward import copied_buffers, equal, tensors_in
from helpers.sparse import dense_parts


def effects(net: nn.Module, x: Tensor) -> dict[str, bool]:
    """Run a forward pass of `net` in the current modes, and return which side effects it has.

    Runs `net(x)` ten times. Afterwards, also after an error, the buffers of `net` and PyTorch's
    random state are restored.

    Args:
        net: a module that returns a tensor, or tensors in tuples, lists, dicts or dataclasses.
        x: the input of `net`.

    Returns:
        `dropout`: two passes over the same `x` differ, so `net` is random, or has a state;
        `statistics`: a buffer of `net` changed, such as the running mean of a BatchNorm;
        `graph`: an output has a graph, which stores what a backward pass needs.

    Raises:
        TypeError: `x` is not a tensor, `net` is not a module, or it returns no tensor.
    """
    checks.module("net", net), checks.tensor("x", x)
    before = {name: b.clone() for name, b in net.named_buffers()}
    devices = [x.device] if x.is_cuda else []
    with copied_buffers(net), torch.random.fork_rng(devices):
        outputs = [list(tensors_in(net(x))) for _ in range(10)]
        after = dict(net.named_buffers())
        changed = before.keys() != after.keys() or not all(
            map(equal, before.values(), after.values())
        )
    if not outputs[0]:
        raise TypeError("expected tensors in the output of net, got none")
    return {
        "dropout": any(not _all_equal(outputs[0], other) for other in outputs[1:]),
        "statistics": changed,
        "graph": any(output.grad_fn is not None for output in outputs[0]),
    }


def _all_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(equal, first, second))


def saved_bytes(net: nn.Module, x: Tensor) -> int:
    """Return the bytes that autograd saves for the backward pass of `net(x)` in the current modes.

    A tensor that two operations save is stored once and counted once. The parameters and buffers of
    `net` and `x` itself are not counted, because they exist in any case.

    Args:
        net: any module, also on the meta device.
        x: the input of `net`.

    Raises:
        TypeError: `net` is not a module, or `x` is not a tensor.
    """
    checks.module("net", net), checks.tensor("x", x)
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        for part in dense_parts(tensor):  # references, so that their addresses are not reused
            kept[storage_id(part)] = part.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(x)
    present = (x, *net.parameters(), *net.buffers())
    there = {storage_id(part) for tensor in present for part in dense_parts(tensor)}
    return sum(storage.nbytes() for key, storage in kept.items() if key not in there)
