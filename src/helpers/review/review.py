"""Apply the rules to a source."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from helpers.review import rules as _rules  # noqa: F401 (registers the rules)
from helpers.review.code import Code
from helpers.review.inlining import inlined, places
from helpers.review.reading import Source
from helpers.review.registry import RULES, Rule

FILE = Path(__file__).with_name("rules.json")


@dataclass(frozen=True, order=True)
class Finding:
    """Location of a mistake in a source, and the id of the rule that reports it."""

    line: int
    column: int
    rule: str


@cache
def words() -> dict[str, dict[str, Any]]:
    """Return the texts of each rule by id: `effect`, `fix`, `section`."""
    return {row["id"]: row for row in json.loads(FILE.read_text("utf8"))["rules"]}


_NOQA = re.compile(r"#\s*noqa(?::\s*([\w-]+(?:[,\s]+[\w-]+)*))?", re.I)


def silenced(line: str, rule: str) -> bool:
    """Return True if a line has `# noqa`, or `# noqa: <id>` with the id of `rule`."""
    if "noqa" not in line.lower() or not (comment := _NOQA.search(line)):
        return False
    return comment[1] is None or rule in re.split(r"[,\s]+", comment[1])


def review(source: str, chosen: Collection[str] | None = None, first: int = 1) -> list[Finding]:
    """Return the findings in a source in line order.

    Args:
        source: Python code; it is not executed.
        chosen: ids of the rules to apply; None for all.
        first: first line to report.

    Raises:
        SyntaxError: the source is not valid Python.
        RecursionError: an expression is nested too deeply.
    """
    code = Code(source)
    if not code.uses_torch:
        return []
    rules = {name: one for name, one in RULES.items() if chosen is None or name in chosen}
    copy = _inlined(code)
    findings = {
        Finding(*place, name)
        for name, rule in rules.items()
        if copy is None or not _FOLLOWING.match(name)
        for place in map(_place, _named(rule, code))
    }
    if copy is not None:
        named = {(one.line, one.rule) for one in findings}
        findings |= {one for one in _in_copy(*copy, rules) if (one.line, one.rule) not in named}
    return sorted(
        one
        for one in findings
        if one.line >= first and not silenced(code.lines[one.line - 1], one.rule)
    )


_OF_NAMES = re.compile(
    r"names-|rate-same-optimizer|lightning-|data-parallel-attribute"
)  # a copy changes the names
_FOLLOWING = re.compile(r"modules-sizes|modules-no-flatten|views-samples")  # slow: one pass only


def _place(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _inlined(code: Code) -> tuple[Code, dict[ast.AST, tuple[int, int]]] | None:
    """Return the source with its functions inlined, and the places of its nodes in the file."""
    with suppress(RecursionError, SyntaxError, ValueError):  # the copy has no valid source
        copied = inlined(code)
        if copied is not None:
            text, body = copied
            copy = Code(text)
            return copy, places(copy.tree, body)
    return None


def _in_copy(copy: Code, at: dict[ast.AST, tuple[int, int]], rules: dict[str, Rule]) -> set:
    """Return the findings of the rules in a source with its functions inlined."""
    return {
        Finding(*at[node], name)
        for name, rule in rules.items()
        if not _OF_NAMES.match(name)
        for node in _named(rule, copy)
        if node in at
    }


def _named(rule: Rule, code: Code) -> Iterator[ast.AST]:
    """Yield the nodes that a rule reports; stop at an expression that is nested too deeply."""
    if not any(word in code.source for word in rule.mentions.split("|")):
        return
    with suppress(RecursionError):
        yield from rule.check(code)


def line_of(source: Source, finding: Finding) -> str:
    """Return the source line of a finding without indentation."""
    return source.text.split("\n")[finding.line - 1].strip()
