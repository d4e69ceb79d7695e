"""Helpers of the chapter on views and copies: shared storage, storage cells.

Source: "Tensor Views", https://pytorch.org/docs/stable/tensor_view.html
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from helpers import checks

Operation = Callable[[Tensor], Tensor]


def same_storage(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors share memory, so that a write to one can change the other.

    Two slices of one tensor share its storage even if they have no element in common. Tensors made
    from parts of one NumPy array have separate storages, and share memory if the parts overlap. An
    empty storage has no memory to share. On the meta device, where memory has no addresses, the
    storages themselves are compared.

    Raises:
        TypeError: an argument is not a tensor.
        RuntimeError: a tensor has no single storage, such as a sparse or a jagged one.
    """
    one = checks.tensor("a", a).untyped_storage()
    other = checks.tensor("b", b).untyped_storage()
    if one.device != other.device or not one.nbytes() or not other.nbytes():
        return False
    if one.device.type == "meta":
        return one._cdata == other._cdata
    start, begin = one.data_ptr(), other.data_ptr()
    return start < begin + other.nbytes() and begin < start + one.nbytes()


def view_or_copy(operation: Operation, t: Tensor) -> str:
    """Return what `operation(t)` is: `"itself"` (the object `t`), `"view"` or `"copy"`.

    A "view" shares the memory of `t`, as `t.detach()` also does.

    Raises:
        TypeError: `operation` cannot be called, or `t` or the result is not a tensor.
    """
    y = checks.function("operation", operation)(checks.tensor("t", t))
    if not isinstance(y, Tensor):
        raise TypeError(f"expected a tensor as result, got {type(y).__name__}")
    return "itself" if y is t else "view" if same_storage(y, t) else "copy"


def storage_cells(t: Tensor) -> Tensor:
    """Return for each element of `t` the number of the storage cell that it reads, from 0.

    Element `t[i, j]` reads cell `offset + i * stride[0] + j * stride[1]`. The numbers are found by
    reading a storage of 0, 1, 2, … with the shape, strides and offset of `t`.

    Returns:
        int64, of the shape of `t`.

    Raises:
        TypeError: `t` is not a tensor.
    """
    count = checks.tensor("t", t).untyped_storage().nbytes() // t.element_size()
    return torch.arange(count).as_strided(t.shape, t.stride(), t.storage_offset())
