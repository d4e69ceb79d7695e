"""Counts, sums and lengths of one loader that are used for another."""

import ast
import re

from helpers.review.kinds import batch_loop, iterated, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    const,
    descendants,
    is_inside,
    last_name,
    method,
    name_of,
    names_in,
    place,
    receiver,
)


def _sums(code, loop):
    """Return the names that `+=` adds to in a loop, with the statements."""
    added = [n for n in code.walk(loop) if isinstance(n, ast.AugAssign)]
    return {name_of(n.target): n for n in added if isinstance(n.op, ast.Add) and name_of(n.target)}


@rule("evaluation-other-length", "wrong")
def length_of_other_loader(code):
    """`val_loss / len(train_loader)` for a sum over `val_loader`."""
    for node in code.nodes_of(ast.BinOp, ast.AugAssign):
        binary = isinstance(node, ast.BinOp)
        divisor = node.right if binary else node.value
        length = (
            isinstance(divisor, ast.Call)
            and name_of(divisor.func) == "len"
            and len(divisor.args) == 1
        )
        name = name_of(node.left if binary else node.target)
        if not length or not name or not isinstance(node.op, ast.Div):
            continue
        loop = _last_sum(code, node, name)
        if loop is not None:
            parts = {_part_of(name_of(arg)) for arg in (iterated(loop.iter), divisor.args[0])}
            if len(parts) == 2 and None not in parts and "train" in parts:
                yield divisor


def _part_of(name):
    """Return `train` or `test` for a loader or dataset of this name; None for others."""
    match = re.search(
        r"(?i)(?:^|[._])(train|valid|val|test|dev|eval)(?:ing|ation)?"
        r"_?(?:data)?_?(?:loader|dl|set)s?(?:\.dataset)?$",
        name or "",
    )
    return None if match is None else "train" if match[1].lower() == "train" else "test"


def _last_sum(code, node, name):
    """Return the last loop above a node that adds to a name, if the name is 0 before it."""
    loops = [
        loop
        for loop in code.nodes_of(ast.For)
        if loop.scope is node.scope and loop.end_lineno < node.lineno and batch_loop(code, loop)
    ]
    loops = [loop for loop in loops if name in _sums(code, loop)]
    values = code.assigned_before(node.scope, name, node)
    if not loops or not values or const(values[-1].value) != 0:
        return None
    return loops[-1] if values[-1].end < place(loops[-1]) else None


@rule("evaluation-other-counters", "wrong")
def counters_of_training(code):
    """`correct / total` of the training loop, after a loop that counts `correct_val`."""
    for loop in code.nodes_of(ast.For):
        if not batch_loop(code, loop) or not no_graph(code, loop):
            continue
        sums = _sums(code, loop)
        unread = [n for n in sums if n.isidentifier() and not code.uses(loop.scope, n)]
        if len(unread) < 2:
            continue
        for node in code.nodes_of(ast.BinOp):
            names = (name_of(node.left), name_of(node.right))
            after = node.scope is loop.scope and isinstance(node.op, ast.Div)
            if not after or not loop.end_lineno < node.lineno < loop.end_lineno + 8:
                continue
            if all(_similar(name, unread) for name in names) and not {*names} & {*sums}:
                yield node


def _similar(name, unread):
    """Return whether a name is an unread counter's name without `val`, such as `correct`."""
    apart = re.compile(r"(?i)_?(val|valid|test|eval)_?")
    return bool(name) and any(
        apart.sub("", other_name) == name != other_name for other_name in unread
    )


