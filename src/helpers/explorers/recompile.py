"""Show which calls `torch.compile` compiles in two epochs of training and validation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from helpers.explorers import Explorer
from helpers.performance import Counting, recompiles

DYNAMIC = {"none": None, "true": True, "false": False}
TRAIN, LAST, VALIDATION = (64, 64), 29, (100, 40)
FIRST, GRAD, SIZE, EPOCH = "first", "grad_mode", "size", "epoch"

# Recorded results of `record`. The key is `dynamic`, then 1 if the last batch is dropped, then 1 if
# the model stores its epoch as a number; the value maps the calls that compile to the reason.
RECORDED: dict[str, dict[int, str]] = {
    "none 0 0": {0: "first", 2: "size", 3: "grad_mode"},
    "none 0 1": {0: "first", 2: "size", 3: "grad_mode", 5: "epoch", 8: "epoch"},
    "none 1 0": {0: "first", 2: "grad_mode"},
    "none 1 1": {0: "first", 2: "grad_mode", 4: "epoch", 6: "epoch"},
    "true 0 0": {0: "first", 3: "grad_mode"},
    "true 0 1": {0: "first", 3: "grad_mode", 5: "epoch", 8: "epoch"},
    "true 1 0": {0: "first", 2: "grad_mode"},
    "true 1 1": {0: "first", 2: "grad_mode", 4: "epoch", 6: "epoch"},
    "false 0 0": {0: "first", 2: "size", 3: "grad_mode", 4: "size"},
    "false 0 1": {
        **{0: "first", 2: "size", 3: "grad_mode", 4: "size"},
        **dict.fromkeys((5, 7, 8, 9), "epoch"),
    },
    "false 1 0": {0: "first", 2: "grad_mode", 3: "size"},
    "false 1 1": {0: "first", 2: "grad_mode", 3: "size", **dict.fromkeys((4, 6, 7), "epoch")},
}


class Net(nn.Module):
    """Layer with dropout; with `numbered` it stores the epoch as an int and uses it."""

    def __init__(self, numbered: bool) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Linear(4, 4), nn.Dropout()
        self.epoch, self.numbered = 1, numbered

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`, (N, 4)."""
        y = self.dropout(self.layer(x))
        return y / self.epoch if self.numbered else y


def plan(drop: bool) -> list[tuple[int, bool, int]]:
    """Return the calls of two epochs as (epoch, validation, batch size)."""
    train = TRAIN + (() if drop else (LAST,))
    return [
        (epoch, validates, size)
        for epoch in (1, 2)
        for validates, sizes in ((False, train), (True, VALIDATION))
        for size in sizes
    ]


def kind(reasons: str) -> str:
    """Return the reason of a recompilation as one word, from PyTorch's message.

    PyTorch lists, for each graph, the first guard that fails; it checks grad mode, size and
    epoch in this order, so the best-matching graph decides.

    Raises:
        ValueError: the message contains none of the three reasons.
    """
    for word, sign in ((EPOCH, ".epoch =="), (SIZE, "size mismatch"), (GRAD, "grad_mode")):
        if sign in reasons:
            return word
    raise ValueError(f"torch gives another reason: {reasons}")


def record(dynamic: bool | None, drop: bool, numbered: bool) -> dict[int, str]:
    """Run two epochs of a compiled model; return the calls that compile and the reasons.

    Returns:
        A dict from the call's index in `plan` to `FIRST`, `GRAD`, `SIZE` or `EPOCH`.
    """
    torch.compiler.reset()
    model, counting = Net(numbered), Counting()
    compiled = torch.compile(model, backend=counting, dynamic=dynamic)
    compilations: dict[int, str] = {}
    for place, (epoch, validates, size) in enumerate(plan(drop)):
        model.epoch = epoch
        model.train(not validates)
        with torch.set_grad_enabled(not validates):
            x, before = torch.ones(size, 4), len(counting)
            why = recompiles(compiled, x) if place else None
            compiled(x)
        if len(counting) > before:
            compilations[place] = kind(why) if place else FIRST
    return compilations


def key(dynamic: str, drop: bool, numbered: bool) -> str:
    """Return the name of a setting in `RECORDED` and in the script."""
    return f"{dynamic} {int(drop)} {int(numbered)}"


def recompile_explorer(lang: str | None = None) -> Explorer:
    """Choose `dynamic`, `drop_last` and how the epoch is stored; see which calls compile.

    The compiling calls were recorded with `record`.
    """
    data: dict[str, Any] = {
        "plans": [plan(False), plan(True)],
        "found": RECORDED,
    }
    return Explorer(
        "recompile",
        data,
        {
            "en": (
                "Two epochs of training on batches of 64, 64 and 29 and validation on batches "
                "of 100 and 40: a model that stores its epoch as a number is compiled five "
                "times."
            ),
            "zh": (
                "两轮训练，批量大小为 64、64、29，验证的批量大小为 100、40：如果模型把轮数存成一"
                "个数字，就会编译五次。"
            ),
        },
        lang,
    )
