"""Sums, counters and averages over the batches of an epoch."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import batch_loop, kind
from helpers.review.registry import rule
from helpers.review.rules.metrics import single_samples, tensor_of
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    method,
    name_of,
    names_in,
    place,
    receiver,
)
from helpers.review.tracing import construction


@rule("training-uneven-sum", "wrong")
def sum_of_means(code):
    """`total += loss.item()` divided by `len(dataset)`: means of batches, divided by samples."""
    for node in code.nodes_of(ast.AugAssign):
        if not isinstance(node.op, ast.Add):
            continue
        loop = next(ancestors(node, *LOOPS), None)
        name = name_of(node.target)
        if (
            loop is None
            or not name
            or not batch_loop(code, loop)
            or not (_mean_loss(code, node.value) or _mean_of_matches(code, node.value))
        ):
            continue
        yield from _divided_by(code, name, loop, _SAMPLES)


def _mean_loss(code, node):
    """Return True for `loss.item()` of a loss that is a mean."""
    node = code.resolved(node) if isinstance(node, ast.Name) else node
    base = receiver(node) if method(node) == "item" else node
    value = code.resolved(base)
    if not isinstance(value, ast.Call) or kind(code, value) != "loss":
        return False
    constructor = construction(code, value.func) if not code.called(value) else value
    return (
        constructor is not None
        and argument(constructor, "reduction") is None
        and argument(constructor, "size_average") is None
    )


def _mean_of_matches(code, node):
    """Return True for `(predicted == y).float().mean()`, the accuracy of a batch."""
    node = receiver(node) if method(node) == "item" else node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        size = method(node.right) in ("len", "size") or "shape" in ast.unparse(node.right)
        return size and bool(re.search(r"(?i)correct|hits|match|==|\beq\(", ast.unparse(node.left)))
    if method(node) != "mean":
        return False
    compared = receiver(node) if receiver(node) is not None and not node.args else node.args[:1]
    compared = compared[0] if isinstance(compared, list) else compared
    compared = code.resolved(compared) if isinstance(compared, ast.Name) else compared
    return isinstance(compared, ast.AST) and any(
        isinstance(child, ast.Compare) or method(child) == "eq" for child in descendants(compared)
    )


_SAMPLES = r"len\([\w.\[\]'\"]*(\.dataset|_?set|_data(set)?|dataset)\)"


def _divided_by(code, name, loop, pattern):
    """Yield the divisions of a sum, below the loop, by a divisor that the pattern matches."""
    for node in code.walk(code.function_of(loop)):
        divided = (
            node.left
            if isinstance(node, ast.BinOp)
            else node.target
            if isinstance(node, ast.AugAssign)
            else None
        )
        if divided is None or not isinstance(node.op, ast.Div) or name_of(divided) != name:
            continue
        divisor = node.right if isinstance(node, ast.BinOp) else node.value
        number = code.value(divisor) if isinstance(divisor, ast.Name) else None
        divisor = number if isinstance(number, ast.Call) else divisor
        if node.lineno > loop.lineno and re.fullmatch(pattern, ast.unparse(divisor)):
            yield node


@rule("evaluation-sampler-length", "wrong")
def length_of_both_parts(code):
    """`total / len(loader.dataset)` with a `SubsetRandomSampler`: the length of the whole set."""
    for node in code.nodes_of(ast.BinOp, ast.AugAssign):
        divisor = node.right if isinstance(node, ast.BinOp) else node.value
        length = isinstance(divisor, ast.Call) and name_of(divisor.func) == "len" and divisor.args
        if not length or not isinstance(node.op, ast.Div):
            continue
        operand = divisor.args[0]
        if isinstance(operand, ast.Attribute) and operand.attr == "dataset":
            loader = construction(code, operand.value)
            sampler = argument(loader, "sampler") if isinstance(loader, ast.Call) else None
            constructor = construction(code, sampler) if isinstance(sampler, ast.Name) else sampler
            if code.called(constructor).endswith("SubsetRandomSampler"):
                yield divisor


@rule("evaluation-never-reset", "wrong")
def counter_not_reset(code):
    """`correct` is not set to 0 in each epoch, but each epoch divides it."""
    for outer in code.loops:
        if not isinstance(outer, ast.For) or any(ancestors(outer, *LOOPS)):
            continue
        if not re.search(r"(?i)epoch", ast.unparse(outer.target)) or not code.methods(
            outer, "backward", follow=2
        ):
            continue
        for loop in _inner_loop(outer):
            yield from _counters(code, outer, loop)


def _inner_loop(outer):
    for statement in descendants(outer):
        if isinstance(statement, ast.For) and statement is not outer:
            yield statement


def _counters(code, outer, loop):
    for node in code.walk(loop):
        name = _counted_names(node)
        counts = r"(?i)correct|total|hits|running|n_|num_|count"
        counts += r"|loss|acc|dice|iou" if isinstance(node, ast.Call) else ""
        if not name or not re.search(counts, name):
            continue
        values = loop.scope.assigned.get(name, ())
        inside = [v for v in values if outer.lineno < v.statement.lineno <= outer.end_lineno]
        before = [v for v in values if v.statement.lineno < outer.lineno]
        zero = any(const(v.value) == 0 or isinstance(v.value, ast.List) for v in before)
        if zero and not inside and _is_averaged_below(code, outer, loop, name):
            yield node


def _counted_names(node):
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return name_of(node.target)
    if method(node) == "append" and isinstance(node.func, ast.Attribute):
        return name_of(receiver(node))
    return None


def _is_averaged_below(code, outer, loop, name):
    """Return whether an epoch averages a name below the inner loop, such as `correct / total`."""
    quoted = re.escape(name)
    mean = re.compile(
        rf"mean\({quoted}\)|sum\({quoted}\) / len|100\.?\d* \* {quoted} / |"
        rf"\b{quoted}(\.item\(\)|\.double\(\)|\.float\(\))? / (total|n_|num|count|len)"
    )
    return any(
        mean.search(code.source_of(statement))
        for statement in descendants(outer)
        if isinstance(statement, ast.stmt)
        and not isinstance(statement, LOOPS)
        and statement.lineno > loop.end_lineno
    )


@rule("evaluation-metric-kept", "wrong")
def metric_not_reset(code):
    """A metric object that is updated in each epoch, in a file without `reset()`."""
    if re.search(
        r"reset|(?i:lightning|ignite)", re.sub(r"def reset\b|self\.reset\(", "", code.source)
    ):
        return
    for scope in code.scopes:
        for name, values in scope.assigned.items():
            metric = values[0].value
            if len(values) == 1 and isinstance(metric, ast.Call) and _accumulates(code, metric):
                for loop in code.loops:
                    if loop.scope is scope and values[0].end < place(loop) and _epochs(code, loop):
                        if any(is_inside(use, loop) for use in code.uses(scope, name)):
                            yield values[0].statement
                            break


def _epochs(code, loop):
    """Return whether a loop iterates over the epochs of a training."""
    named = isinstance(loop, ast.For) and re.search(r"(?i)epoch", ast.unparse(loop.target))
    return named and not any(ancestors(loop, *LOOPS)) and code.methods(loop, "backward", follow=3)


def _accumulates(code, metric):
    """Return True for a metric of torchmetrics, and a local object that sums and has `reset`."""
    if code.called(metric).startswith("torchmetrics."):
        return code.called(metric).rpartition(".")[2][:1].isupper()
    name = metric.func.id if isinstance(metric.func, ast.Name) else ""
    if (name, "reset") not in code.functions:
        return False
    owner = code.classes[name]
    added = [n for n in descendants(owner) if isinstance(n, ast.AugAssign)]
    return any((name_of(statement.target) or "").startswith("self.") for statement in added)


@rule("evaluation-batch-count", "wrong")
def accuracy_over_batches(code):
    """`correct / len(loader)`: a number of samples divided by a number of batches."""
    for node in code.nodes_of(ast.BinOp):
        if not isinstance(node.op, ast.Div):
            continue
        divisor = ast.unparse(node.right)
        name = name_of(_counter(node.left))
        if name is None or not re.fullmatch(r"len\([\w.]*(loader|_dl)\)", divisor):
            continue
        adds = [
            n
            for n in code.nodes_of(ast.AugAssign)
            if name_of(n.target) == name and n.scope is node.scope
        ]
        if any(
            re.search(r"==.*\.sum\(\)|\.eq\(.*\.sum\(\)|torch\.sum\(.*==", ast.unparse(n.value))
            and "/" not in ast.unparse(n.value)
            and "mean" not in ast.unparse(n.value)
            for n in adds
        ):
            if not single_samples(code):
                yield node


def _counter(node):
    """Return `n` of `n`, `n.item()`, `float(n)` and `100 * n`."""
    for _ in range(3):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            node = node.right if const(node.left) is not None else node.left
        elif method(node) == "item" and receiver(node) is not None:
            node = receiver(node)
        elif method(node) in ("float", "int") and len(node.args) == 1:
            node = node.args[0]
    return node if isinstance(node, ast.Name) else None


@rule("evaluation-last-batch", "wrong")
def last_batch(code):
    """`loss / len(loader)` after the loop, where `loss` is the loss of the last batch."""
    summed = {(n.scope, name_of(n.target)) for n in code.nodes_of(ast.AugAssign)}
    for node in code.nodes_of(ast.BinOp):
        name = name_of(tensor_of(node.left)) if isinstance(node.op, ast.Div) else None
        if not name or (node.scope, name) in summed:
            continue
        values = code.assigned_before(node.scope, name, node)
        loop = values[-1].statement.parent if values else None
        if not isinstance(loop, ast.For) or loop.end_lineno >= node.lineno:
            continue
        if batch_loop(code, loop) or code.methods(loop, "backward"):
            if _of_batch(code, values[-1].value, name):
                if _is_count(node, summed) or _of_same_batch(code, node, loop):
                    yield node
    yield from _metric_of_last(code)
    yield from _returned_beside(code)
    yield from _returned_alone(code)
    yield from _replaced_total(code)


def _replaced_total(code):
    """`loss = criterion(…)` and `loss += loss.item()` in a loop: the sum of the last batch."""
    for loop in code.nodes_of(ast.For):
        for node in code.walk(loop) if batch_loop(code, loop) else ():
            name = name_of(node.target) if isinstance(node, ast.AugAssign) else None
            if not name or not isinstance(node.op, ast.Add) or name not in names_in(node.value):
                continue
            assignments = loop.scope.assigned.get(name, ())
            inner = [
                assignment
                for assignment in assignments
                if is_inside(assignment.statement, loop) and assignment.end < place(node)
            ]
            starts = [
                const(assignment.value) == 0
                for assignment in code.assigned_before(loop.scope, name, loop)
            ]
            read = any(use.lineno > loop.end_lineno for use in code.uses(loop.scope, name))
            fresh = inner and not any(name in _read_by(assignment.value) for assignment in inner)
            if (
                fresh
                and any(starts)
                and read
                and not any(isinstance(n, ast.Break) for n in code.walk(loop))
            ):
                yield node


def _of_same_batch(code, node, loop):
    """Return whether the divisor is the size of the last batch, such as `n = y.size(0)`."""
    name = name_of(node.right)
    values = code.assigned_before(node.scope, name or "", node)
    if not values or any(isinstance(child, ast.Break) for child in code.walk(loop)):
        return False
    size = values[-1].value
    taken = method(size) in ("size", "len") or isinstance(size, ast.Subscript)
    return taken and isinstance(size, ast.AST) and is_inside(values[-1].statement, loop)


_TAKES_ALL = {
    "accuracy_score",
    "balanced_accuracy_score",
    "classification_report",
    "confusion_matrix",
    "f1_score",
    "precision_score",
    "recall_score",
    "roc_auc_score",
}


def _returned_beside(code):
    """`return total / n, acc` below the loop, where `total` is summed and `acc` replaced in it."""
    for node in code.nodes_of(ast.Return):
        values = node.value.elts if isinstance(node.value, ast.Tuple) else []
        loops = [
            outer_loop
            for outer_loop in code.loops
            if outer_loop.scope is node.scope
            and outer_loop.end_lineno < node.lineno
            and isinstance(outer_loop, ast.For)
        ]
        loop = loops[-1] if loops else None
        if loop is None or not code.methods(loop, "backward") and not batch_loop(code, loop):
            continue
        if any(isinstance(child, ast.Break) for child in code.walk(loop)):
            continue
        averaged = [value for value in values if _is_average(code, value, loop)]
        for value in values if averaged else ():
            name = value.id if isinstance(value, ast.Name) else ""
            if re.fullmatch(r"(\w+_)?(acc(uracy)?|f1|iou|dice|auc|mae|rmse)\d?", name) and (
                code.assigned_before(node.scope, name, node)
                and all(_only_in(v, loop) for v in node.scope.assigned[name])
                and not any(
                    isinstance(n, ast.AugAssign) and name_of(n.target) == name
                    for n in descendants(loop)
                )
                and name not in {m for v in node.scope.assigned[name] for m in _read_by(v.value)}
            ):
                yield node


_METRIC = re.compile(r"(?i)(\w+_)?(loss|acc(uracy)?|f1|iou|dice|auc|mae|mse|rmse)\d?")


def _returned_alone(code):
    """`return loss.item(), acc.item()` below the loop of an evaluation: those of the last batch."""
    for node in code.nodes_of(ast.Return):
        value = node.value
        values = (
            value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
        )
        values = [
            receiver(expression) if method(expression) == "item" else expression
            for expression in values
        ]
        returned_names = {
            expression.id for expression in values if isinstance(expression, ast.Name)
        }
        named = [name for name in returned_names if _METRIC.fullmatch(name)]
        loops = [
            outer_loop
            for outer_loop in code.loops
            if outer_loop.scope is node.scope and outer_loop.end_lineno < node.lineno
        ]
        if not named or len(named) != len(values) or len(loops) != 1:
            continue
        (loop,) = loops
        if not batch_loop(code, loop) or code.methods(code.function_of(node), "backward"):
            continue
        left = any(isinstance(child, ast.Break | ast.Return) for child in code.walk(loop))
        if not left and all(_replaced_each_time(code, loop, name) for name in named):
            yield node


def _replaced_each_time(code, loop, name):
    """Return whether each iteration replaces a tensor, and nothing adds its values up."""
    assignments = loop.scope.assigned.get(name, ())
    summed = any(
        isinstance(n, ast.AugAssign) and name_of(n.target) == name for n in descendants(loop)
    )
    replaced = [
        assignment
        for assignment in assignments
        if name not in _read_by(assignment.value) and _only_in(assignment, loop)
    ]
    calls = [assignment for assignment in replaced if isinstance(assignment.value, ast.Call)]
    added = rf"(append|update|add)\([^\n]*\b{name}\b|\+= *[^\n]*\b{name}\b"
    kept = re.search(added, code.source_of(loop))
    return bool(calls) and len(replaced) == len(assignments) and not summed and not kept


def _read_by(value):
    expression = value.value if isinstance(value, Part) else value
    return names_in(expression)


def _only_in(assignment, loop):
    """Return whether an assignment is in the loop, or assigns a number before it."""
    number = isinstance(assignment.value, ast.AST) and const(assignment.value) is not None
    outer = [*ancestors(assignment.statement, ast.For)]
    return number or bool(outer) and outer[0] is loop


def _is_average(code, node, loop):
    """Return True for a quotient or a mean, below the loop, of values added in the loop."""
    value = code.resolved(node) if isinstance(node, ast.Name) else node
    if method(value) in ("mean", "average"):
        read = names_in(value)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        read = names_in(value.left)
    else:
        return False
    added = {
        name_of(statement.target)
        for statement in code.walk(loop)
        if isinstance(statement, ast.AugAssign)
    }
    added |= {name_of(receiver(call)) for call in code.methods(loop, "append")}
    return bool(read & added) and getattr(value, "lineno", 0) > loop.end_lineno


def _metric_of_last(code):
    """`confusion_matrix(y, pred)` below the loop, with names that each batch replaces."""
    if any(
        method(argument(other_call, "batch_size", 1)) == "len" for other_call in code.calls
    ):  # one batch
        return
    for call in code.calls_named(*_TAKES_ALL):
        if len(call.args) < 2 or receiver(call) is not None:
            continue
        names = [name_of(_unconverted(arg)) for arg in call.args[:2]]
        if not all(names):
            continue
        values = [code.value(_unconverted(arg)) for arg in call.args[:2]]
        for loop in code.loops:
            if (
                loop.scope is call.scope
                and loop.end_lineno < call.lineno
                and batch_loop(code, loop)
            ):
                if all(_replaced_in(code, loop, call, name) for name in names):
                    if not any(isinstance(node, ast.Break) for node in code.walk(loop)):
                        if all(value is not None for value in values):
                            yield call


def _unconverted(node):
    """Return `pred` of `pred.cpu().numpy()`."""
    while method(node) in ("cpu", "numpy", "detach", "tolist") and receiver(node) is not None:
        node = receiver(node)
    return node


def _replaced_in(code, loop, call, name):
    """Return whether the loop assigns the name's last value and builds none from the name."""
    assignments = code.assigned_before(loop.scope, name, call)
    latest = [
        assignment
        for assignment in assignments
        if is_inside(assignment.statement, loop) or assignment.statement is loop
    ]
    values = [
        assignment.value for assignment in assignments if not isinstance(assignment.value, Part)
    ]
    joined = [value for value in values if "cat" in method(value) or "stack" in method(value)]
    joined += [
        value for value in values if isinstance(value, ast.BinOp) or method(value) == "append"
    ]
    grown = any(name in names_in(value) for value in joined) or any(
        name_of(receiver(other_call)) == name
        for other_call in code.methods(loop, "append", "extend")
    )
    return bool(latest) and assignments[-1] is latest[-1] and not grown


