"""Links whose words are filled in: `[](detach.ipynb#anchor)` gets the title of what it leads to."""

from __future__ import annotations

import re
from functools import lru_cache

from bookbuild.source.checkout import Book, BookError, read_text
from bookbuild.source.headings import anchors, headings
from bookbuild.source.texts import load

EMPTY = re.compile(r"\[\]\(([\w-]+)\.(ipynb|md)(?:#([\w-]+))?\)")


def fill(book: Book, source: str, lang: str) -> str:
    """A Markdown text with words in its empty links, in one language.

    Raises:
        BookError: there is no such page, or no such section on it.
    """
    return EMPTY.sub(lambda m: f"[{_title(book, m, lang)}]{m[0][2:]}", source)


def _title(book: Book, link: re.Match[str], lang: str) -> str:
    page, suffix, anchor = link.groups()
    titles = _titles(book, page, suffix, lang)
    if not titles:
        raise BookError(f"{link[0]}: there is no such page")
    if anchor and anchor not in titles:
        raise BookError(f"{link[0]}: {page} has no section {anchor}")
    return titles[anchor] if anchor else next(iter(titles.values()))


def _titles(book: Book, page: str, suffix: str, lang: str) -> dict[str, str]:
    """The titles of a page's sections by their anchors, the page's own first; empty: no page."""
    if suffix == "ipynb":
        paths = [book.text(page)]
    else:
        paths = [book.root / "book" / x / f"{page}.{suffix}" for x in ("en", lang)]
    if not all(path.is_file() for path in paths):
        return {}
    return _read(book, page, suffix, lang, tuple(path.stat().st_mtime_ns for path in paths))


@lru_cache(maxsize=256)
def _read(book: Book, page: str, suffix: str, lang: str, changed: tuple[int]) -> dict[str, str]:
    if suffix == "ipynb":
        prose = [c.words for c in load(book, page).cells if c.type == "markdown"]
        english = [h for words in prose for h in headings(words.en)]
        own = [h for words in prose for h in headings(words.zh or words.en)]
    else:
        english, own = (
            headings(read_text(book.root / "book" / x / f"{page}.md", f"{x}/{page}.md"))
            for x in ("en", lang)
        )
    own = english if lang == "en" or len(own) != len(english) else own
    names = anchors([h.plain for h in english])
    return {name: h.markdown for name, h in zip(names, own, strict=True)}
