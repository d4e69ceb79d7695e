"""Losses of two tensors that do not belong together."""

import ast
import re

from helpers.review.axes import axes, column
from helpers.review.code import Part, parameter
from helpers.review.kinds import is_model, kind
from helpers.review.registry import rule
from helpers.review.rules.data import datasets
from helpers.review.syntax import argument, const, last, method, receiver, text
from helpers.review.tracing import is_loss_call, output

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
    """`kl_div(log_softmax(teacher), softmax(teacher))`: both arguments come from one tensor."""
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


@rule("training-broadcast", "wrong")
def column_and_row(code):
    """`mse_loss(model(x), y)` of (n, 1) and (n,): broadcast to (n, n)."""
    names, modules = _ELEMENTWISE[:4], _MODULES[:4]
    for call, given, target in _compared(code, names, modules):
        if (
            (column(code, given) and axes(code, target) == 1)
            or (column(code, target) and axes(code, given) == 1)
            or any(
                _gathered(code, one) and (axes(code, other) == 1 or _of_maximum(code, other))
                for one, other in ((given, target), (target, given))
            )
        ):
            yield call
    yield from _squeezed_in_loss(code)
    for node in code.of(ast.BinOp):  # `((model(x) - y) ** 2).mean()`
        if isinstance(node.op, ast.Sub) and _is_error(node):
            sides = (node.left, node.right), (node.right, node.left)
            if any(column(code, one) and axes(code, other) == 1 for one, other in sides):
                yield node
    yield from _gathered_and_masked(code)
    yield from _axis_left_out(code)


def _is_error(node):
    """Return whether the difference is squared, or its absolute value is taken."""
    up = node.parent
    squared = isinstance(up, ast.BinOp) and isinstance(up.op, ast.Pow)
    named = up.attr if isinstance(up, ast.Attribute) else method(up)
    return squared or named in ("abs", "pow", "square")


_KEPT = ("log", "neg", "exp", "clamp", "float", "detach", "to", "sigmoid")


def _gathered(code, node):
    """Return the index of `x.gather(1, y.unsqueeze(1))`, which is (n, 1), or of its log."""
    for _ in range(6):
        if isinstance(node, ast.Name):
            node = code.value(node)
        elif isinstance(node, ast.UnaryOp):
            node = node.operand
        elif method(node) in _KEPT and not (code.called(node) and not node.args):
            node = node.args[0] if code.called(node) else receiver(node)
        else:
            break
    if method(node) != "gather" or not isinstance(node, ast.Call):
        return None
    function = code.called(node) == "torch.gather"
    dim, index = argument(node, "dim", int(function)), argument(node, "index", 1 + function)
    while method(index) in ("long", "to", "cuda") and receiver(index) is not None:
        index = receiver(index)
    what = method(index)
    sizes = [const(one) for one in getattr(index, "args", ())]
    column = what == "unsqueeze" and sizes in ([1], [-1])
    column = column or what in ("view", "reshape") and sizes == [-1, 1]
    return receiver(index) if column and const(dim) in (1, -1) else None


def _of_maximum(code, node):
    """Return True for `r + gamma * q.max(1)[0] * (1 - done)`, which is (n,)."""
    value = code.resolved(node) if isinstance(node, ast.AST) else node
    if not isinstance(value, ast.AST) or re.search(
        r"keepdim|squeeze|view|reshape", ast.unparse(value)
    ):
        return False
    return any(_is_maximum(code, one) for one in ast.walk(value))


def _is_maximum(code, node):
    """Return True for `x.max(1)[0]`, `x.max(1).values`, or a name of `best, _ = x.max(1)`."""
    if isinstance(node, ast.Name):
        found = code.value(node)
        maximum = found.value if isinstance(found, Part) and found.index == 0 else None
        maximum = found if isinstance(found, ast.AST) and _is_maximum_of(found) else maximum
    else:
        maximum = node if _is_maximum_of(node) else None
    maximum = maximum.value if _is_maximum_of(maximum) else maximum
    whole = method(maximum) == "max" and not code.called(maximum) and not maximum.keywords
    return whole and len(maximum.args) == 1 and const(maximum.args[0]) in (1, -1)


