"""Step through the caching allocator's states for a replayed trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helpers.allocator import Operation, Step, format_size, replay
from helpers.explorers import Explorer


def allocator_explorer(
    trace: Iterable[Operation],
    capacity: int | None = None,
    *,
    max_split_size_mb: int | None = None,
    lang: str | None = None,
) -> Explorer:
    """Step through a replayed trace: segments, their blocks, and the counters.

    The initial step is the first failed request, else the one with the most unused memory.

    Args:
        trace: operations, as for `replay`.
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
        "start": _surprise(steps),
    }
    last = steps[-1].counters
    allocated, reserved = format_size(last.allocated), format_size(last.reserved)
    peaks = (
        format_size(max(s.counters.max_allocated for s in steps)),
        format_size(max(s.counters.max_reserved for s in steps)),
    )
    fallback = {
        "en": (
            f"A figure that steps through {len(steps)} operations of the caching allocator. "
            f"At the end {allocated} are allocated and {reserved} reserved; "
            f"the peaks were {peaks[0]} and {peaks[1]}."
        ),
        "zh": (
            f"逐步显示缓存分配器的 {len(steps)} 个操作。"
            f"结束时已分配 {allocated}，已保留 {reserved}；"
            f"峰值分别为 {peaks[0]} 和 {peaks[1]}。"
        ),
    }
    return Explorer("allocator", data, fallback, lang)


def _surprise(steps: list[Step]) -> int:
    """Return the initial step: the first failure, else the last with the most unused memory."""
    failed = [i for i, step in enumerate(steps) if step.error]
    unused = [step.counters.reserved - step.counters.allocated for step in steps]
    return failed[0] if failed else max(range(len(steps)), key=lambda i: (unused[i], i))


def _step_data(step: Step) -> dict[str, Any]:
    """Return the data of a step, with each size as a number and as formatted text."""
    totals: dict[str, list[int]] = {}
    for action, nbytes in step.events:
        totals.setdefault(action, []).append(nbytes)
    operation, c = step.operation, step.counters
    now = (c.allocated, c.reserved, c.max_allocated, c.max_reserved)
    blocks = [block for segment in step.snapshot for block in segment["blocks"]]
    free = [b["size"] for b in blocks if b["state"] != "active_allocated"]
    failed = {}
    if step.error:
        failed = {
            "wanted": operation[2],
            "pieces": [format_size(sum(free)), format_size(max(free, default=0))],
        }
    return {
        **failed,
        "op": operation[0],
        "name": operation[1] if len(operation) > 1 else None,
        "asked": format_size(operation[2]) if len(operation) > 2 else None,
        "did": {action: [len(sizes), format_size(sum(sizes))] for action, sizes in totals.items()},
        "now": [[value, format_size(value)] for value in now],
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