@rule("evaluation-unequal-batches", "wrong")
def mean_of_batch_accuracies(code):
    """`meter.update(accuracy)` without the number of samples: the last batch is smaller."""
    if "drop_last=True" in code.source:
        return
    for call in code.calls:
        loop = next(ancestors(call, *LOOPS), None)
        if method(call) != "update" or len(call.args) != 1 or call.keywords or loop is None:
            continue
        if not batch_loop(code, loop) or not no_graph(code, call):
            continue
        operand = call.args[0]
        operand = receiver(operand) if method(operand) == "item" else operand
        value = code.resolved(operand)
        hits = value is not None and isinstance(value, ast.AST) and _mean_of_hits(value)
        if hits and _meter_counts_samples(code, call):
            yield call
    yield from _list_of_means(code)
    yield from _sum_of_means(code)


def _sum_of_means(code):
    """`acc += (pred == y).float().mean()` in a test loop, divided by `len(loader)` below it."""
    for node in code.nodes_of(ast.AugAssign):
        loop, name = next(ancestors(node, *LOOPS), None), name_of(node.target)
        if loop is None or not name or not batch_loop(code, loop) or not no_graph(code, loop):
            continue
        value, iterable = node.value, re.escape(ast.unparse(iterated(loop.iter)))
        inside = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
        divided = inside and re.fullmatch(rf"len\({iterable}\)", ast.unparse(value.right))
        value = value.left if divided else value
        value = receiver(value) if method(value) == "item" else value
        value = code.resolved(value) if isinstance(value, ast.AST) and name_of(value) else value
        divided = divided or re.search(rf"\b{re.escape(name)} */=? *len\(", code.source)
        if divided and isinstance(value, ast.AST) and _mean_of_equal(code, value):
            yield node


def _mean_of_equal(code, node):
    """Return whether a value is the mean of a comparison, even of one with a name."""
    if method(node) != "mean":
        return _mean_of_hits(node)
    operand = node.args[0] if code.called(node) and node.args else receiver(node)
    while (
        method(operand) in ("type", "float", "double", "to", "cpu")
        and receiver(operand) is not None
    ):
        operand = receiver(operand)
    operand = code.resolved(operand) if isinstance(operand, ast.Name) else operand
    equal = isinstance(operand, ast.Compare) and isinstance(operand.ops[0], ast.Eq)
    return equal or method(operand) in ("eq",)


def _list_of_means(code):
    """`accs.append((pred == y).float().mean())` in a test loop, and `np.mean(accs)` below it."""
    for call in code.calls:
        loop = next(ancestors(call, *LOOPS), None)
        name = name_of(receiver(call)) if method(call) == "append" and len(call.args) == 1 else None
        if not name or loop is None or not batch_loop(code, loop) or not no_graph(code, loop):
            continue
        value = code.resolved(call.args[0])
        value = code.resolved(receiver(value)) if method(value) == "item" else value
        if (
            isinstance(value, ast.AST)
            and _mean_of_hits(value)
            and _is_averaged_below(code, loop, name)
        ):
            yield call


def _is_averaged_below(code, loop, name):
    """Return whether `np.mean(accs)`, `sum(accs) / len(accs)` or the like follows a loop."""
    quoted = re.escape(name)
    after = "\n".join(code.source_of(code.function_of(loop)).split("\n")[-60:])
    means = rf"mean\({quoted}\)|\bsum\({quoted}\) */ *len|(tensor|stack)\({quoted}\)\.mean\("
    return re.search(means, after)


