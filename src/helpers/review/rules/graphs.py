"""Graphs that outlive their iteration."""

import ast
import re

from helpers.review.code import Part
from helpers.review.kinds import kind, no_graph
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    above,
    last,
    method,
    names_in,
    place,
    receiver,
    text,
)


@rule("backward-total-nodes", "wasted")
def total_of_losses(code):
    """`total += loss` after `loss.backward()`: the sum keeps every graph."""
    for node in code.nodes:
        target, value = _added(node)
        loop = next(above(node, *LOOPS), None) if target else None
        if loop is None or no_graph(code, node) or not has_graph(code, value, node.scope.backward):
            continue
        differentiated = any(
            text(receiver(call)) in names_in(value) for call in code.methods(loop, "backward")
        ) or _passed_to_backward(code, value, loop)
        if _in_dict(code, value) is not None:
            loop = next((one for one in above(loop, *LOOPS) if code.methods(one, "backward")), loop)
            differentiated = bool(code.methods(loop, "backward"))
        if differentiated and _outlives(code, _container(code, target, loop), loop):
            yield node


def _container(code, target, loop):
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
    for call in code.calls:
        if method(call) not in ("update", "add") or not call.args or no_graph(code, call):
            continue
        loop = next(above(call, *LOOPS), None)
        if loop is None or not has_graph(code, call.args[0], call.scope.backward):
            continue
        source = _in_dict(code, call.args[0])
        if source is not None:
            loop = next(above(source, *LOOPS), loop)
        own = kind(code, receiver(call)) or ""
        update = code.functions.get((own.removeprefix("object:"), method(call)))
        if own.startswith("object:") and update is not None and _adds_up(update):
            if code.methods(loop, "backward", "manual_backward"):
                yield call


def _adds_up(update):
    """Return whether `self.sum += value * n` adds the first parameter without detaching it."""
    names = [one.arg for one in update.args.args]
    for node in ast.walk(update):
        if isinstance(node, ast.AugAssign) and (text(node.target) or "").startswith("self."):
            used = [one for one in ast.walk(node.value) if isinstance(one, ast.Name)]
            if len(names) > 1 and names[1] in {one.id for one in used}:
                cut = {last(one) for one in ast.walk(node.value)} & (_CUT | {"float"})
                return not cut
    return False


_CUT = {"item", "detach", "float", "numpy", "tolist", "data"}


def _is_cut(value):
    """Return whether an expression leaves the graph; a variable may be called `data`."""
    return any(
        isinstance(one, ast.Attribute) and one.attr in _CUT or last(one) == "float"
        for one in ast.walk(value)
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
            return any(has_graph(code, one, source.scope.backward) for one in source.values)
        return text(node) in names or kind(code, node) == "loss"
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and not code.dotted(node.func):
        kept = method(node) in ("mean", "sum", "clone", "cpu", "to", "squeeze", "float", "cuda")
        return kept and has_graph(code, receiver(node), names)
    return kind(code, node) == "loss"


def _passed_to_backward(code, value, loop):
    """Return True for `accelerator.backward(loss)` and `fabric.backward(loss)` in the loop."""
    return any(
        len(call.args) >= 1 and text(call.args[0]) in names_in(value) and text(call.args[0])
        for call in code.methods(loop, "backward")
    )


def _added(node):
    """Return name and value of `name += value` or `name = name + value`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return text(node.target), node.value
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.value, ast.BinOp)
    ):
        target = text(node.targets[0])
        if isinstance(node.value.op, ast.Add) and target and target == text(node.value.left):
            return target, node.value.right
    return None, None


def _outlives(code, name, loop):
    """Return whether the name is assigned before the loop and is not the differentiated loss."""
    if name in loop.scope.backward or any(
        text(receiver(call)) == name for call in code.methods(loop, "detach_")
    ):
        return False
    assignments = loop.scope.assigned.get(name, ())
    again = [
        one
        for one in assignments
        if loop.lineno <= one.statement.lineno <= loop.end_lineno
        and not (isinstance(one.value, ast.BinOp) and text(one.value.left) == name)
    ]
    before = [one for one in assignments if one.end < place(loop)]
    return not again and (bool(before) or name.startswith("self."))


@rule("debug-leak-wrong", "wasted")
def list_of_losses(code):
    """`losses.append(loss)` after `loss.backward()`."""
    for call in code.calls:
        if method(call) != "append" or len(call.args) != 1 or no_graph(code, call):
            continue
        given, loop = call.args[0], next(above(call, *LOOPS), None)
        given = code.origin(given) if isinstance(given, ast.Subscript | ast.Name) else given
        name = text(given)
        if loop is None or not isinstance(given, ast.Name | ast.Attribute):
            continue
        back = [one for one in code.methods(loop, "backward") if text(receiver(one)) == name]
        source = _in_dict(code, given)
        if source is not None:
            loop = next(above(source, *LOOPS), loop)
            back = code.methods(loop, "backward")
        if (
            back
            and has_graph(code, given, {name})
            and _outlives(code, _container(code, text(receiver(call)) or "", loop), loop)
        ) and not _detached(code, name, loop, call):
            yield call
    yield from _kept_by_hook(code)
    yield from _kept_by_step(code)


def _kept_by_hook(code):
    """`outputs.append(output)` in a forward hook, without `detach()` or `no_grad`."""
    if re.search(r"no_grad|inference_mode|set_grad_enabled|\.clear\(|\.pop\(", code.source):
        return
    hooks = [
        one.args[0] for one in code.calls if method(one) == "register_forward_hook" and one.args
    ]
    for function in code.of(*FUNCTIONS) if hooks else ():
        names = [one.arg for one in function.args.args if one.arg != "self"]
        if len(names) != 3 or function.name not in {last(one) for one in hooks}:
            if len(names) != 3 or not any(function.name in _returned(code, one) for one in hooks):
                continue
        for call in code.methods(function, "append"):
            kept = text(receiver(call)) or ""
            renewed = len(re.findall(rf"(?<![.\w]){re.escape(kept)} *= *\[", code.source)) > 1
            local = kept in function.assigned
            if call.args and text(call.args[0]) == names[2] and kept and not renewed and not local:
                yield call


def _returned(code, node):
    """Return the names of the functions that the call of a maker of hooks returns."""
    functions = code.targets(node) if isinstance(node, ast.Call) else ()
    return {
        last(one.value) for f in functions for one in ast.walk(f) if isinstance(one, ast.Return)
    }


def _kept_by_step(code):
    """`self.losses.append(loss)` in `training_step` of Lightning, which returns the loss."""
    for (owner, name), function in code.functions.items():
        if owner is None or name != "training_step":
            continue
        returned = {text(one.value) for one in code.walk(function) if isinstance(one, ast.Return)}
        for call in code.methods(function, "append"):
            own = (text(receiver(call)) or "").startswith("self.")
            if own and len(call.args) == 1 and text(call.args[0]) in returned - {None}:
                yield call


def _detached(code, name, loop, call):
    """Return whether the name is reassigned between the backward pass and the list."""
    values = loop.scope.assigned.get(name, ())
    return any(
        one.end < place(call)
        and isinstance(one.value, ast.Call)
        and method(one.value) in ("item", "detach", "float", "numpy", "cpu")
        for one in values
    )
