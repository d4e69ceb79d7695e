"""Schedulers: their order, their state, their old interface."""

import ast
import re

from helpers.review.flow import events
from helpers.review.kinds import batch_loop, is_optimizer, is_scheduler, iterated, kind
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    const,
    descendants,
    is_inside,
    is_open,
    last_name,
    method,
    name_of,
    names_in,
    receiver,
)
from helpers.review.tracing import construction


@rule("rate-warmup-zero", "wrong", "LambdaLR")
def warmup_from_zero(code):
    """`LambdaLR(optimizer, lambda epoch: min(1, epoch / 5))`: the first learning rate is 0."""
    for call in code.calls:
        lr_lambda = argument(call, "lr_lambda", 1)
        if code.called(call) != "sched.LambdaLR" or lr_lambda is None:
            continue
        function = code.resolved(lr_lambda) if isinstance(lr_lambda, ast.Name) else lr_lambda
        if function is None and isinstance(lr_lambda, ast.Name):
            function = code.functions.get((None, lr_lambda.id))
        if not isinstance(function, ast.Lambda | ast.FunctionDef) or len(function.args.args) != 1:
            continue
        name = function.args.args[0].arg
        if _zero_at_first(function, name) and _in_epochs(code, call):
            yield call


def _zero_at_first(function, name):
    """Return whether a function returns `epoch / n` at 0, even in `min` and under `epoch < n`."""
    value = function.body
    if isinstance(value, list):
        first = [
            statement
            for statement in value
            if isinstance(statement, ast.If | ast.Return | ast.Assign)
        ]
        value = first[0].body[-1] if first and isinstance(first[0], ast.If) else first[:1]
        value = value[0] if isinstance(value, list) and value else value
        below = first and isinstance(first[0], ast.If) and _is_epoch_below(first[0].test, name)
        if not isinstance(value, ast.Return) or not (below or value is first[0]):
            return False
        value = value.value
    if isinstance(value, ast.IfExp):
        if not _is_epoch_below(value.test, name):
            return False
        value = value.body
    if method(value) == "min" and len(value.args) == 2:
        value = next((arg for arg in value.args if const(arg) is None), None)
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return False
    numerator = value.left
    if isinstance(numerator, ast.Call) and name_of(numerator.func) == "float" and numerator.args:
        numerator = numerator.args[0]
    return name_of(numerator) == name


def _is_epoch_below(test, name):
    """Return True for `epoch < warmup`."""
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Lt | ast.LtE)
        and name_of(test.left) == name
    )


def _in_epochs(code, call):
    """Return whether the scheduler steps in the loop over epochs, not in that over batches."""
    statement = call.parent
    name = name_of(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    steps = [
        other_call
        for other_call in code.methods(code.function_of(call), "step")
        if name_of(receiver(other_call)) == name
    ]
    loops = [[*ancestors(step, *LOOPS)] for step in steps]
    return bool(name and steps) and all(
        len(loop) == 1
        and not batch_loop(code, loop[0])
        and code.methods(loop[0], "backward", follow=3)
        or len(loop) == 1
        and "epoch" in ast.unparse(getattr(loop[0], "target", loop[0])).lower()
        for loop in loops
    )


@rule("rate-first-group", "wrong", "param_groups[0]")
def first_group(code):
    """`optimizer.param_groups[0]["lr"] = lr` of an optimizer with two groups."""
    for node in code.nodes_of(ast.Assign, ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        written = ast.unparse(target)
        match = re.fullmatch(r"([\w.]+)\.param_groups\[0\]\['lr'\]", written)
        if (
            not match
            or len(re.findall(r"param_groups\[\d\]\[.lr.\]\s*[-+*/]?=[^=]", code.source)) > 1
        ):
            continue
        call = construction(code, target.value.value.value)
        params = argument(call, "params", 0) if kind(code, call) == "optimizer" else None
        groups = code.resolved(params) if params is not None else None
        if isinstance(groups, ast.List) and len(groups.elts) > 1:
            if all(isinstance(element, ast.Dict) for element in groups.elts):
                yield node


@rule("rate-plateau-epoch", "wrong", "ReduceLROnPlateau")
def plateau_by_epoch(code):
    """`ReduceLROnPlateau.step(epoch)`: the epoch number is used as the metric."""
    for call in code.calls_named("step"):
        if receiver(call) is None:
            continue
        if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], ast.Name):
            continue
        loops = [
            loop for loop in ancestors(call, ast.For) if name_of(loop.target) == call.args[0].id
        ]
        counted = loops and method(loops[0].iter) in ("range", "trange", "tqdm")
        if counted and code.called(construction(code, receiver(call))) == "sched.ReduceLROnPlateau":
            yield call


