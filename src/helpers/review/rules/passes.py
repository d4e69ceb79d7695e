"""Loops over the data that empty lists, return early, repeat seeds or average metrics."""

import ast
import re

from helpers.review.flow import events
from helpers.review.kinds import batch_loop, is_loader, iterated
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    method,
    name_of,
    place,
    receiver,
)


@rule("evaluation-emptied", "wrong")
def emptied_in_loop(code):
    """`scores = []` in the loop over the batches, `scores.append(…)`, and a mean below the loop."""
    for loop in code.loops:
        if not isinstance(loop, ast.For) or not batch_loop(code, loop):
            continue
        if any(isinstance(node, ast.Break | ast.Return | ast.Yield) for node in code.walk(loop)):
            continue
        for statement in loop.body:
            for name in _emptied(statement):
                if _only_added(code, loop, statement, name) and _averaged_below(code, loop, name):
                    yield statement


def _emptied(statement):
    """Yield the names of `x = []`, `x, n = 0, 0` and `x = 0.0`."""
    if not isinstance(statement, ast.Assign):
        return
    target, value = statement.targets[0], statement.value
    pair = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    several = pair and len(target.elts) == len(value.elts)
    for target_node, assigned_value in (
        zip(target.elts, value.elts, strict=True) if several else ((target, value),)
    ):
        zero = const(assigned_value) == 0 and const(assigned_value) is not False
        if isinstance(target_node, ast.Name) and (
            zero or isinstance(assigned_value, ast.List) and not assigned_value.elts
        ):
            yield target_node.id


def _only_added(code, loop, first, name):
    """Return whether the loop adds to a name once, in its own body, and reads it nowhere else."""
    nodes = [node for node in code.walk(loop) if isinstance(node, ast.Name) and node.id == name]
    added = [
        node for node in nodes if _is_addition(node) and next(ancestors(node, *LOOPS), None) is loop
    ]
    return len(added) == 1 and all(node is added[0] or is_inside(node, first) for node in nodes)


def _is_addition(name):
    """Return True for `name` in `name += x` and in the statement `name.append(x)`."""
    parent = name.parent
    if isinstance(parent, ast.AugAssign):
        return parent.target is name and isinstance(parent.op, ast.Add)
    call = (
        isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend") and parent.parent
    )
    return isinstance(call, ast.Call) and call.func is parent and isinstance(call.parent, ast.Expr)


def _averaged_below(code, loop, name):
    """Return whether `sum(name)`, `np.mean(name)`, `name / total` or the like follows the loop."""
    for use in code.uses(loop.scope, name):
        if use.lineno <= loop.end_lineno or code.function_of(use) is not code.function_of(loop):
            continue
        last = code.assigned_before(loop.scope, name, use)
        if not last or not is_inside(last[-1].statement, loop):
            continue
        parent = use.parent
        if isinstance(parent, ast.Call) and use in parent.args:
            return method(parent) in (
                "sum",
                "mean",
                "cat",
                "stack",
                "concatenate",
                "vstack",
                "average",
            )
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div):
            return parent.left is use
        return False
    return False


@rule("evaluation-left-early", "wrong", "return")
def returns_in_loop(code):
    """`return correct / total` in the loop over the batches: it returns after the first one."""
    for loop in code.loops:
        last = loop.body[-1]
        if not isinstance(loop, ast.For) or not isinstance(last, ast.Return):
            continue
        if not is_loader(code, iterated(loop.iter)) or len(loop.body) < 2:
            continue
        if any(isinstance(node, ast.Continue | ast.Break) for node in code.walk(loop)):
            continue
        added = {
            name_of(statement.target)
            for statement in code.walk(loop)
            if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add)
        }
        added |= {name_of(receiver(call)) for call in code.methods(loop, "append", "extend")}
        read = {
            name_of(node)
            for node in descendants(last)
            if isinstance(node, ast.Name | ast.Attribute)
        }
        if added & read - {None} or _divides_by_length(code, loop, last):
            yield last


def _divides_by_length(code, loop, last):
    """Return whether the returned value is divided by the length of the loop's loader."""
    value = code.value(last.value) if isinstance(last.value, ast.Name) else last.value
    name = name_of(iterated(loop.iter))
    divisors = [
        operation.right
        for operation in (descendants(value) if isinstance(value, ast.AST) else ())
        if isinstance(operation, ast.BinOp) and isinstance(operation.op, ast.Div)
    ]
    return any(
        method(divisor) == "len" and divisor.args and name_of(divisor.args[0]) == name
        for divisor in divisors
    )


