"""Losses of two tensors that do not belong together."""

import ast
import re

from helpers.review.axes import axes, column
from helpers.review.kinds import is_model, kind
from helpers.review.registry import rule
from helpers.review.rules.learning import differentiated
from helpers.review.syntax import argument, method, receiver, text
from helpers.review.tracing import is_loss_call

_ELEMENTWISE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div")
_MODULES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss")


def _compared(code, names, modules):
    """Yield the calls of these losses with their two tensors."""
    for call in code.calls:
        name = code.called(call)
        known = name.removeprefix("F.") in names if name.startswith("F.") else False
        module = (kind(code, call.func) or "").removeprefix("lossfn:") if not name else ""
        if known or module in modules:
            pair = argument(call, "input", 0), argument(call, "target", 1)
            if None not in pair:
                yield call, *pair


@rule("losses-same-input", "wrong")
def with_itself(code):
    """`kl_div(log_softmax(teacher), softmax(teacher))`: both tensors come from one."""
    for call, given, target in _compared(code, _ELEMENTWISE, _MODULES):
        one, other = _root(code, given), _root(code, target)
        if one is not None and one == other and not isinstance(call.parent, ast.Lambda):
            yield call


_PLAIN = {"softmax", "log_softmax", "sigmoid", "log", "exp", "float", "to", "squeeze", "view"}


def _root(code, node, depth=0):
    """Return the name that a tensor is computed from alone, with the place of its value.

    A product with a mask keeps the mask in the text, so that two masks of one tensor differ.
    """
    if depth > 6:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
        inner = _root(code, node.left, depth + 1)
        return inner and (*inner, type(node.op).__name__ + ast.unparse(node.right))
    if isinstance(node, ast.Call):
        name = code.called(node)
        if name.startswith(("F.", "torch.")) and node.args and method(node) in _PLAIN:
            return _root(code, node.args[0], depth + 1)
        if not name and method(node) in _PLAIN and text(receiver(node)) != "self":
            return _root(code, receiver(node), depth + 1) if receiver(node) is not None else None
        return None
    if not isinstance(node, ast.Name):
        return None
    value = code.value(node)
    if isinstance(value, ast.Call | ast.BinOp):
        inner = _root(code, value, depth + 1)
        if inner is not None and inner[0] != node.id:
            return inner
    return node.id, id(value)


@rule("language-garbage", "wrong")
def not_shifted(code):
    """`cross_entropy(model(ids).flatten(0, 1), ids.flatten())` with a causal mask: it copies."""
    if not re.search(r"is_causal|torch\.(triu|tril)\(|square_subsequent_mask", code.source):
        return
    for call in code.calls:
        known = code.called(call) == "F.cross_entropy"
        if not known and kind(code, call.func) != "lossfn:CrossEntropyLoss" or len(call.args) < 2:
            continue
        given, target = _moved(code, call.args[0]), _moved(None, call.args[1])
        if isinstance(given, ast.Call) and is_model(code, given.func) and given.args:
            source = _moved(None, given.args[0])
            same = isinstance(source, ast.Name) and text(source) == text(target)
            plain = same and len(given.args) == 1 and not given.keywords
            if plain and (isinstance(call.parent, ast.Return) or differentiated(code, call, 0)):
                yield call


def _moved(code, node):
    """What `x.view(-1)`, `x.transpose(1, 2)` and the like read; with `code` also through names."""
    for _ in range(6):
        if method(node) in ("view", "reshape", "flatten", "transpose", "permute", "contiguous"):
            node = receiver(node)
        elif (
            code and isinstance(node, ast.Name) and isinstance(value := code.value(node), ast.Call)
        ):
            shaped = method(value) in ("view", "reshape", "flatten", "transpose", "permute")
            if not shaped and not is_model(code, value.func):
                break
            node = value
        else:
            break
    return node


@rule("training-broadcast", "wrong")
def column_and_row(code):
    """`mse_loss(model(x), y)` of (n, 1) and (n,): broadcast to (n, n)."""
    names, modules = _ELEMENTWISE[:4], _MODULES[:4]
    for call, given, target in _compared(code, names, modules):
        if (column(code, given) and axes(code, target) == 1) or (
            column(code, target) and axes(code, given) == 1
        ):
            yield call
    yield from _squeezed_in_loss(code)
    for node in code.of(ast.BinOp):  # `((model(x) - y) ** 2).mean()`
        if isinstance(node.op, ast.Sub) and _is_error(node):
            sides = (node.left, node.right), (node.right, node.left)
            if any(column(code, one) and axes(code, other) == 1 for one, other in sides):
                yield node


def _is_error(node):
    """The difference is squared, or its absolute value is taken."""
    up = node.parent
    squared = isinstance(up, ast.BinOp) and isinstance(up.op, ast.Pow)
    named = up.attr if isinstance(up, ast.Attribute) else method(up)
    return squared or named in ("abs", "pow", "square")


def _squeezed_in_loss(code):
    """`mse_loss(value.squeeze(-1), returns)`, and `returns - value` elsewhere in the function."""
    for call in code.calls:
        if not is_loss_call(code, call) or len(call.args) < 2:
            continue
        for given, other in (call.args[:2], call.args[1::-1]):
            column, row = text(receiver(given) if method(given) == "squeeze" else None), text(other)
            last_axis = column and row and code.const(argument(given, "dim", 0)) in (1, -1)
            for node in code.walk(code.function(call)) if last_axis else ():
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                    sides = [_undetached(node.left), _undetached(node.right)]
                    same = sorted(map(text, sides), key=str) == sorted((column, row))
                    if same and all(_same_value(code, one, call) for one in sides):
                        yield node


def _undetached(node):
    return receiver(node) if method(node) == "detach" else node


def _same_value(code, node, call):
    """A name has the same value here as in the arguments of the loss."""
    return any(
        isinstance(one, ast.Name)
        and text(one) == text(node)
        and code.value(one) is code.value(node)
        for one in ast.walk(call)
    )
