"""Test that each rule reports its mistake and nothing in the corrected code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from helpers.review.registry import RULES, SEVERITIES, rule
from helpers.review.review import review, words

HERE = Path(__file__).parent
CASES = {
    name: ["wrong", *re.split(r"^--- (right|wrong)\n", body, flags=re.M)]
    for name, body in re.findall(
        r"^=== (\S+)\n(.*?)(?=^=== |\Z)", (HERE / "cases.txt").read_text("utf8"), re.S | re.M
    )
}


def found(source: str) -> list[tuple[str, int]]:
    return [(one.rule, one.line) for one in review(source)]


def test_every_rule_has_cases_and_texts():
    assert CASES.keys() == RULES.keys() == words().keys()


@pytest.mark.parametrize("name", CASES)
def test_rule_finds_only_the_marked_lines(name):
    for kind, code in zip(CASES[name][::2], CASES[name][1::2], strict=True):
        marked = [n for n, line in enumerate(code.split("\n"), 1) if line.endswith("# <-")]
        assert bool(marked) == (kind == "wrong")
        assert found(code) == [(name, line) for line in marked]


@pytest.mark.parametrize("name", CASES)
def test_rule_texts_are_complete(name):
    row = words()[name]
    ast.parse(row["fix"] if not row["fix"].endswith(":") else f"{row['fix']}\n        pass")
    assert row["effect"]["en"].endswith(".") and row["effect"]["zh"].endswith("。")
    assert ".html" in row["section"]["href"]


def test_duplicate_rule_or_unknown_severity_raises():
    assert {one.severity for one in RULES.values()} == {*SEVERITIES}
    with pytest.raises(ValueError, match="has two rules"):
        rule("backward-adds", "wrong")
    with pytest.raises(ValueError, match="severity 'bad'"):
        rule("new", "bad")


@pytest.mark.parametrize("path", sorted((HERE / "clean").glob("*.py")), ids=lambda p: p.stem)
def test_clean_script_has_no_finding(path):
    assert found(path.read_text("utf8")) == []
