"""Helpers of the chapter on evaluation: modes, confusion matrix, metrics, calibration, a report.

In each confusion matrix, rows are the true classes and columns the predicted ones.

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

from helpers import checks


@contextlib.contextmanager
def preserve_modes(model: nn.Module) -> Iterator[nn.Module]:
    """Restore the training mode of every submodule after the block, also after an error.

    `model.train()` at the end would also switch a BatchNorm layer that was frozen on purpose.

    Raises:
        TypeError: `model` is not a module.
    """
    modes = [(part, part.training) for part in checks.module("model", model).modules()]
    try:
        yield model
    finally:
        for part, training in modes:
            part.training = training


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Use evaluation mode without gradients in the block; restore every submodule's mode after.

    Raises:
        TypeError: `model` is not a module.
    """
    with preserve_modes(model), torch.no_grad():
        yield model.eval()


def confusion_matrix(
    target: Tensor, prediction: Tensor, num_classes: int, ignore_index: int | None = None
) -> Tensor:
    """Return the counts [i, j] of samples of true class i that were predicted as class j.

    Matrices of several batches add up to the matrix of all samples.

    Args:
        target: true classes, any integer dtype and shape.
        prediction: predicted classes, integers of the same shape.
        num_classes: the classes are 0 ... num_classes - 1.
        ignore_index: positions with this target are left out, whatever was predicted there.

    Returns:
        int64, shape (num_classes, num_classes), on the device of `target`.

    Raises:
        TypeError: an argument is not a tensor, or does not contain integers; `num_classes` or
            `ignore_index` is not an int.
        ValueError: the shapes differ, `num_classes` is not positive or a class is out of range.
    """
    for name, t in (("target", target), ("prediction", prediction)):
        _is_tensor(name, t)
        if t.is_floating_point() or t.is_complex() or t.dtype == torch.bool:
            raise TypeError(f"expected integer classes in {name}, got {t.dtype}")
    if target.shape != prediction.shape:
        raise ValueError(
            f"expected one shape, got target {tuple(target.shape)} "
            f"and prediction {tuple(prediction.shape)}"
        )
    num_classes = checks.integer("num_classes", num_classes)
    if ignore_index is not None:
        ignore_index = checks.integer("ignore_index", ignore_index)
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
    """Scores of each class, float64 of shape (C,), and its count, in the kind of the matrix."""

    precision: Tensor
    recall: Tensor
    f1: Tensor
    support: Tensor


def scores(matrix: Tensor, zero_division: float = math.nan) -> Scores:
    """Return precision, recall, F1 and support of each class.

    Args:
        matrix: counts of shape (C, C), rows are the truth.
        zero_division: value of 0 / 0: a class that is never predicted has no precision, one that
            never occurs has no recall, and a class of both kinds has no F1.

    Raises:
        TypeError: `matrix` is not a tensor, or `zero_division` not a number.
        ValueError: `matrix` is not square.
    """
    matrix = _counts(matrix)
    checks.number("zero_division", zero_division)
    hits, support, predicted = matrix.diag(), matrix.sum(1), matrix.sum(0)
    return Scores(
        _ratio(hits, predicted, zero_division),
        _ratio(hits, support, zero_division),
        _ratio(2 * hits, support + predicted, zero_division),
        support,
    )


