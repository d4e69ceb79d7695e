"""Links whose words are filled in: `[](detach.ipynb#anchor)` gets the title of what it leads to."""

from __future__ import annotations

import re
from pathlib import Path

from bookbuild.source.checkout import LANGUAGES, Book, BookError, read_text
from bookbuild.source.headings import Heading, anchors, headings
from bookbuild.source.outline import outline

EMPTY = re.compile(r"\[\]\(([\w-]+)\.(ipynb|md)(?:#([\w-]+))?\)")


def fill(book: Book, source: str, lang: str) -> str:
    """Return a Markdown text with words in its empty links, in one language.

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
    """Return the titles of a page's sections by their anchors, its own first; empty: no page."""
    if suffix == "ipynb":
        sections = outline(book, page).sections if page in book.texts else ()
        return {section.anchor: section.titles[lang].markdown for section in sections}
    paths = {x: book.root / "book" / x / f"{page}.md" for x in LANGUAGES}
    if not all(path.is_file() for path in paths.values()):
        return {}
    english, own = (_headings(paths[x]) for x in ("en", lang))
    own = own if len(own) == len(english) else english
    names = anchors([heading.plain for heading in english])
    return {name: heading.markdown for name, heading in zip(names, own, strict=True)}


def _headings(path: Path) -> tuple[Heading, ...]:
    return headings(read_text(path, f"{path.parent.name}/{path.name}"))
