"""Query the nodes of a syntax tree."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from functools import lru_cache

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.Module, *FUNCTIONS, ast.Lambda)
LOOPS = (ast.For, ast.While, ast.AsyncFor)


@lru_cache(maxsize=1)  # reading and reviewing a file parse the same source
def parsed(source: str) -> ast.Module:
    """Parse a source, suppressing warnings about its string escapes.

    Raises:
        SyntaxError, ValueError: the source is not valid Python.
        RecursionError, MemoryError: an expression is nested too deeply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def name_of(node: object) -> str | None:
    """Return the source text of a name such as `model`, `self.net`, `a.b[0]`; None for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = name_of(node.value)
        return None if base is None else f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript):
        base = name_of(node.value)
        return None if base is None else f"{base}[{ast.unparse(node.slice)}]"
    return None


def last_name(node: object) -> str:
    """Return the last part of a name: `step` of `self.optimizer.step`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def method(node: object) -> str:
    """Return the name of a called method or function, "" for other nodes."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


_WRAPPERS = {
    "cycle",
    "enumerate",
    "islice",
    "log_every",
    "prefetch",
    "progress_bar",
    "tqdm",
    "tqdm_notebook",
    "track",
    "zip",
}


def wrapped(node: object) -> ast.AST | None:
    """Return the argument of `enumerate`, `tqdm`, `zip` or similar; None for other nodes."""
    if isinstance(node, ast.NamedExpr):
        return node.value
    if isinstance(node, ast.Call) and node.args and last_name(node.func) in _WRAPPERS:
        return node.args[0]
    return None


def receiver(call: ast.Call) -> ast.AST | None:
    """Return `x` of the call `x.method()`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def place(node: ast.AST) -> tuple[int, int]:
    """Return the line and column where a node begins."""
    return node.lineno, node.col_offset


def const(node: object) -> object:
    """Return the value of a constant or negative number; None for other nodes."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = const(node.operand)
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.AST | None:
    """Return an argument of a call by its keyword or its position."""
    for keyword in call.keywords:
        if keyword.arg == name or keyword.arg == "axis" and name == "dim":
            return keyword.value
    if position is not None and position < len(call.args):
        return call.args[position]
    return None


def operands(node: ast.AST, *operators: type) -> list[ast.AST]:
    """Return the operands of a chain: the factors of a product, the terms of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operators):
        return [*operands(node.left, *operators), *operands(node.right, *operators)]
    return [node]


def is_open(call: ast.Call) -> bool:
    """Return True if a call has `*args` or `**kwargs`, so its arguments are unknown."""
    starred = any(isinstance(arg, ast.Starred) for arg in call.args)
    return starred or any(keyword.arg is None for keyword in call.keywords)


def ancestors(
    node: ast.AST, *types: type, stop: tuple[type, ...] = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
) -> Iterator[ast.AST]:
    """Yield the enclosing nodes of these types within a function, innermost first."""
    node = node.parent
    while node is not None and not isinstance(node, stop):
        if not types or isinstance(node, types):
            yield node
        node = node.parent


def is_inside(node: ast.AST, outer: ast.AST) -> bool:
    """Return True if a node is `outer` or one of its descendants."""
    while node is not None and node is not outer:
        node = node.parent
    return node is outer


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below a node, without the contexts `Load` and `Store`."""
    below = []
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            below += [child for child in value if isinstance(child, ast.AST)]
        elif isinstance(value, ast.AST) and field != "ctx":
            below.append(value)
    return below


def descendants(node: ast.AST) -> list[ast.AST]:
    """Return a node and the nodes below it, level by level, without `Load` and `Store`."""
    nodes = [node]
    for inner in nodes:
        nodes += inner.children if hasattr(inner, "children") else children(inner)
    return nodes


def names_in(node: object) -> set[str]:
    """Return all names in an expression, with and without attributes."""
    if not isinstance(node, ast.AST):
        return set()
    return {
        name
        for child in descendants(node)
        if isinstance(child, ast.Name | ast.Attribute) and (name := name_of(child))
    }


def stored_names(node: ast.AST) -> set[str]:
    """Return the names that the nodes below a node assign."""
    return {
        child.id
        for child in descendants(node)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
    }


def branches(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield each enclosing `if`, `try` and `match` statement and the branch with the node."""
    child, node = node, node.parent
    while node is not None and not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
        if isinstance(node, ast.If | ast.IfExp):
            arm = next((f for f in ("body", "orelse") if _within(child, getattr(node, f))), "test")
            yield node, arm
        elif isinstance(node, (ast.match_case, ast.ExceptHandler)):
            yield node.parent, str(id(node))
        child, node = node, node.parent


def _within(child: ast.AST, arm: object) -> bool:
    return child in arm if isinstance(arm, list) else child is arm


def exclusive(a: ast.AST, b: ast.AST) -> bool:
    """Return True if two nodes are in different branches of a statement, so only one runs."""
    arms = dict(branches(a))
    return any(
        node in arms and arms[node] != arm and "test" not in (arms[node], arm)
        for node, arm in branches(b)
    )


def copied(node: ast.AST) -> ast.AST:
    """Copy a node with its positions, without the attributes that `Code` adds."""
    copy = node.__class__.__new__(node.__class__)
    for name in (*node._attributes, *node._fields):
        if hasattr(node, name):
            value = getattr(node, name)
            if isinstance(value, list):
                value = [copied(item) if isinstance(item, ast.AST) else item for item in value]
            setattr(copy, name, copied(value) if isinstance(value, ast.AST) else value)
    return copy


def default_of(function: ast.FunctionDef | ast.Lambda, name: str) -> ast.AST | None:
    """Return the default of a parameter, None without one."""
    signature = function.args
    names = [*signature.posonlyargs, *signature.args]
    pairs = [*zip(names[::-1], signature.defaults[::-1], strict=False)]
    pairs += zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
    return next((value for parameter, value in pairs if parameter.arg == name), None)
