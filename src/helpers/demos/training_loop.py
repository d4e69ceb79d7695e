"""Figures of the chapter on training loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from helpers.figures import COLORS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_lines(x: Tensor, y: Tensor, lines: Mapping[str, Tensor]) -> Figure:
    """Draw the points (x, y) and up to three lines over them, with a legend.

    Args:
        x: n numbers, of shape (n,) or (n, 1); `y` and each of `lines` have shape (n,).

    Raises:
        ValueError: there is no line, or there are more than three.
    """
    styles = [(COLORS["orange"], "--"), (COLORS["teal"], "-"), (COLORS["black"], ":")]
    if not 1 <= len(lines) <= len(styles):
        raise ValueError(f"draw_lines needs 1 to {len(styles)} lines, got {len(lines)}")
    drawing, axis = figure(size=(7, 2.8))
    axis.plot(x.flatten(), y, ".", color=COLORS["grey"], label="data")
    for (name, values), (color, line) in zip(lines.items(), styles, strict=False):
        axis.plot(x.flatten(), values, line, color=color, linewidth=2.5, label=name)
    axis.set(xlabel="x", ylabel="y")
    axis.legend(frameon=False)
    return drawing
