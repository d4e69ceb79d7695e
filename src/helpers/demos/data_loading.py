"""Figures and demonstrations of the chapter "Load data with workers"."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from helpers.data_loading import SECONDS, _open, _touched
from helpers.figures import COLORS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class EagerH5(Dataset):
    """What many write: the file is opened in `__init__` and the open handle goes to the workers."""

    def __init__(self, path: str | Path, keys: Sequence[str]) -> None:
        self.keys, self.file = tuple(keys), _open(Path(path))

    def __len__(self) -> int:
        return len(self.file[self.keys[0]])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(torch.as_tensor(self.file[key][index]) for key in self.keys)


def draw_chunks(paths: Mapping[str, Path], key: str, index: int) -> Figure:
    """Draw how each file cuts its rows into chunks, and which of them reading row `index` fetches.

    Raises:
        ValueError: `paths` is empty.
    """
    import h5py
    from matplotlib.patches import Rectangle

    if not paths:
        raise ValueError("draw_chunks needs at least one file, got none")
    drawing, axes = figure(len(paths), 1, size=(8, 1.0 * len(paths)), squeeze=False)
    for axis, (title, path) in zip(axes[:, 0], paths.items(), strict=True):
        hits = next(_touched(Path(path), key, [index], 0))
        with h5py.File(path, "r") as file:
            rows, chunks, shape = len(file[key]), file[key].chunks, file[key].shape
        tiles = [
            (i, j) for i in range(0, shape[1], chunks[1]) for j in range(0, shape[2], chunks[2])
        ]
        for row in range(0, rows, chunks[0]):
            for level, (i, j) in enumerate(tiles):
                hit = (row, i, j) in hits
                box = Rectangle(
                    (row, level / len(tiles)),
                    chunks[0],
                    1 / len(tiles),
                    facecolor=COLORS["teal"] if hit else "white",
                    edgecolor=COLORS["grey"],
                    linewidth=0.6,
                    hatch="///" if hit else None,
                )
                axis.add_patch(box)
        axis.axvline(index + 0.5, ymax=1.06, color=COLORS["orange"], linewidth=1, clip_on=False)
        axis.set(xlim=(0, rows), ylim=(0, 1), yticks=[])
        fetched = f"{len(hits)} chunk{'s' * (len(hits) != 1)} fetched"
        axis.set_title(f"{title}: {fetched}", loc="left", fontsize=9)
        axis.tick_params(labelsize=8, labelbottom=axis is axes[-1, 0])
    axes[-1, 0].set_xlabel(f"images (the line: image {index})", fontsize=9)
    drawing.get_layout_engine().set(h_pad=0.4)
    return drawing


def outcome(loader: DataLoader) -> str:
    """Iterate over `loader` once: `"done"`, or the exception with the last line of its message.

    Names of shared memory files and process ids, which differ from run to run, become `…`.
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
    """Let go of the frames of a failed iterator, and so of its workers.

    Left to the garbage collector they take 5 seconds to end, and the next fork inherits them.
    """
    while error is not None:
        error.__traceback__, error = None, error.__cause__ or error.__context__


def _stable(text: str) -> str:
    text = re.sub(r"</?torch_[^>]*>", "<…>", text)
    text = re.sub(r"pid(?:\(s\))? \d+(?:, \d+)*", "pid …", text)
    return re.sub(r"^(?:\w+Error: )(?=unable to)", "", text, flags=re.M)


def count_wrong(samples: list[tuple[Tensor, Tensor]]) -> Tensor:
    """A `collate_fn`: int64 tensor (2,), how many samples, and how many whose x is not all y."""
    return torch.tensor([len(samples), sum(bool((x != y).any()) for x, y in samples)])


