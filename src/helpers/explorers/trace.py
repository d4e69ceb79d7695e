"""Compare the results of a function, its trace and its exports for the same inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from helpers.explorers import Explorer
from helpers.export import error_reason, quiet

EXAMPLE = (1.0, 2.0)
LENGTHS, SIGNS = (1, 2, 3, 4), (1, -1)


def _branch(x: Tensor) -> Tensor:
    return 2 * x if x.sum() > 0 else -x


def _loop(x: Tensor) -> Tensor:
    y = torch.zeros(1)
    for i in range(len(x)):
        y = y + x[i]
    return y


def _item(x: Tensor) -> Tensor:
    return x * x.max().item()


def _shape(x: Tensor) -> Tensor:
    return x * x.shape[0]


def _where(x: Tensor) -> Tensor:
    return torch.where(x.sum() > 0, 2 * x, -x)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "2 * x if x.sum() > 0 else -x": _branch,
    "for i in range(len(x)): y = y + x[i]": _loop,
    "x * x.max().item()": _item,
    "x * x.shape[0]": _shape,
    "torch.where(x.sum() > 0, 2 * x, -x)": _where,
}


class Wrapped(nn.Module):
    """Module whose forward pass calls a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of the function."""
        return self.function(x)


def inputs(length: int, sign: int) -> list[float]:
    """Return the numbers 1 to `length`, all positive or all negative."""
    return [float(sign * (i + 1)) for i in range(length)]


def traced(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return `torch.jit.trace` of a function on the example."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(Wrapped(function), (torch.tensor(EXAMPLE),), check_trace=False)


def exported(function: Callable[[Tensor], Tensor], dynamic: bool) -> Callable[[Tensor], Tensor]:
    """Return `torch.export.export` of a function, for a fixed or a dynamic length."""
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic else None
    with quiet():
        program = torch.export.export(
            Wrapped(function), (torch.tensor(EXAMPLE),), dynamic_shapes=shapes
        )
    return program.module()


def outcomes(function: Callable[[Tensor], Tensor]) -> list[list[list[Any]]]:
    """Return for each length and sign the four results, each a list of numbers or an error."""
    makers = (
        lambda: function,
        lambda: traced(function),
        lambda: exported(function, dynamic=False),
        lambda: exported(function, dynamic=True),
    )
    variants: list[Any] = []
    for make in makers:
        try:
            variants.append(make())
        except Exception as error:
            variants.append(error_reason(error))

    def answer(one: Any, x: list[float]) -> list[float] | str:
        if isinstance(one, str):
            return one
        try:
            return one(torch.tensor(x)).tolist()
        except Exception as error:
            return error_reason(error)

    return [[[answer(one, inputs(n, s)) for one in variants] for s in SIGNS] for n in LENGTHS]


def trace_explorer(lang: str | None = None) -> Explorer:
    """Change the input, and see the results of the function, its trace and its exports."""
    return Explorer(
        "trace",
        {
            "code": list(FUNCTIONS),
            "lengths": LENGTHS,
            "inputs": [[inputs(n, s) for s in SIGNS] for n in LENGTHS],
            "rows": [outcomes(function) for function in FUNCTIONS.values()],
        },
        {
            "en": (
                "A trace is recorded with one example and returns results for other inputs "
                "without an error, sometimes wrong ones: it keeps the branch, the number of "
                "iterations or the value of the example. torch.export raises an error for such "
                "code, checks the size at each call, or keeps the dependence on the data."
            ),
            "zh": (
                "trace 用一个示例记录，对其他输入也返回结果，不报错，但有时是错的：它固定了示例"
                "走过的分支、循环次数或数值。torch.export 则对这样的代码报错，或在每次调用时检查"
                "大小，或保留对数据的依赖。"
            ),
        },
        lang,
    )
