"""Mocks and figures of the chapter on speed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Dataset

from helpers import checks
from helpers.demos.cuda_semantics import ToyGPU
from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "time in steps": "时间（步）",
    "slow loading": "加载慢",
    "many small kernels": "许多小核函数",
    "a wait in each step": "每一步都等待",
    "none of these": "都没有",
}
CASES = {
    "slow loading": {"python": 40},
    "many small kernels": {"launches": 16, "work": 1, "gap": 3},
    "a wait in each step": {"wait": True},
    "none of these": {},
}


class Photos:
    """Iterable of batches of 8 × 4 random numbers with a loading time.

    Args:
        seconds: that Python sleeps for each batch.
        batches: number of batches.
    """

    def __init__(self, seconds: float, batches: int = 12) -> None:
        self.seconds, self.batches = seconds, batches

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.batches):
            time.sleep(self.seconds)
            yield torch.randn(8, 4)


class Threads(Dataset):
    """Dataset whose samples are the number of PyTorch threads in the process that loads them."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        if index not in (0, 1):
            raise IndexError(index)
        return torch.get_num_threads()


def queue(
    steps: int = 4,
    python: int = 6,
    launches: int = 4,
    work: int = 4,
    gap: int = 0,
    wait: bool = False,
) -> ToyGPU:
    """Simulate a training loop on a toy GPU: Python prepares a step, then launches its kernels.

    Nothing is measured: a launch takes Python one step of time, and the other times are arguments.

    Args:
        steps: of the training.
        python: time that Python needs before the launches of a step, for example for loading.
        launches: kernels in a step.
        work: time that the GPU needs for each.
        gap: time that Python needs before each launch, in addition to the launch.
        wait: whether Python waits for the GPU at the end of each step.

    Raises:
        TypeError, ValueError: a number is not an int, or negative.
    """
    times = {"python": python, "launches": launches, "work": work, "gap": gap}
    for name, value in {"steps": steps, **times}.items():
        checks.integer(name, value, 0)
    gpu = ToyGPU()
    for _ in range(steps):
        gpu.clock += python
        for _ in range(launches):
            gpu.clock += gap
            gpu.launch(work)
        if wait:
            gpu.synchronize()
    return gpu


def busy(gpu: ToyGPU) -> float:
    """Return the fraction of time in which the GPU works, from the start to the empty queue.

    Raises:
        ValueError: nothing was launched.
    """
    if not gpu.launches:
        raise ValueError("busy needs a GPU with at least one launch, got none")
    return sum(end - begin for _, begin, end in gpu.launches) / gpu.free


def draw_queue() -> Figure:
    """Draw when the GPU works in each of `CASES`, over the same time."""
    drawing, axes = figure(size=(3.5, 2.9), chinese=_CHINESE, nrows=len(CASES), sharex=True)
    for axis, (name, options) in zip(axes, CASES.items(), strict=True):
        gpu = queue(**options)
        spans = [(begin, end - begin) for _, begin, end in gpu.launches]
        axis.broken_barh(spans, (0, 1), color=COLORS["teal"])
        axis.set(xlim=(0, 120), ylim=(0, 1), yticks=[0.5], yticklabels=["GPU"])
        title(axis, name)
    axes[-1].set_xlabel("time in steps")
    return drawing
