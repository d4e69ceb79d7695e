"""Infer which values have no autograd graph, and the elements of a list."""

from __future__ import annotations

import ast
import re
from typing import Any

from helpers.review.code import Code, Part
from helpers.review.kinds import kind, no_graph
from helpers.review.syntax import argument, const, method, place, receiver, text

_DEEPEST = 10
_CUTS = re.compile(
    r"(argmax|argmin|argsort|item|detach|numpy|tolist|round|sign|floor|ceil|eq|ne|gt|lt|ge|le|"
    r"long|int|bool|one_hot|randint|rand|randn|zeros|ones|full|arange|linspace|\w+_like)$"
)
_COPIES = re.compile(
    r"(torch\.(tensor|FloatTensor|LongTensor|Tensor|as_tensor|from_numpy)|"
    r"numpy\.\w+|sklearn\..*)$"
)
_KEEPS = re.compile(
    r"(mean|sum|float|double|to|cuda|cpu|abs|sqrt|pow|exp|log|softmax|log_softmax|sigmoid|relu|"
    r"tanh|stack|cat|clamp|squeeze|unsqueeze|view|reshape|flatten|square|neg|requires_grad_|"
    r"mse_loss|l1_loss|\w*cross_entropy\w*|nll_loss|smooth_l1_loss|Variable|type)$"
)


def graphless(code: Code, node: Any, depth: int = 0) -> bool:
    """Return True if a value certainly has no graph, such as `argmax`, `item()` or `x > 0`."""
    if node is None or depth > _DEEPEST:
        return False
    if isinstance(node, Part):
        return _part(code, node, depth + 1)
    if isinstance(node, ast.Name):
        value = code.value(node)
        if isinstance(value, ast.List):
            return _all(code, elements(code, node), depth)
        return graphless(code, value, depth + 1)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.Attribute):
        return node.attr == "data" or graphless(code, code.value(node), depth + 1)
    if isinstance(node, ast.BinOp):
        return _all(code, (node.left, node.right), depth)
    if isinstance(node, ast.UnaryOp):
        return graphless(code, node.operand, depth + 1)
    if isinstance(node, ast.Subscript):
        return graphless(code, node.value, depth + 1)
    if isinstance(node, ast.List | ast.Tuple):
        return _all(code, node.elts, depth)
    return isinstance(node, ast.Call) and _call(code, node, depth)


def _all(code: Code, nodes: Any, depth: int) -> bool:
    return bool(nodes) and all(graphless(code, one, depth + 1) for one in nodes)


def _part(code: Code, part: Part, depth: int) -> bool:
    """Return True for indices from `max` and `topk`, and for variables of a loop over data."""
    if part.index is None or isinstance(part.value, ast.Name):
        given = part if part.index is None else code.value(part.value)
        over = given.value if isinstance(given, Part) and given.index is None else None
        return over is not None and kind(code, over) in ("loader", "dataset", None) and named(over)
    return method(part.value) in ("max", "min", "topk", "sort") and part.index == 1


def named(over: ast.AST) -> bool:
    """Return True if a loop iterates over an object with a name that suggests data."""
    return bool(re.search(r"(?i)loader|_dl\b|data|batch", text(over) or ""))


def _call(code: Code, node: ast.Call, depth: int) -> bool:
    name, what = code.called(node), method(node)
    if no_graph(code, node) or _COPIES.match(name):
        return const(argument(node, "requires_grad")) is not True
    if _CUTS.match(what) and (name or receiver(node) is not None):
        return const(argument(node, "requires_grad")) is not True
    loss = (kind(code, node.func) or "").startswith("lossfn:") if not name else False
    if not loss and not _KEEPS.match(what):
        return False
    if loss or name:
        given = [one for one in node.args if kind(code, one) != "number"]
        return _all(code, given[:2], depth)
    return receiver(node) is not None and graphless(code, receiver(node), depth + 1)


def elements(code: Code, node: ast.AST) -> list[ast.AST]:
    """Return the elements of a list: of a literal, and of `append` calls before `node`."""
    name, value = text(node), code.value(node) if text(node) else node
    nodes = [*value.elts] if isinstance(value, ast.List) else []
    for call in code.methods(code.function(node), "append") if name else ():
        if text(receiver(call)) == name and len(call.args) == 1 and place(call) < place(node):
            nodes.append(call.args[0])
    return nodes
