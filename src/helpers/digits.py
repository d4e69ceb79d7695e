"""Scikit-learn's handwritten digits as tensors; nothing is downloaded.

Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset


def load(classes: Iterable[int] = range(10)) -> tuple[Tensor, Tensor]:
    """The 1797 digits, or those of some `classes`, in the order of the data set.

    Returns:
        The images, float32 of shape (N, 1, 8, 8) in [0, 1]; and the labels, int64 of shape (N,),
        numbered from 0 in the order of `classes`.

    Raises:
        ValueError: a class is not one of 0 to 9, or there is none, or one is named twice.
    """
    wanted = list(classes)
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(range(10)):
        raise ValueError(f"classes must be different digits from 0 to 9, got {wanted}")
    x, y = _all()
    labels = torch.full((10,), -1)
    labels[wanted] = torch.arange(len(wanted))
    y = labels[y]
    return x[y >= 0], y[y >= 0]


def split(validation: int = 360) -> tuple[TensorDataset, TensorDataset]:
    """All digits, shuffled in the same way each time, as a training and a validation set.

    Args:
        validation: how many of the 1797 samples go to the second set.

    Returns:
        Two sets of pairs: an image, float32 of shape (1, 8, 8) in [0, 1], and its label, an int64
        from 0 to 9. `.tensors` holds all images and all labels of a set.

    Raises:
        ValueError: one of the sets would be empty.
    """
    from torch.utils.data import TensorDataset

    x, y = load()
    if not 0 < validation < len(x):
        raise ValueError(f"validation must be from 1 to {len(x) - 1}, got {validation}")
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    parts = order[validation:], order[:validation]
    train, valid = (TensorDataset(x[part], y[part]) for part in parts)
    return train, valid


@cache
def _all() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).div(16).unsqueeze(1)
    return x, torch.tensor(data.target, dtype=torch.int64)
