"""The clipped surrogate of PPO: minimum or maximum, and its sign."""

import ast
import re

from helpers.review.registry import rule
from helpers.review.rules.learning import differentiated, negated
from helpers.review.rules.signs import terms
from helpers.review.syntax import method

_EXTREMES = {"torch.min": 1, "torch.minimum": 1, "torch.max": -1, "torch.maximum": -1}


@rule("rl-surrogate", "wrong", "clamp|clip")
def surrogate_of_other_sign(code):
    """`-torch.max(ratio * a, clipped * a)`: the loss is the negative minimum."""
    for call in code.calls:
        lower = _EXTREMES.get(code.called(call))
        if lower is None or len(call.args) != 2:
            continue
        signs = [_sign(code, one) for one in call.args]
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
    if not isinstance(product.op, ast.Mult) or not _is_surrogate(code, product):
        return None
    for side in (product.left, product.right):
        side = code.resolved(side) if isinstance(side, ast.Name) else side
        if isinstance(side, ast.UnaryOp) and isinstance(side.op, ast.USub):
            sign = -sign
    return -sign if negative else sign


def _is_surrogate(code, product):
    """Return whether one factor is a ratio of probabilities and the other an advantage."""
    sides = [ast.unparse(product.left), ast.unparse(product.right)]
    ratio = any(re.search(r"(?i)ratio|\brho", one) for one in sides)
    return ratio and any(re.search(r"(?i)adv|\bgae|delta", one) for one in sides)


def _descended(code, call):
    """Return whether the value is a term of a sum on which `backward()` is called."""
    node = call
    while isinstance(node.parent, ast.Attribute | ast.Call | ast.UnaryOp):
        node = node.parent
        if method(node) == "backward":
            return True
    return differentiated(code, node, 0)
