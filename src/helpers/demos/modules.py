"""Figures and demonstrations of the chapter on modules."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {"key": "键（key）", "query": "查询（query）"}


def draw_masks(panels: Mapping[str, Tensor]) -> Figure:
    """Draw who sees whom: a row per query, a column per key, a filled square where it looks.

    Args:
        panels: title to attention weights or booleans of shape (Lq, Lk). What is not zero is
            seen. The queries are the last Lq of the Lk positions.

    Raises:
        ValueError: no panel, or one that is not two-dimensional.
    """
    from matplotlib.patches import Rectangle

    if not panels:
        raise ValueError("draw_masks needs at least one panel, got none")
    for name, weights in panels.items():
        if weights.ndim != 2:
            raise ValueError(f"expected shape (Lq, Lk) for {name!r}, got {tuple(weights.shape)}")
    sizes = [(0.7 + 0.3 * w.shape[1], 0.7 + 0.3 * w.shape[0]) for w in panels.values()]
    drawing, axes = figure(len(panels), size=sizes, chinese=_CHINESE)
    for axis, (name, weights) in zip(axes, panels.items(), strict=True):
        rows, columns = weights.shape
        for row in range(rows):
            for column in range(columns):
                seen = bool(weights[row, column] != 0)
                face = COLORS["teal" if seen else "white"]
                box = Rectangle((column, row), 1, 1, facecolor=face, edgecolor=COLORS["grey"])
                axis.add_patch(box)
                if seen:
                    axis.plot(column + 0.5, row + 0.5, "o", color=COLORS["white"], markersize=5)
        axis.set(xlim=(-0.05, columns + 0.05), ylim=(rows + 0.05, -0.05))
        axis.set(xlabel="key", ylabel="query")
        axis.set_aspect("equal", anchor="N")
        axis.set_xticks([c + 0.5 for c in range(columns)], range(columns))
        axis.set_yticks([r + 0.5 for r in range(rows)], range(columns - rows, columns))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        title(axis, name, code=True)
    return drawing
