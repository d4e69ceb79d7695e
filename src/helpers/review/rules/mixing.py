"""Mixup: inputs of two samples, labels of two samples."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.rules.formulas import products
from helpers.review.rules.learning import differentiated
from helpers.review.syntax import method, name_of, names_in

_LABEL = re.compile(r"(?i)(^|_)(y|labels?|targets?)(_|$)")


@rule("training-mixup-label", "wrong", "1 - |1-|1.0 - |1. - ")
def one_label(code):
    """`lam * loss(out, y) + (1 - lam) * loss(out, y)`: the other label does not occur."""
    sums = [(node, pair) for node in code.nodes_of(ast.BinOp) if (pair := _mixed_tensors(node))]
    losses = [(node, pair) for node, pair in sums if isinstance(pair[0], ast.Call)]
    for node, (first, second) in losses:
        if (
            len(first.args) == 2
            and ast.unparse(first) == ast.unparse(second)
            and name_of(first.func)
        ):
            yield node
    for node, (first, second) in sums if not losses else ():
        index = _permutation(code, first, second)
        if index is not None and _labels_kept(code, node, index):
            yield node


def _mixed_tensors(node):
    """Return `a` and `b` of `w * a + (1 - w) * b`."""
    sides = products(node)
    if not sides:
        return None
    for a, other in ((sides[0].left, sides[0].right), (sides[0].right, sides[0].left)):
        for b, last in ((sides[1].left, sides[1].right), (sides[1].right, sides[1].left)):
            weights = ast.unparse(a), ast.unparse(b)
            for w, rest in (weights, weights[::-1]):
                if re.fullmatch(rf"\(?1(\.0?)? - {re.escape(w)}\)?", rest):
                    return other, last
    return None


def _permutation(code, first, second):
    """Return the name of the permutation of `x` and `x[index]`."""
    for tensor, part in ((first, second), (second, first)):
        if (
            isinstance(part, ast.Subscript)
            and name_of(tensor)
            and name_of(tensor) == name_of(part.value)
        ):
            index = part.slice.elts[0] if isinstance(part.slice, ast.Tuple) else part.slice
            drawn = code.resolved(index) if isinstance(index, ast.Name) else None
            return index if method(drawn) in ("randperm", "permutation") else None
    return None


def _labels_kept(code, node, index):
    """Return whether the permutation has no other use, and a loss takes labels in the function."""
    function = code.function_of(node)
    if len(list(code.uses(function, index.id))) > 1:
        return False
    if node.parent and any(_LABEL.search(name) for name in names_in(node)):
        return False
    return any(
        len(call.args) == 2
        and isinstance(call.args[1], ast.Name)
        and _LABEL.search(call.args[1].id)
        and differentiated(code, call, 0)
        for call in code.calls_under(function)
        if call.lineno > node.lineno
    )
