"""Simulate PyTorch's CUDA caching allocator; sizes and counters agree to the byte.

The rules and the names of constants follow PyTorch's source code
(`c10/cuda/CUDACachingAllocator.cpp`, class `DeviceCachingAllocator`, and
`c10/core/AllocatorConfig.h`); "Memory management" in
https://pytorch.org/docs/stable/notes/cuda.html describes the rules.

The model covers one device and one stream. Not modelled: memory used on several streams
(`record_stream`), private pools of CUDA graphs and `MemPool`, `expandable_segments`,
`roundup_power2_divisions`, `garbage_collection_threshold`, `large_segment_size_mb`, callbacks
that free memory, and the text of the error under a memory fraction. The CUDA context does not
pass through the allocator. The workspaces of cuBLAS and cuDNN do: cuBLAS keeps one per handle
and stream, which `empty_cache` does not release; a trace of a program's tensors does not contain
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers import checks

MIB = 2**20

MIN_BLOCK_SIZE = 512
"""`kMinBlockSize` — the size of every block is a multiple of this."""
SMALL_SIZE = MIB
"""`kSmallSize` — maximum size of a block in the small pool."""
SMALL_BUFFER = 2 * MIB
"""`kSmallBuffer` — size of a segment of the small pool."""
MIN_LARGE_ALLOC = 10 * MIB
"""`kMinLargeAlloc` — blocks of at least this size get a segment of their own rounded size."""
LARGE_BUFFER = 20 * MIB
"""`large_segment_size`, formerly `kLargeBuffer` — segment size for blocks of 1 to 10 MiB."""
ROUND_LARGE = 2 * MIB
"""`kRoundLarge` — segments for blocks of 10 MiB or more are a multiple of this size."""
ONE_EXABYTE = 2**60
"""`one_exa_bytes` — requests of at least this size raise an error without any search."""

Operation = Sequence[Any]
"""`("malloc", name, nbytes)`, `("free", name)`, `("empty_cache",)` or `("reset_peak",)`."""


class OutOfMemoryError(torch.OutOfMemoryError):
    """Raised if a request does not fit; the message is that of PyTorch, shortened."""


def round_size(nbytes: int) -> int:
    """Return the size in bytes of the block for a request of `nbytes` (`round_size` in the source).

    The result is rounded up to a positive multiple of `MIN_BLOCK_SIZE`; `memory_allocated`
    counts rounded sizes.

    Raises:
        TypeError, ValueError: `nbytes` is not an int, or is negative.
    """
    nbytes = _bytes(nbytes)
    return max(MIN_BLOCK_SIZE, -(-nbytes // MIN_BLOCK_SIZE) * MIN_BLOCK_SIZE)


def segment_size(rounded: int) -> int:
    """Return the bytes of a new segment for `rounded` bytes (`get_allocation_size`).

    Args:
        rounded: result of `round_size`. The thresholds apply to the rounded size: a request
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
    """Return bytes as PyTorch's messages write them: `512 bytes`, `1.18 MiB`, `2.00 GiB`.

    Raises:
        TypeError: `nbytes` is not a number.
    """
    checks.number("nbytes", nbytes)
    for limit, unit in ((2**10, None), (2**20, "KiB"), (2**30, "MiB")):
        if nbytes <= limit:
            return f"{nbytes} bytes" if unit is None else f"{nbytes / (limit >> 10):.2f} {unit}"
    return f"{nbytes / 2**30:.2f} GiB"


