"""Losses of two tensors that do not belong together."""

import ast
import re

from helpers.review.axes import axes, column
from helpers.review.code import Part, has_parameter
from helpers.review.kinds import is_model, kind
from helpers.review.registry import rule
from helpers.review.rules.data import datasets
from helpers.review.syntax import (
    ancestors,
    argument,
    const,
    descendants,
    last_name,
    method,
    name_of,
    receiver,
)
from helpers.review.tracing import is_loss_call, output

_ELEMENTWISE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div")
_MODULES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss")


def _loss_pairs(code, names, modules):
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
    for call, prediction, target in _loss_pairs(code, _ELEMENTWISE, _MODULES):
        root, other = _root_name(code, prediction), _root_name(code, target)
        if root is not None and root == other and not isinstance(call.parent, ast.Lambda):
            yield call


_PLAIN = {"softmax", "log_softmax", "sigmoid", "log", "exp", "float", "to", "squeeze", "view"}


def _root_name(code, node, depth=0):
    """Return the name that a tensor is computed from alone, with the place of its value.

    A product with a mask keeps the mask in the text, so that two masks of one tensor differ.
    """
    if depth > 6:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
        inner = _root_name(code, node.left, depth + 1)
        return inner and (*inner, type(node.op).__name__ + ast.unparse(node.right))
    if isinstance(node, ast.Call):
        name = code.called(node)
        if name.startswith(("F.", "torch.")) and node.args and method(node) in _PLAIN:
            return _root_name(code, node.args[0], depth + 1)
        if not name and method(node) in _PLAIN and name_of(receiver(node)) != "self":
            return (
                _root_name(code, receiver(node), depth + 1) if receiver(node) is not None else None
            )
        return None
    if not isinstance(node, ast.Name):
        return None
    value = code.value(node)
    if isinstance(value, ast.Call | ast.BinOp):
        inner = _root_name(code, value, depth + 1)
        if inner is not None and inner[0] != node.id:
            return inner
    return node.id, id(value)


@rule("training-broadcast", "wrong")
def column_and_row(code):
    """`mse_loss(model(x), y)` of (n, 1) and (n,): broadcast to (n, n)."""
    names, modules = _ELEMENTWISE[:4], _MODULES[:4]
    for call, prediction, target in _loss_pairs(code, names, modules):
        if (
            (_is_column(code, prediction) and axes(code, target) == 1)
            or (_is_column(code, target) and axes(code, prediction) == 1)
            or any(
                _gather_index(code, side) and (axes(code, other) == 1 or _of_maximum(code, other))
                for side, other in ((prediction, target), (target, prediction))
            )
        ):
            yield call
    yield from _squeezed_in_loss(code)
    for node in code.nodes_of(ast.BinOp):  # `((model(x) - y) ** 2).mean()`
        if isinstance(node.op, ast.Sub) and _is_error(node):
            sides = (node.left, node.right), (node.right, node.left)
            is_wide = _is_column if _is_reduced(code, node) else column
            if any(is_wide(code, side) and axes(code, other) == 1 for side, other in sides):
                yield node
    yield from _gathered_and_masked(code)
    yield from _axis_left_out(code)


def _is_column(code, node):
    """Return True for an (n, 1) tensor: an output with one column, `torch.rand(n, 1)`."""
    return column(code, node) or _is_filled_column(code, node)


def _is_filled_column(code, node):
    """Return True for `torch.rand(n, 1)` and `torch.zeros((n, 1))` with n > 1."""
    call = code.resolved(node)
    if not re.fullmatch(r"torch\.(randn?|zeros|ones|empty|full)", code.called(call)):
        return False
    sizes = call.args
    if sizes and isinstance(sizes[0], ast.Tuple | ast.List):
        sizes = sizes[0].elts
    elif code.called(call) == "torch.full":
        return False
    return len(sizes) == 2 and code.const(sizes[1]) == 1 and code.const(sizes[0]) != 1


def _is_reduced(code, node):
    """Return whether the mean or the sum of an expression over all axes is taken."""
    for call in ancestors(node, ast.Call):
        if method(call) in ("mean", "sum"):
            operands = call.args[1:] if code.called(call) else call.args
            return not operands and not call.keywords
    return False


def _is_error(node):
    """Return whether the difference is squared, or its absolute value is taken."""
    parent = node.parent
    squared = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Pow)
    named = parent.attr if isinstance(parent, ast.Attribute) else method(parent)
    return squared or named in ("abs", "pow", "square")


_KEPT = ("log", "neg", "exp", "clamp", "float", "detach", "to", "sigmoid")


def _gather_index(code, node):
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
    method_name = method(index)
    sizes = [const(arg) for arg in getattr(index, "args", ())]
    column = method_name == "unsqueeze" and sizes in ([1], [-1])
    column = column or method_name in ("view", "reshape") and sizes == [-1, 1]
    return receiver(index) if column and const(dim) in (1, -1) else None


