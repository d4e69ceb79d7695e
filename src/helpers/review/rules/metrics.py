"""Metrics that are computed from the wrong numbers."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import batch_loop, is_model, iterated, kind, steps
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    above,
    argument,
    const,
    inside,
    is_open,
    method,
    names_in,
    place,
    receiver,
    text,
)
from helpers.review.tracing import construction, is_activation


@rule("evaluation-logits-threshold", "wrong")
def logits_thresholded(code):
    """`model(x) > 0.5` of logits, with `BCEWithLogitsLoss`."""
    if "WithLogits" not in code.source and "with_logits" not in code.source:
        return
    for node in code.nodes:
        if (
            (
                isinstance(node, ast.Compare)
                and len(node.ops) == 1
                and isinstance(node.ops[0], ast.Gt | ast.GtE)
            )
            and const(node.comparators[0]) == 0.5
            and _is_logit(code, node.left)
        ):
            yield node
    for call in code.calls:
        if method(call) == "round" and _is_logit(code, _rounded(code, call)):
            yield call


def _rounded(code, call):
    if code.called(call) == "torch.round" and call.args:
        return call.args[0]
    return receiver(call) if not code.called(call) else None


def _is_logit(code, node):
    """The output of a model that is given to a loss with logits, without a sigmoid."""
    for _ in range(4):
        if (
            method(node) in ("squeeze", "view", "flatten", "detach", "cpu", "float")
            and receiver(node) is not None
        ):
            node = receiver(node)
    name = text(node)
    value = code.value(node) if name else node
    for _ in range(4):
        if (
            method(value) in ("squeeze", "view", "flatten", "detach", "cpu", "float")
            and receiver(value) is not None
        ):
            value = receiver(value)
    if not isinstance(value, ast.Call) or not is_model(code, value.func):
        return False
    if is_activation(code, node, {"sigmoid", "softmax"}):
        return False
    return _goes_to_logit_loss(code, text(value.func), name)


def _goes_to_logit_loss(code, model, name):
    """The same model's output is an argument of the loss with logits somewhere in the file."""
    for call in code.calls:
        logits = (
            code.called(call).endswith("with_logits")
            or kind(code, call.func) == "lossfn:BCEWithLogitsLoss"
        )
        if logits and call.args:
            given = call.args[0]
            value = code.value(given) if isinstance(given, ast.Name) else given
            while (
                method(value) in ("squeeze", "view", "flatten", "float")
                and receiver(value) is not None
            ):
                value = receiver(value)
            if isinstance(value, ast.Call) and text(value.func) == model:
                return True
    return False


@rule("training-uneven-sum", "wrong")
def sum_of_means(code):
    """`total += loss.item()` divided by `len(dataset)`: means of batches, divided by samples."""
    for node in code.of(ast.AugAssign):
        if not isinstance(node.op, ast.Add):
            continue
        loop = next(above(node, *LOOPS), None)
        name = text(node.target)
        if (
            loop is None
            or not name
            or not batch_loop(code, loop)
            or not _mean_loss(code, node.value)
        ):
            continue
        yield from _divisions(code, name, loop)


def _mean_loss(code, node):
    """`loss.item()` of a loss that is a mean."""
    base = receiver(node) if method(node) == "item" else node
    value = code.value(base) if isinstance(base, ast.Name) else base
    if not isinstance(value, ast.Call) or kind(code, value) != "loss":
        return False
    constructor = construction(code, value.func) if not code.called(value) else value
    return (
        constructor is not None
        and argument(constructor, "reduction") is None
        and argument(constructor, "size_average") is None
    )


def _divisions(code, name, loop):
    """Divisions of the sum by a number of samples after the loop."""
    for node in code.walk(code.function(loop)):
        divided = (
            node.left
            if isinstance(node, ast.BinOp)
            else node.target
            if isinstance(node, ast.AugAssign)
            else None
        )
        if divided is None or not isinstance(node.op, ast.Div) or text(divided) != name:
            continue
        by = node.right if isinstance(node, ast.BinOp) else node.value
        number = code.value(by) if isinstance(by, ast.Name) else None
        by = number if isinstance(number, ast.Call) else by
        if node.lineno > loop.lineno and re.fullmatch(
            r"len\([\w.\[\]'\"]*(\.dataset|_?set|_data(set)?|dataset)\)", ast.unparse(by)
        ):
            yield node


