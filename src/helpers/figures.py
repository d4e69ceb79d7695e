"""The style of all figures: one table of colours, one way to open a figure, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lines, marks and text of 4.5:1 or more on white; the pale ones fill boxes under dark text.
COLORS = {
    "teal": "#0a6b7d",
    "orange": "#c2410c",
    "violet": "#7a5195",
    "grey": "#555555",
    "black": "#222222",
    "pale blue": "#cfe8ff",
    "pale orange": "#ffe3cc",
    "pale grey": "#e3e3e3",
}


def figure(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (8, 3), **options: Any
) -> tuple[Figure, Any]:
    """Open a figure in the style of the book: no top and right spine, tight layout.

    The layout is computed when the figure is drawn, so nothing has to be called at the end;
    `figure.get_layout_engine().set(h_pad=…)` changes its padding.

    Args:
        rows: number of rows of axes.
        columns: number of columns of axes.
        size: width and height in inches.
        options: what else `matplotlib.pyplot.subplots` takes, such as `sharex` or `squeeze`.

    Returns:
        What `matplotlib.pyplot.subplots` returns: the figure, and one axes or an array of them.
    """
    import matplotlib.pyplot as plt

    # not by rc_context: Jupyter's backend starts with the first figure, and its settings would go
    drawing, axes = plt.subplots(rows, columns, **{"figsize": size, "layout": "tight"} | options)
    for axis in drawing.axes:
        axis.spines[["top", "right"]].set_visible(False)
    return drawing, axes


def draw_curves(
    curves: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, log: bool = False
) -> Figure:
    """Draw up to four curves over 1, 2, 3, … with a legend above.

    Args:
        curves: the values of each curve under its name.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        log: whether the y axis is logarithmic.

    Raises:
        ValueError: there is no curve, or there are more than four.
    """
    styles = [("teal", "-", "o"), ("orange", "--", "s"), ("grey", ":", "^"), ("black", "-.", "")]
    if not 1 <= len(curves) <= len(styles):
        raise ValueError(f"draw_curves needs 1 to {len(styles)} curves, got {len(curves)}")
    drawing, axis = figure(size=(7, 2.8))
    for (name, values), (color, line, marker) in zip(curves.items(), styles, strict=False):
        steps = range(1, len(values) + 1)
        axis.plot(steps, values, line, color=COLORS[color], marker=marker, markersize=4, label=name)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    if log:
        axis.set_yscale("log")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=len(curves), frameon=False, fontsize=9
    )
    return drawing
