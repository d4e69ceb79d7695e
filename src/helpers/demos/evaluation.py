"""Figures and demonstrations of the chapter on evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from helpers.evaluation import reliability
from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "predicted class": "预测的类别",
    "true class": "真实的类别",
    "confidence": "置信度",
    "temperature {}": "温度 {}",
    "recall": "召回率",
    "precision": "精确率",
    "chosen": "选定的阈值",
}


def draw_confusion(matrix: Tensor, names: Sequence[str]) -> Figure:
    """Draw a confusion matrix with its counts, shaded by their fraction of the row.

    The diagonal is blue, mistakes are orange and five times as strong, zeros are left blank.

    Args:
        matrix: counts of shape (C, C), rows are the truth.
        names: of the C classes.

    Raises:
        ValueError: `matrix` has another shape.
    """
    from matplotlib.patches import Rectangle

    size = len(names)
    if matrix.shape != (size, size):
        raise ValueError(
            f"expected a matrix of shape {(size, size)} for {size} names, got {tuple(matrix.shape)}"
        )
    shares = matrix / matrix.sum(1, keepdim=True).clamp(min=1)
    drawing, axis = figure(size=(3.6, 3.5), chinese=_CHINESE)
    for i in range(size):
        for j in range(size):
            share, count = shares[i, j].item(), int(matrix[i, j])
            strength = share if i == j else min(1.0, 5 * share)
            color = COLORS["teal"] if i == j else COLORS["orange"]
            style = {"facecolor": color, "alpha": strength / 2, "linewidth": 0}
            axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **style))
            if count:
                axis.text(j, i, str(count), ha="center", va="center", fontsize=8.5)
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5))
    axis.set(xlabel="predicted class", ylabel="true class")
    axis.set_xticks(range(size), names)
    axis.set_yticks(range(size), names)
    axis.set_xticks([i - 0.5 for i in range(1, size)], minor=True)
    axis.set_yticks([i - 0.5 for i in range(1, size)], minor=True)
    axis.grid(which="minor", color=COLORS["pale grey"])
    axis.tick_params(which="both", length=0)
    axis.set_aspect("equal")
    axis.spines[:].set(visible=True, color=COLORS["grey"])
    return drawing


def draw_reliability(panels: Mapping[str, tuple[Tensor, Tensor]], bins: int = 10) -> Figure:
    """Draw accuracy over confidence, bin by bin; on the dashed line both are equal.

    The larger the dot, the more samples in its bin.

    Args:
        panels: title to (confidence, correct), as for `reliability`.
        bins: of equal width.

    Raises:
        ValueError: there is no panel, or `reliability` raises for one.
    """
    if not panels:
        raise ValueError("draw_reliability needs at least one panel, got none")
    drawing, axes = figure(len(panels), size=(3.4, 2.3), chinese=_CHINESE)
    for axis, (name, (confidence, correct)) in zip(axes, panels.items(), strict=True):
        shares, sure, right = zip(*reliability(confidence, correct, bins), strict=True)
        axis.plot([0, 1], [0, 1], "--", color=COLORS["grey"], linewidth=1)
        axis.plot(sure, right, color=COLORS["teal"], linewidth=1)
        axis.scatter(sure, right, [10 + 160 * s for s in shares], color=COLORS["teal"], zorder=3)
        axis.set(xlim=(0, 1.05), ylim=(0, 1.08), xlabel="confidence", ylabel="accuracy")
        title(axis, name)
    return drawing


def draw_precision_recall(score: Tensor, target: Tensor, marks: Mapping[str, float]) -> Figure:
    """Draw precision over recall for every threshold, and mark some thresholds.

    The dotted line is the fraction of positives, the precision of guessing.

    Args:
        score: shape (N,), higher means more likely to be positive.
        target: booleans of shape (N,), at least one of them True.
        marks: label to threshold; a score of the threshold or more is predicted positive.

    Raises:
        ValueError: no sample is positive.
    """
    from sklearn.metrics import precision_recall_curve

    if not target.any():
        raise ValueError("expected at least one positive, got none")
    precision, recall, _ = precision_recall_curve(target, score)
    drawing, axis = figure(chinese=_CHINESE)
    axis.plot(recall, precision, color=COLORS["teal"])
    for label, limit in marks.items():
        predicted = score >= limit
        hits = (predicted & target).sum().item()
        place = (hits / target.sum().item(), hits / max(predicted.sum().item(), 1))
        axis.plot(*place, "o", color=COLORS["orange"])
        axis.annotate(label, place, xytext=(-6, -12), textcoords="offset points", ha="right")
    axis.axhline(target.double().mean().item(), color=COLORS["grey"], linestyle=":", linewidth=1)
    axis.set(xlim=(0, 1.03), ylim=(0, 1.05), xlabel="recall", ylabel="precision")
    return drawing