@rule("rate-order-warning", "wrong")
def scheduler_first(code):
    """`scheduler.step()` before `optimizer.step()` in the loop."""
    if re.search(r"_step_count|optimizer\._step", code.source):
        return
    for loop in code.loops:
        first = None
        for statement in loop.body:
            order = events(code, statement)
            if any(event.kind in ("step", "scaled") for event in order):
                if first is not None:
                    yield first.call
                break
            if isinstance(statement, ast.Expr):
                scheduler_events = (
                    event for event in order if event.kind == "scheduler" and not event.call.args
                )
                first = first or next(scheduler_events, None)


@rule("rate-get-lr", "wrong")
def get_lr(code):
    """`scheduler.get_lr()` instead of `get_last_lr()`."""
    if "def get_lr" in code.source:
        return
    for call in code.calls_named("get_lr"):
        if not call.args and receiver(call) is not None:
            if getattr(code.function_of(call), "name", "") == "get_lr":
                continue
            if (
                is_scheduler(code, receiver(call))
                and "_get_lr_called_within_step" not in code.source
            ) and (kind(code, receiver(call)) or "scheduler") == "scheduler":
                yield call


@rule("rate-plateau-verbose", "raises")
def verbose(code):
    """`ReduceLROnPlateau(optimizer, verbose=True)`: the argument was removed."""
    for call in code.calls:
        if code.called(call).startswith("sched.") and argument(call, "verbose") is not None:
            yield call


@rule("rate-plateau-metric", "raises")
def plateau_without_metric(code):
    """`ReduceLROnPlateau.step()` without a value."""
    for call in code.calls_named("step"):
        if not call.args and not call.keywords and receiver(call):
            constructor = construction(code, receiver(call))
            if code.called(constructor) == "sched.ReduceLROnPlateau":
                yield call


@rule("rate-other-metric", "wrong")
def metric_for_epoch_scheduler(code):
    """`StepLR.step(loss)`: the value is used as the epoch number."""
    for call in code.calls_named("step"):
        if len(call.args) == 1 and receiver(call):
            scheduler = code.called(construction(code, receiver(call)))
            if re.fullmatch(
                r"sched\.(StepLR|MultiStepLR|ExponentialLR|CosineAnnealingLR|LambdaLR)", scheduler
            ) and re.search(r"(?i)loss|acc|metric|score", name_of(call.args[0]) or ""):
                yield call


@rule("rate-plateau-mode", "wrong")
def accuracy_with_min(code):
    """`ReduceLROnPlateau(optimizer)` with `step(accuracy)`: the default mode is "min"."""
    for call in code.calls_named("step"):
        if len(call.args) == 1 and receiver(call):
            constructor = construction(code, receiver(call))
            if (
                constructor is None
                or code.called(constructor) != "sched.ReduceLROnPlateau"
                or is_open(constructor)
            ):
                continue
            mode = argument(constructor, "mode", 1)
            name = name_of(call.args[0]) or ""
            accuracy = re.search(
                r"(?i)(^|_|\.)(acc|accuracy|auc|f1|dice|miou|iou|map|bleu)(_|\d|$)", name
            )
            loss = re.search(r"(?i)loss|error", name)
            if (
                accuracy
                and not loss
                and (mode is None or const(mode) == "min")
                or loss
                and not accuracy
                and const(mode) == "max"
            ):
                yield call