@rule("evaluation-sampler-length", "wrong")
def length_of_both_parts(code):
    """`total / len(loader.dataset)` with a `SubsetRandomSampler`: that is the whole dataset."""
    for node in code.of(ast.BinOp, ast.AugAssign):
        by = node.right if isinstance(node, ast.BinOp) else node.value
        length = isinstance(by, ast.Call) and text(by.func) == "len" and by.args
        if not length or not isinstance(node.op, ast.Div):
            continue
        given = by.args[0]
        if isinstance(given, ast.Attribute) and given.attr == "dataset":
            loader = construction(code, given.value)
            sampler = argument(loader, "sampler") if isinstance(loader, ast.Call) else None
            made = construction(code, sampler) if isinstance(sampler, ast.Name) else sampler
            if code.called(made).endswith("SubsetRandomSampler"):
                yield by


@rule("evaluation-never-reset", "wrong")
def counter_not_reset(code):
    """`correct` counts on over all epochs, and each epoch divides it."""
    for outer in code.loops:
        if not isinstance(outer, ast.For) or any(above(outer, *LOOPS)):
            continue
        if not re.search(r"(?i)epoch", ast.unparse(outer.target)) or not code.methods(
            outer, "backward", follow=2
        ):
            continue
        for loop in _inner(outer):
            yield from _counters(code, outer, loop)


def _inner(outer):
    for statement in ast.walk(outer):
        if isinstance(statement, ast.For) and statement is not outer:
            yield statement


def _counters(code, outer, loop):
    for node in code.walk(loop):
        name = _counted(node)
        if not name or not re.search(r"(?i)correct|total|hits|running|n_|num_|count", name):
            continue
        values = loop.scope.assigned.get(name, ())
        inside = [v for v in values if outer.lineno < v.statement.lineno <= outer.end_lineno]
        before = [v for v in values if v.statement.lineno < outer.lineno]
        zero = any(const(v.value) == 0 or isinstance(v.value, ast.List) for v in before)
        if zero and not inside and _averaged(code, outer, loop, name):
            yield node


def _counted(node):
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return text(node.target)
    if method(node) == "append" and isinstance(node.func, ast.Attribute):
        return text(receiver(node))
    return None


