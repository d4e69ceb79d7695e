"""Helpers of the chapter on learning rates: record a schedule, rescale it.

Source: "How to adjust learning rate" of `torch.optim`,
https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Real

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from helpers import checks

Make = Callable[[Optimizer], LRScheduler]


def one_weight(lr: float = 1.0) -> SGD:
    """Return an SGD optimizer (momentum 0.9) over one weight with gradient 0, ready to step.

    Raises:
        TypeError, ValueError: `lr` is not a number, or negative.
    """
    if not checks.finite("lr", lr) >= 0:
        raise ValueError(f"lr must be at least 0, got {lr}")
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    return SGD([weight], lr=lr, momentum=0.9)


def rates(
    make: Make,
    epochs: int,
    lr: float = 1.0,
    metrics: Sequence[float] | None = None,
    scheduler_first: bool = False,
) -> list[float]:
    """Return the learning rate of each epoch, read from a real optimizer.

    Args:
        make: builds the scheduler for the optimizer it is given.
        epochs: number of optimizer steps.
        lr: initial learning rate of the optimizer.
        metrics: `epochs` numbers, one for a `ReduceLROnPlateau` after each epoch.
        scheduler_first: call `scheduler.step()` before the epoch, which is wrong; PyTorch's warning
            about it is suppressed.

    Raises:
        TypeError: `make` cannot be called, `epochs` is not an int, or `lr` not a number.
        ValueError: `epochs` or `lr` is negative, or a plateau scheduler has no `metrics`, or not
            `epochs` of them.
    """
    checks.function("make", make)
    epochs = checks.integer("epochs", epochs, 0)
    optimizer = one_weight(lr)
    scheduler = make(optimizer)
    plateau = isinstance(scheduler, ReduceLROnPlateau)
    if plateau and not (hasattr(metrics, "__len__") and len(metrics) == epochs):
        raise ValueError(f"expected {epochs} metrics, one for each epoch, got {metrics!r}")
    used = []
    with warnings.catch_warnings():
        if scheduler_first:
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
        for epoch in range(epochs):
            arguments = [metrics[epoch]] if plateau else []
            if scheduler_first:
                scheduler.step(*arguments)
            used.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if not scheduler_first:
                scheduler.step(*arguments)
    return used


def changes(values: Sequence[float]) -> list[int]:
    """Return the epochs whose learning rate differs from that of the epoch before.

    Raises:
        TypeError: `values` is no list of numbers.
    """
    if not isinstance(values, Iterable):
        raise TypeError(f"values must be a list of numbers, got {type(values).__name__}")
    values = [checks.number("each of values", value) for value in values]
    return [i for i in range(1, len(values)) if values[i] != values[i - 1]]


SCALABLE = (
    lr_scheduler.ConstantLR,
    lr_scheduler.CosineAnnealingLR,
    lr_scheduler.ExponentialLR,
    lr_scheduler.LambdaLR,
    lr_scheduler.LinearLR,
    lr_scheduler.MultiplicativeLR,
    lr_scheduler.MultiStepLR,
    lr_scheduler.PolynomialLR,
    lr_scheduler.StepLR,
)


def rescale(optimizer: Optimizer, scheduler: LRScheduler, scale: float) -> None:
    """Multiply the learning rates of the rest of a schedule by `scale`, in the middle of training.

    Current, initial and base learning rates are changed; `get_last_lr()` follows at the next step.

    Raises:
        TypeError: the scheduler is not one of `SCALABLE`, whose learning rates depend on these
            alone.
        ValueError: it belongs to another optimizer, or is a cosine with an `eta_min` other than 0,
            which would not be scaled; or `scale` is not a positive, finite number.
    """
    if not isinstance(scale, Real) or not 0 < scale < math.inf:
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    if type(scheduler) not in SCALABLE:
        raise TypeError(
            f"expected a scheduler of SCALABLE, got {type(scheduler).__name__}, which stores "
            "learning rates of its own: build a new one"
        )
    if getattr(scheduler, "eta_min", 0) != 0:
        raise ValueError(f"expected eta_min=0, got {scheduler.eta_min}: build a new scheduler")
    if scheduler.optimizer is not optimizer:
        raise ValueError("the scheduler belongs to another optimizer: build one for this optimizer")
    scaled = [
        (group, name, group[name] * scale)
        for group in optimizer.param_groups
        for name in ("lr", "initial_lr")
        if name in group  # a group added after the scheduler has no initial_lr
    ]
    for group, name, rate in scaled:
        if isinstance(group[name], Tensor):  # groups may share it
            group[name].fill_(rate)
        else:
            group[name] = rate
    scheduler.base_lrs = [rate * scale for rate in scheduler.base_lrs]
