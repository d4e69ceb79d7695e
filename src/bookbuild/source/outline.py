"""The outline of a chapter: the section, title and anchor of each cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.headings import anchors, headings
from bookbuild.source.texts import Cell, Text
from bookbuild.source.texts import load as load_text


def section(book: Book, entry: Where) -> tuple[str, dict[str, str]]:
    """The address of the section that an entry names by a cell of it, with its titles.

    Raises:
        BookError: there is no such chapter, or no such cell in it.
    """
    name, _, cell_id = entry.section.partition("#")
    if name not in book.texts:
        raise BookError(f"{entry.where}: section: no chapter {name!r}")
    places = _places(book, name, book.text(name).stat().st_mtime_ns)
    if cell_id not in places:
        raise BookError(f"{entry.where}: section: {name} has no cell {cell_id!r}")
    return places[cell_id]


@lru_cache(maxsize=64)
def _places(book: Book, name: str, changed: int) -> dict[str, tuple[str, dict[str, str]]]:
    """The section of each cell of a chapter, by its id, and the chapter itself by ``."""
    cells = load_text(book, name).cells
    pairs = []  # of each heading: the cell, both titles
    for cell in cells:
        if cell.type == "markdown":
            english, chinese = headings(cell.words.en), headings(cell.words.zh or cell.words.en)
            chinese = chinese if len(chinese) == len(english) else english
            pairs += [(cell.id, e, z) for e, z in zip(english, chinese, strict=True)]
    begins = {}
    chapter = here = (f"{name}.ipynb", {})
    for n, ((own, *both), anchor) in enumerate(
        zip(pairs, anchors([e.plain for _, e, _ in pairs]), strict=True)
    ):
        titles = {lang: h.plain for lang, h in zip(LANGUAGES, both, strict=True)}
        if not n:
            chapter = here = begins[own] = (f"{name}.ipynb", titles)
            continue
        titles = {lang: f"{chapter[1][lang]} › {title}" for lang, title in titles.items()}
        begins.setdefault(own, (f"{name}.ipynb#{anchor}", titles))
    found = {"": chapter}
    for cell in cells:
        here = begins.get(cell.id, here)
        found[cell.id] = here
    return found


_ANSWER = re.compile(r"^\*\*(.+?)\*\*\s*$", re.M)


@dataclass
class Part:
    """A section as its text has it: heading, answer and the code that is marked wrong or right."""

    name: str  # of the chapter
    id: str  # of the cell with its heading
    heading: str
    answer: dict[str, str]
    code: list[Cell] = field(default_factory=list)


@dataclass(frozen=True)
class Where:
    """A section by a cell of it, `chapter#cell`, and how a problem names who asks."""

    section: str
    where: str


def sections(text: Text) -> Iterator[Part]:
    """The sections of a chapter after its title."""
    here = None
    for cell in text.cells:
        if cell.type == "markdown" and (titles := headings(cell.words.en)):
            if here:
                yield here
            both = {"en": cell.words.en, "zh": cell.words.zh or cell.words.en}
            found = {lang: _ANSWER.search(words) for lang, words in both.items()}
            answer = {lang: match[1] if match else "" for lang, match in found.items()}
            here = Part(text.name, cell.id, titles[-1].markdown, answer)
        elif here and cell.type == "code":
            here.code.append(cell)
    if here:
        yield here