def _of_maximum(code, node):
    """Return True for `r + gamma * q.max(1)[0] * (1 - done)`, which is (n,)."""
    value = code.resolved(node) if isinstance(node, ast.AST) else node
    if not isinstance(value, ast.AST) or re.search(
        r"keepdim|squeeze|view|reshape", ast.unparse(value)
    ):
        return False
    return any(_is_maximum(code, child) for child in descendants(value))


def _is_maximum(code, node):
    """Return True for `x.max(1)[0]`, `x.max(1).values`, or a name of `best, _ = x.max(1)`."""
    if isinstance(node, ast.Name):
        value = code.value(node)
        maximum = value.value if isinstance(value, Part) and value.index == 0 else None
        maximum = value if isinstance(value, ast.AST) and _is_maximum_of(value) else maximum
    else:
        maximum = node if _is_maximum_of(node) else None
    maximum = maximum.value if _is_maximum_of(maximum) else maximum
    is_max = method(maximum) == "max" and not code.called(maximum) and not maximum.keywords
    return is_max and len(maximum.args) == 1 and const(maximum.args[0]) in (1, -1)


def _is_maximum_of(node):
    first = isinstance(node, ast.Subscript) and const(node.slice) == 0
    return first or isinstance(node, ast.Attribute) and node.attr == "values"


def _gathered_and_masked(code):
    """`torch.gather(p, 1, y.view(-1, 1)).masked_select(mask)`, and the callers index both alike."""
    for call in code.calls_named("masked_select"):
        if receiver(call) is None:
            continue
        index = _gather_index(code, receiver(call))
        mask = call.args[0] if call.args else None
        function = code.function_of(call)
        if not isinstance(index, ast.Name) or not isinstance(mask, ast.Name):
            continue
        if not all(_is_parameter(function, name) for name in (index.id, mask.id)):
            continue
        pairs = [
            *zip(
                *(code.arguments(function, argument_name.id) for argument_name in (index, mask)),
                strict=False,
            )
        ]
        if pairs and all(_have_same_index(pair_side, other) for pair_side, other in pairs):
            yield call


def _is_parameter(function, name):
    return (
        not isinstance(function, ast.Module)
        and has_parameter(function, name)
        and (name not in function.assigned)
    )


def _have_same_index(node, other):
    """Return True for `target[t]` and `mask[t]`, which have the same index."""
    both = isinstance(node, ast.Subscript) and isinstance(other, ast.Subscript)
    return both and ast.dump(node.slice) == ast.dump(other.slice)


def _squeezed_in_loss(code):
    """`mse_loss(value.squeeze(-1), returns)`, and `returns - value` elsewhere in the function."""
    for call in code.calls:
        if len(call.args) < 2 or not is_loss_call(code, call):
            continue
        for arg, other in (call.args[:2], call.args[1::-1]):
            column, row = (
                name_of(receiver(arg) if method(arg) == "squeeze" else None),
                name_of(other),
            )
            last_axis = column and row and _last_squeezed(code, arg)
            for node in code.walk(code.function_of(call)) if last_axis else ():
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                    sides = [_undetached(node.left), _undetached(node.right)]
                    same = sorted(map(name_of, sides), key=str) == sorted((column, row))
                    if same and all(_same_value(code, side, call) for side in sides):
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
        isinstance(child, ast.Name | ast.Subscript)
        and name_of(child) == name_of(node)
        and code.value(child) is code.value(node)
        for child in descendants(call)
    )


def _axis_left_out(code):
    """`if self.horizon == 1: return x, y[i]` in a dataset, and `nn.Linear(d, horizon)`, (n, 1)."""
    names = {target_name for name, _ in datasets(code) for target_name in _target_name(code, name)}
    heads = {
        last_name(argument(other_call, "out_features", 1))
        for other_call in code.calls_to("nn.Linear")
    }
    if not names & heads - {""}:
        return
    for call, prediction, target in _loss_pairs(code, _ELEMENTWISE[:4], _MODULES[:4]):
        model = code.resolved(prediction) if isinstance(prediction, ast.Name) else prediction
        if not isinstance(model, ast.Call) or not is_model(code, model.func):
            continue
        function_source = code.source_of(code.function_of(call))
        reshaped = r"(\.\w+\(\w*\))*(\.(view|reshape|unsqueeze|view_as)\(|\[)|squeeze\("
        if isinstance(target, ast.Name) and not re.search(
            rf"\b{target.id}{reshaped}", function_source
        ):
            yield call


def _target_name(code, name):
    """Yield `horizon` of `if self.horizon == 1: return x, y[i]`, with a slice in the other case."""
    get = code.functions.get((name, "__getitem__"))
    for node in descendants(get) if get is not None else ():
        test = node.test if isinstance(node, ast.If) else None
        equal = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
        if (
            not equal
            or const(test.comparators[0]) != 1
            or not isinstance(node.body[-1], ast.Return)
        ):
            continue
        value = node.body[-1].value
        item = value.elts[-1] if isinstance(value, ast.Tuple) else None
        if isinstance(item, ast.Subscript) and not isinstance(item.slice, ast.Slice | ast.Tuple):
            yield last_name(test.left)
