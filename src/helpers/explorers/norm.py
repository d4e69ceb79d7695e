"""Show BatchNorm's output for one sample in different batches, and the running statistics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from helpers.explorers import Explorer

SAMPLE, MEAN, STD = 6.0, 5.0, 2.0
SIZES, STEPS, DRAWS = [2, 4, 8, 16, 32], [0, 1, 2, 5, 10, 20, 50, 100], 7


def in_training(batch: Tensor) -> dict[str, float]:
    """Return BatchNorm's output for the first sample of a batch in training mode.

    Args:
        batch: float tensor of shape (n,), n at least 2.

    Returns:
        `mean` and `var` (the biased one) of the batch, and `out`, as Python floats.
    """
    out = nn.BatchNorm1d(1)(batch[:, None])[0, 0]
    result = {"mean": batch.mean(), "var": batch.var(correction=0), "out": out}
    return {name: value.item() for name, value in result.items()}


def in_evaluation(batches: Tensor, x: float) -> dict[str, float]:
    """Return BatchNorm's output for `x` in evaluation mode after training steps.

    Args:
        batches: float tensor of shape (steps, n), the batches in training mode.
        x: a sample.

    Returns:
        `mean` and `var`, the running statistics, and `out`, as Python floats.
    """
    bn = nn.BatchNorm1d(1)
    for batch in batches:
        bn(batch[:, None])
    out = bn.eval()(torch.tensor([[x]]))
    result = {"mean": bn.running_mean, "var": bn.running_var, "out": out}
    return {name: value.item() for name, value in result.items()}


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}


def norm_explorer(lang: str | None = None) -> Explorer:
    """Choose the mode, batch size and training steps, and compare one sample's outputs."""
    generator = torch.Generator().manual_seed(4)

    def draw(*shape: int) -> Tensor:
        return MEAN + STD * torch.randn(shape, generator=generator)

    rows: list[dict[str, Any]] = []
    for n in SIZES:
        batches, seen = draw(DRAWS, n), draw(STEPS[-1], n)
        batches[:, 0] = SAMPLE
        rows.append(
            {
                "batches": [[round(x, 1) for x in batch] for batch in batches.tolist()],
                "train": [_rounded(in_training(batch)) for batch in batches],
                "eval": [_rounded(in_evaluation(seen[:k], SAMPLE)) for k in STEPS],
            }
        )
    data = {"sizes": SIZES, "steps": STEPS, "rows": rows, "all": (SAMPLE - MEAN) / STD}
    train = [row["out"] for row in rows[1]["train"]]
    return Explorer(
        "norm",
        data,
        {
            "en": (
                "In training mode, in seven batches of 4, the output of BatchNorm for the same "
                f"sample is between {min(train)} and {max(train)}, because its neighbours "
                "differ. In evaluation mode it has one output, but a wrong one until the "
                "running statistics have converged."
            ),
            "zh": (
                f"训练模式下，在七个大小为 4 的批里，BatchNorm 对同一个样本的输出在 {min(train)} "
                f"和 {max(train)} 之间，因为批里的其他样本不同。评估模式下输出只有一个，但在滑动"
                "统计量收敛之前是错的。"
            ),
        },
        lang,
    )
