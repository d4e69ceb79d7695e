"""Loops over the data that empty lists, return early, repeat seeds or average metrics."""

import ast
import re

from helpers.review.flow import events
from helpers.review.kinds import batch_loop, is_loader, iterated, returns
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    above,
    argument,
    const,
    inside,
    method,
    place,
    receiver,
    text,
)


@rule("evaluation-emptied", "wrong")
def emptied_in_loop(code):
    """`scores = []` in the loop over the batches, `scores.append(…)`, and a mean below the loop."""
    for loop in code.loops:
        if not isinstance(loop, ast.For) or not batch_loop(code, loop):
            continue
        if any(isinstance(one, ast.Break | ast.Return | ast.Yield) for one in code.walk(loop)):
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
    for one, given in zip(target.elts, value.elts, strict=True) if several else ((target, value),):
        zero = const(given) == 0 and const(given) is not False
        if isinstance(one, ast.Name) and (zero or isinstance(given, ast.List) and not given.elts):
            yield one.id


def _only_added(code, loop, first, name):
    """Return whether the loop adds to a name once, in its own body, and reads it nowhere else."""
    nodes = [one for one in code.walk(loop) if isinstance(one, ast.Name) and one.id == name]
    added = [one for one in nodes if _adds(one) and next(above(one, *LOOPS), None) is loop]
    return len(added) == 1 and all(one is added[0] or inside(one, first) for one in nodes)


def _adds(name):
    """Return True for `name` in `name += x` and in the statement `name.append(x)`."""
    up = name.parent
    if isinstance(up, ast.AugAssign):
        return up.target is name and isinstance(up.op, ast.Add)
    call = isinstance(up, ast.Attribute) and up.attr in ("append", "extend") and up.parent
    return isinstance(call, ast.Call) and call.func is up and isinstance(call.parent, ast.Expr)


def _averaged_below(code, loop, name):
    """Return whether `sum(name)`, `np.mean(name)`, `name / total` or the like follows the loop."""
    for one in code.uses(loop.scope, name):
        if one.lineno <= loop.end_lineno or code.function(one) is not code.function(loop):
            continue
        last = [v for v in loop.scope.assigned.get(name, ()) if v.end < place(one)]
        if not last or not inside(last[-1].statement, loop):
            continue
        up = one.parent
        if isinstance(up, ast.Call) and one in up.args:
            return method(up) in ("sum", "mean", "cat", "stack", "concatenate", "vstack", "average")
        if isinstance(up, ast.BinOp) and isinstance(up.op, ast.Div):
            return up.left is one
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
        if any(isinstance(one, ast.Continue | ast.Break) for one in code.walk(loop)):
            continue
        added = {
            text(one.target)
            for one in code.walk(loop)
            if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add)
        }
        added |= {text(receiver(one)) for one in code.methods(loop, "append", "extend")}
        read = {text(one) for one in ast.walk(last) if isinstance(one, ast.Name | ast.Attribute)}
        if added & read - {None} or _divides_by_length(code, loop, last):
            yield last


def _divides_by_length(code, loop, last):
    """Return whether the returned value is divided by the length of the loop's loader."""
    value = code.value(last.value) if isinstance(last.value, ast.Name) else last.value
    over = text(iterated(loop.iter))
    divisors = [
        one.right
        for one in (ast.walk(value) if isinstance(value, ast.AST) else ())
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)
    ]
    return any(method(one) == "len" and one.args and text(one.args[0]) == over for one in divisors)


