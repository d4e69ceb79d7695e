"""Find the constructor of a layer, and the number that one of its arguments is.

A local module has the arguments of the call that constructs it, so two instances of a
class have their own sizes.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass

from helpers.review.code import Code, Part, entry_of, has_parameter, is_moved
from helpers.review.kinds import MOVES, WRAPPERS
from helpers.review.syntax import (
    FUNCTIONS,
    ancestors,
    argument,
    const,
    default_of,
    is_open,
    method,
    name_of,
    receiver,
)

_DEEPEST = 12
_INTEGER = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_ONCE = (ast.For, ast.While, ast.If, ast.Try)


@dataclass(frozen=True)
class Frame:
    """An instance of a local class: the call that constructs it, and the frame of that call."""

    owner: str
    call: ast.Call | None = None
    outer: Frame | None = None

    def site(self) -> ast.Call | None:
        """Return the constructor in the outermost module, None for that module itself."""
        frame = self
        while frame.outer is not None and frame.outer.outer is not None:
            frame = frame.outer
        return frame.call if frame.outer is not None else None


def number(code: Code, node: ast.AST | None, frame: Frame | None, depth: int = 0) -> int | None:
    """Return the integer that an expression is in a frame, None if it is not certain."""
    if node is None or depth > _DEEPEST:
        return None
    value = const(node)
    if type(value) is int:
        return value
    if isinstance(node, ast.BinOp) and type(node.op) in _INTEGER:
        sides = [number(code, side, frame, depth + 1) for side in (node.left, node.right)]
        return _computed(node.op, *sides)
    if isinstance(node, ast.Name):
        return _of_name(code, node, frame, depth + 1)
    if isinstance(node, ast.Call):
        is_int_call = len(node.args) == 1 and getattr(node.func, "id", "") == "int"
        return number(code, node.args[0], frame, depth + 1) if is_int_call else None
    name = name_of(node)
    if name is None:
        return None
    if name.startswith("self."):
        value = attribute(code, name, frame)
        return number(code, value, frame, depth + 1) if value is not None else None
    value = code.const(node)
    return value if type(value) is int else None


def _computed(op: ast.operator, left: int | None, right: int | None) -> int | None:
    if left is None or right is None or max(abs(left), abs(right)) > 1 << 31:
        return None
    if isinstance(op, ast.FloorDiv | ast.Pow) and not 0 < right < 64:
        return None
    return _INTEGER[type(op)](left, right)


def _of_name(code: Code, node: ast.Name, frame: Frame | None, depth: int) -> int | None:
    scope = node.scope
    while scope is not None:
        values = scope.assigned.get(node.id)
        if values:
            value = _only(code, scope, node.id)
            return number(code, value, frame, depth) if value is not None else None
        if has_parameter(scope, node.id):
            return _of_parameter(code, scope, node.id, frame, depth)
        scope = scope.scope
    return None


def _only(code: Code, scope: ast.AST, name: str) -> ast.AST | None:
    """Return the value of a name that a scope assigns once, outside loops and branches."""
    values = scope.assigned.get(name, ())
    if len(values) != 1 or has_parameter(scope, name) or (scope, name) in code.changed_names:
        return None
    value = values[0].value
    if isinstance(value, Part):
        value = code.element(value)
    return value if not any(ancestors(values[0].statement, *_ONCE)) else None


def _of_parameter(code, function, name, frame, depth) -> int | None:
    if frame is None or not _constructs(code, function, frame):
        arguments = code.arguments(function, name)
        return number(code, arguments[0], None, depth) if len(arguments) == 1 else None
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    call = frame.call
    if call is not None:
        passed = argument(call, name, names.index(name) - 1 if name in names else None)
        if passed is not None and not isinstance(passed, ast.Starred):
            starred = any(isinstance(arg, ast.Starred) for arg in call.args)
            return None if starred else number(code, passed, frame.outer, depth)
        if is_open(call):
            return None
    return number(code, default_of(function, name), None, depth)


def _constructs(code: Code, function: ast.AST, frame: Frame) -> bool:
    """Return True if a function is the constructor that the frame's call runs."""
    keys = [(owner.name, "__init__") for owner in code.bases(frame.owner)]
    return next((code.functions[key] for key in keys if key in code.functions), None) is function


def attribute(code: Code, name: str, frame: Frame | None) -> ast.AST | None:
    """Return the value of an attribute `self.x` that its class assigns once."""
    for owner in code.bases(frame.owner) if frame is not None else ():
        assignments = owner.attributes.get(name)
        if assignments:
            value = assignments[0].value
            once = len(assignments) == 1 and (owner, name) not in code.changed_names
            sure = once and not any(ancestors(assignments[0].statement, *_ONCE))
            return value if sure and isinstance(value, ast.AST) else None
    return None


def constructed(code: Code, node: ast.AST | None, frame: Frame | None, depth=0) -> ast.Call | None:
    """Return the call that constructs the module that an expression refers to."""
    if node is None or depth > _DEEPEST:
        return None
    if isinstance(node, ast.Call):
        if code.called(node).startswith("nn.") or getattr(node.func, "id", "") in code.classes:
            return node
        if code.called(node) in WRAPPERS and node.args:
            return constructed(code, node.args[0], frame, depth + 1)
        if method(node) in MOVES | {"eval", "train"} and receiver(node) is not None:
            return constructed(code, receiver(node), frame, depth + 1)
        return None
    name = name_of(node)
    if name is None or name == "self":
        return None
    if isinstance(node, ast.Subscript):
        container = constructed(code, node.value, frame, depth + 1)
        entry = (
            entry_of(container, number(code, node.slice, frame)) if container is not None else None
        )
        return constructed(code, entry, frame, depth + 1)
    if name.startswith("self."):
        return constructed(code, attribute(code, name, frame), frame, depth + 1)
    return constructed(code, _module_of_name(code, node), frame, depth + 1)


def _module_of_name(code: Code, node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Name):
        return None
    scope = node.scope
    while scope is not None and node.id not in scope.assigned:
        if has_parameter(scope, node.id):
            arguments = code.arguments(scope, node.id) if isinstance(scope, FUNCTIONS) else []
            return arguments[0] if len(arguments) == 1 else None
        scope = scope.scope
    values = scope.assigned[node.id] if scope is not None else []
    constructors = [
        assignment.value for assignment in values if not is_moved(assignment.value, node.id)
    ]
    return (
        constructors[0] if len(constructors) == 1 and isinstance(constructors[0], ast.AST) else None
    )