def _mean_of_hits(node):
    """Return whether a node is `(pred == y).float().mean()`, even times 100."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        node = node.left if isinstance(node.left, ast.Call) else node.right
    if method(node) == "item":
        node = receiver(node)
    return method(node) == "mean" and any(
        isinstance(child, ast.Compare) for child in descendants(node)
    )


def _meter_counts_samples(code, call):
    """Return whether the meter of this file has `update(self, value, n=1)`."""
    owner = name_of(getattr(code.value(receiver(call)), "func", None))
    update = code.functions.get((owner, "update"))
    signature = update.args if update is not None else None
    return (
        signature is not None
        and len(signature.args) == 3
        and [const(d) for d in signature.defaults] == [1]
    )


@rule("evaluation-batch-of-all", "wrong", ".dataset)")
def batch_of_all(code):
    """`correct / len(loader.dataset)` for the `correct` of one batch, in the loop."""
    for node in code.nodes_of(ast.BinOp):
        divisor = node.right
        by_length = isinstance(node.op, ast.Div) and method(divisor) == "len" and divisor.args
        loader = (
            divisor.args[0].value if by_length and last_name(divisor.args[0]) == "dataset" else None
        )
        loop = next(ancestors(node, *LOOPS), None)
        if (
            loader is None
            or not isinstance(loop, ast.For)
            or name_of(iterated(loop.iter)) != name_of(loader)
        ):
            continue
        names = [child for child in descendants(node.left) if isinstance(child, ast.Name)]
        if len(names) == 1 and _of_one_batch(loop, names[0]) and not _is_added_up(code, loop, node):
            yield node


def _of_one_batch(loop, name):
    """Return True for a count of right predictions that the loop computes and does not sum."""
    values = loop.scope.assigned.get(name.id, ())
    inner = [assignment for assignment in values if is_inside(assignment.statement, loop)]
    if len(inner) != 1 or not isinstance(inner[0].value, ast.AST):
        return False
    written = ast.unparse(inner[0].value)
    counted = re.search(r"==|\.eq\(", written) and "sum(" in written
    return bool(counted) and name.id not in names_in(inner[0].value)


def _is_added_up(code, loop, node):
    """Return whether the quotient is added up over the batches."""
    statement = next(ancestors(node, ast.stmt), None)
    if isinstance(statement, ast.AugAssign):
        return True
    target = name_of(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    sums = " ".join(ast.unparse(assignment.value) for assignment in _sums(code, loop).values())
    kept = any(method(call) == "append" for call in ancestors(node, ast.Call))
    return kept or target is not None and target in sums


_SCORES = re.compile(
    r"(accuracy|f1|precision|recall|balanced_accuracy|jaccard)_score$|confusion_matrix$"
)
_JUDGED = re.compile(r"(?i)pred|label|target|(^|_)ys?(_|$)|out(put)?s?$|class|correct|gt\b|truth")


@rule("evaluation-constant", "wrong")
def metric_of_one_tensor(code):
    """`(predicted == predicted).sum()`, or `correct += len(y)` next to `total += len(y)`."""
    for node in code.nodes_of(ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            counted = _is_reduction(node.parent)
            if counted and _is_same_name(node.left, node.comparators[0]):
                yield node
    for call in code.calls:
        pair = call.args[:2]
        if method(call) in ("eq", "equal") and not code.called(call) and len(pair) == 1:
            if _is_reduction(call.parent) and _is_same_name(receiver(call), pair[0]):
                yield call
        elif (
            _SCORES.search(code.dotted(call.func) or "") and len(pair) == 2 and _is_same_name(*pair)
        ):
            yield call
    for loop in code.loops:
        yield from _all_correct(code, loop)


def _is_same_name(node, other):
    """Return whether two names of labels or predictions are one name."""
    name = name_of(node)
    return name is not None and name == name_of(other) and bool(_JUDGED.search(name))


def _is_reduction(parent):
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "sum",
        "float",
        "mean",
        "double",
        "type",
    )


def _all_correct(code, loop):
    """Yield `correct += y.size(0)` if `total` grows by the same number without a condition."""
    sums = _sums(code, loop)
    for name, node in sums.items():
        if not re.search(r"(?i)correct|(^|_)acc", name) or any(ancestors(node, ast.If)):
            continue
        if not re.search(r"\b(size|shape|len)\b", ast.unparse(node.value)):
            continue
        for other, total in sums.items():
            counts = re.search(r"(?i)total|count|samples|seen|(^|_)n(um)?(_|$)", other)
            if other != name and counts and ast.dump(total.value) == ast.dump(node.value):
                yield node
