"""PyTorch's CUDA caching allocator as a small model, and who keeps memory alive.

Without a GPU `torch.cuda.memory_allocated()` is always 0, so `CachingAllocator` replays what the
real allocator does with a list of requests, byte for byte. The rules and the names of constants
are those of PyTorch's sources (`c10/cuda/CUDACachingAllocator.cpp`, class
`DeviceCachingAllocator`, and `c10/core/AllocatorConfig.h`). `live_trace` performs the same list
on a real device, and `compare` names every number in which the two differ.

The model covers one device and one stream. Left out: memory used on several streams
(`record_stream`), private pools of CUDA graphs, `expandable_segments`,
`roundup_power2_divisions`, `garbage_collection_threshold`, and everything that does not pass
through the allocator (the CUDA context, libraries' own workspaces).
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from helpers.exercises import Verdict, verdict
from helpers.figures import Explorer

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 2**20

MIN_BLOCK_SIZE = 512
"""`kMinBlockSize`: every block's size is a multiple of it."""
SMALL_SIZE = MIB
"""`kSmallSize`: the largest block that comes from the small pool."""
SMALL_BUFFER = 2 * MIB
"""`kSmallBuffer`: the size of a segment of the small pool."""
MIN_LARGE_ALLOC = 10 * MIB
"""`kMinLargeAlloc`: from here on a block gets a segment of its own size, rounded."""
LARGE_BUFFER = 20 * MIB
"""`large_segment_size`, once `kLargeBuffer`: the segment for blocks of 1 to 10 MiB."""
ROUND_LARGE = 2 * MIB
"""`kRoundLarge`: segments for blocks from 10 MiB on are a multiple of it."""
ONE_EXABYTE = 2**60
"""`one_exa_bytes`: requests from here on are refused before any search."""

Operation = Sequence[Any]
"""`("malloc", name, nbytes)`, `("free", name)`, `("empty_cache",)` or `("reset_peak",)`."""


class OutOfMemoryError(torch.OutOfMemoryError):
    """No room on the model's device; its words are those of the real error."""


