"""The chapters as the generated pages see them: titles, sections and where they link to."""

from __future__ import annotations

from dataclasses import dataclass

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.files import read
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.headings import anchors, headings


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
        """Its code cells."""
        return code_cells(self.notebook)


def chapters(
    book: Book,
    names: list[str] | None = None,
    notebooks: dict[tuple[str, str], NotebookNode] | None = None,
) -> dict[str, list[Chapter]]:
    """The chapters that exist in all languages, in reading order, for each language.

    `names` asks for others; `notebooks` are those that were read already, by language and name.

    Raises:
        BookError: a file is no notebook.
    """
    found: dict[str, list[Chapter]] = {lang: [] for lang in LANGUAGES}
    for name in book.chapters if names is None else names:
        if all(book.notebook(lang, name).exists() for lang in LANGUAGES):
            known = notebooks or {}
            both = {x: known.get((x, name)) or read(book.notebook(x, name)) for x in LANGUAGES}
            for lang, nb in both.items():
                title, sections = _sections(name, both["en"], nb)
                found[lang].append(Chapter(name, title, nb, sections))
    return found


def _sections(
    name: str, english: NotebookNode, own: NotebookNode
) -> tuple[str, dict[str, Section]]:
    """The chapter's title, and the section that each code cell stands in.

    Titles are in the notebook's own language, anchors always those of the English ones.
    """
    mine = {c.id: headings(c.source) for c in own.cells if c.cell_type == "markdown"}
    pairs = []  # of every heading: the cell, its own title, the plain English one
    for cell in english.cells:
        if cell.cell_type == "markdown":
            theirs = headings(cell.source)
            titles = mine.get(cell.id, [])
            titles = titles if len(titles) == len(theirs) else theirs
            pairs += [(cell.id, t.markdown, e.plain) for t, e in zip(titles, theirs, strict=True)]
    all_anchors = anchors([plain for _, _, plain in pairs])
    chapter = Section(pairs[0][1] if pairs else name, f"{name}.ipynb")
    begins = {}
    for n, ((cell_id, title, _), anchor) in enumerate(zip(pairs, all_anchors, strict=True)):
        begins[cell_id] = Section(title, f"{chapter.href}#{anchor}") if n else chapter
    here, sections = chapter, {c.id: chapter for c in code_cells(own)}  # if English lacks a cell
    for cell in english.cells:
        here = begins.get(cell.id, here)
        if cell.cell_type == "code":
            sections[cell.id] = here
    return chapter.title, sections
