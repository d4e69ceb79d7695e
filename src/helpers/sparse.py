"""Find the dense tensors in which sparse tensors store their data."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers import checks


def dense_parts(x: Tensor) -> list[Tensor]:
    """Return the dense tensors that contain the data of a sparse `x`, else `[x]`.

    These are the indices and values of the COO, CSR, CSC, BSR and BSC layouts. They share the
    memory of `x` and require no gradient. For any other layout, the result is `[x]` itself.

    Raises:
        TypeError: `x` is not a tensor.

    Source: https://docs.pytorch.org/docs/stable/sparse.html
    """
    if checks.tensor("x", x).layout == torch.strided:
        return [x]
    x = x.detach()
    if x.layout == torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    return [x]
