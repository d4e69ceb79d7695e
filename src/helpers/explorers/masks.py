"""Compare one attention mask in PyTorch's two attention APIs."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.explorers import Explorer

LENGTH = 4
_ONES = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
KEEPS: dict[str, Tensor] = {
    "causal": _ONES.tril(),
    "padding": _ONES & (torch.arange(LENGTH) < 3),
    "both": _ONES.tril() & (torch.arange(LENGTH) > 0),
}
MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "keep": lambda keep: keep,
    "~keep": lambda keep: ~keep,
    "keep.float()": lambda keep: keep.float(),
    "0 or -inf": lambda keep: torch.where(keep, 0.0, -torch.inf),
}


def by_function(x: Tensor, mask: Tensor) -> Tensor:
    """Return the attention weights of `F.scaled_dot_product_attention` for a mask.

    Args:
        x: float, shape (L, L): L tokens, as queries and keys; the values are the identity.
        mask: bool or float, shape (L, L), its `attn_mask`.

    Returns:
        Shape (L, L).
    """
    values = torch.eye(len(x))[None]
    return F.scaled_dot_product_attention(x[None], x[None], values, attn_mask=mask)[0]


def by_module(x: Tensor, mask: Tensor, *, need_weights: bool) -> Tensor:
    """Return these weights of `nn.MultiheadAttention` with one head and identity projections.

    Args:
        x: float, shape (L, L), as in `by_function`.
        mask: bool or float, shape (L, L), its `attn_mask`.
        need_weights: if True, use the returned weights, else the output, which equals them: the
            values are the identity matrix.

    Returns:
        Shape (L, L).
    """
    module = nn.MultiheadAttention(len(x), 1, bias=False)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(len(x)).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(len(x)))
    out, weights = module(x, x, torch.eye(len(x)), attn_mask=mask, need_weights=need_weights)
    return (weights if need_weights else out).detach()


def _numbers(table: Tensor) -> list[list[bool | float | str]]:
    if table.dtype == torch.bool:
        return table.tolist()
    return [[round(x, 2) if math.isfinite(x) else str(x) for x in row] for row in table.tolist()]


def masks_explorer(lang: str | None = None) -> Explorer:
    """Choose a pattern and a mask for both interfaces, and point at a weight."""
    x = torch.randn(LENGTH, LENGTH, generator=torch.Generator().manual_seed(1))
    rows = [
        {
            "keep": keep.int().tolist(),
            "masks": [_numbers(make(keep)) for make in MASKS.values()],
            "sdpa": [_numbers(by_function(x, make(keep))) for make in MASKS.values()],
            "mha": [
                [_numbers(by_module(x, make(keep), need_weights=b)) for b in (False, True)]
                for make in MASKS.values()
            ],
        }
        for keep in KEEPS.values()
    ]
    return Explorer(
        "masks",
        {"names": list(MASKS), "rows": rows},
        {
            "en": (
                "One bool mask in scaled_dot_product_attention, where True means attend, and in "
                "MultiheadAttention, where True means ignore: they attend to opposite keys. A "
                "query whose keys are all masked gets zeros in the first, and by default nan in "
                "the second. A float mask of 0 and -inf means the same in both."
            ),
            "zh": (
                "同一个布尔掩码：在 scaled_dot_product_attention 中 True 表示关注，在 "
                "MultiheadAttention 中 True 表示忽略，两者关注的键正好相反。如果一个查询的所有键"
                "都被屏蔽，前者得到 0，后者默认得到 nan。由 0 和 -inf 组成的浮点掩码在两者中含义"
                "相同。"
            ),
        },
        lang,
    )
