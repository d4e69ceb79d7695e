"""Check arguments that must be a single number, or a tensor."""

from __future__ import annotations

from numbers import Real
from typing import Any

from torch import Tensor


def tensor(name: str, value: Any) -> Tensor:
    """Return a tensor unchanged.

    Raises:
        TypeError: `value` is something else, such as a NumPy array; the message begins with `name`.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    return value


def number(name: str, value: float) -> float:
    """Return a real number or a 0-dimensional tensor unchanged.

    Raises:
        TypeError: `value` is something else; the message begins with `name`.
    """
    if isinstance(value, Tensor) and value.dim():
        raise TypeError(f"{name} must be a number, got a tensor of shape {tuple(value.shape)}")
    if not isinstance(value, Real | Tensor):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return value


def fraction(name: str, value: float) -> float:
    """Return a number from 0 to 1 unchanged.

    Raises:
        TypeError: `value` is not a number.
        ValueError: `value` is not from 0 to 1.
    """
    if not 0 <= number(name, value) <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value}")
    return value