def _is_maximum_of(node):
    first = isinstance(node, ast.Subscript) and const(node.slice) == 0
    return first or isinstance(node, ast.Attribute) and node.attr == "values"


def _gathered_and_masked(code):
    """`torch.gather(p, 1, y.view(-1, 1)).masked_select(mask)`, and the callers index both alike."""
    for call in code.calls:
        if method(call) != "masked_select" or receiver(call) is None:
            continue
        index = _gathered(code, receiver(call))
        mask = call.args[0] if call.args else None
        function = code.function(call)
        if not isinstance(index, ast.Name) or not isinstance(mask, ast.Name):
            continue
        if not all(_is_parameter(function, one) for one in (index.id, mask.id)):
            continue
        pairs = [*zip(*(code.arguments(function, one.id) for one in (index, mask)), strict=False)]
        if pairs and all(_alike(one, other) for one, other in pairs):
            yield call


def _is_parameter(function, name):
    return (
        not isinstance(function, ast.Module)
        and parameter(function, name)
        and (name not in function.assigned)
    )


def _alike(one, other):
    """Return True for `target[t]` and `mask[t]`, which have the same index."""
    both = isinstance(one, ast.Subscript) and isinstance(other, ast.Subscript)
    return both and ast.dump(one.slice) == ast.dump(other.slice)


def _squeezed_in_loss(code):
    """`mse_loss(value.squeeze(-1), returns)`, and `returns - value` elsewhere in the function."""
    for call in code.calls:
        if not is_loss_call(code, call) or len(call.args) < 2:
            continue
        for given, other in (call.args[:2], call.args[1::-1]):
            column, row = text(receiver(given) if method(given) == "squeeze" else None), text(other)
            last_axis = column and row and _last_squeezed(code, given)
            for node in code.walk(code.function(call)) if last_axis else ():
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                    sides = [_undetached(node.left), _undetached(node.right)]
                    same = sorted(map(text, sides), key=str) == sorted((column, row))
                    if same and all(_same_value(code, one, call) for one in sides):
                        yield node


def _last_squeezed(code, call):
    """Return True for `value.squeeze(-1)`, or `squeeze()` of an output with one column."""
    dim = argument(call, "dim", 0)
    if dim is not None:
        return code.const(dim) in (1, -1)
    return axes(code, receiver(call)) == 2 or column(code, output(code, code.value(receiver(call))))


def _undetached(node):
    return receiver(node) if method(node) == "detach" else node


def _same_value(code, node, call):
    """Return whether a name has the same value here as in the arguments of the loss."""
    return any(
        isinstance(one, ast.Name | ast.Subscript)
        and text(one) == text(node)
        and code.value(one) is code.value(node)
        for one in ast.walk(call)
    )


def _axis_left_out(code):
    """`if self.horizon == 1: return x, y[i]` in a dataset, and `nn.Linear(d, horizon)`, (n, 1)."""
    names = {one for name, _ in datasets(code) for one in _single(code, name)}
    heads = {
        last(argument(one, "out_features", 1))
        for one in code.calls
        if code.called(one) == "nn.Linear"
    }
    if not names & heads - {""}:
        return
    for call, given, target in _compared(code, _ELEMENTWISE[:4], _MODULES[:4]):
        model = code.resolved(given) if isinstance(given, ast.Name) else given
        if not isinstance(model, ast.Call) or not is_model(code, model.func):
            continue
        around = code.part(code.function(call))
        reshaped = r"(\.\w+\(\w*\))*(\.(view|reshape|unsqueeze|view_as)\(|\[)|squeeze\("
        if isinstance(target, ast.Name) and not re.search(rf"\b{target.id}{reshaped}", around):
            yield call


def _single(code, name):
    """Yield `horizon` of `if self.horizon == 1: return x, y[i]`, with a slice in the other case."""
    get = code.functions.get((name, "__getitem__"))
    for one in ast.walk(get) if get is not None else ():
        test = one.test if isinstance(one, ast.If) else None
        equal = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
        if not equal or const(test.comparators[0]) != 1 or not isinstance(one.body[-1], ast.Return):
            continue
        value = one.body[-1].value
        item = value.elts[-1] if isinstance(value, ast.Tuple) else None
        if isinstance(item, ast.Subscript) and not isinstance(item.slice, ast.Slice | ast.Tuple):
            yield last(test.left)
