"""Helpers of the chapter on GPU memory: allocations, footprint and training memory of your code.

Without a GPU, `torch.cuda.memory_allocated()` is always 0. These functions track the memory of
tensors on any device; `allocations` records your code as a list of requests for the model in
`helpers.allocator`.

Source: "Memory management", https://pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from helpers import checks
from helpers.allocator import CachingAllocator, format_size
from helpers.fake import fake_tensors
from helpers.sparse import dense_parts


def watch(tensor: torch.Tensor) -> Callable[[], bool]:
    """Return a function that returns whether the memory of `tensor` is still referenced.

    It tracks the storage, not the Python object: autograd may keep the values after the last name
    is gone, which a weak reference to the tensor does not always show. Memory that only a reference
    cycle keeps counts until `gc.collect()`. A sparse tensor counts while its values or its indices
    are referenced.

    Raises:
        TypeError: `tensor` is not a tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
    expired = [_expiry(part.untyped_storage()) for part in dense_parts(tensor)]
    return lambda: not all(check() for check in expired)


def _expiry(storage: torch.UntypedStorage) -> Callable[[], bool]:
    """Return a check whether a storage was freed, from PyTorch's private weak reference to it."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage).expired


def _identity(storage: torch.UntypedStorage) -> int:
    """Return one number for all tensors of a storage, from PyTorch's private handle."""
    return storage._cdata


def _storages(values: Any, device: str | None) -> dict[int, torch.UntypedStorage]:
    """Return the storages of the tensors in `values` on one kind of device, or on all."""
    from torch.utils._pytree import tree_leaves

    return {
        _identity(part.untyped_storage()): part.untyped_storage()
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor) and device in (None, value.device.type)
        for part in dense_parts(value)
    }


def _require_callable(name: str, given: Any) -> None:
    if not callable(given):
        raise TypeError(f"{name} must be a function, got {type(given).__name__}")


def _require_kind(device: Any) -> None:
    if not isinstance(device, str):
        raise TypeError(f"device must be a text such as 'cuda', got {device!r}")
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = None
    if device != kind:
        raise ValueError(f"device must be a kind such as 'cpu', 'cuda' or 'meta', got {device!r}")


def allocations(function: Callable[[], Any], device: str | None = None) -> list[tuple[Any, ...]]:
    """Run `function` and return the memory that its tensors allocate and free, as a trace.

    Tensors on the CPU and on the meta device request the same bytes as on a GPU, so `replay` can
    show what the caching allocator would do. Workspaces that a GPU library allocates inside an
    operation are not included, nor is memory of NumPy, as with `torch.from_numpy`.

    Args:
        function: called without arguments; a backward pass inside it is included.
        device: list only tensors on this kind of device, such as `"meta"`; None lists all.

    Returns:
        `("malloc", name, nbytes)` and `("free", name)`; a name is that of the operation with a
        number. Memory of the returned value is not freed.

    Raises:
        TypeError: `function` is not callable, or `device` is not a text.
        ValueError: `device` names no kind of device, such as `"cuda:0"`.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    _require_callable("function", function)
    if device is not None:
        _require_kind(device)
    trace: list[tuple[Any, ...]] = []
    living: dict[int, tuple[str, Callable[[], bool], int]] = {}
    numbers = itertools.count(1)

    def sweep() -> None:
        for key, (name, expired, _) in list(living.items()):
            if expired():
                del living[key]
                trace.append(("free", name))

    class Watch(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            sweep()
            # torch.tensor passes the new tensor to lift_fresh, so its argument is no old one
            fresh = operation is torch.ops.aten.lift_fresh.default
            inputs = {} if fresh else _storages((args, kwargs), device)
            before = {key: s.nbytes() for key, s in inputs.items()}
            before |= {key: nbytes for key, (_, _, nbytes) in living.items()}
            result = operation(*args, **(kwargs or {}))
            for key, storage in _storages((args, kwargs, result), device).items():
                nbytes = storage.nbytes()
                if before.get(key) == nbytes:
                    continue
                packet = getattr(operation, "overloadpacket", operation)
                name = f"{packet.__name__.strip('_')} {next(numbers)}"
                trace.append(("malloc", name, nbytes))
                if key in living:  # the storage grew: a new block, then the old one is freed
                    trace.append(("free", living[key][0]))
                living[key] = name, _expiry(storage), nbytes
            return result

    with Watch():
        _result = function()
    sweep()
    return trace


@dataclass(frozen=True)
class Footprint:
    """Memory of the tensors that a function creates, in bytes.

    Attributes:
        peak: the maximum at any moment.
        kept: memory of the returned value and of its graph.
    """

    peak: int
    kept: int

    def __repr__(self) -> str:
        return f"peak {format_size(self.peak)}, kept {format_size(self.kept)}"


def footprint(function: Callable[[], Any]) -> Footprint:
    """Run `function` and return the peak memory of the tensors that it creates, on any device.

    Existing tensors, such as a model's parameters, and tensors of other threads are not counted.
    Bytes are those that the tensors request, before an allocator rounds them.

    Raises:
        TypeError: `function` is not callable.
    """
    sizes: dict[str, int] = {}
    current = peak = 0
    for action, name, *size in allocations(function):
        if action == "malloc":
            sizes[name] = size[0]
            current += size[0]
            peak = max(peak, current)
        else:
            current -= sizes[name]
    return Footprint(peak, current)


@contextmanager
def _all_fake() -> Iterator[None]:
    """Raise a ValueError that names the problem if a real tensor is used with fake ones."""
    try:
        yield
    except Exception as error:
        if "convert all Tensors to FakeTensors" not in str(error):
            raise
        raise ValueError(
            "the function uses a tensor from outside: create the model and its data inside it"
        ) from error


def run_on_card(function: Callable[[], Any], capacity: int) -> CachingAllocator:
    """Run `function` on fake tensors, and serve its requests with the model of the allocator.

    Workspaces of libraries, the CUDA context and other processes are not included, so a real GPU of
    that size runs out of memory earlier rather than later.

    Args:
        function: called without arguments; creates its tensors itself, on any device.
        capacity: of the GPU in bytes.

    Returns:
        The allocator after the run, for its counters.

    Raises:
        torch.OutOfMemoryError: the requests do not fit.
        TypeError: `function` is not callable, or `capacity` is not an int.
        ValueError: `function` uses a tensor from outside, such as a model.
    """
    checks.integer("capacity", capacity, 0)
    with _all_fake(), fake_tensors():
        trace = allocations(function)
    card, blocks = CachingAllocator(capacity), {}
    for action, name, *size in trace:
        if action == "malloc":
            blocks[name] = card.malloc(*size, name)
        else:
            card.free(blocks.pop(name))
    return card


@dataclass(frozen=True)
class TrainingMemory:
    """Parts of the peak memory of a training step, in bytes.

    Attributes:
        weights: parameters and buffers.
        gradients: those in `.grad`, and those of the backward pass.
        optimizer: its state, and temporary tensors of its step.
        activations: results of the forward pass, with the batch, and temporary tensors.
        peak: the sum of all.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int

    def __repr__(self) -> str:
        unit, size = ("MiB", 2**20) if self.peak >= 2**20 else ("KiB", 2**10)
        parts = ("weights", "gradients", "optimizer", "activations", "peak")
        return ", ".join(f"{part} {getattr(self, part) / size:.0f}" for part in parts) + f" {unit}"


