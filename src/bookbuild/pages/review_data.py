"""Serialize the rules' texts as data for `helpers.review`, which is installed without the book."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bookbuild.source.reviews import RuleText

PRODUCT = "src/helpers/review/rules.json"


def product(rules: Iterable[RuleText]) -> str:
    """Return the contents of `rules.json`, with one rule per line."""
    rows = (json.dumps(_plain(rule), ensure_ascii=False) for rule in rules)
    return '{"rules": [\n' + ",\n".join(rows) + "\n]}\n"


def _plain(rule: RuleText) -> dict:
    section = {"href": rule.href, **rule.titles}
    values = {"id": rule.id, "family": rule.family, "effect": rule.effect, "fix": rule.fix}
    return values | {"section": section, "why": rule.why}
