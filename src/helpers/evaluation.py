"""Helpers of the chapter "Evaluate a model and count its mistakes".

Throughout, the rows of a confusion matrix are the true classes and its columns the predicted ones.

Source: "Metrics and scoring", https://scikit-learn.org/stable/modules/model_evaluation.html
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode and no graphs inside; afterwards every submodule has its own mode again.

    `model.train()` at the end would also switch on a BatchNorm layer that was frozen on purpose.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield model
    finally:
        for module, training in modes:
            module.training = training


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


def averages(matrix: Tensor, zero_division: float = math.nan) -> dict[str, list[float]]:
    """Micro, macro and weighted averages, each of precision, recall and F1 in this order.

    Undefined scores are left out of an average where `zero_division` is nan, as in scikit-learn.
    Where nothing with a weight is left, or `matrix` counts nothing, the average is nan.

    Raises:
        ValueError: `matrix` is not square.
    """
    *per_class, support = scores(matrix, zero_division)
    if not support.sum():
        return {how: [math.nan] * 3 for how in ("micro", "macro", "weighted")}
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
        score: shape (N,), any numbers that rise with the belief in the positive class, no nan.
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


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Expected calibration error: |accuracy - mean confidence| per bin, weighted by its samples.

    Args:
        confidence: probability of the predicted class, in [0, 1], shape (N,).
        correct: whether the prediction was right, booleans of shape (N,).
        bins: of equal width; an edge belongs to the bin above it, 1 to the last.

    Raises:
        ValueError: another shape, no samples, fewer than one bin or a confidence outside [0, 1].

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    return sum(share * abs(right - sure) for share, sure, right in _bins(confidence, correct, bins))


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
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file)
            writer.writerow(["class", "support", "precision", "recall", "f1", "mistaken for"])
            writer.writerows(rows)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def draw_confusion(matrix: Tensor, names: Sequence[str]) -> Figure:
    """Draw a confusion matrix with its counts; the shade is the share of the row.

    The diagonal is blue, mistakes are orange and five times as strong, zeros are left blank.

    Raises:
        ValueError: `matrix` is not square or `names` has another length.
    """
    import matplotlib.pyplot as plt

    _square(matrix)
    size = len(matrix)
    if len(names) != size:
        raise ValueError(f"expected {size} names, got {len(names)}")
    shares = matrix / matrix.sum(1, keepdim=True).clamp(min=1)
    figure, axis = plt.subplots(figsize=(5, 4.4))
    for i in range(size):
        for j in range(size):
            share, count = shares[i, j].item(), int(matrix[i, j])
            strength = share if i == j else min(1.0, 5 * share)
            color = "#0a6b7d" if i == j else "#c2410c"
            place = (j - 0.5, i - 0.5)
            axis.add_patch(plt.Rectangle(place, 1, 1, facecolor=color, alpha=strength, linewidth=0))
            if count:
                ink = "white" if strength > 0.6 else "black"
                axis.text(j, i, str(count), ha="center", va="center", color=ink, fontsize=9)
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
    axis.set(xlabel="predicted class", ylabel="true class")
    axis.set_xticks(range(size), names)
    axis.set_yticks(range(size), names)
    axis.set_xticks([i - 0.5 for i in range(1, size)], minor=True)
    axis.set_yticks([i - 0.5 for i in range(1, size)], minor=True)
    axis.grid(which="minor", color="#ccc", linewidth=0.5)
    axis.tick_params(which="both", length=0)
    axis.set_aspect("equal")
    axis.spines[:].set_color("#555")
    figure.tight_layout()
    return figure


def draw_reliability(panels: Mapping[str, tuple[Tensor, Tensor]], bins: int = 10) -> Figure:
    """Draw accuracy against confidence, bin by bin; on the dashed line both are equal.

    The larger the dot, the more samples in its bin.

    Args:
        panels: title to (confidence, correct), as for `calibration_error`.
        bins: of equal width.

    Raises:
        ValueError: no panel, or one that `calibration_error` would refuse.
    """
    import matplotlib.pyplot as plt

    if not panels:
        raise ValueError("draw_reliability needs at least one panel, got none")
    figure, axes = plt.subplots(1, len(panels), figsize=(8, 3), sharey=True, squeeze=False)
    for axis, (title, (confidence, correct)) in zip(axes[0], panels.items(), strict=True):
        shares, sure, right = zip(*_bins(confidence, correct, bins), strict=True)
        axis.plot([0, 1], [0, 1], "--", color="#555", linewidth=1)
        axis.plot(sure, right, color="#0a6b7d", linewidth=1)
        axis.scatter(sure, right, [15 + 250 * s for s in shares], color="#0a6b7d", zorder=3)
        axis.set(xlim=(0, 1.05), ylim=(0, 1.08), xlabel="confidence")
        axis.set_title(title, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("accuracy")
    figure.tight_layout()
    return figure


def _square(matrix: Tensor) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"expected a square matrix of counts, got shape {tuple(matrix.shape)}")


def _ratio(part: Tensor, whole: Tensor, zero_division: float) -> Tensor:
    ratio = part.double() / whole.double()
    return torch.where(whole == 0, torch.full_like(ratio, zero_division), ratio)


def _bins(confidence: Tensor, correct: Tensor, bins: int) -> list[tuple[float, float, float]]:
    """Share of the samples, mean confidence and accuracy of every bin that is not empty."""
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
            means = (t[inside].double().mean().item() for t in (confidence, correct))
            found.append((inside.double().mean().item(), *means))
    return found


# ---------------------------------------------------------------- exercises


class _Probe(nn.Module):
    """Takes logits for inputs; notices how it is run, and answers wrongly in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.frozen = nn.Dropout()
        self.active = nn.Dropout()
        self.recorded = self.trained = False

    def forward(self, x: Tensor) -> Tensor:
        out = x * self.scale
        self.recorded |= out.requires_grad
        self.trained |= self.training
        return out.roll(1, 1) if self.training else out


