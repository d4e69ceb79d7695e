"""Figures and demonstrations of the chapter on normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.figures import COLORS, Figure, figure, title

Init = Callable[[Tensor], Any]


_CHINESE = {
    "batch mean": "批的均值",
    "batch variance": "批的方差",
    "statistics of the batch": "批的统计量",
    "output of one fixed sample": "同一个样本的输出",
    "standard deviation": "标准差",
    "activations, forward": "激活值，前向",
    "gradients, backward": "梯度，反向",
    "root mean square": "均方根",
    "std {}": "标准差 {}",
    "nn.Linear's own": "nn.Linear 自带的",
}


def statistics_noise(size: int, trials: int = 2000) -> dict[str, float]:
    """Return the spread of mean and variance of batches of `size` standard normal samples.

    Returns:
        The standard deviation over `trials` batches of the `mean` and of the unbiased `variance`.

    Raises:
        TypeError: `size` or `trials` is not an int.
        ValueError: `size` is below 2, for which there is no variance.
    """
    _at_least_two(size), checks.integer("trials", trials, 2)
    generator = torch.Generator().manual_seed(0)
    batches = torch.randn(trials, size, generator=generator)
    return {"mean": batches.mean(1).std().item(), "variance": batches.var(1).std().item()}


def neighbour_noise(layer: nn.Module, size: int, trials: int = 200) -> float:
    """Return the spread of one sample's output when the others in its batch are replaced.

    The batch has shape (size, 16), float32, standard normal; `layer` stays in its mode.

    Returns:
        The standard deviation over `trials` batches, averaged over the features.

    Raises:
        TypeError: `layer` is not a module, or `size` or `trials` is not an int.
        ValueError: `size` is below 2, so that there is no other sample.
    """
    _at_least_two(size), checks.integer("trials", trials, 2)
    checks.module("layer", layer)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(trials, size, 16, generator=generator)
    x[:, 0] = x[0, 0].clone()  # the same sample everywhere
    with torch.no_grad():
        outputs = torch.stack([layer(batch)[0] for batch in x])
    return outputs.std(0).mean().item()


def _at_least_two(size: int) -> None:
    if checks.integer("size", size) < 2:
        raise ValueError(f"size must be at least 2, got {size}")


def draw_batch_noise() -> Figure:
    """Draw the noise of a batch's statistics, and its effect on the output of one sample."""
    sizes = [2, 4, 8, 16, 32, 64, 128, 256]
    noise = [statistics_noise(size) for size in sizes]
    drawing, axes = figure(2, size=(3.5, 2.6), chinese=_CHINESE)
    for key, style in {"mean": "o-", "variance": "s--"}.items():
        color = {"mean": COLORS["teal"], "variance": COLORS["orange"]}[key]
        values = [n[key] for n in noise]
        axes[0].plot(sizes, values, style, color=color, markersize=4, label=f"batch {key}")
    layers = {"BatchNorm1d": nn.BatchNorm1d(16), "LayerNorm": nn.LayerNorm(16)}
    for (name, layer), style in zip(layers.items(), ("s--", "o-"), strict=True):
        color = {"BatchNorm1d": COLORS["orange"], "LayerNorm": COLORS["teal"]}[name]
        values = [neighbour_noise(layer, s) for s in sizes]
        axes[1].plot(sizes, values, style, color=color, markersize=4, label=name)
    title(axes[0], "statistics of the batch")
    title(axes[1], "output of one fixed sample")
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_ylim(bottom=-0.03)
        axis.set(xlabel="batch size", ylabel="standard deviation")
        axis.legend(frameon=False, fontsize=8.5)
    return drawing


def signal(init: Init | None, depth: int = 30, width: int = 256) -> dict[str, list[float]]:
    """Return the size of activations and gradients per layer, in an untrained network with ReLU.

    `depth` layers `nn.Linear(width, width, bias=False)` have a ReLU between them. The input and the
    gradient at the output are standard normal, 256 samples, float32, seed 0.

    Args:
        init: fills a weight of shape (width, width) in place; None keeps that of `nn.Linear`.

    Returns:
        `forward`: the root mean square of each layer's output, before the ReLU; `backward`: that
        of the gradient there. Both have length `depth`, the layer nearest to the input first.

    Raises:
        ValueError: `depth` or `width` is below 1.
    """
    if min(depth, width) < 1:
        raise ValueError(f"depth and width must be at least 1, got {depth} and {width}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        h, outputs = torch.randn(256, width), []
        for _ in range(depth):
            layer = nn.Linear(width, width, bias=False)
            if init is not None:
                init(layer.weight)
            h = layer(h.relu() if outputs else h)
            outputs.append(h)
        gradients = torch.autograd.grad(h, outputs, torch.randn(256, width))
    return {"forward": [_rms(t) for t in outputs], "backward": [_rms(t) for t in gradients]}


def per_layer(sizes: list[float]) -> float:
    """Return the factor by which `sizes` grow per layer, as a geometric mean.

    Raises:
        ValueError: there are fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"expected at least two sizes, got {len(sizes)}")
    return (sizes[-1] / sizes[0]) ** (1 / (len(sizes) - 1))


def _rms(t: Tensor) -> float:
    return t.detach().double().square().mean().sqrt().item()


def draw_signal(inits: Mapping[str, Init | None]) -> Figure:
    """Draw activations and gradients per layer for each of `inits`, on a logarithmic axis.

    Raises:
        ValueError: `inits` is empty.
    """
    from matplotlib.ticker import LogLocator

    if not inits:
        raise ValueError("draw_signal needs at least one init, got none")
    drawing, axes = figure(2, size=(3.5, 2.8), chinese=_CHINESE)
    looks = [("grey", ":"), ("orange", "--"), ("violet", "-."), ("teal", "-")]
    lowest = 1.0
    for number, (name, init) in enumerate(inits.items()):
        color, line = looks[number % len(looks)]
        for axis, sizes in zip(axes, signal(init).values(), strict=True):
            layers = range(1, len(sizes) + 1)
            axis.plot(layers, sizes, line, color=COLORS[color], linewidth=2, label=name)
            lowest = min(lowest, *sizes)
    title(axes[0], "activations, forward")
    title(axes[1], "gradients, backward")
    for axis in axes:
        axis.set_yscale("log")
        axis.set_ylim(lowest / 100, 1e3)
        axis.yaxis.set_major_locator(LogLocator(base=1e10))
        axis.set(xlabel="layer", ylabel="root mean square")
        axis.minorticks_off()
    axes[0].legend(frameon=False, fontsize=8.5, loc="lower left")
    return drawing
