"""Show the effects of a threshold on the scores of a classifier with a rare positive class."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.evaluation import confusion_matrix, scores
from helpers.explorers import Explorer

STEPS = 50  # number of intervals between thresholds 0 and 1


def rare_scores() -> tuple[Tensor, Tensor]:
    """Return invented scores of a classifier: 30 positives among 1000 samples, with low scores.

    Returns:
        `truth`, int64 of shape (1000,), and the `score` of each sample, float64 in (0, 1).
    """
    truth = (torch.arange(1000) < 30).long()
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(1000, generator=g, dtype=torch.float64)
    return truth, torch.where(truth == 1, 0.9 * noise - 1.3, 0.9 * noise - 3.4).sigmoid()


def at_threshold(truth: Tensor, score: Tensor, threshold: float) -> list[float | None]:
    """Count correct and wrong predictions if a score of at least `threshold` means positive.

    Args:
        truth: int64 of shape (n,), 1 for a positive.
        score: float of shape (n,).
        threshold: between 0 and 1.

    Returns:
        True negatives, false positives, false negatives, true positives, then precision, recall
        and F1 of the positive class (None for 0 / 0).
    """
    matrix = confusion_matrix(truth, (score >= threshold).long(), 2)
    precision, recall, f1, _ = (column[1].item() for column in scores(matrix))
    return [*matrix.flatten().tolist(), *(None if v != v else v for v in (precision, recall, f1))]


def threshold_explorer(lang: str | None = None) -> Explorer:
    """Move a threshold over two histograms of scores, and see its effect on each count."""
    truth, score = rare_scores()
    edges = torch.arange(STEPS + 1, dtype=torch.float64) / STEPS
    inner = edges[1:-1]
    bins = torch.bucketize(score, inner, right=True)  # bin k: edges[k] <= score < edges[k + 1]
    data = {
        "bins": [torch.bincount(bins[truth == c], minlength=STEPS).tolist() for c in (0, 1)],
        "rows": [at_threshold(truth, score, edge) for edge in edges.tolist()],
        "start": STEPS // 2,
    }
    return Explorer(
        "threshold",
        data,
        {
            "en": (
                "Scores of 970 negatives and 30 positives. At the threshold 0.5 the accuracy is "
                "97 %, and hardly any positive is detected; a low threshold detects most of "
                "them, with false positives."
            ),
            "zh": (
                "970 个负样本和 30 个正样本的分数。阈值为 0.5 时准确率是 97%，但几乎没有检测出正"
                "样本；阈值低时能检测出大多数正样本，但会有假阳性。"
            ),
        },
        lang,
    )
