"""Show the divisors of cross-entropy with reduction 'mean'."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from helpers.explorers import Explorer

BATCH = torch.tensor([[2.0, 0.5, 0.0], [0.0, 1.0, 1.5], [1.0, 0.0, 0.5], [0.0, 0.5, 3.0]])
LABELS = torch.tensor([0, 1, 2, 2])
WEIGHTS = torch.tensor([1.0, 2.0, 5.0])


def read_mean(weighted: bool, kept: list[bool]) -> dict[str, object]:
    """Return `F.cross_entropy` of four samples as one batch and as two batches.

    Args:
        weighted: pass the class weights 1, 2 and 5.
        kept: one bool per sample; False replaces its label by -100, the default `ignore_index`.

    Returns:
        Numbers as text with three decimals (or `"nan"`): `each` (a list, reduction "none"),
        `sum` and `mean` (those reductions), `plain` (the mean of the vector `each`), `divisor`
        (the sum of the class weights of the samples kept), `halves` (`sum`, `divisor` and `mean`
        of the first two samples and of the last two) and `means` (the mean of those two means).
    """
    weight = WEIGHTS if weighted else torch.ones(3)
    keep = torch.tensor(kept)
    labels = LABELS.where(keep, -100)

    def reduced(part: slice) -> list[torch.Tensor]:
        return [
            F.cross_entropy(BATCH[part], labels[part], weight=weight, reduction=r)
            for r in ("none", "sum", "mean")
        ]

    def summary(part: slice) -> dict[str, object]:
        _, total, mean = reduced(part)
        divisor = weight[LABELS[part][keep[part]]].sum()
        return {"sum": f"{total.abs():.3f}", "divisor": f"{divisor:g}", "mean": f"{mean:.3f}"}

    each, *_ = reduced(slice(4))
    batches = [slice(2), slice(2, 4)]
    means = torch.stack([reduced(part)[2] for part in batches]).mean()
    return {
        "each": [f"{loss:.3f}" for loss in each.abs().tolist()],
        **summary(slice(4)),
        "plain": f"{each.abs().mean():.3f}",
        "halves": [summary(part) for part in batches],
        "means": f"{means:.3f}",
    }


def mean_explorer(lang: str | None = None) -> Explorer:
    """Ignore samples, add class weights, and see the divisor of 'mean'."""
    subsets = [[bool(n >> i & 1) for i in range(4)] for n in range(16)]
    data = {
        "labels": LABELS.tolist(),
        "weights": [int(w) for w in WEIGHTS],
        "rows": [[read_mean(weighted, kept) for kept in subsets] for weighted in (False, True)],
    }
    return Explorer(
        "mean",
        data,
        {
            "en": (
                "Four samples in two batches, one of them ignored: the mean of all divides by "
                "3, the mean of the two batches' means by 1 and 2 and then by 2, so they differ."
            ),
            "zh": (
                "两个批共四个样本，其中一个被忽略：整体的均值除以 3；两个批的均值分别除以 1 和 2，"
                "再取均值时除以 2，所以结果不同。"
            ),
        },
        lang,
    )