@rule("loading-iterator-spent", "wrong", "iter(|zip(|enumerate(|tqdm(|map(")
def iterator_in_epochs(code):
    """`batches = iter(loader)` before the epochs, and `for x, y in batches` in each of them."""
    for loop in code.loops:
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Name):
            continue
        values = loop.scope.assigned.get(loop.iter.id, ())
        outer = [*above(loop, *LOOPS)]
        if len(values) != 1 or not outer or values[0].end > place(outer[-1]):
            continue
        source = values[0].value
        once = isinstance(source, ast.Call) and text(source.func) in ("iter", "zip", "enumerate")
        if (
            not once
            or len([*above(values[0].statement, *LOOPS)])
            or not isinstance(outer[-1], ast.For)
        ):
            continue
        if any(isinstance(one, ast.Break | ast.Return) for one in code.walk(outer[-1])):
            continue
        if any(is_loader(code, iterated(one)) for one in source.args):
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
        loop = next(above(call, ast.For), None)
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
    given = call.args[0] if call.args else receiver(call)
    given = code.resolved(given) if isinstance(given, ast.AST) else None
    given = receiver(given) if method(given) == "item" else given
    given = code.resolved(given) if isinstance(given, ast.AST) else None
    if not isinstance(given, ast.Call):
        return False
    maker = code.resolved(given.func) if not code.called(given) else None
    name = code.called(maker) if isinstance(maker, ast.Call) else code.called(given)
    if argument(maker if isinstance(maker, ast.Call) else given, "reduction") is not None:
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
    values = returns(code, function)
    value = values[0] if len(values) == 1 else None
    while method(value) in ("item", "float", "mean") and receiver(value) is not None:
        value = receiver(value)
    value = code.resolved(value) if isinstance(value, ast.Name) else value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return False
    sums = code.methods(function, "sum")
    whole = len(sums) > 1 and not any(one.args or one.keywords for one in sums)
    return whole and not any(isinstance(one, LOOPS) for one in code.walk(function))


def _mean_of_classes(code, function):
    """Return True for a function that returns the mean of `inter / union` of each class."""
    loops = [one for one in code.walk(function) if isinstance(one, LOOPS)]
    if len(loops) != 1 or not re.match(
        r"for (c|cls|cl|k|i|class_?\w*|label|lab) in range\((1, )?\w*(cls|class)\w*\)",
        code.part(loops[0]).lstrip(),
    ):
        return False
    added = [one.args[0] for one in code.methods(loops[0], "append") if one.args]
    value = added[-1] if added else None
    value = code.resolved(value) if isinstance(value, ast.Name) else value
    value = value.args[0] if text(getattr(value, "func", None)) == "float" else value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return False
    sums = code.methods(loops[0], "sum")
    whole = len(sums) > 1 and not any(one.args or one.keywords for one in sums)
    values = returns(code, function)
    return (
        whole and len(values) == 1 and bool(re.search(r"mean\(|sum\(.*/", ast.unparse(values[0])))
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
    up = node.parent
    if isinstance(up, ast.Assign) and len(up.targets) == 1 and isinstance(up.targets[0], ast.Name):
        name = up.targets[0].id
        for one in code.walk(loop):
            if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load):
                found = _adds_to(one.parent, one)
                if found is None and isinstance(one.parent, ast.Attribute):
                    item = one.parent.parent  # `score.item()`
                    found = _adds_to(item.parent, item) if isinstance(item, ast.Call) else None
                if found:
                    return found
        return None
    return _adds_to(up, node)


def _adds_to(up, node):
    if isinstance(up, ast.AugAssign) and isinstance(up.op, ast.Add) and up.value is node:
        return text(up.target)
    if method(up) == "append" and node in up.args:
        return text(receiver(up))
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
    around = code.function(loop)
    return any(
        mean.search(ast.unparse(one))
        for one in code.walk(around)
        if isinstance(one, ast.Assign | ast.AugAssign | ast.Return | ast.Expr)
        and one.lineno > loop.end_lineno
    )


@rule("training-accumulate-first", "wrong", "%")
def steps_at_zero(code):
    """`if i % 4 == 0: optimizer.step()` with `i` from 0: the first step has a single batch."""
    for node in code.of(ast.If):
        loop = next(above(node, *LOOPS), None)
        counter, _every = _counted(node.test)
        if not isinstance(loop, ast.For) or node not in loop.body or counter is None:
            continue
        if counter != _index(loop) or node.orelse:
            continue
        inner = [one.what for s in node.body for one in events(code, s, 0)]
        stepped = {"step", "scaled"} & {*inner}
        if not stepped or "zero_grad" not in inner or "backward" in inner:
            continue
        before = [
            one.what for s in loop.body[: loop.body.index(node)] for one in events(code, s, 1)
        ]
        rest = [s for s in loop.body if s is not node]
        others = {one.what for s in rest for one in events(code, s, 1)}
        if "backward" in before and not others & {"step", "scaled", "zero_grad"}:
            yield node


