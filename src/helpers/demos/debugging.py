"""Demonstrations of the chapter on debugging: real runs with typical loss curves."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import digits
from helpers.figures import COLORS, Figure, figure, title

EPOCHS = 40
SHAPES = {
    "too few steps": "训练还不够",
    "overfitting": "过拟合",
    "learning rate too high": "学习率太高",
    "labels of other images": "标签与图像错位",
}


def curves(shape: str) -> tuple[list[float], list[float]]:
    """Return the mean training and validation loss after each of 40 epochs.

    `shape` is one of `SHAPES`. A network with one hidden layer learns 150 of the digits.
    """
    train, valid = digits.split()
    (x, y), (x_valid, y_valid) = ((t[:150] for t in s.tensors) for s in (train, valid))
    rates = {"too few steps": 0.01, "overfitting": 0.6, "learning rate too high": 5.0}
    rate = rates.get(shape, 0.3)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        if shape == "overfitting":  # some labels are wrong, and the network learns them, too
            y = torch.where(torch.rand(len(y)) < 0.3, torch.randint(10, (len(y),)), y)
        if shape == "labels of other images":
            y = y[torch.randperm(len(y))]
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.SGD(model.parameters(), rate)
        history: tuple[list[float], list[float]] = [], []
        for _ in range(EPOCHS):
            for part in torch.randperm(len(x)).split(15):
                optimizer.zero_grad()
                F.cross_entropy(model(x[part]), y[part]).backward()
                optimizer.step()
            for losses, data in zip(history, ((x, y), (x_valid, y_valid)), strict=True):
                losses.append(_loss(model, *data))
    return history


@torch.no_grad()
def _loss(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return F.cross_entropy(model(x), y).item()


def draw_shapes(curves: dict[str, tuple[list[float], list[float]]]) -> Figure:
    """Draw a panel for each of `curves`: training and validation loss, up to 5, and log 10."""
    drawn, axes = figure(len(curves), chinese=SHAPES | {"training": "训练", "validation": "验证"})
    for axis, (shape, (train, valid)) in zip(axes, curves.items(), strict=True):
        title(axis, shape)
        axis.axhline(math.log(10), color=COLORS["grey"], lw=0.8, ls=":")
        axis.plot(train, color=COLORS["teal"], label="training")
        axis.plot(valid, color=COLORS["orange"], label="validation", ls="--")
        axis.set(xlabel="epoch", ylabel="loss", ylim=(0, 5))
        axis.legend(frameon=False, fontsize=8.5, loc="upper right")
    return drawn
