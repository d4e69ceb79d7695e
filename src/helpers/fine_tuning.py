"""Helpers of the chapter "Fine-tune a pretrained network".

Source: torchvision's models, https://pytorch.org/vision/stable/models.html, and parameter groups,
https://pytorch.org/docs/stable/optim.html#per-parameter-options
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

# ---------------------------------------------------------------- look at a fine-tuning


def audit(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """What training will do to each child of `model` (and to each parameter of its own).

    Words used, joined by commas: `lr …` for parameters that the optimizer moves; `in no group` for
    those that require a gradient and are not in the optimizer; `frozen` or `partly frozen`;
    `gradient left` where a frozen parameter in the optimizer still holds one, so that a step moves
    it; `statistics move` where everything is frozen, but a BatchNorm layer is in training mode.
    Parameters that the optimizer holds and the model does not are counted in a last line.
    """
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    told = {name: _state([p], [], rates) for name, p in model.named_parameters(recurse=False)}
    for name, child in model.named_children():
        told[name] = _state(list(child.parameters()), list(child.modules()), rates)
    strangers = rates.keys() - {id(p) for p in model.parameters()}
    told["(not in the model)"] = f"{len(strangers)} parameters" if strangers else ""
    return {name: state for name, state in told.items() if state}


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
    if frozen and not learning and any(_moves(module) for module in modules):
        words.append("statistics move")
    return ", ".join(words)


def _moves(module: nn.Module) -> bool:
    """Whether a forward pass changes the running statistics of this layer."""
    return module.training and getattr(module, "running_mean", None) is not None


def keep(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the state of `model`, to compare with later (see `changed`)."""
    return copy.deepcopy(model.state_dict())


def changed(before: dict[str, Tensor], model: nn.Module) -> list[str]:
    """The children of `model` in which a parameter or buffer differs from the `before` kept.

    `before` is a copy of `model.state_dict()`; entries that it lacks count as changed.
    """
    names = []
    for key, value in model.state_dict().items():
        child = key.partition(".")[0]
        same = key in before and torch.equal(before[key], value)
        if not same and child not in names:
            names.append(child)
    return names


def head_of(model: nn.Module) -> str:
    """The name of the last `nn.Linear` of `model`, which is the head of most classifiers.

    Raises:
        ValueError: there is none (SqueezeNet ends in a convolution, for example).
    """
    linear = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise ValueError(f"{type(model).__name__} has no nn.Linear")
    return linear[-1]


class _AskedError(Exception):
    """Raised in place of a download."""


def download_of(build: Callable[[], Any]) -> str | None:
    """The file of weights that `build()` would download first, or None; nothing is downloaded.

    The model is built on the meta device, and warnings are suppressed.
    """
    from torchvision.models import WeightsEnum

    asked: list[str] = []

    def refuse(weights: Any, *args: Any, **options: Any) -> None:
        asked.append(weights.url.rpartition("/")[2])
        raise _AskedError

    with (
        mock.patch.object(WeightsEnum, "get_state_dict", refuse),
        warnings.catch_warnings(),
        torch.device("meta"),
        suppress(_AskedError),
    ):
        warnings.simplefilter("ignore")
        build()
    return asked[0] if asked else None
