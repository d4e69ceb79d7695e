"""Test the allocator model against values from PyTorch's source code."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from helpers.allocator import (
    MIB,
    Block,
    CachingAllocator,
    Counters,
    OutOfMemoryError,
    check_trace,
    format_size,
    random_trace,
    replay,
    round_size,
    segment_size,
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
def test_tensor_rounds_to_its_block_and_segment(nbytes: int, block: int, segment: int) -> None:
    assert round_size(nbytes) == block
    assert segment_size(block) == segment
    allocator = CachingAllocator()
    got = allocator.malloc(nbytes)
    # sizes such as 10 MiB - 1 get a larger block: a rest of up to 1 MiB is not split off
    rest = segment - block
    split = rest >= 512 if block <= MIB else rest > MIB
    assert got.size == allocator.allocated == (block if split else segment)
    assert (got.requested, allocator.counters.requested) == (nbytes, nbytes)
    assert (allocator.reserved, len(allocator.segments)) == (segment, 1)


def test_empty_tensor_takes_no_memory() -> None:
    allocator = CachingAllocator(capacity=0)
    block = allocator.malloc(0)
    assert allocator.counters == Counters()
    allocator.free(block)
    assert round_size(0) == 512  # as in the source; an empty tensor never calls it


@given(st.integers(0, 2**50))
def test_round_size_returns_the_least_multiple_that_fits(nbytes: int) -> None:
    size = round_size(nbytes)
    assert size % 512 == 0
    assert size >= max(nbytes, 512)
    assert size - 512 < max(nbytes, 1)


@pytest.mark.parametrize("bad", [1.0, "1", None, True])
def test_sizes_must_be_ints(bad: object) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        round_size(bad)
    with pytest.raises(TypeError, match="must be an int"):
        CachingAllocator().malloc(bad)
    if bad is not None:
        with pytest.raises(TypeError, match="capacity must be an int"):
            CachingAllocator(bad)


@pytest.mark.parametrize("bad", [0, 1, 513, -512])
def test_segment_size_rejects_unrounded_sizes(bad: int) -> None:
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
def test_format_size_uses_binary_units(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


# The rules, by hand


def test_small_blocks_share_a_segment() -> None:
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
def test_large_block_is_split_if_more_than_1_mib_remains(rest: int, split: bool) -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(20 * MIB))
    block = allocator.malloc(20 * MIB - rest)
    assert block.size == (20 * MIB - rest if split else 20 * MIB)
    assert allocator.allocated == block.size
    assert allocator.counters.inactive_split == (rest if split else 0)


def test_best_fit_is_the_smallest_block_at_the_lowest_address() -> None:
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


def test_small_request_ignores_free_large_blocks() -> None:
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


def test_empty_cache_keeps_a_segment_in_use() -> None:
    allocator = CachingAllocator()
    a, b = allocator.malloc(5 * MIB), allocator.malloc(5 * MIB)
    c = allocator.malloc(30 * MIB)
    allocator.free(a)
    allocator.free(c)
    assert allocator.counters.inactive_split == 15 * MIB
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (5 * MIB, 20 * MIB)
    assert (allocator.counters.max_allocated, allocator.counters.max_reserved) == (
        40 * MIB,
        50 * MIB,
    )
    allocator.free(b)
    allocator.empty_cache()
    assert allocator.reserved == allocator.allocated == 0
    allocator.reset_peak()
    assert allocator.counters.max_reserved == allocator.counters.max_allocated == 0


def test_malloc_releases_the_cache_and_retries_before_the_error() -> None:
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


def test_counters_print_allocated_and_reserved() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(30 * MIB)
    allocator.malloc(5 * MIB)
    allocator.free(block)
    allocator.empty_cache()
    assert str(allocator.counters) == (
        "allocated 5.00 MiB (peak 35.00 MiB), reserved 20.00 MiB (peak 50.00 MiB)"
    )


def test_request_of_1_exabyte_raises() -> None:
    with pytest.raises(OutOfMemoryError, match="more than 1EB"):
        CachingAllocator().malloc(2**60)
    assert CachingAllocator().malloc(2**60 - 512).size == 2**60


# max_split_size_mb, by hand from get_free_block, should_split, release_available_cached_blocks


def test_max_split_size_keeps_oversize_blocks_whole() -> None:
    plain, limited = CachingAllocator(), CachingAllocator(max_split_size_mb=32)
    for allocator in (plain, limited):
        allocator.free(allocator.malloc(64 * MIB))
        allocator.malloc(24 * MIB)
    assert (plain.reserved, limited.reserved) == (64 * MIB, 88 * MIB)
    # an oversize request reuses an oversize block that is less than 20 MiB larger
    assert limited.malloc(44 * MIB + 512).size == 64 * MIB
    assert limited.reserved == 88 * MIB
    limited = CachingAllocator(max_split_size_mb=32)
    limited.free(limited.malloc(64 * MIB))
    assert limited.malloc(44 * MIB).size == 44 * MIB
    assert limited.reserved == 108 * MIB


def test_max_split_size_releases_one_sufficient_block() -> None:
    allocator = CachingAllocator(capacity=200 * MIB, max_split_size_mb=32)
    for block in [allocator.malloc(n * MIB) for n in (40, 100, 60)]:
        allocator.free(block)
    allocator.malloc(20 * MIB)
    assert [s.size // MIB for s in allocator.segments] == [100, 60, 20]
    assert allocator.counters.retries == 0


def test_max_split_size_releases_the_largest_blocks_first() -> None:
    allocator = CachingAllocator(capacity=150 * MIB, max_split_size_mb=32)
    for block in [allocator.malloc(n * MIB) for n in (40, 50, 60)]:
        allocator.free(block)
    allocator.malloc(90 * MIB)
    assert [s.size // MIB for s in allocator.segments] == [40, 90]
    assert allocator.counters.retries == 0


@pytest.mark.parametrize(
    ("bad", "error"), [(19, ValueError), (-1, ValueError), (20.0, TypeError), (True, TypeError)]
)
def test_max_split_size_below_20_raises(bad: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_split_size_mb"):
        CachingAllocator(max_split_size_mb=bad)


# Mistakes


def test_free_rejects_freed_and_foreign_blocks() -> None:
    allocator, other = CachingAllocator(), CachingAllocator()
    a = allocator.malloc(MIB, "a")
    b = allocator.malloc(MIB)
    with pytest.raises(ValueError, match="block 'a' was handed out by another allocator"):
        other.free(a)
    allocator.free(a)
    allocator.malloc(MIB, "a new")  # at the same address
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
        self.held: list[Block] = []
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
        assert self.allocator.counters.inactive_split == free

    @invariant()
    def sound(self) -> None:
        check_state(self.allocator)
        assert self.allocator.allocated == sum(block.size for block in self.held)
        peaks = self.allocator.counters.max_allocated, self.allocator.counters.max_reserved
        assert all(new >= old for new, old in zip(peaks, self.peaks, strict=True))
        self.peaks = peaks


TestAllocator = Allocator.TestCase
TestAllocator.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.integers(0, 2**32), st.sampled_from([None, 400 * MIB]), st.sampled_from([None, 20, 64]))
@settings(max_examples=15, deadline=None)
def test_random_traces_stay_consistent(seed: int, capacity: int | None, split: int | None) -> None:
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


@pytest.mark.parametrize("seed", range(8))
def test_random_trace_has_many_blocks_of_at_most_a_gibibyte(seed: int) -> None:
    held, most, blocks, actions = {}, 0, 0, Counter()
    for action, *rest in random_trace(seed):
        actions[action] += 1
        if action == "malloc":
            held[rest[0]] = rest[1]
        elif action == "free":
            del held[rest[0]]
        most, blocks = max(most, sum(held.values())), max(blocks, len(held))
    assert sum(actions.values()) == 200
    assert actions["malloc"] > actions["free"] > 50 and 1 <= actions["empty_cache"] <= 20
    assert blocks > 10 and 100 * MIB < most <= 1024 * MIB


def test_failed_malloc_creates_no_block() -> None:
    steps = replay([("malloc", "x", 30 * MIB), ("free", "x"), ("malloc", "x", 5)], 20 * MIB)
    assert [step.error is None for step in steps] == [False, True, True]
    assert [step.address for step in steps] == [None, None, 0]
    assert steps[1].events == ()


def test_reset_peak_resets_the_peak_in_a_trace() -> None:
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
def test_malformed_trace_error_names_the_step(trace: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_trace(trace)
    with pytest.raises(ValueError, match=message):
        replay(trace)


def test_replay_requires_one_address_per_step() -> None:
    with pytest.raises(ValueError, match="each of 1 steps, got 2"):
        replay([("empty_cache",)], addresses=[None, None])


def test_addresses_break_ties_between_blocks() -> None:
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


# PyTorch's own tests (test/test_cuda.py) that need no device, rewritten


def test_one_byte_counts_until_it_is_freed() -> None:  # test_memory_allocation
    allocator = CachingAllocator()
    before = allocator.allocated
    block = allocator.malloc(1)
    assert allocator.allocated > before
    allocator.free(block)
    assert allocator.allocated == before


def test_oversized_request_keeps_the_counters() -> None:  # test_out_of_memory
    allocator = CachingAllocator(capacity=80 * 2**30)
    allocator.malloc(4096)
    before = allocator.allocated, allocator.reserved
    with pytest.raises(OutOfMemoryError, match="Tried to allocate more than 1EB memory"):
        allocator.malloc(8_000_000_000 * 2**30)
    with pytest.raises(OutOfMemoryError, match=r"Tried to allocate 1024\.00 GiB"):
        allocator.malloc(2**40)
    assert (allocator.allocated, allocator.reserved) == before


@pytest.mark.parametrize("total", [8 * 2**30, 80 * 2**30 - 12345])
def test_second_half_fits_after_the_first_is_freed(total: int) -> None:  # test_out_of_memory_retry
    allocator = CachingAllocator(capacity=total - 300 * MIB)  # the CUDA context takes the rest
    first = allocator.malloc(total // 2)
    with pytest.raises(OutOfMemoryError, match="Tried to allocate"):
        allocator.malloc(total // 2)
    allocator.free(first)
    assert allocator.malloc(total // 2).size >= total // 2


def test_memory_fraction_limits_the_capacity() -> None:  # test_set_per_process_memory_fraction
    total = 80 * 2**30
    allocator = CachingAllocator(capacity=total // 2)
    allocator.malloc(4096)
    allocator.empty_cache()
    allocator.free(allocator.malloc(int(total * 0.499) - allocator.counters.max_reserved))
    allocator.empty_cache()
    with pytest.raises(OutOfMemoryError, match="out of memory"):
        allocator.malloc(total // 2)


def test_large_tensor_takes_its_exact_size() -> None:
    allocator = CachingAllocator()  # test_allocator_settings, its first case
    allocator.malloc(4 * 21 * 2**20)
    assert allocator.allocated == allocator.counters.requested == 84 * MIB


def test_counters_stay_consistent_in_a_long_run() -> None:  # _test_memory_stats_generator
    allocator = CachingAllocator()
    state = {"allocated": 0, "max_allocated": 0, "max_reserved": 0, "reserved": 0}

    def change(sign: int, empty_cache: bool = False, reset_peak: bool = False) -> None:
        new = allocator.counters
        difference = new.allocated - state["allocated"]
        assert (difference > 0) - (difference < 0) == (sign > 0) - (sign < 0)
        assert new.allocated <= new.max_allocated >= state["max_allocated"]
        assert new.reserved <= new.max_reserved >= state["max_reserved"]
        if empty_cache:
            allocator.empty_cache()
            emptied = allocator.counters
            assert emptied.reserved <= new.reserved
            assert emptied.max_reserved == new.max_reserved
        if reset_peak:
            kept = allocator.counters
            allocator.reset_peak()
            after = allocator.counters
            assert after.allocated == after.max_allocated == kept.allocated
            assert after.reserved == after.max_reserved == kept.reserved
        now = allocator.counters
        state.update({name: getattr(now, name) for name in state})
        check_state(allocator)

    def tensor(*size: int) -> Block:
        elements = 1
        for n in size:
            elements *= n
        return allocator.malloc(4 * elements)

    change(0, reset_peak=True)
    change(0, empty_cache=True)
    first = [tensor(1), tensor(10, 20), tensor(200, 300, 2000)]
    held_by_first = allocator.allocated
    change(1)
    second = []
    for i in range(1, 18):
        second.append(tensor(i, i * 4))
        change(1)
    for i in range(5, 22):
        second.append(tensor(i, i * 7, i * 9, i * 11))
        change(1, reset_peak=i % 2 == 0)
    second.append(tensor(0, 0, 0))
    change(0)
    random.Random(0).shuffle(second)
    for i in range(17):
        block = second.pop(i)
        allocator.free(block)
        change(-block.size)
    for i in range(2, 25):
        second.append(tensor(i, i * 3, i * 8))
        change(1)
    for block in second:
        allocator.free(block)
    change(-1, reset_peak=True)
    assert allocator.allocated == held_by_first
    for block in first:
        allocator.free(block)
    change(-1, reset_peak=True)
    assert allocator.allocated == 0
    change(0, empty_cache=True)
    change(0, reset_peak=True)
