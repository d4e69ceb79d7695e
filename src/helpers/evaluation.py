"""Helpers of the chapter "Evaluate a model and count its mistakes".

Throughout, the rows of a confusion matrix are the true classes and its columns the predicted ones.

Source: "Metrics and scoring", https://scikit-learn.org/stable/modules/model_evaluation.html
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def preserve_modes(model: nn.Module) -> Iterator[nn.Module]:
    """After the block every submodule is in the mode that it had before, also after an error.

    `model.train()` at the end would also switch on a BatchNorm layer that was frozen on purpose.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield model
    finally:
        for module, training in modes:
            module.training = training


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode and no graphs inside; afterwards every submodule has its own mode again."""
    with preserve_modes(model), torch.no_grad():
        yield model.eval()


def confusion_matrix(
    target: Tensor, prediction: Tensor, num_classes: int, ignore_index: int | None = None
) -> Tensor:
    """Count the pairs: entry [i, j] says how often the true class i was predicted as j.

    Matrices of several batches add up to the matrix of all samples.

    Args:
        target: true classes, any integer dtype and shape.
        prediction: predicted classes, integers of the same shape.
        num_classes: the classes are 0 ... num_classes - 1.
        ignore_index: places with this target are left out, whatever was predicted there.

    Returns:
        int64, shape (num_classes, num_classes), on the device of `target`.

    Raises:
        TypeError: a tensor is not of integers.
        ValueError: the shapes differ, `num_classes` is not positive or a class is out of range.
    """
    for name, t in (("target", target), ("prediction", prediction)):
        if t.is_floating_point() or t.is_complex() or t.dtype == torch.bool:
            raise TypeError(f"expected integer classes in {name}, got {t.dtype}")
    if target.shape != prediction.shape:
        raise ValueError(
            f"expected one shape, got target {tuple(target.shape)} "
            f"and prediction {tuple(prediction.shape)}"
        )
    if num_classes < 1:
        raise ValueError(f"expected at least one class, got {num_classes}")
    target, prediction = target.flatten().long(), prediction.flatten().long()
    if ignore_index is not None:
        kept = target != ignore_index
        target, prediction = target[kept], prediction[kept]
    for name, t in (("target", target), ("prediction", prediction)):
        wrong = (t < 0) | (t >= num_classes)
        if wrong.any():
            raise ValueError(
                f"expected classes 0 ... {num_classes - 1} in {name}, got {t[wrong][0].item()}"
            )
    pairs = torch.bincount(target * num_classes + prediction, minlength=num_classes**2)
    return pairs.reshape(num_classes, num_classes)


class Scores(NamedTuple):
    """Scores per class, float64 of shape (C,), and how often each class occurs, int64."""

    precision: Tensor
    recall: Tensor
    f1: Tensor
    support: Tensor


def scores(matrix: Tensor, zero_division: float = math.nan) -> Scores:
    """Precision, recall, F1 and support of each class.

    Args:
        matrix: counts of shape (C, C), rows are the truth.
        zero_division: what 0 / 0 gives: a class that is never predicted has no precision, one
            that never occurs has no recall, and one that does neither has no F1.

    Raises:
        ValueError: `matrix` is not square.
    """
    _square(matrix)
    hits, support, predicted = matrix.diag(), matrix.sum(1), matrix.sum(0)
    return Scores(
        _ratio(hits, predicted, zero_division),
        _ratio(hits, support, zero_division),
        _ratio(2 * hits, support + predicted, zero_division),
        support,
    )


def averages(matrix: Tensor, zero_division: float | None = None) -> dict[str, list[float]]:
    """Micro, macro and weighted averages, each of precision, recall and F1 in this order.

    Args:
        matrix: counts of shape (C, C), rows are the truth.
        zero_division: what an undefined score counts. None is the convention of torchmetrics: a
            class that appears nowhere is left out, and one that appears counts 0, for example if
            it is never predicted. A number counts for both, and nan leaves both out; so it is in
            scikit-learn.

    If no score with a weight is left, or `matrix` holds only zeros, the average is nan.

    Raises:
        ValueError: `matrix` is not square.
    """
    *per_class, support = scores(matrix, math.nan if zero_division is None else zero_division)
    if not support.sum():
        return {how: [math.nan] * 3 for how in ("micro", "macro", "weighted")}
    if zero_division is None:
        appears = matrix.sum(0) + matrix.sum(1) > 0
        per_class = [torch.where(appears, s.nan_to_num(0.0), math.nan) for s in per_class]
    micro = (matrix.diag().sum().double() / matrix.sum()).item()

    def mean(score: Tensor, weight: Tensor) -> float:
        kept = ~score.isnan()
        return ((score[kept] * weight[kept]).sum() / weight[kept].sum()).item()

    return {
        "micro": [micro] * 3,
        "macro": [mean(s, torch.ones_like(s)) for s in per_class],
        "weighted": [mean(s, support.double()) for s in per_class],
    }


def most_confused(matrix: Tensor, k: int = 5) -> list[tuple[int, int, int]]:
    """The `k` most frequent mistakes as (true class, predicted class, count), at most.

    Counts of zero are no mistakes, so fewer may come back. Equal counts come in reading order.

    Raises:
        ValueError: `matrix` is not square or `k` is negative.
    """
    _square(matrix)
    if k < 0:
        raise ValueError(f"expected k of at least 0, got {k}")
    mistakes = matrix - matrix.diag().diag()
    counts, places = mistakes.flatten().sort(descending=True, stable=True)
    size = len(matrix)
    found = zip(places.tolist(), counts.tolist(), strict=True)
    return [(p // size, p % size, n) for p, n in found if n][:k]


def top_k_accuracy(logits: Tensor, target: Tensor, k: int) -> float:
    """Share of the samples whose true class is among the k highest scores, ties counting against.

    A sample is right if fewer than k other classes score as high as the true one or higher. Without
    ties that is `topk`; with ties `topk` picks whichever it likes.

    Args:
        logits: floating point, shape (N, C), without nan.
        target: true classes, integers of shape (N,).
        k: 1 ... C.

    Raises:
        ValueError: another shape, no samples, nan, a class out of range, or another k.
    """
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ValueError(
            f"expected logits (N, C) and target (N,), "
            f"got {tuple(logits.shape)} and {tuple(target.shape)}"
        )
    classes = logits.shape[1]
    if not 1 <= k <= classes:
        raise ValueError(f"expected k from 1 to the {classes} classes, got {k}")
    if not len(target):
        raise ValueError("expected at least one sample, got none")
    if logits.isnan().any():
        raise ValueError("expected numbers as logits, got nan")
    if target.min() < 0 or target.max() >= classes:
        raise ValueError(f"expected classes 0 ... {classes - 1} in target")
    own = logits.gather(1, target.long()[:, None])
    others = (logits >= own).sum(1) - 1
    return (others < k).double().mean().item()


def auroc(score: Tensor, target: Tensor) -> float:
    """Area under the ROC curve: how often a positive scores higher than a negative; a tie is half.

    Args:
        score: shape (N,), any numbers but nan; higher means more likely to be positive.
        target: 0, 1 or booleans, shape (N,).

    Raises:
        ValueError: another shape, nan, other targets, or only one class is present.

    Source: Fawcett 2006, "An introduction to ROC analysis".
    """
    if score.ndim != 1 or score.shape != target.shape:
        raise ValueError(
            f"expected score and target of shape (N,), "
            f"got {tuple(score.shape)} and {tuple(target.shape)}"
        )
    if score.isnan().any():
        raise ValueError("expected numbers as scores, got nan")
    if not ((target == 0) | (target == 1)).all():
        raise ValueError("expected targets 0 and 1")
    positive = target == 1
    high, low = score[positive].contiguous(), score[~positive].sort().values
    if not len(high) or not len(low):
        raise ValueError("expected positives and negatives, got only one class")
    below = torch.searchsorted(low, high)
    up_to = torch.searchsorted(low, high, right=True)
    return ((below + up_to).sum().double() / (2 * len(high) * len(low))).item()


class Bin(NamedTuple):
    """The samples whose confidence falls into one bin.

    Attributes:
        share: of all samples, above 0.
        confidence: their mean confidence, in [0, 1].
        accuracy: the share of them that is right, in [0, 1].
    """

    share: float
    confidence: float
    accuracy: float


def reliability(confidence: Tensor, correct: Tensor, bins: int = 10) -> list[Bin]:
    """Confidence and accuracy bin by bin, as a reliability diagram shows them; empty bins left out.

    Args:
        confidence: probability of the predicted class, in [0, 1], shape (N,).
        correct: whether the prediction was right, booleans of shape (N,).
        bins: of equal width; an edge belongs to the bin above it, 1 to the last.

    Raises:
        ValueError: another shape, no samples, fewer than one bin or a confidence outside [0, 1].
    """
    if confidence.ndim != 1 or confidence.shape != correct.shape or not len(correct):
        raise ValueError(
            f"expected confidence and correct of shape (N,), N > 0, "
            f"got {tuple(confidence.shape)} and {tuple(correct.shape)}"
        )
    if bins < 1:
        raise ValueError(f"expected at least one bin, got {bins}")
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("expected confidences in [0, 1]: apply a softmax first")
    index = (confidence * bins).long().clamp(max=bins - 1)
    found = []
    for i in range(bins):
        inside = index == i
        if inside.any():
            columns = (inside, confidence[inside], correct[inside])
            found.append(Bin(*(column.double().mean().item() for column in columns)))
    return found


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Expected calibration error: |accuracy - mean confidence| per bin, weighted by its samples.

    Args and errors are those of `reliability`.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    found = reliability(confidence, correct, bins)
    return sum(b.share * abs(b.accuracy - b.confidence) for b in found)


def write_report(
    path: str | os.PathLike[str], matrix: Tensor, names: Sequence[str], confused: int = 3
) -> None:
    """Write a CSV with a row per class and one row for all of them.

    Columns: class, support, precision, recall, f1, and "mistaken for": the classes that this one is
    most often mistaken for. A score that is not defined is left empty. The row "all" holds the
    accuracy under recall, and nothing else that would only repeat it.

    The file is UTF-8 with a byte order mark, so that Excel reads any alphabet. It replaces an older
    one only when it is complete.

    Raises:
        ValueError: `matrix` is not square or `names` has another length.
        OSError: the file cannot be written; an older one is left as it was.
    """
    _square(matrix)
    if len(names) != len(matrix):
        raise ValueError(f"expected {len(matrix)} names, got {len(names)}")
    path = Path(path)
    rows: list[list[object]] = []
    columns = [column.tolist() for column in scores(matrix)]
    for c, (*values, support) in enumerate(zip(*columns, strict=True)):
        row = torch.zeros_like(matrix)
        row[c] = matrix[c]
        found = [f"{names[j]}:{n}" for _, j, n in most_confused(row, confused)]
        texts = ["" if math.isnan(v) else f"{v:.3f}" for v in values]
        rows.append([names[c], support, *texts, " ".join(found)])
    total = int(matrix.sum())
    accuracy = f"{int(matrix.diag().sum()) / total:.3f}" if total else ""
    rows.append(["all", total, "", accuracy, "", ""])
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["class", "support", "precision", "recall", "f1", "mistaken for"])
    writer.writerows(rows)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(text.getvalue().encode("utf-8-sig"))
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _square(matrix: Tensor) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"expected a square matrix of counts, got shape {tuple(matrix.shape)}")


def _ratio(part: Tensor, whole: Tensor, zero_division: float) -> Tensor:
    ratio = part.double() / whole.double()
    return torch.where(whole == 0, torch.full_like(ratio, zero_division), ratio)
