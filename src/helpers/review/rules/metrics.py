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
from helpers.review.tracing import is_activation


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
    """Return True for a model's output that is passed to a loss with logits, without a sigmoid."""
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
    """Return whether an output of the same model is an argument of a loss with logits."""
    for call in code.calls:
        logits = (
            code.called(call).endswith("with_logits")
            or kind(code, call.func) == "lossfn:BCEWithLogitsLoss"
        )
        if logits and call.args:
            given = call.args[0]
            value = code.resolved(given)
            while (
                method(value) in ("squeeze", "view", "flatten", "float")
                and receiver(value) is not None
            ):
                value = receiver(value)
            if isinstance(value, ast.Call) and text(value.func) == model:
                return True
    return False


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
    """Return whether a line other than the first assigns a number to the counter."""
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
    yield from _trained_in_all_phases(code)


def _trained_in_all_phases(code):
    """Yield the step of `for phase in ("train", "val"):` that no test of the phase guards."""
    for loop in code.of(ast.For):
        phases = [const(one) for one in getattr(loop.iter, "elts", ())]
        held = any(isinstance(one, str) and re.match(r"val|test|dev|eval", one) for one in phases)
        if "train" not in phases or not held or not isinstance(loop.target, ast.Name):
            continue
        tested = [
            one
            for one in code.walk(loop)
            if isinstance(one, ast.If | ast.IfExp) and loop.target.id in names_in(one.test)
        ]
        left = any(
            isinstance(inner, ast.Continue | ast.Break | ast.Return)
            for one in tested
            for inner in ast.walk(one)
        )
        for step in steps(code, loop):
            around = [one for one in above(step, ast.If) if inside(one, loop)]
            read = re.search(rf"\[{loop.target.id}\]", code.part(loop))
            if read and not around and not left and code.methods(loop, "backward"):
                yield step


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
    """`precision_score(y_pred, y_true)`: the arguments of scikit-learn are swapped."""
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


def tensor_of(node):
    """Return `loss` of `loss.item()`, `loss.detach()` and the like."""
    while method(node) in ("item", "detach", "cpu", "float", "double") and receiver(node):
        node = receiver(node)
    return node


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
    """Return whether a call after the loop receives the same loader."""
    return any(
        place(call) > (loop.end_lineno, 0) and loader in map(text, call.args)
        for call in code.calls
        if call.scope is loop.scope
    )


_HIGHER = re.compile(r"(?i)(^|[_/])(acc|accuracy|auc|auroc|f1|dice|m?iou|map|psnr|bleu)([_/\d]|$)")


@rule("evaluation-monitor-mode", "wrong")
def monitor_mode(code):
    """`ModelCheckpoint(monitor="val_acc")`: the default mode keeps the smallest value."""
    for call in code.calls:
        if _greater_is_worse(code, call):
            yield call
        if method(call) not in ("ModelCheckpoint", "EarlyStopping") or is_open(call):
            continue
        name, mode = code.const(argument(call, "monitor", 0)), code.const(argument(call, "mode"))
        if not isinstance(name, str) or not re.search("lightning", code.called(call)):
            continue
        higher, lower = _HIGHER.search(name), re.search(r"(?i)loss|err", name)
        if higher and not lower and mode in (None, "min") or lower and mode == "max":
            yield call


def _greater_is_worse(code, call):
    """Return True for `TrainingArguments(metric_for_best_model="loss", greater_is_better=True)`."""
    greater = code.const(argument(call, "greater_is_better"))
    name = code.const(argument(call, "metric_for_best_model"))
    if not isinstance(greater, bool) or not isinstance(name, str):
        return False
    lower = re.search(r"(?i)loss|err|wer\b|cer\b|perplex|mse|mae\b", name)
    return bool(lower) if greater else bool(_HIGHER.search(name)) and not lower


def _waits(statements):
    """Return whether the other branch counts the epochs without improvement."""
    return any(
        isinstance(one, ast.AugAssign)
        and re.search(r"(?i)counter|patience|wait|epochs|trigger|bad", text(one.target) or "")
        for one in statements
    )


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
        saved = saved or _waits(node.orelse)
        if (
            kept
            and saved
            and re.search(r"(?i)loss|(^|\.)best(_val(id)?)?$", best)
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
                r"(?i)label|target|^ys?$|^y_|truth|^gt", text(tensor_of(other)) or ""
            ):
                yield node


def _is_maximum(code, node):
    """Return True for the first result of `torch.max(x, dim)`."""
    value = code.resolved(node)
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
    """Return True for an argmax or a comparison with a threshold, even through names."""
    while method(node) in ("cpu", "numpy", "tolist", "detach", "float", "long", "int", "astype"):
        node = receiver(node)
    if isinstance(node, ast.Name) and depth < 4:
        value = code.value(node)
        if isinstance(value, Part):
            return value.index == 1 and code.called(value.value) == "torch.max"
        return value is not None and _is_class(code, value, depth + 1)
    return method(node) in ("argmax", "round") or isinstance(node, ast.Compare)


def single_samples(code):
    """Return whether a loader of the file has batches of one sample."""
    return re.search(r"batch_size ?= ?1\b|DataLoader\([\w.]+(, 1)?\)", code.source) is not None


@rule("evaluation-argmax-all", "wrong", "argmax")
def argmax_of_batch(code):
    """`(torch.argmax(output) == labels).sum()`: one index for the whole batch."""
    if single_samples(code):
        return  # the index is the class
    for call in code.calls:
        if method(call) != "argmax" or code.called(call) not in ("", "torch.argmax"):
            continue
        given = (call.args[0] if call.args else None) if code.called(call) else receiver(call)
        whole = not call.keywords and len(call.args) == bool(code.called(call))
        output = code.resolved(given)
        if not whole or not isinstance(output, ast.Call) or not is_model(code, output.func):
            continue
        loops = [one for one in above(call, *LOOPS) if batch_loop(code, one)]
        if loops and _counted_matches(code, call):
            yield call


def _counted_matches(code, call):
    """Return whether the result is compared, and the matches are summed."""
    up = call.parent
    names = [text(one) for one in getattr(up, "targets", ())]
    uses = [one for name in names if name for one in code.uses(call.scope, name)] or [call]
    uses = [one.parent if getattr(one.parent, "attr", "") == "eq" else one for one in uses]
    return any(
        (isinstance(one.parent, ast.Compare) or method(one.parent) == "eq")
        and isinstance(one.parent.parent, ast.Attribute)
        and one.parent.parent.attr == "sum"
        for one in uses
    )
