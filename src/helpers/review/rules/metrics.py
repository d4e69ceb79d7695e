"""Metrics that are computed from the wrong numbers."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import batch_loop, is_model, iterated, kind, steps
from helpers.review.registry import rule
from helpers.review.syntax import (
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    is_open,
    method,
    name_of,
    names_in,
    place,
    receiver,
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
    for call in code.calls_named("round"):
        if _is_logit(code, _rounded(code, call)):
            yield call


def _rounded(code, call):
    if code.called(call) == "torch.round" and call.args:
        return call.args[0]
    return receiver(call) if not code.called(call) else None


def _unreshaped(node):
    for _ in range(4):
        if (
            method(node) in ("squeeze", "view", "flatten", "detach", "cpu", "float")
            and receiver(node) is not None
        ):
            node = receiver(node)
    return node


def _is_logit(code, node):
    """Return True for a model's output that is passed to a loss with logits, without a sigmoid."""
    node = _unreshaped(node)
    name = name_of(node)
    value = _unreshaped(code.value(node) if name else node)
    if not isinstance(value, ast.Call) or not is_model(code, value.func):
        return False
    if is_activation(code, node, {"sigmoid", "softmax"}):
        return False
    return _goes_to_logit_loss(code, name_of(value.func))


def _goes_to_logit_loss(code, model):
    """Return whether an output of the same model is an argument of a loss with logits."""
    for call in code.calls:
        logits = (
            code.called(call).endswith("with_logits")
            or kind(code, call.func) == "lossfn:BCEWithLogitsLoss"
        )
        if logits and call.args:
            operand = call.args[0]
            value = code.resolved(operand)
            while (
                method(value) in ("squeeze", "view", "flatten", "float")
                and receiver(value) is not None
            ):
                value = receiver(value)
            if isinstance(value, ast.Call) and name_of(value.func) == model:
                return True
    return False


@rule("training-patience-kept", "wrong")
def patience_not_reset(code):
    """`else: bad += 1` and `if bad >= patience`, and no line sets `bad` to 0 again."""
    for node in code.nodes_of(ast.AugAssign):
        name, branch = name_of(node.target), node.parent
        counts = isinstance(node.op, ast.Add) and const(node.value) == 1 and name
        if not counts or not isinstance(branch, ast.If) or node not in branch.orelse:
            continue
        if not any(isinstance(child, ast.Compare) for child in descendants(branch.test)):
            continue
        best = {n for n in names_in(branch.test) if re.search(r"(?i)best|min|max", n)}
        renewed = {name_of(t) for s in branch.body if isinstance(s, ast.Assign) for t in s.targets}
        if best & renewed and _compared_with_patience(code, name) and not _counter_is_reset(node):
            yield node


def _compared_with_patience(code, name):
    return any(
        name in names_in(comparison.left)
        and re.search(r"(?i)patience|stop", ast.unparse(comparison))
        for comparison in code.nodes_of(ast.Compare)
    )


def _counter_is_reset(node):
    """Return whether a line other than the first assigns a number to the counter."""
    name = name_of(node.target)
    values = list(node.scope.assigned.get(name, ()))
    if name.startswith("self.") and node.owner is not None:
        values = list(node.owner.attributes.get(name, ()))
    return len(values) > 1 or not values


@rule("evaluation-train-on-test", "wrong")
def trained_on_test(code):
    """`for x, y in test_loader:` with `backward()` and `step()`: trained on the test data."""
    apart = r"(?i)adapt|attack|adv|tent|tta|meta|finetun|fine_tun|personal|episode|support|task"
    for loop in code.nodes_of(ast.For):
        iterable = ast.unparse(iterated(loop.iter))
        name = re.search(
            r"(?i)(^|[._])test(ing)?_?(loader|dl|dataloader|indices|idx|iter|set)$", iterable
        )
        if not name or re.search(apart, code.source):
            continue
        step_calls = [c for c in steps(code, loop) if next(ancestors(c, *LOOPS), None) is loop]
        backward_calls = [
            c for c in code.methods(loop, "backward") if next(ancestors(c, *LOOPS), None) is loop
        ]
        if step_calls and backward_calls and not any(ancestors(step_calls[0], ast.If)):
            yield loop
    yield from _trained_in_all_phases(code)


def _trained_in_all_phases(code):
    """Yield the step of `for phase in ("train", "val"):` that no test of the phase guards."""
    for loop in code.nodes_of(ast.For):
        phases = [const(element) for element in getattr(loop.iter, "elts", ())]
        held = any(
            isinstance(phase, str) and re.match(r"val|test|dev|eval", phase) for phase in phases
        )
        if "train" not in phases or not held or not isinstance(loop.target, ast.Name):
            continue
        tested = [
            node
            for node in code.walk(loop)
            if isinstance(node, ast.If | ast.IfExp) and loop.target.id in names_in(node.test)
        ]
        left = any(
            isinstance(inner, ast.Continue | ast.Break | ast.Return)
            for node in tested
            for inner in descendants(node)
        )
        for step in steps(code, loop):
            branches = [branch for branch in ancestors(step, ast.If) if is_inside(branch, loop)]
            read = re.search(rf"\[{loop.target.id}\]", code.source_of(loop))
            if read and not branches and not left and code.methods(loop, "backward"):
                yield step


