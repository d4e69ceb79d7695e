"""Helpers of the chapter "Load data with workers · DataLoader".

A dataset over an HDF5 file that worker processes can use; what a read fetches, what cannot go to
a worker, how much shared memory a loader needs.

Sources: `torch.utils.data`, https://pytorch.org/docs/stable/data.html and h5py,
https://docs.h5py.org/en/stable/high/file.html
"""

from __future__ import annotations

import io
import operator
import os
import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
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


def _tensor(value: Any) -> Any:
    """A tensor of what HDF5 returned, if it holds numbers; of big-endian ones, too."""
    if getattr(value, "dtype", np.dtype(object)).kind not in "biufc":
        return value
    value = np.asarray(value)
    return torch.as_tensor(value.astype(value.dtype.newbyteorder("="), copy=False))


class H5Dataset(Dataset):
    """Samples of an HDF5 file, for any number of workers and any start method.

    The file is checked and closed again in `__init__`. Every process opens it for itself, at its
    first sample; a handle that came along through a fork is closed there, never read from.
    (To HDF5, all handles of a process on one file are one: close others before you fork.)
    A sample of a file that has become shorter since then is an `OSError`.
    Numbers become tensors of their own dtype; strings stay as they are.

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
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        values = [self.file[key][index % len(self)] for key in self.keys]
        # HDF5 reads zeros behind the end of a file that was cut short after it had been opened.
        if (size := os.fstat(self.file.id.get_vfd_handle()).st_size) < self._bytes:
            raise OSError(f"{self.path} was cut short: it had {self._bytes} bytes, now {size}")
        sample = tuple(map(_tensor, values))
        return sample if self.transform is None else self.transform(sample)


class _Recorder(io.FileIO):
    """A file that notes where it is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.offsets: list[int] = []

    def readinto(self, buffer: Any) -> int:
        self.offsets.append(self.tell())
        return super().readinto(buffer)


def _fetched(path: Path, key: str, indices: Iterable[int], cache: int) -> int:
    """How many chunks are read from disk for these rows; one that is read again counts again."""
    import h5py

    with (
        _Recorder(path) as recorder,
        h5py.File(recorder, "r", rdcc_nbytes=cache, rdcc_nslots=10007) as file,
    ):
        data = file[key]
        if data.chunks is None:
            raise ValueError(f"{key} of {path} is not stored in chunks")
        count = data.id.get_num_chunks()
        infos = (data.id.get_chunk_info(i) for i in range(count))
        chunks = sorted((info.byte_offset, info.size) for info in infos)
        starts = [start for start, _ in chunks]
        fetched = 0
        for index in indices:
            recorder.offsets.clear()
            data[index]
            hits = {(bisect_right(starts, offset) - 1, offset) for offset in recorder.offsets}
            fetched += len({hit for hit, at in hits if hit >= 0 and at < sum(chunks[hit])})
        return fetched


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
    fetched = _fetched(Path(path), key, indices, cache)
    with h5py.File(path, "r") as file:
        data = file[key]
        chunk, row = (torch.Size(s).numel() for s in (data.chunks, data.shape[1:]))
    return {"chunks": fetched, "unpacked": round(fetched * chunk / (row * len(indices)), 1)}


def cannot_travel(dataset: Any) -> list[str]:
    """The attributes of `dataset` that cannot be pickled for a spawned or forkserver worker.

    What `__getstate__` leaves out is not counted. Locks and queues of `multiprocessing` are
    named, although a worker may receive them. If the attributes are fine and the dataset is not,
    it is named by its class, such as `"list"`.
    """
    if _pickles(dataset):
        return []
    state = getattr(dataset, "__getstate__", lambda: vars(dataset))()
    parts = state if isinstance(state, tuple) else (state,)  # with __slots__ there are two
    found = [
        name
        for part in parts
        if isinstance(part, Mapping)
        for name, value in part.items()
        if not _pickles(value)
    ]
    return found or [type(dataset).__name__]


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def fresh_rng(worker: int) -> None:
    """A `worker_init_fn`: give the worker's dataset a generator of its own.

    Its seed is the one PyTorch chose for this worker and this epoch.
    """
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
