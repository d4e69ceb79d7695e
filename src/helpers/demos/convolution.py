"""Figures and demonstrations of the chapter on convolution."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "dilations ({}, {}, {})": "扩张率 ({}, {}, {})",
    "kernel {}, stride {}": "卷积核 {}，步幅 {}",
    "input position": "输入位置",
}


def paths(module: nn.Module, shape: Sequence[int], at: int | None = None) -> Tensor:
    """Return the number of paths from each input cell to one output cell, counted by autograd.

    All parameters of a copy of `module` are set to 1; the gradient of one output cell by the input
    is then the number of paths, up to the factors of average poolings. It is 0 exactly for cells
    that are not read.

    Args:
        module: convolutions, average poolings, activations.
        shape: the input's shape without the batch, (C, n) or (C, H, W) or (C, D, H, W).
        at: the index of the output cell, the same along each axis; None is the middle.

    Returns:
        float64, of `shape` without the channels, which are summed.

    Raises:
        TypeError: `module` is not a module, contains a max pooling, whose gradient reaches one cell
            of the window only, or does not return a tensor.
    """
    checks.module("module", module)
    if any("MaxPool" in type(part).__name__ for part in module.modules()):
        raise TypeError("the gradient of max pooling reaches one cell only: use average pooling")
    twin = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.fill_(1.0)
    x = torch.ones(1, *shape, dtype=torch.float64, requires_grad=True)
    out = twin(x)
    if not isinstance(out, Tensor):
        raise TypeError(f"expected a module that gives a tensor, got {type(out).__name__}")
    cell = out.sum(1)[0]
    cell = cell[tuple(n // 2 if at is None else at for n in cell.shape)]
    (gradient,) = torch.autograd.grad(cell, x)
    return gradient[0].sum(0)


def draw_paths(stacks: dict[str, nn.Module], size: int = 21) -> Figure:
    """Draw `paths` from `size` input cells to the middle output cell, one stack below another.

    Args:
        stacks: 1-D modules with one input channel, by title.
        size: cells of the input.

    Raises:
        ValueError: `stacks` is empty.
    """
    if not stacks:
        raise ValueError("draw_paths needs at least one stack, got none")
    drawing, axes = figure(
        size=(3.6, 0.9 * len(stacks) + 0.4),
        chinese=_CHINESE,
        nrows=len(stacks),
        sharex=True,
        squeeze=False,
    )
    for axis, (name, stack) in zip(axes[:, 0], stacks.items(), strict=True):
        ways = paths(stack, (1, size)).tolist()
        bars = axis.bar(range(size), ways, color=COLORS["teal"], width=0.8)
        axis.bar_label(bars, [f"{way:g}" if way else "" for way in ways], fontsize=8.5)
        title(axis, name)
        axis.set(yticks=[], ylim=(0, 1.45 * max(ways)))
        axis.spines["left"].set_visible(False)
    axes[-1, 0].set(xlabel="input position", xticks=range(0, size, 2))
    return drawing


def draw_overlap(layers: dict[str, nn.Module], size: int = 6) -> Figure:
    """Draw the output of each layer for a constant image if all its weights are equal.

    Args:
        layers: 2-D modules with one input and one output channel, by title; they are copied.
        size: height and width of the image of ones.

    Raises:
        ValueError: `layers` is empty.
    """
    from matplotlib.patches import Rectangle

    if not layers:
        raise ValueError("draw_overlap needs at least one layer, got none")
    drawing, axes = figure(len(layers), size=(2.2, 2.4), chinese=_CHINESE)
    for axis, (name, layer) in zip(axes, layers.items(), strict=True):
        image = overlap(layer, size)
        rows, columns = image.shape
        for row in range(rows):
            for column in range(columns):
                value = image[row, column].item()
                share = value / image.max().item()
                style = {"facecolor": COLORS["teal"], "alpha": share / 2, "linewidth": 0}
                axis.add_patch(Rectangle((column, row), 1, 1, **style))
                place = (column + 0.5, row + 0.5)
                axis.text(*place, f"{value:g}", ha="center", va="center", fontsize=7.5)
        title(axis, name, code="(" in name)
        axis.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
        axis.axis("off")
    return drawing


def overlap(layer: nn.Module, size: int = 6) -> Tensor:
    """Return the output of `layer` with weights of 1 for an image of ones: the paths to each cell.

    Args:
        layer: 2-D, one input and one output channel; it is copied.
        size: height and width of the image.

    Returns:
        Shape (H, W) of the output, float32.

    Raises:
        TypeError, ValueError: `layer` is not a module, or `size` not an int or below 1.
    """
    size = checks.integer("size", size, 1)
    twin = copy.deepcopy(checks.module("layer", layer))
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.fill_(0.0 if name.rpartition(".")[2] == "bias" else 1.0)
        return twin(torch.ones(1, 1, size, size))[0, 0]
