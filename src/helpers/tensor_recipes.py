"""Helpers of the chapter on tensor recipes: exact distances, the largest intermediate tensor.

Source: https://pytorch.org/docs/stable/torch.html and `torch.cdist`,
https://pytorch.org/docs/stable/generated/torch.cdist.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from helpers import checks

EXACT = "donot_use_mm_for_euclid_dist"


def pairwise_distances(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """Return the Euclidean distances between the rows of `x1` and of `x2`, computed by subtraction.

    Points that coincide are at distance 0, with a first and a second gradient of 0. Intermediate
    tensors have shape (..., N, M, D); for many points use `torch.cdist`.

    Args:
        x1: shape (..., N, D), floating point.
        x2: shape (..., M, D), dtype and device of `x1`; without it, `x1` itself.

    Returns:
        Shape (..., N, M), dtype of `x1`.

    Raises:
        TypeError: an argument is not a tensor or not floating point, or the two differ in dtype.
        ValueError: an argument has fewer than two dimensions, the two have another D or device,
            or their leading dimensions do not broadcast.
    """
    x2 = x1 if x2 is None else x2
    for name, x in (("x1", x1), ("x2", x2)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if not x.is_floating_point():
            raise TypeError(f"{name} must be floating point, got {x.dtype}")
        if x.dim() < 2:
            raise ValueError(f"{name} must have the shape (..., N, D), got {tuple(x.shape)}")
    if x1.dtype != x2.dtype:
        raise TypeError(f"x1 and x2 must have one dtype, got {x1.dtype} and {x2.dtype}")
    shapes = f"{tuple(x1.shape)} and {tuple(x2.shape)}"
    if x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"x1 and x2 must have the same last dimension, got {shapes}")
    if x1.device != x2.device:
        raise ValueError(f"x1 and x2 must be on one device, got {x1.device} and {x2.device}")
    try:
        torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    except RuntimeError:
        raise ValueError(f"the leading dimensions must broadcast, got {shapes}") from None
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    same = (difference == 0).all(-1)
    # the norm's second gradient at 0 is nan, so zeros are replaced before it
    apart = difference.masked_fill(same[..., None], 1)
    return torch.linalg.vector_norm(apart, dim=-1).masked_fill(same, 0)


def largest_tensor(function: Callable[[], Any]) -> int:
    """Run `function` and return the bytes of the largest storage among its operations' results.

    A view has the storage of its base. Operations are those that PyTorch dispatches; memory that
    one allocates and frees internally is not counted, nor are sparse results. 0 if none runs.

    Raises:
        TypeError: `function` cannot be called.
    """
    checks.function("function", function)
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    largest = 0

    class Count(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for x in tree_leaves(result):
                if isinstance(x, Tensor) and x.layout == torch.strided:
                    largest = max(largest, x.untyped_storage().nbytes())
            return result

    with Count():
        function()
    return largest
