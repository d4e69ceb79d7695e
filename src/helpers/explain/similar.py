"""Find the public name of PyTorch that a misspelt name stands for."""

from __future__ import annotations

import re

from helpers.explain.data import NAMES


def similar(module: str, name: str) -> str:
    """Return the public name of a module that differs from a name by a typing slip, or "".

    One letter may be missing, added, another one or exchanged with its neighbour, two in names of
    seven letters or more. Other digits (`Conv4d`) and more letters at the end (`LayerNorm2d`) are
    no slips.
    """
    names = NAMES.get(module, [])
    if len(name) < 4 or name in names:
        return ""
    most = 2 if len(name) >= 7 else 1
    best = ""
    for other in names:
        if abs(len(other) - len(name)) > most or name.startswith(other):
            continue
        if re.sub(r"\d", "", other) == re.sub(r"\d", "", name):
            continue
        if (steps := distance(name, other)) <= most:
            best, most = other, steps - 1
    return best


def distance(a: str, b: str) -> int:
    """Return how many letters must be removed, added, replaced or exchanged to get `b` from `a`."""
    before, row = [], [*range(len(b) + 1)]
    for i, x in enumerate(a, 1):
        earlier, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], earlier[j - 2] + 1)
    return row[-1]