@rule("rate-plateau-best", "wrong")
def plateau_with_best(code):
    """`ReduceLROnPlateau.step(best_loss)`: the best so far never gets worse."""
    for call in code.calls_named("step"):
        if len(call.args) == 1 and receiver(call):
            scheduler = code.called(construction(code, receiver(call)))
            nodes = [node for node in descendants(call.args[0]) if isinstance(node, ast.Name)]
            named = [node for node in nodes if re.match(r"(?i)best_|.*_best$", node.id)]
            if scheduler == "sched.ReduceLROnPlateau" and named and _running_best(named[0]):
                yield call


def _running_best(node):
    """Return whether the name keeps the best value, assigned in an `if`, by `min` or by `max`."""
    for assignment in node.scope.assigned.get(node.id, ()):
        test = next(ancestors(assignment.statement, ast.If), None)
        if test is not None and node.id in names_in(test.test):
            return True
        if method(assignment.value) in ("min", "max") and node.id in names_in(assignment.value):
            return True
    return False


@rule("rate-accumulated", "wrong")
def steps_between(code):
    """`optimizer.step()` in every n-th batch and `scheduler.step()` in each of them."""
    for loop in code.loops:
        direct = [o for o in events(code, loop, 0) if next(ancestors(o.call, *LOOPS), None) is loop]
        backward_events = [event for event in direct if event.kind == "backward"]
        stepped = [event for event in direct if event.kind in ("step", "scaled")]
        if len(stepped) != 1 or not backward_events:
            continue
        tests = [
            branch.test for branch in ancestors(stepped[0].call, ast.If) if is_inside(branch, loop)
        ]
        for event in direct:
            if event.kind == "scheduler" and tests and not any(ancestors(event.call, ast.If)):
                constructor = construction(code, receiver(event.call))
                if constructor is not None and _divided(code, constructor, _counts_of(code, tests)):
                    yield event.call


def _counts_of(code, tests):
    """Return the divisors in conditions such as `step % accumulate == 0`."""
    divisors = set()
    for test in tests:
        for child in descendants(test):
            value = code.resolved(child)
            for node in descendants(value) if isinstance(value, ast.AST) else ():
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                    divisors.add(ast.unparse(node.right))
    return divisors


def _divided(code, constructor, counts):
    """Return whether a length of the scheduler is divided by one of these numbers."""
    for arg in (*constructor.args, *(k.value for k in constructor.keywords)):
        value = code.resolved(arg)
        for node in descendants(value) if isinstance(value, ast.AST) else ():
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Div):
                if ast.unparse(node.right) in counts:
                    return True
    return False


@rule("rate-in-evaluation", "wrong")
def steps_in_evaluation(code):
    """`if train: optimizer.step()` and `scheduler.step()` outside it: evaluation steps it too."""
    for function in code.nodes_of(*FUNCTIONS):
        flags = {parameter.arg for parameter in (*function.args.args, *function.args.kwonlyargs)}
        flags = {flag for flag in flags if re.fullmatch(r"(?i)(is_?)?train(ing|_mode)?", flag)}
        order = events(code, function, 0) if flags else ()
        stepped = [event for event in order if event.kind in ("step", "scaled")]
        if not stepped or not all(_is_under_flag(event.call, flags) for event in stepped):
            continue
        for event in order:
            if event.kind == "scheduler" and not any(ancestors(event.call, ast.If)):
                left = r"if not \w*train\w*:\n\s+return"
                if not re.search(left, code.source_of(function)):
                    yield event.call


def _is_under_flag(call, flags):
    """Return whether a condition on one of the flags is around the call."""
    return any(names_in(branch.test) & flags for branch in ancestors(call, ast.If))


