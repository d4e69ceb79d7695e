"""Gradients that are missing, doubled, or cleared too early."""

import ast
import re

from helpers.review.flow import events
from helpers.review.kinds import batch_loop, is_optimizer, is_scheduler, kind, no_graph
from helpers.review.registry import rule
from helpers.review.rules.parameters import optimizers
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
    receiver,
)


@rule("backward-adds", "wrong")
def no_zero_grad(code):
    """A loop with `backward()` and `step()`, without `zero_grad()` in it or around it."""
    for loop in code.outer_loops:
        order = events(code, loop)
        backward = [event for event in order if event.kind == "backward"]
        step = [event for event in order if event.kind in ("step", "scaled")]
        if backward and step and not any(event.kind == "zero_grad" for event in order):
            function = code.function_of(loop)
            if _clears_gradients(code, function) or _clears_gradients(
                code, code.function_of(step[0].call)
            ):
                continue
            if not _of_new_tensors(code, step[0].call, loop):
                yield backward[0].call
    yield from _one_not_cleared(code)
    yield from _by_hand_not_cleared(code)
    yield from _step_of_lightning(code)


def _of_new_tensors(code, step, loop):
    """Return whether the loop makes the optimizer of a step, for tensors that it also makes."""
    value = code.value(receiver(step))
    params = argument(value, "params", 0) if isinstance(value, ast.Call) else None
    return isinstance(params, ast.List) and is_inside(value, loop)


def _step_of_lightning(code):
    """`self.automatic_optimization = False` in a class that steps and never clears gradients."""
    for owner in code.nodes_of(ast.ClassDef):
        manual = owner.attributes.get("self.automatic_optimization", ())
        if not any(const(assignment.value) is False for assignment in manual) or _clears_gradients(
            code, owner
        ):
            continue
        step = code.functions.get((owner.name, "training_step"))
        order = events(code, step, 3) if step is not None else []
        calls = [*code.calls_under(step, 3)] if step is not None else []
        backward_calls = [call for call in calls if method(call) in ("manual_backward", "backward")]
        stepped = any(event.kind in ("step", "scaled") for event in order)
        if backward_calls and stepped and not any("grad" in method(call) for call in calls):
            yield backward_calls[0]


def _by_hand_not_cleared(code):
    """`w -= rate * w.grad` in a loop that never clears the gradient of `w`."""
    for loop in code.outer_loops:
        backward_calls = [call for call in code.methods(loop, "backward") if not code.called(call)]
        if (
            len(backward_calls) != 1
            or _clears_gradients(code, loop)
            or re.search(r"detach|requires_grad", code.source_of(loop))
        ):
            continue
        for node in code.walk(loop):
            name = _moved_by_gradient(node)
            if name and not _renewed_in(code, name.split(".")[0], loop):
                off = no_graph(code, node) or ".data" in ast.unparse(node)
                if off:  # else the update raises an error
                    yield backward_calls[0]
                break


