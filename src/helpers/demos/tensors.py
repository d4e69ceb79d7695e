"""Figures of the chapter "Know what your tensor holds"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from helpers.figures import COLORS, figure
from helpers.tensors import gap

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_gaps() -> Figure:
    """Draw `gap` over the size of the number, for bfloat16, float16 and float32."""
    drawing, axis = figure()
    axis.axhline(1, color=COLORS["grey"], linewidth=1, linestyle=":")
    axis.text(3e5, 1.5, "a gap of 1", color=COLORS["grey"], fontsize=9)
    styles = {
        torch.bfloat16: (COLORS["orange"], "-"),
        torch.float16: (COLORS["teal"], "--"),
        torch.float32: (COLORS["black"], "-."),
    }
    for dtype, (color, line) in styles.items():
        last = min(torch.finfo(dtype).max, 1e8)
        x = torch.logspace(0, torch.tensor(last).log10().item(), 2000, dtype=torch.float64)
        x = x.clamp(max=last * 0.9999).to(dtype)
        name = str(dtype).removeprefix("torch.")
        axis.plot(x.double(), gap(x), line, color=color, linewidth=2, label=name)
        stop = 2 / torch.finfo(dtype).eps
        axis.plot(stop, 1, "o", color=color)
        place, side = ((-4, 4), "right") if dtype == torch.bfloat16 else ((0, -14), "left")
        label = {"textcoords": "offset points", "color": color, "fontsize": 9, "ha": side}
        axis.annotate(f"{stop:,.0f}", (stop, 1), place, **label)
    limit = torch.finfo(torch.float16).max
    axis.plot(limit, 32, "X", color=COLORS["teal"], markersize=9)
    axis.text(limit * 1.3, 40, "65,504, then inf", color=COLORS["teal"], fontsize=9)
    axis.set(xscale="log", yscale="log", xlabel="a number x", ylabel="gap to the next number")
    axis.legend(frameon=False, loc="upper left", fontsize=9)
    return drawing


def draw_images(images: dict[str, Any]) -> Figure:
    """Draw PIL images one below the other, each with its title.

    Raises:
        ValueError: `images` is empty.
    """
    if not images:
        raise ValueError("draw_images needs at least one image, got none")
    drawing, axes = figure(len(images), size=(7, 1.1 * len(images)), squeeze=False)
    for axis, (title, image) in zip(axes[:, 0], images.items(), strict=True):
        axis.imshow(image, cmap="gray", vmin=0, vmax=255, aspect="auto")
        axis.set_title(title, loc="left", family="monospace", fontsize=10)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(True)
    return drawing