@rule("loading-iterator-spent", "wrong", "iter(|zip(|enumerate(|tqdm(|map(")
def iterator_in_epochs(code):
    """`batches = iter(loader)` before the epochs, and `for x, y in batches` in each of them."""
    for loop in code.loops:
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Name):
            continue
        values = loop.scope.assigned.get(loop.iter.id, ())
        outer = [*ancestors(loop, *LOOPS)]
        if len(values) != 1 or not outer or values[0].end > place(outer[-1]):
            continue
        source = values[0].value
        once = isinstance(source, ast.Call) and name_of(source.func) in ("iter", "zip", "enumerate")
        if (
            not once
            or len([*ancestors(values[0].statement, *LOOPS)])
            or not isinstance(outer[-1], ast.For)
        ):
            continue
        if any(isinstance(node, ast.Break | ast.Return) for node in code.walk(outer[-1])):
            continue
        if any(is_loader(code, iterated(arg)) for arg in source.args):
            yield loop


_OF_ALL = re.compile(
    r"sklearn\.metrics\.(\w+\.)?(f1_score|fbeta_score|precision_score|recall_score|roc_auc_score|"
    r"average_precision_score|r2_score|matthews_corrcoef|cohen_kappa_score|"
    r"balanced_accuracy_score|jaccard_score)$"
)


@rule("evaluation-f1-of-batches", "wrong", "_score|sqrt|corrcoef|iou|IoU|f1|F1|accard|recall")
def metric_of_batches(code):
    """`f1 += f1_score(y, pred)` for each batch, divided by `len(loader)`."""
    for call in code.calls:
        loop = next(ancestors(call, ast.For), None)
        if loop is None or not batch_loop(code, loop) or not _not_additive(code, call):
            continue
        name = _collected(code, call, loop)
        if name and not _within_groups(code, loop) and _mean_below(code, loop, name):
            yield call


def _not_additive(code, call):
    """Return True for a score of scikit-learn, and the root of a mean squared error."""
    if _OF_ALL.match(code.dotted(call.func) or ""):
        return True
    if _quotient_of_sums(code, call):
        return True
    if method(call) != "sqrt":
        return False
    operand = call.args[0] if call.args else receiver(call)
    operand = code.resolved(operand) if isinstance(operand, ast.AST) else None
    operand = receiver(operand) if method(operand) == "item" else operand
    operand = code.resolved(operand) if isinstance(operand, ast.AST) else None
    if not isinstance(operand, ast.Call):
        return False
    maker = code.resolved(operand.func) if not code.called(operand) else None
    name = code.called(maker) if isinstance(maker, ast.Call) else code.called(operand)
    if argument(maker if isinstance(maker, ast.Call) else operand, "reduction") is not None:
        return False
    return name in ("F.mse_loss", "nn.MSELoss", "sklearn.metrics.mean_squared_error")