def _moved_by_gradient(node):
    """Return the name in `w -= rate * w.grad`, `w.data.sub_(…)` and the like."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub):
        target, update = name_of(node.target), ast.unparse(node.value)
    elif method(node) in ("sub_", "add_") and receiver(node) is not None:
        target, update = name_of(receiver(node)), ", ".join(map(ast.unparse, node.args))
    else:
        return None
    name = (target or "").removesuffix(".data")
    return name if name and re.search(rf"\b{re.escape(name)}\.grad\b", update) else None


def _renewed_in(code, name, loop):
    """Return whether the loop creates the tensor again, which gives it a new gradient."""
    return any(
        isinstance(node, ast.Assign) and name in map(name_of, node.targets)
        for node in code.walk(loop)
    )


def _one_not_cleared(code):
    """One of several optimizers that step in a loop, whose gradients are never cleared."""
    models = {name: model for _, name, _, model in optimizers(code)}
    for loop in code.outer_loops:
        order = events(code, loop)
        cleared = {event.name for event in order if event.kind == "zero_grad"}
        yield from _other_cleared(code, order, cleared)
        if not cleared or not cleared <= {*models, *models.values()}:
            continue
        for n, event in enumerate(order):
            if event.kind in ("step", "scaled") and models.get(event.name) and len(models) > 1:
                before = [e.call for e in order[:n] if e.kind == "backward"]
                shown = {event.name, models[event.name]}
                if before and not shown & cleared and not _cleared_elsewhere(code, shown):
                    yield before[-1]


def _other_cleared(code, order, cleared):
    """Yield the backward pass before the step of an optimizer, if only others are cleared."""
    stepped = {event.name for event in order if event.kind == "step"}
    known = [name for _, name, _, _ in optimizers(code)]
    if len(stepped) != 2 or len(cleared) != 1 or not cleared < stepped or known:
        return
    (name,) = stepped - cleared
    for n, event in enumerate(order):
        if event.kind == "step" and event.name == name and not _cleared_elsewhere(code, {name}):
            before = [e.call for e in order[:n] if e.kind == "backward"]
            yield from before[-1:]
            return


def _cleared_elsewhere(code, names):
    written = "|".join(re.escape(name) for name in names)
    return re.search(rf"({written})\.zero_grad|\.grad\s*=|zero_\(\)|set_to_none", code.source)


def _clears_gradients(code, node):
    source = code.source if node is code.tree else code.source_of(node)
    return bool(
        re.search(r"\.grad\s*=\s*None|zero_?grad|zero_\(\)|clear_grad|\.grad = ", source, re.I)
    )


@rule("training-zero-between", "wrong")
def zero_between(code):
    """`backward()`, `zero_grad()`, `step()`: the step uses no gradient."""
    for node in code.nodes_of(*LOOPS, *FUNCTIONS):
        for a, b, c in zip(
            *(_unconditional_events(code, node)[n:] for n in range(3)), strict=False
        ):
            if (a.kind, b.kind, c.kind) == ("backward", "zero_grad", "step") and b.name == c.name:
                if (
                    is_optimizer(code, receiver(b.call))
                    and a.call.parent.parent is c.call.parent.parent
                ):
                    yield b.call


def _unconditional_events(code, node):
    """Return the events of the statements of a body, without the statements in branches."""
    kinds = {"backward", "zero_grad", "step"}
    sequence = []
    for statement in node.body:
        sequence += [
            event
            for event in events(code, statement, 0)
            if event.kind in kinds and event.call.parent is statement
        ]
    return sequence


@rule("training-zero-in-epoch", "wrong")
def zero_once_an_epoch(code):
    """`zero_grad()` in the loop over epochs, `backward()` and `step()` in the loop over batches."""
    for outer in code.loops:
        for loop in outer.body:
            if not isinstance(loop, LOOPS):
                continue
            inner = events(code, loop)
            kinds = {event.kind for event in inner}
            direct = [
                event for event in events(code, loop, 0) if event.kind in ("step", "backward")
            ]
            stepped = [event for event in direct if not any(above_within(event.call, loop))]
            if not {"backward", "step"} <= kinds or "zero_grad" in kinds or len(stepped) < 2:
                continue
            siblings = [s for s in outer.body if s is not loop]
            zero = [e for s in siblings for e in events(code, s, 0) if e.kind == "zero_grad"]
            if zero and not _clears_gradients(code, loop):
                yield zero[0].call
    yield from _zero_once_a_function(code)


def _zero_once_a_function(code):
    """`zero_grad()` before the loop over the batches of a function that trains for an epoch."""
    for function in code.nodes_of(*FUNCTIONS):
        loops = [loop for loop in function.body if isinstance(loop, ast.For)]
        if len(loops) != 1 or not batch_loop(code, loops[0]) or _clears_gradients(code, loops[0]):
            continue
        direct = [o for o in events(code, loops[0], 0) if o.kind in ("step", "backward", "scaled")]
        direct = [event for event in direct if not any(above_within(event.call, loops[0]))]
        inner = [next(ancestors(event.call, *LOOPS), None) for event in direct]
        zero = [
            event
            for statement in function.body[: function.body.index(loops[0])]
            for event in events(code, statement, 0)
            if event.kind == "zero_grad"
        ]
        both = {"backward"} < {event.kind for event in direct} and {*inner} == {loops[0]}
        if zero and both and len(events(code, loops[0], 2)) >= len(direct):
            if not any(event.kind == "zero_grad" for event in events(code, loops[0], 3)):
                yield zero[-1].call


def above_within(node, stop):
    """Yield the `if` statements between a node and a loop around it."""
    node = node.parent
    while node is not None and node is not stop:
        if isinstance(node, ast.If | ast.Try):
            yield node
        node = node.parent


@rule("backward-retain-error", "wasted")
def retain_graph(code):
    """`backward(retain_graph=True)` in a loop with one backward pass."""
    for call in code.calls_named("backward"):
        if code.called(call):
            continue
        loop = next(ancestors(call, *LOOPS), None)
        if loop is None or code.const(argument(call, "retain_graph", 1)) is not True:
            continue
        alone = len(code.methods(code.function_of(call), "backward", "grad", follow=1)) == 1
        value = code.value(receiver(call)) if name_of(receiver(call)) else None
        if alone and isinstance(value, ast.AST) and is_inside(value, loop):
            yield call


@rule("training-no-step", "wrong")
def no_step(code):
    """A loop with `zero_grad()` and `backward()` of an optimizer that never steps."""
    steps = [c for c in code.calls if "step" in method(c) and not is_scheduler(code, receiver(c))]
    if steps or re.search(r"\.grad\b", code.source):
        return
    for loop in code.outer_loops:
        order = events(code, loop, 3)
        for event in order:
            if event.kind == "zero_grad" and kind(code, receiver(event.call)) == "optimizer":
                if any(other.kind == "backward" for other in order):
                    yield event.call
                    break


@rule("training-accumulate-inverted", "wrong")
def accumulation_inverted(code):
    """`if step % accumulate: optimizer.step()` without `== 0`: it steps in the other batches."""
    for node in code.nodes_of(ast.If):
        test = node.test
        if not isinstance(test, ast.BinOp) or not isinstance(test.op, ast.Mod):
            continue
        if re.search(r"(?i)accum", ast.unparse(test.right)):
            inner = [event for statement in node.body for event in events(code, statement, 1)]
            if any(event.kind in ("step", "scaled") for event in inner):
                yield node


@rule("training-accumulate-cleared", "wrong")
def accumulation_cleared(code):
    """`zero_grad()` in each batch and `step()` in every n-th: only the last batch counts."""
    for loop in code.loops:
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.AST):
            continue
        order = [event for event in events(code, loop, 0) if event.kind in _ACCUMULATED]
        direct = [event for event in order if next(ancestors(event.call, *LOOPS), None) is loop]
        cleared = [
            event
            for event in direct
            if event.kind == "zero_grad" and not any(_branches_around(event, loop))
        ]
        stepped = [event for event in direct if event.kind in ("step", "scaled")]
        backward_events = [
            event
            for event in direct
            if event.kind == "backward" and not any(_branches_around(event, loop))
        ]
        same = len(cleared) == len(stepped) == len({event.name for event in cleared})
        if not cleared or not same or len(backward_events) != 1:
            continue
        guards = [branch.test for branch in _branches_around(stepped[0], loop)]
        skips = [
            skip
            for skip in _skipping_branches(loop, stepped[0])
            if skip.lineno > cleared[0].call.lineno
        ]
        guards += [branch.test for branch in skips]
        if any(_every_nth(guard) or _counts_steps(guard) for guard in guards):
            pairs = zip(cleared, stepped, strict=True)
            if all(pair.name in (two.name, _model_of(code, two.name)) for pair, two in pairs):
                yield cleared[0].call


@rule("training-accumulate-undivided", "wrong", "ccum|rad_acc")
def accumulation_undivided(code):
    """`loss.backward()` in each batch, `step()` in every n-th, and no division by n."""
    if re.search(r"(/=?|\*) *\(?[\w.]*(?i:accum|grad_acc)|=.sum.|size_average|Adam", code.source):
        return
    for loop in code.loops:
        if _is_micro_loop(code, loop):
            yield from [event.call for event in events(code, loop, 0) if event.kind == "backward"][
                :1
            ]
        if not isinstance(loop, ast.For) or not batch_loop(code, loop):
            continue
        order = [event for event in events(code, loop, 0) if event.kind in _ACCUMULATED]
        stepped = [event for event in order if event.kind in ("step", "scaled")]
        backward_events = [event for event in order if event.kind == "backward"]
        if (
            len(stepped) != 1
            or len(backward_events) != 1
            or any(_branches_around(backward_events[0], loop))
        ):
            continue
        tests = [ast.unparse(branch.test) for branch in _branches_around(stepped[0], loop)]
        every = [test for test in tests if "%" in test and _ACCUMULATES.search(test)]
        if every and not re.match(r"\w+ [+-] \d+ %", every[0]):  # a rule of its own
            yield backward_events[0].call


_ACCUMULATES = re.compile("(?i)accum|grad_acc")


def _is_micro_loop(code, loop):
    """Return whether a loop is `for micro in range(accumulation)` with only the backward pass."""
    counted = (
        isinstance(loop, ast.For) and method(loop.iter) == "range" and len(loop.iter.args) == 1
    )
    if not counted or not _ACCUMULATES.search(ast.unparse(loop.iter)):
        return False
    kinds = [event.kind for event in events(code, loop, 0)]
    return kinds.count("backward") == 1 and not {"step", "scaled", "zero_grad"} & {*kinds}


_ACCUMULATED = ("zero_grad", "step", "scaled", "backward")


def _skipping_branches(loop, stepped):
    """Yield `if count < accumulate: continue` between the backward pass and the step."""
    for branch in loop.body:
        if isinstance(branch, ast.If) and isinstance(branch.body[-1], ast.Continue):
            if not branch.orelse and branch.lineno < stepped.call.lineno:
                yield branch


def _counts_steps(test):
    """Return True for `step % 4 == 0` with any number, and for `count < accumulate`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        modulo = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod)
        counted = isinstance(test.ops[0], ast.Lt | ast.GtE | ast.Eq | ast.NotEq)
        named = re.search(r"(?i)accum", ast.unparse(right))
        return modulo and const(right) == 0 or bool(counted and named)
    return isinstance(test, ast.BoolOp) and any(_counts_steps(value) for value in test.values)


