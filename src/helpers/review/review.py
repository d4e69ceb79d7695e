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
from helpers.review.inlining import inlined, may_be_copied, places, written
from helpers.review.normal import normalized
from helpers.review.reading import Source
from helpers.review.registry import RULES, Rule
from helpers.review.syntax import place

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
        TypeError: `source` is not a text, or `chosen` not a collection of texts.
        SyntaxError: the source is not valid Python.
        RecursionError: an expression is nested too deeply.
    """
    if not isinstance(source, str):
        raise TypeError(f"source must be a text, got {type(source).__name__}")
    if isinstance(chosen, str) or not isinstance(chosen, Collection | None):
        raise TypeError(f"chosen must be a collection of ids, got {chosen!r}")
    code = Code(source)
    if not code.uses_torch:
        return []
    rules = {name: rule for name, rule in RULES.items() if chosen is None or name in chosen}
    copies = _copies(code)
    findings = {
        Finding(*position, name)
        for name, rule in rules.items()
        if all(normal for *_, normal in copies) or not _COPY_ONLY.match(name)
        for position in map(place, _reported_nodes(rule, code))
    }
    for copy, positions, normal in copies:
        known = {finding.rule for finding in findings} if normal else set()
        lines = {(finding.line, None if normal else finding.rule) for finding in findings}
        findings |= {
            finding
            for finding in _in_copy(copy, positions, rules, normal)
            if finding.rule not in known
            if (finding.line, None if normal else finding.rule) not in lines
        }
    return sorted(
        finding
        for finding in findings
        if finding.line >= first and not silenced(code.lines[finding.line - 1], finding.rule)
    )


# Rules about names as written: not applied to copies, whose variables have other names.
_FILE_ONLY = re.compile(r"names-|rate-same-optimizer|lightning-|data-parallel-attribute")
# Rules about one way to write a value: not applied to the normal form.
_NOT_NORMAL = re.compile("attention-position-one")
# Slow rules that follow shapes: not applied to the file if there is an inlined copy.
_COPY_ONLY = re.compile(r"modules-sizes|modules-no-flatten|views-samples")


def _copies(code: Code) -> list[tuple[Code, dict[ast.AST, tuple[int, int]], bool]]:
    """Return the source with its functions inlined, and its normal form, with the places in it."""
    copies = []
    with suppress(RecursionError, SyntaxError, ValueError):  # a copy has no valid source
        body = code.tree.body
        if (inlined_copy := inlined(code)) is not None:
            body = inlined_copy[1]
            copies.append((copy := Code(inlined_copy[0]), places(copy.tree, body), False))
        normal = normalized(body) if may_be_copied(code) else None
        if normal is not None:
            copy = Code(written(code, normal))
            copies.append((copy, places(copy.tree, normal), True))
    return copies


def _in_copy(copy: Code, positions: dict, rules: dict[str, Rule], normal: bool) -> set[Finding]:
    """Return the findings of the rules in a copy of the source."""
    skipped = [_FILE_ONLY, _COPY_ONLY, _NOT_NORMAL] if normal else [_FILE_ONLY]
    return {
        Finding(*positions[node], name)
        for name, rule in rules.items()
        if not any(pattern.match(name) for pattern in skipped)
        for node in _reported_nodes(rule, copy)
        if node in positions
    }


def _reported_nodes(rule: Rule, code: Code) -> Iterator[ast.AST]:
    """Yield the nodes that a rule reports; stop at an expression that is nested too deeply."""
    if rule.mentions and not any(word in code.source for word in rule.mentions):
        return
    with suppress(RecursionError):
        yield from rule.check(code)


def line_of(source: Source, finding: Finding) -> str:
    """Return the source line of a finding without indentation."""
    return source.text.split("\n")[finding.line - 1].strip()
