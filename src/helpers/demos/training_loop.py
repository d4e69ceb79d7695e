"""Figures of the chapter on training loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {"data": "数据", "gradient": "梯度"}


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


def draw_clipping(gradient: Sequence[float], bound: float = 1.0) -> Figure:
    """Draw a gradient of two numbers, and what the two ways to clip make of it.

    The circle holds what has a norm of at most `bound`, the square what has no larger number.

    Raises:
        ValueError: `gradient` has not two numbers, or one of them is not above 0.
    """
    from matplotlib.patches import Circle, Rectangle

    if len(gradient) != 2 or min(gradient) <= 0:
        raise ValueError(f"expected two numbers above 0, got {list(gradient)}")
    drawing, axis = figure(size=(3.5, 1.9), chinese=_CHINESE)
    style = {"fill": False, "edgecolor": COLORS["grey"], "linewidth": 1, "linestyle": ":"}
    axis.add_patch(Circle((0, 0), bound, **style))
    axis.add_patch(Rectangle((-bound, -bound), 2 * bound, 2 * bound, **style))
    ways = {
        "clip_grad_norm_": (nn.utils.clip_grad_norm_, "teal", (7, -9)),
        "clip_grad_value_": (nn.utils.clip_grad_value_, "orange", (4, 4)),
    }
    _vector(axis, gradient, "grey", "gradient", (-4, 4), ha="right")
    for name, (clip, color, shift) in ways.items():
        w = nn.Parameter(torch.zeros(2))
        w.grad = torch.tensor([float(g) for g in gradient])
        clip([w], bound)
        _vector(axis, w.grad.tolist(), color, name, shift, family="monospace")
    width, height = max(gradient[0], bound), max(gradient[1], bound)
    axis.set(xlim=(-0.1, width + 0.1), ylim=(-0.1, height + 0.25), aspect="equal")
    axis.set(xticks=[0, bound], yticks=[0, bound])
    return drawing


def _vector(
    axis: Any,
    end: Sequence[float],
    color: str,
    name: str,
    shift: tuple[float, float],
    **options: Any,
) -> None:
    arrow = {"arrowstyle": "->", "color": COLORS[color], "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", xy=end, xytext=(0, 0), arrowprops=arrow)
    said = {"color": COLORS[color], "fontsize": 8.5, "textcoords": "offset points"} | options
    axis.annotate(name, end, shift, **said)


def draw_mixup(one: Tensor, other: Tensor, share: float) -> Figure:
    """Show two images and their mixture, `share` of the first.

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