@rule("evaluation-sigmoid-zero", "wrong")
def probability_above_zero(code):
    """`torch.sigmoid(x) > 0`: a probability is always above 0."""
    for node in code.nodes_of(ast.Compare):
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
            first, second = (name_of(arg) or "" for arg in call.args[:2])
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
    for node in code.nodes_of(ast.If):
        loops = list(ancestors(node, *LOOPS))
        saved = any(method(c) in ("save", "deepcopy", "state_dict") for c in descendants(node))
        if not loops or not saved or not isinstance(node.test, ast.Compare):
            continue
        for name in (node.test.left, *node.test.comparators):
            value = code.value(name) if isinstance(name, ast.Name) else None
            value = value.value if isinstance(value, Part) else value
            loader = _test_loader(value)
            if loader and is_inside(value, loops[-1]) and _is_read_again(code, loader, loops[-1]):
                yield value


def _test_loader(value):
    for arg in getattr(value, "args", ()) if isinstance(value, ast.Call) else ():
        if re.search(r"(?i)(^|[._])test_?\w*(loader|_dl)$", name_of(arg) or ""):
            return name_of(arg)
    return None


def _is_read_again(code, loader, loop):
    """Return whether a call after the loop receives the same loader."""
    return any(
        place(call) > (loop.end_lineno, 0) and loader in map(name_of, call.args)
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
        isinstance(statement, ast.AugAssign)
        and re.search(
            r"(?i)counter|patience|wait|epochs|trigger|bad", name_of(statement.target) or ""
        )
        for statement in statements
    )


@rule("evaluation-best-inverted", "wrong")
def best_inverted(code):
    """`if val_loss > best_loss: best_loss = val_loss`: the worst model is kept."""
    for node in code.nodes_of(ast.If):
        test = node.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        left, right = (name_of(side) or "" for side in (test.left, test.comparators[0]))
        increases, best = isinstance(test.ops[0], ast.Gt | ast.GtE), right
        if re.search(r"(?i)best|min_|_min", left):
            increases, best, left = isinstance(test.ops[0], ast.Lt | ast.LtE), left, right
        if not re.search(r"(?i)best", best) or "loss" not in left.lower() or not increases:
            continue
        kept = any(
            isinstance(statement, ast.Assign)
            and name_of(statement.targets[0]) == best
            and name_of(statement.value) == left
            for statement in node.body
        )
        saved = any(
            method(child) in ("save", "state_dict", "deepcopy") for child in descendants(node)
        )
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
    for node in code.nodes_of(ast.Compare):
        sides = [node.left, *node.comparators]
        if len(sides) != 2 or not isinstance(node.ops[0], ast.Eq):
            continue
        for side, other in (sides, sides[::-1]):
            if _is_maximum(code, side) and re.search(
                r"(?i)label|target|^ys?$|^y_|truth|^gt", name_of(tensor_of(other)) or ""
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
    arguments = value.args[1:] if code.called(value) == "torch.max" else value.args
    return bool(arguments and const(arguments[0]) in (1, -1)) or argument(value, "dim") is not None


@rule("evaluation-auc-classes", "wrong")
def auc_of_classes(code):
    """`roc_auc_score(y, out.argmax(1))`: it requires scores, not predicted classes."""
    for call in code.calls:
        name = code.called(call)
        if name in ("sklearn.metrics.roc_auc_score", "sklearn.metrics.average_precision_score"):
            y_score = argument(call, "y_score", 1)
            if y_score is not None and _is_class(code, y_score, 0):
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
    for call in code.calls_named("argmax"):
        if code.called(call) not in ("", "torch.argmax"):
            continue
        operand = (call.args[0] if call.args else None) if code.called(call) else receiver(call)
        reduces_all = not call.keywords and len(call.args) == bool(code.called(call))
        output = code.resolved(operand)
        if not reduces_all or not isinstance(output, ast.Call) or not is_model(code, output.func):
            continue
        loops = [loop for loop in ancestors(call, *LOOPS) if batch_loop(code, loop)]
        if loops and _counted_matches(code, call):
            yield call


def _counted_matches(code, call):
    """Return whether the result is compared, and the matches are summed."""
    parent = call.parent
    names = [name_of(target) for target in getattr(parent, "targets", ())]
    uses = [use for name in names if name for use in code.uses(call.scope, name)] or [call]
    uses = [use.parent if getattr(use.parent, "attr", "") == "eq" else use for use in uses]
    return any(
        (isinstance(use.parent, ast.Compare) or method(use.parent) == "eq")
        and isinstance(use.parent.parent, ast.Attribute)
        and use.parent.parent.attr == "sum"
        for use in uses
    )