def round_size(nbytes: int) -> int:
    """The size in bytes of the block that holds `nbytes` (`round_size` in the source).

    At least `MIN_BLOCK_SIZE`, else the next multiple of it. This rounded size is what
    `memory_allocated` counts.

    Raises:
        TypeError, ValueError: `nbytes` is not an int, or is negative.
    """
    nbytes = _bytes(nbytes)
    return max(MIN_BLOCK_SIZE, -(-nbytes // MIN_BLOCK_SIZE) * MIN_BLOCK_SIZE)


def segment_size(rounded: int) -> int:
    """The size in bytes of a new segment for a block of `rounded` bytes (`get_allocation_size`).

    Args:
        rounded: what `round_size` returned. The thresholds apply to the rounded size: a request
            of 10 MiB - 1 byte counts as 10 MiB.

    Raises:
        TypeError, ValueError: `rounded` is not a positive multiple of `MIN_BLOCK_SIZE`.
    """
    if _bytes(rounded) == 0 or rounded % MIN_BLOCK_SIZE:
        raise ValueError(
            f"expected a rounded size, a positive multiple of {MIN_BLOCK_SIZE}, got {rounded}"
        )
    if rounded <= SMALL_SIZE:
        return SMALL_BUFFER
    if rounded < MIN_LARGE_ALLOC:
        return LARGE_BUFFER
    return -(-rounded // ROUND_LARGE) * ROUND_LARGE


def format_size(nbytes: int) -> str:
    """Bytes as the allocator's own messages write them: `512 bytes`, `1.18 MiB`, `2.00 GiB`."""
    for limit, unit in ((2**10, None), (2**20, "KiB"), (2**30, "MiB")):
        if nbytes <= limit:
            return f"{nbytes} bytes" if unit is None else f"{nbytes / (limit >> 10):.2f} {unit}"
    return f"{nbytes / 2**30:.2f} GiB"


@dataclass(eq=False)
class Block:
    """A piece of a segment: handed out to a tensor, or free in the cache.

    Attributes:
        address: of the first byte, on the model's device.
        size: in bytes, rounded; what `allocated` counts.
        requested: in bytes, as asked for; 0 while free.
        allocated: whether a tensor holds it now.
        name: the tensor's name, for pictures.
    """

    address: int
    size: int
    requested: int = 0
    allocated: bool = False
    name: str | None = None


@dataclass(eq=False)
class Segment:
    """One `cudaMalloc`: a range of device memory, tiled by blocks in the order of addresses."""

    address: int
    size: int
    small: bool
    blocks: list[Block] = field(default_factory=list)

    @property
    def releasable(self) -> bool:
        """Whether `empty_cache` gives it back: it is one block, and that one is free."""
        return len(self.blocks) == 1 and not self.blocks[0].allocated


@dataclass(frozen=True)
class Counters:
    """What `torch.cuda.memory_stats` reports, in bytes unless said otherwise.

    Attributes:
        allocated: bytes in blocks held by tensors, `torch.cuda.memory_allocated()`.
        reserved: bytes in segments, `torch.cuda.memory_reserved()`.
        max_allocated: peak of `allocated`, `torch.cuda.max_memory_allocated()`.
        max_reserved: peak of `reserved`, `torch.cuda.max_memory_reserved()`.
        requested: bytes that tensors asked for, `requested_bytes.all.current`.
        inactive_split: free bytes in segments that tensors still use, which `empty_cache` cannot
            give back, `inactive_split_bytes.all.current`.
        segments: how many segments there are, `segment.all.current`.
        retries: how often the device refused and the cache was emptied, `num_alloc_retries`.
        ooms: how many out-of-memory errors were raised, `num_ooms`.
    """

    allocated: int = 0
    reserved: int = 0
    max_allocated: int = 0
    max_reserved: int = 0
    requested: int = 0
    inactive_split: int = 0
    segments: int = 0
    retries: int = 0
    ooms: int = 0


STATS = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "max_allocated": "allocated_bytes.all.peak",
    "max_reserved": "reserved_bytes.all.peak",
    "requested": "requested_bytes.all.current",
    "inactive_split": "inactive_split_bytes.all.current",
    "segments": "segment.all.current",
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
}
"""The names of the `Counters` in `torch.cuda.memory_stats`."""


class CachingAllocator:
    """A model of PyTorch's CUDA caching allocator: one device, one stream.

    A request is rounded (`round_size`) and looked for among the free blocks of its pool: small up
    to 1 MiB, large above. The smallest block that fits is taken, and split when what remains is
    worth keeping (`should_split`: at least 512 bytes in the small pool, more than 1 MiB in the
    large one). Without a fit a new segment is reserved (`alloc_block`); if the device has no
    room, the wholly free segments are released and the attempt repeated once. A freed block
    merges with free neighbours and stays reserved.

    Args:
        capacity: bytes that the segments may take together; None means no limit. It acts as
            `torch.cuda.set_per_process_memory_fraction` does.
        max_split_size_mb: the option of that name of `PYTORCH_CUDA_ALLOC_CONF`, in MiB and at
            least 20: larger blocks are never split, and never lent to smaller requests.

    Raises:
        TypeError, ValueError: an argument is not an int, is negative or below its least value.
    """

    def __init__(self, capacity: int | None = None, *, max_split_size_mb: int | None = None):
        self.capacity = None if capacity is None else _bytes(capacity, "capacity")
        if max_split_size_mb is not None and (
            _bytes(max_split_size_mb, "max_split_size_mb") * MIB < LARGE_BUFFER
        ):
            raise ValueError(
                f"max_split_size_mb must be at least {LARGE_BUFFER // MIB}, got {max_split_size_mb}"
            )
        self.max_split_size = float("inf") if max_split_size_mb is None else max_split_size_mb * MIB
        self.segments: list[Segment] = []
        self.events: list[tuple[str, int]] = []
        """What the last operation did: (action, bytes), with the actions `segment_alloc`,
        `segment_free`, `alloc`, `split`, `merge`, `free`, `oom`."""
        self._held: dict[Block, Segment | None] = {}
        self._next_address = 0
        self._max_allocated = self._max_reserved = self._retries = self._ooms = 0

    def malloc(self, nbytes: int, name: str | None = None, address: int | None = None) -> Block:
        """Allocate `nbytes` bytes and return the block, to be given to `free`.

        0 bytes take no block at all, like an empty tensor: the returned block has size 0.

        Args:
            nbytes: bytes that the tensor needs.
            name: for pictures.
            address: where the device would place a new segment; the model's own choice is the
                first multiple of 2 MiB past all earlier segments. Equal fits are tied by address.

        Raises:
            TypeError, ValueError: `nbytes` is not an int, or is negative.
            OutOfMemoryError: no room, even after the free segments were released.
        """
        nbytes = _bytes(nbytes)
        self.events = []
        if nbytes >= ONE_EXABYTE:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate more than 1EB memory.")
        if nbytes == 0:
            return self._hold(Block(0, 0, 0, True, name), None)
        size = round_size(nbytes)
        small = size <= SMALL_SIZE
        found = self._find(size, small) or self._reserve(size, small, address)
        if found is None and self._release_oversize(size, small):
            found = self._reserve(size, small, address)
        if found is None:
            self._release_cached()
            self._retries += 1
            found = self._reserve(size, small, address)
        if found is None:
            self._ooms += 1
            self.events.append(("oom", segment_size(size)))
            raise OutOfMemoryError(self._no_room(segment_size(size)))
        return self._take(*found, size, nbytes, name)

    def free(self, block: Block) -> None:
        """Give a block back to the cache; `reserved` does not change.

        Raises:
            TypeError: `block` is not a `Block`.
            ValueError: it was freed already, or another allocator handed it out.
        """
        if not isinstance(block, Block):
            raise TypeError(f"free expects the Block that malloc returned, got {block!r}")
        if block not in self._held:
            if block.allocated:
                raise ValueError(f"{_label(block)} was handed out by another allocator")
            raise ValueError(f"{_label(block)} is freed already: double free")
        self.events = []
        segment = self._held.pop(block)
        block.allocated = False
        if segment is None:
            return
        self.events.append(("free", block.size))
        blocks = segment.blocks
        first = last = blocks.index(block)
        if first > 0 and not blocks[first - 1].allocated:
            first -= 1
            self.events.append(("merge", blocks[first].size))
        if last + 1 < len(blocks) and not blocks[last + 1].allocated:
            last += 1
            self.events.append(("merge", blocks[last].size))
        merged = Block(blocks[first].address, sum(b.size for b in blocks[first : last + 1]))
        blocks[first : last + 1] = [merged]

    def empty_cache(self) -> None:
        """Give every wholly free segment back to the device, as `torch.cuda.empty_cache()` does."""
        self.events = []
        self._release_cached()

    def reset_peak(self) -> None:
        """Start the peaks anew from the present values: `torch.cuda.reset_peak_memory_stats()`."""
        self.events = []
        self._max_allocated, self._max_reserved = self.allocated, self.reserved

    @property
    def allocated(self) -> int:
        """Bytes in blocks held by tensors (rounded sizes): `torch.cuda.memory_allocated()`."""
        return sum(block.size for block in self._held)

    @property
    def requested(self) -> int:
        """Bytes that the tensors asked for, before rounding."""
        return sum(block.requested for block in self._held)

    @property
    def reserved(self) -> int:
        """Bytes in segments, used and free: `torch.cuda.memory_reserved()`."""
        return sum(segment.size for segment in self.segments)

    @property
    def max_allocated(self) -> int:
        """The largest `allocated` since the start or the last `reset_peak`."""
        return self._max_allocated

    @property
    def max_reserved(self) -> int:
        """The largest `reserved` since the start or the last `reset_peak`."""
        return self._max_reserved

    @property
    def inactive_split(self) -> int:
        """Free bytes in segments that tensors still use: `empty_cache` cannot release them."""
        return sum(
            block.size
            for segment in self.segments
            if not segment.releasable
            for block in segment.blocks
            if not block.allocated
        )

    @property
    def counters(self) -> Counters:
        """All counters at once, under the names that `STATS` maps to PyTorch's."""
        return Counters(
            self.allocated,
            self.reserved,
            self.max_allocated,
            self.max_reserved,
            self.requested,
            self.inactive_split,
            len(self.segments),
            self._retries,
            self._ooms,
        )

    def snapshot(self) -> list[dict[str, Any]]:
        """Segments and their blocks in the order of addresses, like `torch.cuda.memory_snapshot()`.

        Each segment has `address`, `total_size`, `allocated_size`, `requested_size`,
        `segment_type` ("small" or "large") and `blocks`; each block has `address`, `size`,
        `requested_size`, `state` ("active_allocated" or "inactive") and, here only, `name`.
        """
        return [
            {
                "address": segment.address,
                "total_size": segment.size,
                "allocated_size": sum(b.size for b in segment.blocks if b.allocated),
                "requested_size": sum(b.requested for b in segment.blocks),
                "segment_type": "small" if segment.small else "large",
                "blocks": [
                    {
                        "address": b.address,
                        "size": b.size,
                        "requested_size": b.requested,
                        "state": "active_allocated" if b.allocated else "inactive",
                        "name": b.name,
                    }
                    for b in segment.blocks
                ],
            }
            for segment in sorted(self.segments, key=lambda segment: segment.address)
        ]

    def _find(self, size: int, small: bool) -> tuple[Segment, Block] | None:
        """The free block to use, or None: `get_free_block`."""
        fits = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            if segment.small == small
            for block in segment.blocks
            if not block.allocated and block.size >= size
        ]
        if not fits:
            return None
        best, _, segment, block = min(fits, key=lambda fit: fit[:2])
        if size < self.max_split_size <= best:
            return None
        # `max_non_split_rounding_size`, by default as large as a large segment
        if size >= self.max_split_size and best >= size + LARGE_BUFFER:
            return None
        return segment, block

    def _reserve(self, size: int, small: bool, address: int | None) -> tuple[Segment, Block] | None:
        """A new segment with one free block, or None when the device is full: `alloc_block`."""
        total = segment_size(size)
        if self.capacity is not None and self.reserved + total > self.capacity:
            return None
        start = self._next_address if address is None else address
        block = Block(start, total)
        segment = Segment(start, total, small, [block])
        self.segments.append(segment)
        self._next_address = max(
            self._next_address, -(-(start + total) // ROUND_LARGE) * ROUND_LARGE
        )
        self._max_reserved = max(self._max_reserved, self.reserved)
        self.events.append(("segment_alloc", total))
        return segment, block

    def _take(
        self, segment: Segment, block: Block, size: int, nbytes: int, name: str | None
    ) -> Block:
        """Hand out the block, or its beginning: `should_split` and `alloc_found_block`."""
        rest = block.size - size
        split = rest >= MIN_BLOCK_SIZE if segment.small else rest > SMALL_SIZE
        split = split and (segment.small or size < self.max_split_size)
        taken = Block(block.address, size if split else block.size, nbytes, True, name)
        pieces = [taken]
        if split:
            pieces.append(Block(block.address + size, rest))
            self.events.append(("split", rest))
        at = segment.blocks.index(block)
        segment.blocks[at : at + 1] = pieces
        self.events.append(("alloc", taken.size))
        return self._hold(taken, segment)

    def _hold(self, block: Block, segment: Segment | None) -> Block:
        self._held[block] = segment
        self._max_allocated = max(self._max_allocated, self.allocated)
        return block

    def _release(self, segments: Iterable[Segment]) -> None:
        """`release_block`, which calls `cudaFree`."""
        for segment in segments:
            self.segments.remove(segment)
            self.events.append(("segment_free", segment.size))

    def _release_cached(self) -> None:
        """`release_cached_blocks`: every segment that is one free block."""
        self._release([segment for segment in self.segments if segment.releasable])

    def _release_oversize(self, size: int, small: bool) -> bool:
        """`release_available_cached_blocks`: with `max_split_size_mb`, free just enough first."""
        if self.max_split_size == float("inf"):
            return False
        needed = max(size, self.max_split_size)
        free = sorted(
            (s for s in self.segments if s.small == small and s.releasable),
            key=lambda s: (s.size, s.address),
        )
        enough = [segment for segment in free if segment.size >= needed]
        if enough:
            self._release(enough[:1])
            return True
        total = 0
        for segment in reversed(free):
            if total >= needed or segment.size < self.max_split_size:
                break
            self._release([segment])
            total += segment.size
        return total >= needed

    def _no_room(self, total: int) -> str:
        return (
            f"CUDA out of memory. Tried to allocate {format_size(total)}. GPU 0 has a total "
            f"capacity of {format_size(self.capacity)} of which "
            f"{format_size(self.capacity - self.reserved)} is free. "
            f"Of the allocated memory {format_size(self.allocated)} is allocated by PyTorch, and "
            f"{format_size(self.reserved - self.allocated)} is reserved by PyTorch but "
            "unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
        )


# Traces: the same list of operations for the model and for a real device


@dataclass(frozen=True)
class Step:
    """The state after one operation of a trace.

    Attributes:
        operation: the operation itself.
        counters: after it.
        snapshot: after it, as `CachingAllocator.snapshot` returns it.
        address: of the block that a malloc got; None for anything else.
        error: the message of the out-of-memory error that it ended in, or None.
        events: what happened inside, see `CachingAllocator.events`.
    """

    operation: tuple[Any, ...]
    counters: Counters
    snapshot: list[dict[str, Any]]
    address: int | None
    error: str | None
    events: tuple[tuple[str, int], ...]


def replay(
    trace: Iterable[Operation],
    capacity: int | None = None,
    *,
    max_split_size_mb: int | None = None,
    addresses: Sequence[int | None] | None = None,
) -> list[Step]:
    """Perform a trace on a fresh `CachingAllocator` and keep the state after each operation.

    An out-of-memory error does not end the replay: the step's `error` holds the message, the name
    stands for no memory, and freeing it does nothing.

    Args:
        trace: operations: `("malloc", name, nbytes)`, `("free", name)`, `("empty_cache",)`,
            `("reset_peak",)`.
        capacity: see `CachingAllocator`.
        max_split_size_mb: see `CachingAllocator`.
        addresses: for each operation the address that a real device gave, to break ties between
            equal blocks as it did.

    Raises:
        ValueError: the trace is malformed (see `check_trace`), or there are not as many addresses
            as operations.
    """
    trace = check_trace(trace)
    if addresses is None:
        addresses = [None] * len(trace)
    if len(addresses) != len(trace):
        raise ValueError(
            f"expected an address or None for each of {len(trace)} steps, got {len(addresses)}"
        )
    allocator = CachingAllocator(capacity, max_split_size_mb=max_split_size_mb)
    held: dict[str, Block] = {}
    steps = []
    for operation, wanted in zip(trace, addresses, strict=True):
        action, *rest = operation
        address = error = None
        allocator.events = []
        if action == "malloc":
            name, nbytes = rest
            try:
                held[name] = allocator.malloc(nbytes, name, wanted)
                address = held[name].address if nbytes else None
            except OutOfMemoryError as full:
                error = str(full)
        elif action == "free":
            if rest[0] in held:
                allocator.free(held.pop(rest[0]))
        elif action == "empty_cache":
            allocator.empty_cache()
        else:
            allocator.reset_peak()
        steps.append(
            Step(
                operation,
                allocator.counters,
                allocator.snapshot(),
                address,
                error,
                tuple(allocator.events),
            )
        )
    return steps


def check_trace(trace: Iterable[Operation]) -> list[tuple[Any, ...]]:
    """The trace as a list of tuples.

    Raises:
        ValueError: an operation has another name or other arguments, mallocs a name in use, or
            frees one that is not; the message names the step.
    """
    forms = {"malloc": (str, int), "free": (str,), "empty_cache": (), "reset_peak": ()}
    checked: list[tuple[Any, ...]] = []
    names: set[str] = set()
    for number, operation in enumerate(trace):
        action, *rest = operation if isinstance(operation, (tuple, list)) else (operation,)
        form = forms.get(action) if isinstance(action, str) else None
        if form is None or len(form) != len(rest) or not all(map(isinstance, rest, form)):
            raise ValueError(
                f"step {number}: expected ('malloc', name, nbytes), ('free', name), "
                f"('empty_cache',) or ('reset_peak',), got {operation!r}"
            )
        if action == "malloc":
            if rest[0] in names:
                raise ValueError(f"step {number}: {rest[0]!r} is allocated already")
            names.add(rest[0])
        elif action == "free":
            if rest[0] not in names:
                raise ValueError(f"step {number}: {rest[0]!r} is not allocated, cannot free it")
            names.remove(rest[0])
        checked.append((action, *rest))
    return checked


def tensor_bytes(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
    """Bytes of a tensor of that shape, without allocating it (meta device)."""
    return torch.empty(tuple(shape), dtype=dtype, device="meta").nbytes


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


# The same on a real device


class _Device:
    """A fresh Python process that performs operations on the GPU, one line of JSON each.

    A process of its own starts with empty caches, whatever the notebook around it holds, and is
    the only one whose allocator can still be configured.
    """

    def __init__(self, max_split_size_mb: int | None = None):
        if not torch.cuda.is_available():
            raise RuntimeError(
                "a live trace needs a CUDA device and this machine has none; "
                "replay(trace) runs the model instead"
            )
        # PYTORCH_NO_CUDA_MEMORY_CACHING and the reader's own settings would change the numbers
        env = {k: v for k, v in os.environ.items() if "ALLOC_CONF" not in k}
        env.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
        if max_split_size_mb is not None:
            env["PYTORCH_CUDA_ALLOC_CONF"] = f"max_split_size_mb:{max_split_size_mb}"
        source = str(Path(__file__).parents[1])
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (source, env.get("PYTHONPATH"))))
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from helpers import memory_caching as m; m._serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env,
            text=True,
        )

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._errors.close()

    def do(self, *operation: Any) -> dict[str, Any]:
        """Perform one operation; counters after it, the address of a malloc, an error's message."""
        try:
            self._process.stdin.write(json.dumps(operation) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait(60)
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"the process on the GPU ended at {operation!r}: {last}")
        return json.loads(answer)


