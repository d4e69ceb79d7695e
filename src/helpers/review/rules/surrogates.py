"""The clipped surrogate of PPO: its ratio, minimum or maximum, and its sign."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.rules.learning import differentiated, negated
from helpers.review.rules.signs import terms
from helpers.review.syntax import LOOPS, ancestors, method, name_of, receiver

_EXTREMES = {"torch.min": 1, "torch.minimum": 1, "torch.max": -1, "torch.maximum": -1}


@rule("rl-surrogate", "wrong", "clamp|clip")
def surrogate_of_other_sign(code):
    """`-torch.max(ratio * a, clipped * a)`: the loss is the negative minimum."""
    for call in code.calls:
        lower = _EXTREMES.get(code.called(call))
        if lower is None or len(call.args) != 2:
            continue
        signs = [_sign(code, arg) for arg in call.args]
        if None in signs or signs[0] != signs[1]:
            continue
        if signs[0] != lower or _descended(code, call) and negated(code, call) != (lower > 0):
            yield call


def _sign(code, node):
    """Return the sign of `ratio * advantage`, None for other values."""
    value = code.resolved(node) if isinstance(node, ast.Name) else node
    if not isinstance(value, ast.BinOp | ast.UnaryOp):
        return None
    negative = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
    inner = value.operand if isinstance(value, ast.UnaryOp) else value
    parts = [*terms(inner)]
    if len(parts) != 1 or not isinstance(parts[0][0], ast.BinOp):
        return None
    product, sign = parts[0]
    if not isinstance(product.op, ast.Mult) or not _is_surrogate(product):
        return None
    for side in (product.left, product.right):
        side = code.resolved(side) if isinstance(side, ast.Name) else side
        if isinstance(side, ast.UnaryOp) and isinstance(side.op, ast.USub):
            sign = -sign
    return -sign if negative else sign


def _is_surrogate(product):
    """Return whether one factor is a ratio of probabilities and the other an advantage."""
    sides = [ast.unparse(product.left), ast.unparse(product.right)]
    ratio = any(re.search(r"(?i)ratio|\brho", side) for side in sides)
    return ratio and any(re.search(r"(?i)adv|\bgae|delta", side) for side in sides)


def _descended(code, call):
    """Return whether the value is a term of a sum on which `backward()` is called."""
    node = call
    while isinstance(node.parent, ast.Attribute | ast.Call | ast.UnaryOp):
        node = node.parent
        if method(node) == "backward":
            return True
    return differentiated(code, node, 0)


@rule("rl-ratio-one", "wrong", "clamp|clip")
def ratio_of_same_policy(code):
    """`old = log_prob.detach()` in the loop over the epochs: the ratio is always 1."""
    for call in code.calls:
        inner = call.args[0] if code.called(call) == "torch.exp" and call.args else receiver(call)
        if method(call) != "exp" or not isinstance(inner, ast.BinOp):
            continue
        loop = next(ancestors(call, *LOOPS), None)
        if loop is None or not isinstance(inner.op, ast.Sub) or not _repeats_body(loop):
            continue
        new, old = (_expanded_source(code, side, loop, 0) for side in (inner.left, inner.right))
        if new and new == old and "log" in f"{new}{ast.unparse(inner)}":
            yield call


def _repeats_body(loop):
    """Return whether a loop repeats its body a number of times."""
    return method(getattr(loop, "iter", None)) == "range"


def _expanded_source(code, node, loop, depth):
    """Return the text of a value, with the names that the loop assigns replaced by their values."""
    if method(node) in ("detach", "squeeze", "clone", "sum") and receiver(node) is not None:
        return _expanded_source(code, receiver(node), loop, depth)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        base = _expanded_source(code, node.func.value, loop, depth)
        return f"{base}.{node.func.attr}({', '.join(map(ast.unparse, node.args))})" if base else ""
    value = code.value(node) if isinstance(node, ast.Name) else None
    if isinstance(value, ast.Call) and depth < 4 and loop in ancestors(value, *LOOPS):
        return _expanded_source(code, value, loop, depth + 1)
    return ast.unparse(node) if isinstance(node, ast.Call) or name_of(node) else ""
