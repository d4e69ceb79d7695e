"""Check arguments: each function returns a value of the right kind, or raises with its name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

# ---------------------------------------------------------------- tensors


def tensor(name: str, value: Any) -> Tensor:
    """Return a tensor unchanged.

    Raises:
        TypeError: `value` is something else, such as a NumPy array; the message begins with `name`.
    """
    return _instance(name, value, Tensor, "a tensor")


def floating(name: str, value: Any) -> Tensor:
    """Return a tensor of floating-point numbers unchanged.

    Raises:
        TypeError: `value` is something else, such as a tensor of integers.
    """
    if not tensor(name, value).is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {value.dtype}")
    return value


def filled(name: str, value: Any) -> Tensor:
    """Return a tensor with values unchanged.

    Raises:
        TypeError: `value` is something else, or on the meta device.
    """
    if tensor(name, value).is_meta:
        raise TypeError(f"{name} must be a tensor with values, got one on the meta device")
    return value


# ---------------------------------------------------------------- numbers


def number(name: str, value: float) -> float:
    """Return a real number or a 0-dimensional tensor unchanged.

    Raises:
        TypeError: `value` is something else; the message begins with `name`.
    """
    if isinstance(value, Tensor) and value.dim():
        raise TypeError(f"{name} must be a number, got a tensor of shape {tuple(value.shape)}")
    return _instance(name, value, Real | Tensor, "a number")


def finite(name: str, value: float) -> float:
    """Return a number that is neither nan nor infinite unchanged.

    Raises:
        TypeError: `value` is not a number.
        ValueError: `value` is nan or infinite.
    """
    if not -math.inf < number(name, value) < math.inf:
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def positive(name: str, value: float) -> float:
    """Return a number above 0 unchanged; it may be infinite.

    Raises:
        TypeError: `value` is not a number.
        ValueError: `value` is nan, or not above 0.
    """
    if not number(name, value) > 0:
        raise ValueError(f"{name} must be above 0, got {value}")
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


def integer(name: str, value: Any, least: int | None = None) -> int:
    """Return an integer as an int; it may be that of NumPy, or a tensor of one integer.

    Raises:
        TypeError: `value` is something else, such as 2.0 or True.
        ValueError: `value` is below `least`.
    """
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except (TypeError, RuntimeError):
        whole = None
    if whole is None:
        got = repr(value) if isinstance(value, Real | str) else _kind(value)
        raise TypeError(f"{name} must be an int, got {got}")
    if least is not None and whole < least:
        raise ValueError(f"{name} must be at least {least}, got {whole}")
    return whole


# ---------------------------------------------------------------- other objects


def module(name: str, value: Any) -> nn.Module:
    """Return a module unchanged.

    Raises:
        TypeError: `value` is something else, such as a class or a state dict.
    """
    return _instance(name, value, nn.Module, "an nn.Module")


def optimizer(name: str, value: Any) -> Optimizer:
    """Return an optimizer unchanged.

    Raises:
        TypeError: `value` is something else, such as a class or a model.
    """
    return _instance(name, value, Optimizer, "a torch.optim.Optimizer")


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return a function, or another object that can be called, unchanged.

    Raises:
        TypeError: `value` cannot be called, or is a class of modules instead of a module.
    """
    if not callable(value) or (isinstance(value, type) and issubclass(value, nn.Module)):
        raise TypeError(f"{name} must be a function or a module, got {_kind(value)}")
    return value


def batches(name: str, value: Any) -> Iterable[Any]:
    """Return a loader or another iterable of batches unchanged.

    Raises:
        TypeError: `value` is something else, such as a dataset without batches.
    """
    wrong = isinstance(value, type | str | Tensor | nn.Module)
    if wrong or not hasattr(value, "__iter__"):
        raise TypeError(
            f"{name} must be an iterable of batches, such as a DataLoader, got {_kind(value)}"
        )
    return value


def mapping(name: str, value: Any) -> Mapping[Any, Any]:
    """Return a dict or another mapping unchanged.

    Raises:
        TypeError: `value` is something else.
    """
    return _instance(name, value, Mapping, "a dict")


def text(name: str, value: Any) -> str:
    """Return a str unchanged.

    Raises:
        TypeError: `value` is something else, such as bytes.
    """
    return _instance(name, value, str, "a str")


def _instance(name: str, value: Any, kind: Any, words: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {words}, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
