"""Register the rules by id. A rule is a function that yields the nodes with a mistake."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helpers.review.code import Code

Check = Callable[[Code], Iterator[ast.AST]]
SEVERITIES = ("wrong", "wasted", "raises")  # wrong result, wasted work, error at run time


@dataclass(frozen=True)
class Rule:
    """A rule: id of the pitfall, severity, and function.

    A source that contains none of the words in `mentions` is skipped.
    """

    id: str
    severity: str
    check: Check
    mentions: tuple[str, ...] = ()


RULES: dict[str, Rule] = {}


def rule(pitfall: str, severity: str, mentions: str = "") -> Callable[[Check], Check]:
    """Register a function as the rule of a pitfall; its texts are in `book/review.yml`.

    Raises:
        ValueError: the severity is unknown, or the pitfall already has a rule.
    """
    if severity not in SEVERITIES:
        raise ValueError(f"{pitfall}: severity {severity!r}: expected one of {SEVERITIES}")
    if pitfall in RULES:
        raise ValueError(f"{pitfall}: has two rules")

    def register(check: Check) -> Check:
        RULES[pitfall] = Rule(pitfall, severity, check, tuple(filter(None, mentions.split("|"))))
        return check

    return register
