"""Show which elements two broadcast shapes pair, and the dtype of the sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.explorers import Explorer

SHAPES = [(), (2,), (3,), (1, 3), (2, 1), (3, 1), (2, 3)]
DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
NUMBERS = {"int": 10, "float": 10.0}


def meet(a: tuple[int, ...], b: tuple[int, ...]) -> dict[str, Any]:
    """Return for each element of a sum the indices of the two elements that are added.

    Args:
        a: a shape.
        b: a shape.

    Returns:
        `shape` (a list) and `at`: two flat lists with, for each element of the sum, the flat index
        into `a` and into `b`. If the shapes do not broadcast: `error`, PyTorch's message.
    """
    mine, other = (torch.arange(torch.Size(shape).numel()).reshape(shape) for shape in (a, b))
    try:
        both = torch.broadcast_tensors(mine, other)
        return {"shape": list(both[0].shape), "at": [one.flatten().tolist() for one in both]}
    except RuntimeError:
        pass
    try:
        mine + other
    except RuntimeError as error:
        return {"error": str(error)}
    raise AssertionError("broadcast_tensors and + disagree")


def promote(a: Tensor, b: Tensor | float) -> tuple[torch.dtype, str]:
    """Return the dtype of `a + b`, computed by torch, and the rule of type promotion for it.

    Args:
        a: an integer or floating-point tensor.
        b: a tensor of these kinds, or a Python int or float.

    Returns:
        The dtype, and `"same"`; `"category"`: a float has a higher category than an integer;
        `"default"`: a Python float and an integer; `"a"` or `"b"`: this operand has lower priority
        (zero-dimensional tensor or Python number); `"wider"`: the smallest dtype that
        can represent both.
    """
    result = torch.result_type(a, b)
    tensor = isinstance(b, Tensor)
    floats = b.is_floating_point() if tensor else isinstance(b, float)
    if tensor and a.dtype == b.dtype:
        return result, "same"
    if a.is_floating_point() != floats:
        return result, "category" if tensor or not floats else "default"
    if not tensor or (a.dim() and not b.dim()):
        return result, "b"
    return result, "a" if b.dim() and not a.dim() else "wider"


def _dtypes(a: Tensor, others: list[Tensor | float]) -> list[list]:
    results = (promote(a, b) for b in others)
    return [[str(dtype).removeprefix("torch."), why] for dtype, why in results]


def broadcast_explorer(lang: str | None = None) -> Explorer:
    """Choose two shapes and dtypes; point at a cell of the sum to see its elements."""
    both = [[torch.ones(shape, dtype=dtype) for dtype in DTYPES] for shape in ((), (1,))]
    others: list[list] = [*both, list(NUMBERS.values())]
    data = {
        "shapes": [list(shape) for shape in SHAPES],
        "dtypes": [str(dtype).removeprefix("torch.") for dtype in DTYPES],
        "numbers": list(NUMBERS),
        "pairs": [[meet(a, b) for b in SHAPES] for a in SHAPES],
        "promoted": [[[_dtypes(a, b) for a in mine] for b in others] for mine in both],
        "start": {"a": SHAPES.index((3,)), "b": SHAPES.index((3, 1)), "da": 5, "db": 6},
    }
    return Explorer(
        "broadcast",
        data,
        {
            "en": (
                "A tensor of shape (3,) plus one of shape (3, 1) has shape (3, 3): every "
                "element of one is added to every element of the other. A float64 tensor makes "
                "a float32 sum float64, unless it has no dimensions."
            ),
            "zh": (
                "形状 (3,) 的张量加上形状 (3, 1) 的张量，结果的形状是 (3, 3)：一个张量的每个元素"
                "都与另一个的每个元素相加。float64 张量会让与 float32 的和变成 float64，除非它是"
                "零维的。"
            ),
        },
        lang,
    )
