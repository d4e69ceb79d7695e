"""GPU memory: what the caching allocator does with it, and who keeps it alive.

Without a GPU `torch.cuda.memory_allocated()` is always 0. Here are lists of requests (traces) for
the model in `helpers.allocator`, `live_trace`, which performs the same list on a real device, and
`compare`, which names every number in which the two differ. `allocations` turns a reader's own
code into such a list, on any device.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from helpers import child
from helpers.allocator import LARGE_BUFFER, MIN_BLOCK_SIZE, MIN_LARGE_ALLOC, SMALL_BUFFER
from helpers.allocator import MIB as MIB
from helpers.allocator import ROUND_LARGE as ROUND_LARGE
from helpers.allocator import STATS as STATS
from helpers.allocator import Block as Block
from helpers.allocator import CachingAllocator as CachingAllocator
from helpers.allocator import Counters as Counters
from helpers.allocator import Operation as Operation
from helpers.allocator import OutOfMemoryError as OutOfMemoryError
from helpers.allocator import Segment as Segment
from helpers.allocator import Step as Step
from helpers.allocator import check_trace as check_trace
from helpers.allocator import format_size as format_size
from helpers.allocator import replay as replay
from helpers.allocator import round_size as round_size
from helpers.allocator import segment_size as segment_size
from helpers.exercises import Verdict, verdict
from helpers.recorded import MISSING, Recording

# Traces: lists of operations for the model and for a real device


def notes_trace(repeats: int = 1) -> list[tuple[Any, ...]]:
    """The old notes' experiment: a 3x3 convolution over batches of 1, 3 and 1 again, then tidy up.

    A `Conv2d(3, 10, 3)` is moved to the device (1120 bytes in two tensors). Then for each batch
    of 3x321x321 float32 images: copy the images, compute the 319x319 output, drop both. At the
    end the cache is emptied. Sizes are read off tensors on the meta device. What cuDNN may take
    as workspace is not in it.

    Args:
        repeats: how many times each batch size runs before the next; the notes have 5.
    """
    net = torch.nn.Conv2d(3, 10, kernel_size=3, device="meta")
    trace: list[tuple[Any, ...]] = [
        ("malloc", name, parameter.nbytes) for name, parameter in net.named_parameters()
    ]
    for number, batch in enumerate((1, 3, 1), start=1):
        images = torch.ones(batch, 3, 321, 321, device="meta")
        output = net(images)
        for _ in range(repeats):
            trace += [
                ("malloc", f"images {number}", images.nbytes),
                ("malloc", f"output {number}", output.nbytes),
                ("free", f"output {number}"),
                ("free", f"images {number}"),
            ]
    return [*trace, ("empty_cache",)]


FRAGMENTATION_CAPACITY = 40 * MIB
"""Bytes of the device on which `fragmentation_trace` ends in an out-of-memory error."""


def fragmentation_trace() -> list[tuple[Any, ...]]:
    """Half of the memory is free, in pieces: a request for less than that still fails.

    Eight blocks of 5 MiB fill two segments of 20 MiB; every second one is freed. With
    `FRAGMENTATION_CAPACITY` bytes there is no room for 12 MiB although 20 MiB are free, since no
    free block is larger than 5 MiB, and no segment is wholly free and could be released. Once the
    rest of the first segment is free its blocks merge, and the same request fits.
    """
    names = [f"t{i}" for i in range(8)]
    return [
        *(("malloc", name, 5 * MIB) for name in names),
        *(("free", name) for name in names[::2]),
        ("empty_cache",),
        ("malloc", "big", 12 * MIB),
        *(("free", name) for name in names[1:4:2]),
        ("malloc", "big again", 12 * MIB),
    ]


def random_trace(seed: int, n: int = 200) -> list[tuple[Any, ...]]:
    """`n` random operations, the same for the same seed; at most 1 GiB is held at a time.

    Sizes mix small (up to 1 MiB), large (1 to 10 MiB) and huge (10 to 100 MiB) requests with the
    edges between them; about one operation in 25 empties the cache.

    Raises:
        ValueError: `n` is negative.
    """
    if n < 0:
        raise ValueError(f"n must not be negative, got {n}")
    rng = random.Random(seed)
    edges = [0, 1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 10 * MIB - 512, 10 * MIB - 1, 10 * MIB]
    held: dict[str, int] = {}
    trace: list[tuple[Any, ...]] = []
    for number in range(n):
        if rng.random() < 0.04:
            trace.append(("empty_cache",))
        elif held and (rng.random() < 0.42 or sum(held.values()) > 900 * MIB):
            name = rng.choice(list(held))
            del held[name]
            trace.append(("free", name))
        else:
            kind = rng.random()
            if kind < 0.45:
                nbytes = int(2 ** rng.uniform(0, 20))
            elif kind < 0.75:
                nbytes = rng.randint(MIB + 1, 10 * MIB - 1)
            elif kind < 0.9:
                nbytes = rng.randint(10 * MIB, 100 * MIB)
            else:
                nbytes = rng.choice(edges)
            name = f"t{number}"
            held[name] = nbytes
            trace.append(("malloc", name, nbytes))
    return trace


# The same on a real device, and without one


def without_gpu() -> dict[str, Any]:
    """What calls of the memory API give where no GPU is visible: the value, or `"raises"`.

    A new process hides every GPU before it calls, so the answer is the same on every machine.

    Raises:
        RuntimeError: that process fails.
    """
    return child.call(_call_without_gpu, env={"CUDA_VISIBLE_DEVICES": ""})


def _call_without_gpu() -> dict[str, Any]:
    functions = {
        "cuda": """memory_allocated memory_reserved max_memory_allocated empty_cache
            reset_peak_memory_stats memory_summary mem_get_info synchronize""",
        "accelerator": "memory_allocated memory_reserved empty_cache",
    }
    result = {}
    for module, names in functions.items():
        for name in names.split():
            try:
                answer = getattr(getattr(torch, module), name)()
            except Exception:  # its type depends on the build and on the driver
                answer = "raises"
            result[f"torch.{module}.{name}()"] = answer
    return result


def compare(model_steps: Sequence[Step], recorded: Sequence[dict[str, Any]]) -> list[str]:
    """Every difference between a replay and `live_trace`, one sentence each; empty when equal.

    All counters, whether the operation failed, and the address of each malloc's block where the
    replay was given the recorded ones.
    """
    differences = []
    if len(model_steps) != len(recorded):
        differences.append(f"the model has {len(model_steps)} steps, the device {len(recorded)}")
    for number, (step, real) in enumerate(zip(model_steps, recorded, strict=False)):
        ours = {**asdict(step.counters), "failed": step.error is not None, "address": step.address}
        theirs = {**real, "failed": real["error"] is not None}
        differences += [
            f"step {number} {' '.join(map(str, step.operation))}: {key} is {value} in the model, "
            f"{theirs[key]} on the device"
            for key, value in ours.items()
            if value != theirs[key]
        ]
    return differences


def compare_recorded(values: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Replay every trace of the recording "allocator_trace" and `compare`: differences by name."""
    return {
        entry["name"]: compare(
            replay(
                entry["trace"],
                entry["capacity"],
                max_split_size_mb=entry["max_split_size_mb"],
                addresses=[step["address"] for step in entry["steps"]],
            ),
            entry["steps"],
        )
        for entry in values
    }