def _averaged(code, outer, loop, name):
    """The epoch computes a mean of it after the inner loop: `correct / total`, `np.mean(name)`."""
    quoted = re.escape(name)
    mean = re.compile(
        rf"mean\({quoted}\)|sum\({quoted}\) / len|100\.?\d* \* {quoted} / |"
        rf"\b{quoted}(\.item\(\)|\.double\(\)|\.float\(\))? / (total|n_|num|count|len)"
    )
    return any(
        mean.search(code.part(statement))
        for statement in ast.walk(outer)
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
            made = values[0].value
            if len(values) == 1 and isinstance(made, ast.Call) and _accumulates(code, made):
                for loop in code.loops:
                    if loop.scope is scope and values[0].end < place(loop) and _epochs(code, loop):
                        if any(inside(one, loop) for one in code.uses(scope, name)):
                            yield values[0].statement
                            break


def _epochs(code, loop):
    """The loop over epochs of a training."""
    named = isinstance(loop, ast.For) and re.search(r"(?i)epoch", ast.unparse(loop.target))
    return named and not any(above(loop, *LOOPS)) and code.methods(loop, "backward", follow=3)


def _accumulates(code, made):
    """A metric of torchmetrics, or an object of this file that adds up and can be reset."""
    if code.called(made).startswith("torchmetrics."):
        return code.called(made).rpartition(".")[2][:1].isupper()
    name = made.func.id if isinstance(made.func, ast.Name) else ""
    if (name, "reset") not in code.functions:
        return False
    owner = code.classes[name]
    added = [n for n in ast.walk(owner) if isinstance(n, ast.AugAssign)]
    return any((text(one.target) or "").startswith("self.") for one in added)


@rule("training-patience-kept", "wrong")
def patience_not_reset(code):
    """`else: bad += 1` and `if bad >= patience`, and no line sets `bad` to 0 again."""
    for node in code.of(ast.AugAssign):
        name, branch = text(node.target), node.parent
        counts = isinstance(node.op, ast.Add) and const(node.value) == 1 and name
        if not counts or not isinstance(branch, ast.If) or node not in branch.orelse:
            continue
        if not any(isinstance(one, ast.Compare) for one in ast.walk(branch.test)):
            continue
        best = {n for n in names_in(branch.test) if re.search(r"(?i)best|min|max", n)}
        renewed = {text(t) for s in branch.body if isinstance(s, ast.Assign) for t in s.targets}
        if best & renewed and _compared_with_patience(code, name) and not _set_again(code, node):
            yield node


def _compared_with_patience(code, name):
    return any(
        name in names_in(one.left) and re.search(r"(?i)patience|stop", ast.unparse(one))
        for one in code.of(ast.Compare)
    )


def _set_again(code, node):
    """Another line than the first sets the counter to a number."""
    name = text(node.target)
    values = list(node.scope.assigned.get(name, ()))
    if name.startswith("self.") and node.owner is not None:
        values = list(node.owner.attributes.get(name, ()))
    return len(values) > 1 or not values


@rule("evaluation-train-on-test", "wrong")
def trained_on_test(code):
    """`for x, y in test_loader:` with `backward()` and `step()`: trained on the test data."""
    apart = r"(?i)adapt|attack|adv|tent|tta|meta|finetun|fine_tun|personal|episode|support|task"
    for loop in code.of(ast.For):
        over = ast.unparse(iterated(loop.iter))
        name = re.search(
            r"(?i)(^|[._])test(ing)?_?(loader|dl|dataloader|indices|idx|iter|set)$", over
        )
        if not name or re.search(apart, code.source):
            continue
        own = [c for c in steps(code, loop) if next(above(c, *LOOPS), None) is loop]
        back = [c for c in code.methods(loop, "backward") if next(above(c, *LOOPS), None) is loop]
        if own and back and not any(above(own[0], ast.If)):
            yield loop


@rule("evaluation-sigmoid-zero", "wrong")
def probability_above_zero(code):
    """`torch.sigmoid(x) > 0`: a probability is always above 0."""
    for node in code.of(ast.Compare):
        above_zero = len(node.ops) == 1 and isinstance(node.ops[0], ast.Gt | ast.GtE)
        if (
            above_zero
            and const(node.comparators[0]) == 0
            and not isinstance(const(node.comparators[0]), bool)
        ):
            if is_activation(code, node.left, {"sigmoid", "softmax"}):
                yield node


@rule("evaluation-argument-order", "wrong")
def swapped_metric(code):
    """`precision_score(y_pred, y_true)`: the arguments of scikit-learn are exchanged."""
    asymmetric = {
        "confusion_matrix",
        "precision_score",
        "recall_score",
        "classification_report",
        "roc_auc_score",
        "average_precision_score",
    }
    for call in code.calls:
        name = code.called(call)
        if (
            name.startswith("sklearn.metrics.")
            and name.rpartition(".")[2] in asymmetric
            and len(call.args) >= 2
        ):
            first, second = (text(one) or "" for one in call.args[:2])
            if (
                re.search(r"(?i)pred|output|y_hat|prob|scores?$", first)
                and re.search(r"(?i)true|label|target|gt$|^y$|y_test", second)
                and not re.search(r"(?i)true|label|target", first)
            ):
                yield call


@rule("evaluation-batch-count", "wrong")
def accuracy_over_batches(code):
    """`correct / len(loader)`: a number of samples divided by a number of batches."""
    for node in code.nodes:
        if (
            not isinstance(node, ast.BinOp)
            or not isinstance(node.op, ast.Div)
            or not isinstance(node.left, ast.Name)
        ):
            continue
        by = ast.unparse(node.right)
        if not re.fullmatch(r"len\([\w.]*(loader|_dl)\)", by):
            continue
        name = node.left.id
        adds = [
            n
            for n in code.nodes
            if isinstance(n, ast.AugAssign) and text(n.target) == name and n.scope is node.scope
        ]
        if any(
            re.search(r"==.*\.sum\(\)|\.eq\(.*\.sum\(\)|torch\.sum\(.*==", ast.unparse(n.value))
            and "/" not in ast.unparse(n.value)
            and "mean" not in ast.unparse(n.value)
            for n in adds
        ):
            yield node


@rule("evaluation-last-batch", "wrong")
def last_batch(code):
    """`loss / len(loader)` after the loop, where `loss` is that of the last batch."""
    summed = {(n.scope, text(n.target)) for n in code.of(ast.AugAssign)}
    for node in code.of(ast.BinOp):
        name = text(_number(node.left)) if isinstance(node.op, ast.Div) else None
        if not name or (node.scope, name) in summed:
            continue
        values = [one for one in node.scope.assigned.get(name, ()) if one.end < place(node)]
        loop = values[-1].statement.parent if values else None
        if not isinstance(loop, ast.For) or loop.end_lineno >= node.lineno:
            continue
        if batch_loop(code, loop) or code.methods(loop, "backward"):
            if _of_batch(code, values[-1].value, name) and _counts(node, summed):
                yield node


def _number(node):
    """`loss` of `loss.item()`, `loss.detach()` and the like."""
    while method(node) in ("item", "detach", "cpu", "float", "double") and receiver(node):
        node = receiver(node)
    return node


def _of_batch(code, value, name):
    """A loss, or a number of hits, of one batch only."""
    if isinstance(value, Part) or name in names_in(value):
        return False
    hits = method(value) == "sum" and any(isinstance(one, ast.Compare) for one in ast.walk(value))
    return hits or kind(code, _number(value)) == "loss"


def _counts(node, summed):
    """The divisor is a length, or a name that is counted up."""
    by = node.right
    length = isinstance(by, ast.Call) and text(by.func) == "len"
    return length or (node.scope, text(by)) in summed


@rule("evaluation-index-sum", "wrong")
def index_summed(code):
    """`batches += i` for `i, batch in enumerate(loader)`, and then a division by `batches`."""
    divisors = [n.right for n in code.of(ast.BinOp) if isinstance(n.op, ast.Div)]
    for node in code.of(ast.AugAssign):
        loop = next(above(node, ast.For), None)
        if loop is None or not isinstance(node.op, ast.Add) or not isinstance(node.value, ast.Name):
            continue
        pair = loop.target if isinstance(loop.target, ast.Tuple) else None
        counted = isinstance(loop.iter, ast.Call) and text(loop.iter.func) == "enumerate"
        if counted and pair is not None and text(pair.elts[0]) == node.value.id:
            name = text(node.target)
            if any(one.scope is node.scope and name in names_in(one) for one in divisors):
                yield node


@rule("evaluation-divided-twice", "wrong")
def divided_twice(code):
    """`total_loss = total_loss / n`, and `total_loss / n` again below."""
    for node in code.of(ast.Assign, ast.AugAssign):
        name, by = _divided(node)
        if not name or not re.search(r"(?i)loss|acc|err|total|avg|mean|running|metric", name):
            continue
        body = next((b for b in _bodies(node.parent) if node in b), ())
        for statement in body[body.index(node) + 1 :] if node in body else ():
            if any(text(n) == name for n in ast.walk(statement) if _is_stored(n)):
                break
            for one in ast.walk(statement):
                if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div):
                    if text(one.left) == name and ast.dump(one.right) == by:
                        yield one


