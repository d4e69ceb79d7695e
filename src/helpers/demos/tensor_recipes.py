"""Figures and demonstrations of the chapter "Get the everyday tensor recipes right"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from helpers.figures import COLORS, figure
from helpers.tensor_recipes import EXACT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_FACES = {
    "A": COLORS["pale blue"],
    "B": COLORS["pale orange"],
    "C": COLORS["pale grey"],
}


def cdist_errors(offsets: Sequence[float], n: int = 200, d: int = 3) -> dict[str, list[float]]:
    """The largest error among the distances of `n` float32 points, for three ways to get them.

    The points are normally distributed around a center that is `offset` away from the origin in
    every coordinate; the distances in float64 count as true.

    Returns:
        One error per offset under `"default"`, `"default, mean subtracted"` and `"exact mode"`.
    """
    generator = torch.Generator().manual_seed(0)
    cloud = torch.randn(n, d, generator=generator)
    errors: dict[str, list[float]] = {}
    for offset in offsets:
        x = cloud + offset
        true = torch.cdist(x.double(), x.double(), compute_mode=EXACT)
        centered = x - x.mean(0)
        found = {
            "default": torch.cdist(x, x),
            "default, mean subtracted": torch.cdist(centered, centered),
            "exact mode": torch.cdist(x, x, compute_mode=EXACT),
        }
        for name, distance in found.items():
            errors.setdefault(name, []).append((distance - true).abs().max().item())
    return errors


def draw_cdist_errors() -> Figure:
    """Draw `cdist_errors` for points around 1 to 1000."""
    offsets = [10 ** (k / 4) for k in range(13)]
    drawing, axis = figure()
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
    axis.text(1.1, 1.5, "spread of the points", color=COLORS["grey"], fontsize=9)
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return drawing


def draw_join() -> Figure:
    """Draw three 2 x 2 tensors A, B, C, joined by `cat` and `stack` along each axis.

    The cells of the results stand where torch put them.
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
    widths = [3.4, 2, 6, 3, 3]
    drawing, axes = figure(1, 5, width_ratios=widths)
    drawing.get_layout_engine().set(w_pad=0.2)
    for axis, (title, (blocks, marks)) in zip(axes, results.items(), strict=True):
        shape = blocks.shape[1:] if title.startswith("cat") else blocks.shape
        head = title if title == "A, B, C" else f"{title}\n{tuple(shape)}"
        axis.set_title(head, fontsize=9)
        top = 0.0
        for block, mark in zip(blocks, marks, strict=True):
            if mark:
                axis.text(0, top + 0.55, mark, fontsize=8, color=COLORS["black"])
                top += 0.7
            text = [[names[k] for k in row] for row in block.tolist()]
            faces = [[_FACES[t[0]] for t in row] for row in text]
            _grid(axis, 0, top, text, faces)
            top += len(block) + 0.25
        axis.set(xlim=(-0.1, max(blocks.shape[2] + 0.1, 2.6)), ylim=(9.0, -0.1), aspect="equal")
        axis.axis("off")
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
    widths = [max(2.5, panel[1].shape[1]) for panel in panels]
    drawing, axes = figure(1, 3, size=(7, 2.4), width_ratios=widths)
    drawing.get_layout_engine().set(w_pad=0.2)
    for axis, (title, values, marked) in zip(axes, panels, strict=True):
        text = [[f"{v:g}".replace("-", "\N{MINUS SIGN}") for v in line] for line in values.tolist()]
        bold = marked.bool().tolist()
        faces = [[COLORS["pale orange"] if m else "white" for m in line] for line in bold]
        _grid(axis, 0, 0, text, faces, bold=bold)
        axis.set_title(title, fontsize=9, family="monospace", loc="left")
        size = max(len(column), 1) + 0.1
        axis.set(xlim=(-0.1, max(values.shape[1], 2.5) + 0.1), ylim=(size, -0.1), aspect="equal")
        axis.axis("off")
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
    widths = [panel[1].shape[1] + 1.2 for panel in panels]
    drawing, axes = figure(1, 4, size=(8, 2.4), width_ratios=widths)
    drawing.get_layout_engine().set(w_pad=0.2)
    for axis, (title, values, marked) in zip(axes, panels, strict=True):
        text = [[f"{v:g}" for v in row] for row in values.tolist()]
        faces = [[COLORS["pale orange"] if m else "white" for m in row] for row in marked.tolist()]
        _grid(axis, 0, 0, text, faces, bold=marked.tolist())
        for row in range(len(values)):
            axis.text(-0.15, row + 0.5, f"[{row}]", ha="right", va="center", fontsize=8)
        for column in range(values.shape[1]):
            axis.text(column + 0.5, -0.15, f"{column}", ha="center", va="bottom", fontsize=8)
        axis.set_title(title, fontsize=9, family="monospace", pad=14)
        axis.set(xlim=(-0.9, values.shape[1] + 0.2), ylim=(len(values) + 0.1, -0.4))
        axis.set_aspect("equal")
        axis.axis("off")
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