def report(recording: Recording | None) -> None:
    """Print the recording "device_memory", a line per step, with where it was measured."""
    if recording is None:
        print(MISSING)
        return
    for row in recording.values:
        sizes = (f"{key} {format_size(row[key])}" for key in ("device", "reserved", "allocated"))
        print(f"{row['after']}: {', '.join(sizes)}")
    print(f"device: {recording.provenance}")


# Who keeps memory alive, on any device


def watch(tensor: torch.Tensor) -> Callable[[], bool]:
    """A function that tells whether the memory of `tensor` is still held by anyone.

    It watches the storage, not the Python object: autograd may hold the numbers after the last
    name is gone, and a weak reference to the tensor does not always see that. Memory that only a
    reference cycle holds counts until `gc.collect()`.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    storage = StorageWeakRef(tensor.untyped_storage())
    return lambda: not storage.expired()


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
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    trace: list[tuple[Any, ...]] = []
    held: dict[int, tuple[str, StorageWeakRef]] = {}
    numbers = itertools.count(1)

    def storages(values: Any) -> dict[int, torch.UntypedStorage]:
        tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
        return {
            t.untyped_storage()._cdata: t.untyped_storage()
            for t in tensors
            if device is None or t.device.type == device
        }

    def sweep() -> None:
        for key, (name, storage) in list(held.items()):
            if storage.expired():
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
                    held[key] = name, StorageWeakRef(storage)
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


def _small_model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


# Exercises


def check_segment(answer: Callable[[int], int]) -> Verdict:
    """Exercise: `answer(nbytes)` is what one tensor of `nbytes` >= 1 reserves on a fresh device."""
    edges = [1, MIB, MIB + 1, 5 * MIB, 10 * MIB - 512, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1]
    rng = random.Random(0)
    some = [int(2 ** rng.uniform(0, 32)) for _ in range(200)]
    return verdict(
        answer,
        [
            lambda function: _segments_agree(function, edges),
            lambda function: _segments_agree(function, some),
        ],
    )


def _segments_agree(answer: Callable[[int], int], sizes: Iterable[int]) -> None:
    for nbytes in sizes:
        allocator = CachingAllocator()
        allocator.malloc(nbytes)
        got, want = answer(nbytes), allocator.reserved
        _is_bytes(got, f"for nbytes = {nbytes}")
        assert got == want, (
            f"for nbytes = {nbytes} you said {got}, the allocator takes {want}: "
            + _segment_hint(nbytes, want)
        )


def _is_bytes(got: Any, where: str) -> None:
    assert got is not None, f"{where} your function returned None"
    assert isinstance(got, int) and not isinstance(got, bool), (
        f"{where} expected a whole number of bytes (int), got {got!r}"
    )


def _segment_hint(nbytes: int, want: int) -> str:
    if want == SMALL_BUFFER:
        return "up to 1 MiB a block comes from a segment of 2 MiB"
    if want == LARGE_BUFFER and nbytes <= MIN_LARGE_ALLOC - MIN_BLOCK_SIZE:
        return "above 1 MiB and below 10 MiB a block comes from a segment of 20 MiB"
    if nbytes < MIN_LARGE_ALLOC:
        return "the size is rounded up to 512 bytes first, and only then compared with 10 MiB"
    return "from 10 MiB on the segment is the size rounded up to a multiple of 2 MiB"


def check_releasable(answer: Callable[[list[dict[str, Any]]], int]) -> Verdict:
    """Exercise: `answer(snapshot)` is how many bytes `empty_cache` would give back.

    `snapshot` is what `CachingAllocator.snapshot` returns, in the form of
    `torch.cuda.memory_snapshot`.
    """
    used = [("malloc", "a", 5 * MIB)]
    free = [*used, ("free", "a")]
    both = [*used, ("malloc", "b", 30 * MIB), ("malloc", "c", 512), ("free", "b"), ("free", "c")]
    by_hand = [[("empty_cache",)], used, free, both]
    rng = random.Random(0)
    drawn = [random_trace(rng.getrandbits(32), rng.randint(1, 80)) for _ in range(40)]
    return verdict(
        answer,
        [
            lambda function: _releasable_agrees(function, by_hand),
            lambda function: _releasable_agrees(function, drawn),
        ],
    )


def _releasable_agrees(
    answer: Callable[[list[dict[str, Any]]], int], traces: Iterable[list[tuple[Any, ...]]]
) -> None:
    for trace in traces:
        step, after = replay([*trace, ("empty_cache",)])[-2:]
        want = step.counters.reserved - after.counters.reserved
        count = len(step.snapshot)
        where = f"with {count} segment{'s' * (count > 1)}" if count else "without a segment"
        got = answer(step.snapshot)
        _is_bytes(got, where)
        free = step.counters.reserved - step.counters.allocated
        hint = "count the segments in which no block is allocated, each with its whole size"
        if got == free:
            hint = "you counted every free byte, but a segment that a tensor still uses stays whole"
        elif got == step.counters.reserved:
            hint = "you counted every segment, also those that tensors still use"
        elif got and got == step.counters.allocated:
            hint = "you counted what tensors hold, which is never given back"
        assert got == want, f"{where} you said {got}, empty_cache gives back {want}: {hint}"


def check_mean_loss(answer: Callable[..., float]) -> Verdict:
    """Exercise: `answer(model, batches, loss_fn)` is the mean loss, and keeps no graph alive.

    `batches` yields pairs `(x, y)` of equal size and can be read once; the answer is a `float`.
    """
    return verdict(answer, [_mean_loss_is_right, _mean_loss_keeps_nothing])


def _validation(count: int, seed: int) -> tuple[torch.nn.Sequential, list, Callable]:
    generator = torch.Generator().manual_seed(seed)
    batches = [
        (torch.randn(4, 8, generator=generator), torch.randn(4, 1, generator=generator))
        for _ in range(count)
    ]
    return _small_model(), batches, torch.nn.MSELoss()


def _mean_loss_is_right(answer: Callable[..., float]) -> None:
    for count in (1, 2, 7):
        model, batches, loss_fn = _validation(count, seed=count)
        with torch.no_grad():
            losses = [loss_fn(model(x), y).item() for x, y in batches]
        want = sum(losses) / count
        got = answer(model, iter(batches), loss_fn)
        assert got is not None, "your function returned None, not the mean loss"
        assert not isinstance(got, torch.Tensor), (
            "your function returned a tensor"
            + (", and its graph with it" * got.requires_grad)
            + ": return a Python float"
        )
        assert isinstance(got, float), f"expected a float, got {type(got).__name__}"
        if count > 1:
            assert abs(got - sum(losses)) > 1e-6 * abs(got), (
                f"over {count} batches you returned the sum of the losses: divide by their number"
            )
        assert abs(got - want) < 1e-4 * max(1, abs(want)), (
            f"over {count} batches the mean loss is {want:.4f}, you returned {got:.4f}"
        )


def _mean_loss_keeps_nothing(answer: Callable[..., float]) -> None:
    count = 12
    model, batches, loss_fn = _validation(count, seed=0)
    watched: list[Callable[[], bool]] = []

    def look(module: torch.nn.Module, inputs: Any, activation: torch.Tensor) -> None:
        kept = sum(alive() for alive in watched)
        # A loss still bound to its name keeps the last graph, which harms nobody
        assert kept <= 1, (
            f"at batch {len(watched) + 1} the activations of {kept} earlier batches are still in "
            "memory: each loss you keep as a tensor keeps its graph"
        )
        watched.append(watch(activation))

    model[1].register_forward_hook(look)
    answer(model, iter(batches), loss_fn)
    assert len(watched) == count, (
        f"there are {count} batches, your function ran the model on {len(watched)}"
    )


# The picture
