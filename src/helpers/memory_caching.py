"""Helpers of the chapter "Read GPU memory: allocated, reserved, cached".

Without a GPU `torch.cuda.memory_allocated()` is always 0. These functions watch the memory of
tensors on any device; `allocations` makes of a reader's own code a list of requests for the model
in `helpers.allocator`.

Source: "Memory management", https://pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from helpers.allocator import format_size


def watch(tensor: torch.Tensor) -> Callable[[], bool]:
    """A function that tells whether the memory of `tensor` is still held by anyone.

    It watches the storage, not the Python object: autograd may hold the numbers after the last
    name is gone, and a weak reference to the tensor does not always see that. Memory that only a
    reference cycle holds counts until `gc.collect()`.
    """
    gone = _expiry(tensor.untyped_storage())
    return lambda: not gone()


def _expiry(storage: torch.UntypedStorage) -> Callable[[], bool]:
    """Whether a storage has been freed, by PyTorch's private weak reference to it."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage).expired


def _identity(storage: torch.UntypedStorage) -> int:
    """The same number for every tensor of a storage, by PyTorch's private handle; meta too."""
    return storage._cdata


def allocations(function: Callable[[], Any], device: str | None = None) -> list[tuple[Any, ...]]:
    """Run `function` and list the memory that its tensors take and give back, as a trace.

    Tensors on the CPU and on the meta device ask for the same bytes as on a GPU, so `replay` can
    show what the caching allocator would do. What a GPU library takes inside an operation as
    workspace is not in it.

    Args:
        function: called without arguments; a backward pass inside it counts too.
        device: list only tensors on this kind of device, such as `"meta"`; None lists all.

    Returns:
        `("malloc", name, nbytes)` and `("free", name)`; a name is that of the operation with a
        number. What the returned value holds is not freed.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    trace: list[tuple[Any, ...]] = []
    held: dict[int, tuple[str, Callable[[], bool]]] = {}
    numbers = itertools.count(1)

    def storages(values: Any) -> dict[int, torch.UntypedStorage]:
        tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
        return {
            _identity(t.untyped_storage()): t.untyped_storage()
            for t in tensors
            if device is None or t.device.type == device
        }

    def sweep() -> None:
        for key, (name, gone) in list(held.items()):
            if gone():
                del held[key]
                trace.append(("free", name))

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            sweep()
            known = {*held, *storages((args, kwargs))}
            result = operation(*args, **(kwargs or {}))
            for key, storage in storages(result).items():
                if key not in known:
                    name = f"{operation.overloadpacket.__name__.strip('_')} {next(numbers)}"
                    held[key] = name, _expiry(storage)
                    trace.append(("malloc", name, storage.nbytes()))
            return result

    with Watch():
        _result = function()
    sweep()
    return trace


@dataclass(frozen=True)
class Footprint:
    """How much memory the tensors of a function take, in bytes.

    Attributes:
        peak: the most at any moment.
        kept: what the returned value still holds, and the graph behind it.
    """

    peak: int
    kept: int

    def __repr__(self) -> str:
        return f"peak {format_size(self.peak)}, kept {format_size(self.kept)}"


def footprint(function: Callable[[], Any]) -> Footprint:
    """Run `function` and measure the memory of the tensors that it creates, on any device.

    Tensors that exist already, such as a model's parameters, do not count. Bytes are counted as
    the tensors ask for them, before an allocator rounds them.
    """
    sizes: dict[str, int] = {}
    now = peak = 0
    for action, name, *size in allocations(function):
        if action == "malloc":
            sizes[name] = size[0]
            now += size[0]
            peak = max(peak, now)
        else:
            now -= sizes[name]
    return Footprint(peak, now)
