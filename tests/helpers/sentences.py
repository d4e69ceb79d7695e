"""Collect the checkers' sentences from their source, with values as placeholders."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

from helpers import exercises, verdicts

HOLE = re.compile(r"\{([^{}]*)\}")
SOURCES = {
    path.stem: path.read_text("utf8")
    for path in sorted(Path(exercises.__file__).parent.glob("*.py"))
}
UNSEEN = {  # texts with spaces that are code or data, not prose of a verdict
    "factor({t}, warm_up={warm_up}, total={total})",
    "will_run({capability}, {archs})",
    "choose({before}, {driver}, {capability})",
    "(n, 1)",
    "image label",
    "a name",
    "the CPU and the GPU",
    "your code raised RuntimeError: {first}",  # `verdict` adds this prefix
    "the server has stopped",
}


def shape(text: str) -> str:
    """Return a template with empty placeholders, for comparing the templates of two modules."""
    return HOLE.sub("{}", text)


def texts(source: str) -> set[str]:
    """Return all texts of a module except docstrings; f-strings and sums become templates."""
    return {_whole(node) for node in _nodes(ast.parse(source))}


def sentences(source: str) -> set[str]:
    """Return the texts of a module that a verdict may contain: those with a letter and a space.

    Excludes names passed to `unchanged`, patterns, and messages of Python's own exceptions, which
    no page translates.
    """
    tree = ast.parse(source)
    code = {
        id(inner) for node in ast.walk(tree) for part in _code(node) for inner in ast.walk(part)
    }
    shown = {_whole(node) for node in _nodes(tree) if id(node) not in code}
    return {text for text in shown if _has_words(text)} - UNSEEN


def _whole(node: ast.expr) -> str:
    """Return a template, with `{name}` in front if it starts with a space and has placeholders."""
    text = template(node)
    return f"{{name}}{text}" if re.match(r" .*\{", text) else text


def _has_words(text: str) -> bool:
    spaced = " " in HOLE.sub("x", text).strip()
    return spaced and re.search("[A-Za-z]", HOLE.sub("", text)) is not None


def _code(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node whose texts are never displayed."""
    if isinstance(node, ast.keyword) and node.arg == "but":
        return [node.value]
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        name = ast.unparse(node.exc.func)
        return [node.exc] if hasattr(builtins, name) and name != "AssertionError" else []
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return [node] if name.startswith("re.") else node.args[:1] if name == "unchanged" else []
    return []


def _nodes(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield texts and templates; a text inside a placeholder is yielded separately."""
    for child in ast.iter_child_nodes(tree):
        if _is_text(child):
            if not isinstance(tree, ast.Expr):  # a docstring
                yield child
            for value in _values(child):
                yield from _nodes(ast.Tuple([_joined(value)], ast.Load()))
        else:
            yield from _nodes(child)


def _joined(node: ast.expr) -> ast.expr:
    """Return the template of `" and ".join(names)`: `{first} and {rest}`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return node
    between = node.func.value
    if node.func.attr != "join" or not _has_words(f"x{getattr(between, 'value', '')}x"):
        return node
    return ast.parse(f'f"{{first}}{between.value}{{rest}}"', mode="eval").body


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _values(node: ast.expr) -> list[ast.expr]:
    """Return the expressions in the placeholders of a template."""
    if isinstance(node, ast.BinOp):
        parts = (node.left, node.right)
        return [v for part in parts for v in (_values(part) if _is_text(part) else [part])]
    return [v.value for v in getattr(node, "values", ()) if isinstance(v, ast.FormattedValue)]


def template(node: ast.expr) -> str:
    """Return a text as a template: each value is its source in braces, without a format."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    if isinstance(node, ast.BinOp) and _is_text(node):
        return template(node.left) + template(node.right)
    if isinstance(node, ast.FormattedValue):
        node = node.value
    return f"{{{ast.unparse(node)}}}"


# ---------------------------------------------------------------- verdicts at run time


@cache
def shapes(chapter: str) -> set[str]:
    """Return the shapes of all texts that a chapter's checkers contain or import."""
    demos = Path(exercises.__file__).parents[1] / "demos"
    sources = [f.read_text("utf8") for f in demos.glob(f"{chapter}.py")]
    others = re.findall(r"from helpers\.exercises\.(\w+) import", SOURCES[chapter])
    sources += [SOURCES[name] for name in {"__init__", "tools", chapter, *others}]
    return {shape(text) for source in sources for text in texts(source)}


@cache
def entries_of(chapter: str) -> tuple[list, ...]:
    """Return the entries of `helpers.verdicts` that a chapter's checkers use."""
    own = shapes(chapter)
    return tuple([e for e in part if "{}".join(e.parts) in own] for part in verdicts._entries())


def english_in(message: str, chapter: str, depth: int = 0) -> list[str]:
    """Return the parts of a message that a chapter's entries leave in English."""
    for entry in entries_of(chapter)[min(depth, 2)]:
        if (values := entry.values(message)) is not None:
            inside = [v for hole, v in values.items() if not verdicts._VERBATIM.search(hole)]
            return [e for value in inside for e in english_in(value, chapter, depth + 1)]
    code = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\[\]]*\]")
    return [message] if re.search("[A-Za-z]{2} +[A-Za-z]", code.sub("", message)) else []


def unlike(message: str, chapter: str) -> str:
    """Return the Chinese message if entries of other chapters change it, else an empty string."""
    whole = verdicts._translated(message)
    with mock.patch.object(verdicts, "_entries", lambda: entries_of(chapter)):
        return "" if verdicts._translated(message) == whole else whole


def checked_chapter() -> str | None:
    """Return the module of the running checker, or None if no checker is running."""
    frame = sys._getframe()
    while frame := frame.f_back:
        package, _, name = frame.f_globals.get("__name__", "").rpartition(".")
        if package == "helpers.exercises" and name != "tools":
            return name
    return None
