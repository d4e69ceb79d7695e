"""Helpers of the chapter "Load data with workers".

A dataset over an HDF5 file that worker processes can use, and small datasets that show one fact
each: what a worker starts with, how many there are, what they share, how they die. They live in
this file because a worker has to import them.

Sources: `torch.utils.data`, https://pytorch.org/docs/stable/data.html and h5py,
https://docs.h5py.org/en/stable/high/file.html
"""

from __future__ import annotations

import io
import os
import pickle
import random
import re
import signal
import sys
import tempfile
import time
import warnings
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    import h5py
    from matplotlib.figure import Figure

SECONDS = 60  # no worker is waited for longer than this

# ---------------------------------------------------------------- HDF5


def _open(path: Path) -> h5py.File:
    import h5py

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise OSError(f"{path} is no complete HDF5 file: {error}") from None


class H5Dataset(Dataset):
    """Samples of an HDF5 file, for any number of workers and any start method.

    The file is checked and closed again in `__init__`. Every process opens it for itself, at its
    first sample; a handle that came along through a fork is closed there, never read from.
    (To HDF5, all handles of a process on one file are one: close others before you fork.)
    A sample of a file that has become shorter since then is an `OSError`.

    Args:
        path: the HDF5 file.
        keys: names of datasets with one row per sample, or a mapping from these names to the
            shape a sample must have.
        transform: called with the tuple of tensors; returns the sample.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: the file is truncated, or is no HDF5 file.
        ValueError: a dataset is missing, has another shape, or another number of rows.
    """

    def __init__(
        self,
        path: str | Path,
        keys: Sequence[str] | Mapping[str, tuple[int, ...]],
        transform: Callable[[tuple], Any] | None = None,
    ) -> None:
        self.path, self.keys, self.transform = Path(path), tuple(keys), transform
        self._file, self._owner = None, 0
        if isinstance(keys, str) or not self.keys:
            raise ValueError(f"keys must name at least one dataset in a sequence, got {keys!r}")
        shapes = keys if isinstance(keys, Mapping) else {}
        with _open(self.path) as file:
            self._length = self._check(file, shapes)
            self._bytes = os.fstat(file.id.get_vfd_handle()).st_size

    def _check(self, file: h5py.File, shapes: Mapping[str, tuple[int, ...]]) -> int:
        import h5py

        for key in self.keys:
            if not isinstance(file.get(key), h5py.Dataset):
                raise ValueError(f"{self.path} has no dataset {key!r}; it has {', '.join(file)}")
            shape = file[key].shape
            if not shape:
                raise ValueError(f"{key} of {self.path} is a single value, not one per sample")
            if key in shapes and shape[1:] != tuple(shapes[key]):
                raise ValueError(
                    f"{key} of {self.path} holds samples of shape {shape[1:]}, "
                    f"expected {tuple(shapes[key])}"
                )
        rows = {key: len(file[key]) for key in self.keys}
        if len(set(rows.values())) > 1:
            raise ValueError(f"{self.path} has different numbers of rows: {rows}")
        return rows[self.keys[0]]

    @property
    def file(self) -> h5py.File:
        """The file, opened by this process."""
        if self._owner != os.getpid():
            self.close()  # inherited through a fork
        if self._file is None:
            self._file, self._owner = _open(self.path), os.getpid()
        return self._file

    def close(self) -> None:
        """Close the file; the next sample opens it again."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        values = [self.file[key][int(index) % len(self)] for key in self.keys]
        # HDF5 reads zeros behind the end of a file that was cut short after it had been opened.
        if (size := os.fstat(self.file.id.get_vfd_handle()).st_size) < self._bytes:
            raise OSError(f"{self.path} was cut short: it had {self._bytes} bytes, now {size}")
        sample = tuple(torch.as_tensor(v) if hasattr(v, "dtype") else v for v in values)
        return sample if self.transform is None else self.transform(sample)


class EagerH5(Dataset):
    """What many write: the file is opened in `__init__` and the open handle goes to the workers."""

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


def shares_position(dataset: EagerH5 | H5Dataset) -> bool:
    """Whether a forked worker reads through the same open file as this process.

    The child reads a sample and moves the position in the file that it reads from; then the
    position is looked up here. Two that open the file for themselves have a position each.
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
            raise RuntimeError(f"the child did not answer within {SECONDS} s")
    finally:
        child.kill()
    return os.lseek(here, 0, os.SEEK_CUR) == 123


