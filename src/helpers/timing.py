"""Compare two pieces of code by time, as ratios that hold on a busy machine too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def time_ratio(slow: Callable[[], Any], fast: Callable[[], Any], rounds: int = 20) -> float:
    """How many times longer `slow` takes than `fast`, on one thread of the CPU.

    Both run once for warming up; then they take turns and the best time of each counts, so that
    a busy machine hurts both. Threads that wait for each other would be the largest disturbance,
    so PyTorch gets one while this runs. Nothing is synchronized: not for code that uses a GPU.

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
