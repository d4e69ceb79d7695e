"""Build both sites and the editions that their home pages offer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bookbuild import pages
from bookbuild.editions import edition
from bookbuild.site import sphinx_build
from bookbuild.source.checkout import Book


def build(book: Book, kinds: Iterable[str] = ()) -> list[Path]:
    """Write the generated pages, build the site of both languages and the editions of `kinds`.

    Raises:
        BookError: a page could not be made, or the site could not be built.
    """
    pages.write(book)
    sphinx_build.build(book.root)
    chosen = list(kinds)
    return offer(book, chosen) if chosen else []


def offer(book: Book, kinds: Iterable[str]) -> list[Path]:
    """Write editions to the root of the built site and link them on its home pages.

    The next build of the site removes both.

    Args:
        book: the checkout whose site was built.
        kinds: any of `"pdf"`, `"epub"` and `"zip"`.

    Raises:
        BookError: there is no site, or an edition could not be made.
    """
    paths = [path for kind in kinds for path in edition.make(book, book.site, book.address, kind)]
    edition.link(book.site, paths)
    return paths
