"""Trace a value to its origin through names, local models, and calls such as `to`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from helpers.review.code import Code, Part, entry_of
from helpers.review.kinds import MOVES, WRAPPERS, kind
from helpers.review.syntax import argument, is_open, method, name_of, receiver

_SAME = {"squeeze", "view", "flatten", "reshape", "to", "float", "cpu", "cuda", "unsqueeze"}
_DEEPEST = 8


def is_activation(code: Code, node: Any, names: Collection[str], depth: int = 0) -> bool:
    """Return True if an expression is the output of an activation, even via names and models.

    Args:
        code: the file.
        node: an expression, or a result of `Code.value`.
        names: names of activation functions, such as `{"softmax"}`.
        depth: number of steps made so far, for recursion.
    """
    if node is None or depth > _DEEPEST:
        return False
    if isinstance(node, Part):
        return _part(code, node, names, depth)
    if isinstance(node, ast.Call):
        name = code.called(node)
        if name in {f"{head}.{word}" for head in ("F", "torch") for word in names}:
            return True
        if not name and method(node) in names and _is_method(node):
            return True
        if not name and method(node) in _SAME and receiver(node) is not None:
            return is_activation(code, receiver(node), names, depth + 1)
        factory = _constructor_of(code, node)
        object_of = kind(code, node.func) or "object:"
        if factory is not None and object_of.startswith("object:"):
            return is_activation(code, factory, names, depth + 1)
        return ends_in(code, node.func, names, depth + 1)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and name_of(node):
        value = code.value(node)
        if value is None and isinstance(node, ast.Subscript):
            value = _item_of_output(code, node) or _sliced(node)
        return is_activation(code, value, names, depth + 1)
    return False


def _item_of_output(code: Code, node: ast.Subscript) -> ast.AST | None:
    """Return the item that `forward` returns as `out["scores"]` or `out[0]`."""
    call, key = code.resolved(node.value), getattr(node.slice, "value", None)
    values = forward_values(code, call.func) if isinstance(call, ast.Call) else []
    container = values[0] if len(values) == 1 else None
    if isinstance(container, ast.Tuple) and isinstance(key, int) and 0 <= key < len(container.elts):
        return container.elts[key]
    if isinstance(container, ast.Dict) and isinstance(key, str):
        pairs = zip(container.keys, container.values, strict=True)
        return next((v for k, v in pairs if getattr(k, "value", None) == key), None)
    return None


def _sliced(node: ast.Subscript) -> ast.AST | None:
    """Return `x` of `x[:, 1]`: slicing does not change the activation."""
    several = isinstance(node.slice, ast.Tuple | ast.Slice)
    return node.value if several else None


def _is_method(call: ast.Call) -> bool:
    """Return True for `x.softmax(1)`, False for the layer `self.softmax(x)`."""
    return receiver(call) is not None and name_of(receiver(call)) != "self"


def _part(code: Code, part: Part, names: Collection[str], depth: int) -> bool:
    """Return True if an item of the tuple that a model returns is the output of an activation."""
    output_node = output(code, part)
    return output_node is not None and is_activation(code, output_node, names, depth + 1)


def output(code: Code, part: Any) -> ast.AST | None:
    """Return the expression that `forward` returns for `value` of `scores, value = model(x)`."""
    if not isinstance(part, Part) or not isinstance(part.value, ast.Call):
        return None
    values = forward_values(code, part.value.func)
    return entry_of(values[0], part.index) if len(values) == 1 else None


def forward_values(code: Code, model: ast.AST) -> list[ast.AST]:
    """Return the values that the `forward` of a local model returns."""
    if isinstance(model, ast.Attribute) and model.attr == "forward":
        model = model.value
    name = (kind(code, model) or "").removeprefix("module:")
    for owner in code.bases(name):
        if forward := code.functions.get((owner.name, "forward")):
            return code.return_values(forward)
    return []


_HEAD = re.compile(r"\.(fc|classifier|head|heads|last_linear)(\[-1\]|\[\d\]|\.\w+)?$")


def replaced_head(code: Code, model: Any) -> ast.AST | None:
    """Return the layer that `net.fc = …` assigned as the last one of a pretrained model."""
    name, model_scope = name_of(model), getattr(model, "scope", None)
    call = construction(code, model) if name else None
    if call is None or not re.match(r"(models|timm)\.", code.called(call)):
        return None
    places = [
        (model_scope, name),
        (call.scope, name_of(getattr(call.parent, "targets", [None])[0])),
    ]
    for scope, written in places:
        for key, values in getattr(scope, "assigned", {}).items():
            if written and key.startswith(f"{written}.") and _HEAD.fullmatch(key[len(written) :]):
                value = values[-1].value
                return value if isinstance(value, ast.Call) else None
    return None


def ends_in(code: Code, model: ast.AST, names: Collection[str], depth: int = 0) -> bool:
    """Return True if the last operation of a module is one of `names`."""
    if isinstance(model, ast.Attribute) and model.attr == "forward":
        model = model.value
    type_name = kind(code, model) or ""
    if depth <= _DEEPEST and (head := replaced_head(code, model)) is not None:
        return ends_in(code, head, names, depth + 1)
    if depth > _DEEPEST or not type_name.startswith("module:"):
        return False
    name = type_name.removeprefix("module:")
    if name in ("Softmax", "Sigmoid", "LogSoftmax", "Softmax2d", "ReLU"):
        return name.lower().replace("logsoftmax", "log_softmax").removesuffix("2d") in names
    constructor = construction(code, model)
    if name == "Sequential" and constructor is not None and constructor.args:
        inner = layers(code, constructor)
        return bool(inner) and ends_in(code, inner[-1], names, depth + 1)
    values = forward_values(code, model)
    return len(values) == 1 and is_activation(code, values[0], names, depth + 1)


def construction(code: Code, node: Any) -> ast.Call | None:
    """Return the constructor call of a value: `nn.Linear(…)` for `net.to(device)`."""
    for _ in range(_DEEPEST):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            node = code.value(node)
        elif isinstance(node, Part):
            node = code.element(node)
        elif (
            isinstance(node, ast.Call) and (constructor := _constructor_of(code, node)) is not None
        ):
            node = constructor
        elif isinstance(node, ast.Call) and method(node) in MOVES | {"eval", "train"}:
            if code.called(node) or receiver(node) is None:
                return node
            node = receiver(node)
        elif isinstance(node, ast.Call) and code.called(node) in WRAPPERS and node.args:
            node = node.args[0]
        elif isinstance(node, ast.IfExp):
            node = node.body
        else:
            break
    return node if isinstance(node, ast.Call) else None


def _constructor_of(code: Code, call: ast.Call) -> ast.AST | None:
    """Return the result of a local function: `nn.Sequential(…)` for `net = build()`."""
    value = code.returned(call)
    return value if not isinstance(value, ast.Tuple) else None


def dataset_of(code: Code, loader: Any) -> ast.AST | None:
    """Return the dataset of a DataLoader with the default `collate_fn`."""
    constructor = construction(code, loader)
    if (
        code.called(constructor) != "data.DataLoader"
        or is_open(constructor)
        or argument(constructor, "collate_fn")
    ):
        return None
    return argument(constructor, "dataset", 0)


def layers(code: Code, constructor: ast.Call) -> list[ast.AST]:
    """Return the layers of `nn.Sequential(…)`, even if passed as `*layers` or `OrderedDict`."""
    parts = []
    for arg in constructor.args:
        if isinstance(arg, ast.Starred):
            parts += collected(code, arg.value)
        elif method(arg) == "OrderedDict" and arg.args:
            pairs = getattr(arg.args[0], "elts", ())
            parts += [pair.elts[1] for pair in pairs if len(getattr(pair, "elts", ())) == 2]
        else:
            parts.append(arg)
    return parts


def collected(code: Code, node: ast.AST) -> list[ast.AST]:
    """Return the elements of a list, including additions by `append` and `+=` before `node`."""
    name, value = name_of(node), code.resolved(node)
    modules = [*value.elts] if isinstance(value, ast.List | ast.Tuple) else []
    for child in code.walk(code.function_of(node)) if name else ():
        if getattr(child, "lineno", node.lineno) >= node.lineno:
            continue
        if method(child) == "append" and name_of(receiver(child)) == name and len(child.args) == 1:
            modules.append(child.args[0])
        elif isinstance(child, ast.AugAssign) and name_of(child.target) == name:
            modules += getattr(child.value, "elts", ())
    return modules


def loss_calls(code: Code, function: str, module: str) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Yield each call of a loss (function or module) with its first argument."""
    if code.losses is None:
        code.losses = defaultdict(list)
        for call in code.calls:
            code.losses[code.called(call) or kind(code, call.func)].append(call)
    for call in (*code.losses[f"F.{function}"], *code.losses[f"lossfn:{module}"]):
        if (operand := argument(call, "input", 0)) is not None:
            yield call, operand


_LOSS_NAME = re.compile(r"(?i)(loss|loss_?fn|loss_?func(tion)?|criterion|objective)$")


def is_named_loss(code: Code, call: ast.Call) -> bool:
    """Return True for `loss = loss_fn(…)` of an unknown `loss_fn`, if `loss.backward()` follows."""
    name = name_of(call.func) if isinstance(call.parent, ast.Assign) else None
    if not name or not _LOSS_NAME.search(name) or code.called(call) or code.value(call.func):
        return False
    if code.targets(call) or kind(code, call.func) is not None:
        return False
    target = name_of(call.parent.targets[0])
    forced = target and f"{target}.requires_grad" in code.source  # another rule reports it
    return target in call.scope.backward and not forced


def is_loss_call(code: Code, call: ast.Call) -> bool:
    """Return True if a call computes a loss of PyTorch."""
    name = code.called(call)
    if name:
        return kind(code, call) == "loss" and name.startswith("F.")
    return (kind(code, call.func) or "").startswith("lossfn:")
