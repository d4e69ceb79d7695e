"""Helpers of the chapter on the training loop: train, evaluate, find untrained parameters.

Source: "Optimizing Model Parameters",
https://pytorch.org/tutorials/beginner/basics/optimization_tutorial.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.evaluation import evaluating

if TYPE_CHECKING:
    from torch.optim import Optimizer

Measure = Callable[[Tensor, Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor]]


# ---------------------------------------------------------------- the loop


def fit(
    model: nn.Module,
    loader: Batches,
    loss_function: Measure,
    optimizer: Optimizer,
    epochs: int = 1,
    max_norm: float | None = None,
    still: Iterable[nn.Module] = (),
) -> list[float]:
    """Train a model, and return the mean loss per sample of each epoch.

    The model is switched to training mode at the start of every epoch. Batches are moved to the
    device of its parameters, and batches without samples are skipped. The loss is checked in every
    step, which synchronizes with a GPU.

    Args:
        loader: yields batches (x, y) with `len(y)` samples, again in every epoch.
        loss_function: `loss_function(model(x), y)` is the mean over the batch, of shape ().
        max_norm: if given, the norm of all gradients together is clipped to it.
        still: modules that stay in evaluation mode, such as frozen BatchNorm layers.

    Raises:
        TypeError: an argument is of another kind, a batch is not a pair of tensors, or the loss is
            not a tensor.
        ValueError: `loader` yields no batch, or single samples as a dataset does; the loss is not a
            single number; `loader` is an iterator and `epochs` above 1; `epochs` is negative, or
            `max_norm` not above 0.
        FloatingPointError: the loss became inf or nan. The weights are those before this step.
        RuntimeError: the norm of the gradients is inf or nan, and `max_norm` is given.
    """
    epochs = checks.integer("epochs", epochs, 0)
    checks.module("model", model), checks.batches("loader", loader)
    checks.function("loss_function", loss_function), checks.optimizer("optimizer", optimizer)
    if max_norm is not None:
        checks.positive("max_norm", max_norm)
    if isinstance(still, nn.Module) or not isinstance(still, Iterable):
        raise TypeError(f"still must be a list of modules, got {type(still).__name__}")
    if epochs > 1 and isinstance(loader, Iterator):
        raise ValueError(
            "expected a loader for several epochs, got an iterator, which ends after one"
        )
    history, still = [], [checks.module("each of still", part) for part in still]
    for epoch in range(epochs):
        model.train()
        for module in still:
            module.eval()
        total, count = 0.0, 0
        for x, y in _on_device(model, loader):
            loss = loss_function(model(x), y)
            value = _single(loss, "the loss")
            if not math.isfinite(value):
                raise FloatingPointError(f"the loss is {value} in epoch {epoch}, sample {count} on")
            optimizer.zero_grad()
            loss.backward()
            if max_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm, error_if_nonfinite=True)
            optimizer.step()
            total += value * len(y)
            count += len(y)
        history.append(total / count)
    return history


def evaluate(model: nn.Module, loader: Batches, **measures: Measure) -> dict[str, float]:
    """Return the mean per sample of each of `measures`, in eval mode and without gradients.

    The mode of every module is restored afterwards, also after an error. Batches without samples
    are skipped.

    Args:
        loader: yields batches (x, y) with `len(y)` samples.
        **measures: each returns the mean over a batch, of shape (), from `model(x)` and `y`: for
            example `loss=F.cross_entropy, accuracy=accuracy`. Means that are not over samples, as
            with class weights or ignored labels, are not combined correctly.

    Raises:
        TypeError: `model` is not a module, `loader` is no iterable of batches, a batch is not a
            pair of tensors, or a measure cannot be called or returns no tensor.
        ValueError: `loader` yields no batch, or single samples as a dataset does; no measure is
            given, or one is not a single number.
    """
    if not measures:
        raise ValueError("expected at least one measure, such as loss=F.cross_entropy, got none")
    for name, measure in measures.items():
        checks.function(name, measure)
    checks.module("model", model), checks.batches("loader", loader)
    totals, count = dict.fromkeys(measures, 0.0), 0
    with evaluating(model):
        for x, y in _on_device(model, loader):
            output = model(x)
            for name, measure in measures.items():
                totals[name] += _single(measure(output, y), name) * len(y)
            count += len(y)
    return {name: total / count for name, total in totals.items()}


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the fraction of samples whose largest logit is that of their label: a float32 scalar.

    Args:
        scores: shape (N, C): logits or probabilities.
        labels: integers of shape (N,).

    Raises:
        TypeError: an argument is not a tensor, or `labels` contains no integers.
        ValueError: the shapes are different ones, which `==` might silently broadcast, or C is
            below 2: compare a single logit with 0.
    """
    checks.tensor("scores", scores)
    if checks.tensor("labels", labels).is_floating_point():
        raise TypeError(f"labels must be a tensor of integers, got {labels.dtype}")
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or scores.shape[1] < 2:
        raise ValueError(
            "expected scores of shape (N, C), C above 1, and labels of shape (N,), got "
            f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    return (scores.argmax(1) == labels).float().mean()


def untrained(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """Return the names of parameters with `requires_grad=True` that are not in `optimizer`.

    Raises:
        TypeError: `model` is not a module, or `optimizer` not an optimizer.
    """
    checks.module("model", model), checks.optimizer("optimizer", optimizer)
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [n for n, p in model.named_parameters() if p.requires_grad and id(p) not in trained]


def _on_device(model: nn.Module, loader: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    empty = True
    for batch in loader:
        pair = isinstance(batch, tuple | list) and len(batch) == 2
        if not pair or not all(isinstance(part, Tensor) for part in batch):
            raise TypeError(f"expected batches (x, y) of two tensors, got {_kind(batch)}")
        x, y = batch
        if not x.dim() or not y.dim():
            raise ValueError(
                "expected batches, got a single sample: pass a DataLoader of the dataset"
            )
        if not len(y):  # such as a batch whose samples were all filtered out: its mean is nan
            continue
        empty = False
        yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    if empty:
        raise ValueError(
            "expected at least one batch, got none: fewer samples than batch_size with "
            "drop_last=True, or an exhausted iterator?"
        )


def _kind(batch: object) -> str:
    """Return the type of a batch, with those of its parts if it is a tuple or a list."""
    name = type(batch).__name__
    if not isinstance(batch, tuple | list):
        return name
    return f"{name} of {', '.join(type(part).__name__ for part in batch) or 'nothing'}"


def _single(value: Tensor, name: str) -> float:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor of one number, got {type(value).__name__}")
    if value.numel() != 1:
        raise ValueError(f"{name} must be one number per batch, got shape {tuple(value.shape)}")
    return value.item()