@dataclass(eq=False)
class Block:
    """Part of a segment: used by a tensor, or free in the cache.

    Attributes:
        address: of the first byte, on the model's device.
        size: in bytes, rounded; what `allocated` counts.
        requested: bytes that the tensor needs; 0 while free.
        allocated: whether a tensor uses the block now.
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
        """Whether `empty_cache` releases it: its only block is free."""
        return len(self.blocks) == 1 and not self.blocks[0].allocated


@dataclass(frozen=True)
class Counters:
    """Counters of `torch.cuda.memory_stats`, in bytes unless noted otherwise.

    Attributes:
        allocated: bytes in blocks used by tensors, `torch.cuda.memory_allocated()`.
        reserved: bytes in segments, `torch.cuda.memory_reserved()`.
        max_allocated: peak of `allocated`, `torch.cuda.max_memory_allocated()`.
        max_reserved: peak of `reserved`, `torch.cuda.max_memory_reserved()`.
        requested: bytes that tensors asked for, `requested_bytes.all.current`.
        inactive_split: free bytes in segments that tensors also use, which `empty_cache` cannot
            release, `inactive_split_bytes.all.current`.
        segments: number of segments, `segment.all.current`.
        retries: number of retries after the cache was emptied, `num_alloc_retries`.
        ooms: number of out-of-memory errors raised, `num_ooms`.
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

    def __str__(self) -> str:
        return (
            f"allocated {format_size(self.allocated)} (peak {format_size(self.max_allocated)}), "
            f"reserved {format_size(self.reserved)} (peak {format_size(self.max_reserved)})"
        )


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
    """A model of PyTorch's CUDA caching allocator for one device and one stream.

    A request is rounded (`round_size`) and served from the free blocks of its pool: small up to
    1 MiB, large above. The smallest block that fits is used, and split if the rest is large enough
    (`should_split`: at least 512 bytes in the small pool, more than 1 MiB in the large one). If
    none fits, a new segment is reserved (`alloc_block`); if the device has no memory left, the
    completely free segments are released and the request is repeated once. A freed block merges
    with free neighbours and stays reserved.

    Args:
        capacity: limit of the total size of segments in bytes; None means no limit. It acts as
            `torch.cuda.set_per_process_memory_fraction` does.
        max_split_size_mb: the option of that name of `PYTORCH_CUDA_ALLOC_CONF`, in MiB and at
            least 20: larger blocks are never split, and never used for smaller requests.

    Raises:
        TypeError, ValueError: an argument is not an int, is negative or below its minimum.
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
        """Events of the last operation as (action, bytes), with the actions `segment_alloc`,
        `segment_free`, `alloc`, `split`, `merge`, `free`, `oom`."""
        self._held: dict[Block, Segment | None] = {}
        self._next_address = 0
        self._max_allocated = self._max_reserved = self._retries = self._ooms = 0

    def malloc(self, nbytes: int, name: str | None = None, address: int | None = None) -> Block:
        """Allocate `nbytes` bytes and return the block, which `free` accepts.

        For 0 bytes (an empty tensor) no memory is used, and the returned block has size 0.

        Args:
            nbytes: requested bytes.
            name: label of the block in figures.
            address: address of a new segment, if one is reserved; by default the
                first multiple of 2 MiB after all earlier segments. Equal fits: lowest address.

        Raises:
            TypeError, ValueError: `nbytes` or `address` is not an int, or is negative.
            OutOfMemoryError: the device is full, even after free segments were released.
        """
        nbytes = _bytes(nbytes)
        if address is not None:
            _bytes(address, "address")
        self.events = []
        if nbytes >= ONE_EXABYTE:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate more than 1EB memory.")
        if nbytes == 0:
            return self._hold(Block(0, 0, 0, True, name), None)
        size = round_size(nbytes)
        small = size <= SMALL_SIZE
        place = self._find(size, small) or self._reserve(size, small, address)
        if place is None and self._release_oversize(size, small):
            place = self._reserve(size, small, address)
        if place is None:
            self._release_cached()
            self._retries += 1
            place = self._reserve(size, small, address)
        if place is None:
            self._ooms += 1
            self.events.append(("oom", segment_size(size)))
            raise OutOfMemoryError(self._no_room(segment_size(size)))
        return self._take(*place, size, nbytes, name)

    def free(self, block: Block) -> None:
        """Return a block to the cache; `reserved` does not change.

        Raises:
            TypeError: `block` is not a `Block`.
            ValueError: the block was freed already or belongs to another allocator.
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
        """Release every fully free segment to the device, as `torch.cuda.empty_cache()` does."""
        self.events = []
        self._release_cached()

    def reset_peak(self) -> None:
        """Reset the peaks to the current values, as `torch.cuda.reset_peak_memory_stats()` does."""
        self.events = []
        self._max_allocated, self._max_reserved = self.allocated, self.reserved

    @property
    def allocated(self) -> int:
        """Bytes in blocks used by tensors (rounded sizes): `torch.cuda.memory_allocated()`."""
        return sum(block.size for block in self._held)

    @property
    def reserved(self) -> int:
        """Bytes in segments, used and free: `torch.cuda.memory_reserved()`."""
        return sum(segment.size for segment in self.segments)

    @property
    def counters(self) -> Counters:
        """Return all counters; `STATS` maps their names to those of PyTorch."""
        kept = [segment for segment in self.segments if not segment.releasable]
        return Counters(
            allocated=self.allocated,
            reserved=self.reserved,
            max_allocated=self._max_allocated,
            max_reserved=self._max_reserved,
            requested=sum(block.requested for block in self._held),
            inactive_split=sum(b.size for s in kept for b in s.blocks if not b.allocated),
            segments=len(self.segments),
            retries=self._retries,
            ooms=self._ooms,
        )

    def snapshot(self) -> list[dict[str, Any]]:
        """Return segments and blocks by address, as `torch.cuda.memory_snapshot()` does.

        Each segment has `address`, `total_size`, `allocated_size`, `requested_size`,
        `segment_type` ("small" or "large") and `blocks`; each block has `address`, `size`,
        `requested_size`, `state` ("active_allocated" or "inactive") and `name` (not in PyTorch).
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
        """Return the free block to use, or None (`get_free_block`)."""
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
        """Return a new segment of one free block, or None if the device is full (`alloc_block`)."""
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
        """Allocate the block or its beginning (`should_split`, `alloc_found_block`)."""
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
        """Release segments to the device (`release_block`, which calls `cudaFree`)."""
        for segment in segments:
            self.segments.remove(segment)
            self.events.append(("segment_free", segment.size))

    def _release_cached(self) -> None:
        """Release every segment that is a single free block (`release_cached_blocks`)."""
        self._release([segment for segment in self.segments if segment.releasable])

    def _release_oversize(self, size: int, small: bool) -> bool:
        """Release just enough free segments for `size` (`release_available_cached_blocks`)."""
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


@dataclass(frozen=True)
class Step:
    """State of the allocator after one operation of a trace.

    Attributes:
        operation: the operation.
        counters: counters after the operation.
        snapshot: result of `CachingAllocator.snapshot` after the operation.
        address: address of the block that a malloc returned; None for other operations.
        error: message of the out-of-memory error, or None.
        events: see `CachingAllocator.events`.
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
    """Run a trace on a new `CachingAllocator` and return the state after each operation.

    An out-of-memory error does not end the replay: the step's `error` contains the message, and
    freeing the name later does nothing.

    Args:
        trace: operations: `("malloc", name, nbytes)`, `("free", name)`, `("empty_cache",)`,
            `("reset_peak",)`.
        capacity: see `CachingAllocator`.
        max_split_size_mb: see `CachingAllocator`.
        addresses: address on a real device for each operation, or None; used to break ties between
            blocks of equal size in the same way.

    Raises:
        TypeError: `trace` or `addresses` is not a list.
        ValueError: the trace is malformed (see `check_trace`), or the number of addresses differs
            from the number of operations.
    """
    trace = check_trace(trace)
    if addresses is None:
        addresses = [None] * len(trace)
    if not isinstance(addresses, Sequence):
        raise TypeError(f"addresses must be a list, got {type(addresses).__name__}")
    if len(addresses) != len(trace):
        raise ValueError(
            f"expected an address or None for each of {len(trace)} steps, got {len(addresses)}"
        )
    allocator = CachingAllocator(capacity, max_split_size_mb=max_split_size_mb)
    blocks: dict[str, Block] = {}
    steps = []
    for operation, device_address in zip(trace, addresses, strict=True):
        allocator.events = []
        address, error = _perform(allocator, blocks, operation, device_address)
        state = allocator.counters, allocator.snapshot()
        steps.append(Step(operation, *state, address, error, tuple(allocator.events)))
    return steps


