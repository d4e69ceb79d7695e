"""Overlaps of masks: Dice and IoU."""

import ast
import re

from helpers.review.code import Part
from helpers.review.registry import rule
from helpers.review.syntax import FUNCTIONS, const, method, name_of, receiver
from helpers.review.tracing import construction, forward_values, loss_calls

_NAMES = re.compile(r"(?i)dice|iou|jaccard|tversky")
_INNER = re.compile(r"(?i)sigmoid|softmax|exp\(|activation|from_logits|argmax|one_hot")


@rule("losses-dice-logits", "wrong", "dice|Dice|iou|IoU|accard|versky")
def overlap_of_logits(code):
    """`dice_loss(model(x), y)` of logits: the overlap requires probabilities."""
    logits = {
        (loss_call.scope, ast.unparse(prediction))
        for names in (
            ("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"),
            ("cross_entropy", "CrossEntropyLoss"),
        )
        for loss_call, prediction in loss_calls(code, *names)
    }
    for call in code.calls:
        function = _overlap_loss(code, call)
        operand = call.args[0] if function is not None and call.args else None
        if (
            operand is None
            or _INNER.search(code.source_of(function))
            or not _uses_first(code, function)
        ):
            continue
        if (call.scope, ast.unparse(operand)) in logits and name_of(operand):
            if not _renamed(operand):
                yield call
        elif _ends_in_layer(code, operand) or _takes_logits(function):
            yield call


def _takes_logits(function):
    """Return whether the first parameter of a loss is named `logits`."""
    names = [parameter.arg for parameter in function.args.args if parameter.arg != "self"]
    return bool(re.fullmatch("(y_)?logits?", names[0]))


def _renamed(node):
    """Return whether a name has several values in its function: `out = sigmoid(out)`."""
    return isinstance(node, ast.Name) and len(node.scope.assigned.get(node.id, ())) > 1


def _overlap_loss(code, call):
    """Return the function or `forward` of a local Dice or IoU loss that a call runs."""
    name = name_of(call.func)
    if not name or code.called(call):
        return None
    targets = code.runs(call)
    if len(targets) != 1:
        return None
    owner = targets[0].owner.name if targets[0].owner is not None else ""
    named = owner if targets[0].name in ("forward", "__call__") else targets[0].name
    loss = re.search("(?i)loss", named) and "backward(" in code.source
    return targets[0] if _NAMES.search(named) and loss else None


def _uses_first(code, function):
    """Return whether the function multiplies its first parameter and adds its sum."""
    names = [parameter.arg for parameter in function.args.args if parameter.arg != "self"]
    source = code.source_of(function)
    return bool(names) and bool(re.search(rf"\b{names[0]}\b", source)) and ".sum(" in source


def _ends_in_layer(code, node):
    """Return whether a tensor is the output of a local model whose last operation is a layer."""
    call = code.resolved(node) if name_of(node) else node
    if not isinstance(call, ast.Call) or code.called(call):
        return False
    values = forward_values(code, call.func)
    value = code.resolved(values[0]) if len(values) == 1 else None
    if not isinstance(value, ast.Call) or code.called(value):
        return False
    constructor = construction(code, value.func)
    return code.called(constructor) in ("nn.Conv2d", "nn.Conv3d", "nn.Linear")


@rule("evaluation-iou-union", "wrong", "iou|IoU|IOU|accard|union|dice|Dice")
def sum_as_union(code):
    """`inter / (a.sum() + b.sum())` as an IoU: the intersection is counted twice."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Div) or not _of_iou(node) and not _of_dice(code, node):
            continue
        above_line = _unsmoothed(node.left)
        if not re.search(r"(?i)^inter(section)?\w*$", name_of(above_line) or ""):
            continue
        below = _unsmoothed(node.right)
        below = code.value(below) if isinstance(below, ast.Name) else below
        if _is_total(code, _unsmoothed(below)):
            yield node


def _unsmoothed(node):
    """Return `x` of `x + eps` and `(x + smooth).float()`."""
    for _ in range(4):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            small = const(node.right) is not None or re.search(
                r"(?i)^(self\.)?(eps\w*|smooth\w*)$", name_of(node.right) or ""
            )
            if not small:
                return node
            node = node.left
        elif method(node) in ("float", "item", "double") and receiver(node) is not None:
            node = receiver(node)
    return node


def _of_iou(node):
    """Return whether a quotient is the value of an IoU, by its name or its function's."""
    ancestor = node.parent
    while isinstance(ancestor, ast.Call | ast.Attribute | ast.BinOp):
        ancestor = ancestor.parent
    name = name_of(ancestor.targets[0]) if isinstance(ancestor, ast.Assign) else ""
    function = node.scope.name if isinstance(node.scope, FUNCTIONS) else ""
    named = f"{name} {function}".lower()
    return bool(re.search(r"iou|jaccard", named)) and "dice" not in named


def _of_dice(code, node):
    """Return whether a quotient is a Dice coefficient in a function without a factor 2."""
    name = name_of(node.parent.targets[0]) if isinstance(node.parent, ast.Assign) else ""
    function = code.function_of(node)
    owner = node.owner.name if node.owner is not None else ""
    named = re.search(r"(?i)dice", f"{name} {owner} {getattr(function, 'name', '')}")
    twice = re.search(r"\b2(\.0*)? ?\*|\* ?2\b|\bunion|/ ?2\b|0\.5", code.source_of(function))
    return bool(named) and not twice and function is not code.tree


def _is_total(code, node):
    """Return whether a value is a sum of two sums or of two areas, or of two tensors."""
    if method(node) == "sum" and isinstance(receiver(node), ast.BinOp):
        return isinstance(receiver(node).op, ast.Add)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return False
    return all(_is_sum(code, side) for side in (node.left, node.right))


def _is_sum(code, node):
    value = code.value(node) if isinstance(node, ast.Name) else node
    value = value.value if isinstance(value, Part) else value
    area = re.search(r"(?i)area", name_of(node) or "")
    return bool(area) or method(value) in ("sum", "count_nonzero")