def read_all(dataset: Dataset, method: str, workers: int = 2) -> str:
    """Read a dataset of `(x, y)`, x filled with y, through workers started by `method`.

    Returns:
        How many samples came and how many were wrong, or the exception.
    """
    loader = DataLoader(
        dataset,
        batch_size=4,
        shuffle=True,
        num_workers=workers,
        collate_fn=count_wrong,
        multiprocessing_context=method,
        timeout=SECONDS,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions warn before they raise
            samples, wrong = sum(loader, torch.zeros(2, dtype=torch.int64)).tolist()
    except Exception as error:
        return _say(error)
    return f"{samples} samples, {wrong} wrong"


class Where(Dataset):
    """`samples` times the id of the process that made the sample, and the attribute `epoch`."""

    def __init__(self, samples: int = 4) -> None:
        self.samples, self.epoch = samples, 0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[int, int]:
        return os.getpid(), self.epoch


class Blank(Dataset):
    """`samples` black images of one shape and dtype."""

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, samples: int = 8
    ) -> None:
        self.shape, self.dtype, self.samples = tuple(shape), dtype, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Tensor:
        return torch.zeros(self.shape, dtype=self.dtype)


class Augmented(Dataset):
    """A random number per sample, as an augmentation would draw it.

    Args:
        source: `"numpy"`: `numpy.random`; `"torch"`: `torch.rand`; `"own"`: a NumPy generator
            made in `__init__`; `"index"`: a generator made for each sample from seed, epoch and
            index.
        samples: how many.
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
    """The numbers below `n`, one after the other; with `split`, each worker takes its share."""

    def __init__(self, n: int, split: bool = False) -> None:
        self.n, self.split = n, split

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if not self.split or info is None:
            return iter(range(self.n))
        return iter(range(info.id, self.n, info.num_workers))


class Waiting(Dataset):
    """Each sample waits, as for a disk or a network: `seconds` without work for the CPU."""

    def __init__(self, seconds: float = 0.01, samples: int = 32) -> None:
        self.seconds, self.samples = seconds, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds)
        return index


class Working(Dataset):
    """Each sample keeps one CPU core busy, as decoding does: it unpacks `size` bytes."""

    def __init__(self, size: int = 1_000_000, samples: int = 32) -> None:
        self.packed = zlib.compress(random.Random(0).randbytes(size), level=1)
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return zlib.crc32(zlib.decompress(self.packed))


class Deadly(Dataset):
    """A worker that asks for a sample is killed by `signum`, as by the system."""

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
    """How many times as many samples per second as without workers.

    Epochs with and without are timed in turn and the best ones compared. The workers stay, and
    their first epoch is not counted.

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
    """Bytes of memory that a forked worker copies while it only reads through `values`.

    Counted in page faults: a page that the parent shares is copied when the child writes to it,
    and counting references is writing.
    """
    from torch.multiprocessing import get_context

    context = get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_read_through, args=(values, queue))
    child.start()
    try:
        child.join(SECONDS)
        if queue.empty():
            raise RuntimeError(f"the child did not answer within {SECONDS} s")
        return queue.get() * os.sysconf("SC_PAGE_SIZE")
    finally:
        child.kill()


def small_files(worker: int) -> None:
    """A `worker_init_fn`: the worker can write no file larger than 1 MiB, shared memory included.

    It stands in for a full `/dev/shm`: shared memory is a file there.
    """
    import resource

    sys.stderr = sys.__stderr__  # file descriptor 2, not the notebook of the parent
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))


def stack_only(samples: list[Tensor]) -> Tensor:
    """A `collate_fn` that stacks and does nothing else."""
    return torch.stack(samples)


@contextmanager
def sharing(strategy: str) -> Iterator[None]:
    """Use another sharing strategy of `torch.multiprocessing` for a while."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    try:
        yield
    finally:
        torch.multiprocessing.set_sharing_strategy(before)


@contextmanager
def stderr_of_workers() -> Iterator[list[str]]:
    """Collect what this process and its workers write to the standard error (file descriptor 2).

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
    """What PyTorch says when a worker is killed by `signum`: the exception and its cause."""
    loader = DataLoader(Deadly(signum), num_workers=1, multiprocessing_context=method)
    try:
        for _ in loader:
            pass
    except RuntimeError as error:
        said = f"{error} {error.__cause__ or ''}"
        _release(error)
    else:
        raise RuntimeError(f"the worker outlived signal {signal.Signals(signum).name}")
    found = re.search(r"killed by signal: [^.]*\.", said)
    return found[0] if found else "exited unexpectedly" * ("exited unexpectedly" in said) or said