def _branches_around(event, loop):
    return above_within(event.call, loop)


def _every_nth(test):
    """Return True for `(i + 1) % accumulation == 0`."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and re.search(r"(?i)accum", ast.unparse(node.right))
        for node in descendants(test)
    )


def _model_of(code, optimizer):
    return next((model for _, name, _, model in optimizers(code) if name == optimizer), None)


@rule("training-last-batch", "wrong")
def only_last_batch(code):
    """`step()` or `loss.backward()` below the loop over the batches: only the last batch counts."""
    for loop in code.loops:
        order = [event for event in events(code, loop, 0) if event.kind in _ACCUMULATED]
        kinds = {event.kind for event in order}
        if kinds & {"step", "scaled"}:
            continue
        below = [event for event in _events_below(code, loop) if event.kind in _ACCUMULATED]
        stepped = [event for event in below if event.kind in ("step", "scaled")]
        if kinds == {"zero_grad", "backward"} and stepped and stepped[0] is below[0]:
            cleared = next(event for event in order if event.kind == "zero_grad")
            if stepped[0].name in (cleared.name, _optimizer_of(code, cleared.name)):
                yield stepped[0].call
        elif not kinds and stepped and batch_loop(code, loop):
            backward_events = [event for event in below if event.kind == "backward"]
            if backward_events and _of_last_pass(code, loop, backward_events[0]):
                yield backward_events[0].call


def _events_below(code, loop):
    """Return the events of the statements from a loop to the next loop in its block."""
    body = next((b for b in (loop.parent.body,) if isinstance(b, list) and loop in b), [])
    sequence = []
    for statement in body[body.index(loop) + 1 :] if body else ():
        if isinstance(statement, (*LOOPS, *FUNCTIONS, ast.With, ast.If, ast.ClassDef)):
            break
        sequence += events(code, statement, 0)
    return sequence


def _optimizer_of(code, model):
    return next((name for _, name, _, optimizer in optimizers(code) if optimizer == model), None)


def _of_last_pass(code, loop, backward_event):
    """Return whether each iteration of the loop replaces the loss instead of adding to it."""
    name = name_of(receiver(backward_event.call))
    values = loop.scope.assigned.get(name or "", ())
    inner = [assignment for assignment in values if is_inside(assignment.statement, loop)]
    added = any(
        isinstance(node, ast.AugAssign) and name_of(node.target) == name for node in code.walk(loop)
    )
    plain = (
        inner
        and not added
        and not any(name in ast.unparse(expression.value) for expression in inner)
    )
    value = code.value(receiver(backward_event.call)) if name else None
    return plain and isinstance(value, ast.Call) and is_inside(value, loop)


@rule("training-step-twice", "wrong")
def step_twice(code):
    """`if (i + 1) % accumulate == 0: optimizer.step()`, and `optimizer.step()` again below it."""
    for loop in code.loops:
        direct = [o for o in events(code, loop, 0) if next(ancestors(o.call, *LOOPS), None) is loop]
        backward_events = [event for event in direct if event.kind == "backward"]
        stepped = [event for event in direct if event.kind == "step"]
        if (
            len(backward_events) != 1
            or len(stepped) != 2
            or len({event.name for event in stepped}) != 1
        ):
            continue
        first, second = ([*ancestors(event.call, ast.If)] for event in stepped)
        tests = [branch.test for branch in first if is_inside(branch, loop)]
        if not [branch for branch in second if is_inside(branch, loop)] and any(
            map(_has_modulo, tests)
        ):
            yield stepped[1].call


def _has_modulo(test):
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in descendants(test))


@rule("training-no-backward", "wrong")
def no_backward(code):
    """A loop with `zero_grad()` and `step()` of an optimizer, in a file without `backward()`."""
    if re.search(r"backward|\.grad\b|\bgrad\(|closure|vjp", code.source):
        return
    for loop in code.outer_loops:
        order = events(code, loop, 3)
        cleared = {event.name for event in order if event.kind == "zero_grad"}
        for event in order:
            if event.kind == "step" and event.name in cleared:
                if kind(code, receiver(event.call)) == "optimizer":
                    yield event.call
                    break


@rule("training-no-grad-step", "raises")
def training_without_graph(code):
    """`backward()` of a loss that was computed under `torch.no_grad()`."""
    for call in code.calls_named("backward"):
        if code.called(call) or receiver(call) is None:
            continue
        value = code.resolved(receiver(call))
        if isinstance(value, ast.Call | ast.BinOp) and no_graph(code, value):
            function_source = code.source_of(code.function_of(call))
            if not re.search(r"enable_grad|set_grad_enabled|requires_grad|ctx", function_source):
                yield call


@rule("training-step-first", "wrong")
def step_before_backward(code):
    """`zero_grad()`, `step()`, `backward()`: the step comes before the gradient."""
    for loop in code.loops:
        order = [
            event
            for event in _unconditional_events(code, loop)
            if event.kind in ("zero_grad", "step", "backward")
        ]
        if [event.kind for event in order] == ["zero_grad", "step", "backward"]:
            if order[0].name == order[1].name and is_optimizer(code, receiver(order[1].call)):
                yield order[1].call


@rule("backward-result", "raises")
def keeps_none(code):
    """`loss = loss.backward()`: `backward()` returns None."""
    for node in code.nodes_of(ast.Assign):
        name = name_of(node.targets[0])
        if method(node.value) == "backward" and not code.called(node.value) and name:
            if name_of(receiver(node.value)) == name and code.uses(node.scope, name):
                yield node
