"""Show the storage element that each element of a view reads."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.explorers import Explorer
from helpers.views_and_copies import Operation, storage_cells, view_or_copy

X = torch.tensor([[11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]])
FIRSTS: dict[str, Operation] = {
    "x": lambda x: x,
    "x.t()": lambda x: x.t(),
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[1:, 1:]": lambda x: x[1:, 1:],
    "x[:, :2]": lambda x: x[:, :2],
    "x.diagonal()": lambda x: x.diagonal(),
    "x[:, :1].expand(3, 4)": lambda x: x[:, :1].expand(3, 4),
    "x[0].unfold(0, 2, 1)": lambda x: x[0].unfold(0, 2, 1),
    "x.flip(1)": lambda x: x.flip(1),
    "x[[0, 2]]": lambda x: x[[0, 2]],
}
THENS: dict[str, Operation] = {
    "": lambda y: y,
    ".view(-1)": lambda y: y.view(-1),
    ".reshape(-1)": lambda y: y.reshape(-1),
}


def walk(first: Operation, then: Operation, x: Tensor) -> dict[str, object]:
    """Return how `y = then(first(x))` reads its storage, as computed by PyTorch.

    Args:
        first: returns a tensor of one or two dimensions.
        then: applied to that tensor; may raise a `RuntimeError`.
        x: a tensor of JSON-serializable numbers.

    Returns:
        `shape`, `stride` (lists), `offset` (int), `kind` (as from `view_or_copy`), `contiguous`
        (bool), `at` (a flat list: the storage cell of each element), and for a copy its own
        `storage` (a flat list). If `then` raises: `kind` "error", and the `at` of `first(x)`.
    """

    def operation(t: Tensor) -> Tensor:
        return then(first(t))

    try:
        y = operation(x)
    except RuntimeError:
        return {"kind": "error", "at": storage_cells(first(x)).flatten().tolist()}
    kind = view_or_copy(operation, x)
    result: dict[str, object] = {
        "shape": list(y.shape),
        "stride": list(y.stride()),
        "offset": y.storage_offset(),
        "kind": kind,
        "contiguous": y.is_contiguous(),
        "at": storage_cells(y).flatten().tolist(),
    }
    return {**result, "storage": _whole_storage(y)} if kind == "copy" else result


def _whole_storage(t: Tensor) -> list:
    return t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0).tolist()


def stride_explorer(lang: str | None = None) -> Explorer:
    """Choose an operation, point at an element, and see which storage cell it reads and why."""
    start = {"first": list(FIRSTS).index("x.t()"), "then": list(THENS).index(".reshape(-1)")}
    data = {
        "storage": _whole_storage(X),
        "firsts": list(FIRSTS),
        "thens": list(THENS),
        "start": {**start, "k": 1},
        "walks": [[walk(f, t, X) for t in THENS.values()] for f in FIRSTS.values()],
    }
    return Explorer(
        "stride",
        data,
        {
            "en": (
                "Ten tensors made from one of 3 by 4 elements, as they are and after view(-1) "
                "or reshape(-1): which storage cell each element reads. After x.t(), view "
                "raises an error and reshape copies; x[:, ::2] is not contiguous either, and "
                "both give a view."
            ),
            "zh": (
                "由一个 3 × 4 的张量得到的十个张量，以及对它们调用 view(-1) 或 reshape(-1) 的结"
                "果：每个元素读取存储中的哪一格。x.t() 之后，view 报错，reshape 复制；x[:, ::2] "
                "在内存中也不连续，但两者都得到视图。"
            ),
        },
        lang,
    )
