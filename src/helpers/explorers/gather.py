"""Show which elements gather reads and scatter writes along both dimensions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.explorers import Explorer

X = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]])
Y = torch.tensor([1, 2, 0])
INDICES = {
    "y[None]": Y[None],
    "y[:, None]": Y[:, None],
    "[[0, 2], [3, 1], [1, 0]]": torch.tensor([[0, 2], [3, 1], [1, 0]]),
    "[[1, 1], [2, 2], [0, 1]]": torch.tensor([[1, 1], [2, 2], [0, 1]]),
}


def connect(x: Tensor, dim: int, index: Tensor) -> dict[str, Any]:
    """Return the results of gather and scatter for an index.

    Args:
        x: two-dimensional tensor.
        dim: 0 or 1.
        index: two-dimensional int64 tensor.

    Returns:
        Flat lists: `cells`, the position in `x` that each element of the index refers to;
        `gather`, the result; `scatter_add`, the result of adding 1, 2, 3, … to zeros of the shape
        of `x`; `scatter`, the result of writing them, with None for an undefined element, to which
        several are written. If PyTorch raises: `error`, the message.
    """
    numbers = torch.arange(x.numel()).reshape(x.shape)
    src = torch.arange(1, index.numel() + 1).reshape(index.shape)
    zeros = torch.zeros_like(x)
    try:
        cells = numbers.gather(dim, index).flatten()
    except RuntimeError as error:
        return {"error": str(error)}
    writers = cells.bincount(minlength=x.numel()).tolist()
    written = zeros.scatter(dim, index, src).flatten().tolist()
    return {
        "cells": cells.tolist(),
        "gather": x.gather(dim, index).flatten().tolist(),
        "scatter": [v if n < 2 else None for v, n in zip(written, writers, strict=True)],
        "scatter_add": zeros.scatter_add(dim, index, src).flatten().tolist(),
    }


def gather_explorer(lang: str | None = None) -> Explorer:
    """Choose an operation, dim and index; point at a result to see its elements."""
    data = {
        "x": X.tolist(),
        "names": list(INDICES),
        "indices": [index.tolist() for index in INDICES.values()],
        "found": [[connect(X, dim, index) for dim in (0, 1)] for index in INDICES.values()],
    }
    return Explorer(
        "gather",
        data,
        {
            "en": (
                "gather along dim 1, with a row of labels as index, reads only the first row; "
                "with a column it reads one entry of each row. scatter is the reverse, and if "
                "several elements are written to one position, only scatter_add has a defined "
                "result."
            ),
            "zh": (
                "沿 dim 1 的 gather 如果用一行标签作索引，只读取第一行；用一列标签，则从每一行读"
                "取一个元素。scatter 方向相反；如果有几个元素写到同一个位置，只有 scatter_add 的"
                "结果是确定的。"
            ),
        },
        lang,
    )
