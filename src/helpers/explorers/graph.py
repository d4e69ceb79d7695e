"""Show an autograd graph line by line: saved tensors, in-place edits, freed memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers.explorers import Explorer

LINES = ["x = w + 1", "", "", "y.backward()", "y.backward()"]
FUNCTIONS = ["y = x ** 2", "y = x.exp()", "y = x + 3"]
EDITS = ["", "x += 1", "y += 1"]


def run(function: str, edit: str) -> list[dict[str, Any]]:
    """Run the five lines with `w = 1`, and return the graph after each line.

    Args:
        function: one of `FUNCTIONS`.
        edit: one of `EDITS`; "" makes no edit.

    Returns:
        For each line: `line`; `tensors`, from name to value and version; `nodes` from `y` (or `x`)
            to `w`, each with its name and its saved tensor: None, or the tensor's name, its version
            then, and `"kept"`, `"edited"` or `"freed"`; `grad` of `w` or None; `error`: True if the
            line raised an error.
    """
    names: dict[str, Any] = {"w": torch.tensor(1.0, requires_grad=True)}
    versions: dict[Any, int] = {}
    steps = []
    for line in [LINES[0], function, edit, *LINES[3:]]:
        error = False
        try:
            exec(line, {}, names)
        except RuntimeError:
            error = True
        tensors = {name: [round(t.item(), 2), t._version] for name, t in names.items()}
        nodes = []
        node = names.get("y", names["x"]).grad_fn
        while node is not None:
            nodes.append([node.name().split("::")[-1], _saved(node, tensors, versions)])
            node = node.next_functions[0][0] if node.next_functions else None
        grad = names["w"].grad
        grad = None if grad is None else round(grad.item(), 2)
        steps.append(
            {"line": line, "tensors": tensors, "nodes": nodes, "grad": grad, "error": error}
        )
    return steps


def _saved(node: Any, tensors: dict[str, list], versions: dict[Any, int]) -> list | None:
    """Return name, version and state of the tensor that a node saved: its input x or result y."""
    attributes = {"_saved_self": "x", "_saved_result": "y"}
    attribute = next((one for one in attributes if one in dir(node)), None)
    if attribute is None:
        return None
    name = attributes[attribute]
    version = versions.setdefault(node, tensors[name][1])
    try:
        saved = getattr(node, attribute)
    except RuntimeError as error:
        return [name, version, "edited" if "inplace" in str(error) else "freed"]
    assert isinstance(saved, Tensor)
    return [name, version, "kept"]


def graph_explorer(lang: str | None = None) -> Explorer:
    """Choose a function and an edit, and step through the lines."""
    data = {
        "functions": FUNCTIONS,
        "edits": EDITS,
        "runs": [[run(function, edit) for edit in EDITS] for function in FUNCTIONS],
    }
    return Explorer(
        "graph",
        data,
        {
            "en": (
                "x ** 2 saves x, at version 0. After x += 1, x is at version 1, and backward "
                "raises. exp saves its result instead, so the same edit is allowed. After "
                "backward, the saved tensors are freed, and a second backward raises; x + 3 "
                "saves nothing, so there a second backward works."
            ),
            "zh": (
                "x ** 2 保存版本 0 的 x。执行 x += 1 之后，x 的版本是 1，backward 报错。exp 保存"
                "的是结果，所以同样的修改没有问题。backward 之后，保存的张量被释放，再次调用 "
                "backward 会报错；x + 3 什么也不保存，可以再次调用。"
            ),
        },
        lang,
    )
