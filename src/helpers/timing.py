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


def device_ratios(
    slow: Callable[[], Any], fast: Callable[[], Any], device: str, rounds: int = 5
) -> list[float]:
    """How many times longer `slow` takes than `fast` on a device, once for each round.

    Both run once for warming up, then they take turns. The clock waits for the device before and
    after each run (https://pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution).

    Raises:
        ValueError: `rounds` is less than 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    slow(), fast()
    return [
        device_seconds(slow, device) / max(device_seconds(fast, device), 1e-9)
        for _ in range(rounds)
    ]


def device_seconds(function: Callable[[], Any], device: str) -> float:
    """The time of one run in seconds, waiting for the device before and after it."""
    wait(device)
    start = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - start


def wait(device: str) -> None:
    """Wait until the device has done everything that was asked of it; a CPU always has."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