@rule("rate-per-batch", "wrong")
def epochs_in_batches(code):
    """`CosineAnnealingLR(optimizer, T_max=epochs)` stepped in the loop over batches."""
    for call in code.calls_named("step"):
        if call.args or receiver(call) is None:
            continue
        loops = code.loops_around(call)
        if len(loops) < 2 or not code.methods(loops[0], "backward", follow=1):
            continue
        constructor = construction(code, receiver(call))
        counted = code.called(constructor) in ("sched.CosineAnnealingLR", "sched.OneCycleLR")
        if counted and any(_counts_epochs(code, constructor, loop) for loop in loops[1:]):
            yield call
        elif batch_loop(code, loops[0]) and _counts_few(code, constructor):
            if any(re.search(r"(?i)epoch|^epo?$|^e$", _loop_target(loop)) for loop in loops[1:]):
                yield call
    for constructor, interval in _of_lightning(code):
        length = argument(constructor, "T_max", 1)
        epochs = code.called(constructor) == "sched.CosineAnnealingLR" and length is not None
        epochs = epochs and re.fullmatch(r"(?i)(\w+\.)*(max_|num_|n_)?epochs", ast.unparse(length))
        if interval == "step" and (epochs or _counts_few(code, constructor)):
            yield constructor


def _of_lightning(code):
    """Yield the schedulers that `configure_optimizers` returns, each with its interval."""
    for (owner, name), function in code.functions.items():
        if owner is None or name != "configure_optimizers":
            continue
        for node in code.walk(function):
            if not isinstance(node, ast.Return) or node.value is None:
                continue
            interval = re.search(r"['\"]interval['\"]: ['\"](\w+)", code.source_of(function))
            values = [code.resolved(part) for part in _names_and_calls(code, node.value, 0)]
            for value in values:
                if isinstance(value, ast.Call) and kind(code, value) == "scheduler":
                    yield value, interval[1] if interval else "epoch"


def _names_and_calls(code, node, depth):
    """Yield the names and calls in lists, tuples and dictionaries, even through names."""
    value = code.resolved(node) if isinstance(node, ast.Name) else node
    if isinstance(value, ast.List | ast.Tuple | ast.Dict) and depth < 3:
        for expression in value.values if isinstance(value, ast.Dict) else value.elts:
            yield from _names_and_calls(code, expression, depth + 1)
    elif isinstance(value, ast.AST):
        yield value


_BATCHES = re.compile(r"len\(|steps_per_epoch|stepping_batches|(?i:num_?batches|iters?_per_epoch)")


@rule("rate-per-epoch", "wrong", "OneCycleLR|CosineAnnealingLR|with_warmup|schedule(")
def batches_in_epochs(code):
    """`OneCycleLR(optimizer, 0.1, steps_per_epoch=len(loader), epochs=9)` stepped once an epoch."""
    stepped = [
        other_call
        for other_call in code.calls_named("step")
        if not other_call.args and is_scheduler(code, receiver(other_call))
    ]
    for call in stepped:
        loops = code.loops_around(call)
        constructor = construction(code, receiver(call))
        if not loops or not _counts_batches(code, constructor):
            continue
        same = [
            other_call
            for other_call in stepped
            if construction(code, receiver(other_call)) is constructor
        ]
        epochs = re.search(r"(?i)epoch|^ep?$", _loop_target(loops[0])) and not batch_loop(
            code, loops[0]
        )
        inner = [loop for loop in code.walk(loops[0], 2) if isinstance(loop, ast.For)]
        trained = any(
            code.methods(loop, "backward", follow=1) for loop in inner if loop is not loops[0]
        )
        if len(same) == 1 and epochs and trained:
            yield call
    for constructor, interval in _of_lightning(code):
        if interval == "epoch" and _counts_batches(code, constructor):
            yield constructor


def _counts_batches(code, constructor):
    """Return whether the length of a schedule is a number of batches."""
    name = code.called(constructor)
    if name == "sched.OneCycleLR":
        names = ["total_steps", "steps_per_epoch"]
    elif name == "sched.CosineAnnealingLR":
        names = ["T_max"]
    elif name.startswith("transformers.get_"):
        names = ["num_training_steps"]
    else:
        return False
    positions = {"total_steps": 2, "T_max": 1, "num_training_steps": 2}
    args = [argument(constructor, keyword, positions.get(keyword)) for keyword in names]
    values = [arg if arg is None else code.resolved(arg) or arg for arg in args]
    written = " ".join(ast.unparse(value) for value in values if isinstance(value, ast.AST))
    return bool(_BATCHES.search(written))


