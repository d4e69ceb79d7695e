"""Figures and demonstrations of the chapter on learning rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD, lr_scheduler

from helpers import digits
from helpers.figures import COLORS, Figure, figure, title
from helpers.learning_rate import Make, rates
from helpers.training_loop import accuracy, evaluate

_CHINESE = {
    "good start, lr {}": "起点好，lr {}",
    "bad start, lr {}": "起点差，lr {}",
    "warm-up {}": "预热 {} 步",
}


def build(code: str) -> Make:
    """Return a function that runs `code` for an optimizer and returns the scheduler.

    `code` may use `optimizer` and the names of `torch.optim.lr_scheduler`.
    """
    return lambda optimizer: eval(code, {**vars(lr_scheduler), "optimizer": optimizer})


# Validation losses for the plateau scheduler of the figures: they fall for 14 epochs, then stay.
LOSSES = [max(0.3, 1 - 0.05 * epoch) for epoch in range(60)]


GALLERY = (
    "StepLR(optimizer, step_size=15, gamma=0.3)",
    "MultiStepLR(optimizer, milestones=[30, 45], gamma=0.1)",
    "ExponentialLR(optimizer, gamma=0.95)",
    "LinearLR(optimizer, start_factor=0.1, total_iters=10)",
    "LambdaLR(optimizer, lambda t: 1 / (1 + t) ** 0.5)",
    "CosineAnnealingLR(optimizer, T_max=60)",
    "CosineAnnealingWarmRestarts(optimizer, T_0=20)",
    "OneCycleLR(optimizer, max_lr=1.0, total_steps=60)",
    "SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=10),"
    " CosineAnnealingLR(optimizer, T_max=50)], milestones=[10])",
    "ReduceLROnPlateau(optimizer, factor=0.3, patience=5)",
)


def gallery(epochs: int = 60) -> dict[str, list[float]]:
    """Return the learning rates of each scheduler of `GALLERY`, by its code, from a base of 1.0."""
    return {code: rates(build(code), epochs, metrics=LOSSES[:epochs]) for code in GALLERY}


def draw_gallery(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Draw learning rates over epochs, a panel for each entry, two side by side."""
    drawing, axes = figure(len(curves), size=(3.5, 1.25), chinese=_CHINESE)
    for axis, (code, values) in zip(axes, curves.items(), strict=True):
        name = code.replace("optimizer, ", "").replace("), Cos", "),\nCos")
        axis.set_title(name, fontsize=8, loc="left", family="monospace")
        axis.plot(
            range(len(values)), values, drawstyle="steps-post", color=COLORS["teal"], linewidth=2
        )
        axis.set(ylim=(-0.05, 1.1), yticks=[0, 1], xlabel="epoch")
    return drawing


@dataclass(frozen=True)
class Run:
    """Training run: the loss of each step, and the final accuracy.

    Attributes:
        losses: the training loss before each step; the run stops at the first that is not finite.
        accuracy: fraction of held-out digits classified correctly, from 0 to 1.
    """

    losses: list[float]
    accuracy: float

    @property
    def diverged(self) -> bool:
        """Whether the loss became inf or nan."""
        return not math.isfinite(self.losses[-1])


def train_digits(
    lr: float, warm_up: int = 0, gain: float = 1.0, seed: int = 0, steps: int = 150
) -> Run:
    """Train a plain network of seven linear layers on scikit-learn's digits with SGD.

    Args:
        lr: the learning rate after the warm-up.
        warm_up: number of steps in which the learning rate rises linearly from `lr / warm_up`; 0
            for none.
        gain: factor of Kaiming's initial weights; 1 is a good start, 2 a bad one.
        seed: of the initial weights and of the minibatches.
        steps: number of minibatches of 64.

    Raises:
        ValueError: `steps` is below 1.
    """
    if steps < 1:
        raise ValueError(f"expected at least one step, got {steps}")
    x, y = digits.load()
    x = x.flatten(1)
    random = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for out in [64] * 6 + [10]:
        linear = nn.utils.skip_init(nn.Linear, 64, out)
        nn.init.kaiming_normal_(linear.weight, generator=random)
        nn.init.zeros_(linear.bias)
        linear.weight.data.mul_(gain)
        layers += [linear, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = SGD(model.parameters(), lr=lr)
    scheduler = lr_scheduler.LambdaLR(
        optimizer, lambda t: min(1.0, (t + 1) / warm_up) if warm_up else 1.0
    )
    losses = []
    for _ in range(steps):
        batch = torch.randint(0, 1400, (64,), generator=random)
        loss = F.cross_entropy(model(x[batch]), y[batch])
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return Run(losses, **evaluate(model, [(x[1400:], y[1400:])], accuracy=accuracy))


def draw_runs(panels: Mapping[str, Mapping[str, Sequence[Run]]]) -> Figure:
    """Draw the losses of runs over their steps: a panel for each title, a style for each name."""
    drawing, axes = figure(len(panels), chinese=_CHINESE)
    styles = ((COLORS["orange"], "--"), (COLORS["teal"], "-"))
    longest = max(len(run.losses) for g in panels.values() for runs in g.values() for run in runs)
    for axis, (name, groups) in zip(axes, panels.items(), strict=True):
        for (label, runs), (color, line) in zip(groups.items(), styles, strict=False):
            for number, run in enumerate(runs):
                legend_label = None if number else label
                axis.plot(run.losses, line, color=color, linewidth=1.2, label=legend_label)
        title(axis, name)
        axis.set(yscale="log", xlabel="step", ylim=(1e-2, 1e4), ylabel="training loss")
        axis.set_xlim(-0.05 * longest, 1.05 * longest)
        axis.legend(frameon=False, fontsize=8.5)
    return drawing