def _of_batch(code, value, name):
    """Return True for a loss, or a number of right predictions, of one batch only."""
    if isinstance(value, Part) or name in names_in(value):
        return False
    compared = any(isinstance(node, ast.Compare) for node in descendants(value))
    hits = method(tensor_of(value)) == "sum" and compared
    return hits or kind(code, tensor_of(value)) == "loss"


def _is_count(node, summed):
    """Return True if the divisor is a length, or a name that is counted up."""
    divisor = node.right
    length = isinstance(divisor, ast.Call) and name_of(divisor.func) == "len"
    return length or (node.scope, name_of(divisor)) in summed


@rule("evaluation-index-sum", "wrong")
def index_summed(code):
    """`batches += i` for `i, batch in enumerate(loader)`, or `total / i` below that loop."""
    yield from _divided_by_index(code)
    divisors = [n.right for n in code.nodes_of(ast.BinOp) if isinstance(n.op, ast.Div)]
    for node in code.nodes_of(ast.AugAssign):
        loop = next(ancestors(node, ast.For), None)
        if loop is None or not isinstance(node.op, ast.Add) or not isinstance(node.value, ast.Name):
            continue
        pair = loop.target if isinstance(loop.target, ast.Tuple) else None
        counted = isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) == "enumerate"
        if counted and pair is not None and name_of(pair.elts[0]) == node.value.id:
            name = name_of(node.target)
            if any(
                divisor.scope is node.scope and name in names_in(divisor) for divisor in divisors
            ):
                yield node


