"""Which storage cell each element of a view reads: the operations that the explorer offers."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.explorers import Explorer
from helpers.views_and_copies import Operation, storage_cells, view_or_copy

X = torch.tensor([[11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]])
WALKS: dict[str, Operation] = {
    "x": lambda x: x,
    "x.view(2, 6)": lambda x: x.view(2, 6),
    "x.transpose(0, 1)": lambda x: x.transpose(0, 1),
    "x.transpose(0, 1).reshape(2, 6)": lambda x: x.transpose(0, 1).reshape(2, 6),
    "x.transpose(0, 1).contiguous()": lambda x: x.transpose(0, 1).contiguous(),
    "x[:1].transpose(0, 1)": lambda x: x[:1].transpose(0, 1),
    "x.view(3, 2, 2).permute(2, 0, 1)": lambda x: x.view(3, 2, 2).permute(2, 0, 1),
    "x[1:, 1:]": lambda x: x[1:, 1:],
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[:, ::2].view(6)": lambda x: x[:, ::2].view(6),
    "x[:, :2].reshape(6)": lambda x: x[:, :2].reshape(6),
    "x[:, 2]": lambda x: x[:, 2],
    "x[[0, 2]]": lambda x: x[[0, 2]],
    "x[:, :1].expand(3, 4)": lambda x: x[:, :1].expand(3, 4),
    "x.diagonal()": lambda x: x.diagonal(),
    "x.view(12).unfold(0, 4, 2)": lambda x: x.view(12).unfold(0, 4, 2),
    "x.flip(1)": lambda x: x.flip(1),
}


def walk(operation: Operation, x: Tensor) -> dict[str, object]:
    """How `y = operation(x)` walks its storage; every entry comes from torch.

    Args:
        operation: returns a tensor of one to three dimensions.
        x: any tensor that `json` can write as numbers.

    Returns:
        `shape`, `stride` (lists), `offset` (int), `kind` (as `view_or_copy` says), `contiguous`
        (bool), `at` (a flat list: the storage cell of each element), and for a copy its own
        `storage` (a flat list).
    """
    y = operation(x)
    kind = view_or_copy(operation, x)
    found: dict[str, object] = {
        "shape": list(y.shape),
        "stride": list(y.stride()),
        "offset": y.storage_offset(),
        "kind": kind,
        "contiguous": y.is_contiguous(),
        "at": storage_cells(y).flatten().tolist(),
    }
    return {**found, "storage": _whole_storage(y)} if kind == "copy" else found


def _whole_storage(t: Tensor) -> list:
    return t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0).tolist()


def stride_explorer(lang: str | None = None) -> Explorer:
    """Choose an operation, point at an element, and see which storage cell it reads and why."""
    data = {
        "storage": _whole_storage(X),
        "walks": [{"code": code, **walk(operation, X)} for code, operation in WALKS.items()],
    }
    return Explorer(
        "stride",
        data,
        f"{len(WALKS)} operations on a tensor of 3 by 4 elements, and the storage cell that each "
        "element of the result reads.",
        lang,
    )
