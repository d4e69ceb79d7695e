"""Show the weights of micro-batches in gradient accumulation with DDP, and the all-reduces."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F

from helpers.explorers import Explorer

RANKS, PARTS, SIZE = 3, 4, 4  # maximum ranks, micro-batches per rank, samples per micro-batch


def accumulated(ranks: int, parts: int, last: int) -> list[float]:
    """Accumulate the gradient of the mean squared error of `w * x` at `w = 1` under DDP.

    The samples have `x` 1, and `y` runs from 0.5 upwards in steps of 0.5.

    Args:
        ranks: number of ranks; each has its own micro-batches, and DDP averages the gradients.
        parts: micro-batches per rank, of 4 samples each.
        last: samples in the last micro-batch of the last rank.

    Returns:
        Three gradients: of the mean over all samples; of each micro-batch's mean / `parts`; and of
        each micro-batch's sum * `ranks` / number of all samples. All are rounded to 3
        decimals.
    """
    sizes = [SIZE] * (ranks * parts - 1) + [last]
    n = sum(sizes)
    x, y = torch.ones(n), torch.arange(1, n + 1) / 2
    pieces = list(zip(x.split(sizes), y.split(sizes), strict=True))

    def averaged(by_count: bool) -> float:
        gradients = []
        for rank in range(ranks):
            w = torch.ones((), requires_grad=True)
            for a, b in pieces[rank * parts : (rank + 1) * parts]:
                if by_count:
                    loss = F.mse_loss(w * a, b, reduction="sum") * ranks / n
                else:
                    loss = F.mse_loss(w * a, b) / parts
                loss.backward()
            gradients.append(w.grad)
        return round(torch.stack(gradients).mean().item(), 3)

    w = torch.ones((), requires_grad=True)
    (exact,) = torch.autograd.grad(F.mse_loss(w * x, y), w)
    return [round(exact.item(), 3), averaged(False), averaged(True)]


def accumulate_explorer(lang: str | None = None) -> Explorer:
    """Choose ranks, micro-batches and divisor; see weights, gradients and all-reduces."""
    grid = itertools.product(range(1, RANKS + 1), range(1, PARTS + 1), range(1, SIZE + 1))
    return Explorer(
        "accumulate",
        {"most": [RANKS, PARTS, SIZE], "rows": [accumulated(*one) for one in grid]},
        {
            "en": (
                "Two ranks accumulate three micro-batches each; the last one has 1 sample "
                "instead of 4. If each mean is divided by the micro-batches of its rank, that "
                "sample weighs as much as four others and the gradient is wrong; dividing sums "
                "by the number of all samples fixes it."
            ),
            "zh": (
                "两个进程各累积三个小批量，最后一个小批量只有 1 个样本，其余都有 4 个。如果用每"
                "个进程的小批量个数去除各自的均值，这一个样本的权重就相当于另外四个，梯度是错的；"
                "改为用总和除以全部样本数，就对了。"
            ),
        },
        lang,
    )