def _divided_by_index(code):
    """Yield the divisions of a sum of a loop by the last index that `enumerate` returned."""
    for loop in code.nodes_of(ast.For):
        pair = loop.target if isinstance(loop.target, ast.Tuple) else None
        if method(loop.iter) != "enumerate" or pair is None:
            continue
        if loop.iter.args[1:] or loop.iter.keywords:
            continue
        summed = {
            name_of(update.target)
            for update in code.walk(loop)
            if isinstance(update, ast.AugAssign)
        } - {None}
        for statement in _statements_below(loop):
            for node in descendants(statement):
                left = getattr(node, "target", getattr(node, "left", None))
                divisor = getattr(node, "value", getattr(node, "right", None))
                divided = isinstance(getattr(node, "op", None), ast.Div)
                if (
                    divided
                    and name_of(divisor) == name_of(pair.elts[0])
                    and name_of(left) in summed
                ):
                    yield node
            if any(
                name_of(n) == name_of(pair.elts[0]) for n in descendants(statement) if _is_stored(n)
            ):
                break


def _statements_below(node):
    """Yield the statements after a loop, and the statements after the `with` around it."""
    while node.parent is not None:
        body = next((b for b in _blocks(node.parent) if node in b), [node])
        yield from body[body.index(node) + 1 :]
        if not isinstance(node.parent, ast.With):
            break
        node = node.parent


