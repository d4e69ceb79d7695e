"""What cross-entropy divides by when it takes the mean: the numbers of the mean explorer."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from helpers.explorers import Explorer

BATCH = torch.tensor([[2.0, 0.5, 0.0], [0.0, 1.0, 1.5], [1.0, 0.0, 0.5], [0.0, 0.5, 3.0]])
LABELS = torch.tensor([0, 1, 2, 2])
WEIGHTS = torch.tensor([1.0, 2.0, 5.0])


def read_mean(weighted: bool, kept: list[bool]) -> dict[str, object]:
    """What `F.cross_entropy` makes of the explorer's batch of four samples.

    Args:
        weighted: whether to pass the class weights 1, 2 and 5.
        kept: for each sample whether it counts; the label of the others is the ignored -100.

    Returns:
        Numbers as text with three decimals (or `"nan"`): `each` (a list, reduction "none"),
        `sum` and `mean` (those reductions), `plain` (the mean of the vector `each`), and
        `divisor`, the sum of the class weights of the samples kept.
    """
    weight = WEIGHTS if weighted else torch.ones(3)
    keep = torch.tensor(kept)
    labels = LABELS.where(keep, -100)
    each, total, mean = (
        F.cross_entropy(BATCH, labels, weight=weight, reduction=r) for r in ("none", "sum", "mean")
    )
    return {
        "each": [f"{loss:.3f}" for loss in each.abs().tolist()],
        "sum": f"{total:.3f}",
        "divisor": f"{weight[LABELS[keep]].sum():g}",
        "mean": f"{mean:.3f}",
        "plain": f"{each.mean():.3f}",
    }


def mean_explorer(lang: str | None = None) -> Explorer:
    """Switch class weights on, ignore samples, and see what 'mean' divides by."""
    subsets = [[bool(n >> i & 1) for i in range(4)] for n in range(16)]
    data = {
        "labels": LABELS.tolist(),
        "weights": [int(w) for w in WEIGHTS],
        "rows": [[read_mean(weighted, kept) for kept in subsets] for weighted in (False, True)],
    }
    return Explorer(
        "mean",
        data,
        "Four samples whose losses cross-entropy adds up, and the number that 'mean' divides by.",
        lang,
    )
