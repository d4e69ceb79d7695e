"""When workers make loading faster: samples per second with workers, over those without, as ratios.

Epochs with and without workers are timed in turn, so a busy machine slows both; the best epochs are
compared. The workers' start is not counted. A ratio of 1 means that the workers gain nothing.
The last row waits and computes: it is the nearest to reading pictures from a network disk.

    python benchmarks/data_loading.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset

from helpers.data_loading import H5Dataset
from helpers.demos.data_loading import Waiting, Working, gain

WORKERS = (1, 2, 4)
IMAGES, BATCH = 128, 8


class Both(Dataset):
    """Waits for a disk, then unpacks."""

    def __init__(self) -> None:
        self.waiting, self.working = Waiting(0.003, IMAGES), Working(300_000, IMAGES)

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> int:
        self.waiting[index]
        return self.working[index]


class OpenPerSample(H5Dataset):
    """Opens the file for every sample: simple, correct, and what it costs."""

    def __getitem__(self, index: int):
        try:
            return super().__getitem__(index)
        finally:
            self.close()


def write(path: Path, images: int, per_chunk: int) -> Path:
    """Compressed images of 3 x 128 x 128, blocks of 4 x 4 pixels."""
    import h5py
    import numpy as np

    small = np.random.default_rng(0).integers(0, 256, (images, 3, 32, 32), dtype="uint8")
    data = small.repeat(4, axis=2).repeat(4, axis=3)
    with h5py.File(path, "w") as file:
        chunks = (per_chunk, *data.shape[1:])
        file.create_dataset("x", data=data, chunks=chunks, compression="gzip")
    return path


def seconds(dataset: Dataset) -> float:
    """The best of three passes over `dataset`, in this process, in random order."""
    best = float("inf")
    for _ in range(3):
        order = torch.randperm(len(dataset)).tolist()
        begun = time.perf_counter()
        for index in order:
            dataset[index]
        best = min(best, time.perf_counter() - begun)
    return best


def main() -> int:
    """Print a line per kind of sample and one per way to store it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{cores} cores; samples per second, as a multiple of no workers")
    print(f"{'':26}" + "".join(f"{n:>3} worker{'s' * (n > 1):1}" for n in WORKERS))
    with tempfile.TemporaryDirectory() as folder:
        single = write(Path(folder, "1.h5"), IMAGES, 1)
        kinds = {
            "in memory": torch.utils.data.TensorDataset(torch.arange(2000)),
            "HDF5, one image a chunk": H5Dataset(single, ["x"]),
            "unpacking": Working(1_000_000, IMAGES),
            "waiting": Waiting(0.005, IMAGES),
            "waiting and unpacking": Both(),
        }
        for name, dataset in kinds.items():
            row = [gain(dataset, n, BATCH) for n in WORKERS]
            print(f"{name:26}" + "".join(f"{ratio:11.2f}" for ratio in row))
        base = seconds(H5Dataset(single, ["x"]))
        print("\ntime per image in random order, without workers, as a multiple of the first")
        print(f"{'one image a chunk':26}{1:11.2f}")
        ways = {
            "the same, opened each time": OpenPerSample(single, ["x"]),
            "16 images a chunk": H5Dataset(write(Path(folder, "16.h5"), IMAGES, 16), ["x"]),
            "64 images a chunk": H5Dataset(write(Path(folder, "64.h5"), IMAGES, 64), ["x"]),
        }
        for name, dataset in ways.items():
            print(f"{name:26}{seconds(dataset) / base:11.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