def _counted(test):
    """Return `i` and `n` of `i % n == 0`."""
    tests = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
    for one in tests:
        if isinstance(one, ast.Compare) and len(one.ops) == 1 and isinstance(one.ops[0], ast.Eq):
            left = one.left
            if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
                if const(one.comparators[0]) == 0 and isinstance(left.left, ast.Name):
                    if const(left.right) != 1:
                        return left.left.id, left.right
    return None, None


def _index(loop):
    """Return the name that counts the batches of a loop from 0."""
    over, target = loop.iter, loop.target
    while isinstance(over, ast.Call) and method(over) in ("tqdm", "list", "track") and over.args:
        over = over.args[0]
    if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Name):
        return None
    if over.func.id == "enumerate" and isinstance(target, ast.Tuple):
        start = argument(over, "start", 1)
        return text(target.elts[0]) if start is None or const(start) == 0 else None
    return None


SEEDS = {
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "numpy.random.seed",
    "random.seed",
}


def _fixed(code, call):
    """Return whether a call seeds a generator with a number that is the same in each call."""
    if code.dotted(call.func) not in SEEDS and code.called(call) not in SEEDS:
        return False
    given = call.args[0] if len(call.args) == 1 else None
    return isinstance(const(given), int)


@rule("repro-reseed", "wrong", "seed(")
def seeded_in_loop(code):
    """`torch.manual_seed(0)` in the loop over the batches, or in `__getitem__`."""
    for call in code.calls:
        if not _fixed(code, call) or any(above(call, ast.If, ast.With, ast.Try)):
            continue
        around = code.function(call)
        if getattr(around, "name", "") == "__getitem__":
            if not re.search(r"get_state|getstate|fork_rng", code.part(around)):
                if not _same_for_pair(code, around):
                    yield call
            continue
        loop = next(above(call, *LOOPS), None)
        epochs = isinstance(loop, ast.For) and re.fullmatch(
            r"(?i)\w*epoch\w*", text(loop.target) or ""
        )
        if loop is None or not (epochs or batch_loop(code, loop)):
            continue
        if code.methods(loop, "backward", follow=3) and not re.search(
            r"get_(rng_)?state|fork_rng", code.part(loop)
        ):
            yield call


def _same_for_pair(code, function):
    """Return whether two calls use one seed, to transform an image and its mask alike."""
    seeds = [one for one in code.calls if one.scope is function and _fixed(code, one)]
    names = [code.dotted(one.func) for one in seeds]
    return len(names) != len({*names})


@rule("names-default-list", "wrong", "=[]|= []|={}|= {}")
def default_list(code):
    """`def evaluate(model, losses=[])` and `losses.append(…)`: all calls share the list."""
    for function in code.of(*FUNCTIONS):
        given = function.args
        names = [one.arg for one in (*given.posonlyargs, *given.args)]
        pairs = [*zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True)]
        pairs += [(a.arg, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
        for name, default in pairs:
            if not isinstance(default, ast.List) or default.elts or name in function.assigned:
                continue
            if _grows(code, function, name) and _called_often(code, function, name):
                yield default


def _grows(code, function, name):
    added = [
        one for one in code.methods(function, "append", "extend") if text(receiver(one)) == name
    ]
    memo = re.search(
        rf"len\({name}\) == 0|if not {name}|if {name}:|{name}\.clear\(",
        "\n".join(ast.unparse(one) for one in function.body),
    )
    return bool(added) and not memo


def _called_often(code, function, name):
    """Return whether two calls of the file, or one in a loop, use the default."""
    calls = [
        one
        for one in code.callers.get(function, ())
        if not any(k.arg in (name, None) for k in one.keywords)
        and not any(isinstance(a, ast.Starred) for a in one.args)
        and len(one.args) <= _position(function, name)
    ]
    return len(calls) > 1 or any(any(above(one, *LOOPS)) for one in calls)


def _position(function, name):
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if name not in names:
        return len(names)
    return names.index(name) - (names[:1] == ["self"])
