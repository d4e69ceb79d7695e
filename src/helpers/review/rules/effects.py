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
    above,
    argument,
    const,
    method,
    place,
    receiver,
    text,
)
from helpers.review.tracing import is_loss_call


@rule("losses-call-options", "raises", "reduction=|size_average=|reduce=|weight=|ignore_index=")
def options_in_call(code):
    """`criterion(output, target, reduction="sum")` of a loss module: its constructor has it."""
    options = {"reduction", "size_average", "reduce", "weight", "pos_weight", "ignore_index"}
    for call in code.calls:
        if code.called(call) or not any(one.arg in options for one in call.keywords):
            continue
        if (kind(code, call.func) or "").startswith("lossfn:"):
            yield call


@rule("losses-scalar-index", "raises", "[0]")
def scalar_indexed(code):
    """`loss.data[0]` and `loss[0]`: a loss has no axes, so it cannot be indexed."""
    for node in code.of(ast.Subscript):
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
    built = constructed(code, value.func, None)
    given = argument(value if built is None else built, "reduction")
    return given is None or const(given) in ("mean", "sum")


@rule("repro-seed-assigned", "wrong", "seed")
def seed_assigned(code):
    """`random.seed = 42` and `torch.manual_seed = 0`: replaces the function."""
    seeds = re.compile(r"(random\.seed|numpy\.random\.seed|torch\.(cuda\.)?manual_seed(_all)?)$")
    for node in code.of(ast.Assign):
        for target in node.targets:
            name = code.dotted(target) if isinstance(target, ast.Attribute) else None
            if name and seeds.match(name) and not _replaces(code, node.value, target):
                yield node


def _replaces(code, value, target):
    """Return whether a value is a wrapper of the function, or a name that refers to it."""
    name = ast.unparse(target)
    found = code.resolved(value)
    return name in ast.unparse(value) or isinstance(found, ast.AST) and name in ast.unparse(found)


@rule("tensors-changed-late", "wrong", "] =")
def changed_after_use(code):
    """`target = r + gamma * q[i]`, and then `q[done] = 0`: nothing reads `q` after the change."""
    for node in code.of(ast.Assign):
        target = node.targets[0]
        name = target.value if isinstance(target, ast.Subscript) else None
        function = code.function(node)
        if not isinstance(name, ast.Name) or not isinstance(function, FUNCTIONS):
            continue
        value = code.value(name)
        if isinstance(value, Part) or not _is_new(code, value) or value.scope is not node.scope:
            continue
        reads = [one for one in code.uses(function, name.id) if one is not name]
        reads = [one for one in reads if not _is_target(one)]
        before = [one for one in reads if place(value) < place(one) < place(node)]
        if before and not any(place(one) > place(node) for one in reads):
            if not any(above(node, *LOOPS)) and not _aliased(code, function, name.id):
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
    for one in code.uses(function, name):
        up = one.parent
        if isinstance(up, ast.Assign | ast.Tuple | ast.List | ast.Dict | ast.Return | ast.Yield):
            return True
        if isinstance(up, ast.Call) and method(up) in kept:
            return True
        if isinstance(up, ast.Attribute) and up.attr in ("data", "T", "detach", "view", "numpy"):
            return True
    return False


@rule("evaluation-batch-of-set", "wrong", "shape[0]|size(0)|len(")
def batch_of_whole_set(code):
    """`correct / x.shape[0]` below the loop over batches, where `correct` is of the last batch."""
    for node in code.of(ast.BinOp):
        whole = _rows(node.right) if isinstance(node.op, ast.Div) else None
        name = node.left if isinstance(node.left, ast.Name) else None
        value = code.value(name) if name is not None and whole else None
        if not isinstance(value, ast.AST) or not _counts_right(value):
            continue
        loop = _finished_loop(code, node, value)
        if loop is None:
            continue
        inner = {one.id for one in ast.walk(loop) if isinstance(one, ast.Name) and _stored(one)}
        output = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} & inner
        if output and whole not in inner:
            yield node


def _stored(name):
    return isinstance(name.ctx, ast.Store)


def _rows(node):
    """Return `x` of `x.shape[0]`, `x.size(0)` and `len(x)`."""
    if isinstance(node, ast.Subscript) and const(node.slice) == 0:
        shape = node.value
        return text(shape.value) if getattr(shape, "attr", "") == "shape" else None
    if method(node) == "size" and node.args and const(node.args[0]) == 0:
        return text(receiver(node))
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
