"""Figures and demonstrations of the chapter on reproducibility."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers import checks, child
from helpers.cuda_semantics import _parse_visible_devices
from helpers.figures import COLORS, Figure, figure

_CHINESE = {
    "exact": "精确值",
    "float{} sum minus exact sum, in float{} steps": "float{} 的和减精确的和，单位：float{} 间隔",
    "orders": "次序的个数",
    "different results in {} runs": "{} 次运行里不同结果的个数",
}


def sum_in_parts(values: Tensor, parts: int = 1) -> float:
    """Add float32 numbers as `parts` threads would: each its own part, then the partial sums.

    Within a part, numbers are added in order, and every partial sum is rounded to float32.

    Args:
        values: float32, shape (n,).
        parts: number of parts of nearly equal length, at least 1.

    Raises:
        TypeError: `values` is not a tensor, or `parts` not an int.
        ValueError: `values` is not a 1-D float32 tensor, or `parts` is less than 1.
    """
    parts = checks.integer("parts", parts)
    checks.filled("values", values)
    if values.dtype != torch.float32 or values.ndim != 1:
        raise ValueError(
            f"values must be float32 of shape (n,), got {values.dtype}, {tuple(values.shape)}"
        )
    if parts < 1:
        raise ValueError(f"parts must be at least 1, got {parts}")

    def add(row: np.ndarray) -> np.float32:  # accumulate goes strictly from left to right
        return np.add.accumulate(row)[-1] if len(row) else np.float32(0)

    sums = [add(part) for part in np.array_split(values.numpy(), parts)]
    return float(add(np.array(sums, dtype=np.float32)))


def draw_sums(sums: Sequence[float], exact: float) -> Figure:
    """Draw how often each value occurs among `sums` of the same numbers, around the `exact` sum.

    The axis counts steps of float32: neighbouring numbers at the size of the sum are 1 apart.

    Raises:
        ValueError: `sums` is empty.
    """
    if not sums:
        raise ValueError("draw_sums needs at least one sum, got none")
    step = float(np.spacing(np.float32(exact)))
    values, counts = np.unique(np.array(sums), return_counts=True)
    drawing, axis = figure(chinese=_CHINESE)
    axis.bar((values - exact) / step, counts, width=0.8, color=COLORS["teal"])
    axis.set_ylim(0, 1.2 * counts.max())
    axis.axvline(0, color=COLORS["orange"], linestyle="--")
    axis.annotate("exact", (0, 1), (5, -2), ("data", "axes fraction"), "offset points")
    for text in axis.texts:
        text.set(color=COLORS["orange"], va="top")
    axis.set(xlabel="float32 sum minus exact sum, in float32 steps", ylabel="orders")
    return drawing


def _atomic(values: Tensor, rng: random.Random) -> float:
    order = list(range(len(values)))
    rng.shuffle(order)  # threads add in their order of arrival
    return sum_in_parts(values[order])


# algorithms of the simulated library, the default first: is it deterministic, typical time, code
_ALGORITHMS: dict[str, tuple[bool, float, Callable[[Tensor, random.Random], float]]] = {
    "atomic": (False, 1.00, _atomic),
    "one pass": (True, 1.05, lambda values, rng: sum_in_parts(values, 1)),
    "tiles": (True, 1.06, lambda values, rng: sum_in_parts(values, 16)),
}


def toy_cudnn(values: Tensor, run: int, benchmark: bool, deterministic: bool) -> tuple[str, float]:
    """Simulate how cuDNN chooses an algorithm; the "convolution" is a sum.

    `deterministic` excludes algorithms that add in the order of arrival. `benchmark` takes the
    fastest of a timing that differs between runs; without it a fixed one is taken.

    Args:
        values: float32, shape (n,).
        run: seed of one start of the program; all noise is drawn from it.

    Returns:
        The name of the algorithm and its result.
    """
    rng = random.Random(run)
    names = [n for n, (fixed, _, _) in _ALGORITHMS.items() if fixed or not deterministic]
    noise = {n: rng.uniform(0, 0.3) for n in _ALGORITHMS}
    name = min(names, key=lambda n: _ALGORITHMS[n][1] + noise[n]) if benchmark else names[0]
    return name, _ALGORITHMS[name][2](values, rng)


def draw_switches(results: Mapping[str, int]) -> Figure:
    """Draw for each setting of the switches how many different results the runs gave.

    Raises:
        ValueError: `results` is empty.
    """
    if not results:
        raise ValueError("draw_switches needs at least one setting, got none")
    drawing, axis = figure(size=(3.5, 0.5 + 0.42 * len(results)), chinese=_CHINESE)
    for row, (name, count) in enumerate(results.items()):
        color = COLORS["teal" if count == 1 else "orange"]
        bars = axis.barh(row, count, height=0.4, color=color)
        axis.bar_label(bars, padding=3)
        axis.text(0, row - 0.3, name, va="bottom", fontsize=8, family="monospace")
    axis.set(yticks=[], ylim=(len(results) - 0.6, -0.9))
    axis.spines["left"].set_visible(False)
    axis.set_xlabel("different results in 100 runs")
    return drawing


def visible_in_child(shell: str, *later: str) -> dict[str, Any]:
    """Start Python with `CUDA_VISIBLE_DEVICES=shell`, change it, and return what PyTorch reads.

    No GPU is needed: the list is PyTorch's reading of the variable, not the GPUs of the driver.

    Args:
        shell: the value in the environment before Python starts.
        later: values set through `os.environ` after `import torch`, one after the other.

    Returns:
        "set in the shell", "then '…'" for each later value: the numbers that PyTorch reads;
        "CUDA started": whether importing and seeding has initialized CUDA.

    Raises:
        RuntimeError: the process failed; its last output is in the message.
    """
    return child.call(_visible, *later, env={"CUDA_VISIBLE_DEVICES": shell})


def _visible(*later: str) -> dict[str, Any]:
    def read() -> list[int] | list[str]:
        return _parse_visible_devices(os.environ["CUDA_VISIBLE_DEVICES"])

    seen: dict[str, Any] = {"set in the shell": read()}
    torch.cuda.manual_seed_all(0)
    seen["CUDA started"] = torch.cuda.is_initialized()
    for value in later:
        os.environ["CUDA_VISIBLE_DEVICES"] = value
        seen[f"then {value!r}"] = read()
    return seen


_JOB = """
import pathlib, signal, subprocess, sys, time
cache, deaf = pathlib.Path(sys.argv[1]), sys.argv[2] == "deaf"
signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else lambda *_: sys.exit(143))
work = [sys.executable, "-IS", "-c", "import time; time.sleep(60)"]
worker = subprocess.Popen(work, stdout=subprocess.DEVNULL)
try:
    cache.write_text("half a gigabyte, in spirit")
    print(worker.pid, flush=True)
    time.sleep(60)
