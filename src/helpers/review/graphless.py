"""Infer which values have no autograd graph, and the elements of a list."""

from __future__ import annotations

import ast
import re
from typing import Any

from helpers.review.code import Code, Part
from helpers.review.kinds import kind, no_graph
from helpers.review.syntax import argument, const, method, name_of, place, receiver

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
        return _part_is_graphless(code, node)
    if isinstance(node, ast.Name):
        value = code.value(node)
        if isinstance(value, ast.List):
            return _all_graphless(code, elements(code, node), depth)
        return graphless(code, value, depth + 1)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.Attribute):
        return node.attr == "data" or graphless(code, code.value(node), depth + 1)
    if isinstance(node, ast.BinOp):
        return _all_graphless(code, (node.left, node.right), depth)
    if isinstance(node, ast.UnaryOp):
        return graphless(code, node.operand, depth + 1)
    if isinstance(node, ast.Subscript):
        return graphless(code, node.value, depth + 1)
    if isinstance(node, ast.List | ast.Tuple):
        return _all_graphless(code, node.elts, depth)
    return isinstance(node, ast.Call) and _call_is_graphless(code, node, depth)


def _all_graphless(code: Code, nodes: Any, depth: int) -> bool:
    return bool(nodes) and all(graphless(code, node, depth + 1) for node in nodes)


def _part_is_graphless(code: Code, part: Part) -> bool:
    """Return True for indices from `max` and `topk`, and for variables of a loop over data."""
    if part.index is None or isinstance(part.value, ast.Name):
        loop_item = part if part.index is None else code.value(part.value)
        iterable = (
            loop_item.value if isinstance(loop_item, Part) and loop_item.index is None else None
        )
        return (
            iterable is not None
            and kind(code, iterable) in ("loader", "dataset", None)
            and is_named_like_data(iterable)
        )
    return method(part.value) in ("max", "min", "topk", "sort") and part.index == 1


def is_named_like_data(iterable: ast.AST) -> bool:
    """Return True if a loop iterates over an object with a name that suggests data."""
    return bool(re.search(r"(?i)loader|_dl\b|data|batch", name_of(iterable) or ""))


def _call_is_graphless(code: Code, node: ast.Call, depth: int) -> bool:
    name, method_name = code.called(node), method(node)
    if no_graph(code, node) or _COPIES.match(name):
        return const(argument(node, "requires_grad")) is not True
    if _CUTS.match(method_name) and (name or receiver(node) is not None):
        return const(argument(node, "requires_grad")) is not True
    loss = (kind(code, node.func) or "").startswith("lossfn:") if not name else False
    if not loss and not _KEEPS.match(method_name):
        return False
    if loss or name:
        args = [arg for arg in node.args if kind(code, arg) != "number"]
        return _all_graphless(code, args[:2], depth)
    return receiver(node) is not None and graphless(code, receiver(node), depth + 1)


def elements(code: Code, node: ast.AST) -> list[ast.AST]:
    """Return the elements of a list: of a literal, and of `append` calls before `node`."""
    name, value = name_of(node), code.value(node) if name_of(node) else node
    nodes = [*value.elts] if isinstance(value, ast.List) else []
    for call in code.methods(code.function_of(node), "append") if name else ():
        if name_of(receiver(call)) == name and len(call.args) == 1 and place(call) < place(node):
            nodes.append(call.args[0])
    return nodes
