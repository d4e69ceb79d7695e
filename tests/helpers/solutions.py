"""Load the solutions and starters of all exercises from the texts of the chapters."""

from __future__ import annotations

import ast
import importlib
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from bookbuild.source import texts
from bookbuild.source.checkout import Book
from helpers import exercises

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted(
    f.stem
    for f in Path(exercises.__file__).parent.glob("*.py")
    if f.stem not in ("__init__", "modes", "tools")
)


def _cells(chapter, tag):
    for cell in texts.load(Book(ROOT), chapter).cells:
        if cell.type == "code" and tag in _tags(cell):
            yield cell


def _tags(cell):
    return cell.metadata.get("tags", [])


def _checks(cell):
    """Return the names of the checker that a cell calls and of the answer that it passes."""
    call = ast.parse(cell.source).body[-1].value
    return call.func.attr, ast.unparse(call.args[0])


NAMES = {c: [_checks(cell)[0] for cell in _cells(c, "solution")] for c in CHAPTERS}
ALL = [(chapter, check) for chapter, checks in NAMES.items() for check in checks]


def _names(chapter):
    """Return the imports and constants of the cells before the exercises that the answers use."""
    nodes, used, space = [], set(), {}
    for cell in texts.load(Book(ROOT), chapter).cells:
        if cell.type == "code" and {"solution", "exercise"} & set(_tags(cell)):
            used |= _read(ast.parse(cell.source))
        elif cell.type == "code":
            nodes += filter(_is_name, _tree(cell))
    kept = []
    for node in reversed(nodes):
        if isinstance(node, ast.Assign) and node.targets[0].id in used:
            used |= _read(node)
            kept.append(node)
        elif not isinstance(node, ast.Assign) and used & {
            (alias.asname or alias.name).partition(".")[0] for alias in node.names
        }:
            kept.append(node)
    for node in reversed(kept):
        with suppress(ImportError):  # a cell that shows an old import
            exec(compile(ast.Module([node], []), chapter, "exec"), space)
    return space


def _read(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _is_name(node):
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and re.fullmatch(
            "[A-Z]{2,}", node.targets[0].id
        )
    return isinstance(node, ast.Import | ast.ImportFrom)


def _tree(cell):
    try:
        return ast.parse(cell.source).body
    except SyntaxError:  # a cell with a magic command
        return []


@cache
def _answers(chapter, tag):
    space, found = _names(chapter), {}
    for cell in _cells(chapter, tag):
        check, answer = _checks(cell)
        tree = ast.parse(cell.source)
        tree.body.pop()
        exec(compile(tree, cell.id, "exec"), space)
        found[check] = eval(answer, space)
    return found


def checker(chapter, check):
    return getattr(importlib.import_module(f"helpers.exercises.{chapter}"), check)


def solution(chapter, check):
    return _answers(chapter, "solution")[check]


def starter(chapter, check):
    return _answers(chapter, "exercise")[check]