def _quotient_of_sums(code, call):
    """Return True for a local `iou` that returns `inter.sum() / union.sum()` of a whole batch."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    function = code.functions.get((None, name))
    named = re.search(r"(?i)(^|_)(iou|jaccard|f1|precision|recall)(_|$)", name)
    if function is None or not named or re.search(r"(?i)box|nms|giou", name):
        return False
    if _mean_of_classes(code, function):
        return True
    values = code.return_values(function)
    value = values[0] if len(values) == 1 else None
    while method(value) in ("item", "float", "mean") and receiver(value) is not None:
        value = receiver(value)
    value = code.resolved(value) if isinstance(value, ast.Name) else value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return False
    sums = code.methods(function, "sum")
    is_quotient = len(sums) > 1 and not any(sum_call.args or sum_call.keywords for sum_call in sums)
    return is_quotient and not any(isinstance(node, LOOPS) for node in code.walk(function))


def _mean_of_classes(code, function):
    """Return True for a function that returns the mean of `inter / union` of each class."""
    loops = [loop for loop in code.walk(function) if isinstance(loop, LOOPS)]
    if len(loops) != 1 or not re.match(
        r"for (c|cls|cl|k|i|class_?\w*|label|lab) in range\((1, )?\w*(cls|class)\w*\)",
        code.source_of(loops[0]).lstrip(),
    ):
        return False
    added = [call.args[0] for call in code.methods(loops[0], "append") if call.args]
    value = added[-1] if added else None
    value = code.resolved(value) if isinstance(value, ast.Name) else value
    value = value.args[0] if name_of(getattr(value, "func", None)) == "float" else value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return False
    sums = code.methods(loops[0], "sum")
    is_quotient = len(sums) > 1 and not any(sum_call.args or sum_call.keywords for sum_call in sums)
    values = code.return_values(function)
    return (
        is_quotient
        and len(values) == 1
        and bool(re.search(r"mean\(|sum\(.*/", ast.unparse(values[0])))
    )


def _collected(code, call, loop):
    """Return the name to which `name += score` or `name.append(score)` in the loop adds."""
    node = call
    while isinstance(node.parent, ast.Attribute | ast.Call) and node in (
        getattr(node.parent, "value", None),
        getattr(node.parent, "func", None),
        *(getattr(node.parent, "args", ()) if method(node.parent) == "float" else ()),
    ):
        node = node.parent
    parent = node.parent
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        name = parent.targets[0].id
        for child in code.walk(loop):
            if isinstance(child, ast.Name) and child.id == name and isinstance(child.ctx, ast.Load):
                addition = _adds_to(child.parent, child)
                if addition is None and isinstance(child.parent, ast.Attribute):
                    item = child.parent.parent  # `score.item()`
                    addition = _adds_to(item.parent, item) if isinstance(item, ast.Call) else None
                if addition:
                    return addition
        return None
    return _adds_to(parent, node)


def _adds_to(parent, node):
    if (
        isinstance(parent, ast.AugAssign)
        and isinstance(parent.op, ast.Add)
        and parent.value is node
    ):
        return name_of(parent.target)
    if method(parent) == "append" and node in parent.args:
        return name_of(receiver(parent))
    return None


def _within_groups(code, loop):
    """Return whether the batches are groups, such as folds, subjects and classes."""
    return re.search(
        r"(?i)fold|subject|patient|class|client|task|query|batch_size=1\b|video|user",
        ast.unparse(loop.target) + ast.unparse(loop.iter),
    ) or re.search(r"batch_size\s*=\s*(1\b|len\()", code.source)


def _mean_below(code, loop, name):
    """Return whether `name / len(loader)`, `np.mean(name)` or the like follows the loop."""
    quoted = re.escape(name)
    mean = re.compile(
        rf"\b{quoted} / |\b{quoted} /= |mean\({quoted}\)|sum\({quoted}\) / |average\({quoted}\)"
        rf"|mean\((torch|np|numpy)\.(tensor|array|stack)\({quoted}\)"
    )
    function = code.function_of(loop)
    return any(
        mean.search(ast.unparse(statement))
        for statement in code.walk(function)
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.Return | ast.Expr)
        and statement.lineno > loop.end_lineno
    )


@rule("training-accumulate-first", "wrong", "%")
def steps_at_zero(code):
    """`if i % 4 == 0: optimizer.step()` with `i` from 0: the first step has a single batch."""
    for node in code.nodes_of(ast.If):
        loop = next(ancestors(node, *LOOPS), None)
        counter, _every = _modulo_operands(node.test)
        if not isinstance(loop, ast.For) or node not in loop.body or counter is None:
            continue
        if counter != _counter_name(loop) or node.orelse:
            continue
        inner = [event.kind for s in node.body for event in events(code, s, 0)]
        stepped = {"step", "scaled"} & {*inner}
        if not stepped or "zero_grad" not in inner or "backward" in inner:
            continue
        before = [
            event.kind for s in loop.body[: loop.body.index(node)] for event in events(code, s, 1)
        ]
        rest = [s for s in loop.body if s is not node]
        others = {event.kind for s in rest for event in events(code, s, 1)}
        if "backward" in before and not others & {"step", "scaled", "zero_grad"}:
            yield node


def _modulo_operands(test):
    """Return `i` and `n` of `i % n == 0`."""
    tests = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    for condition in tests:
        if (
            isinstance(condition, ast.Compare)
            and len(condition.ops) == 1
            and isinstance(condition.ops[0], ast.Eq)
        ):
            left = condition.left
            if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
                if const(condition.comparators[0]) == 0 and isinstance(left.left, ast.Name):
                    if const(left.right) != 1:
                        return left.left.id, left.right
    return None, None


def _counter_name(loop):
    """Return the name that counts the batches of a loop from 0."""
    iterable, target = loop.iter, loop.target
    while method(iterable) in ("tqdm", "list", "track") and iterable.args:
        iterable = iterable.args[0]
    if not isinstance(iterable, ast.Call) or not isinstance(iterable.func, ast.Name):
        return None
    if iterable.func.id == "enumerate" and isinstance(target, ast.Tuple):
        start = argument(iterable, "start", 1)
        return name_of(target.elts[0]) if start is None or const(start) == 0 else None
    return None


SEEDS = {
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "numpy.random.seed",
    "random.seed",
}


def _seeds_with_constant(code, call):
    """Return whether a call seeds a generator with a number that is the same in each call."""
    if code.dotted(call.func) not in SEEDS and code.called(call) not in SEEDS:
        return False
    operand = call.args[0] if len(call.args) == 1 else None
    return isinstance(const(operand), int)


@rule("repro-reseed", "wrong", "seed(")
def seeded_in_loop(code):
    """`torch.manual_seed(0)` in the loop over the batches, or in `__getitem__`."""
    for call in code.calls:
        if not _seeds_with_constant(code, call) or any(ancestors(call, ast.If, ast.With, ast.Try)):
            continue
        function = code.function_of(call)
        if getattr(function, "name", "") == "__getitem__":
            if not re.search(r"get_state|getstate|fork_rng", code.source_of(function)):
                if not _same_for_pair(code, function):
                    yield call
            continue
        loop = next(ancestors(call, *LOOPS), None)
        epochs = isinstance(loop, ast.For) and re.fullmatch(
            r"(?i)\w*epoch\w*", name_of(loop.target) or ""
        )
        if loop is None or not (epochs or batch_loop(code, loop)):
            continue
        if code.methods(loop, "backward", follow=3) and not re.search(
            r"get_(rng_)?state|fork_rng", code.source_of(loop)
        ):
            yield call


def _same_for_pair(code, function):
    """Return whether two calls use one seed, to transform an image and its mask alike."""
    seeds = [
        call for call in code.calls if call.scope is function and _seeds_with_constant(code, call)
    ]
    names = [code.dotted(seed.func) for seed in seeds]
    return len(names) != len({*names})


@rule("names-default-list", "wrong", "=[]|= []|={}|= {}")
def default_list(code):
    """`def evaluate(model, losses=[])` and `losses.append(…)`: all calls share the list."""
    for function in code.nodes_of(*FUNCTIONS):
        signature = function.args
        names = [parameter.arg for parameter in (*signature.posonlyargs, *signature.args)]
        pairs = [
            *zip(names[len(names) - len(signature.defaults) :], signature.defaults, strict=True)
        ]
        pairs += [
            (a.arg, d) for a, d in zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
        ]
        for name, default in pairs:
            if not isinstance(default, ast.List) or default.elts or name in function.assigned:
                continue
            if _default_grows(code, function, name) and _called_often(code, function, name):
                yield default


def _default_grows(code, function, name):
    added = [
        call
        for call in code.methods(function, "append", "extend")
        if name_of(receiver(call)) == name
    ]
    memo = re.search(
        rf"len\({name}\) == 0|if not {name}|if {name}:|{name}\.clear\(",
        "\n".join(ast.unparse(statement) for statement in function.body),
    )
    return bool(added) and not memo


def _called_often(code, function, name):
    """Return whether two calls of the file, or one in a loop, use the default."""
    calls = [
        call
        for call in code.callers.get(function, ())
        if not any(k.arg in (name, None) for k in call.keywords)
        and not any(isinstance(a, ast.Starred) for a in call.args)
        and len(call.args) <= _position_of_parameter(function, name)
    ]
    return len(calls) > 1 or any(any(ancestors(call, *LOOPS)) for call in calls)


def _position_of_parameter(function, name):
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    if name not in names:
        return len(names)
    return names.index(name) - (names[:1] == ["self"])