@rule("evaluation-divided-twice", "wrong")
def divided_twice(code):
    """`total_loss = total_loss / n`, and `total_loss / n` again below."""
    for node in code.nodes_of(ast.Assign, ast.AugAssign):
        name, divisor = _divided(node)
        if not name or not re.search(r"(?i)loss|acc|err|total|avg|mean|running|metric", name):
            continue
        body = next((b for b in _blocks(node.parent) if node in b), ())
        for statement in body[body.index(node) + 1 :] if node in body else ():
            if any(name_of(n) == name for n in descendants(statement) if _is_stored(n)):
                break
            for operation in descendants(statement):
                if isinstance(operation, ast.BinOp) and isinstance(operation.op, ast.Div):
                    if name_of(operation.left) == name and ast.dump(operation.right) == divisor:
                        yield operation


def _divided(node):
    """Return the name and the divisor of `x = x / n` and `x /= n`."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    value = node.value
    if isinstance(node, ast.Assign):
        is_quotient = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
        if not is_quotient or name_of(value.left) != name_of(target):
            return None, None
        value = value.right
    elif not isinstance(node.op, ast.Div):
        return None, None
    return (None, None) if isinstance(value, ast.Constant) else (name_of(target), ast.dump(value))


def _blocks(node):
    return [getattr(node, name, None) or [] for name in ("body", "orelse", "finalbody")]


def _is_stored(node):
    return isinstance(getattr(node, "ctx", None), ast.Store)


@rule("evaluation-batch-size", "wrong")
def batches_of_one_size(code):
    """`correct / (len(loader) * batch_size)`: the last batch is smaller."""
    if re.search(r"drop_last=True", code.source):
        return
    for node in code.nodes_of(ast.BinOp):
        divisor = node.right
        if not isinstance(node.op, ast.Div) or not isinstance(divisor, ast.BinOp):
            continue
        if isinstance(divisor.op, ast.Mult) and re.search(
            r"(?i)correct|hits|acc", ast.unparse(node)
        ):
            sides = sorted((ast.unparse(divisor.left), ast.unparse(divisor.right)))
            if any(re.fullmatch(r"len\([\w.]*(loader|_dl)\)", side) for side in sides):
                if any(re.search(r"(?i)batch_?size$", side) for side in sides):
                    yield node
    yield from _losses_of_one_size(code)
    yield from _batches_of_one_size(code)


def _batches_of_one_size(code):
    """`(pred == y).sum() / batch_size` in a loop over the batches of a loader."""
    for node in code.nodes_of(ast.BinOp):
        loop, divisor = next(ancestors(node, ast.For), None), name_of(node.right)
        if loop is None or not isinstance(node.op, ast.Div) or not batch_loop(code, loop):
            continue
        sized = re.search(r"(?i)(^|\.)batch_?size$", divisor or "")
        inner = sized and any(
            is_inside(assignment.statement, loop)
            for assignment in node.scope.assigned.get(divisor, ())
        )
        counted = re.search(r"==.*\.sum\(|\.eq\(.*\.sum\(", ast.unparse(node.left))
        value = code.value(node.left) if isinstance(node.left, ast.Name) else None
        if isinstance(value, ast.Call):
            counted = counted or re.search(r"==.*\.sum\(|\.eq\(.*\.sum\(", ast.unparse(value))
        if sized and not inner and counted:
            yield node


def _losses_of_one_size(code):
    """`total += loss.item() * batch_size`, divided by `len(loader.dataset)`."""
    for node in code.nodes_of(ast.AugAssign):
        loop, value = next(ancestors(node, *LOOPS), None), node.value
        name = name_of(node.target)
        if loop is None or not name or not batch_loop(code, loop):
            continue
        if isinstance(node.op, ast.Add) and isinstance(value, ast.BinOp):
            sides = value.left, value.right
            sized = any(re.search(r"(?i)(^|\.)batch_?size$", name_of(side) or "") for side in sides)
            size = next(
                (side for side in sides if re.search(r"(?i)size$", name_of(side) or "")), None
            )
            inner = size is not None and any(
                is_inside(assignment.statement, loop)
                for assignment in node.scope.assigned.get(name_of(size), ())
            )
            if sized and not inner and isinstance(value.op, ast.Mult):
                if any(_mean_loss(code, side) for side in sides):
                    yield from (node for _ in [*_divided_by(code, name, loop, _SAMPLES)][:1])


@rule("evaluation-print-interval", "wrong", "%")
def other_interval(code):
    """`if i % 2000 == 1999: print(running_loss / 1000)`: the sum has 2000 batches, not 1000."""
    for node in code.nodes_of(ast.If):
        interval = _interval(node.test)
        reset = {
            name_of(assignment.targets[0])
            for assignment in node.body
            if isinstance(assignment, ast.Assign) and const(assignment.value) == 0
        }
        for operation in descendants(ast.Module(node.body, [])) if interval and reset else ():
            if isinstance(operation, ast.BinOp) and isinstance(operation.op, ast.Div):
                modulus = const(operation.right)
                if (
                    name_of(operation.left) in reset
                    and isinstance(modulus, int)
                    and modulus > 1
                    and modulus != interval
                ):
                    if _sums_losses(code, operation):
                        yield operation


def _sums_losses(code, divided):
    """Return whether the sum consists of `loss.item()`, one of each batch."""
    added = [
        statement.value
        for statement in code.nodes_of(ast.AugAssign)
        if statement.scope is divided.scope and name_of(statement.target) == name_of(divided.left)
    ]
    return all(
        method(value) == "item" and re.search(r"(?i)loss|criterion", ast.unparse(value))
        for value in added
    )


def _interval(test):
    """Return `2000` of `i % 2000 == 1999` and `(i + 1) % 2000 == 0`."""
    left = test.left if isinstance(test, ast.Compare) and len(test.ops) == 1 else None
    if not isinstance(left, ast.BinOp) or not isinstance(left.op, ast.Mod):
        return None
    value = const(left.right)
    return value if isinstance(value, int) and value > 1 else None


@rule("evaluation-weighted-count", "wrong", ".item()")
def samples_over_batches(code):
    """`total += loss.item() * x.size(0)` divided by `len(loader)`: samples, divided by batches."""
    for node in code.nodes_of(ast.AugAssign):
        loop, name = next(ancestors(node, *LOOPS), None), name_of(node.target)
        product = node.value
        if loop is None or not name or not isinstance(product, ast.BinOp):
            continue
        if not isinstance(node.op, ast.Add) or not isinstance(product.op, ast.Mult):
            continue
        sides = (product.left, product.right), (product.right, product.left)
        weighted = any(
            method(loss) == "item"
            and re.search(r"(?i)loss|criterion", ast.unparse(loss))
            and re.search(r"\.size\(0\)|\.shape\[0\]|^len\((?!.*loader)", ast.unparse(size))
            for loss, size in sides
        )
        if weighted and batch_loop(code, loop):
            yield from _divided_by(code, name, loop, r"len\([\w.\[\]'\"]*(loader|_dl)\w*\)")
