"""Load scikit-learn's handwritten digits as tensors, without a download.

Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from helpers import checks

if TYPE_CHECKING:
    from torch.utils.data import TensorDataset


def load(classes: Iterable[int] = range(10)) -> tuple[Tensor, Tensor]:
    """Return the images and labels of the 1797 digits that belong to `classes`, in dataset order.

    Returns:
        The images, float32 of shape (N, 1, 8, 8) in [0, 1]; and the labels, int64 of shape (N,),
        numbered from 0 in the order of `classes`.

    Raises:
        TypeError: `classes` is not a list of ints.
        ValueError: `classes` is empty, repeats a class, or contains one that is not 0 to 9.
    """
    if not isinstance(classes, Iterable):
        raise TypeError(f"classes must be a list of digits, got {type(classes).__name__}")
    digits = [checks.integer("each of classes", digit) for digit in classes]
    if not digits or len(set(digits)) < len(digits) or not set(digits) <= set(range(10)):
        raise ValueError(f"classes must be different digits from 0 to 9, got {digits}")
    x, y = _all()
    labels = torch.full((10,), -1)
    labels[digits] = torch.arange(len(digits))
    y = labels[y]
    return x[y >= 0], y[y >= 0]


def split(validation: int = 360) -> tuple[TensorDataset, TensorDataset]:
    """Return all digits as a training and a validation set, shuffled in the same way each time.

    Args:
        validation: size of the validation set; the other samples are for training.

    Returns:
        Two datasets of (image, label): float32 of shape (1, 8, 8) in [0, 1], and an int64 scalar
        from 0 to 9. `.tensors` contains all images and all labels of a dataset.

    Raises:
        TypeError: `validation` is not an int.
        ValueError: one of the sets would be empty.
    """
    from torch.utils.data import TensorDataset

    x, y = load()
    validation = checks.integer("validation", validation)
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
