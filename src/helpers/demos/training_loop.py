"""Figures of the chapter on the training loop."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {"data": "数据"}


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
    drawing, axis = figure(chinese=_CHINESE)
    axis.plot(x.flatten(), y, ".", color=COLORS["grey"], label="data")
    for (name, values), (color, line) in zip(lines.items(), styles, strict=False):
        axis.plot(x.flatten(), values, line, color=color, linewidth=2.5, label=name)
    axis.set(xlabel="x", ylabel="y")
    axis.legend(frameon=False, fontsize=8.5)
    return drawing


def draw_mixup(one: Tensor, other: Tensor, share: float) -> Figure:
    """Draw two images and their mixture with the weight `share` for the first.

    Args:
        one: shape (H, W), numbers from 0 to 1, as `other`.
        share: from 0 to 1.
    """
    rest = round(1 - share, 2)
    shown = {
        "x": one,
        "x′": other,
        f"{share:g} x + {rest:g} x′": share * one + (1 - share) * other,
    }
    drawing, axes = figure(len(shown), size=(1.1, 1.3))
    for axis, (name, image) in zip(axes, shown.items(), strict=True):
        axis.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="none")
        axis.set_axis_off()
        title(axis, name)
    return drawing
