"""Generate the pages made from data: messages, symptoms, rules, pitfalls, names, claims, status.

`book build` writes them into `book/<language>`, where Sphinx reads them, and their scripts into
`_build/scripts`; git ignores both.
Two products are committed: `messages.json`, which `helpers.explain` reads, and `rules.json`, which
`helpers.review` reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bookbuild.source.checkout import Book, BookError, read_text, write_text

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from bookbuild.pages.chapters import Chapter

SCRIPTS = "_build/scripts"  # folder of scripts that the site copies beside each language's pages


def write(book: Book) -> list[Path]:
    """Write the pages of both languages; return the files that changed.

    Raises:
        BookError: a chapter or a data file cannot be read; nothing is written.
    """
    from bookbuild.pages.chapters import chapters

    pages = list(_pages(book, chapters(book)))
    return [path for path, text in pages if write_text(path, text)]


def write_messages(book: Book) -> list[Path]:
    """Write the data for `helpers.explain` and `helpers.review`; return the files that changed.

    Raises:
        BookError: a data file cannot be read, or names a section that does not exist.
    """
    return [
        book.root / name
        for name, text in _products(book).items()
        if write_text(book.root / name, text)
    ]


def _products(book: Book) -> dict[str, str]:
    """Return the contents of the committed data files by name, without files that have no source.

    Raises:
        BookError: a data file cannot be read, or names a section that does not exist.
    """
    from bookbuild.pages import message_data, review_data
    from bookbuild.source import messages, reviews

    texts = {}
    if entries := messages.load(book):
        texts[message_data.PRODUCT] = message_data.product(book, entries)
    if rules := reviews.load(book):
        texts[review_data.PRODUCT] = review_data.product(rules)
    return texts


def problems(
    book: Book, notebooks: dict[tuple[str, str], NotebookNode] | None = None
) -> Iterator[str]:
    """Yield errors that prevent the pages from being generated, and outdated committed data files.

    `notebooks` contains notebooks that are already loaded, by (language, name).
    """
    from bookbuild.pages.chapters import chapters

    try:
        for name, text in _products(book).items():
            if not _contains(book.root / name, text):
                yield f"{name}: stale; run `book update`"
        for _ in _pages(book, chapters(book, notebooks=notebooks)):
            pass
    except BookError as error:
        yield str(error)


def _contains(path: Path, text: str) -> bool:
    try:
        return read_text(path, path.name) == text
    except BookError:
        return False


def status_table(book: Book) -> str:
    """Return the table of the status page as plain English text for a terminal."""
    from bookbuild.pages import status
    from bookbuild.pages.chapters import chapters

    return status.plain(book, chapters(book))


def _pages(book: Book, chapters: dict[str, list[Chapter]]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of every generated page."""
    from bookbuild.notebooks import message_proofs
    from bookbuild.pages import (
        course,
        error_list,
        name_list,
        pitfall_list,
        review_list,
        status,
        symptom_list,
        then_and_now,
    )
    from bookbuild.source import messages

    english = {chapter.name: chapter.notebook for chapter in chapters["en"]}
    entries = messages.load(book)
    cells = message_proofs.cells_with_message(entries, english)
    index = name_list.sections_by_name(book) if "by_name" in book.pages else {}
    for lang, mine in chapters.items():
        folder = book.root / "book" / lang
        seen = error_list.seen_in(mine, cells)
        for name, text in error_list.render(book, lang, entries, seen).items():
            yield (folder if name.endswith(".md") else book.root / SCRIPTS / lang) / name, text
        if "symptoms" in book.pages:
            yield folder / "symptoms.md", symptom_list.render(book, lang)
        if "review" in book.pages:
            yield folder / "review.md", review_list.render(book, lang)
        if "pitfalls" in book.pages:
            yield folder / "pitfalls.md", pitfall_list.render(book, lang, mine)
        if "new_to_pytorch" in (book.toc.get("meta") or {}):
            yield book.root / course.MAP.format(lang), course.render_map(book, lang)
        if "teachers" in book.pages:
            yield folder / "teachers.md", course.render(book, lang)
        if "by_name" in book.pages:
            yield folder / "by_name.md", name_list.render(book, lang, index)
        yield folder / "then_and_now.md", then_and_now.render(book, lang, mine)
        yield folder / "status.md", status.render(book, lang, chapters, index)
