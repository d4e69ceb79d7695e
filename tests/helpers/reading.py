"""Provide functions for worker processes, importable with the spawn start method."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from helpers.demos.data_loading import SECONDS, _say


def count_wrong(samples: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the counts of samples and of wrong ones, x not filled with y: int64 of shape (2,)."""
    return torch.tensor([len(samples), sum(bool((x != y).any()) for x, y in samples)])


def read_all(dataset: Dataset, method: str, workers: int = 2) -> str:
    """Read a dataset of `(x, y)`, x filled with y, through workers started by `method`.

    Returns:
        The number of samples and the number of wrong ones, or the exception.
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
