"""Lines that do not have the intended effect: options, indices and changes in the wrong place."""

import ast
import re

from helpers.review.code import Part
from helpers.review.constants import constructed
from helpers.review.kinds import is_loader, is_model, iterated, kind
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    method,
    name_of,
    place,
    receiver,
)
from helpers.review.tracing import is_loss_call


@rule("losses-call-options", "raises", "reduction=|size_average=|reduce=|weight=|ignore_index=")
def options_in_call(code):
    """`criterion(output, target, reduction="sum")` of a loss module: its constructor has it."""
    options = {"reduction", "size_average", "reduce", "weight", "pos_weight", "ignore_index"}
    for call in code.calls:
        if code.called(call) or not any(keyword.arg in options for keyword in call.keywords):
            continue
        if (kind(code, call.func) or "").startswith("lossfn:"):
            yield call


@rule("losses-scalar-index", "raises", "[0]")
def scalar_indexed(code):
    """`loss.data[0]` and `loss[0]`: a loss has no axes, so it cannot be indexed."""
    for node in code.nodes_of(ast.Subscript):
        base = node.value
        if const(node.slice) != 0:
            continue
        data = isinstance(base, ast.Attribute) and base.attr == "data"
        loss = base.value if data else base
        if isinstance(loss, ast.Name) and isinstance(node.ctx, ast.Load):
            if data and loss.id in loss.scope.backward or _scalar(code, loss):
                yield node


def _scalar(code, name):
    """Return True for the result of a loss of PyTorch that is a mean or a sum."""
    value = code.value(name)
    if not isinstance(value, ast.Call) or not is_loss_call(code, value):
        return False
    constructor = constructed(code, value.func, None)
    reduction = argument(value if constructor is None else constructor, "reduction")
    return reduction is None or const(reduction) in ("mean", "sum")


@rule("repro-seed-assigned", "wrong", "seed")
def seed_assigned(code):
    """`random.seed = 42` and `torch.manual_seed = 0`: replaces the function."""
    seeds = re.compile(r"(random\.seed|numpy\.random\.seed|torch\.(cuda\.)?manual_seed(_all)?)$")
    for node in code.nodes_of(ast.Assign):
        for target in node.targets:
            name = code.dotted(target) if isinstance(target, ast.Attribute) else None
            if name and seeds.match(name) and not _replaces(code, node.value, target):
                yield node


def _replaces(code, value, target):
    """Return whether a value is a wrapper of the function, or a name that refers to it."""
    name = ast.unparse(target)
    expression = code.resolved(value)
    return (
        name in ast.unparse(value)
        or isinstance(expression, ast.AST)
        and name in ast.unparse(expression)
    )


@rule("tensors-changed-late", "wrong", "] =")
def changed_after_use(code):
    """`target = r + gamma * q[i]`, and then `q[done] = 0`: nothing reads `q` after the change."""
    for node in code.nodes_of(ast.Assign):
        target = node.targets[0]
        name = target.value if isinstance(target, ast.Subscript) else None
        function = code.function_of(node)
        if not isinstance(name, ast.Name) or not isinstance(function, FUNCTIONS):
            continue
        value = code.value(name)
        if isinstance(value, Part) or not _is_new(code, value) or value.scope is not node.scope:
            continue
        reads = [use for use in code.uses(function, name.id) if use is not name]
        reads = [read for read in reads if not _is_target(read)]
        before = [read for read in reads if place(value) < place(read) < place(node)]
        if before and not any(place(read) > place(node) for read in reads):
            if not any(ancestors(node, *LOOPS)) and not _aliased(code, function, name.id):
                yield node


def _is_target(name):
    return isinstance(name.parent, ast.Subscript) and isinstance(name.parent.ctx, ast.Store)


def _is_new(code, value):
    """Return True for the output of a model or of a layer, a tensor that has no other name."""
    if not isinstance(value, ast.Call) or code.targets(value):
        return False
    return is_model(code, value.func) or re.match(r"F\.\w+$", code.called(value)) is not None


def _aliased(code, function, name):
    """Return True if another name, a list or a call may refer to the tensor itself."""
    kept = {"append", "extend", "add", "put", "push", "copy_"}
    for use in code.uses(function, name):
        parent = use.parent
        if isinstance(
            parent, ast.Assign | ast.Tuple | ast.List | ast.Dict | ast.Return | ast.Yield
        ):
            return True
        if isinstance(parent, ast.Call) and method(parent) in kept:
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in (
            "data",
            "T",
            "detach",
            "view",
            "numpy",
        ):
            return True
    return False


@rule("evaluation-batch-of-set", "wrong", "shape[0]|size(0)|len(")
def batch_of_whole_set(code):
    """`correct / x.shape[0]` below the loop over batches, where `correct` is of the last batch."""
    for node in code.nodes_of(ast.BinOp):
        rows = _rows(node.right) if isinstance(node.op, ast.Div) else None
        name = node.left if isinstance(node.left, ast.Name) else None
        value = code.value(name) if name is not None and rows else None
        if not isinstance(value, ast.AST) or not _counts_right(value):
            continue
        loop = _finished_loop(code, node, value)
        if loop is None:
            continue
        inner = {
            child.id
            for child in descendants(loop)
            if isinstance(child, ast.Name) and _is_stored(child)
        }
        output = {child.id for child in descendants(value) if isinstance(child, ast.Name)} & inner
        if output and rows not in inner:
            yield node


def _is_stored(name):
    return isinstance(name.ctx, ast.Store)


def _rows(node):
    """Return `x` of `x.shape[0]`, `x.size(0)` and `len(x)`."""
    if isinstance(node, ast.Subscript) and const(node.slice) == 0:
        shape = node.value
        return name_of(shape.value) if getattr(shape, "attr", "") == "shape" else None
    if method(node) == "size" and node.args and const(node.args[0]) == 0:
        return name_of(receiver(node))
    if method(node) == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
        return node.args[0].id
    return None


def _counts_right(value):
    written = ast.unparse(value)
    return bool(re.search(r"==|\.eq\(", written)) and "sum(" in written


def _finished_loop(code, node, value):
    """Return the loop over the batches of a loader that has ended before both nodes."""
    for loop in reversed(code.loops):
        ended = loop.end_lineno < value.lineno and loop.scope is node.scope
        if ended and isinstance(loop, ast.For):
            return loop if is_loader(code, iterated(loop.iter)) else None
    return None
