"""Graphs that outlive their iteration."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    descendants,
    is_inside,
    last_name,
    method,
    name_of,
    names_in,
    place,
    receiver,
)


@rule("backward-total-nodes", "wasted")
def total_of_losses(code):
    """`total += loss` after `loss.backward()`: the sum keeps every graph."""
    for node in code.nodes_of(ast.Assign, ast.AugAssign):
        target, value = _addition(node)
        loop = next(ancestors(node, *LOOPS), None) if target else None
        if loop is None or no_graph(code, node) or not has_graph(code, value, node.scope.backward):
            continue
        differentiated = any(
            name_of(receiver(call)) in names_in(value) for call in code.methods(loop, "backward")
        ) or _passed_to_backward(code, value, loop)
        if _in_dict(code, value) is not None:
            loop = next(
                (
                    outer_loop
                    for outer_loop in ancestors(loop, *LOOPS)
                    if code.methods(outer_loop, "backward")
                ),
                loop,
            )
            differentiated = bool(code.methods(loop, "backward"))
        if differentiated and _outlives(code, _container(target, loop), loop):
            yield node


def _container(target, loop):
    """Return the dict or list that contains the target, else the target."""
    base = target.partition("[")[0]
    values = loop.scope.assigned.get(base, ()) if base != target else ()
    value = values[-1].value if values else None
    named = method(value) in ("dict", "defaultdict", "OrderedDict", "Counter")
    return base if named or isinstance(value, ast.Dict | ast.List) else target


def _in_dict(code, node):
    """Return the dict that a loop iterates over, as in `for name, value in losses.items()`."""
    part = code.value(node) if isinstance(node, ast.Name) else None
    if not isinstance(part, Part) or method(part.value) not in ("items", "values"):
        return None
    mapping = receiver(part.value)
    for _ in range(2):  # through a parameter
        mapping = code.resolved(mapping)
    return mapping if isinstance(mapping, ast.Dict) else None


@rule("debug-leak-meter", "wasted")
def meter_of_losses(code):
    """`losses.update(loss, n)` of a meter that adds the values up: the sum retains every graph."""
    for call in code.calls_named("update", "add"):
        if not call.args or no_graph(code, call):
            continue
        loop = next(ancestors(call, *LOOPS), None)
        if loop is None or not has_graph(code, call.args[0], call.scope.backward):
            continue
        source = _in_dict(code, call.args[0])
        if source is not None:
            loop = next(ancestors(source, *LOOPS), loop)
        meter_kind = kind(code, receiver(call)) or ""
        update = code.functions.get((meter_kind.removeprefix("object:"), method(call)))
        if meter_kind.startswith("object:") and update is not None and _adds_up(update):
            if code.methods(loop, "backward", "manual_backward"):
                yield call


def _adds_up(update):
    """Return whether `self.sum += value * n` adds the first parameter without detaching it."""
    names = [parameter.arg for parameter in update.args.args]
    for node in descendants(update):
        if isinstance(node, ast.AugAssign) and (name_of(node.target) or "").startswith("self."):
            used = [child for child in descendants(node.value) if isinstance(child, ast.Name)]
            if len(names) > 1 and names[1] in {child.id for child in used}:
                cut = {last_name(child) for child in descendants(node.value)} & (_CUT | {"float"})
                return not cut
    return False


_CUT = {"item", "detach", "float", "numpy", "tolist", "data"}


def _is_cut(value):
    """Return whether an expression leaves the graph; a variable may be called `data`."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in _CUT or last_name(node) == "float"
        for node in descendants(value)
    )


def has_graph(code, node, names):
    """Return whether an expression has the graph of one of these names, or of a loss."""
    if isinstance(node, ast.BinOp):
        return has_graph(code, node.left, names) or has_graph(code, node.right, names)
    if isinstance(node, ast.Name | ast.Attribute):
        value = code.value(node)
        if isinstance(value, ast.Name | ast.Attribute):
            return has_graph(code, code.origin(node), names)
        if isinstance(value, ast.Call) and (
            code.called(value).startswith("numpy.") or _is_cut(value)
        ):
            return False
        source = _in_dict(code, node)
        if source is not None and not no_graph(code, source):
            return any(
                has_graph(code, expression, source.scope.backward) for expression in source.values
            )
        return name_of(node) in names or kind(code, node) == "loss"
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and not code.dotted(node.func):
        kept = method(node) in ("mean", "sum", "clone", "cpu", "to", "squeeze", "float", "cuda")
        return kept and has_graph(code, receiver(node), names)
    return kind(code, node) == "loss"


def _passed_to_backward(code, value, loop):
    """Return True for `accelerator.backward(loss)` and `fabric.backward(loss)` in the loop."""
    return any(
        len(call.args) >= 1 and name_of(call.args[0]) in names_in(value) and name_of(call.args[0])
        for call in code.methods(loop, "backward")
    )


