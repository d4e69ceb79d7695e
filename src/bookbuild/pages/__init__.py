"""Pages made from the chapters: errors, then and now, status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bookbuild.source.checkout import LANGUAGES, Book, BookError, read_text, write_text

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from bookbuild.pages.chapters import Chapter


def generate(book: Book) -> list[Path]:
    """Write those that are committed, in both languages; returns the files that changed.

    Raises:
        BookError: a chapter or `claims.yml` cannot be read; nothing is written.
    """
    from bookbuild.pages.chapters import chapters

    pages = list(_pages(book, chapters(book)))
    return [path for path, text in pages if write_text(path, text)]


def stale(book: Book, notebooks: dict[tuple[str, str], NotebookNode] | None = None) -> list[str]:
    """What is wrong with the generated pages, a line each.

    A page that is not what its chapters make of it today: edited by hand, or outdated. The status
    pages are not compared: they change with every test run. `notebooks` are those that were read
    already, by language and name.
    """
    from bookbuild.pages.chapters import chapters

    try:
        found = chapters(book, notebooks=notebooks)
        return [
            f"{path.parent.name}/{path.name}: stale; run `book update`"
            for path, text in _pages(book, found)
            if not _holds(path, text)
        ]
    except BookError as error:
        return [f"generated pages not compared: {error}"]


def _holds(path: Path, text: str) -> bool:
    try:
        return read_text(path, path.name) == text
    except BookError:
        return False


def write_status(book: Book) -> list[Path]:
    """Write the status pages from the last test run; returns the files that changed."""
    from bookbuild.pages import api_names, status
    from bookbuild.pages.chapters import chapters

    found = chapters(book)
    listed = api_names.by_name(book, _stored(found))
    paths = {lang: book.root / "book" / lang / "status.md" for lang in LANGUAGES}
    return [
        p for lang, p in paths.items() if write_text(p, status.render(book, lang, found, listed))
    ]


def status_table(book: Book) -> str:
    """The status page as a table for a terminal, in English."""
    from bookbuild.pages import status
    from bookbuild.pages.chapters import chapters

    return status.plain(book, chapters(book))


def _pages(book: Book, chapters: dict[str, list[Chapter]]) -> Iterator[tuple[Path, str]]:
    """The path and the text of every page that the check compares, and of the helpers' messages."""
    from bookbuild.notebooks import message_proofs
    from bookbuild.pages import (
        api_names,
        error_list,
        name_index,
        pitfall_list,
        symptom_list,
        then_and_now,
    )
    from bookbuild.source import messages

    if entries := messages.load(book):
        yield book.root / messages.PRODUCT, messages.product(book, entries)
    wanted = {name for _, pages in book.parts for name in pages}
    stored = _stored(chapters)
    said = message_proofs.said_by_cells(entries, stored)
    listed = api_names.by_name(book, stored) if "by_name" in wanted else {}
    for lang, mine in chapters.items():
        folder = book.root / "book" / lang
        for name, text in error_list.render(book, lang, mine, entries, said).items():
            yield folder / f"{name}.md", text
        if "symptoms" in wanted:
            yield folder / "symptoms.md", symptom_list.render(book, lang)
        if "pitfalls" in wanted:
            yield folder / "pitfalls.md", pitfall_list.render(book, lang, mine)
        if "by_name" in wanted:
            yield folder / "by_name.md", name_index.render(listed, lang)
        yield folder / "then_and_now.md", then_and_now.render(book, lang, mine)


def _stored(chapters: dict[str, list[Chapter]]) -> dict[str, NotebookNode]:
    """The English notebooks, by chapter: the outputs are those of both languages."""
    return {chapter.name: chapter.notebook for chapter in chapters["en"]}
