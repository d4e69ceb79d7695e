"""Similarities of a batch with itself."""

import ast
import re

from helpers.review.code import Part
from helpers.review.registry import rule
from helpers.review.syntax import FUNCTIONS, argument, const, method, receiver, text

_LEFT_OUT = re.compile(r"(?i)mask|eye\(|diag|inf\b|1e[49]|tri[lu]|scatter|~|exclude|[nN] ?- ?1\b")
_KEPT = re.compile(r"(normalize|to|cuda|float|view|reshape|flatten|contiguous)$")


@rule("losses-contrastive-self", "wrong", "cat(|vstack(|concat(")
def diagonal_kept(code):
    """`cross_entropy(z @ z.T / t, partner)` of `z = cat([a, b])`: each row matches itself best."""
    for node in code.of(ast.BinOp, ast.Call):
        function, given = code.function(node), _with_itself(code, node)
        if given is None or not isinstance(function, FUNCTIONS) or not _joined(code, given, 0):
            continue
        around = code.part(node.owner or function)
        loss = re.search(r"cross_entropy|CrossEntropyLoss|\blog\(|logsumexp|log_softmax", around)
        if loss and not _LEFT_OUT.search(code.part(function)):
            yield node


def _with_itself(code, node):
    """Return `z` of `z @ z.T`, `mm(z, z.t())` and `cosine_similarity(z[:, None], z[None])`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        pair = node.left, node.right
    elif code.called(node) in ("torch.mm", "torch.matmul") and len(node.args) == 2:
        pair = node.args
    elif code.called(node) == "F.cosine_similarity" and len(node.args) > 1:
        first, second = node.args[:2]
        same = _expanded(first) is not None and _expanded(first) == _expanded(second)
        return _base(first) if same else None
    elif not code.called(node) and method(node) in ("mm", "matmul") and len(node.args) == 1:
        pair = receiver(node), node.args[0]
    else:
        return None
    left, right = pair
    turned = right.value if isinstance(right, ast.Attribute) and right.attr in ("T", "mT") else None
    turned = receiver(right) if method(right) in ("t", "transpose", "permute") else turned
    same = isinstance(left, ast.Name) and turned is not None and text(turned) == left.id
    return left if same else None


def _base(node):
    return node.value if isinstance(node, ast.Subscript) else receiver(node)


def _expanded(node):
    """Return the name of `z.unsqueeze(1)` and `z[None]`."""
    if method(node) == "unsqueeze" or isinstance(node, ast.Subscript):
        return text(_base(node))
    return None


def _joined(code, node, depth):
    """Return whether a tensor is the concatenation of two views of a batch."""
    value = code.value(node) if text(node) else node
    if depth > 5 or isinstance(value, Part) or value is None:
        return False
    if method(value) in ("cat", "concat", "vstack") and value.args:
        axis = const(argument(value, "dim", 1))
        parts = value.args[0]
        return axis in (None, 0) and len(getattr(parts, "elts", ())) == 2
    if not isinstance(value, ast.Call) or not _KEPT.match(method(value)):
        return False
    inner = value.args[0] if code.called(value) and value.args else receiver(value)
    return inner is not None and _joined(code, inner, depth + 1)