def _loop_target(loop):
    return ast.unparse(loop.target) if isinstance(loop, ast.For) else ""


def _counts_few(code, constructor):
    """Return True for `StepLR(optimizer, step_size=7)`: too few for a number of batches."""
    name = code.called(constructor)
    if name == "sched.StepLR":
        step_size = argument(constructor, "step_size", 1)
        size, written = const(step_size), ast.unparse(step_size or ast.Constant(""))
        counted = re.search(r"(?i)epochs?\b", written) and not re.search(r"len\(|\*", written)
        return isinstance(size, int) and size <= 50 or bool(counted)
    milestones = argument(constructor, "milestones", 1) if name == "sched.MultiStepLR" else None
    if name == "sched.LambdaLR":
        return _takes_epoch(code, argument(constructor, "lr_lambda", 1))
    numbers = [const(element) for element in getattr(milestones, "elts", ())]
    return bool(numbers) and all(isinstance(n, int) and n <= 300 for n in numbers)


def _takes_epoch(code, node):
    """Return True for `lambda epoch: …` and `def rate(epoch)`, without a number of batches."""
    function = code.functions.get((None, last_name(node)), node)
    if not isinstance(function, ast.Lambda | ast.FunctionDef) or not function.args.args:
        return False
    named = re.fullmatch("epochs?|current_epoch", function.args.args[0].arg)
    return bool(named) and not re.search(r"len\(|steps?|iter", code.source_of(function))


def _counts_epochs(code, constructor, outer):
    one_cycle = "OneCycle" in ast.unparse(constructor.func)
    name = "total_steps" if one_cycle else "T_max"
    length = argument(constructor, name, 2 if one_cycle else 1)
    iterable = iterated(outer.iter) if isinstance(outer, ast.For) else None
    if (
        length is None
        or not isinstance(iterable, ast.Call)
        or last_name(iterable.func) not in ("range", "trange")
    ):
        return False
    count = (
        iterable.args[0]
        if len(iterable.args) == 1
        else iterable.args[1]
        if len(iterable.args) > 1
        else None
    )
    if isinstance(count, ast.BinOp) and const(count.right) == 1:  # range(1, epochs + 1)
        count = count.left
    if count is None:
        return False
    value, other = code.resolved(length), code.resolved(count)
    option = value is other and isinstance(
        value, ast.Constant
    )  # of `args.epochs`, even under `self`
    return option or ast.dump(length) == ast.dump(count)


@rule("rate-twice", "wrong", "sched|Sched")
def stepped_in_both_loops(code):
    """`scheduler.step()` in the loop over batches and again in the loop over epochs."""
    for loop in code.nodes_of(ast.For):
        inner = [
            step for step in _plain_steps(code, loop) if next(ancestors(step, *LOOPS), None) is loop
        ]
        for call in inner:
            name = name_of(receiver(call))
            outer = next(ancestors(loop, *LOOPS), None)
            function = outer if outer is not None else code.function_of(loop)
            if not batch_loop(code, loop) or isinstance(function, ast.Module):
                continue
            again = [step for step in _plain_steps(code, function) if not is_inside(step, loop)]
            again = [step for step in again if name_of(receiver(step)) == name]
            if any(next(ancestors(step, *LOOPS), None) is outer for step in again):
                yield call


def _plain_steps(code, node):
    """Return the unconditional calls of `scheduler.step()`."""
    return [
        call
        for call in code.methods(node, "step")
        if not call.args
        and not call.keywords
        and is_scheduler(code, receiver(call))
        and not any(ancestors(call, ast.If, ast.Try))
    ]


