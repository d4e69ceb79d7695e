"""Normalize texts for matching."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from helpers.explain.data import DATA, ENTITIES, LIMITS, PATTERNS, QUOTES, VARIABLE


@lru_cache(4)
def printed(text: str) -> str:
    """Return a pasted text as the program printed it, with one kind of quotes and of spaces.

    Colours, HTML entities, escapes of Markdown, quote marks, boxes, a common indent and hard line
    ends are undone.
    """
    text = PATTERNS["colour"].sub("", text[-3 * LIMITS.longest :])
    text = PATTERNS["entity"].sub(lambda m: ENTITIES.get(m[1].lower(), m[0]), text)
    text = unicodedata.normalize("NFKC", text)[-LIMITS.longest :]
    text = PATTERNS["space"].sub(" ", text.replace("\r\n", "\n")).translate(QUOTES)
    if not PATTERNS["windows"].search(text):
        text = PATTERNS["escape"].sub("", text)
    first, *rest = PATTERNS["margin"].sub("", text).split("\n")
    indent = min((len(row) - len(row.lstrip(" ")) for row in rest if row), default=0)
    return _unwrapped([re.sub(f"^ {{0,{indent}}}", "", row) for row in (first, *rest)])


def _unwrapped(rows: list[str]) -> str:
    """Join rows of text that were cut at the width of a window or page.

    Rows of exactly the largest width were cut. If only one has this width, its end and the
    beginning of the next row must show it.
    """
    width = max(map(len, rows))
    several = len({row for row in rows[:-1] if len(row) == width}) > 1
    joined = rows[:1]
    for row, after in zip(rows, rows[1:], strict=False):
        full = len(row) == width >= LIMITS.narrowest and not PATTERNS["new_line"].match(after)
        joined.append("" if full and _cut(row, after, several) else "\n")
        joined.append(after)
    return "".join(joined)


def _cut(row: str, after: str, several: bool) -> bool:
    """Return True if a word, path, number or pair of brackets was cut between two rows.

    Args:
        row: the first of them.
        after: the second one.
        several: what to return for halves of unknown words.
    """
    ends = f"{row[-80:]}\n{after[:80]}"
    if PATTERNS["cut"].search(ends):
        return True
    if halves := PATTERNS["halves"].search(ends.lower()):
        left, right = halves.groups()
        if f" {left} {right} " in _known():
            return False
        several = several or f" {left}{right} " in _known()
    return several


@cache
def _known() -> str:
    """Return the words of all messages, in order."""
    texts = (text for entry in DATA["messages"] for text in entry["wordings"])
    return " ".join(["", *words(" ".join(texts)), ""])


def plain(text: str) -> str:
    """Normalize a message for matching: one line, as it was printed, without ranks."""
    text = PATTERNS["line_break"].sub("\n", printed(text))
    text = PATTERNS["escaped_quote"].sub("", text)
    text = PATTERNS["rank"].sub("", text)
    text = re.sub(r"[ \n]+", " ", text).strip(" ")
    return PATTERNS["open_quote"].sub(r"\g<0>'", text)


def words(text: str) -> list[str]:
    """Return the words of a normalized text in lower case and in order."""
    return PATTERNS["word"].findall(text.lower())


def squeezed(text: str) -> str:
    """Return only the letters and digits of a text, in lower case."""
    return PATTERNS["other"].sub("", text.lower())


def base_type(kind: str) -> str:
    """Return the name of a type without its module."""
    return kind.rpartition(".")[2]


def value_of(text: str) -> str:
    """Return a value of a message without the marks around it, a shape as newer versions print it.

    The names of a list (`'a', 'b' and 'c'`) are returned without quotes, and the sizes of older
    versions of PyTorch (`64 3 7 7`, `[64 x 3]`) and without spaces (`[64,3]`) as `[64, 3]`.
    """
    value = PATTERNS["edges"].sub("", text)
    if PATTERNS["sizes"].search(value):
        return f"[{', '.join(PATTERNS['one_size'].findall(value))}]"
    return PATTERNS["listed"].sub(r"\1", value) if PATTERNS["list"].search(value) else value


def filled(text: str, values: dict[str, str]) -> str:
    """Fill in the values of a text, without the sentences that lack a value."""
    return "".join(with_values(PATTERNS["sentences"].findall(text), values)).strip()


def with_values(parts: list[str], values: dict[str, str]) -> list[str]:
    """Fill in the values of sentences or steps of code, without those that lack a value.

    If all of them lack a value, keep all, with the name in place of the value.
    """
    complete = [part for part in parts if all(values.get(name) for name in VARIABLE.findall(part))]
    return [VARIABLE.sub(lambda m: values.get(m[1]) or m[1], part) for part in complete or parts]