def _perform(
    allocator: CachingAllocator,
    blocks: dict[str, Block],
    operation: tuple[Any, ...],
    device_address: int | None,
) -> tuple[int | None, str | None]:
    """Perform an operation; return the address of a new block and the error, each may be None."""
    action, *rest = operation
    if action == "malloc":
        name, nbytes = rest
        try:
            blocks[name] = allocator.malloc(nbytes, name, device_address)
        except OutOfMemoryError as full:
            return None, str(full)
        return (blocks[name].address if nbytes else None), None
    if action == "free":
        if rest[0] in blocks:
            allocator.free(blocks.pop(rest[0]))
    elif action == "empty_cache":
        allocator.empty_cache()
    else:
        allocator.reset_peak()
    return None, None


def check_trace(trace: Iterable[Operation]) -> list[tuple[Any, ...]]:
    """Validate a trace and return it as a list of tuples.

    Raises:
        TypeError: `trace` is no iterable.
        ValueError: an operation is unknown or has invalid arguments, mallocs a name in use, or
            frees a name that is not in use; the message gives the step.
    """
    if not isinstance(trace, Iterable):
        raise TypeError(f"trace must be a list of operations, got {type(trace).__name__}")
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


def _bytes(value: Any, what: str = "nbytes") -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be an int, got {value!r} ({type(value).__name__})")
    if value < 0:
        raise ValueError(f"{what} must not be negative, got {value}")
    return value


def _label(block: Block) -> str:
    return f"block {block.name!r}" if block.name is not None else f"the block of {block.size} bytes"


def random_trace(seed: int, n: int = 200) -> list[tuple[Any, ...]]:
    """Return `n` random operations, reproducible by `seed`, with at most 1 GiB in use at a time.

    Sizes mix small (up to 1 MiB), large (1 to 10 MiB) and huge (10 to 100 MiB) requests with the
    edges between them; about one operation in 25 empties the cache.

    Raises:
        TypeError, ValueError: `seed` or `n` is not an int, or `n` is negative.
    """
    seed, n = checks.integer("seed", seed), _bytes(n, "n")
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
