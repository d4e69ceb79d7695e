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
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

if TYPE_CHECKING:
    import h5py

SECONDS = 60  # no worker is waited for longer than this


def _open(path: Path) -> h5py.File:
    import h5py

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise OSError(f"{path} is not a complete HDF5 file: {error}") from None


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


def _move_position(dataset: Any, queue: Any, position: int) -> None:
    dataset[0]
    os.lseek(dataset.file.id.get_vfd_handle(), position, os.SEEK_SET)
    queue.put(True)


def shares_position(dataset: Dataset) -> bool:
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


def fresh_rng(worker: int) -> None:
    """A `worker_init_fn`: give the worker's dataset a generator of its own.

    Its seed is the one PyTorch chose for this worker and this epoch.
    """
    import numpy as np

    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


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
