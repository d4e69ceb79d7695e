"""Figures and demonstrations of the chapter on devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from helpers import checks
from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "read without waiting": "不等就读",
    "read after synchronize": "synchronize 之后读",
    "time in steps": "时间（步）",
    "load": "加载",
    "wait": "等待",
    "copy": "复制",
    "kernel": "计算",
}


class ToyGPU:
    """Model of a GPU: a launch returns immediately, the work is done later and in order.

    Time is counted in steps. A launch takes Python one step, and its work the given number. No task
    runs before Python synchronizes, which the rules of CUDA allow.

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
        """Append `work` steps to the queue; `task`, if there is one, runs when they are complete.

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
        """Step at which the work in the queue will be complete."""
        return self.launches[-1][2] if self.launches else 0

    def synchronize(self) -> None:
        """Wait until the queue is empty, and raise the error of a task."""
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
    drawing, axis = figure(size=(3.6, 1.9), chinese=_CHINESE)
    for number, (launched, begin, end) in enumerate(gpu.launches, 1):
        axis.broken_barh(
            [(launched - 1, 1)], (1.1, 0.8), color=COLORS["pale blue"], edgecolor=COLORS["grey"]
        )
        axis.broken_barh(
            [(begin, end - begin)], (0, 0.8), color=COLORS["pale orange"], edgecolor=COLORS["grey"]
        )
        axis.text(
            (begin + end) / 2, 0.4, str(number), ha="center", va="center", color=COLORS["black"]
        )
    for level, (label, step) in enumerate(readings.items()):
        axis.axvline(step, color=COLORS["orange"], linestyle="--")
        side, shift = ("right", -3) if step > gpu.free / 2 else ("left", 3)
        axis.annotate(
            label,
            (step, 2.1 + 0.5 * level),
            (shift, 0),
            textcoords="offset points",
            ha=side,
            va="bottom",
            color=COLORS["orange"],
        )
    axis.set(yticks=[0.4, 1.5], yticklabels=["GPU", "Python"], xlabel="time in steps")
    axis.set(xlim=(0, gpu.free * 1.02), ylim=(-0.1, 2.2 + 0.5 * len(readings)))
    return drawing


def copies(
    load: int, copy: int, kernel: int, batches: int, wait: bool
) -> dict[str, list[tuple[str, int, int]]]:
    """Return when Python loads batches, and when the GPU copies and uses them in a single queue.

    Args:
        load: steps in which Python loads a batch.
        copy: steps in which a batch is copied to the GPU.
        kernel: steps of the GPU's work on it.
        batches: number of batches.
        wait: whether Python waits for each copy, as without pinned memory and `non_blocking`.

    Returns:
        For `"Python"` and `"GPU"`: triples (what, begin, end).

    Raises:
        TypeError, ValueError: a number is not an int, or too small.
    """
    for name, steps in (("load", load), ("copy", copy), ("kernel", kernel)):
        checks.integer(name, steps, 0)
    batches = checks.integer("batches", batches, 1)
    rows: dict[str, list[tuple[str, int, int]]] = {"Python": [], "GPU": []}
    now = free = 0
    for _ in range(batches):
        rows["Python"].append(("load", now, now + load))
        now += load
        begin = max(now, free)
        free = begin + copy + kernel
        rows["GPU"] += [("copy", begin, begin + copy), ("kernel", begin + copy, free)]
        if wait:
            rows["Python"].append(("wait", now, begin + copy))
            now = begin + copy
    return rows


def draw_copies(load: int = 5, copy: int = 3, kernel: int = 3, batches: int = 3) -> Figure:
    """Draw `copies`: above, Python waits for each copy; below, it does not."""
    plans = {
        "x.to(device)": copies(load, copy, kernel, batches, wait=True),
        "pinned, non_blocking=True": copies(load, copy, kernel, batches, wait=False),
    }
    end = max(rows["GPU"][-1][2] for rows in plans.values())
    faces = {"load": "pale blue", "wait": "white", "copy": "pale grey", "kernel": "pale orange"}
    drawing, axes = figure(size=(3.6, 2.3), chinese=_CHINESE, nrows=2, sharex=True)
    for axis, (name, rows) in zip(axes, plans.items(), strict=True):
        for level, spans in enumerate(rows.values()):
            for what, begin, stop in spans:
                style = {"color": COLORS[faces[what]], "edgecolor": COLORS["grey"]}
                style |= {"linestyle": ":"} if what == "wait" else {}
                axis.barh(level, stop - begin, left=begin, height=0.75, **style)
                word = {"ha": "center", "va": "center", "fontsize": 7.5}
                axis.text((begin + stop) / 2, level, what, **word)
        axis.set(xlim=(0, end), yticks=range(len(rows)), yticklabels=list(rows))
        title(axis, name, code=True)
        axis.invert_yaxis()
    axes[-1].set_xlabel("time in steps")
    return drawing
