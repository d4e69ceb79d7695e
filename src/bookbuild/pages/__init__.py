"""Pages made from the chapters: cheat sheet, errors, then and now, status."""

from __future__ import annotations

from bookbuild.notebooks import Book


def stale(book: Book) -> list[str]:
    """Generated pages that no longer match what they are made from, a line each."""
    return []
