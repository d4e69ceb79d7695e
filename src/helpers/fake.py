"""Check devices, shapes and dtypes without a GPU and without memory, with fake tensors.

A fake tensor has a shape, a dtype and a device, but no values. PyTorch checks operations on it
as usual, so the errors of a GPU can be shown without one, and a model of any size fits.

Source: https://pytorch.org/docs/stable/torch.compiler_fake_tensor.html. The class is in a
private module, which only `fake_tensors` and `fake_copy` use.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class NoNumberError(RuntimeError):
    """Raised if a decision of the code depends on the value of a fake tensor."""


class _Unknown(float):
    """Result of `item()` on a fake tensor: a nan that raises if a branch depends on it."""

    def __new__(cls) -> _Unknown:
        return super().__new__(cls, math.nan)


def _undecided(*_: object) -> Any:
    raise NoNumberError(
        "this line needs the value of a tensor to go on, and a fake tensor has no values: "
        "leave this decision out of the dry run"
    )


_DECIDING = ("bool", "int", "index", "trunc", "lt", "le", "gt", "ge", "eq", "ne")
_REACHING_ON = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
for _name in _DECIDING:
    setattr(_Unknown, f"__{_name}__", _undecided)
for _name in (*_REACHING_ON, *(f"r{name}" for name in _REACHING_ON), "neg", "abs", "round"):
    setattr(_Unknown, f"__{_name}__", lambda self, *_: _Unknown())
_Unknown.__hash__ = float.__hash__


def _or_undecided(function: Any) -> Any:
    """Wrap a predicate of a float so that it raises for an unknown value."""
    return lambda x: _undecided() if isinstance(x, _Unknown) else function(x)


_NOT_BUILT = "PyTorch is not linked with support for"


@cache
def _is_built_for(kind: str) -> bool:
    """Return True if this PyTorch build supports a device type; requires a `FakeTensorMode`."""
    try:
        torch.empty(0).to(kind)
    except RuntimeError as error:
        if not str(error).startswith(_NOT_BUILT):
            raise
        return False
    return True


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Create fake tensors on any device inside the `with` block.

    Operations compute only shapes, dtypes and devices. A device mismatch raises PyTorch's own
    `RuntimeError`. `item()` and `tolist()` return nan values that can be logged and summed but not
    compared; `float()` returns a plain nan.
    `numpy()` raises the error of that device; for a CPU tensor it returns zeros.
    A real `backward` on another device than the CPU requires the device, so for such a loss it only
    sets a zero gradient on each leaf of the graph; gradient hooks do not run.

    This PyTorch must be built for any other device than the CPU: `"cuda"` works in a
    CUDA build, with or without a GPU. Other builds raise an error, because their autograd
    would abort the process at the first such tensor. Inside `torch.no_grad()` most operations work
    in these builds, too; modules, convolutions and copies to the device raise.

    Not supported: streams, events and other calls to a driver; random generators of
    another device; `torch.autograd.grad` on another device than the CPU; products of mixed dtypes,
    which a real device rejects; a custom backward function that mixes devices; optimizers
    that depend on values, such as Adafactor; real tensors from outside (use `fake_copy`).

    Raises:
        RuntimeError: an operation combines devices, or PyTorch is not built for a device.
        NoNumberError: a decision of the code depends on a tensor's value.
    """
    from torch._subclasses import fake_tensor
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    # Older versions of PyTorch raise a plain RuntimeError.
    mismatch = getattr(fake_tensor, "FakeTensorDeviceMismatchError", ())
    # `Module.to` swaps a fake parameter with its copy on the device and raises if a weak
    # reference to it exists; a FakeTensorMode always keeps one. Hide it.
    unguarded = patch.object(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda _: []))
    cudnn = torch.backends.cudnn.flags(enabled=False)  # cuDNN would read data pointers
    tests = {name: _or_undecided(getattr(math, name)) for name in ("isnan", "isinf", "isfinite")}
    try:
        with unguarded, cudnn, patch.multiple(math, **tests), FakeTensorMode(), _WithoutNumbers():
            yield
    except mismatch as error:
        raise RuntimeError(str(error)).with_traceback(error.__traceback__) from None
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        try:
            _undecided()
        except NoNumberError as clear:
            raise clear.with_traceback(error.__traceback__) from None
    except RuntimeError as error:
        if not str(error).startswith(_NOT_BUILT):
            raise
        raise RuntimeError(
            f"{str(error).splitlines()[0]}: fake tensors need a PyTorch that is built for them, "
            "but no GPU (https://pytorch.org/get-started/locally/)"
        ).with_traceback(error.__traceback__) from None


def fake_copy(values: Any) -> Any:
    """Return a deep copy of `values` in which fake tensors replace the real ones.

    Shared objects stay shared in the copy, such as a parameter in a model and in its
    optimizer.

    Raises:
        RuntimeError: called outside `fake_tensors`.
    """
    from torch._subclasses.fake_tensor import FakeCopyMode, unset_fake_temporarily

    with unset_fake_temporarily() as mode:
        if mode is None:
            raise RuntimeError("fake_copy works inside `with fake_tensors():`")
        with FakeCopyMode(mode):
            return copy.deepcopy(values)


class _WithoutNumbers(TorchFunctionMode):
    """Override operations that fake tensors do not support, as far as a training step needs."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        x = args[0] if args and isinstance(args[0], Tensor) else None
        if x is not None and function is getattr(Tensor, name, None):
            if name == "backward" and x.device.type != "cpu":
                return _give_gradients(x)
            if name in ("item", "__float__") and x.numel() == 1 and _is_fake(x):
                return _Unknown() if name == "item" else math.nan
            if name == "__deepcopy__" and x.is_leaf:
                return _deep_copy(x, *args[1:])
            if name in ("__bool__", "__int__", "__index__"):
                return _undecided()
            if name in ("numpy", "__array__"):
                return _to_numpy(x)
            if name == "__format__" and x.dim() == 0:
                return format(_Unknown(), *args[1:])
        if torch.is_grad_enabled():
            _refuse_unbuilt((args, kwargs))
        result = function(*args, **kwargs)
        if torch.is_grad_enabled():
            _refuse_unbuilt(result)
        return result


def _is_fake(x: Tensor) -> bool:
    """Return True for a fake tensor; PyTorch calls `item` on real ones to create a fake."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(x, FakeTensor)


def _refuse_unbuilt(values: Any) -> None:
    """Raise for a tensor on a device for which this build's autograd would abort the process."""
    for x in tree_leaves(values):
        if isinstance(x, Tensor) and not _is_built_for(x.device.type):
            raise RuntimeError(f"{_NOT_BUILT} {x.device.type} devices")


def _deep_copy(x: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(x) not in memo:
        new = x.detach().clone().requires_grad_(x.requires_grad)
        memo[id(x)] = nn.Parameter(new, x.requires_grad) if isinstance(x, nn.Parameter) else new
    return memo[id(x)]


def _to_numpy(x: Tensor) -> Any:
    import numpy as np

    if x.device.type != "cpu":
        raise TypeError(
            f"can't convert {x.device} device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )
    if x.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    return np.zeros(tuple(x.shape), str(x.dtype).removeprefix("torch."))


def _give_gradients(loss: Tensor) -> None:
    """Add a zero gradient to each leaf of the loss's graph without using the device."""
    if not loss.requires_grad:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if loss.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    todo, seen = [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            with torch.no_grad():
                new = torch.zeros_like(leaf)
                leaf.grad = new if leaf.grad is None else leaf.grad + new
        todo += [following for following, _ in node.next_functions]