def check_accuracy(
    answer: Callable[[nn.Module, Iterable[tuple[Tensor, Tensor]]], float],
) -> Verdict:
    """Check `answer(model, loader)`: the accuracy over all samples, and an untouched model.

    `loader` gives (inputs, labels), the last batch smaller than the others; the model maps inputs
    to logits (n, 4). The result is a Python float in [0, 1].
    """

    def case() -> tuple[_Probe, list[tuple[Tensor, Tensor]], float, float]:
        batches, shares, right, total = [], [], 0, 0
        for size, hits in ((4, 2), (4, 2), (last := int(torch.randint(1, 4, ())), last)):
            labels = torch.randint(4, (size,))
            best = (labels + (torch.arange(size) >= hits) * 2) % 4  # two off: a roll mends nothing
            x = torch.rand(size, 4)
            x[torch.arange(size), best] += 2
            batches.append((x, labels))
            shares.append(hits / size)
            right, total = right + hits, total + size
        return _Probe(), batches, right / total, sum(shares) / 3

    def value(f: Callable) -> None:
        model, batches, want, mean = case()
        got = f(model, batches)
        assert isinstance(got, (float, int)) or hasattr(got, "item"), (
            f"expected a float, got {type(got).__name__}"
        )
        assert not model.trained, "the model ran in training mode"
        number = float(got)
        assert math.isfinite(number), f"expected a share of the samples, got {number}"
        assert abs(number - mean) > 1e-4, (
            "this is the mean of the batches' accuracies; the last batch is smaller and must not "
            "count as much"
        )
        assert abs(number - 100 * want) > 1e-3, "give a fraction, not a percentage"
        assert abs(number - want) < 1e-6, f"expected {want:.3f}, got {number:.3f}"
        assert type(got) is float, f"expected a Python float, got {type(got).__name__}"

    def no_graph(f: Callable) -> None:
        model, batches, *_ = case()
        f(model, batches)
        assert not model.recorded, "autograd recorded a graph for every batch"

    def modes(f: Callable) -> None:
        for training in (True, False):
            model, batches, *_ = case()
            model.train(training).frozen.eval()
            model.active.train()
            f(model, batches)
            assert model.training == training, (
                f"the model came in {_mode(training)} mode and was left in {_mode(not training)} "
                f"mode"
            )
            assert not model.frozen.training and model.active.training, (
                "a layer was left in another mode than the one it came in: train() and eval() "
                "reach all of them"
            )

    return verdict(answer, [value, no_graph, modes])


def _mode(training: bool) -> str:
    return "training" if training else "evaluation"


