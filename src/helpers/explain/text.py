"""Normalize texts for matching."""

from __future__ import annotations

import re
import unicodedata

from helpers.explain.data import LIMITS, PATTERNS, QUOTES, VARIABLE


def plain(text: str) -> str:
    """Normalize a message for matching: one line, no ANSI colours or ranks, one kind of quotes."""
    text = PATTERNS["colour"].sub("", text)
    text = unicodedata.normalize("NFKC", text)[-LIMITS.longest :]
    text = PATTERNS["space"].sub(" ", text)
    text = PATTERNS["line_break"].sub("\n", text)
    text = PATTERNS["escaped_quote"].sub("", text)
    text = PATTERNS["rank"].sub("", text).translate(QUOTES)
    return re.sub(r"[ \n]+", " ", text).strip(" ")


def words(text: str) -> list[str]:
    """Return the words of a normalized text in lower case and in order."""
    return PATTERNS["word"].findall(text.lower())


def squeezed(text: str) -> str:
    """Return only the letters and digits of a text, in lower case."""
    return PATTERNS["other"].sub("", text.lower())


def base_type(kind: str) -> str:
    """Return the name of a type without its module."""
    return kind.rpartition(".")[2]


def filled(text: str, values: dict[str, str]) -> str:
    """Fill in the values of a text, without the sentences that lack a value."""
    return "".join(with_values(PATTERNS["sentences"].findall(text), values)).strip()


def with_values(parts: list[str], values: dict[str, str]) -> list[str]:
    """Fill in the values of sentences or steps of code, without those that lack a value.

    If all of them lack a value, keep all, with the name in place of the value.
    """
    complete = [part for part in parts if all(values.get(name) for name in VARIABLE.findall(part))]
    return [VARIABLE.sub(lambda m: values.get(m[1]) or m[1], part) for part in complete or parts]
