"""Figures and demonstrations of the chapter "DataLoader".

The datasets live in this file because a worker has to import them.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from helpers import checks
from helpers.data_loading import SECONDS, _open
from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "load": "加载",
    "load {}": "加载 {}",
    "train": "训练",
    "time (the number in a box: the batch)": "时间（框里的数字是第几批）",
}


class EagerH5(Dataset):
    """Dataset that opens its file in `__init__`, so that workers inherit the open handle."""

    def __init__(self, path: str | Path, keys: Sequence[str]) -> None:
        self.keys, self.file = tuple(keys), _open(Path(path))

    def __len__(self) -> int:
        return len(self.file[self.keys[0]])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(torch.as_tensor(self.file[key][index]) for key in self.keys)


def _move_position(dataset: Any, queue: Any, position: int) -> None:
    dataset[0]
    os.lseek(dataset.file.id.get_vfd_handle(), position, os.SEEK_SET)
    queue.put(True)


def shares_position(dataset: Dataset) -> bool:
    """Return whether a forked worker reads through the same open file as this process.

    The child reads a sample and moves the position in its file; then the position is compared here.
    Two files that are opened separately have separate positions.
    """
    from torch.multiprocessing import get_context

    here = dataset.file.id.get_vfd_handle()
    os.lseek(here, 0, os.SEEK_SET)
    context = get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_move_position, args=(dataset, queue, 123))
    child.start()
    try:
        child.join(SECONDS)
        if queue.empty():
            raise RuntimeError(f"the child process returned nothing within {SECONDS} s")
    finally:
        child.kill()
    return os.lseek(here, 0, os.SEEK_CUR) == 123


def schedule(
    load: float, train: float, batches: int, workers: int, prefetch_factor: int = 2
) -> dict[str, list[tuple[int, float, float]]]:
    """Return when each batch is loaded and trained on, if each takes the same time.

    Args:
        load: time to load one batch.
        train: time to train on one batch.
        batches: number of batches.
        workers: number of workers that load them; with 0 the training process does.
        prefetch_factor: batches that each worker prefetches.

    Returns:
        `"load 0"`, `"load 1"`, … for the workers and `"train"`: triples (batch, begin, end).

    Raises:
        TypeError, ValueError: a time is not a finite number, or a number is not an int or too
            small.
    """
    checks.finite("load", load), checks.finite("train", train)
    batches, workers = (
        checks.integer("batches", batches, 1),
        checks.integer("workers", workers, 0),
    )
    prefetch_factor = checks.integer("prefetch_factor", prefetch_factor, 1)
    rows: dict[str, list[tuple[int, float, float]]] = {
        f"load {worker}": [] for worker in range(max(workers, 1))
    }
    free, taken, now = [0.0] * max(workers, 1), [], 0.0
    rows["train"] = []
    for batch in range(batches):
        worker = batch % max(workers, 1)
        ahead = batch - workers * prefetch_factor
        ordered = now if workers == 0 else taken[ahead] if ahead >= 0 else 0.0
        begin = max(free[worker], ordered)
        free[worker] = begin + load
        rows[f"load {worker}"].append((batch, begin, free[worker]))
        begin = max(now, free[worker])
        taken.append(begin)
        now = begin + train
        rows["train"].append((batch, begin, now))
    return rows


def draw_timeline(load: float, train: float, batches: int, workers: Sequence[int]) -> Figure:
    """Draw `schedule` for each number of workers, one above another on one time axis."""
    plans = {n: schedule(load, train, batches, n) for n in workers}
    end = max(rows["train"][-1][2] for rows in plans.values())
    heights = [len(rows) for rows in plans.values()]
    drawing, axes = figure(
        size=(3.6, 0.3 * sum(heights) + 0.35 * len(plans) + 0.4),
        chinese=_CHINESE,
        nrows=len(plans),
        sharex=True,
        squeeze=False,
        height_ratios=heights,
    )
    for axis, (n, rows) in zip(axes[:, 0], plans.items(), strict=True):
        for level, (name, spans) in enumerate(rows.items()):
            color = COLORS["pale orange" if name == "train" else "pale blue"]
            for batch, begin, stop in spans:
                axis.barh(level, stop - begin, left=begin, color=color, edgecolor=COLORS["grey"])
                axis.text((begin + stop) / 2, level, str(batch), ha="center", va="center")
        names = [name if n or name == "train" else "load" for name in rows]
        axis.set(xlim=(0, end), yticks=range(len(rows)), yticklabels=names)
        title(axis, f"num_workers={n}", code=True)
        axis.invert_yaxis()
    axes[-1, 0].set_xlabel("time (the number in a box: the batch)")
    return drawing


def outcome(loader: DataLoader) -> str:
    """Iterate over `loader` once; return `"done"`, or the exception and the end of its message.

    Names of shared memory files and process IDs, which differ between runs, become `…`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in loader:
                pass
    except Exception as error:
        return _say(error)
    return "done"