def averages(matrix: Tensor, zero_division: float | None = None) -> dict[str, list[float]]:
    """Return micro, macro and weighted averages, each of precision, recall and F1 in this order.

    If no score with a weight is left, or all counts are zero, the average is nan.

    Args:
        matrix: counts of shape (C, C), rows are the truth.
        zero_division: value of an undefined score. None is the convention of torchmetrics: a class
            that appears nowhere is left out, and one that appears, but is never predicted, counts
            0. A number replaces both, and nan leaves both out, as in scikit-learn.

    Raises:
        TypeError: `matrix` is not a tensor, or `zero_division` not a number.
        ValueError: `matrix` is not square.
    """
    matrix = _counts(matrix)
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
    """Return at most the `k` most frequent mistakes as (true class, predicted class, count).

    Counts of zero are left out, so there may be fewer. Equal counts come in reading order.

    Raises:
        TypeError: `matrix` is not a tensor, or `k` not an int.
        ValueError: `matrix` is not square or `k` is negative.
    """
    matrix = _counts(matrix)
    k = checks.integer("k", k)
    if k < 0:
        raise ValueError(f"expected k of at least 0, got {k}")
    mistakes = matrix - matrix.diag().diag()
    counts, positions = mistakes.flatten().sort(descending=True, stable=True)
    size = len(matrix)
    ordered = zip(positions.tolist(), counts.tolist(), strict=True)
    return [(p // size, p % size, n) for p, n in ordered if n][:k]


def top_k_accuracy(logits: Tensor, target: Tensor, k: int) -> float:
    """Return the fraction of samples whose true class is among the k largest logits.

    A sample is right if fewer than k other classes have a logit as large as that of the true class
    or larger, so ties count against it. Without ties this equals `topk`; with ties, the choice of
    `topk` is arbitrary.

    Args:
        logits: floating point, shape (N, C), without nan.
        target: true classes, integers of shape (N,).
        k: 1 ... C.

    Raises:
        TypeError: an argument is not a tensor, `target` does not contain integers, or `k` is not an
            int.
        ValueError: another shape, no samples, nan, a class out of range, or another k.
    """
    for name, t in (("logits", logits), ("target", target)):
        _is_tensor(name, t)
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ValueError(
            f"expected logits (N, C) and target (N,), "
            f"got {tuple(logits.shape)} and {tuple(target.shape)}"
        )
    classes = logits.shape[1]
    k = checks.integer("k", k)
    if not 1 <= k <= classes:
        raise ValueError(f"expected k from 1 to the {classes} classes, got {k}")
    if not len(target):
        raise ValueError("expected at least one sample, got none")
    if logits.isnan().any():
        raise ValueError("expected numbers as logits, got nan")
    if target.is_floating_point():
        raise TypeError(f"expected integer classes in target, got {target.dtype}")
    if target.min() < 0 or target.max() >= classes:
        raise ValueError(f"expected classes 0 ... {classes - 1} in target")
    own = logits.gather(1, target.long()[:, None])
    others = (logits >= own).sum(1) - 1
    return (others < k).sum().item() / len(target)


def auroc(score: Tensor, target: Tensor) -> float:
    """Return the area under the ROC curve: how often a positive scores above a negative.

    A tie counts one half.

    Args:
        score: shape (N,), any numbers but nan; higher means more likely to be positive.
        target: 0, 1 or booleans, shape (N,).

    Raises:
        ValueError: another shape, nan, other targets, or only one class is present.

    Source: Fawcett 2006, "An introduction to ROC analysis".
    """
    _is_tensor("score", score)
    _is_tensor("target", target)
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
    score = score.int() if score.dtype == torch.bool else score  # searchsorted has no booleans
    high, low = score[positive].contiguous(), score[~positive].sort().values
    if not len(high) or not len(low):
        raise ValueError("expected positives and negatives, got only one class")
    below = torch.searchsorted(low, high)
    up_to = torch.searchsorted(low, high, right=True)
    return (below + up_to).sum().item() / (2 * len(high) * len(low))


class Bin(NamedTuple):
    """Samples whose confidence falls into one bin of a reliability diagram.

    Attributes:
        share: their fraction of all samples, above 0.
        confidence: their mean confidence, in [0, 1].
        accuracy: the fraction of them that is correct, in [0, 1].
    """

    share: float
    confidence: float
    accuracy: float


def reliability(confidence: Tensor, correct: Tensor, bins: int = 10) -> list[Bin]:
    """Return confidence and accuracy per bin, as in a reliability diagram; empty bins are left out.

    Args:
        confidence: probability of the predicted class, in [0, 1], shape (N,).
        correct: whether the prediction was right, booleans of shape (N,).
        bins: number of bins of equal width; an edge belongs to the bin above it, 1 to the last.

    Raises:
        TypeError: an argument is not a tensor, or `bins` not an int.
        ValueError: another shape, no samples, fewer than one bin, a confidence outside [0, 1], or
            classes instead of booleans.
    """
    for name, t in (("confidence", confidence), ("correct", correct)):
        _is_tensor(name, t)
    if confidence.ndim != 1 or confidence.shape != correct.shape or not len(correct):
        raise ValueError(
            f"expected confidence and correct of shape (N,), N > 0, "
            f"got {tuple(confidence.shape)} and {tuple(correct.shape)}"
        )
    if not ((correct == 0) | (correct == 1)).all():
        raise ValueError("expected correct as booleans, got other values: compare with the labels")
    bins = checks.integer("bins", bins)
    if bins < 1:
        raise ValueError(f"expected at least one bin, got {bins}")
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("expected confidences in [0, 1]: apply a softmax first")
    index = (confidence * bins).long().clamp(max=bins - 1)
    occupied = []
    for i in range(bins):
        inside = index == i
        if inside.any():
            columns = (inside, confidence[inside], correct[inside])
            occupied.append(Bin(*(column.cpu().double().mean().item() for column in columns)))
    return occupied


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Return the expected calibration error: |accuracy - mean confidence|, averaged over samples.

    Arguments and errors are those of `reliability`.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    diagram = reliability(confidence, correct, bins)
    return sum(b.share * abs(b.accuracy - b.confidence) for b in diagram)


def write_report(
    path: str | os.PathLike[str], matrix: Tensor, names: Sequence[str], confused: int = 3
) -> None:
    """Write a CSV file with the scores of each class and a last row for all classes.

    Columns: class, support, precision, recall, f1, and "mistaken for": the classes that are
    predicted most often instead. An undefined score is left empty. The row "all" has the accuracy
    in the column recall; precision and F1 would repeat it and stay empty.

    The file is UTF-8 with a byte order mark, so that Excel reads any alphabet. It replaces an older
    file only when it is complete.

    Raises:
        TypeError: `matrix` is not a tensor, `names` not a list, or `confused` not an int.
        ValueError: `matrix` is not square or `names` has another length.
        OSError: the file cannot be written; an older one is unchanged.
    """
    matrix = _counts(matrix)
    if not isinstance(names, Sequence):
        raise TypeError(f"names must be a list, got {type(names).__name__}")
    confused = checks.integer("confused", confused)
    if len(names) != len(matrix):
        raise ValueError(f"expected {len(matrix)} names, got {len(names)}")
    path = Path(path)
    rows: list[list[object]] = []
    columns = [column.tolist() for column in scores(matrix)]
    for c, (*values, support) in enumerate(zip(*columns, strict=True)):
        row = torch.zeros_like(matrix)
        row[c] = matrix[c]
        mistakes = [f"{names[j]}:{n}" for _, j, n in most_confused(row, confused)]
        texts = ["" if math.isnan(v) else f"{v:.3f}" for v in values]
        rows.append([names[c], support, *texts, " ".join(mistakes)])
    total = matrix.sum().item()
    accuracy = f"{matrix.diag().sum().item() / total:.3f}" if total else ""
    rows.append(["all", total, "", accuracy, "", ""])
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["class", "support", "precision", "recall", "f1", "mistaken for"])
    writer.writerows(rows)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(text.getvalue().encode("utf-8-sig"))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"expected a tensor as {name}, got {type(value).__name__}: torch.as_tensor")
    checks.filled(name, value)


def _counts(matrix: Tensor) -> Tensor:
    """Return the square matrix as float64 or int64: sums of a narrow dtype would overflow."""
    _is_tensor("matrix", matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"expected a square matrix of counts, got shape {tuple(matrix.shape)}")
    matrix = matrix.cpu() if matrix.device.type == "mps" else matrix  # MPS has no float64
    return matrix.double() if matrix.is_floating_point() else matrix.long()


def _ratio(part: Tensor, whole: Tensor, zero_division: float) -> Tensor:
    ratio = part.double() / whole.double()
    return torch.where(whole == 0, torch.full_like(ratio, zero_division), ratio)
