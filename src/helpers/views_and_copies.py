"""Helpers of the chapter "Tell views from copies".

Source: "Tensor Views", https://pytorch.org/docs/stable/tensor_view.html
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Operation = Callable[[Tensor], Tensor]


def same_storage(a: Tensor, b: Tensor) -> bool:
    """Whether the storages of `a` and `b` share memory, so that writing into one can change the
    other.

    Two slices of one tensor share its storage even where they have no element in common. Tensors
    made from parts of one NumPy array have storages of their own that overlap, and share memory,
    too. An empty storage has no memory to share. On the meta device, where memory has no
    addresses, the storages themselves are compared.

    Raises:
        NotImplementedError: a tensor has no storage, such as a sparse one.
    """
    one, other = a.untyped_storage(), b.untyped_storage()
    if one.device != other.device or not one.nbytes() or not other.nbytes():
        return False
    if one.device.type == "meta":
        return one._cdata == other._cdata
    start, begin = one.data_ptr(), other.data_ptr()
    return start < begin + other.nbytes() and begin < start + one.nbytes()


def view_or_copy(operation: Operation, t: Tensor) -> str:
    """What `operation(t)` returns: `"itself"` (the object `t`), `"view"` or `"copy"`.

    "view" means that the result shares the memory of `t`, as `t.detach()` also does.
    """
    y = operation(t)
    return "itself" if y is t else "view" if same_storage(y, t) else "copy"


def storage_cells(t: Tensor) -> Tensor:
    """The number of the storage cell that each element of `t` reads, counted from 0.

    Element `t[i, j]` reads cell `offset + i * stride[0] + j * stride[1]`. The numbers are found by
    reading a storage that holds 0, 1, 2, … through the shape, strides and offset of `t`.

    Returns:
        int64, of the shape of `t`.
    """
    count = t.untyped_storage().nbytes() // t.element_size()
    return torch.arange(count).as_strided(t.shape, t.stride(), t.storage_offset())
