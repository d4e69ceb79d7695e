"""Helpers of the chapter on DataLoader: an HDF5 dataset for workers, chunk reads, pickling, memory.

Sources: `torch.utils.data`, https://pytorch.org/docs/stable/data.html and h5py,
https://docs.h5py.org/en/stable/high/file.html
"""

from __future__ import annotations

import io
import operator
import os
import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, get_worker_info

from helpers import checks
from helpers.sparse import dense_parts

if TYPE_CHECKING:
    import h5py

SECONDS = 60  # timeout for a worker


def _open(path: Path) -> h5py.File:
    import h5py

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise OSError(f"{path} is not a complete HDF5 file: {error}") from None


def _tensor(value: Any) -> Any:
    """Return a numeric HDF5 value of any byte order as a tensor, and other values unchanged."""
    if getattr(value, "dtype", np.dtype(object)).kind not in "biufc":
        return value
    value = np.asarray(value)
    return torch.as_tensor(value.astype(value.dtype.newbyteorder("="), copy=False))


class H5Dataset(Dataset):
    """Samples of an HDF5 file, for any number of workers and any start method.

    `__init__` checks the file and closes it again. Each process opens it at its first sample; a
    handle inherited through a fork is closed and never read from. (HDF5 treats all handles of a
    process on one file as one: close other handles before you fork.) Numbers become tensors of
    their own dtype; strings are returned as they are. A sample raises `OSError` if the file has
    been truncated since `__init__`.

    Args:
        path: the HDF5 file.
        keys: names of datasets with one row per sample, or a mapping from these names to the
            shape a sample must have.
        transform: called with the tuple of tensors; returns the sample.

    Raises:
        TypeError: a key is not a str, a shape is not a tuple or list, or `transform` cannot be
            called.
        FileNotFoundError: the file does not exist.
        OSError: the file is truncated, or not an HDF5 file.
        ValueError: a dataset is missing or is a single value, or shapes or numbers of rows differ.
    """

    def __init__(
        self,
        path: str | Path,
        keys: Sequence[str] | Mapping[str, tuple[int, ...]],
        transform: Callable[[tuple], Any] | None = None,
    ) -> None:
        if transform is not None:
            checks.function("transform", transform)
        if isinstance(keys, str) or not isinstance(keys, Sequence | Mapping) or not keys:
            raise ValueError(f"keys must name at least one dataset in a sequence, got {keys!r}")
        self.keys = tuple(checks.text("each of keys", key) for key in keys)
        self.path, self.transform, self._file, self._owner = Path(path), transform, None, 0
        shapes = keys if isinstance(keys, Mapping) else {}
        for key, shape in shapes.items():
            if not isinstance(shape, tuple | list):
                raise TypeError(f"the shape of {key} must be a tuple such as (3,), got {shape!r}")
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
                    f"{key} of {self.path} contains samples of shape {shape[1:]}, "
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
        # HDF5 returns zeros for the missing part of a file that was truncated after opening.
        if (size := os.fstat(self.file.id.get_vfd_handle()).st_size) < self._bytes:
            raise OSError(f"{self.path} was truncated: it had {self._bytes} bytes, now {size}")
        sample = tuple(map(_tensor, values))
        return sample if self.transform is None else self.transform(sample)


