"""Show what a training step changes in a network with a supposedly frozen backbone."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.explorers import Explorer

SWITCHES = ("frozen", "evaluation", "given", "decay", "zeros")
RATE, DECAY = 0.5, 0.1


def step(
    *, frozen: bool, evaluation: bool, given: bool, decay: bool, zeros: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor | None]]:
    """Train a backbone and a head for one step, freeze the backbone, and train one more step.

    Args:
        frozen: call `requires_grad_(False)` on the backbone.
        evaluation: call `eval()` on the backbone.
        given: pass the backbone, too, to the optimizer of the second step (SGD).
        decay: use `weight_decay=0.1` in that optimizer.
        zeros: set the gradients of the first step to zeros instead of `None`.

    Returns:
        Three dicts by name: all parameters and buffers before and after the second step, and the
        gradients that its optimizer uses, one for each parameter.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(249)
        layers = OrderedDict(
            linear=nn.Linear(2, 2, bias=False), bn=nn.BatchNorm1d(2), head=nn.Linear(2, 1)
        )
        x, y = torch.randn(2, 8, 2), torch.randn(2, 8, 1)
    model = nn.Sequential(layers)
    backbone = nn.ModuleList([model.linear, model.bn])

    def train(parameters: Any, n: int, weight_decay: float) -> None:
        F.mse_loss(model(x[n]), y[n]).backward()
        torch.optim.SGD(parameters, RATE, weight_decay=weight_decay).step()

    train(model.parameters(), 0, 0.0)
    model.zero_grad(set_to_none=not zeros)
    backbone.requires_grad_(not frozen).train(not evaluation)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    train((model if given else model.head).parameters(), 1, DECAY if decay else 0.0)
    return before, model.state_dict(), {name: p.grad for name, p in model.named_parameters()}


def _first(t: Tensor, digits: int = 3) -> float:
    return round(t.flatten()[0].item(), digits)


def freeze_explorer(lang: str | None = None) -> Explorer:
    """Choose how to freeze a backbone, and see what a training step still changes."""
    rows = []
    for switches in itertools.product((False, True), repeat=len(SWITCHES)):
        before, after, grads = step(**dict(zip(SWITCHES, switches, strict=True)))
        rows.append(
            {
                "after": [_first(t) for t in after.values()],
                "changed": [int(not torch.equal(t, before[name])) for name, t in after.items()],
                "grad": [
                    "None" if (grad := grads.get(name)) is None else _first(grad, 2)
                    for name in after
                ],
            }
        )
    data = {
        "switches": SWITCHES,
        "names": list(before),
        "before": [_first(t) for t in before.values()],
        "parameters": [int(name in grads) for name in before],
        "rows": rows,
    }
    return Explorer(
        "freeze",
        data,
        {
            "en": (
                "After requires_grad_(False) on the backbone, one training step still changes "
                "all of it: the forward pass updates the statistics of BatchNorm, and weight "
                "decay changes the parameters whose gradients were set to zeros. eval() and "
                "gradients of None prevent both."
            ),
            "zh": (
                "对主干调用 requires_grad_(False) 之后，一个训练步仍然改变了它的全部内容：前向传"
                "播更新 BatchNorm 的滑动统计量，权重衰减改变梯度被置为零的参数。调用 eval() 并把"
                "梯度设为 None，两者都不会发生。"
            ),
        },
        lang,
    )
