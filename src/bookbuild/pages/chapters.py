"""Load the chapters' titles, sections and addresses for the generated pages."""

from __future__ import annotations

from dataclasses import dataclass

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.files import shared
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.outline import Section as Outlined
from bookbuild.source.outline import outline


@dataclass(frozen=True)
class Section:
    """A section: its title as Markdown and the address of a link to it."""

    title: str
    href: str


@dataclass(frozen=True)
class Chapter:
    """A chapter in one language; `sections` has the section of each code cell by its id."""

    name: str
    title: str
    notebook: NotebookNode
    sections: dict[str, Section]

    @property
    def cells(self) -> list[NotebookNode]:
        """The code cells of the chapter."""
        return code_cells(self.notebook)


def chapters(
    book: Book,
    names: list[str] | None = None,
    notebooks: dict[tuple[str, str], NotebookNode] | None = None,
) -> dict[str, list[Chapter]]:
    """Return the chapters that exist in all languages, in reading order, for each language.

    `names` overrides the list of chapters; `notebooks` has loaded notebooks by (language, name).

    Raises:
        BookError: a file is not a notebook, or a text is malformed.
    """
    existing: dict[str, list[Chapter]] = {lang: [] for lang in LANGUAGES}
    known = notebooks or {}
    for name in book.chapters if names is None else names:
        if not all(book.notebook(lang, name).exists() for lang in LANGUAGES):
            continue
        sections = outline(book, name)
        for lang in LANGUAGES:
            nb = known.get((lang, name)) or shared(book.notebook(lang, name))
            own = {cell_id: _section(s, lang) for cell_id, s in sections.of_cell.items()}
            chapter = _section(sections.sections[0], lang)
            stored = {cell.id: own.get(cell.id, chapter) for cell in code_cells(nb)}
            existing[lang].append(Chapter(name, chapter.title, nb, stored))
    return existing


def _section(section: Outlined, lang: str) -> Section:
    return Section(section.titles[lang].markdown, section.href)
