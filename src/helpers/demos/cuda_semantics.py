"""Figures and demonstrations of the chapter on devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from helpers import child
from helpers.figures import COLORS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ToyGPU:
    """A GPU as Python sees it: a launch returns at once, the work is done later and in order.

    Time is counted in steps. A launch costs Python one step, its work takes as many as you say.
    Nothing is really done before Python waits, which the rules of CUDA allow.

    Args:
        blocking: wait after every launch, as with `CUDA_LAUNCH_BLOCKING=1`.
    """

    def __init__(self, blocking: bool = False) -> None:
        self.blocking = blocking
        self.clock = 0
        """Python's time, in steps."""
        self.launches: list[tuple[int, int, int]] = []
        """Of each launch: when Python had made it, when the work began, when it ended."""
        self._tasks: list[Callable[[], object]] = []

    def launch(self, work: int, task: Callable[[], object] | None = None) -> None:
        """Put `work` steps into the queue; `task`, if there is one, runs when they are done.

        Raises:
            ValueError: `work` is not positive.
        """
        if work < 1:
            raise ValueError(f"work must be at least 1 step, got {work}")
        self.clock += 1
        begin = max(self.clock, self.free)
        self.launches.append((self.clock, begin, begin + work))
        if task is not None:
            self._tasks.append(task)
        if self.blocking:
            self.synchronize()

    @property
    def free(self) -> int:
        """When the work that is in the queue will be done."""
        return self.launches[-1][2] if self.launches else 0

    def synchronize(self) -> None:
        """Wait until the queue is empty; what goes wrong in a task is raised here."""
        self.clock = max(self.clock, self.free)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task()


def draw_timeline(gpu: ToyGPU, readings: Mapping[str, int]) -> Figure:
    """Draw Python's launches above the GPU's work, and a line for each reading of the clock.

    Args:
        gpu: what was launched.
        readings: label of a reading -> step at which the clock was read.

    Raises:
        ValueError: nothing was launched.
    """
    if not gpu.launches:
        raise ValueError("draw_timeline needs a GPU with at least one launch, got none")
    drawing, axis = figure(size=(8, 2.2))
    for number, (made, begin, end) in enumerate(gpu.launches, 1):
        axis.broken_barh(
            [(made - 1, 1)], (1.1, 0.8), color=COLORS["pale blue"], edgecolor=COLORS["grey"]
        )
        axis.broken_barh(
            [(begin, end - begin)], (0, 0.8), color=COLORS["pale orange"], edgecolor=COLORS["grey"]
        )
        axis.text(
            (begin + end) / 2, 0.4, str(number), ha="center", va="center", color=COLORS["black"]
        )
    for label, step in readings.items():
        axis.axvline(step, color=COLORS["orange"], linestyle="--")
        side = "right" if step > gpu.free / 2 else "left"
        axis.annotate(
            label, (step, 2.05), ha=side, va="bottom", color=COLORS["orange"], annotation_clip=False
        )
    axis.set(yticks=[0.4, 1.5], yticklabels=["GPU", "Python"], xlabel="time in steps")
    axis.set(xlim=(0, gpu.free * 1.02), ylim=(-0.1, 2))
    return drawing


def devices_seen(hide: str) -> int:
    """How many GPUs a new process counts that sets `CUDA_VISIBLE_DEVICES=""` by itself.

    Args:
        hide: "before CUDA starts" (after `import torch`) or "after CUDA starts".

    Raises:
        ValueError: another value of `hide`.
        RuntimeError: the process failed; "after CUDA starts" needs a GPU.
    """
    moments = ("before CUDA starts", "after CUDA starts")
    if hide not in moments:
        raise ValueError(f"hide must be one of {', '.join(map(repr, moments))}, got {hide!r}")
    return child.call(_count_devices, hide == moments[1])


def _count_devices(started: bool) -> int:
    if started:
        torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return torch.cuda.device_count()
