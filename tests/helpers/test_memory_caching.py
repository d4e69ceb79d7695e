"""The allocator model against PyTorch's sources, and the helpers around it."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from helpers import memory_caching as mc
from helpers.memory_caching import (
    FRAGMENTATION_CAPACITY,
    MIB,
    CachingAllocator,
    OutOfMemoryError,
    Saved,
    activations_alive,
    allocator_explorer,
    check_block,
    check_mean_loss,
    check_segment,
    check_trace,
    compare,
    compare_recorded,
    format_size,
    fragmentation_trace,
    live_trace,
    notes_trace,
    random_trace,
    replay,
    round_size,
    saved_for_backward,
    segment_size,
    tensor_bytes,
    watch,
)

SIZES = st.one_of(
    st.sampled_from([0, 1, 512, 513, MIB, MIB + 1, 10 * MIB - 512, 10 * MIB - 1, 10 * MIB]),
    st.integers(1, MIB),
    st.integers(MIB, 10 * MIB),
    st.integers(10 * MIB, 30 * MIB),
)


# Sizes


@pytest.mark.parametrize(
    ("nbytes", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (1120, 1536, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (2**40 + 1, 2**40 + 512, 2**40 + 2 * MIB),
    ],
)
def test_one_tensor(nbytes: int, block: int, segment: int) -> None:
    assert round_size(nbytes) == block
    assert segment_size(block) == segment
    allocator = CachingAllocator()
    got = allocator.malloc(nbytes)
    # 10 MiB - 1 and the like end in a large block whose rest, up to 1 MiB, is not split off
    rest = segment - block
    split = rest >= 512 if block <= MIB else rest > MIB
    assert got.size == allocator.allocated == (block if split else segment)
    assert (got.requested, allocator.requested) == (nbytes, nbytes)
    assert (allocator.reserved, len(allocator.segments)) == (segment, 1)


def test_an_empty_tensor_takes_nothing() -> None:
    allocator = CachingAllocator(capacity=0)
    block = allocator.malloc(0)
    assert allocator.counters == mc.Counters()
    allocator.free(block)
    assert round_size(0) == 512  # the source's function, which an empty tensor never reaches


@given(st.integers(0, 2**50))
def test_round_size_is_the_least_multiple_that_fits(nbytes: int) -> None:
    size = round_size(nbytes)
    assert size % 512 == 0
    assert size >= max(nbytes, 512)
    assert size - 512 < max(nbytes, 1)


@pytest.mark.parametrize("bad", [1.0, "1", None, True])
def test_sizes_are_ints(bad: object) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        round_size(bad)
    with pytest.raises(TypeError, match="must be an int"):
        CachingAllocator().malloc(bad)
    if bad is not None:
        with pytest.raises(TypeError, match="capacity must be an int"):
            CachingAllocator(bad)


@pytest.mark.parametrize("bad", [0, 1, 513, -512])
def test_segment_size_wants_a_rounded_size(bad: int) -> None:
    with pytest.raises(ValueError, match="expected a rounded size|must not be negative"):
        segment_size(bad)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),
        (1536, "1.50 KiB"),
        (2 * MIB, "2.00 MiB"),
        (3 * 2**30, "3.00 GiB"),
    ],
)
def test_format_size(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


# The rules, by hand


def test_small_blocks_share_a_segment_and_the_remainder_of_512_bytes_is_split_off() -> None:
    allocator = CachingAllocator()
    allocator.malloc(MIB)
    allocator.malloc(MIB - 512)
    assert allocator.reserved == 2 * MIB
    (segment,) = allocator.snapshot()
    assert [b["size"] for b in segment["blocks"]] == [MIB, MIB - 512, 512]
    allocator.malloc(1)
    assert (allocator.reserved, allocator.allocated) == (2 * MIB, 2 * MIB)
    allocator.malloc(1)
    assert allocator.reserved == 4 * MIB


@pytest.mark.parametrize(("rest", "split"), [(MIB, False), (MIB + 512, True)])
def test_a_large_block_is_split_when_more_than_1_mib_remains(rest: int, split: bool) -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(20 * MIB))
    block = allocator.malloc(20 * MIB - rest)
    assert block.size == (20 * MIB - rest if split else 20 * MIB)
    assert allocator.allocated == block.size
    assert allocator.inactive_split == (rest if split else 0)


def test_best_fit_takes_the_smallest_and_ties_go_to_the_lowest_address() -> None:
    allocator = CachingAllocator()
    sizes = {"a": 30, "b": 14, "c": 22, "d": 14}
    blocks = {name: allocator.malloc(n * MIB, name) for name, n in sizes.items()}
    for block in blocks.values():
        allocator.free(block)
    assert allocator.malloc(13 * MIB).address == blocks["b"].address
    assert allocator.malloc(13 * MIB).address == blocks["d"].address
    assert allocator.malloc(13 * MIB).address == blocks["c"].address
    assert allocator.malloc(13 * MIB).address == blocks["a"].address
    # 17 MiB of "a" remain, 9 of "c"
    assert allocator.malloc(8 * MIB).address == blocks["c"].address + 13 * MIB
    assert allocator.reserved == 80 * MIB


def test_a_small_request_never_takes_a_free_large_block() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(20 * MIB))
    allocator.malloc(512)
    assert [s["segment_type"] for s in allocator.snapshot()] == ["large", "small"]
    assert allocator.reserved == 22 * MIB


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_free_neighbours_merge_in_every_order(order: str) -> None:
    allocator = CachingAllocator()
    blocks = {name: allocator.malloc(5 * MIB, name) for name in "abc"}
    for name in order:
        allocator.free(blocks[name])
    (segment,) = allocator.segments
    assert [block.size for block in segment.blocks] == [20 * MIB]
    assert allocator.malloc(20 * MIB).size == 20 * MIB
    assert allocator.reserved == 20 * MIB


def test_empty_cache_cannot_release_a_segment_in_use() -> None:
    allocator = CachingAllocator()
    a, b = allocator.malloc(5 * MIB), allocator.malloc(5 * MIB)
    c = allocator.malloc(30 * MIB)
    allocator.free(a)
    allocator.free(c)
    assert allocator.inactive_split == 15 * MIB
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (5 * MIB, 20 * MIB)
    assert (allocator.max_allocated, allocator.max_reserved) == (40 * MIB, 50 * MIB)
    allocator.free(b)
    allocator.empty_cache()
    assert allocator.reserved == allocator.allocated == 0
    allocator.reset_peak()
    assert allocator.max_reserved == allocator.max_allocated == 0


def test_the_cache_is_released_and_tried_again_before_the_error() -> None:
    allocator = CachingAllocator(capacity=40 * MIB)
    allocator.free(allocator.malloc(12 * MIB))
    kept = allocator.malloc(20 * MIB)
    assert allocator.reserved == 32 * MIB
    allocator.malloc(20 * MIB)
    assert (allocator.reserved, allocator.counters.retries, allocator.counters.ooms) == (
        40 * MIB,
        1,
        0,
    )
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        allocator.malloc(3 * MIB)
    assert str(caught.value) == (
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 40.00 MiB "
        "of which 0 bytes is free. Of the allocated memory 40.00 MiB is allocated by PyTorch, and "
        "0 bytes is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
        "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    assert (allocator.counters.retries, allocator.counters.ooms) == (2, 1)
    allocator.free(kept)
    assert allocator.malloc(3 * MIB).size == 3 * MIB


def test_an_exabyte_is_refused_at_once() -> None:
    with pytest.raises(OutOfMemoryError, match="more than 1EB"):
        CachingAllocator().malloc(2**60)
    assert CachingAllocator().malloc(2**60 - 512).size == 2**60


def test_fragmentation_ends_in_an_error_although_enough_is_free() -> None:
    steps = replay(fragmentation_trace(), FRAGMENTATION_CAPACITY)
    failed = [step for step in steps if step.error]
    assert [step.operation for step in failed] == [("malloc", "big", 12 * MIB)]
    counters = failed[0].counters
    assert counters.reserved - counters.allocated == counters.inactive_split == 20 * MIB
    assert steps[-1].error is None
    assert steps[-1].counters.reserved == FRAGMENTATION_CAPACITY


# max_split_size_mb, by hand from get_free_block, should_split, release_available_cached_blocks


def test_max_split_size_keeps_oversize_blocks_whole() -> None:
    plain, limited = CachingAllocator(), CachingAllocator(max_split_size_mb=32)
    for allocator in (plain, limited):
        allocator.free(allocator.malloc(64 * MIB))
        allocator.malloc(24 * MIB)
    assert (plain.reserved, limited.reserved) == (64 * MIB, 88 * MIB)
    # an oversize request takes an oversize block that is less than 20 MiB too large
    assert limited.malloc(44 * MIB + 512).size == 64 * MIB
    assert limited.reserved == 88 * MIB
    limited = CachingAllocator(max_split_size_mb=32)
    limited.free(limited.malloc(64 * MIB))
    assert limited.malloc(44 * MIB).size == 44 * MIB
    assert limited.reserved == 108 * MIB


def test_max_split_size_releases_just_one_block_that_is_large_enough() -> None:
    allocator = CachingAllocator(capacity=200 * MIB, max_split_size_mb=32)
    for block in [allocator.malloc(n * MIB) for n in (40, 100, 60)]:
        allocator.free(block)
    allocator.malloc(20 * MIB)
    assert [s.size // MIB for s in allocator.segments] == [100, 60, 20]
    assert allocator.counters.retries == 0


def test_max_split_size_releases_the_largest_first_when_one_is_not_enough() -> None:
    allocator = CachingAllocator(capacity=150 * MIB, max_split_size_mb=32)
    for block in [allocator.malloc(n * MIB) for n in (40, 50, 60)]:
        allocator.free(block)
    allocator.malloc(90 * MIB)
    assert [s.size // MIB for s in allocator.segments] == [40, 90]
    assert allocator.counters.retries == 0


@pytest.mark.parametrize(
    ("bad", "error"), [(19, ValueError), (-1, ValueError), (20.0, TypeError), (True, TypeError)]
)
def test_max_split_size_is_at_least_20(bad: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_split_size_mb"):
        CachingAllocator(max_split_size_mb=bad)


# Mistakes


def test_double_free_and_foreign_blocks_are_refused() -> None:
    allocator, other = CachingAllocator(), CachingAllocator()
    a = allocator.malloc(MIB, "a")
    b = allocator.malloc(MIB)
    with pytest.raises(ValueError, match="block 'a' was handed out by another allocator"):
        other.free(a)
    allocator.free(a)
    allocator.malloc(MIB, "a new")  # in the same place
    for block, message in ((a, "block 'a' is freed already: double free"),):
        with pytest.raises(ValueError, match=message):
            allocator.free(block)
    allocator.free(b)
    with pytest.raises(ValueError, match="the block of 1048576 bytes is freed already"):
        allocator.free(b)
    with pytest.raises(TypeError, match="free expects the Block that malloc returned, got 'a'"):
        allocator.free("a")
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        allocator.malloc(-1)
    with pytest.raises(ValueError, match="capacity must not be negative"):
        CachingAllocator(-1)
    assert allocator.allocated == MIB


# Random operations


def check_state(allocator: CachingAllocator) -> None:
    counters = allocator.counters
    segments = allocator.snapshot()
    blocks = [(s, b) for s in segments for b in s["blocks"]]
    held = [b for _, b in blocks if b["state"] == "active_allocated"]
    for segment in segments:
        at = segment["address"]
        states = []
        for block in segment["blocks"]:
            assert block["address"] == at
            assert block["size"] > 0
            assert block["size"] % 512 == 0
            at += block["size"]
            states.append(block["state"])
        assert at == segment["address"] + segment["total_size"]
        assert ("inactive", "inactive") not in zip(states, states[1:], strict=False)
    ends = [s["address"] + s["total_size"] for s in segments]
    assert all(end <= s["address"] for end, s in zip(ends, segments[1:], strict=False))
    for segment, block in blocks:
        if block["state"] == "active_allocated":
            assert 0 < block["requested_size"] <= block["size"]
            assert (block["requested_size"] <= MIB) == (segment["segment_type"] == "small")
        else:
            assert (block["requested_size"], block["name"]) == (0, None)
    assert {s["total_size"] for s in segments if s["segment_type"] == "small"} <= {2 * MIB}
    assert counters.allocated == sum(b["size"] for b in held)
    assert counters.allocated == sum(s["allocated_size"] for s in segments)
    assert counters.requested == sum(b["requested_size"] for b in held)
    assert counters.requested == sum(s["requested_size"] for s in segments)
    assert counters.reserved == sum(s["total_size"] for s in segments)
    assert counters.requested <= counters.allocated <= counters.reserved
    assert counters.allocated <= counters.max_allocated <= counters.max_reserved
    assert counters.reserved <= counters.max_reserved
    assert counters.segments == len(segments)
    if allocator.capacity is not None:
        assert counters.max_reserved <= allocator.capacity


class Allocator(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.allocator = CachingAllocator(capacity=96 * MIB)
        self.held: list[mc.Block] = []
        self.peaks = (0, 0)

    @rule(nbytes=SIZES)
    def malloc(self, nbytes: int) -> None:
        before, size = self.allocator.counters, round_size(nbytes)
        fits = [
            block.size
            for segment in self.allocator.segments
            for block in segment.blocks
            if segment.small == (size <= MIB) and not block.allocated and block.size >= size
        ]
        try:
            block = self.allocator.malloc(nbytes)
        except OutOfMemoryError:
            assert not fits
            assert not any(segment.releasable for segment in self.allocator.segments)
            assert self.allocator.reserved + segment_size(size) > 96 * MIB
            assert self.allocator.allocated == before.allocated
            assert self.allocator.counters.ooms == before.ooms + 1
            return
        self.held.append(block)
        after = self.allocator.counters
        if nbytes == 0:
            assert after == before
            return
        assert after.allocated == before.allocated + block.size
        if fits:
            assert after.reserved == before.reserved
            assert size <= block.size <= min(fits)
        elif after.retries == before.retries:
            assert after.reserved == before.reserved + segment_size(size)

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0))
    def free(self, index: int) -> None:
        block = self.held.pop(index % len(self.held))
        before = self.allocator.counters
        self.allocator.free(block)
        assert self.allocator.reserved == before.reserved
        assert self.allocator.allocated == before.allocated - block.size
        with pytest.raises(ValueError, match="double free"):
            self.allocator.free(block)

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0))
    def free_and_allocate_again(self, index: int) -> None:
        block = self.held.pop(index % len(self.held))
        reserved = self.allocator.reserved
        self.allocator.free(block)
        self.held.append(self.allocator.malloc(block.requested))
        assert self.allocator.reserved == reserved

    @rule()
    def empty_cache(self) -> None:
        used = [s for s in self.allocator.segments if any(b.allocated for b in s.blocks)]
        self.allocator.empty_cache()
        assert self.allocator.segments == used
        free = self.allocator.reserved - self.allocator.allocated
        assert self.allocator.inactive_split == free

    @invariant()
    def sound(self) -> None:
        check_state(self.allocator)
        assert self.allocator.allocated == sum(block.size for block in self.held)
        peaks = self.allocator.max_allocated, self.allocator.max_reserved
        assert all(new >= old for new, old in zip(peaks, self.peaks, strict=True))
        self.peaks = peaks


TestAllocator = Allocator.TestCase
TestAllocator.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.integers(0, 2**32), st.sampled_from([None, 400 * MIB]), st.sampled_from([None, 20, 64]))
@settings(max_examples=15, deadline=None)
def test_random_traces_stay_sound(seed: int, capacity: int | None, split: int | None) -> None:
    allocator = CachingAllocator(capacity, max_split_size_mb=split)
    held = {}
    for action, *rest in random_trace(seed, 120):
        if action == "malloc":
            try:
                held[rest[0]] = allocator.malloc(rest[1], rest[0])
            except OutOfMemoryError:
                assert capacity is not None
        elif action == "free":
            if rest[0] in held:
                allocator.free(held.pop(rest[0]))
        else:
            allocator.empty_cache()
        check_state(allocator)


# Traces


def test_the_notes_experiment() -> None:
    trace = notes_trace()
    assert trace[0] == ("malloc", "weight", 10 * 3 * 3 * 3 * 4)
    assert trace[1] == ("malloc", "bias", 10 * 4)
    sizes = {name: nbytes for action, name, nbytes in (t for t in trace if t[0] == "malloc")}
    assert sizes["weight"] + sizes["bias"] == 1120
    assert sizes["images 1"] == sizes["images 3"] == torch.ones(1, 3, 321, 321).nbytes
    assert sizes["images 2"] == 3 * sizes["images 1"]
    assert sizes["output 1"] == 10 * 319 * 319 * 4
    assert sizes["output 2"] == 3 * sizes["output 1"]
    steps = replay(trace)
    # two small blocks in 2 MiB; every batch fits into one segment of 20 MiB, whatever its size
    assert [s.counters.reserved // MIB for s in steps] == [2, 2, *[22] * 12, 2]
    assert steps[-1].counters.allocated == 1536 + 512
    assert steps[-1].counters.max_allocated == 2048 + 3709952 + 12211712
    assert steps[0].events == (
        ("segment_alloc", 2 * MIB),
        ("split", 2 * MIB - 1536),
        ("alloc", 1536),
    )
    again = replay(notes_trace(repeats=5))
    assert len(again) == 2 + 3 * 5 * 4 + 1
    assert again[-1].counters == steps[-1].counters


def test_a_failed_malloc_stands_for_nothing() -> None:
    steps = replay([("malloc", "x", 30 * MIB), ("free", "x"), ("malloc", "x", 5)], 20 * MIB)
    assert [step.error is None for step in steps] == [False, True, True]
    assert [step.address for step in steps] == [None, None, 0]
    assert steps[1].events == ()


def test_reset_peak_in_a_trace() -> None:
    steps = replay([("malloc", "x", 5 * MIB), ("free", "x"), ("reset_peak",)])
    assert [s.counters.max_allocated // MIB for s in steps] == [5, 5, 0]
    assert steps[-1].counters.max_reserved == 20 * MIB


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ([("malloc", "x")], r"step 0: expected \('malloc', name, nbytes\)"),
        ([("malloc", "x", 1.5)], "got \\('malloc', 'x', 1.5\\)"),
        (["empty_cache", ("free",)], "got \\('free',\\)"),
        ([("empty_cache",), ("realloc", "x", 1)], "step 1: expected"),
        ([7], "got 7"),
        ([("malloc", "x", 1), ("malloc", "x", 1)], "step 1: 'x' is allocated already"),
        ([("malloc", "x", 1), ("free", "y")], "step 1: 'y' is not allocated, cannot free it"),
    ],
)
def test_malformed_traces_name_the_step(trace: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_trace(trace)
    with pytest.raises(ValueError, match=message):
        replay(trace)


def test_replay_wants_one_address_per_step() -> None:
    with pytest.raises(ValueError, match="each of 1 steps, got 2"):
        replay([("empty_cache",)], addresses=[None, None])


def test_addresses_break_ties_as_the_device_did() -> None:
    trace = [
        ("malloc", "a", 12 * MIB),
        ("malloc", "b", 12 * MIB),
        ("free", "a"),
        ("free", "b"),
        ("malloc", "c", 12 * MIB),
    ]
    assert replay(trace)[-1].address == 0
    downwards = replay(trace, addresses=[64 * MIB, 0, None, None, 0])
    assert [step.address for step in downwards] == [64 * MIB, 0, None, None, 0]


def test_random_trace_is_reproducible_and_mixed() -> None:
    trace = random_trace(0)
    assert trace == random_trace(0)
    assert trace != random_trace(1)
    assert check_trace(trace) == trace
    assert len(trace) == 200
    assert {operation[0] for operation in trace} == {"malloc", "free", "empty_cache"}
    steps = replay(trace)
    assert max(step.counters.allocated for step in steps) < 2**30
    seen = {action for step in steps for action, _ in step.events}
    assert seen == {"segment_alloc", "segment_free", "alloc", "split", "free", "merge"}
    assert random_trace(0, 0) == []
    with pytest.raises(ValueError, match="must not be negative"):
        random_trace(0, -1)


# A real device, and its stand-in: the same calls of torch.cuda, answered by the model


class FakeCuda:
    """`torch.empty(..., device="cuda")` and the calls of `torch.cuda` that the trace makes."""

    base = 0x7F5A40000000
    total = 139 * 2**30 + 12345

    def __init__(self, monkeypatch: pytest.MonkeyPatch, max_split_size_mb: int | None = None):
        self.model = CachingAllocator(max_split_size_mb=max_split_size_mb)
        self.ready = False
        real_empty = torch.empty
        fake = self

        class Tensor:
            def __init__(self, nbytes: int) -> None:
                self.block = fake.model.malloc(nbytes)

            def data_ptr(self) -> int:
                return fake.base + self.block.address if self.block.size else 0

            def __del__(self) -> None:
                if hasattr(self, "block"):
                    fake.model.free(self.block)

        def empty(*size: int, dtype: object = None, device: object = None) -> object:
            if device != "cuda":
                return real_empty(*size, dtype=dtype, device=device)
            assert dtype == torch.uint8
            return Tensor(*size)

        def stats() -> dict[str, int]:
            assert self.ready, "memory_stats is empty before CUDA is initialised"
            counters = self.model.counters
            return {key: getattr(counters, name) for name, key in mc.STATS.items()}

        def fraction(value: float) -> None:
            assert 0 <= value <= 1
            self.model.capacity = int(value * self.total)

        monkeypatch.setattr(torch, "empty", empty)
        cuda = {
            "is_available": lambda: True,
            "synchronize": lambda: setattr(self, "ready", True),
            "memory_stats": stats,
            "empty_cache": lambda: self.model.empty_cache(),
            "reset_peak_memory_stats": lambda: self.model.reset_peak(),
            "set_per_process_memory_fraction": fraction,
            "mem_get_info": lambda: (self.total - 10**8 - self.model.reserved, self.total),
        }
        for name, function in cuda.items():
            monkeypatch.setattr(torch.cuda, name, function)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    class InProcess:
        """`_Device` without a second process; what it answers went through JSON."""

        def __init__(self, max_split_size_mb: int | None = None) -> None:
            FakeCuda(monkeypatch, max_split_size_mb)
            self.held: dict = {}

        def __enter__(self) -> InProcess:
            return self

        def __exit__(self, *_: object) -> None:
            self.held.clear()

        def do(self, *operation: object) -> dict:
            sent = json.loads(json.dumps(operation))
            return json.loads(json.dumps(mc._perform(sent, self.held)))

    monkeypatch.setattr(mc, "_Device", InProcess)


@pytest.mark.usefixtures("fake")
def test_what_is_recorded_can_be_compared() -> None:
    values = json.loads(json.dumps(mc.record_allocator_trace()))
    assert [entry["name"] for entry in values] == [
        "notes",
        "random",
        "fragmentation",
        "max_split_size",
    ]
    assert compare_recorded(values) == {entry["name"]: [] for entry in values}
    failures = {e["name"]: sum(s["error"] is not None for s in e["steps"]) for e in values}
    assert failures["fragmentation"] == 1
    assert failures["max_split_size"] > 0
    assert values[3]["steps"][-1]["retries"] >= failures["max_split_size"]

    # whatever is changed in a recording is found and named
    for key in [*mc.STATS, "address", "error"]:
        step = values[0]["steps"][3]
        original = step[key]
        step[key] = "failed" if key == "error" else original + 512
        (difference,) = compare_recorded(values[:1])["notes"]
        assert difference.startswith("step 3 malloc output 1 4070440: ")
        assert ("failed" if key == "error" else key) in difference
        step[key] = original
    del values[0]["steps"][-1]
    steps = replay(values[0]["trace"])
    assert compare(steps, values[0]["steps"])[0] == "the model has 63 steps, the device 62"


@pytest.mark.usefixtures("fake")
def test_live_addresses_are_relative_to_the_lowest() -> None:
    trace = [("malloc", "a", 0), ("malloc", "b", 1), ("malloc", "c", 12 * MIB), ("free", "b")]
    steps = live_trace(trace)
    assert [step["address"] for step in steps] == [None, 0, 2 * MIB, None]


def test_the_reader_s_own_settings_do_not_reach_the_device_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    class Popen:
        def __init__(self, command: list[str], env: dict[str, str], **_: object) -> None:
            seen.append(env)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(mc.subprocess, "Popen", Popen)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    mc._Device()
    mc._Device(max_split_size_mb=32)
    for env in seen:
        assert not {"PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"} & set(env)
        assert env["CUDA_VISIBLE_DEVICES"] == "1"
    conf = [env.get("PYTORCH_CUDA_ALLOC_CONF") for env in seen]
    assert conf == [None, "max_split_size_mb:32"]


@pytest.mark.usefixtures("fake")
def test_device_memory_is_seen_from_outside() -> None:
    rows = mc.record_device_memory()
    assert [row["after"] for row in rows] == [
        "CUDA context",
        "malloc 256 MiB",
        "free",
        "empty_cache",
    ]
    assert [row["device"] // MIB for row in rows] == [0, 256, 256, 0]
    assert [row["reserved"] // MIB for row in rows] == [0, 256, 256, 0]
    assert [row["allocated"] // MIB for row in rows] == [0, 256, 0, 0]


@pytest.mark.usefixtures("fake")
def test_live_trace_checks_its_arguments() -> None:
    with pytest.raises(ValueError, match="multiple of 2 MiB"):
        live_trace([("empty_cache",)], capacity=MIB)
    with pytest.raises(ValueError, match="step 0"):
        live_trace([("malloc", "x")])
    with pytest.raises(ValueError, match="unknown operation"):
        mc._perform(("reboot",), {})


def test_a_device_that_does_not_start_clean_is_an_error(
    fake: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform = mc._perform
    monkeypatch.setattr(mc, "_perform", lambda *a: {**perform(*a), "reserved": 2 * MIB})
    with pytest.raises(RuntimeError, match="does not start clean"):
        live_trace([("empty_cache",)])


def test_serve_answers_each_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeCuda(monkeypatch)
    lines = [["counters"], ["malloc", "x", 1000], ["free", "x"]]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(x) + "\n" for x in lines)))
    mc._serve()
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [a["allocated"] for a in answers] == [0, 1024, 0]
    assert answers[1]["address"] == FakeCuda.base


def test_stats_are_names_that_torch_documents() -> None:
    documented = torch.cuda.memory_stats.__doc__
    for key in mc.STATS.values():
        family = key.split(".")[0]
        assert f'"{family}' in documented
    assert set(mc.STATS) == set(mc.Counters.__dataclass_fields__)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_the_live_trace_says_so() -> None:
    with pytest.raises(RuntimeError, match="needs a CUDA device and this machine has none"):
        live_trace(notes_trace())
    for measure in mc.recordings().values():
        with pytest.raises(RuntimeError, match="needs a CUDA device"):
            measure()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_process_that_dies_on_the_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match=r"process on the GPU ended at \('counters',\): \w+"):
        live_trace([("empty_cache",)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: nothing to compare with")
def test_the_model_matches_the_gpu_byte_for_byte() -> None:
    differences = compare_recorded(mc.record_allocator_trace())
    assert differences == {name: [] for name in differences}


def test_recordings_are_named() -> None:
    assert set(mc.recordings()) == {"allocator_trace", "device_memory"}


# Who keeps memory alive


@given(
    st.lists(st.integers(0, 6), max_size=4),
    st.sampled_from([torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64]),
)
def test_tensor_bytes_is_what_a_tensor_takes(shape: list[int], dtype: torch.dtype) -> None:
    real = torch.empty(shape, dtype=dtype)
    assert tensor_bytes(shape, dtype) == real.numel() * real.element_size()


def test_tensor_bytes_allocates_nothing() -> None:
    assert tensor_bytes((2**20, 2**20)) == 2**42


def test_watch_sees_memory_behind_a_deleted_name() -> None:
    x = torch.randn(64, requires_grad=True)
    h = torch.sigmoid(x)  # saves its own output for backward
    alive = watch(h)
    view = h[:2]
    y = h.sum()
    del h
    assert alive()
    y.backward()
    assert alive()  # the view shares the storage
    del y, view
    assert not alive()


def test_saved_for_backward_counts_distinct_storages() -> None:
    model, x = mc._small_model(), torch.randn(4, 8)
    fixed = [*model.parameters(), x]
    with saved_for_backward(but=fixed) as saved:
        loss = model(x).square().mean()
    # tanh saves its result, the second linear the same; square saves its input
    assert saved == Saved(tensors=3, bytes=4 * 16 * 4 + 4 * 1 * 4)
    loss.backward()
    with saved_for_backward(but=fixed) as saved, torch.no_grad():
        model(x).square().mean()
    assert saved == Saved(0, 0)
    with saved_for_backward() as saved:
        model(x)
    assert saved.bytes == x.nbytes + 4 * 16 * 4 + model[2].weight.nbytes


@pytest.mark.parametrize(
    ("item", "backward", "alive"),
    [(False, False, 100), (False, True, 0), (True, False, 0), (True, True, 0)],
)
def test_the_bomb_is_validation_without_item(item: bool, backward: bool, alive: int) -> None:
    assert activations_alive(100, item=item, backward=backward) == alive


def test_activations_alive_edges() -> None:
    assert activations_alive(0, item=False, backward=False) == 0
    with pytest.raises(ValueError, match="must not be negative"):
        activations_alive(-1, item=False, backward=False)


# Exercises


def right_block(nbytes: int) -> int:
    return (nbytes + 511) // 512 * 512


def right_segment(nbytes: int) -> int:
    block = right_block(nbytes)
    if block <= 2**20:
        return 2 * 2**20
    if block < 10 * 2**20:
        return 20 * 2**20
    return (block + 2**21 - 1) // 2**21 * 2**21


def right_mean(model: torch.nn.Module, batches: object, loss_fn: object) -> float:
    total = count = 0
    with torch.no_grad():
        for x, y in batches:
            total += loss_fn(model(x), y).item()
            count += 1
    return total / count


def test_right_answers_pass() -> None:
    assert check_block(right_block).passed
    assert check_segment(right_segment).passed
    assert check_mean_loss(right_mean).passed

    def item_is_enough(model, batches, loss_fn):
        losses = [loss_fn(model(x), y).item() for x, y in batches]
        return sum(losses) / len(losses)

    def detached(model, batches, loss_fn):
        losses = [loss_fn(model(x), y).detach() for x, y in batches]
        return float(torch.stack(losses).mean())

    assert check_mean_loss(item_is_enough).passed
    assert check_mean_loss(detached).passed


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda nbytes: ..., "expected a whole number of bytes"),
        (lambda nbytes: None, "for 1 bytes your function returned None"),
        (lambda nbytes: nbytes, "a block is a multiple of 512 bytes"),
        (lambda nbytes: nbytes // 512 * 512, "the tensor does not fit"),
        (lambda nbytes: (nbytes // 512 + 1) * 512, "needs no rounding"),
        (lambda nbytes: -(-nbytes // 1024) * 1024, "not further"),
        (lambda nbytes: max(512, nbytes), "a block is a multiple of 512"),
        (lambda nbytes: right_block(nbytes) / 1, "expected a whole number of bytes"),
        (lambda nbytes: nbytes + missing, "NameError"),  # noqa: F821
    ],
)
def test_wrong_blocks_fail(answer: object, message: str) -> None:
    result = check_block(answer)
    assert not result.passed
    assert message in result.message


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda nbytes: None, "for 1 bytes your function returned None"),
        (right_block, "from a segment of 2 MiB"),
        (lambda n: 2 * MIB if n < MIB else right_segment(n + 1), "from a segment of 2 MiB"),
        (lambda n: -(-n // (2 * MIB)) * 2 * MIB, "from a segment of 20 MiB"),
        (lambda n: 20 * MIB if 2 * MIB < n < 10 * MIB else right_segment(n), "rounded up to 512"),
        (lambda n: right_segment(n) if n < 10 * MIB else right_block(n), "multiple of 2 MiB"),
        (lambda n: right_segment(n) if n < 10 * MIB else 20 * MIB, "multiple of 2 MiB"),
    ],
)
def test_wrong_segments_fail(answer: object, message: str) -> None:
    result = check_segment(answer)
    assert not result.passed
    assert message in result.message


def starter(model, batches, loss_fn):
    total = ...  # noqa: F841


def keeps_the_sum(model, batches, loss_fn):
    total, count = 0.0, 0
    for x, y in batches:
        total += loss_fn(model(x), y)
        count += 1
    return total / count


def keeps_the_sum_until_the_end(model, batches, loss_fn):
    return keeps_the_sum(model, batches, loss_fn).item()


def keeps_a_list(model, batches, loss_fn):
    losses = [loss_fn(model(x), y) for x, y in list(batches)]
    return torch.stack(losses).mean().item()


def forgets_to_divide(model, batches, loss_fn):
    return sum(loss_fn(model(x), y).item() for x, y in batches)


def divides_by_samples(model, batches, loss_fn):
    total, count = 0.0, 0
    for x, y in batches:
        total += loss_fn(model(x), y).item()
        count += len(x)
    return total / count


def last_only(model, batches, loss_fn):
    for x, y in batches:
        loss = loss_fn(model(x), y).item()
    return loss


def runs_twice(model, batches, loss_fn):
    losses = []
    for x, y in batches:
        model(x)
        losses.append(loss_fn(model(x), y).item())
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (starter, "returned None"),
        (keeps_the_sum, "returned a tensor, and its graph with it"),
        (keeps_the_sum_until_the_end, "activations of 2 earlier batches are still in memory"),
        (keeps_a_list, "earlier batches are still in memory"),
        (forgets_to_divide, "sum of the losses: divide by their number"),
        (divides_by_samples, "the mean loss is"),
        (last_only, "the mean loss is"),
        (runs_twice, "there are 12 batches, your function ran the model on 24"),
        (lambda m, b, f: right_mean(m, list(b)[:-1] or [1], f), "your code raised"),
        (lambda m, b, f: int(right_mean(m, b, f)), "expected a float, got int"),
    ],
)
def test_wrong_means_fail(answer: object, message: str) -> None:
    result = check_mean_loss(answer)
    assert not result.passed
    assert message in result.message


# The rest


def test_the_explorer_carries_the_replay() -> None:
    explorer = allocator_explorer(fragmentation_trace(), FRAGMENTATION_CAPACITY, lang="zh")
    data = json.loads(explorer.data)
    steps = replay(fragmentation_trace(), FRAGMENTATION_CAPACITY)
    assert data["capacity"] == "40.00 MiB"
    assert len(data["steps"]) == len(steps)
    for shown, step in zip(data["steps"], steps, strict=True):
        counters = step.counters
        assert [value for value, _ in shown["now"]] == [
            counters.allocated,
            counters.reserved,
            counters.max_allocated,
            counters.max_reserved,
        ]
        assert sum(s["size"] for s in shown["segments"]) == counters.reserved
        held = sum(b[0] for s in shown["segments"] for b in s["blocks"] if b[2])
        assert held == counters.allocated
        assert ("oom" in shown["did"]) == (step.error is not None)
    assert "22.00 MiB are allocated and 40.00 MiB reserved" in explorer.fallback
    with pytest.raises(ValueError, match="at least one operation"):
        allocator_explorer([])


def test_the_import_brings_no_heavy_module() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import helpers.memory_caching; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "torchvision", "IPython", "sklearn"} & set(run.stdout.split())
