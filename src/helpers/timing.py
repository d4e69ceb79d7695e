"""Compare the run time of two functions by a ratio that is robust on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def time_ratio(slow: Callable[[], Any], fast: Callable[[], Any], rounds: int = 20) -> float:
    """Return how many times longer `slow` takes than `fast`, on one CPU thread.

    Both run once as a warm-up, then alternate for `rounds` rounds. The minimum of each is used: a
    busy machine affects both. PyTorch uses one thread during the measurement, because threads that
    wait for each other add noise. Nothing is synchronized: do not use this function for GPU code.

    Raises:
        ValueError: `rounds` is less than 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    best = [float("inf"), float("inf")]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for turn in range(rounds + 1):
            for i, function in enumerate((slow, fast)):
                start = time.perf_counter()
                function()
                if turn:
                    best[i] = min(best[i], time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return best[0] / max(best[1], 1e-9)
