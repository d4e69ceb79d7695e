"""Figures and demonstrations of the chapter on modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from helpers.figures import COLORS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_masks(panels: Mapping[str, Tensor]) -> Figure:
    """Draw who sees whom: a row per query, a column per key, a filled square where it looks.

    Args:
        panels: title to attention weights or booleans of shape (Lq, Lk). What is not zero is
            seen. The queries are the last Lq of the Lk positions.

    Raises:
        ValueError: no panel, or one that is not two-dimensional.
    """
    import matplotlib.pyplot as plt

    if not panels:
        raise ValueError("draw_masks needs at least one panel, got none")
    for title, weights in panels.items():
        if weights.ndim != 2:
            raise ValueError(f"expected shape (Lq, Lk) for {title!r}, got {tuple(weights.shape)}")
    drawing, axes = figure(1, len(panels), size=(8, 2.7), squeeze=False)
    for axis, (title, weights) in zip(axes[0], panels.items(), strict=True):
        rows, columns = weights.shape
        for row in range(rows):
            for column in range(columns):
                seen = bool(weights[row, column] != 0)
                face = COLORS["teal"] if seen else "white"
                box = plt.Rectangle((column, row), 1, 1, facecolor=face, edgecolor=COLORS["grey"])
                axis.add_patch(box)
                if seen:
                    axis.plot(column + 0.5, row + 0.5, "o", color="white", markersize=5)
        axis.set(xlim=(-0.05, columns + 0.05), ylim=(rows + 0.05, -0.05), xlabel="key")
        axis.set_aspect("equal", anchor="N")
        axis.set_xticks([c + 0.5 for c in range(columns)], range(columns))
        axis.set_yticks([r + 0.5 for r in range(rows)], range(columns - rows, columns))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_title(title, fontsize=8, family="monospace")
    axes[0, 0].set_ylabel("query")
    return drawing
