"""Helpers of the chapter "Get the same numbers twice".

Source: "Reproducibility", https://pytorch.org/docs/stable/notes/randomness.html
"""

from __future__ import annotations

import builtins
import math
import os
import platform
import random
import subprocess
import symtable
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from helpers import child
from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ---------------------------------------------------------------- what ran


def undefined_names(source: str) -> list[str]:
    """The names that `source` reads and never defines, in alphabetical order.

    Builtins do not count. The code is read, not run.

    Raises:
        SyntaxError: `source` is not Python.
    """
    top = symtable.symtable(source, "snippet", "exec")
    used: set[str] = set()
    bound = set(dir(builtins)) | {"__name__", "__file__"}
    todo = [top]
    while todo:
        table = todo.pop()
        todo += table.get_children()
        for symbol in table.get_symbols():
            if table is top or symbol.is_global():
                if symbol.is_referenced():
                    used.add(symbol.get_name())
                if symbol.is_assigned() or symbol.is_imported():
                    bound.add(symbol.get_name())
    return sorted(used - bound)


def environment() -> dict[str, object]:
    """What another machine must share before the same seed can give the same numbers.

    Versions, the device, the number of threads, the switches that change results, and the two
    environment variables that do. Everything in it can be written as JSON.
    """
    gpu = torch.cuda.is_available()
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)  # 2.9
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name() if gpu else platform.machine(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "matmul precision": matmul.allow_tf32 if precision is None else precision,
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


# ---------------------------------------------------------------- seeds


def seed_everything(seed: int) -> dict[str, str]:
    """Seed every global random stream of a PyTorch program, and say which.

    `numpy.random.Generator` and `torch.Generator` objects keep their own state: seed those where
    you make them.

    Args:
        seed: from 0 to 2**32 - 1, the range that NumPy accepts.

    Raises:
        TypeError: `seed` is not an int.
        ValueError: `seed` is out of range; nothing has been seeded then.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int, got {type(seed).__name__}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, got {seed}")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return {
        "random": "the module's stream",
        "numpy.random": "the legacy stream, no Generator",
        "torch": "the CPU and every accelerator",
    }


def draws() -> dict[str, float]:
    """One number between 0 and 1 from each global stream; each moves on by one draw."""
    return {
        "random": random.random(),
        "numpy.random": float(np.random.rand()),
        "torch": torch.rand(()).item(),
    }


def _states() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state()
    return {
        "random": random.getstate(),
        "numpy.random": (name, keys.tobytes(), *rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }


@contextmanager
def deterministic(warn_only: bool = False) -> Iterator[None]:
    """`torch.use_deterministic_algorithms(True)` inside the block, the old setting after it."""
    before = torch.are_deterministic_algorithms_enabled()
    before_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=before_warn)


# ---------------------------------------------------------------- the order of additions


def sum_in_parts(values: Tensor, parts: int = 1) -> float:
    """Add float32 numbers as `parts` threads would: each its own part, then the part sums.

    Within a part, one number after the other, every partial sum rounded to float32.

    Args:
        values: float32, shape (n,).
        parts: how many parts of nearly equal length, at least 1.

    Raises:
        ValueError: `values` is not a 1-D float32 tensor, or `parts` is less than 1.
    """
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
    """How often each value occurs among `sums` of the same numbers, around the `exact` sum.

    The axis counts steps of float32: neighbouring numbers at the size of the sum are 1 apart.

    Raises:
        ValueError: `sums` is empty.
    """
    import matplotlib.pyplot as plt

    if not sums:
        raise ValueError("draw_sums needs at least one sum, got none")
    step = float(np.spacing(np.float32(exact)))
    values, counts = np.unique(np.array(sums), return_counts=True)
    figure, axis = plt.subplots(figsize=(7.5, 2.6))
    axis.bar((values - exact) / step, counts, width=0.8, color="#0a6b7d")
    axis.set_ylim(0, 1.2 * counts.max())
    axis.axvline(0, color="#c2410c", linestyle="--")
    axis.annotate("exact", (0, 1), (5, -2), ("data", "axes fraction"), "offset points")
    for text in axis.texts:
        text.set(color="#c2410c", va="top")
    axis.set(xlabel="float32 sum minus exact sum, in float32 steps", ylabel="orders")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def to_tf32(x: Tensor) -> Tensor:
    """Round to TF32: 10 bits of mantissa instead of the 23 of float32, the same range.

    Source: https://pytorch.org/docs/stable/notes/cuda.html

    Raises:
        ValueError: `x` is not float32.
    """
    if x.dtype != torch.float32:
        raise ValueError(f"x must be float32, got {x.dtype}")
    bits = x.detach().contiguous().view(torch.int32)
    odd = (bits >> 13) & 1
    rounded = ((bits + 0xFFF + odd) & ~0x1FFF).view(torch.float32)
    return torch.where(torch.isfinite(x), rounded, x)


# ---------------------------------------------------------------- a toy cuDNN


def _atomic(values: Tensor, rng: random.Random) -> float:
    order = list(range(len(values)))
    rng.shuffle(order)  # whichever thread comes first adds first
    return sum_in_parts(values[order])


# what a library could choose from, its favourite first: is it deterministic, typical time, code
_ALGORITHMS: dict[str, tuple[bool, float, Callable[[Tensor, random.Random], float]]] = {
    "atomic": (False, 1.00, _atomic),
    "one pass": (True, 1.05, lambda values, rng: sum_in_parts(values, 1)),
    "tiles": (True, 1.06, lambda values, rng: sum_in_parts(values, 16)),
}


def toy_cudnn(values: Tensor, run: int, benchmark: bool, deterministic: bool) -> tuple[str, float]:
    """A model of how cuDNN picks an algorithm; the "convolution" is a sum.

    `deterministic` leaves out the algorithms that add in the order of arrival. `benchmark` takes
    the fastest of a timing that differs from run to run; without it the favourite is taken.

    Args:
        values: float32, shape (n,).
        run: stands for one start of the program; all noise is drawn from it.

    Returns:
        The name of the algorithm and its result.
    """
    rng = random.Random(run)
    names = [n for n, (fixed, _, _) in _ALGORITHMS.items() if fixed or not deterministic]
    noise = {n: rng.uniform(0, 0.3) for n in _ALGORITHMS}
    name = min(names, key=lambda n: _ALGORITHMS[n][1] + noise[n]) if benchmark else names[0]
    return name, _ALGORITHMS[name][2](values, rng)


def draw_switches(results: Mapping[str, int]) -> Figure:
    """Bars: for each setting of the switches, how many different results the runs gave.

    Raises:
        ValueError: `results` is empty.
    """
    import matplotlib.pyplot as plt

    if not results:
        raise ValueError("draw_switches needs at least one setting, got none")
    figure, axis = plt.subplots(figsize=(7.5, 0.9 + 0.42 * len(results)))
    colours = ["#0a6b7d" if count == 1 else "#c2410c" for count in results.values()]
    bars = axis.barh(list(results), list(results.values()), color=colours)
    axis.bar_label(bars, padding=3)
    axis.invert_yaxis()
    axis.set_xlabel("different results in 100 runs")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- CUDA_VISIBLE_DEVICES


def visible_in_child(shell: str, *later: str) -> dict[str, Any]:
    """Start Python with `CUDA_VISIBLE_DEVICES=shell`, import torch, change the variable, and tell.

    No GPU is needed: the list is what PyTorch reads from the variable, not what the driver has.

    Args:
        shell: the value in the environment before Python starts.
        later: values set through `os.environ` after `import torch`, one after the other.

    Returns:
        "set in the shell", "then '…'" for each later value: the numbers that PyTorch reads;
        "CUDA started": whether importing and seeding has initialised CUDA.

    Raises:
        RuntimeError: the process failed; its last words are in the message.
    """
    return child.call(_visible, *later, env={"CUDA_VISIBLE_DEVICES": shell})


def _visible(*later: str) -> dict[str, Any]:
    read = torch.cuda._parse_visible_devices
    seen = {"set in the shell": read()}
    torch.cuda.manual_seed_all(0)
    seen["CUDA started"] = torch.cuda.is_initialized()
    for value in later:
        os.environ["CUDA_VISIBLE_DEVICES"] = value
        seen[f"then {value!r}"] = read()
    return seen


# ---------------------------------------------------------------- ending a process

_JOB = """
import pathlib, signal, subprocess, sys, time
cache, deaf = pathlib.Path(sys.argv[1]), sys.argv[2] == "deaf"
signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else lambda *_: sys.exit(0))
worker = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(60)"])
try:
    cache.write_text("half a gigabyte, in spirit")
    print(worker.pid, flush=True)
    time.sleep(60)