def _addition(node):
    """Return name and value of `name += value` or `name = name + value`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return name_of(node.target), node.value
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.value, ast.BinOp)
    ):
        target = name_of(node.targets[0])
        if isinstance(node.value.op, ast.Add) and target and target == name_of(node.value.left):
            return target, node.value.right
    return None, None


def _outlives(code, name, loop):
    """Return whether the name is assigned before the loop and is not the differentiated loss."""
    if name in loop.scope.backward or any(
        name_of(receiver(call)) == name for call in code.methods(loop, "detach_")
    ):
        return False
    assignments = loop.scope.assigned.get(name, ())
    again = [
        assignment
        for assignment in assignments
        if loop.lineno <= assignment.statement.lineno <= loop.end_lineno
        and not (isinstance(assignment.value, ast.BinOp) and name_of(assignment.value.left) == name)
        and not _is_periodic(assignment.statement, loop)
    ]
    before = [assignment for assignment in assignments if assignment.end < place(loop)]
    return not again and (bool(before) or name.startswith("self."))


def _is_periodic(statement, loop):
    """Return whether a statement only runs in every n-th iteration, as below `if i % n == 0:`."""
    return any(
        is_inside(condition, loop) and "%" in ast.unparse(condition.test)
        for condition in ancestors(statement, ast.If)
    )


@rule("debug-leak-wrong", "wasted")
def list_of_losses(code):
    """`losses.append(loss)` after `loss.backward()`."""
    for call in code.calls_named("append"):
        if len(call.args) != 1 or no_graph(code, call):
            continue
        operand, loop = call.args[0], next(ancestors(call, *LOOPS), None)
        operand = code.origin(operand) if isinstance(operand, ast.Subscript | ast.Name) else operand
        name = name_of(operand)
        if loop is None or not isinstance(operand, ast.Name | ast.Attribute):
            continue
        backward_calls = [
            other_call
            for other_call in code.methods(loop, "backward")
            if name_of(receiver(other_call)) == name
        ]
        source = _in_dict(code, operand)
        if source is not None:
            loop = next(ancestors(source, *LOOPS), loop)
            backward_calls = code.methods(loop, "backward")
        if (
            backward_calls
            and has_graph(code, operand, {name})
            and _outlives(code, _container(name_of(receiver(call)) or "", loop), loop)
        ) and not _is_detached_before(name, loop, call):
            yield call
    yield from _kept_by_hook(code)
    yield from _kept_by_step(code)


def _kept_by_hook(code):
    """`outputs.append(output)` in a forward hook, without `detach()` or `no_grad`."""
    if re.search(r"no_grad|inference_mode|set_grad_enabled|\.clear\(|\.pop\(", code.source):
        return
    hooks = [
        other_call.args[0]
        for other_call in code.calls_named("register_forward_hook")
        if other_call.args
    ]
    for function in code.nodes_of(*FUNCTIONS) if hooks else ():
        names = [parameter.arg for parameter in function.args.args if parameter.arg != "self"]
        if len(names) != 3 or function.name not in {last_name(hook) for hook in hooks}:
            if len(names) != 3 or not any(
                function.name in _returned_functions(code, hook) for hook in hooks
            ):
                continue
        for call in code.methods(function, "append"):
            kept = name_of(receiver(call)) or ""
            renewed = len(re.findall(rf"(?<![.\w]){re.escape(kept)} *= *\[", code.source)) > 1
            local = kept in function.assigned
            if (
                call.args
                and name_of(call.args[0]) == names[2]
                and kept
                and not renewed
                and not local
            ):
                yield call


def _returned_functions(code, node):
    """Return the names of the functions that the call of a maker of hooks returns."""
    functions = code.targets(node) if isinstance(node, ast.Call) else ()
    return {
        last_name(statement.value)
        for f in functions
        for statement in descendants(f)
        if isinstance(statement, ast.Return)
    }


def _kept_by_step(code):
    """`self.losses.append(loss)` in `training_step` of Lightning, which returns the loss."""
    for (owner, name), function in code.functions.items():
        if owner is None or name != "training_step":
            continue
        returned = {
            name_of(statement.value)
            for statement in code.walk(function)
            if isinstance(statement, ast.Return)
        }
        for call in code.methods(function, "append"):
            on_self = (name_of(receiver(call)) or "").startswith("self.")
            if on_self and len(call.args) == 1 and name_of(call.args[0]) in returned - {None}:
                yield call


def _is_detached_before(name, loop, call):
    """Return whether the name is reassigned between the backward pass and the list."""
    values = loop.scope.assigned.get(name, ())
    return any(
        assignment.end < place(call)
        and method(assignment.value) in ("item", "detach", "float", "numpy", "cpu")
        for assignment in values
    )
