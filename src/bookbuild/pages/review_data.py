"""The words of the rules as data for `helpers.review`, which readers install alone."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bookbuild.source.reviews import RuleText

PRODUCT = "src/helpers/review/rules.json"


def product(rules: Iterable[RuleText]) -> str:
    """Return `rules.json`, a rule on each line."""
    rows = (json.dumps(_plain(rule), ensure_ascii=False) for rule in rules)
    return '{"rules": [\n' + ",\n".join(rows) + "\n]}\n"


def _plain(rule: RuleText) -> dict:
    section = {"href": rule.href, **rule.titles}
    values = {"id": rule.id, "family": rule.family, "effect": rule.effect, "fix": rule.fix}
    return values | {"section": section, "why": rule.why}
