"""Similarities of a batch with itself."""

import ast
import re

from helpers.review.code import Part
from helpers.review.registry import rule
from helpers.review.syntax import FUNCTIONS, argument, const, method, name_of, receiver

_LEFT_OUT = re.compile(r"(?i)mask|eye\(|diag|inf\b|1e[49]|tri[lu]|scatter|~|exclude|[nN] ?- ?1\b")
_KEPT = re.compile(r"(normalize|to|cuda|float|view|reshape|flatten|contiguous)$")


@rule("losses-contrastive-self", "wrong", "cat(|vstack(|concat(")
def diagonal_kept(code):
    """`cross_entropy(z @ z.T / t, partner)` of `z = cat([a, b])`: each row matches itself best."""
    for node in code.nodes_of(ast.BinOp, ast.Call):
        function, similarity = code.function_of(node), _with_itself(code, node)
        if (
            similarity is None
            or not isinstance(function, FUNCTIONS)
            or not _is_concatenation(code, similarity, 0)
        ):
            continue
        function_source = code.source_of(node.owner or function)
        loss = re.search(
            r"cross_entropy|CrossEntropyLoss|\blog\(|logsumexp|log_softmax", function_source
        )
        if loss and not _LEFT_OUT.search(code.source_of(function)):
            yield node


def _with_itself(code, node):
    """Return `z` of `z @ z.T`, `mm(z, z.t())` and `cosine_similarity(z[:, None], z[None])`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        pair = node.left, node.right
    elif code.called(node) in ("torch.mm", "torch.matmul") and len(node.args) == 2:
        pair = node.args
    elif code.called(node) == "F.cosine_similarity" and len(node.args) > 1:
        first, second = node.args[:2]
        same = _expanded_name(first) is not None and _expanded_name(first) == _expanded_name(second)
        return _base_tensor(first) if same else None
    elif not code.called(node) and method(node) in ("mm", "matmul") and len(node.args) == 1:
        pair = receiver(node), node.args[0]
    else:
        return None
    left, right = pair
    turned = right.value if isinstance(right, ast.Attribute) and right.attr in ("T", "mT") else None
    turned = receiver(right) if method(right) in ("t", "transpose", "permute") else turned
    same = isinstance(left, ast.Name) and turned is not None and name_of(turned) == left.id
    return left if same else None


def _base_tensor(node):
    return node.value if isinstance(node, ast.Subscript) else receiver(node)


def _expanded_name(node):
    """Return the name of `z.unsqueeze(1)` and `z[None]`."""
    if method(node) == "unsqueeze" or isinstance(node, ast.Subscript):
        return name_of(_base_tensor(node))
    return None


def _is_concatenation(code, node, depth):
    """Return whether a tensor is the concatenation of two views of a batch."""
    value = code.value(node) if name_of(node) else node
    if depth > 5 or isinstance(value, Part) or value is None:
        return False
    if method(value) in ("cat", "concat", "vstack") and value.args:
        axis = const(argument(value, "dim", 1))
        parts = value.args[0]
        return axis in (None, 0) and len(getattr(parts, "elts", ())) == 2
    if not isinstance(value, ast.Call) or not _KEPT.match(method(value)):
        return False
    inner = value.args[0] if code.called(value) and value.args else receiver(value)
    return inner is not None and _is_concatenation(code, inner, depth + 1)
