"""Fill in the text of empty links: `[](detach.ipynb#anchor)` gets the title of its target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bookbuild.source.basics import nearest
from bookbuild.source.checkout import LANGUAGES, Book, BookError, read_text
from bookbuild.source.headings import Heading, anchors, headings
from bookbuild.source.outline import outline
from bookbuild.source.texts import Text

EMPTY = re.compile(r"\[\]\(([\w-]+)\.(ipynb|md)(?:#([\w-]+))?\)")
_LINK = re.compile(r"\]\(([\w-]+)\.(ipynb|md)(?:#([^)\s]+))?\)")


def fill(book: Book, source: str, lang: str) -> str:
    """Return a Markdown text whose empty links have the title of their target in one language.

    Raises:
        BookError: the page or the section does not exist.
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
    """Return section titles by anchor, the page's own first; empty if there is no such page."""
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


def problems(text: Text) -> Iterator[str]:
    """Yield one line for each link of a chapter whose target does not exist."""
    where = f"book/text/{text.name}.md"
    for piece, words in text.pieces():
        for line, body in ((words.line, words.en), (words.zh_line, words.zh or "")):
            for link in _LINK.finditer(body) if not piece.endswith("/comments") else ():
                if problem := _problem(text.book, *link.groups()):
                    row = line + 1 + body.count("\n", 0, link.start())
                    yield f"{where}:{row}: {piece}: {link[0][2:-1]}: {problem}"


def _problem(book: Book, page: str, suffix: str, anchor: str | None) -> str:
    if suffix == "md":  # check only the page: headings of generated pages do not exist yet
        listed = page == "index" or page in book.pages
        return "" if listed else f"no page {page!r}{_hint(page, book.pages)}"
    if page not in book.texts:
        return f"no chapter {page!r}{_hint(page, book.texts)}"
    known = [section.anchor for section in outline(book, page).sections]
    if anchor and anchor not in known:
        return f"{page} has no section {anchor!r}{_hint(anchor, known)}"
    return ""


def _hint(name: str, known: list[str]) -> str:
    hint = nearest(name, known)
    return f": {hint}" if hint else ""