def training_memory(build: Callable[[], tuple[Any, Any, Callable[[], Any]]]) -> TrainingMemory:
    """Return the parts of the peak memory in the second step of training, when all of them exist.

    The second step is used because the optimizer's state exists only after the first. It runs on
    fake tensors, so it needs no memory, whatever the size of the model. PyTorch's `MemTracker`
    counts the requested bytes: no rounding, no workspaces, no context. On the CPU an optimizer
    updates one parameter at a time; on a GPU most update all at once by default (`foreach`), which
    needs up to one more copy of the weights
    (https://pytorch.org/docs/stable/generated/torch.optim.Adam.html).

    Args:
        build: returns the model, its optimizer, and a function that runs one training step. All
            tensors stay on the CPU. A GPU saves other tensors in some operations: dropout
            saves a bool mask there, and one of the dtype of its input on a CPU.

    Raises:
        TypeError: `build` is not callable, or returns anything else than a module, an optimizer and
            a function.
        ValueError: the step uses another device than the CPU, or a model or tensor that `build` has
            not created.
        NotImplementedError: a tensor is sparse, which `MemTracker` does not support.
        helpers.fake.NoNumberError: the step reads a value, as LBFGS and Adafactor do.
    """
    _require_callable("build", build)
    with _all_fake(), fake_tensors():
        model, optimizer, step = _parts(build())
        snapshot = _fullest_moment(model, optimizer, step)
    if set(snapshot) != {"cpu"}:
        raise ValueError(f"expected a step on the CPU alone, got one on {sorted(snapshot)}")
    return TrainingMemory(*snapshot["cpu"])


def _parts(built: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer, Callable[[], Any]]:
    """Return model, optimizer and step, or raise a TypeError that names what `build` returned."""
    parts = list(built) if isinstance(built, tuple | list) else [built]
    match parts:
        case [torch.nn.Module() as model, torch.optim.Optimizer() as optimizer, step] if callable(
            step
        ):
            return model, optimizer, step
    names = ", ".join(type(part).__name__ for part in parts)
    raise TypeError(f"build must return a module, its optimizer and a step function, got {names}")


def _fullest_moment(model: Any, optimizer: Any, step: Callable[[], Any]) -> dict[str, list[int]]:
    """Return for each kind of device the bytes in the order of `TrainingMemory`, by MemTracker."""
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.utils.hooks import RemovableHandle

    step()  # the optimizer's state exists from here on
    tracker = MemTracker()
    for parameter in model.parameters():
        if not parameter.requires_grad:  # the tracker would register a hook on it, which raises
            handles = RemovableHandle(OrderedDict()), RemovableHandle(OrderedDict())
            tracker._param_to_grad_hook_handles[parameter] = handles
    tracker.track_external(model, optimizer)
    with tracker:
        step()
    usage = {}
    for device, snapshot in tracker.get_tracker_snapshot("peak").items():
        parts = {getattr(kind, "name", kind): nbytes for kind, nbytes in snapshot.items()}
        weights = parts.pop("PARAM") + parts.pop("BUFFER")
        total, gradients, state = parts.pop("Total"), parts.pop("GRAD"), parts.pop("OPT")
        usage[device.type] = [weights, gradients, state, sum(parts.values()), total]
    return usage
