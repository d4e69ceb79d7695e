"""Translate the checkers' verdicts into Chinese.

`verdicts.json` maps, for each module of `helpers.exercises`, the English sentences as written in
the source, with values in braces, to Chinese sentences with the same values; `parts` has the names
of values.
This module does not import PyTorch, because pages are built without it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

SENTENCES = Path(__file__).with_suffix(".json")
MARKS = ("✓", "✗")
_HOLE = re.compile(r"\{([^{}]*)\}")
_VERBATIM = re.compile(r"\b(?:error|line)\b")  # values that are not translated
_DEPTH = 8  # maximum nesting of sentences as values
_HAN, _WIDE = "[\u3400-\u9fff]", "[\u2014-\u201d\u2026\u3001-\u303f\uff00-\uffef]"
_NO_SPACE = re.compile(f"{_HAN}{{2}}|{_WIDE}.?|.?{_WIDE}", re.S)
_SPACE = re.compile(f"{_HAN}[A-Za-z0-9]|[A-Za-z0-9]{_HAN}")


def chinese(shown: str) -> str:
    """Translate the repr of a verdict into Chinese; return any other text unchanged.

    Python's messages and sentences without an entry stay in English.
    """
    mark, _, message = shown.partition(" ")
    return f"{mark} {_translated(message)}" if mark in MARKS else shown


class _Entry(NamedTuple):
    """A sentence in both languages; the English has constant `parts` with `holes` between them."""

    parts: list[str]
    holes: list[str]
    chinese: str
    module: str

    def values(self, text: str) -> dict[str, str] | None:
        """Return the values of the holes if `text` matches this sentence, else None.

        Parts are searched once, from left to right, in time linear in the length of `text`.
        """
        if not self.holes:
            return {} if text == self.parts[0] else None
        first, *middle, last = self.parts
        at, end = len(first), len(text) - len(last)
        if at > end or not text.startswith(first) or not text.endswith(last):
            return None
        contents = []
        for part in middle:
            begin = text.find(part, at, end)
            if begin < 0:
                return None
            contents.append(text[at:begin])
            at = begin + len(part)
        return dict(zip(self.holes, [*contents, text[at:end]], strict=True))


@cache
def _entries() -> tuple[list[_Entry], list[_Entry], list[_Entry]]:
    """Return the verdict frames, the sentences, and all entries including names of values.

    Entries with more constant characters come first.
    """
    modules = json.loads(SENTENCES.read_text("utf8"))
    entries = []
    for module, sentences in modules.items():
        for english, translation in sentences.items():
            pieces = _HOLE.split(english)
            entries.append(_Entry(pieces[::2], pieces[1::2], translation, module))
    entries.sort(key=lambda entry: -sum(map(len, entry.parts)))
    frames = [entry for entry in entries if entry.module == "__init__"]
    return frames, [entry for entry in entries if entry.module != "parts"], entries


def _translated(text: str, depth: int = 0) -> str:
    """Translate a message, or a value nested at `depth`; return it unchanged without an entry."""
    for entry in _entries()[min(depth, 2)] if depth < _DEPTH else ():
        values = entry.values(text)
        if values is not None:
            for hole, value in values.items():
                if not _VERBATIM.search(hole):
                    values[hole] = _translated(value, depth + 1)
            return _filled(entry.chinese, values)
    return text


def _filled(template: str, values: dict[str, str]) -> str:
    """Fill a Chinese template with values, separating Chinese and Latin text by a space."""
    text, *rest = _HOLE.split(template)
    for hole, part in zip(rest[::2], rest[1::2], strict=True):
        text = _joined(_joined(text, values[hole]), part)
    return text


def _joined(left: str, right: str) -> str:
    a, b = left.rstrip(" "), right.lstrip(" ")
    if _NO_SPACE.fullmatch(a[-1:] + b[:1]):
        return a + b
    return f"{left} {right}" if _SPACE.fullmatch(left[-1:] + right[:1]) else left + right