finally:
    worker.kill()
    worker.wait()
    time.sleep(0.25)
    cache.unlink()
"""


@dataclass
class Job:
    """Harmless mock of a training run: a process with a cache file and a worker.

    On SIGTERM it ends its worker, removes its file and exits with 143. `deaf` jobs ignore SIGTERM.

    Attributes:
        process: the running `subprocess.Popen`.
        cache: the file that it removes at a clean exit.
        worker: the process ID of its worker.
    """

    process: subprocess.Popen[str]
    cache: Path
    worker: int

    def left_behind(self) -> list[str]:
        """Return which of "process", "worker" and "cache file" still exist."""
        left = ["process"] if self.process.poll() is None else []
        left += ["worker"] if _alive(self.worker) else []
        return left + (["cache file"] if self.cache.exists() else [])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def job(deaf: bool = False) -> Iterator[Job]:
    """Start a `Job`, wait until it runs, and remove what is left of it after the block.

    It would end by itself after a minute.

    Raises:
        RuntimeError: it did not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        process = subprocess.Popen(
            [sys.executable, "-IS", "-c", _JOB, str(cache), "deaf" if deaf else "polite"],
            stdout=subprocess.PIPE,
            text=True,
        )
        worker = 0
        try:
            line = process.stdout.readline()
            if not line.strip():
                raise RuntimeError("the job did not start")
            worker = int(line)
            yield Job(process, cache, worker)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            if worker and _alive(worker):
                os.kill(worker, 9)
