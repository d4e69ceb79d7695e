"""Helpers of the chapter "Schedule the learning rate".

Source: "How to adjust learning rate" of `torch.optim`,
https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

Make = Callable[[Optimizer], LRScheduler]


def one_weight(lr: float = 1.0) -> SGD:
    """An SGD optimizer (momentum 0.9) over one weight whose gradient is 0, so that it can step."""
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
    """The learning rate that each epoch trains with, read from a real optimizer.

    Args:
        make: builds the scheduler on the optimizer it is given.
        epochs: how many times the optimizer steps.
        lr: the rate given to the optimizer.
        metrics: what a `ReduceLROnPlateau` is told after each epoch; `epochs` numbers.
        scheduler_first: call `scheduler.step()` before the epoch, which is the wrong place;
            the warning about it is swallowed.

    Raises:
        ValueError: a plateau scheduler has no `metrics`, or not `epochs` of them.
    """
    optimizer = one_weight(lr)
    scheduler = make(optimizer)
    plateau = isinstance(scheduler, ReduceLROnPlateau)
    if plateau and len(metrics or ()) != epochs:
        raise ValueError(f"expected {epochs} metrics, one for each epoch, got {metrics!r}")
    used = []
    with warnings.catch_warnings():
        if scheduler_first:
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
        for epoch in range(epochs):
            arguments = [metrics[epoch]] if plateau else []
            if scheduler_first:
                scheduler.step(*arguments)
            used.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if not scheduler_first:
                scheduler.step(*arguments)
    return used


def changes(values: Sequence[float]) -> list[int]:
    """The epochs whose rate differs from that of the epoch before."""
    return [i for i in range(1, len(values)) if values[i] != values[i - 1]]