@rule("rate-resume-jump", "wrong")
def scheduler_not_saved(code):
    """A checkpoint with the state of the optimizer, but without the state of the scheduler."""
    if not any(code.called(c).startswith("sched.") for c in code.calls):
        return
    source = code.source
    if re.search(
        r"(?i)sched\w*(\[\w+\])?\.(load_)?state_dict|last_epoch|sched\w*\.step\((epoch|i|it|step|start)",
        source,
    ):
        return
    loads = list(code.calls_named("load_state_dict"))
    resumed = [c for c in loads if re.search(r"(?i)optim|^opt", name_of(receiver(c)) or "")]
    for call in code.calls_to("torch.save"):
        if resumed and call.args:
            saved = call.args[0]
            value = code.resolved(saved)
            if isinstance(value, ast.Dict) and re.search(
                r"(?i)optim\w*\.state_dict\(\)|opt\.state_dict", ast.unparse(value)
            ):
                yield call


_RESTARTS = re.compile(
    r"sched\.(LambdaLR|StepLR|MultiStepLR|CosineAnnealingLR|ExponentialLR|OneCycleLR)"
)


@rule("rate-resume-order", "wrong")
def scheduler_after_resume(code):
    """A scheduler created after `optimizer.load_state_dict`: it resets the learning rate."""
    for scope in code.scopes:
        for values in scope.assigned.values():
            for assignment in values:
                if isinstance(assignment.value, ast.Call) and _RESTARTS.fullmatch(
                    code.called(assignment.value)
                ):
                    if _resumed_before(code, scope, assignment) and not _scheduler_loaded(
                        code, assignment
                    ):
                        yield assignment.statement


def _resumed_before(code, scope, assignment):
    """Return whether the state of the scheduler's optimizer was loaded before."""
    name = name_of(assignment.value.args[0]) if assignment.value.args else None
    return name and any(
        name_of(receiver(call)) == name
        and call.lineno < assignment.end[0]
        and call.args
        and re.search(r"(?i)ckpt|checkpoint|\[.*optim|torch\.load", ast.unparse(call.args[0]))
        for call in code.methods(scope, "load_state_dict")
    )


def _scheduler_loaded(code, assignment):
    name = name_of(getattr(assignment.statement, "targets", [None])[0]) or "?"
    resumes = argument(assignment.value, "last_epoch") is not None
    return resumes or re.search(rf"{re.escape(name)}\.load_state_dict", code.source)


@rule("rate-same-optimizer", "wrong")
def one_optimizer_twice(code):
    """`d_scheduler = StepLR(g_optimizer, 10)` next to `g_scheduler = StepLR(g_optimizer, 10)`."""
    for scope in code.scopes:
        schedulers = [
            (name, name_of(argument(assignment.value, "optimizer", 0)), assignment.statement)
            for name, values in scope.assigned.items()
            for assignment in values
            if kind(code, assignment.value) == "scheduler"
            and isinstance(assignment.value, ast.Call)
        ]
        known = {
            name
            for name, values in scope.assigned.items()
            if any(kind(code, assignment.value) == "optimizer" for assignment in values)
        }
        for name, optimizer, statement in schedulers:
            own_optimizer = re.sub(r"(?i)(lr_?)?sched(uler)?", "optimizer", name)
            again = [
                scheduler
                for scheduler, other, _ in schedulers
                if other == optimizer and scheduler != name
            ]
            if again and own_optimizer != optimizer and own_optimizer in known:
                yield statement


@rule("training-step-or-scheduler", "wrong", "sched|Sched")
def either_step(code):
    """`if scheduler: scheduler.step()`, `else: optimizer.step()`: the weights never change."""
    for node in code.nodes_of(ast.If):
        if not node.orelse:
            continue
        body, other = ast.Module(node.body, []), ast.Module(node.orelse, [])
        first = [call for call in descendants(body) if method(call) == "step"]
        second = [call for call in descendants(other) if method(call) == "step"]
        scheduled = first and all(is_scheduler(code, receiver(call)) for call in first)
        updates = [call for call in second if is_optimizer(code, receiver(call))]
        calls = [
            call
            for call in code.methods(code.function_of(node), "step")
            if is_optimizer(code, receiver(call)) and not is_inside(call, node)
        ]
        tested = re.search(r"(?i)sched(?!uled)", ast.unparse(node.test))
        if tested and scheduled and updates and not calls:
            yield updates[0]
