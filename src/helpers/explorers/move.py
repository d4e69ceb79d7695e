"""Show which objects `to`, `double` and `float` convert in place, by running each case."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from helpers.cuda_semantics import where
from helpers.explorers import Explorer

CONVERSIONS = (".double()", '.to("meta")', ".float()")
_ADAM = """\
optimizer = torch.optim.Adam(m.parameters())
m(torch.ones(1, 2){input}).sum().backward()
optimizer.step()"""
# Code that creates, converts and inspects each object, and a fix if the conversion misses it.
OBJECTS: dict[str, dict[str, str]] = {
    "tensor": {
        "setup": "x = torch.ones(2)",
        "name": "x",
        "watch": "x",
        "fix": "x = torch.ones(2)\nx = x{move}",
    },
    "parameter": {
        "setup": "p = nn.Parameter(torch.ones(2))",
        "name": "p",
        "watch": "p",
        "fix": "p = nn.Parameter(torch.ones(2){move})",
    },
    "module": {
        "setup": "m = nn.Linear(2, 2)",
        "name": "m",
        "watch": "m.weight",
        "fix": "m = nn.Linear(2, 2)\nm{move}\noptimizer = torch.optim.Adam(m.parameters())",
    },
    "buffer": {
        "setup": 'm = nn.Module()\nm.register_buffer("mean", torch.ones(2))',
        "name": "m",
        "watch": "m.mean",
    },
    "attribute": {
        "setup": "m = nn.Module()\nm.mean = torch.ones(2)",
        "name": "m",
        "watch": "m.mean",
        "fix": 'm = nn.Module()\nm.register_buffer("mean", torch.ones(2))\nm{move}',
    },
    "list": {
        "setup": "m = nn.Module()\nm.layers = [nn.Linear(2, 2)]",
        "name": "m",
        "watch": "m.layers[0].weight",
        "fix": "m = nn.Module()\nm.layers = nn.ModuleList([nn.Linear(2, 2)])\nm{move}",
    },
    "optimizer": {
        "setup": "m = nn.Linear(2, 2)\n" + _ADAM.format(input=""),
        "name": "m",
        "watch": 'next(iter(optimizer.state.values()))["exp_avg"]',
        "fix": "m = nn.Linear(2, 2)\nm{move}\n" + _ADAM.replace("{input}", "{move}"),
    },
}


def try_move(kind: str, move: str) -> dict[str, Any]:
    """Run a conversion and return its effect on an object.

    Args:
        kind: a key of `OBJECTS`.
        move: a member of `CONVERSIONS`.

    Returns:
        `code` (the code that ran), `returned` ("same" if the result is the converted object, else
        "new"), `watch` (the inspected expression), `before` and `after` (see
        `where`), `kept` (True if the tensor object is the same), `fix` (code or "") and `outcome`:

        - "nothing": the object was already there
        - "assign": the result is another tensor, the name still refers to the old one
        - "leaf": as "assign", and the result is not an `nn.Parameter`
        - "in place": moved; the tensor object is the same
        - "rebound": moved; the module has a new tensor under the same name
        - "replaced": moved; the module has a new parameter object
        - "missed": not moved

    Raises:
        ValueError: `kind` or `move` is unknown.
    """
    if kind not in OBJECTS:
        raise ValueError(f"kind must be one of {', '.join(OBJECTS)}, got {kind!r}")
    if move not in CONVERSIONS:
        raise ValueError(f"move must be one of {', '.join(CONVERSIONS)}, got {move!r}")
    plan = OBJECTS[kind]
    action = plan["name"] + move
    scope: dict[str, Any] = {"torch": torch, "nn": nn}
    exec(plan["setup"], scope)
    original, before = eval(plan["name"], scope), eval(plan["watch"], scope)
    seen, target = where(before), where(eval("torch.ones(2)" + move, scope))
    result, after = eval(action, scope), eval(plan["watch"], scope)
    kept = after is before
    if seen == target:
        outcome = "nothing"
    elif original is before:
        outcome = "leaf" if isinstance(original, nn.Parameter) else "assign"
    elif where(after) != target:
        outcome = "missed"
    elif kept:
        outcome = "in place"
    else:
        outcome = "replaced" if isinstance(after, nn.Parameter) else "rebound"
    needs_fix = outcome in ("assign", "leaf", "missed", "replaced")
    return {
        "kind": kind,
        "move": move,
        "code": f"{plan['setup']}\n{action}",
        "returned": "same" if result is original else "new",
        "watch": plan["watch"],
        "before": seen,
        "after": where(after),
        "kept": kept,
        "outcome": outcome,
        "fix": plan["fix"].format(move=move) if needs_fix else "",
    }


def move_explorer(lang: str | None = None) -> Explorer:
    """Choose an object and a conversion, and see what was converted."""
    return Explorer(
        "move",
        [try_move(kind, move) for kind in OBJECTS for move in CONVERSIONS],
        {
            "en": (
                "Seven kinds of object and three conversions: which are moved in place, which "
                "return a copy, which are not moved."
            ),
            "zh": ("七种对象和三种转换：哪些原地移动，哪些返回副本，哪些没有移动。"),
        },
        lang,
    )
