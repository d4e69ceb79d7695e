"""Gradients that are read from a tensor that is not a leaf."""

import ast

from helpers.review.kinds import no_graph
from helpers.review.registry import rule
from helpers.review.syntax import argument, const, method, name_of, place, receiver

_VIEWS = {
    *("view", "reshape", "view_as", "reshape_as", "unsqueeze", "squeeze", "flatten", "t"),
    *("transpose", "permute", "expand", "repeat", "clone", "contiguous", "double", "half"),
}
_MOVES = {"to", "cuda"}


@rule("backward-none-leaf", "wrong", "requires_grad|Parameter")
def gradient_of_result(code):
    """`x = torch.randn(3, requires_grad=True).cuda()`, and then `x.grad`: it is None."""
    for node in code.nodes_of(ast.Attribute):
        tensor = node.value if node.attr == "grad" else None
        if not isinstance(tensor, ast.Name) or _keeps_gradient(code, node.scope, tensor.id):
            continue
        value = code.value(tensor)
        if isinstance(value, ast.AST) and not no_graph(code, value) and _is_result(code, value):
            yield value


def _keeps_gradient(code, scope, name):
    """Return whether `retain_grad()` is called on the name, or a `.grad` is assigned to it."""
    retained = code.methods(scope, "retain_grad")
    if any(name_of(receiver(call)) == name for call in retained):
        return True
    return f"{name}.grad" in scope.assigned


def _is_result(code, value):
    """Return True for the result of an operation on a leaf that requires a gradient."""
    if isinstance(value, ast.BinOp):
        return any(_is_leaf(code, side) for side in (value.left, value.right))
    method_name = method(value)
    moved = method_name in _MOVES and not _may_stay(code, value)
    if not moved and method_name not in _VIEWS or receiver(value) is None:
        return False
    return _is_leaf(code, receiver(value)) or _is_result(code, receiver(value))


def _may_stay(code, call):
    """Return whether `to` may return the tensor itself, because its target may be the CPU."""
    if method(call) == "cuda":
        return False
    device = argument(call, "device", 0)
    return not _is_cuda(code, device)


def _is_cuda(code, node):
    """Return True for `torch.device("cuda")`, also as one of two devices."""
    value = code.resolved(node) if isinstance(node, ast.AST) else None
    if not isinstance(value, ast.AST):
        return False
    words = [constant.value for constant in ast.walk(value) if isinstance(constant, ast.Constant)]
    return any(isinstance(word, str) and word.startswith("cuda") for word in words)


def _is_leaf(code, node):
    """Return whether an expression is a leaf on the CPU that requires a gradient."""
    if isinstance(node, ast.Name):
        value = code.value(node)
        if not isinstance(value, ast.Call):
            return False
        return _creates(code, value) and (_requires(code, value) or _flagged(code, node, value))
    return isinstance(node, ast.Call) and _creates(code, node) and _requires(code, node)


def _creates(code, call):
    """Return True for `torch.randn(…)`, `nn.Parameter(…)`, also with `.requires_grad_()`."""
    if method(call) == "requires_grad_" and isinstance(receiver(call), ast.Call):
        return _creates(code, receiver(call))
    name = code.called(call)
    device = argument(call, "device")
    is_creation = name.startswith("torch.") or name in ("nn.Parameter", "torch.autograd.Variable")
    return is_creation and (device is None or code.const(device) == "cpu")


def _requires(code, call):
    """Return whether the constructor has `requires_grad=True`."""
    if code.called(call) == "nn.Parameter":
        return argument(call, "requires_grad") is None
    if method(call) == "requires_grad_":
        return not call.args
    return code.const(argument(call, "requires_grad")) is True


def _flagged(code, node, value):
    """Return whether `x.requires_grad = True` or `x.requires_grad_()` is above the node."""
    start, end = place(value), place(node)
    flags = node.scope.assigned.get(f"{node.id}.requires_grad", ())
    if any(
        start < assignment.end < end and const(assignment.value) is True for assignment in flags
    ):
        return True
    calls = code.methods(node.scope, "requires_grad_")
    calls = [call for call in calls if name_of(receiver(call)) == node.id and not call.args]
    return any(start < place(call) < end for call in calls)
