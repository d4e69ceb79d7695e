"""Counts, sums and lengths of one loader that are used for another."""

import ast
import re

from helpers.review.kinds import batch_loop, iterated, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    above,
    const,
    inside,
    last,
    method,
    names_in,
    place,
    receiver,
    text,
)


def _sums(code, loop):
    """Return the names that `+=` adds to in a loop, with the statements."""
    added = [n for n in code.walk(loop) if isinstance(n, ast.AugAssign)]
    return {text(n.target): n for n in added if isinstance(n.op, ast.Add) and text(n.target)}


@rule("evaluation-other-length", "wrong")
def length_of_other_loader(code):
    """`val_loss / len(train_loader)` for a sum over `val_loader`."""
    for node in code.of(ast.BinOp, ast.AugAssign):
        binary = isinstance(node, ast.BinOp)
        by = node.right if binary else node.value
        length = isinstance(by, ast.Call) and text(by.func) == "len" and len(by.args) == 1
        name = text(node.left if binary else node.target)
        if not length or not name or not isinstance(node.op, ast.Div):
            continue
        loop = _last_sum(code, node, name)
        if loop is not None:
            parts = {_part_of(text(one)) for one in (iterated(loop.iter), by.args[0])}
            if len(parts) == 2 and None not in parts and "train" in parts:
                yield by


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
        one
        for one in code.of(ast.For)
        if one.scope is node.scope and one.end_lineno < node.lineno and batch_loop(code, one)
    ]
    loops = [one for one in loops if name in _sums(code, one)]
    values = [one for one in node.scope.assigned.get(name, ()) if one.end < place(node)]
    if not loops or not values or const(values[-1].value) != 0:
        return None
    return loops[-1] if values[-1].end < place(loops[-1]) else None


@rule("evaluation-other-counters", "wrong")
def counters_of_training(code):
    """`correct / total` of the training loop, after a loop that counts `correct_val`."""
    for loop in code.of(ast.For):
        if not batch_loop(code, loop) or not no_graph(code, loop):
            continue
        own = _sums(code, loop)
        unread = [n for n in own if n.isidentifier() and not code.uses(loop.scope, n)]
        if len(unread) < 2:
            continue
        for node in code.of(ast.BinOp):
            names = (text(node.left), text(node.right))
            after = node.scope is loop.scope and isinstance(node.op, ast.Div)
            if not after or not loop.end_lineno < node.lineno < loop.end_lineno + 8:
                continue
            if all(_similar(one, unread) for one in names) and not {*names} & {*own}:
                yield node


def _similar(name, unread):
    """Return whether a name is an unread counter's name without `val`, as `correct`."""
    apart = re.compile(r"(?i)_?(val|valid|test|eval)_?")
    return bool(name) and any(apart.sub("", one) == name != one for one in unread)


@rule("evaluation-unequal-batches", "wrong")
def mean_of_batch_accuracies(code):
    """`meter.update(accuracy)` without the number of samples: the last batch is smaller."""
    if "drop_last=True" in code.source:
        return
    for call in code.calls:
        loop = next(above(call, *LOOPS), None)
        if method(call) != "update" or len(call.args) != 1 or call.keywords or loop is None:
            continue
        if not batch_loop(code, loop) or not no_graph(code, call):
            continue
        given = call.args[0]
        given = receiver(given) if method(given) == "item" else given
        value = code.resolved(given)
        hits = value is not None and isinstance(value, ast.AST) and _mean_of_hits(value)
        if hits and _weighted(code, call):
            yield call
    yield from _list_of_means(code)
    yield from _sum_of_means(code)


def _sum_of_means(code):
    """`acc += (pred == y).float().mean()` in a test loop, divided by `len(loader)` below it."""
    for node in code.of(ast.AugAssign):
        loop, name = next(above(node, *LOOPS), None), text(node.target)
        if loop is None or not name or not batch_loop(code, loop) or not no_graph(code, loop):
            continue
        value, over = node.value, re.escape(ast.unparse(iterated(loop.iter)))
        inside_ = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
        divided = inside_ and re.fullmatch(rf"len\({over}\)", ast.unparse(value.right))
        value = value.left if divided else value
        value = receiver(value) if method(value) == "item" else value
        value = code.resolved(value) if isinstance(value, ast.AST) and text(value) else value
        divided = divided or re.search(rf"\b{re.escape(name)} */=? *len\(", code.source)
        if divided and isinstance(value, ast.AST) and _mean_of_equal(code, value):
            yield node


def _mean_of_equal(code, node):
    """Return whether a value is the mean of a comparison, even of one with a name."""
    if method(node) != "mean":
        return _mean_of_hits(node)
    whole = node.args[0] if code.called(node) and node.args else receiver(node)
    while method(whole) in ("type", "float", "double", "to", "cpu") and receiver(whole) is not None:
        whole = receiver(whole)
    whole = code.resolved(whole) if isinstance(whole, ast.Name) else whole
    equal = isinstance(whole, ast.Compare) and isinstance(whole.ops[0], ast.Eq)
    return equal or method(whole) in ("eq",)


