"""Compare the run time of two functions by a ratio that is robust on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from helpers import checks

SHORTEST = 1e-3  # seconds of one measurement: a single short call runs with cold caches


def time_ratio(slow: Callable[[], Any], fast: Callable[[], Any], rounds: int = 20) -> float:
    """Return how many times longer `slow` takes than `fast`, on one CPU thread.

    Both run once as a warm-up, then alternate for `rounds` rounds. In each round a function runs
    once, or as often as fits into 1 ms, and the mean counts. The minimum over the rounds is used:
    a busy machine affects both. PyTorch uses one thread during the measurement, because threads
    that wait for each other add noise. Nothing is synchronized: do not use this function for GPU
    code.

    Raises:
        TypeError: `slow` or `fast` cannot be called, or `rounds` is not an int.
        ValueError: `rounds` is less than 1.
    """
    checks.function("slow", slow), checks.function("fast", fast)
    rounds = checks.integer("rounds", rounds, 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        slow(), fast()
        means = [(_mean_time(slow), _mean_time(fast)) for _ in range(rounds)]
    finally:
        torch.set_num_threads(threads)
    best_slow, best_fast = (min(column) for column in zip(*means, strict=True))
    return best_slow / max(best_fast, 1e-9)


def _mean_time(function: Callable[[], Any]) -> float:
    """Return the mean time of a call in seconds, over calls that take at least `SHORTEST`."""
    begin, calls, passed = time.perf_counter(), 0, 0.0
    while passed < SHORTEST:
        function()
        calls += 1
        passed = time.perf_counter() - begin
    return passed / calls
