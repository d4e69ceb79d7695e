"""Checkers of the exercises of the chapter on GPU memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Integral
from typing import Any

import torch

from helpers.allocator import (
    LARGE_BUFFER,
    MIB,
    MIN_BLOCK_SIZE,
    MIN_LARGE_ALLOC,
    SMALL_BUFFER,
    CachingAllocator,
    random_trace,
    replay,
)
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_float, unchanged
from helpers.memory_caching import watch


def _small_model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def check_segment(answer: Callable[[int], int]) -> Verdict:
    """Check `answer(nbytes)` is what one tensor of `nbytes` >= 1 reserves on a fresh device."""
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
    assert isinstance(got, Integral) and not isinstance(got, bool), (
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
    """Check `answer(snapshot)` is how many bytes `empty_cache` would give back.

    `snapshot` is what `CachingAllocator.snapshot` returns, in the form of
    `torch.cuda.memory_snapshot`. `empty_cache` waits for blocks that other streams still use
    (`release_cached_blocks` in c10/cuda/CUDACachingAllocator.cpp), so they count as free.
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
            _pending_blocks_go,
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
        with unchanged(snapshot=step.snapshot):
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


def _pending_blocks_go(answer: Callable[[list[dict[str, Any]]], int]) -> None:
    """Check a block that another stream still uses: `empty_cache` waits, and then it is free."""
    snapshot = replay([("malloc", "a", 12 * MIB), ("free", "a")])[-1].snapshot
    segment, size = snapshot[0], 12 * MIB
    segment["blocks"][0]["state"] = "active_pending_free"
    got = answer(snapshot)
    _is_bytes(got, "with one block, 'active_pending_free',")
    assert got == size, (
        f"with one block, 'active_pending_free', you said {got}, empty_cache gives back {size}: "
        "it first waits for the other stream"
    )
    for other, want in (("inactive", size), ("active_allocated", 0)):
        segment["allocated_size"] = 0 if want else size // 2
        for states in ((other, "active_pending_free"), ("active_pending_free", other)):
            segment["blocks"] = [{"size": size // 2, "state": state} for state in states]
            got = answer(snapshot)
            _is_bytes(got, "with two blocks in a segment")
            assert got == want, (
                f"with two blocks in a segment, {states}, you said {got}, "
                f"empty_cache gives back {want}: look at every block"
            )


def check_mean_loss(answer: Callable[..., float]) -> Verdict:
    """Check `answer(model, batches, loss_fn)`: the mean loss of all samples, keeping no graph.

    `batches` yields pairs `(x, y)`, the last one smaller, and can be read once; the answer is a
    `float`. The model is in evaluation mode and stays in it.
    """
    return verdict(answer, [_mean_loss_is_right, _mean_loss_keeps_nothing])


def _validation(
    count: int, seed: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.nn.Sequential, list, Callable]:
    generator = torch.Generator().manual_seed(seed)
    sizes = [4] * (count - 1) + [1]
    draw = partial(torch.randn, generator=generator, dtype=dtype)
    batches = [(draw(n, 8), draw(n, 1)) for n in sizes]
    return _small_model().to(dtype).eval(), batches, torch.nn.MSELoss()


def _mean_loss_is_right(answer: Callable[..., float]) -> None:
    for count, dtype in ((1, torch.float32), (2, torch.float64), (7, torch.float32)):
        model, batches, loss_fn = _validation(count, count, dtype)
        if count == 2:
            loss_fn = torch.nn.PoissonNLLLoss()  # its arguments cannot be swapped
        with torch.no_grad():
            losses = [loss_fn(model(x), y).item() for x, y in batches]
        sizes = [len(y) for _, y in batches]
        want = sum(loss * n for loss, n in zip(losses, sizes, strict=True)) / sum(sizes)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        with unchanged("modes", model=model), unchanged(batches=batches):
            got = answer(model, iter(batches), loss_fn)
        assert got is not None, "your function returned None, not the mean loss"
        assert not isinstance(got, torch.Tensor), (
            "your function returned a tensor"
            + (", and its graph with it" * got.requires_grad)
            + ": return a Python float"
        )
        got = a_float(got)
        assert not any(m.training for m in model.modules()), (
            "your function switched the model to training mode"
        )
        if count > 1:
            assert abs(got - sum(losses)) > 1e-6 * abs(got), (
                f"over {count} batches you returned the sum of the losses"
            )
            assert abs(got - sum(losses) / count) > 1e-6 * abs(got), (
                "you averaged the batches, and the last one is smaller: weigh each loss by its "
                "number of samples"
            )
        assert abs(got - want) < 1e-4 * max(1, abs(want)), (
            f"over {count} batches the mean loss is {want:.4f}, you returned {got:.4f}"
        )
    batches[0][0][0] = math.nan
    shown = math.isnan(a_float(answer(model, iter(batches), loss_fn)))
    assert shown, "a loss of nan is hidden: the mean must be nan"


def _mean_loss_keeps_nothing(answer: Callable[..., float]) -> None:
    count = 12
    model, batches, loss_fn = _validation(count, seed=0)
    watched: list[Callable[[], bool]] = []
    outputs: list[Callable[[], bool]] = []

    def look_at_output(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        assert not module.training, "your function runs the model in training mode"
        kept = sum(alive() for alive in outputs)
        # An output still bound to its name is freed when the name is assigned again
        assert kept <= 1, (
            f"at batch {len(outputs) + 1} the outputs of {kept} earlier batches are still in "
            "memory: turn each into its loss, and the loss into a number, before the next batch"
        )
        outputs.append(watch(output))

    def look(module: torch.nn.Module, inputs: Any, activation: torch.Tensor) -> None:
        assert not any(alive() for alive in watched), (
            f"at batch {len(watched) + 1} activations of an earlier batch are still in memory: "
            "each loss you keep as a tensor, even by its name, keeps its graph"
        )
        watched.append(watch(activation))

    model[1].register_forward_hook(look)
    model[2].register_forward_hook(look_at_output)
    answer(model, iter(batches), loss_fn)
    assert len(watched) == count, (
        f"there are {count} batches, your function ran the model on {len(watched)}"
    )
