"""Evaluate the conditions of special cases: relations between the numbers of a message."""

from __future__ import annotations

import math

from helpers.explain.data import LIMITS, PATTERNS

RELATIONS = {
    "==": float.__eq__,
    "!=": float.__ne__,
    "<": float.__lt__,
    "<=": float.__le__,
    ">": float.__gt__,
    ">=": float.__ge__,
    "multiple of": lambda a, b: a > b > 0 and a % b == 0,
    "close to": lambda a, b: 0 < abs(a - b) <= LIMITS.close * max(a, b),
}
_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}


def related(relation: str, values: dict[str, str]) -> bool:
    """Return True if a relation between the values of a message holds.

    Args:
        relation: two terms and `==`, `!=`, `<`, `<=`, `>`, `>=`, `multiple of` or `close to`
            (not equal, and at most 5 % apart) between them. A term is a number, the name of a
            value (its first number, in bytes if a unit follows), `product(name)` (the product
            of its integers) or `leading(name)` (without the last two), optionally with a factor
            and a summand: `n > 10 * m`, `m == n + 1`.
        values: the values of the message, by name.

    Returns:
        False if the relation does not hold, or a value is missing or contains no number.
    """
    left, name, right = PATTERNS["relation"].fullmatch(relation).groups()
    a, b = (_number(term, values) for term in (left, right))
    return a is not None and b is not None and RELATIONS[name](a, b)


def _number(term: str, values: dict[str, str]) -> float | None:
    factor, number, name, function, argument, more = PATTERNS["term"].fullmatch(term).groups()
    if function:
        factors = PATTERNS["integer"].findall(values.get(argument, ""))
        used = factors[:-2] if function == "leading" else factors
        value = math.prod(map(float, used)) if factors else None
    elif number:
        value = float(number)
    else:
        quantity = PATTERNS["quantity"].search(values.get(name, ""))
        value = float(quantity[1]) * _UNITS[quantity[2] or ""] if quantity else None
    return None if value is None else value * float(factor or 1) + float(more or 0)
