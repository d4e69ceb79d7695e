"""Sizes that are passed as dimensions."""

import ast

from helpers.review.registry import rule
from helpers.review.syntax import argument, method, receiver

_REDUCED = {
    *("sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "std", "var", "logsumexp"),
    *("softmax", "log_softmax", "cumsum", "flip", "any", "all"),
}


@rule("tensors-size-as-dim", "raises", "shape|size")
def size_as_dimension(code):
    """`x.sum(dim=x.shape[1:])`: these are sizes, not the indices of dimensions."""
    for call in code.calls:
        name, method_name = code.called(call), method(call)
        if method_name not in _REDUCED or name and not name.startswith(("torch.", "F.")):
            continue
        if receiver(call) is None:
            continue
        dim = argument(call, "dims" if method_name == "flip" else "dim", 1 if name else 0)
        if dim is not None and _is_sizes(dim):
            yield call


def _is_sizes(node):
    """Return True for `x.shape[1:]`, `list(x.size())[1:]` and `x.shape[-1]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
        while method(node) in ("list", "tuple") and len(node.args) == 1:
            node = node.args[0]
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return True
        if method(node) == "size" and receiver(node) is not None:
            return not node.args
    whole = method(node) in ("list", "tuple") and len(node.args) == 1
    return whole and isinstance(node.args[0], ast.Subscript) and _is_sizes(node.args[0])
