"""Figures and demonstrations of the chapter on tensor recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from helpers import checks
from helpers.figures import COLORS, Figure, figure, legend
from helpers.tensor_recipes import EXACT

_FACES = {
    "A": COLORS["pale blue"],
    "B": COLORS["pale orange"],
    "C": COLORS["pale grey"],
}


_CHINESE = {
    "default": "默认",
    "default, mean subtracted": "默认，先减均值",
    "exact mode": "精确模式",
    "center of the points, in every coordinate": "点的中心，每个坐标都相同",
    "largest error": "最大误差",
    "spread of the points": "点的散布",
    "prediction ({}, {})": "预测 ({}, {})",
    "target ({},)": "目标 ({},)",
    "prediction - target ({}, {})": "预测 - 目标 ({}, {})",
}


def cdist_errors(offsets: Sequence[float], n: int = 200, d: int = 3) -> dict[str, list[float]]:
    """Return the largest error of the distances of `n` float32 points, for three methods.

    The points are normally distributed around a center that is `offset` away from the origin in
    every coordinate; the distances in float64 are the reference.

    Returns:
        One error per offset under `"default"`, `"default, mean subtracted"` and `"exact mode"`.

    Raises:
        TypeError, ValueError: `n` or `d` is not an int or below 1, or an offset is not a number.
    """
    n, d = checks.integer("n", n, 1), checks.integer("d", d, 1)
    generator = torch.Generator().manual_seed(0)
    cloud = torch.randn(n, d, generator=generator)
    errors: dict[str, list[float]] = {}
    for offset in offsets:
        x = cloud + checks.finite("each of offsets", offset)
        true = torch.cdist(x.double(), x.double(), compute_mode=EXACT)
        centered = x - x.mean(0)
        distances = {
            "default": torch.cdist(x, x),
            "default, mean subtracted": torch.cdist(centered, centered),
            "exact mode": torch.cdist(x, x, compute_mode=EXACT),
        }
        for name, distance in distances.items():
            errors.setdefault(name, []).append((distance - true).abs().max().item())
    return errors


def draw_cdist_errors() -> Figure:
    """Draw `cdist_errors` for points around 1 to 1000."""
    offsets = [10 ** (k / 4) for k in range(13)]
    drawing, axis = figure(size=(3.5, 2.7), chinese=_CHINESE)
    styles = {
        "default": (COLORS["orange"], "o-"),
        "default, mean subtracted": (COLORS["grey"], "s--"),
        "exact mode": (COLORS["teal"], "^-"),
    }
    for name, values in cdist_errors(offsets).items():
        color, line = styles[name]
        axis.loglog(offsets, values, line, color=color, markersize=4, label=name)
    axis.set(
        xlabel="center of the points, in every coordinate",
        ylabel="largest error",
        ylim=(1e-8, 30),
    )
    axis.axhline(1, color=COLORS["grey"], linewidth=1, linestyle=":")
    axis.text(1.1, 1.5, "spread of the points", color=COLORS["grey"], fontsize=8.5)
    legend(axis)
    return drawing


def draw_join() -> Figure:
    """Draw three 2 x 2 tensors A, B, C, joined by `cat` and `stack` along each axis.

    The cells of the results are those that torch computes.
    """
    names = [f"{letter}{i}" for letter in "ABC" for i in range(4)]
    parts = list(torch.arange(12).reshape(3, 2, 2))
    results = {
        "A, B, C": (torch.stack(parts), [f"{letter}: (2, 2)" for letter in "ABC"]),
        "cat, dim=0": (torch.cat(parts)[None], [""]),
        "cat, dim=1": (torch.cat(parts, 1)[None], [""]),
        "stack, dim=0": (torch.stack(parts), ["[0]", "[1]", "[2]"]),
        "stack, dim=1": (torch.stack(parts, 1), ["[0]", "[1]"]),
    }
    shown = []
    for head, (blocks, marks) in results.items():
        shape = blocks.shape[1:] if head.startswith("cat") else blocks.shape
        lines = [head] if head == "A, B, C" else [head, f"{tuple(shape)}"]
        gap = 0.9 if marks[0] else 0.25
        rows = len(blocks) * (blocks.shape[1] + gap)
        shown.append((lines, blocks, marks, (max(blocks.shape[2], 4.0), rows)))
    drawing, axes = _grids([size for *_, size in shown], lines=2)
    for axis, (lines, blocks, marks, _) in zip(axes, shown, strict=True):
        _head(axis, "\n".join(lines))
        top = 0.0
        for block, mark in zip(blocks, marks, strict=True):
            if mark:
                axis.text(0, top + 0.55, mark, fontsize=8, color=COLORS["black"])
                top += 0.7
            text = [[names[k] for k in row] for row in block.tolist()]
            faces = [[_FACES[t[0]] for t in row] for row in text]
            _grid(axis, 0, top, text, faces)
            top += len(block) + 0.2
    return drawing


def draw_broadcast(column: Tensor, row: Tensor) -> Figure:
    """Draw `column`, `row` and `column - row`, with the diagonal of the difference marked.

    Args:
        column: shape (N, 1), small numbers.
        row: shape (N,).
    """
    difference = column - row
    panels = [
        (f"prediction {tuple(column.shape)}", column, torch.zeros_like(column)),
        (f"target {tuple(row.shape)}", row[None], torch.zeros_like(row[None])),
        (
            f"prediction - target {tuple(difference.shape)}",
            difference,
            torch.eye(len(difference), difference.shape[1]),
        ),
    ]
    sizes = [(max(4.6 if k < 2 else 7.2, p[1].shape[1]), len(p[1])) for k, p in enumerate(panels)]
    drawing, axes = _grids(sizes)
    for axis, (head, values, marked) in zip(axes, panels, strict=True):
        text = [[f"{v:g}".replace("-", "\N{MINUS SIGN}") for v in line] for line in values.tolist()]
        bold = marked.bool().tolist()
        faces = [[COLORS["pale orange" if m else "white"] for m in line] for line in bold]
        _grid(axis, 0, 0, text, faces, bold=bold)
        _head(axis, head, code=False)
    return drawing


def draw_gather(x: Tensor, index: Tensor) -> Figure:
    """Draw `x`, `index`, `x.gather(1, index)` and the same scattered back into zeros.

    Args:
        x: shape (N, C), small numbers.
        index: int64 of shape (N, K) with values below C.
    """
    picked = x.gather(1, index)
    back = torch.zeros_like(x).scatter(1, index, picked)
    hit = torch.zeros_like(x, dtype=torch.bool).scatter(1, index, True)
    all_cells = torch.ones_like(index, dtype=torch.bool)
    panels = [
        ("x", x, hit),
        ("index", index, ~all_cells),
        ("x.gather(1, index)", picked, all_cells),
        ("zeros.scatter(1, index, …)", back, hit),
    ]
    sizes = [
        (max(values.shape[1] + 0.9, 0.3 * len(head)), len(values) + 0.6)
        for head, values, _ in panels
    ]
    drawing, axes = _grids(sizes)
    for axis, (head, values, marked) in zip(axes, panels, strict=True):
        text = [[f"{v:g}" for v in row] for row in values.tolist()]
        faces = [[COLORS["pale orange" if m else "white"] for m in row] for row in marked.tolist()]
        _grid(axis, 0.8, 0.5, text, faces, bold=marked.tolist())
        for row in range(len(values)):
            place = (0.65, row + 1.0)
            axis.text(*place, f"[{row}]", ha="right", va="center", fontsize=8)
        for column in range(values.shape[1]):
            axis.text(column + 1.3, 0.4, f"{column}", ha="center", va="bottom", fontsize=8)
        _head(axis, head)
    return drawing


def _grid(
    axis: Any,
    left: float,
    top: float,
    text: list[list[str]],
    faces: list[list[str]],
    bold: list[list[bool]] | None = None,
) -> None:
    from matplotlib.patches import Rectangle

    for i, row in enumerate(text):
        for j, word in enumerate(row):
            strong = bool(bold and bold[i][j])
            box = Rectangle(
                (left + j, top + i),
                1,
                1,
                facecolor=faces[i][j],
                edgecolor=COLORS["grey"],
                linewidth=1.8 if strong else 0.8,
            )
            axis.add_patch(box)
            weight = "bold" if strong else "normal"
            place = (left + j + 0.5, top + i + 0.53)
            axis.text(*place, word, ha="center", va="center", fontsize=8, weight=weight)


def _grids(sizes: list[tuple[float, float]], lines: int = 1) -> tuple[Figure, list[Any]]:
    """Return a figure with a panel for each size in cells and room for a head, all to one scale."""
    unit, head = 0.27, 0.15 * lines + 0.08
    inches = [(unit * (width + 0.2), unit * (height + 0.2) + head) for width, height in sizes]
    drawing, axes = figure(len(sizes), size=inches, chinese=_CHINESE)
    for panel, axis, (width, height) in zip(drawing.panels, axes, sizes, strict=True):
        panel.set_layout_engine("none")
        axis.set_position((0, 0, 1, 1))
        axis.set(xlim=(-0.1, width + 0.1), ylim=(height + 0.1, -0.1 - head / unit))
        axis.axis("off")
    return drawing, axes


def _head(axis: Any, text: str, code: bool = True) -> None:
    axis.text(0, -0.2, text, fontsize=8, family="monospace" if code else None, va="bottom")


def draw_einsum(left: Tensor, right: Tensor, i: int, k: int) -> Figure:
    """Draw `left`, `right` and `einsum("ij,jk->ik")`, and mark the inputs of cell (i, k).

    Args:
        left: shape (I, J), small numbers.
        right: shape (J, K), small numbers.
        i: a row of `left`.
        k: a column of `right`.
    """
    product = torch.einsum("ij,jk->ik", left, right)
    row, column = torch.zeros_like(left).bool(), torch.zeros_like(right).bool()
    row[i], column[:, k] = True, True
    cell = torch.zeros_like(product).bool()
    cell[i, k] = True
    panels = [
        ("left", "ij", left, row),
        ("right", "jk", right, column),
        ('einsum("ij,jk->ik")', "ik", product, cell),
    ]
    sizes = [
        (max(values.shape[1] + 0.9, 0.3 * len(head)), len(values) + 0.6)
        for head, _, values, _ in panels
    ]
    drawing, axes = _grids(sizes)
    for axis, (head, letters, values, marked) in zip(axes, panels, strict=True):
        text = [[f"{v:g}" for v in line] for line in values.tolist()]
        faces = [
            [COLORS["pale orange" if m else "white"] for m in line] for line in marked.tolist()
        ]
        _grid(axis, 0.8, 0.5, text, faces, bold=marked.tolist())
        down, along = letters
        style = {"fontsize": 9, "family": "monospace", "color": COLORS["orange"]}
        axis.text(0.6, 0.5 + len(values) / 2, down, ha="right", va="center", **style)
        axis.text(0.8 + values.shape[1] / 2, 0.4, along, ha="center", va="bottom", **style)
        _head(axis, head)
    return drawing