class _Recorder(io.FileIO):
    """File that records the offset of each read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.offsets: list[int] = []

    def readinto(self, buffer: Any) -> int:
        self.offsets.append(self.tell())
        return super().readinto(buffer)


def _fetched(path: Path, key: str, indices: Iterable[int], cache: int) -> int:
    """Return how many chunks are read from disk for these rows, counting repeated reads again."""
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
    """Read rows one by one and count the chunks that HDF5 reads from the file.

    Args:
        path: the HDF5 file.
        key: a chunked dataset in it.
        indices: the rows, in the order in which they are read.
        cache: bytes of HDF5's chunk cache; 0 disables it.

    Returns:
        `chunks`: number of chunks read, repeated reads included.
        `unpacked`: uncompressed bytes of these chunks per byte requested.

    Raises:
        FileNotFoundError, KeyError, IndexError: there is no such file, dataset or row.
        TypeError: `key` is not a str, `indices` no list of ints, or `cache` not an int.
        ValueError: `indices` is empty, `cache` is negative, or the dataset is not chunked.
    """
    import h5py

    checks.text("key", key), checks.integer("cache", cache, 0)
    if not isinstance(indices, Iterable):
        raise TypeError(f"indices must be a list of rows, got {type(indices).__name__}")
    indices = [checks.integer("each of indices", index) for index in indices]
    if len(indices) == 0:
        raise ValueError("chunk_reads needs at least one index, got none")
    fetched = _fetched(Path(path), key, indices, cache)
    with h5py.File(path, "r") as file:
        data = file[key]
        chunk, row = (torch.Size(s).numel() for s in (data.chunks, data.shape[1:]))
    return {"chunks": fetched, "unpacked": round(fetched * chunk / (row * len(indices)), 1)}


def unpicklable(dataset: Any) -> list[str]:
    """Return the attributes of `dataset` that cannot be pickled for a spawned or forkserver worker.

    Attributes that `__getstate__` omits are not listed. Locks and queues of `multiprocessing` are
    listed, although a worker may receive them. If every attribute can be pickled and the dataset
    cannot, its class is listed, such as `"list"`.
    """
    if _pickles(dataset):
        return []
    state = getattr(dataset, "__getstate__", lambda: vars(dataset))()
    parts = state if isinstance(state, tuple) else (state,)  # with __slots__: (dict, slots)
    names = [
        name
        for part in parts
        if isinstance(part, Mapping)
        for name, value in part.items()
        if not _pickles(value)
    ]
    return names or [type(dataset).__name__]


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def fresh_rng(worker: int) -> None:
    """Give the dataset of a worker its own NumPy generator; pass this as `worker_init_fn`.

    It is seeded with the seed that PyTorch chose when this worker started. If the worker has a
    `Subset`, the dataset in it gets the generator.

    Raises:
        ValueError: it is called outside of a worker.
    """
    info = get_worker_info()
    if info is None:
        raise ValueError("expected a call in a worker: pass fresh_rng as worker_init_fn")
    dataset = info.dataset
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    dataset.rng = np.random.default_rng(info.seed)


def tensor_bytes(batch: Any) -> int:
    """Return the bytes that a worker writes to shared memory for a batch.

    A batch is a tensor, or dicts, lists, tuples and dataclasses of them; other objects count 0.
    Each storage counts once and as a whole: for a view, the memory that it is a view of.
    """
    storages = (tensor.untyped_storage() for tensor in _tensors(batch))
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def _tensors(batch: Any) -> Iterator[Tensor]:
    """Yield the dense tensors in a batch."""
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    elif is_dataclass(batch) and not isinstance(batch, type):
        batch = tuple(getattr(batch, field.name) for field in fields(batch))
    if isinstance(batch, Tensor):
        yield from dense_parts(batch)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from _tensors(value)


def shared_memory_needed(batch: Any, workers: int, prefetch_factor: int | None = 2) -> int:
    """Return the bytes of shared memory that a loader may use: prefetched batches plus one.

    Without workers none is used; a loader's `prefetch_factor` is then None.

    Raises:
        TypeError: `workers` or `prefetch_factor` is not an integer.
        ValueError: `workers` is negative, or `prefetch_factor` is below 1.
    """
    workers = checks.integer("workers", workers)
    if workers == 0 and prefetch_factor is None:
        return 0
    prefetch_factor = checks.integer("prefetch_factor", prefetch_factor)
    if workers < 0 or prefetch_factor < 1:
        raise ValueError(
            "expected workers >= 0 and prefetch_factor >= 1, "
            f"got workers={workers}, prefetch_factor={prefetch_factor}"
        )
    return (workers * prefetch_factor + 1) * tensor_bytes(batch) if workers else 0
