"""Write the files at the root of a site: `book/_root`, `robots.txt` and `sitemap.xml`."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bookbuild.site import metatags
from bookbuild.source.checkout import Book
from bookbuild.source.templates import render

ROOT = "_root"  # of `book/`


def write(book: Book, site: Path, paths: Iterable[str]) -> None:
    """Write all root files; `paths` are page addresses relative to a language's folder.

    The pages of `book/_root` are templates: `address` is the site's URL ("" if unknown), and
    `card(description)` returns the elements for the preview of a shared link.
    """
    folder = book.root / "book" / ROOT
    shutil.copytree(folder, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.html"))
    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    english = book.languages["en"]

    def card(description: str) -> str:
        page = metatags.Page(english, "index.html", english.title, description, book.address)
        return metatags.card(page, "website")

    for path in folder.glob("*.html"):
        page = templates.get_template(path.name).render(address=book.address, card=card)
        (site / path.name).write_text(page, "utf8")
    robots = render("site", "robots.txt", address=book.address)
    (site / "robots.txt").write_text(robots, "utf8")
    if book.address:
        (site / "sitemap.xml").write_text(_sitemap(book, paths), "utf8")


def _sitemap(book: Book, paths: Iterable[str]) -> str:
    """Return the sitemap of all pages with their translations."""
    pages = [
        {
            language.tag: f"{book.address}/{language.code}/{path}"
            for language in book.languages.values()
        }
        for path in paths
    ]
    return render("site", "sitemap.xml", pages=pages)
