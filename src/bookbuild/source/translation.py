"""Track which translations are current, by stamps in `book/translated.json`.

English is the source. If the English of a piece changes, its Chinese is outdated until it is
edited and accepted with `book update --accept chapter::cell`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

from bookbuild.source.checkout import Book, digest, write_text
from bookbuild.source.data_files import TEXT, Schema
from bookbuild.source.texts import Text, Words

FILE = "book/translated.json"
_STAMPS = {"type": "object", "additionalProperties": TEXT}
_SCHEMA = Schema({"type": "object", "additionalProperties": _STAMPS})
Stamps = dict[str, str]  # piece -> "<fingerprint of its English> <fingerprint of its Chinese>"


@dataclass(frozen=True)
class Outdated:
    """A piece whose Chinese is missing or outdated; `why` gives the reason."""

    chapter: str
    piece: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"book/text/{self.chapter}.md:{self.line}: {self.chapter}::{self.piece}: {self.why}"

    @property
    def cell(self) -> str:
        """Id of the piece's cell, or `summary`."""
        return self.piece.partition("/")[0]


def load(book: Book) -> dict[str, Stamps]:
    """Return the stamps of all chapters.

    Raises:
        BookError: the file is damaged.
    """
    path = book.root / FILE
    return _SCHEMA.read(path, FILE) if path.exists() else {}


def save(book: Book, stamps: dict[str, Stamps]) -> bool:
    """Write the stamps with chapters in reading order; return True if the file changed."""
    ordered = {name: stamps[name] for name in book.texts if name in stamps}
    return write_text(
        book.root / FILE, json.dumps(ordered, indent=0, separators=(",", ": ")) + "\n"
    )


def needs_translation(text: str) -> bool:
    """Return True if a text has words besides code, maths and link targets."""
    return bool(re.search(r"[A-Za-z]{4}", _without_code(text)))


def comments_need_translation(text: str) -> bool:
    """Return True if comments contain phrases; single names and numbers are not translated."""
    return bool(re.search(r"(?<![A-Za-z])[A-Za-z]{2,},? [A-Za-z]{2}", _without_code(text)))


def _without_code(text: str) -> str:
    """Return a text without code, maths and link targets."""
    return re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)\s]*\)", "", text, flags=re.S)


def compare(
    text: Text, stamps: Stamps, accepted: Collection[str] = ()
) -> tuple[Stamps, list[Outdated]]:
    """Return a chapter's new stamps, and its pieces with missing or outdated Chinese.

    Args:
        text: the chapter.
        stamps: the stored stamps of the chapter.
        accepted: ids of cells whose Chinese matches the current English.
    """
    pieces = dict(text.pieces())
    # A renamed cell keeps its old stamp (found by the Chinese), so it stays outdated.
    removed = {s.partition(" ")[2]: s for name, s in stamps.items() if name not in pieces}
    current, outdated = {}, []
    for name, words in pieces.items():
        if why := _missing(name, words):
            outdated.append(Outdated(text.name, name, words.zh_line or words.line, why))
            if name in stamps:
                current[name] = stamps[name]
        elif words.zh is not None:
            english, chinese = digest(words.en), digest(words.zh)
            stamp = stamps.get(name) or removed.get(chinese)
            translated = stamp.partition(" ")[0] if stamp else english
            if name.partition("/")[0] in accepted:
                translated = english
            current[name] = f"{translated} {chinese}"
            if translated != english:
                why = "the English changed since it was translated"
                outdated.append(Outdated(text.name, name, words.zh_line, why))
    return current, outdated


def _missing(name: str, words: Words) -> str | None:
    """Return the reason why a piece has no usable Chinese, or None if it has."""
    if name.endswith("/comments"):
        number = len(words.en.split("\n")) if words.en else 0
        if words.zh is None:
            return "comments not translated" if comments_need_translation(words.en) else None
        if number != len(words.zh.split("\n")):
            return f"{number} comments in the code, {len(words.zh.splitlines())} in Chinese"
        return None
    if not needs_translation(words.en):
        return None
    return "not translated" if words.zh in (None, "", words.en) else None
