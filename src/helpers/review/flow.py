"""List the calls of a training step in execution order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from helpers.review.code import Code
from helpers.review.kinds import is_model, is_optimizer, is_scaler, is_scheduler
from helpers.review.syntax import method, name_of, receiver


@dataclass(frozen=True)
class Event:
    """A call with an effect on training.

    `kind` is `backward`, `step`, `zero_grad`, `clip`, `unscale`, `update`, `scheduler`, `train`,
    `eval` or `scaled` (a step through a scaler); `name` is the object's name as written.
    """

    kind: str
    name: str
    call: ast.Call


_PLAIN = {"backward", "zero_grad"}
_MODES = {"train", "eval"}


def event(code: Code, call: ast.Call) -> Event | None:
    """Return the event of a call in a training loop, None if `Event` does not list it."""
    name = code.called(call)
    if name.startswith("utils.clip_grad_"):
        model_name = (
            name_of(receiver(call.args[0])) if call.args and _is_parameters(call.args[0]) else ""
        )
        return Event("clip", model_name or "", call)
    base = receiver(call)
    if base is None or name:
        return None
    kind, base_name = call.func.attr, name_of(base) or ""
    if kind in _PLAIN:
        return Event(kind, base_name, call)
    if kind in _MODES and is_model(code, base) and method(code.resolved(base)) != "deepcopy":
        off = kind == "train" and call.args and getattr(call.args[0], "value", True) is False
        return Event("eval" if off else kind, base_name, call)
    if kind == "unscale_":
        return Event("unscale", name_of(call.args[0]) or "" if call.args else "", call)
    if kind == "update" and is_scaler(code, base):
        return Event("update", base_name, call)
    return _step_event(code, call, base) if kind == "step" else None


def _is_parameters(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


def _step_event(code: Code, call: ast.Call, base: ast.AST) -> Event | None:
    if is_optimizer(code, base):
        return Event("step", name_of(base) or "", call)
    if call.args and (is_optimizer(code, call.args[0]) or is_scaler(code, base)):
        return Event("scaled", name_of(call.args[0]) or "", call)
    return Event("scheduler", name_of(base) or "", call) if is_scheduler(code, base) else None


def events(code: Code, node: ast.AST, follow: int = 2) -> list[Event]:
    """Return the events below a node in execution order, both branches of an `if` in turn."""
    if (node, follow) not in code.events_below:
        code.events_below[node, follow] = list(_events(code, node, follow, set()))
    return code.events_below[node, follow]


def _events(code: Code, node: ast.AST, follow: int, seen: set[ast.AST]) -> Iterator[Event]:
    waiting: list[ast.Call] = []  # calls whose arguments are not evaluated yet
    for call in code.calls_under(node):
        while waiting and not _contains(waiting[-1], call):
            yield from _events_of_call(code, waiting.pop(), follow, seen)
        waiting.append(call)
    while waiting:
        yield from _events_of_call(code, waiting.pop(), follow, seen)


def _contains(outer: ast.Call, inner: ast.Call) -> bool:
    ends = (outer.end_lineno, outer.end_col_offset), (inner.end_lineno, inner.end_col_offset)
    return ends[1] <= ends[0]


def _events_of_call(code: Code, call: ast.Call, follow: int, seen: set[ast.AST]) -> Iterator[Event]:
    if call not in code.events:
        code.events[call] = event(code, call)
    if own_event := code.events[call]:
        yield own_event
    elif follow:
        for target in code.targets(call):
            if target not in seen:
                seen.add(target)
                yield from _events(code, target, follow - 1, seen)
