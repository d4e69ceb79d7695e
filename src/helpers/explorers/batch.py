"""Show the shards of a batch on replicas, and the weight of each shard in an average."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.data_parallel import scatter
from helpers.explorers import Explorer

LARGEST_BATCH, MOST_REPLICAS = 16, 6


def split_gradients(x: Tensor, y: Tensor, replicas: int) -> dict[str, Any]:
    """Split a batch over replicas and differentiate the mean squared error of `w * x` at `w = 1`.

    Args:
        x: float tensor of shape (n,).
        y: float tensor of shape (n,).
        replicas: number of replicas.

    Returns:
        `sizes` (samples per shard), `exact` (gradient of the mean over the batch) and `averaged`
        (gradient of the mean of the shards' means), the last two rounded to 3 decimals.
    """
    w = torch.ones((), requires_grad=True)
    shards = scatter((x, y), replicas)
    means = torch.stack([F.mse_loss(w * a, b) for a, b in shards])
    (exact,) = torch.autograd.grad(F.mse_loss(w * x, y), w)
    (averaged,) = torch.autograd.grad(means.mean(), w)
    sizes = [len(a) for a, _ in shards]
    return {"sizes": sizes, "exact": round(exact.item(), 3), "averaged": round(averaged.item(), 3)}


def batch_explorer(lang: str | None = None) -> Explorer:
    """Choose a batch size and replicas; see how scatter splits, and the averaged gradient.

    The samples are the first of sixteen: `x` is 1, `y` runs from 0.5 upwards in steps of 0.5.
    """
    x, y = torch.ones(LARGEST_BATCH), torch.arange(1, LARGEST_BATCH + 1) / 2
    rows = []
    for n in range(1, LARGEST_BATCH + 1):
        results = [split_gradients(x[:n], y[:n], r) for r in range(1, MOST_REPLICAS + 1)]
        splits = [[split["sizes"], split["averaged"]] for split in results]
        rows.append({"exact": results[0]["exact"], "splits": splits})
    return Explorer(
        "batch",
        rows,
        {
            "en": (
                "A batch of 10 samples on 4 replicas is split as 3 + 3 + 3 + 1; in a mean of "
                "the shards' means each shard has the weight 1/4, and the gradient is -4.25 "
                "instead of -3.5."
            ),
            "zh": (
                "10 个样本的批分到 4 个副本上，分成 3 + 3 + 3 + 1；如果对各分片的均值再取均值，"
                "每个分片的权重都是 1/4，梯度就成了 -4.25，而正确的是 -3.5。"
            ),
        },
        lang,
    )
