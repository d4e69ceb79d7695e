"""Helpers of the chapter on tensors: describe one, catch a warning, the gap to the next number.

Source: "Tensor attributes", https://pytorch.org/docs/stable/tensor_attributes.html
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from helpers import checks

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def describe(x: Tensor) -> str:
    """Return shape, dtype, device, unusual layout, and range of values of a tensor in one line.

    Args:
        x: a tensor of any layout, not a fake one. Its values are copied to the CPU, which
            synchronizes with a GPU; on the meta device there are none. The range ignores nan and
            counts it, and shows integers in full; complex numbers have no range.

    Raises:
        TypeError: `x` is not a tensor, for example a NumPy array.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    shape = f"nested, {x.size(0)} parts," if x.is_nested else f"{tuple(x.shape)}"
    words = [f"{shape} {str(x.dtype).removeprefix('torch.')} on {x.device}"]
    if x.layout != torch.strided:
        words.append(str(x.layout).removeprefix("torch."))
    if x.requires_grad:
        words.append("requires grad")
    values = x.detach()
    if values.is_quantized:
        values = values.dequantize()
    if values.is_nested:
        values = values.values()
    elif values.layout == torch._mkldnn:
        values = values.to_dense()
    elif values.layout != torch.strided:
        values = _of_sparse(values)
    if values.numel() == 0:
        words.append("empty")
    elif not values.is_meta and not values.is_complex():
        words += _range(values.cpu())
    return ", ".join(words)


def _of_sparse(x: Tensor) -> Tensor:
    """Return the stored values, and a zero if `x` has others; the dense tensor may be too large."""
    values = (x.coalesce() if x.layout == torch.sparse_coo else x).values().flatten()
    return values if len(values) == x.numel() else torch.cat([values, values.new_zeros(1)])


def _range(values: Tensor) -> list[str]:
    if not values.is_floating_point():  # NumPy supports every integer dtype, without rounding
        array = values.numpy()
        return [f"from {int(array.min())} to {int(array.max())}"]
    known = values.double()
    known = known[~known.isnan()]
    words = []
    if known.numel():
        low, high = known.min().item(), known.max().item()
        digits = next(n for n in (6, 9, 17) if low == high or f"{low:.{n}g}" != f"{high:.{n}g}")
        words.append(f"from {low:.{digits}g} to {high:.{digits}g}")
    if known.numel() < values.numel():
        words.append(f"{values.numel() - known.numel()} nan")
    return words


def warning_of(function: Callable[[], Any]) -> str | None:
    """Return the first warning of `function`, without its position in C++, or None.

    PyTorch shows many of its warnings only once per process; here they are shown each time.

    Raises:
        TypeError: `function` cannot be called.
    """
    if not isinstance(function, type):  # a class is called, too
        checks.function("function", function)
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
    finally:
        torch.set_warn_always(before)
    return str(caught[0].message).split(" (Triggered internally")[0] if caught else None


def gap(x: Tensor) -> Tensor:
    """Return the distance from each element to the next larger number of the same dtype.

    Args:
        x: floating point of at least 16 bits, finite, not negative.

    Returns:
        float64, the shape of `x`, detached; infinite if an element is the largest number of its
            dtype.

    Raises:
        TypeError: `x` is not a tensor with values, not floating point, or has 8 bits.
        ValueError: an element is negative, infinite or nan.

    Source: non-negative IEEE 754 numbers are ordered like their bit patterns.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    if not x.is_floating_point() or x.element_size() not in _BITS:
        raise TypeError(f"x must be floating point of at least 16 bits, got {x.dtype}")
    if not ((checks.filled("x", x) >= 0) & x.isfinite()).all():
        wrong = x[~((x >= 0) & x.isfinite())].flatten()[0].item()
        raise ValueError(f"x must be finite and not negative, got {wrong}")
    x = x.detach()
    bits = _BITS[x.element_size()]
    following = ((x + 0.0).contiguous().view(bits) + 1).view(x.dtype)
    return following.double() - x.double()