def _say(error: BaseException) -> str:
    text = f"{type(error).__name__}: {_stable(str(error)).strip().splitlines()[-1]}"
    _release(error)
    return text


def _release(error: BaseException | None) -> None:
    """Clear the frames of a failed iterator, so that its workers end.

    If the garbage collector does it, they take 5 seconds to end, and the next fork inherits them.
    """
    while error is not None:
        error.__traceback__, error = None, error.__cause__ or error.__context__


def _stable(text: str) -> str:
    text = re.sub(r"</?torch_[^>]*>", "<…>", text)
    text = re.sub(r"pid(?:\(s\))? \d+(?:, \d+)*", "pid …", text)
    return re.sub(r"^(?:\w+Error: )(?=unable to)", "", text, flags=re.M)


class Where(Dataset):
    """Dataset whose samples are the ID of the process that made them, and the attribute `epoch`."""

    def __init__(self, samples: int = 4) -> None:
        self.samples, self.epoch = samples, 0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[int, int]:
        return os.getpid(), self.epoch


class Blank(Dataset):
    """Dataset of `samples` black images of one shape and dtype."""

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, samples: int = 8
    ) -> None:
        self.shape, self.dtype, self.samples = tuple(shape), dtype, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype)


class Augmented(Dataset):
    """Dataset of a random number per sample, as an augmentation would draw it.

    Args:
        source: `"numpy"`: `numpy.random`; `"torch"`: `torch.rand`; `"own"`: a NumPy generator
            created in `__init__`; `"index"`: a generator created for each sample from seed, epoch
            and index.
        samples: number of samples.
    """

    def __init__(self, source: str, samples: int = 8) -> None:
        import numpy as np

        if source not in ("numpy", "torch", "own", "index"):
            raise ValueError(f"source must be numpy, torch, own or index, got {source!r}")
        self.source, self.samples, self.epoch = source, samples, 0
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> float:
        import numpy as np

        if self.source == "numpy":
            return np.random.random()
        if self.source == "torch":
            return torch.rand(()).item()
        if self.source == "own":
            return self.rng.random()
        return np.random.default_rng((0, self.epoch, index)).random()


class Stream(IterableDataset):
    """Iterable of the numbers below `n`, in order; with `split`, each worker yields its shard."""

    def __init__(self, n: int, split: bool = False) -> None:
        self.n, self.split = n, split

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if not self.split or info is None:
            return iter(range(self.n))
        return iter(range(info.id, self.n, info.num_workers))


class Waiting(Dataset):
    """Dataset whose samples wait `seconds` without using the CPU, as for a disk or a network."""

    def __init__(self, seconds: float = 0.01, samples: int = 32) -> None:
        self.seconds, self.samples = seconds, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


