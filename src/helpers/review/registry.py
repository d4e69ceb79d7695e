"""The rules by their ids. A rule is a function that yields the nodes of a file that it names."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helpers.review.code import Code

Check = Callable[[Code], Iterator[ast.AST]]
SEVERITIES = ("wrong", "wasted", "raises")  # a wrong result, wasted work, an error when it runs


@dataclass(frozen=True)
class Rule:
    """A rule: the id of its pitfall, what follows from the mistake, and the function.

    A source with none of the words in `mentions`, `a|b`, is not searched.
    """

    id: str
    severity: str
    check: Check
    mentions: str = ""


RULES: dict[str, Rule] = {}


def rule(pitfall: str, severity: str, mentions: str = "") -> Callable[[Check], Check]:
    """Register a function as the rule of a pitfall; `book/review.yml` has its words.

    Raises:
        ValueError: the severity is unknown, or the pitfall has a rule.
    """
    if severity not in SEVERITIES:
        raise ValueError(f"{pitfall}: severity {severity!r}: expected one of {SEVERITIES}")
    if pitfall in RULES:
        raise ValueError(f"{pitfall}: has two rules")

    def register(check: Check) -> Check:
        RULES[pitfall] = Rule(pitfall, severity, check, mentions)
        return check

    return register
