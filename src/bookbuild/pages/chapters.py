"""The chapters as the generated pages see them: titles, sections and where they link to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from docutils.nodes import make_id
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from nbformat import NotebookNode

from bookbuild.notebooks import LANGUAGES, Book, BookError, code_cells, read

_MAYBE = re.compile(r"^ {0,3}(?:#{1,6}(?:\s|$)|=+\s*$|-+\s*$)", re.M)


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


def chapters(book: Book) -> dict[str, list[Chapter]]:
    """The chapters that exist in all languages, in reading order, for each language.

    Raises:
        BookError: a file is no notebook.
    """
    found: dict[str, list[Chapter]] = {lang: [] for lang in LANGUAGES}
    for name in book.chapters:
        if all(book.path(lang, name).exists() for lang in LANGUAGES):
            notebooks = {lang: _load(book, lang, name) for lang in LANGUAGES}
            for lang, nb in notebooks.items():
                title, sections = _sections(name, notebooks["en"], nb)
                found[lang].append(Chapter(name, title, nb, sections))
    return found


def headings(text: str) -> list[tuple[str, str]]:
    """The headings of a Markdown text in order, each as Markdown and without markup."""
    if not re.search(r"^ {0,3}(?:#|--|==)", text, re.M):
        return []
    tokens = _markdown().parse(text)
    return [
        (
            re.sub(r"\[(.*?)\]\([^)]*\)", r"\1", inline.content),
            "".join(t.content for t in inline.children if t.type in ("text", "code_inline")),
        )
        for opening, inline in zip(tokens, tokens[1:], strict=False)
        if opening.type == "heading_open" and opening.level == 0
    ]


def anchors(titles: list[str]) -> list[str]:
    """The anchors that the site gives to the sections of a page with these English titles."""
    made: list[str] = []
    for title in titles:
        base = anchor = make_id(title) or "section"
        number = 1
        while anchor in made:
            number += 1
            anchor = f"{base}-{number}"
        made.append(anchor)
    return made


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt().use(colon_fence_plugin)


def _load(book: Book, lang: str, name: str) -> NotebookNode:
    nb = read(book.path(lang, name))
    if not all({"id", "cell_type", "source"} <= cell.keys() for cell in nb.cells):
        raise BookError(f"{lang}/{name}.ipynb: not a notebook: a cell lacks id, type or source")
    return nb


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
            pairs += [(cell.id, t[0], e[1]) for t, e in zip(titles, theirs, strict=True)]
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