finally:
    worker.kill()
    worker.wait()
    cache.unlink()
"""


@dataclass
class Job:
    """A harmless stand-in for a training run: a process with a cache file and a worker.

    On SIGTERM it ends its worker and removes its file. `deaf` jobs ignore SIGTERM.

    Attributes:
        process: the running `subprocess.Popen`.
        cache: the file that it removes when it is allowed to.
        worker: the process id of its worker.
    """

    process: subprocess.Popen[str]
    cache: Path
    worker: int

    def left_behind(self) -> list[str]:
        """What of "process", "worker" and "cache file" is still there."""
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
    """Start a `Job`, wait until it is at work; whatever is left of it is gone after the block.

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


def process_info(pid: int) -> dict[str, object]:
    """Whether the process is yours, and the program that it runs. Linux only.

    Returns:
        `mine` (bool: it belongs to your user) and `command`, the arguments it was started with.

    Raises:
        ProcessLookupError: no process has this number, or the system has no /proc.
    """
    folder = Path(f"/proc/{pid}")
    try:
        mine = folder.stat().st_uid == os.getuid()
        command = (folder / "cmdline").read_text().rstrip("\0").split("\0")
    except FileNotFoundError:
        raise ProcessLookupError(f"no process {pid}") from None
    return {"mine": mine, "command": command}


