"""Helpers of the chapter on GPU memory: what fills it, who holds it, what the allocator keeps.

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

from helpers.allocator import CachingAllocator, format_size
from helpers.fake import fake_tensors


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
    held: dict[int, tuple[str, Callable[[], bool], int]] = {}
    numbers = itertools.count(1)

    def storages(values: Any) -> dict[int, torch.UntypedStorage]:
        tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
        return {
            _identity(t.untyped_storage()): t.untyped_storage()
            for t in tensors
            if device is None or t.device.type == device
        }

    def sweep() -> None:
        for key, (name, gone, _) in list(held.items()):
            if gone():
                del held[key]
                trace.append(("free", name))

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            sweep()
            before = {key: s.nbytes() for key, s in storages((args, kwargs)).items()}
            before |= {key: nbytes for key, (_, _, nbytes) in held.items()}
            result = operation(*args, **(kwargs or {}))
            for key, storage in storages((args, kwargs, result)).items():
                nbytes = storage.nbytes()
                if before.get(key) == nbytes:
                    continue
                name = f"{operation.overloadpacket.__name__.strip('_')} {next(numbers)}"
                trace.append(("malloc", name, nbytes))
                if key in held:  # it grew: a new block, then the old one is freed
                    trace.append(("free", held[key][0]))
                held[key] = name, _expiry(storage), nbytes
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


def run_on_card(function: Callable[[], Any], capacity: int) -> CachingAllocator:
    """Run `function` on fake tensors and let the allocator's model serve what they ask for.

    The libraries' workspaces, the CUDA context and other processes are not in it, so a real card
    of that size runs out of memory earlier rather than later.

    Args:
        function: called without arguments; creates its tensors itself, on any device.
        capacity: of the card in bytes.

    Returns:
        The allocator when the function is done, for its counters.

    Raises:
        torch.OutOfMemoryError: what the tensors ask for does not fit.
    """
    with fake_tensors():
        trace = allocations(function)
    card, held = CachingAllocator(capacity), {}
    for action, name, *size in trace:
        if action == "malloc":
            held[name] = card.malloc(*size, name)
        else:
            card.free(held.pop(name))
    return card


@dataclass(frozen=True)
class TrainingMemory:
    """What the memory of a training step consists of when it is fullest, in bytes.

    Attributes:
        weights: parameters and buffers.
        gradients: those in `.grad`, and those on their way.
        optimizer: its state, and what its step needs for a moment.
        activations: what the forward pass made, with the batch, and temporary results.
        peak: all of it together.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int

    def __repr__(self) -> str:
        parts = ("weights", "gradients", "optimizer", "activations", "peak")
        return ", ".join(f"{part} {getattr(self, part) / 2**20:.0f}" for part in parts) + " MiB"


def training_memory(build: Callable[[], tuple[Any, Any, Callable[[], Any]]]) -> TrainingMemory:
    """Count what fills the memory in the second step of a training run, where it is fullest.

    The second step, because an optimizer's state exists from the end of the first. It runs on
    fake tensors, so it takes seconds and no memory, whatever the size of the model. PyTorch's
    own `MemTracker` counts tensors as they ask for bytes: no rounding, no workspaces, no context.
    On the CPU an optimizer goes parameter by parameter; on a GPU most of them take them all at
    once by default (`foreach`) and need up to one more copy of the weights for it
    (https://pytorch.org/docs/stable/generated/torch.optim.Adam.html).

    Args:
        build: returns the model, its optimizer, and a function that makes one training step. All
            tensors stay on the CPU; the bytes are the same.

    Raises:
        ValueError: the step leaves the CPU.
    """
    with fake_tensors():
        model, optimizer, step = build()
        snapshot = _fullest_moment(model, optimizer, step)
    if set(snapshot) != {"cpu"}:
        raise ValueError(f"training_memory counts on the CPU, the step uses {sorted(snapshot)}")
    return TrainingMemory(*snapshot["cpu"])


def _fullest_moment(model: Any, optimizer: Any, step: Callable[[], Any]) -> dict[str, list[int]]:
    """PyTorch's private tracker: kind of device -> bytes in the order of `TrainingMemory`."""
    from torch.distributed._tools.mem_tracker import MemTracker

    step()  # the optimizer's state exists from here on
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step()
    found = {}
    for device, snapshot in tracker.get_tracker_snapshot("peak").items():
        parts = {getattr(kind, "name", kind): nbytes for kind, nbytes in snapshot.items()}
        weights = parts.pop("PARAM") + parts.pop("BUFFER")
        total, gradients, state = parts.pop("Total"), parts.pop("GRAD"), parts.pop("OPT")
        found[device.type] = [weights, gradients, state, sum(parts.values()), total]
    return found
