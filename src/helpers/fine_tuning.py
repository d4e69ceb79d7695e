"""Helpers of the chapter on fine-tuning: audit, changed children, LoRA, weights to download.

Source: torchvision's models, https://pytorch.org/vision/stable/models.html, and parameter groups,
https://pytorch.org/docs/stable/optim.html#per-parameter-options
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from numbers import Integral
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import checks
from helpers.checkpoints import differences

# ---------------------------------------------------------------- look at a fine-tuning


def audit(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Return how a training step treats each child of `model` and each parameter of its own.

    Terms, joined by commas: `lr …` for parameters that the optimizer updates; `in no group` for
    parameters that require a gradient and are not in the optimizer; `frozen` or `partly frozen`;
    `gradient left` if a frozen parameter in the optimizer still has a gradient, so that a step
    changes it; `statistics move` if a BatchNorm layer without trainable parameters is in training
    mode, so that its running statistics change. Parameters in the optimizer that are not in the
    model are counted in a last line.

    Raises:
        TypeError: `model` is not a module, or `optimizer` not an optimizer.
    """
    checks.module("model", model), checks.optimizer("optimizer", optimizer)
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    states = {name: _state([p], [], rates) for name, p in model.named_parameters(recurse=False)}
    for name, child in model.named_children():
        states[name] = _state(list(child.parameters()), list(child.modules()), rates)
    strangers = rates.keys() - {id(p) for p in model.parameters()}
    states["(not in the model)"] = f"{len(strangers)} parameters" if strangers else ""
    return {name: state for name, state in states.items() if state}


def _state(
    parameters: list[nn.Parameter], modules: list[nn.Module], rates: dict[int, float]
) -> str:
    learning = [p for p in parameters if p.requires_grad]
    frozen = [p for p in parameters if not p.requires_grad]
    words = sorted({f"lr {rates[id(p)]:g}" if id(p) in rates else "in no group" for p in learning})
    if frozen:
        words.append("partly frozen" if learning else "frozen")
    if any(p.grad is not None and id(p) in rates for p in frozen):
        words.append("gradient left")
    if any(_moves(module) for module in modules):
        words.append("statistics move")
    return ", ".join(words)


def _moves(module: nn.Module) -> bool:
    """Return True if a forward pass updates running statistics of a layer that is not trained."""
    learns = any(p.requires_grad for p in module.parameters(recurse=False))
    return module.training and not learns and getattr(module, "running_mean", None) is not None


def keep(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the state of `model`, to compare with later (see `changed`).

    Raises:
        TypeError: `model` is not a module.
    """
    return copy.deepcopy(checks.module("model", model).state_dict())


def changed(before: dict[str, Tensor], model: nn.Module) -> list[str]:
    """Return the children of `model` whose entries of the state dict differ from `before`.

    `before` is a copy of `model.state_dict()`; entries that only one of the two has count as
    changed. Values are compared bit for bit.

    Raises:
        TypeError: `before` is not a mapping, or `model` is not a module.
    """
    checks.mapping("before", before)
    keys = differences(before, checks.module("model", model).state_dict())
    return list(dict.fromkeys(key.partition(".")[0] for key in keys))


def head_of(model: nn.Module) -> str:
    """Return the name of the last `nn.Linear` of `model`, which is the head of most classifiers.

    Raises:
        TypeError: `model` is not a module.
        ValueError: there is none (SqueezeNet ends in a convolution, for example).
    """
    checks.module("model", model)
    linear = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise ValueError(f"{type(model).__name__} has no nn.Linear")
    return linear[-1]


# ---------------------------------------------------------------- low-rank adaptation


class LoRALinear(nn.Module):
    """Layer `base(x) + alpha / rank * x @ down.T @ up.T` with frozen `base` and trainable factors.

    `down` has shape (rank, in) and is initialized at random, `up` has shape (out, rank) and is
    initialized with zeros, so the initial output is that of `base`. Both have the dtype and device
    of `base.weight`.

    Args:
        base: the layer to adapt; its parameters are frozen in place.
        rank: of the product, at least 1.
        alpha: scale of the product times `rank`; by default `rank`, a scale of 1.

    Raises:
        TypeError: `base` is not an `nn.Linear`, or `alpha` is not a number.
        ValueError: `rank` is not an integer of at least 1, or `alpha` is nan or infinite.

    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models".
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float | None = None) -> None:
        super().__init__()
        if not isinstance(base, nn.Linear):
            raise TypeError(f"expected an nn.Linear, got {type(base).__name__}")
        if not isinstance(rank, Integral) or isinstance(rank, bool) or rank < 1:
            raise ValueError(f"expected an integer rank of at least 1, got {rank}")
        if alpha is not None:
            checks.finite("alpha", alpha)
        self.base = base.requires_grad_(False)
        self.scale = 1.0 if alpha is None else alpha / rank
        self.down = nn.Parameter(base.weight.new_empty(rank, base.in_features))
        self.up = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    @property
    def weight(self) -> Tensor:
        """Return the adapted weight, which attention layers read without calling the layer."""
        return self.base.weight + self.scale * self.up @ self.down

    @property
    def bias(self) -> Tensor | None:
        """Return the bias of `base`."""
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs of shape (..., out) for `x` of shape (..., in)."""
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        """Return a plain, frozen layer with the same outputs up to rounding."""
        merged = copy.deepcopy(self.base)
        merged.weight += self.scale * self.up @ self.down
        return merged


# ---------------------------------------------------------------- weights


class _AskedError(Exception):
    """Raised in place of a download."""


def download_of(build: Callable[[], Any]) -> str | None:
    """Return the file of weights that `build()` would download first, or None; download nothing.

    The model is built on the meta device, or on the CPU if its constructor needs values (RegNet,
    quantized models); warnings are suppressed.

    Raises:
        TypeError: `build` cannot be called.
    """
    if not callable(build):
        raise TypeError(f"build must be a function, got {type(build).__name__}")
    from torchvision.models import WeightsEnum

    requested: list[str] = []

    def refuse(weights: Any, *args: Any, **options: Any) -> None:
        requested.append(weights.url.rpartition("/")[2])
        raise _AskedError

    with (
        mock.patch.object(WeightsEnum, "get_state_dict", refuse),
        warnings.catch_warnings(),
        suppress(_AskedError),
    ):
        warnings.simplefilter("ignore")
        try:
            with torch.device("meta"):
                build()
        except RuntimeError:
            build()
    return requested[0] if requested else None
