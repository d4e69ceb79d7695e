"""Compute the outline of a chapter: the section, title and anchor of each cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.headings import Heading, anchors, headings, without_links
from bookbuild.source.texts import Cell, Text
from bookbuild.source.texts import load as load_text
from bookbuild.source.typography import HAN

_ONE_NAME = re.compile(r"[\w.]+", re.ASCII)  # a query that is one name, in any language

_ANSWER = re.compile(r"^\*\*(.+?)\*\*\s*$", re.M)
# A name in inline code, with or without call parentheses, or the text of an external link.
_NAME = re.compile(r"`([A-Za-z_][\w.]{2,})(?:\([^`]*\))?`|\[`?([A-Za-z][\w.-]{2,})`?\]\(http")


@dataclass(frozen=True)
class Section:
    """A section: chapter, anchor on the page, and heading in each language.

    The first section has the chapter's title as heading, and the address of the page.
    """

    chapter: str
    anchor: str
    titles: dict[str, Heading]
    first: bool

    @property
    def href(self) -> str:
        """Address of the section in links of notebooks."""
        return f"{self.chapter}.ipynb" + ("" if self.first else f"#{self.anchor}")


@dataclass(frozen=True)
class Outline:
    """The sections of a chapter in order, and the section of each cell by the cell's id.

    A cell with several headings belongs to the section of the first one.
    """

    sections: list[Section]
    of_cell: dict[str, Section]


def outline(book: Book, name: str) -> Outline:
    """Return the outline of a chapter.

    Raises:
        BookError: the chapter's text is missing or malformed.
    """
    path = book.text(name)
    return _outline(book, name, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=64)
def _outline(book: Book, name: str, changed: int) -> Outline:
    cells = load_text(book, name).cells
    sections, of_heading = [], {}
    for cell, titles, anchor in _headings(cells):
        section = Section(name, anchor, titles, first=not sections)
        sections.append(section)
        of_heading.setdefault(cell.id, []).append(section)
    if not sections:
        sections = [Section(name, "", dict.fromkeys(LANGUAGES, Heading(name, name)), True)]
    here, of_cell = sections[0], {}
    for cell in cells:
        own = of_heading.get(cell.id, [here])
        of_cell[cell.id], here = own[0], own[-1]
    return Outline(sections, of_cell)


def _headings(cells: list[Cell]) -> Iterator[tuple[Cell, dict[str, Heading], str]]:
    """Yield (cell, heading by language, anchor) for each heading of a chapter."""
    pairs = [(cell, titles) for cell in cells for titles in _titles(cell)]
    names = anchors([titles["en"].plain for _, titles in pairs])
    for (cell, titles), anchor in zip(pairs, names, strict=True):
        yield cell, titles, anchor


def _titles(cell: Cell) -> list[dict[str, Heading]]:
    """Return a cell's headings by language; English for both if the Chinese ones do not match."""
    if cell.type != "markdown":
        return []
    english, chinese = (headings(cell.words.in_language(lang)) for lang in LANGUAGES)
    chinese = chinese if len(chinese) == len(english) else english
    return [{"en": e, "zh": z} for e, z in zip(english, chinese, strict=True)]


def queries(text: Text, lang: str) -> dict[str, list[str]]:
    """Return the queries of a chapter in one language by section anchor.

    A query that contains a Chinese character counts as Chinese, any other as English; a name,
    such as `torch.cat`, as both.
    """
    first = {}
    for cell, _, anchor in _headings(text.cells):
        first.setdefault(cell.id, anchor)
    return {
        first[cell.id]: lines
        for cell in text.cells
        if (
            lines := [
                query
                for query in cell.queries
                if (lang == "zh") == bool(re.search(f"[{HAN}]", query))
                or _ONE_NAME.fullmatch(query)
            ]
        )
    }


def locate_section(book: Book, place: str, where: str) -> tuple[str, dict[str, str]]:
    """Return the address and the titles by language of the section `place`, `chapter#cell`.

    Raises:
        BookError: the chapter or the cell does not exist; the message begins with `where`.
    """
    name, _, cell_id = place.partition("#")
    if name not in book.texts:
        raise BookError(f"{where}: section: no chapter {name!r}")
    chapter = outline(book, name)
    if cell_id and cell_id not in chapter.of_cell:
        raise BookError(f"{where}: section: {name} has no cell {cell_id!r}")
    first = chapter.sections[0]
    here = chapter.of_cell[cell_id] if cell_id else first
    titles = {lang: heading.plain for lang, heading in here.titles.items()}
    if not here.first:
        titles = {lang: f"{first.titles[lang].plain} › {titles[lang]}" for lang in LANGUAGES}
    return here.href, titles


@dataclass
class Part:
    """Content of a section: heading, answer, queries, names in its prose, and code."""

    name: str  # name of the chapter
    id: str  # id of the cell with the section's heading
    heading: str
    answer: dict[str, str]  # links are replaced by their text
    queries: list[str]
    names: dict[str, None] = field(default_factory=dict)
    code: list[Cell] = field(default_factory=list)


def sections(text: Text) -> Iterator[Part]:
    """Yield the sections of a chapter, except the first one with the title."""
    part = None
    for cell in text.cells:
        if cell.type == "markdown" and (titles := headings(cell.words.en)):
            if part:
                yield part
            answers = {lang: _ANSWER.search(cell.words.in_language(lang)) for lang in LANGUAGES}
            bold = {lang: match[1] if match else "" for lang, match in answers.items()}
            answer = {lang: without_links(words) for lang, words in bold.items()}
            part = Part(text.name, cell.id, titles[-1].markdown, answer, cell.queries)
        elif part and cell.type == "code":
            part.code.append(cell)
        if part and cell.type == "markdown":
            names = _NAME.findall(cell.words.en)
            part.names |= dict.fromkeys(code or source for code, source in names)
    if part:
        yield part