class _Recorder(io.FileIO):
    """A file that notes where it is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.offsets: list[int] = []

    def readinto(self, buffer: Any) -> int:
        self.offsets.append(self.tell())
        return super().readinto(buffer)


def _touched(path: Path, key: str, indices: Iterable[int], cache: int) -> Iterator[list[tuple]]:
    """For each index, the offsets (in rows and pixels) of the chunks that were read from disk."""
    import h5py

    with (
        _Recorder(path) as recorder,
        h5py.File(recorder, "r", rdcc_nbytes=cache, rdcc_nslots=10007) as file,
    ):
        data = file[key]
        if data.chunks is None:
            raise ValueError(f"{key} of {path} is not stored in chunks")
        count = data.id.get_num_chunks()
        chunks = sorted(
            (info.byte_offset, info.size, info.chunk_offset)
            for info in (data.id.get_chunk_info(i) for i in range(count))
        )
        starts = [start for start, _, _ in chunks]
        for index in indices:
            recorder.offsets.clear()
            data[index]
            hits = {
                (hit, offset)
                for offset in recorder.offsets
                if (hit := bisect_right(starts, offset) - 1) >= 0
            }
            inside = {hit for hit, offset in hits if offset < starts[hit] + chunks[hit][1]}
            yield [chunks[hit][2] for hit in sorted(inside)]


def chunk_reads(path: str | Path, key: str, indices: Sequence[int], cache: int = 0) -> dict:
    """Read rows one by one and count the chunks that HDF5 fetched from the file.

    Args:
        path: the HDF5 file.
        key: a chunked dataset in it.
        indices: the rows, in the order in which they are read.
        cache: bytes of HDF5's chunk cache; 0 switches it off.

    Returns:
        `chunks`: how many were fetched, one that is fetched again counts again.
        `unpacked`: bytes of these chunks, unpacked, per byte asked for.

    Raises:
        ValueError: `indices` is empty, or the dataset is not chunked.
    """
    import h5py

    if len(indices) == 0:
        raise ValueError("chunk_reads needs at least one index, got none")
    fetched = sum(len(hits) for hits in _touched(Path(path), key, indices, cache))
    with h5py.File(path, "r") as file:
        data = file[key]
        chunk, row = (torch.Size(s).numel() for s in (data.chunks, data.shape[1:]))
    return {"chunks": fetched, "unpacked": round(fetched * chunk / (row * len(indices)), 1)}


def draw_chunks(paths: Mapping[str, Path], key: str, index: int) -> Figure:
    """Draw how each file cuts its rows into chunks, and which of them reading row `index` fetches.

    Raises:
        ValueError: `paths` is empty.
    """
    import h5py
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    if not paths:
        raise ValueError("draw_chunks needs at least one file, got none")
    figure, axes = plt.subplots(len(paths), 1, figsize=(8, 1.0 * len(paths)), squeeze=False)
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
                    facecolor="#0a6b7d" if hit else "white",
                    edgecolor="#999",
                    linewidth=0.6,
                    hatch="///" if hit else None,
                )
                axis.add_patch(box)
        axis.axvline(index + 0.5, ymax=1.06, color="#c2410c", linewidth=1, clip_on=False)
        axis.set(xlim=(0, rows), ylim=(0, 1), yticks=[])
        fetched = f"{len(hits)} chunk{'s' * (len(hits) != 1)} fetched"
        axis.set_title(f"{title}: {fetched}", loc="left", fontsize=9)
        axis.tick_params(labelsize=8, labelbottom=axis is axes[-1, 0])
    axes[-1, 0].set_xlabel(f"images (the line: image {index})", fontsize=9)
    figure.tight_layout(h_pad=0.4)
    return figure


# ---------------------------------------------------------------- what comes of a loader


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


def cannot_travel(dataset: Any) -> list[str]:
    """The attributes of `dataset` that cannot be sent to a spawned or forkserver worker.

    What `__getstate__` leaves out is not counted.
    """
    found = []
    for name, value in dataset.__getstate__().items():
        try:
            pickle.dumps(value)
        except Exception:  # noqa: PERF203
            found.append(name)
    return found


# ---------------------------------------------------------------- datasets of one fact


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


def fresh_rng(worker: int) -> None:
    """A `worker_init_fn`: give the worker's dataset a generator of its own.

    Its seed is the one PyTorch chose for this worker and this epoch.
    """
    import numpy as np

    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


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


# ---------------------------------------------------------------- memory


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


def tensor_bytes(batch: Any) -> int:
    """Bytes of all tensors in a batch: a tensor, or dicts, lists and tuples of them."""
    if isinstance(batch, Tensor):
        return batch.nbytes
    if isinstance(batch, Mapping):
        return sum(tensor_bytes(value) for value in batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(tensor_bytes(value) for value in batch)
    return 0


def shared_memory_needed(batch: Any, workers: int, prefetch_factor: int = 2) -> int:
    """Bytes of shared memory that a loader may fill: the batches ahead and the one in your hands.

    Raises:
        ValueError: `workers` is negative, or `prefetch_factor` is below 1.
    """
    if workers < 0 or prefetch_factor < 1:
        raise ValueError(
            "expected workers >= 0 and prefetch_factor >= 1, "
            f"got workers={workers}, prefetch_factor={prefetch_factor}"
        )
    return (workers * prefetch_factor + 1) * tensor_bytes(batch) if workers else 0


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


# ---------------------------------------------------------------- exercises


def check_share(answer: Callable[[int, Any], Iterable[int]]) -> Verdict:
    """Check `answer(n, info)`: the indices below `n` that this worker reads, one block in a row.

    `info` is what `get_worker_info()` returns: None, or an object with `id` and `num_workers`.
    """

    def ask(f, n, workers):
        shares = [list(f(n, SimpleNamespace(id=i, num_workers=workers))) for i in range(workers)]
        for share in shares:
            assert all(isinstance(i, int) for i in share), "expected indices, plain integers"
        return shares

    def some():
        workers = int(torch.randint(2, 6, ()))
        return int(torch.randint(1, 6, ())) * workers + int(torch.randint(1, workers, ())), workers

    def alone(f):
        n, _ = some()
        share = f(n, None)
        assert share is not None, "expected indices, got None"
        assert list(share) == list(range(n)), "without workers, everything must come, in order"

    def once(f):
        n, workers = some()
        seen = [i for share in ask(f, n, workers) for i in share]
        assert len(seen) == len(set(seen)), f"{workers} workers read some index twice"
        assert set(seen) == set(range(n)), f"{workers} workers leave out some of {n} indices"

    def blocks(f):
        n, workers = some()
        for share in ask(f, n, workers):
            assert share == sorted(share), "a worker must go forwards"
            assert not share or share[-1] - share[0] == len(share) - 1, "a share is not one block"

    def even(f):
        for n, workers in (some(), (2, 5)):
            sizes = [len(share) for share in ask(f, n, workers)]
            assert sum(sizes) == n, f"{workers} workers do not read {n} indices in all"
            assert max(sizes) - min(sizes) <= 1, f"shares of {sizes} differ by more than one"

    return verdict(answer, [alone, once, blocks, even])


def check_pad(answer: Callable[[list[Tensor]], tuple[Tensor, Tensor]]) -> Verdict:
    """Check `answer(samples)`: 1-D tensors padded with 0 to (N, T), and where they are real.

    Returns the padded tensor, of the samples' dtype, and a bool tensor (N, T), True at real
    values.
    """

    def batch():
        lengths = torch.randperm(6)[:4] + 1
        return [torch.randint(-1, 2, (int(n),)).float() for n in lengths]

    def both(f, samples):
        got = f(samples)
        pair = isinstance(got, (tuple, list)) and len(got) == 2
        assert pair and all(isinstance(t, Tensor) for t in got), "expected a pair of tensors"
        return got

    def padded(f):
        samples = batch()
        values, _ = both(f, samples)
        shape = (len(samples), max(map(len, samples)))
        assert values.shape == shape, f"expected values of shape {shape}, got {tuple(values.shape)}"
        for row, sample in zip(values, samples, strict=True):
            assert torch.equal(row[: len(sample)], sample), "a sample is not at its place"
            assert not row[len(sample) :].any(), "the padding is not 0"

    def mask(f):
        samples = batch()
        samples[0][:] = 0  # real zeros are not padding
        values, real = both(f, samples)
        assert real.dtype == torch.bool, f"expected a mask of bool, got {real.dtype}"
        assert real.shape == values.shape, "the mask must have the shape of the values"
        lengths = torch.tensor([len(sample) for sample in samples])
        want = torch.arange(values.shape[1]) < lengths[:, None]
        assert not torch.equal(real, ~want), "the mask is True at the padding: turn it round"
        assert torch.equal(real, want), "the mask is wrong: a real 0 is not padding"

    def types(f):
        samples = [torch.arange(3), torch.arange(1)]
        values, _ = both(f, samples)
        assert values.dtype == torch.int64, f"int64 samples became {values.dtype}"

    return verdict(answer, [padded, mask, types])


def check_noise(answer: Callable[[int, int, int], Tensor]) -> Verdict:
    """Check `answer(seed, epoch, index)`: random float32 (3,) that depends on these three alone."""

    def draw():
        return [int(i) for i in torch.randint(1, 1000, (3,))]

    def ask(f, *args):
        got = f(*args)
        assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
        assert got.shape == (3,), f"expected shape (3,), got {tuple(got.shape)}"
        assert got.dtype == torch.float32, f"expected float32, got {got.dtype}"
        return got

    def same(f):
        args = draw()
        first = ask(f, *args)
        torch.rand(1)
        assert torch.equal(first, ask(f, *args)), "the same sample got other noise the second time"

    def different(f):
        seed, epoch, index = draw()
        base = ask(f, seed, epoch, index)
        others = {
            "seed": (seed + 1, epoch, index),
            "epoch": (seed, epoch + 1, index),
            "index": (seed, epoch, index + 1),
        }
        for name, args in others.items():
            assert not torch.equal(base, ask(f, *args)), f"another {name} gives the same noise"

    def apart(f):
        seed, epoch, index = draw()
        index += 1000  # so that exchanging the two changes something
        args, base = (seed, epoch, index), ask(f, seed, epoch, index)
        for other in (
            (seed, epoch - 1, index + 1),
            (seed + 1, epoch - 1, index),
            (seed + 1, epoch, index - 1),
            (seed, index, epoch),
        ):
            equal = torch.equal(base, ask(f, *other))
            assert not equal, f"(seed, epoch, index) {args} and {other} get the same noise"

    def quiet(f):
        args = draw()
        state = torch.random.get_rng_state()
        ask(f, *args)
        kept = torch.equal(state, torch.random.get_rng_state())
        torch.random.set_rng_state(state)
        assert kept, "the global generator was touched: everything drawn later changes"

    return verdict(answer, [quiet, same, different, apart])