def _serve() -> None:
    """The other end of `_Device`: perform the operations that arrive on standard input."""
    held: dict[str, torch.Tensor] = {}
    for line in sys.stdin:
        print(json.dumps(_perform(json.loads(line), held)), flush=True)


def _perform(operation: Operation, held: dict[str, torch.Tensor]) -> dict[str, Any]:
    """One operation on the CUDA device of this process, and the counters after it."""
    action, *rest = operation
    address = error = None
    if action == "malloc":
        name, nbytes = rest
        try:
            held[name] = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
            address = held[name].data_ptr() or None
        except torch.OutOfMemoryError as full:
            error = str(full)
    elif action == "free":
        held.pop(rest[0], None)
    elif action == "empty_cache":
        torch.cuda.empty_cache()
    elif action == "reset_peak":
        torch.cuda.reset_peak_memory_stats()
    elif action == "capacity":
        # All segments are multiples of 2 MiB: half of that more absorbs what the fraction rounds
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction((rest[0] + ROUND_LARGE // 2) / total)
    elif action == "counters":
        torch.cuda.synchronize()  # the first call creates the CUDA context
    else:
        raise ValueError(f"unknown operation {operation!r}")
    stats = torch.cuda.memory_stats()
    counters = {name: stats[key] for name, key in STATS.items()}
    return {**counters, "address": address, "error": error}


def live_trace(
    trace: Iterable[Operation],
    capacity: int | None = None,
    *,
    max_split_size_mb: int | None = None,
) -> list[dict[str, Any]]:
    """Perform a trace on a real CUDA device and read PyTorch's counters after each operation.

    `malloc` is `torch.empty(nbytes, dtype=torch.uint8, device="cuda")`, `free` drops that tensor.
    It runs in a fresh process, so that the counters start at 0 and nothing needs subtracting;
    a process that does not start at 0 is an error.

    Args:
        trace: as for `replay`.
        capacity: bytes, a multiple of 2 MiB: the limit set by
            `torch.cuda.set_per_process_memory_fraction`.
        max_split_size_mb: set as `PYTORCH_CUDA_ALLOC_CONF` for that process.

    Returns:
        For each operation the fields of `Counters`, with `address` (of the malloc's block,
        relative to the lowest in the trace; None for anything else) and `error` (message or None).

    Raises:
        RuntimeError: there is no CUDA device, its process fails, or it does not start clean.
        ValueError: a malformed operation, or a capacity that is no multiple of 2 MiB.
    """
    trace = check_trace(trace)
    if capacity is not None and _bytes(capacity, "capacity") % ROUND_LARGE:
        raise ValueError(f"capacity must be a multiple of 2 MiB ({ROUND_LARGE}), got {capacity}")
    with _Device(max_split_size_mb) as device:
        start = device.do("counters")
        if start["allocated"] or start["reserved"]:
            raise RuntimeError(f"the device's process does not start clean: {start}")
        if capacity is not None:
            device.do("capacity", capacity)
        steps = [device.do(*operation) for operation in trace]
    lowest = min((step["address"] for step in steps if step["address"]), default=0)
    for step in steps:
        if step["address"]:
            step["address"] -= lowest
    return steps


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


def recordings() -> dict[str, Callable[[], Any]]:
    """What a GPU can tell this chapter: names of recordings and the functions that measure them."""
    return {"allocator_trace": record_allocator_trace, "device_memory": record_device_memory}


def record_allocator_trace() -> list[dict[str, Any]]:
    """Four traces with the real counters after each step, for `compare_recorded`.

    Returns:
        Entries with `name`, `trace`, `capacity`, `max_split_size_mb` and `steps`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    plans = [
        ("notes", notes_trace(repeats=5), None, None),
        ("random", random_trace(seed=0), None, None),
        ("fragmentation", fragmentation_trace(), FRAGMENTATION_CAPACITY, None),
        ("max_split_size", random_trace(seed=1), 640 * MIB, 32),
    ]
    return [
        {
            "name": name,
            "trace": trace,
            "capacity": capacity,
            "max_split_size_mb": split,
            "steps": live_trace(trace, capacity, max_split_size_mb=split),
        }
        for name, trace, capacity, split in plans
    ]


def record_device_memory() -> list[dict[str, Any]]:
    """What the device says against what the counters say, seen from a second process.

    `nvidia-smi` shows the first. One process allocates 256 MiB, frees it and empties its cache;
    this one reads `torch.cuda.mem_get_info` meanwhile. Others on the same GPU would disturb it.

    Returns:
        Entries with `after` (what happened), `device` (bytes in use on the whole device since
        before that process started), `allocated` and `reserved` (of that process).

    Raises:
        RuntimeError: there is no CUDA device.
    """
    steps = [
        ("CUDA context", ("counters",)),
        ("malloc 256 MiB", ("malloc", "x", 256 * MIB)),
        ("free", ("free", "x")),
        ("empty_cache", ("empty_cache",)),
    ]
    result = []
    with _Device() as device:  # it makes its context at the first operation, not before
        used = _used_memory()
        for after, operation in steps:
            counters = device.do(*operation)
            result.append(
                {
                    "after": after,
                    "device": _used_memory() - used,
                    "allocated": counters["allocated"],
                    "reserved": counters["reserved"],
                }
            )
    return result


def _used_memory() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


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


@dataclass
class Saved:
    """What autograd saved for backward.

    Attributes:
        tensors: how many tensors were saved.
        bytes: of their distinct storages; a storage saved twice counts once.
    """

    tensors: int = 0
    bytes: int = 0


@contextmanager
def saved_for_backward(*, but: Iterable[torch.Tensor] = ()) -> Iterator[Saved]:
    """Count what the forward passes inside the block save for backward.

    Args:
        but: tensors that are in memory anyway, such as `model.parameters()` and the input;
            their storages are not counted.

    Yields:
        A `Saved`, complete when the block ends.
    """
    saved = Saved()
    known = {tensor.untyped_storage()._cdata for tensor in but}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            saved.tensors += 1
            storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved
    saved.bytes = sum(storage.nbytes() for storage in storages.values())


def activations_alive(steps: int, *, item: bool, backward: bool) -> int:
    """Sum the losses of `steps` batches, and count how many batches' activations stay in memory.

    Args:
        steps: how many batches.
        item: `total += loss.item()` instead of `total += loss`.
        backward: call `loss.backward()` in each step, as training does and validation does not.

    Returns:
        How many of the `steps` hidden activations are alive while `total` still is.

    Raises:
        ValueError: `steps` is negative.
    """
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}")
    model = _small_model()
    watched: list[Callable[[], bool]] = []
    model[1].register_forward_hook(lambda *args: watched.append(watch(args[-1])))
    total: Any = 0.0
    for _ in range(steps):
        loss = model(torch.ones(4, 8)).square().mean()
        if backward:
            loss.backward()
        total += loss.item() if item else loss
        del loss
    gc.collect()
    return sum(alive() for alive in watched)


def _small_model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


# Exercises


def check_block(answer: Callable[[int], int]) -> Verdict:
    """Exercise: `answer(nbytes)` is the size in bytes of the block for `nbytes` >= 1 bytes."""
    return _check_sizes(answer, [1, 511, 512, 513, 1024, 1025], round_size, _block_hint)


def check_segment(answer: Callable[[int], int]) -> Verdict:
    """Exercise: `answer(nbytes)` is what one tensor of `nbytes` >= 1 reserves on a fresh device."""
    edges = [1, MIB, MIB + 1, 5 * MIB, 10 * MIB - 512, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1]
    return _check_sizes(answer, edges, _reserved_alone, _segment_hint)


def _check_sizes(
    answer: Callable[[int], int],
    edges: list[int],
    truth: Callable[[int], int],
    hint: Callable[[int, int, int], str],
) -> Verdict:
    rng = random.Random(0)
    some = [int(2 ** rng.uniform(0, 32)) for _ in range(200)]
    return verdict(
        answer,
        [
            lambda function: _sizes_agree(function, edges, truth, hint),
            lambda function: _sizes_agree(function, some, truth, hint),
        ],
    )


def _reserved_alone(nbytes: int) -> int:
    allocator = CachingAllocator()
    allocator.malloc(nbytes)
    return allocator.reserved


def _sizes_agree(
    answer: Callable[[int], int],
    sizes: Iterable[int],
    truth: Callable[[int], int],
    hint: Callable[[int, int, int], str],
) -> None:
    for nbytes in sizes:
        got, want = answer(nbytes), truth(nbytes)
        assert got is not None, f"for {nbytes} bytes your function returned None"
        assert isinstance(got, int) and not isinstance(got, bool), (
            f"for {nbytes} bytes expected a whole number of bytes (int), got {got!r}"
        )
        assert got == want, (
            f"for {nbytes} bytes you said {got}, the allocator takes {want}: "
            + hint(nbytes, got, want)
        )


def _block_hint(nbytes: int, got: int, want: int) -> str:
    if got < nbytes:
        return "the tensor does not fit into the block"
    if got % MIN_BLOCK_SIZE:
        return f"a block is a multiple of {MIN_BLOCK_SIZE} bytes"
    if nbytes % MIN_BLOCK_SIZE == 0:
        return "this size is a multiple of 512 already and needs no rounding"
    return f"round up to the next multiple of {MIN_BLOCK_SIZE}, not further"


def _segment_hint(nbytes: int, got: int, want: int) -> str:
    if want == SMALL_BUFFER:
        return "up to 1 MiB a block comes from a segment of 2 MiB"
    if want == LARGE_BUFFER and nbytes <= MIN_LARGE_ALLOC - MIN_BLOCK_SIZE:
        return "above 1 MiB and below 10 MiB a block comes from a segment of 20 MiB"
    if nbytes < MIN_LARGE_ALLOC:
        return "the size is rounded up to 512 bytes first, and only then compared with 10 MiB"
    return "from 10 MiB on the segment is the size rounded up to a multiple of 2 MiB"


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


def allocator_explorer(
    trace: Iterable[Operation],
    capacity: int | None = None,
    *,
    max_split_size_mb: int | None = None,
    lang: str | None = None,
) -> Explorer:
    """Step through a replayed trace: segments, their blocks, and the counters.

    Args:
        trace: as for `replay`.
        capacity: see `CachingAllocator`.
        max_split_size_mb: see `CachingAllocator`.
        lang: `"en"`, `"zh"`, or None for the language of the page.

    Raises:
        ValueError: the trace is malformed or empty.
    """
    steps = replay(trace, capacity, max_split_size_mb=max_split_size_mb)
    if not steps:
        raise ValueError("allocator_explorer needs a trace of at least one operation, got none")
    data = {
        "capacity": format_size(capacity) if capacity is not None else None,
        "steps": [_step_data(step) for step in steps],
    }
    last = steps[-1].counters
    fallback = (
        f"A figure that steps through {len(steps)} operations of the caching allocator. "
        f"At the end {format_size(last.allocated)} are allocated and {format_size(last.reserved)} "
        f"reserved; the peaks were {format_size(max(s.counters.max_allocated for s in steps))} "
        f"and {format_size(max(s.counters.max_reserved for s in steps))}."
    )
    return Explorer("allocator-explorer", data, fallback, lang)


def _step_data(step: Step) -> dict[str, Any]:
    """A step as the explorer shows it: sizes as numbers for lengths, and as text for reading."""
    totals: dict[str, list[int]] = {}
    for action, nbytes in step.events:
        totals.setdefault(action, []).append(nbytes)
    operation, counters = step.operation, step.counters
    return {
        "op": operation[0],
        "name": operation[1] if len(operation) > 1 else None,
        "asked": format_size(operation[2]) if len(operation) > 2 else None,
        "did": {action: [len(sizes), format_size(sum(sizes))] for action, sizes in totals.items()},
        "now": [
            [value, format_size(value)]
            for value in (
                counters.allocated,
                counters.reserved,
                counters.max_allocated,
                counters.max_reserved,
            )
        ],
        "segments": [
            {
                "size": segment["total_size"],
                "text": format_size(segment["total_size"]),
                "small": segment["segment_type"] == "small",
                "blocks": [
                    [
                        block["size"],
                        format_size(block["size"]),
                        block["state"] == "active_allocated",
                        block["name"],
                    ]
                    for block in segment["blocks"]
                ],
            }
            for segment in step.snapshot
        ],
    }


def _bytes(value: Any, what: str = "nbytes") -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be an int, got {value!r} ({type(value).__name__})")
    if value < 0:
        raise ValueError(f"{what} must not be negative, got {value}")
    return value


def _label(block: Block) -> str:
    return f"block {block.name!r}" if block.name is not None else f"the block of {block.size} bytes"