def _divided(node):
    """Return the name and the divisor of `x = x / n` and `x /= n`."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    value = node.value
    if isinstance(node, ast.Assign):
        whole = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)
        if not whole or text(value.left) != text(target):
            return None, None
        value = value.right
    elif not isinstance(node.op, ast.Div):
        return None, None
    return (None, None) if isinstance(value, ast.Constant) else (text(target), ast.dump(value))


def _bodies(node):
    return [getattr(node, name, None) or [] for name in ("body", "orelse", "finalbody")]


def _is_stored(node):
    return isinstance(getattr(node, "ctx", None), ast.Store)


@rule("evaluation-best-on-test", "wrong")
def best_on_test(code):
    """The checkpoint is chosen on the test loader, on which the model is then evaluated again."""
    for node in code.of(ast.If):
        loops = list(above(node, *LOOPS))
        saved = any(method(c) in ("save", "deepcopy", "state_dict") for c in ast.walk(node))
        if not loops or not saved or not isinstance(node.test, ast.Compare):
            continue
        for name in (node.test.left, *node.test.comparators):
            value = code.value(name) if isinstance(name, ast.Name) else None
            value = value.value if isinstance(value, Part) else value
            loader = _test_loader(value)
            if loader and inside(value, loops[-1]) and _again(code, loader, loops[-1]):
                yield value


def _test_loader(value):
    for given in getattr(value, "args", ()) if isinstance(value, ast.Call) else ():
        if re.search(r"(?i)(^|[._])test_?\w*(loader|_dl)$", text(given) or ""):
            return text(given)
    return None


def _again(code, loader, loop):
    """A call after the loop gets the same loader."""
    return any(
        place(call) > (loop.end_lineno, 0) and loader in map(text, call.args)
        for call in code.calls
        if call.scope is loop.scope
    )


@rule("evaluation-batch-size", "wrong")
def batches_of_one_size(code):
    """`correct / (len(loader) * batch_size)`: the last batch is smaller."""
    if re.search(r"drop_last=True", code.source):
        return
    for node in code.of(ast.BinOp):
        by = node.right
        if not isinstance(node.op, ast.Div) or not isinstance(by, ast.BinOp):
            continue
        if isinstance(by.op, ast.Mult) and re.search(r"(?i)correct|hits|acc", ast.unparse(node)):
            sides = sorted((ast.unparse(by.left), ast.unparse(by.right)))
            if any(re.fullmatch(r"len\([\w.]*(loader|_dl)\)", one) for one in sides):
                if any(re.search(r"(?i)batch_?size$", one) for one in sides):
                    yield node


_HIGHER = re.compile(r"(?i)(^|[_/])(acc|accuracy|auc|auroc|f1|dice|m?iou|map|psnr|bleu)([_/\d]|$)")


@rule("evaluation-monitor-mode", "wrong")
def monitor_mode(code):
    """`ModelCheckpoint(monitor="val_acc")`: the default mode keeps the smallest value."""
    for call in code.calls:
        if method(call) not in ("ModelCheckpoint", "EarlyStopping") or is_open(call):
            continue
        name, mode = const(argument(call, "monitor", 0)), const(argument(call, "mode"))
        if not isinstance(name, str) or not re.search("lightning", code.called(call)):
            continue
        higher, lower = _HIGHER.search(name), re.search(r"(?i)loss|err", name)
        if higher and not lower and mode in (None, "min") or lower and mode == "max":
            yield call


@rule("evaluation-best-inverted", "wrong")
def best_inverted(code):
    """`if val_loss > best_loss: best_loss = val_loss`: the worst model is kept."""
    for node in code.of(ast.If):
        test = node.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        left, right = (text(one) or "" for one in (test.left, test.comparators[0]))
        up, best = isinstance(test.ops[0], ast.Gt | ast.GtE), right
        if re.search(r"(?i)best|min_|_min", left):
            up, best, left = isinstance(test.ops[0], ast.Lt | ast.LtE), left, right
        if not re.search(r"(?i)best", best) or "loss" not in left.lower() or not up:
            continue
        kept = any(
            isinstance(one, ast.Assign) and text(one.targets[0]) == best and text(one.value) == left
            for one in node.body
        )
        saved = any(method(one) in ("save", "state_dict", "deepcopy") for one in ast.walk(node))
        if (
            kept
            and saved
            and "loss" in best.lower()
            and not re.search(r"(?i)worst|neg|max", best + left)
        ):
            yield node


@rule("evaluation-max-values", "wrong")
def largest_value(code):
    """`torch.max(out, 1)[0] == y`: these are the largest logits, not their classes."""
    for node in code.of(ast.Compare):
        sides = [node.left, *node.comparators]
        if len(sides) != 2 or not isinstance(node.ops[0], ast.Eq):
            continue
        for one, other in (sides, sides[::-1]):
            if _is_maximum(code, one) and re.search(
                r"(?i)label|target|^ys?$|^y_|truth|^gt", text(_number(other)) or ""
            ):
                yield node


def _is_maximum(code, node):
    """The first part of what `torch.max(x, dim)` returns."""
    value = code.value(node) if isinstance(node, ast.Name) else node
    if isinstance(value, Part):
        value, first = value.value, value.index == 0
    elif isinstance(value, ast.Subscript):
        value, first = value.value, const(value.slice) == 0
    else:
        first = isinstance(value, ast.Attribute) and value.attr == "values"
        value = value.value if first else None
    if not first or method(value) != "max":
        return False
    given = value.args[1:] if code.called(value) == "torch.max" else value.args
    return bool(given and const(given[0]) in (1, -1)) or argument(value, "dim") is not None


@rule("evaluation-auc-classes", "wrong")
def auc_of_classes(code):
    """`roc_auc_score(y, out.argmax(1))`: it requires scores, not predicted classes."""
    for call in code.calls:
        name = code.called(call)
        if name in ("sklearn.metrics.roc_auc_score", "sklearn.metrics.average_precision_score"):
            given = argument(call, "y_score", 1)
            if given is not None and _is_class(code, given, 0):
                yield call


def _is_class(code, node, depth):
    """The index of the largest, or a comparison with a threshold, also through names."""
    while method(node) in ("cpu", "numpy", "tolist", "detach", "float", "long", "int", "astype"):
        node = receiver(node)
    if isinstance(node, ast.Name) and depth < 4:
        value = code.value(node)
        if isinstance(value, Part):
            return value.index == 1 and code.called(value.value) == "torch.max"
        return value is not None and _is_class(code, value, depth + 1)
    return method(node) in ("argmax", "round") or isinstance(node, ast.Compare)