class Deadly(Dataset):
    """Dataset that kills a worker with `signum` when it loads a sample, as the system would."""

    def __init__(self, signum: int) -> None:
        self.signum = signum

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        if get_worker_info() is not None:
            os.kill(os.getpid(), self.signum)
            time.sleep(SECONDS)
        return index


def gain(dataset: Dataset, workers: int = 2, batch_size: int = 4, rounds: int = 5) -> float:
    """Return how many times as many samples per second workers load as the training process.

    Epochs with and without workers are timed in turn, and the best ones compared. The workers are
    persistent, and their first epoch is not counted.

    Raises:
        ValueError: `workers` or `rounds` is smaller than 1.
    """
    if workers < 1 or rounds < 1:
        raise ValueError(f"expected at least 1 of each, got workers={workers}, rounds={rounds}")
    options = {"persistent_workers": True, "num_workers": workers, "timeout": SECONDS}
    best = [float("inf")] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores
        loaders = [DataLoader(dataset, batch_size, **o) for o in ({}, options)]
        for epoch in range(rounds + 1):
            for which, loader in enumerate(loaders):
                begun = time.perf_counter()
                for _ in loader:
                    pass
                if epoch:
                    best[which] = min(best[which], time.perf_counter() - begun)
    return best[0] / best[1]


def _read_through(values: Iterable[Any], queue: Any) -> None:
    import resource

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    before = faults()
    for _ in values:
        pass
    queue.put(faults() - before)


def copied_by_reading(values: Iterable[Any]) -> int:
    """Return the bytes of memory that a forked worker copies while it only reads `values`.

    They are counted in page faults: a page shared with the parent is copied when the child writes
    to it, and reference counting writes to it.
    """
    from torch.multiprocessing import get_context

    context = get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_read_through, args=(values, queue))
    child.start()
    try:
        child.join(SECONDS)
        if queue.empty():
            raise RuntimeError(f"the child process returned nothing within {SECONDS} s")
        return queue.get() * os.sysconf("SC_PAGE_SIZE")
    finally:
        child.kill()


def small_files(worker: int) -> None:
    """Limit the files of a worker to 1 MiB, shared memory included; pass it as `worker_init_fn`.

    This simulates a full `/dev/shm`, where shared memory is a file.
    """
    import resource

    sys.stderr = sys.__stderr__  # file descriptor 2, not the notebook of the parent
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))


def stack_only(samples: list[Tensor]) -> Tensor:
    """Stack the samples, as a `collate_fn`."""
    return torch.stack(samples)


@contextmanager
def sharing(strategy: str) -> Iterator[None]:
    """Use another sharing strategy of `torch.multiprocessing` inside the block."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    try:
        yield
    finally:
        torch.multiprocessing.set_sharing_strategy(before)


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """Allow this process only `more` open files beyond the current ones inside the block.

    If the block raises, the frames of the traceback are cleared, so that a loader's workers end
    here: a notebook keeps the traceback, and a worker forked later would inherit the iterator.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + more, hard))
    try:
        yield
    except Exception as error:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        _clear_frames(error)
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


@contextmanager
def stderr_of_workers() -> Iterator[list[str]]:
    """Collect the output of this process and its workers to file descriptor 2 (stderr).

    The list is filled when the block ends.
    """
    lines: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            lines += filter(None, (_stable(line).strip(" \n\0") for line in file))


def killed(signum: int, method: str = "fork") -> str:
    """Return PyTorch's exception and its cause when a worker is killed by `signum`."""
    loader = DataLoader(Deadly(signum), num_workers=1, multiprocessing_context=method)
    try:
        for _ in loader:
            pass
    except RuntimeError as error:
        message = f"{error} {error.__cause__ or ''}"
        _release(error)
    else:
        raise RuntimeError(f"the worker survived signal {signal.Signals(signum).name}")
    patterns = (r"killed by signal: [^.]*\.", "exited unexpectedly", "(?s).*")
    return next(match[0] for match in (re.search(p, message) for p in patterns) if match)