# ---------------------------------------------------------------- exercises


def check_undisturbed(answer: Callable[[Callable[[], Any], int], Any]) -> Verdict:
    """Check `answer(function, seed)`: `function()` under `seed`, all global streams put back."""

    def shuffle() -> None:
        seed_everything(random.SystemRandom().randrange(2**32))

    def repeats(f):
        shuffle()
        seed = random.SystemRandom().randrange(2**32)
        first = f(draws, seed)
        assert isinstance(first, dict), "the result of function() is not returned"
        draws()
        second, other = f(draws, seed), f(draws, (seed + 1) % 2**32)
        for name in first:
            assert first[name] == second[name], f"{name} draws other numbers under the same seed"
            assert first[name] != other[name], f"{name} draws the same under another seed"

    def puts_back(f):
        shuffle()
        before = _states()
        f(draws, 3)
        after = _states()
        for name in before:
            assert before[name] == after[name], f"the stream of {name} is not where it was"

    def after_error(f):
        def fails():
            draws()
            raise ZeroDivisionError

        shuffle()
        before = _states()
        try:
            f(fails, 3)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("the exception of function() is swallowed")
        assert _states() == before, "after an exception the streams are not where they were"

    return verdict(answer, [repeats, puts_back, after_error])


def check_sum(answer: Callable[[Tensor], float]) -> Verdict:
    """Check `answer(x)`: the sum of float32 numbers, to the last bit the same in every order."""

    def numbers() -> Tensor:
        big = torch.rand(100) * 10.0 ** torch.randint(4, 12, (100,))
        x = torch.cat([big, -big, torch.randn(100)])
        return x[torch.randperm(300)]

    def value(f):
        x = numbers()
        got = float(f(x))
        exact, size = math.fsum(x.tolist()), x.double().abs().sum().item()
        assert abs(got - exact) <= 1e-5 * size, "that is not the sum"

    def order(f):
        x = numbers()
        sums = {float(f(x[torch.randperm(len(x))])) for _ in range(10)}
        assert len(sums) == 1, "other orders of the same numbers give other sums"

    def untouched(f):
        x = numbers()
        before = x.clone()
        f(x)
        assert torch.equal(x, before), "your function changes x"

    return verdict(answer, [value, order, untouched])


def check_stop(answer: Callable[[subprocess.Popen[str]], Any]) -> Verdict:
    """Check `answer(process)`: the process is asked first, killed only if it does not listen.

    The jobs need up to half a second to clean up; more than 20 s in all is too long.
    """
    import time

    def polite(f):
        with job() as j:
            f(j.process)
            left = j.left_behind()
            assert "process" not in left, "the process is still running"
            assert not left, f"killed before it could clean up: the {' and the '.join(left)} stayed"

    def deaf(f):
        with job(deaf=True) as j:
            begin = time.monotonic()
            try:
                f(j.process)
            except subprocess.TimeoutExpired:
                raise AssertionError("a process that ignores SIGTERM is left running") from None
            assert j.process.poll() is not None, "a process that ignores SIGTERM is left running"
            assert time.monotonic() - begin < 20, "you wait too long before you kill"

    def gone(f):
        with job() as j:
            j.process.terminate()
            j.process.wait()
            f(j.process)  # must not fail on a process that has ended

    return verdict(answer, [polite, deaf, gone])
