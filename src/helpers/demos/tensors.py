"""Figures of the chapter on tensors."""

from __future__ import annotations

import math

import torch

from helpers.figures import COLORS, Figure, figure, legend
from helpers.tensors import gap

_DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128),
)
_CHINESE = {
    "{}, then inf": "{}，再大就是 inf",
    "a number x": "数 x",
    "bool": "布尔",
    "integer": "整数",
    "float": "浮点",
    "complex": "复数",
    "gap to the next number": "到下一个数的间隔",
}


def draw_gaps() -> Figure:
    """Draw `gap` over the size of the number, for bfloat16, float16 and float32."""
    drawing, axis = figure(size=(3.6, 2.7), chinese=_CHINESE)
    axis.axhline(1, color=COLORS["grey"], linewidth=1, linestyle=":")
    styles = {
        torch.bfloat16: (COLORS["orange"], "-"),
        torch.float16: (COLORS["teal"], "--"),
        torch.float32: (COLORS["black"], "-."),
    }
    for dtype, (color, line) in styles.items():
        last = min(torch.finfo(dtype).max, 1e8)
        x = 2.0 ** torch.arange(0, math.log2(last) + 0.1, dtype=torch.float64)
        x = x.clamp(max=last * 0.9999).to(dtype)
        name = str(dtype).removeprefix("torch.")
        style = {"color": color, "linewidth": 2, "label": name, "drawstyle": "steps-post"}
        axis.plot(x.double(), gap(x), line, **style)
        stop = 2 / torch.finfo(dtype).eps
        axis.plot(stop, 1, "o", color=color)
        place, side = ((-4, 4), "right") if dtype == torch.bfloat16 else ((0, -14), "left")
        label = {"textcoords": "offset points", "color": color, "fontsize": 8.5, "ha": side}
        axis.annotate(f"{stop:,.0f}", (stop, 1), place, **label)
    limit = torch.finfo(torch.float16).max
    axis.plot(limit, 32, "X", color=COLORS["teal"], markersize=8)
    axis.text(limit * 2.5, 22, "65,504, then inf", color=COLORS["teal"], fontsize=8.5)
    axis.set(xscale="log", yscale="log", xlabel="a number x", ylabel="gap to the next number")
    axis.set_xlim(right=2e9)
    legend(axis, columns=3, columnspacing=1)
    return drawing


def draw_promotion() -> Figure:
    """Draw the result of `torch.promote_types` for any two dtypes: the first above both.

    It applies to tensors with dimensions. An edge leads to the next dtype that contains the lower
    one.
    """
    above = {a: {b for b in _DTYPES if a != b and torch.promote_types(a, b) == b} for a in _DTYPES}
    edges = {a: [b for b in up if not any(b in above[c] for c in up)] for a, up in above.items()}
    level: dict[torch.dtype, int] = {}
    for dtype in sorted(_DTYPES, key=lambda d: -len(above[d])):
        below = [level[d] for d in level if dtype in above[d]]
        level[dtype] = max(below, default=-1) + 1
    drawing, axis = figure(size=(3.5, 3.4), chinese=_CHINESE)
    place = {}
    for height in set(level.values()):
        row = [d for d in _DTYPES if level[d] == height]
        place |= {d: (1.2 * (k - (len(row) - 1) / 2), height) for k, d in enumerate(row)}
    for dtype, (x, y) in place.items():
        for after in edges[dtype]:
            arrow = {"arrowstyle": "->", "color": COLORS["grey"], "shrinkA": 9, "shrinkB": 9}
            axis.annotate("", xy=place[after], xytext=(x, y), arrowprops=arrow)
        face = "pale orange" if dtype.is_floating_point else "pale blue"
        face = "pale grey" if dtype == torch.bool else "white" if dtype.is_complex else face
        style = {
            "boxstyle": "round,pad=0.3",
            "facecolor": COLORS[face],
            "edgecolor": COLORS["grey"],
        }
        name = str(dtype).removeprefix("torch.")
        axis.text(x, y, name, ha="center", va="center", fontsize=8, family="monospace", bbox=style)
    for y, name in ((0, "bool"), (2.5, "integer"), (5.9, "float"), (8, "complex")):
        axis.text(-1.95, y, name, va="center", fontsize=9)
    axis.set(xlim=(-2, 1.5), ylim=(-0.5, max(level.values()) + 0.5))
    axis.axis("off")
    return drawing