def check_mistaken_for(answer: Callable[[Tensor, int, int], list[int]]) -> Verdict:
    """Check `answer(matrix, c, k)`: the classes that c is mistaken for, most frequent first.

    At most k of them, without c itself and without those that never happened; a list of ints.
    """

    def draw() -> tuple[Tensor, int]:
        size, c = int(torch.randint(6, 9, ())), int(torch.randint(6, ()))
        matrix = torch.randperm(size * size).reshape(size, size) + 1
        matrix.fill_diagonal_(size * size + 5)
        others = [j for j in range(size) if j != c]
        matrix[c, others[-1]] = 0
        first, second = (int(matrix[line].argsort()[-2]) for line in ((c,), (slice(None), c)))
        return (matrix, c) if first != second else draw()

    def compare(f: Callable, matrix: Tensor, c: int, k: int) -> None:
        before = matrix.clone()
        got = f(matrix, c, k)
        assert isinstance(got, list), f"expected a list, got {type(got).__name__}"
        assert all(type(j) is int for j in got), "expected a list of Python ints"
        assert torch.equal(matrix, before), "your function changed the matrix it was given"
        assert c not in got, "the class itself is in the list: the diagonal is no mistake"
        row = [(n, j) for j, n in enumerate(matrix[c].tolist()) if n and j != c]
        want = [j for _, j in sorted(row, reverse=True)][:k]
        column = [(n, i) for i, n in enumerate(matrix[:, c].tolist()) if n and i != c]
        assert got != [i for _, i in sorted(column, reverse=True)][:k], (
            "this is the column: the classes that are mistaken for c, not those it is mistaken for"
        )
        assert all(matrix[c, j] for j in got), "a class is listed that it was never mistaken for"
        assert len(got) == len(want), f"expected {len(want)} classes for k={k}, got {len(got)}"
        assert got == want, "these are not the most frequent ones, most frequent first"

    def value(f: Callable) -> None:
        compare(f, *draw(), 3)

    def first(f: Callable) -> None:
        compare(f, *draw(), 1)

    def few(f: Callable) -> None:
        matrix, c = draw()
        compare(f, matrix, c, len(matrix) + 3)

    return verdict(answer, [value, first, few])


def check_macro_f1(
    answer: Callable[[Sequence[tuple[Tensor, Tensor]], int], float],
) -> Verdict:
    """Check `answer(batches, num_classes)`: the macro F1 of all samples.

    `batches` holds (target, prediction), int64 of shape (n,). A class that occurs and is never
    predicted has F1 0; one that is neither in the targets nor in the predictions does not count.
    """

    def others(batches: Sequence[tuple[Tensor, Tensor]], c: int) -> dict[str, float]:
        whole = confusion_matrix(*map(torch.cat, zip(*batches, strict=True)), c)
        parts = [averages(confusion_matrix(t, p, c))["macro"][2] for t, p in batches]
        found, filled = averages(whole), averages(whole, 0.0)
        precision, recall = filled["macro"][:2]
        return {
            "the mean of the batches' scores": sum(parts) / len(parts),
            "the average over all classes, also those that appear nowhere": filled["macro"][2],
            "the weighted average": found["weighted"][2],
            "the accuracy": found["micro"][2],
            "the F1 of the mean precision and the mean recall": (
                2 * precision * recall / (precision + recall)
            ),
            "the macro recall": found["macro"][1],
            "the macro precision": found["macro"][0],
        }

    def draw(c: int, missing: int) -> tuple[list[tuple[Tensor, Tensor]], int, float]:
        while True:
            target = torch.cat([torch.arange(c), torch.randint(c, (5 * c,)).clamp(min=1)])
            prediction = torch.where(torch.rand(6 * c) < 0.5, target, torch.randint(c, (6 * c,)))
            prediction[prediction == c - 1] = 0  # the last class is never predicted
            prediction[0] = 0
            batches = list(zip(target.split(c + 1), prediction.split(c + 1), strict=True))
            want = averages(confusion_matrix(target, prediction, c))["macro"][2]
            wrong = others(batches, c + missing)
            if missing == 0:
                wrong.pop("the average over all classes, also those that appear nowhere")
            values = sorted([want, *wrong.values()])
            if all(b - a > 0.002 for a, b in itertools.pairwise(values)):
                return batches, c + missing, want

    def compare(f: Callable, missing: int) -> None:
        batches, c, want = draw(int(torch.randint(4, 7, ())), missing)
        got: Any = f(batches, c)
        assert isinstance(got, (float, int)) or getattr(got, "ndim", None) == 0, (
            f"expected one number, got {type(got).__name__}"
        )
        got = float(got)
        assert not math.isnan(got), "the result is nan: somewhere 0 was divided by 0"
        if abs(got - want) < 1e-4:
            return
        for what, value in others(batches, c).items():
            assert abs(got - value) > 1e-4, f"this is {what}"
        raise AssertionError(f"expected {want:.3f}, got {got:.3f}")

    return verdict(answer, [lambda f: compare(f, 0), lambda f: compare(f, 2)])
