"""Compare five ways to make y from s: the effects of zeroing y on s and on the gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from helpers.explorers import Explorer

WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "y = s": lambda s: s,
    "y = s.detach()": lambda s: s.detach(),
    "y = s.clone()": lambda s: s.clone(),
    "y = s.detach().clone()": lambda s: s.detach().clone(),
    "y = s.data": lambda s: s.data,
}


def try_way(way: Callable[[Tensor], Tensor]) -> dict[str, object]:
    """Zero `way(s)` in place, for `s = sigmoid(x)`; return `s` and the gradient of `x` after it.

    `x` is `[0., 0.]`, so `s` is 0.5 and the gradient of `s.sum()` with respect to `x` is 0.25.

    Returns:
        `shares` (bool, same storage), `requires_grad` (bool), `s` (its first element after the
        edit) and `outcome`: the gradient's first element, or the name of the exception.
    """
    x = torch.zeros(2, requires_grad=True)
    s = torch.sigmoid(x)
    y = way(s)
    shares = y.untyped_storage().data_ptr() == s.untyped_storage().data_ptr()
    requires_grad = y.requires_grad
    y.zero_()
    seen = round(s[0].item(), 2)
    try:
        s.sum().backward()
        outcome: object = round(x.grad[0].item(), 2)
    except RuntimeError as error:
        outcome = type(error).__name__
    return {"shares": shares, "requires_grad": requires_grad, "s": seen, "outcome": outcome}


def copy_explorer(lang: str | None = None) -> Explorer:
    """Run five ways to make `y` from `s`, and compare the effects of zeroing `y`."""
    return Explorer(
        "copy",
        [{"code": code, **try_way(way)} for code, way in WAYS.items()],
        {
            "en": (
                "Five ways to make y from s. Zeroing y in place raises an error for y = s and "
                "s.detach(), does not affect s for a clone, and makes the gradient wrong "
                "without an error for s.data."
            ),
            "zh": (
                "由 s 得到 y 的五种写法。把 y 原地清零：y = s 和 s.detach() 会报错；克隆不影响 s；"
                "s.data 不报错，但梯度是错的。"
            ),
        },
        lang,
    )