def _list_of_means(code):
    """`accs.append((pred == y).float().mean())` in a test loop, and `np.mean(accs)` below it."""
    for call in code.calls:
        loop = next(above(call, *LOOPS), None)
        name = text(receiver(call)) if method(call) == "append" and len(call.args) == 1 else None
        if not name or loop is None or not batch_loop(code, loop) or not no_graph(code, loop):
            continue
        value = code.resolved(call.args[0])
        value = code.resolved(receiver(value)) if method(value) == "item" else value
        if isinstance(value, ast.AST) and _mean_of_hits(value) and _averaged(code, loop, name):
            yield call


def _averaged(code, loop, name):
    """Return whether `np.mean(accs)`, `sum(accs) / len(accs)` or the like follows a loop."""
    quoted = re.escape(name)
    after = "\n".join(code.part(code.function(loop)).split("\n")[-60:])
    means = rf"mean\({quoted}\)|\bsum\({quoted}\) */ *len|(tensor|stack)\({quoted}\)\.mean\("
    return re.search(means, after)


def _mean_of_hits(node):
    """Return whether a node is `(pred == y).float().mean()`, even times 100."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        node = node.left if isinstance(node.left, ast.Call) else node.right
    if method(node) == "item":
        node = receiver(node)
    return method(node) == "mean" and any(isinstance(one, ast.Compare) for one in ast.walk(node))


def _weighted(code, call):
    """Return whether the meter of this file has `update(self, value, n=1)`."""
    owner = text(getattr(code.value(receiver(call)), "func", None))
    update = code.functions.get((owner, "update"))
    given = update.args if update is not None else None
    return given is not None and len(given.args) == 3 and [const(d) for d in given.defaults] == [1]


@rule("evaluation-batch-of-all", "wrong", ".dataset)")
def batch_of_all(code):
    """`correct / len(loader.dataset)` for the `correct` of one batch, in the loop."""
    for node in code.of(ast.BinOp):
        by = node.right
        whole = isinstance(node.op, ast.Div) and method(by) == "len" and by.args
        loader = by.args[0].value if whole and last(by.args[0]) == "dataset" else None
        loop = next(above(node, *LOOPS), None)
        if (
            loader is None
            or not isinstance(loop, ast.For)
            or text(iterated(loop.iter)) != text(loader)
        ):
            continue
        names = [one for one in ast.walk(node.left) if isinstance(one, ast.Name)]
        if len(names) == 1 and _of_one_batch(code, loop, names[0]) and not _added(code, loop, node):
            yield node


def _of_one_batch(code, loop, name):
    """Return True for a count of right predictions that the loop computes and does not sum."""
    values = loop.scope.assigned.get(name.id, ())
    inner = [one for one in values if inside(one.statement, loop)]
    if len(inner) != 1 or not isinstance(inner[0].value, ast.AST):
        return False
    written = ast.unparse(inner[0].value)
    counted = re.search(r"==|\.eq\(", written) and "sum(" in written
    return bool(counted) and name.id not in names_in(inner[0].value)


def _added(code, loop, node):
    """Return whether the quotient is added up over the batches."""
    statement = next(above(node, ast.stmt), None)
    if isinstance(statement, ast.AugAssign):
        return True
    target = text(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    sums = " ".join(ast.unparse(one.value) for one in _sums(code, loop).values())
    kept = any(method(one) == "append" for one in above(node, ast.Call))
    return kept or target is not None and target in sums


_SCORES = re.compile(
    r"(accuracy|f1|precision|recall|balanced_accuracy|jaccard)_score$|confusion_matrix$"
)
_JUDGED = re.compile(r"(?i)pred|label|target|(^|_)ys?(_|$)|out(put)?s?$|class|correct|gt\b|truth")


@rule("evaluation-constant", "wrong")
def metric_of_one_tensor(code):
    """`(predicted == predicted).sum()`, or `correct += len(y)` next to `total += len(y)`."""
    for node in code.of(ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            counted = _counted(node.parent)
            if counted and _same(node.left, node.comparators[0]):
                yield node
    for call in code.calls:
        pair = call.args[:2]
        if method(call) in ("eq", "equal") and not code.called(call) and len(pair) == 1:
            if _counted(call.parent) and _same(receiver(call), pair[0]):
                yield call
        elif _SCORES.search(code.dotted(call.func) or "") and len(pair) == 2 and _same(*pair):
            yield call
    for loop in code.loops:
        yield from _all_correct(code, loop)


def _same(one, other):
    """Return whether two names of labels or predictions are one name."""
    name = text(one)
    return name is not None and name == text(other) and bool(_JUDGED.search(name))


def _counted(up):
    return isinstance(up, ast.Attribute) and up.attr in ("sum", "float", "mean", "double", "type")


def _all_correct(code, loop):
    """Yield `correct += y.size(0)` if `total` grows by the same number without a condition."""
    sums = _sums(code, loop)
    for name, node in sums.items():
        if not re.search(r"(?i)correct|(^|_)acc", name) or any(above(node, ast.If)):
            continue
        if not re.search(r"\b(size|shape|len)\b", ast.unparse(node.value)):
            continue
        for other, total in sums.items():
            counts = re.search(r"(?i)total|count|samples|seen|(^|_)n(um)?(_|$)", other)
            if other != name and counts and ast.dump(total.value) == ast.dump(node.value):
                yield node
