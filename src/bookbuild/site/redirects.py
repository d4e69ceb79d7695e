"""Write redirects from old addresses to new ones, as listed in `book/moved.yml`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup

from bookbuild.source import moved
from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.templates import render

_REFRESH = 'http-equiv="refresh"'  # only in pages that this module writes


def write(book: Book, site: Path) -> None:
    """Write the redirects of both languages.

    A removed page is replaced by one that redirects; a page whose sections moved gets a script that
    redirects from their anchors.

    Raises:
        BookError: an old address still exists, or a new one does not.
    """
    table = moved.load(book)
    lines = [(site / lang, old, new) for lang in LANGUAGES for old, new in table.items()]
    if problems := [problem for line in lines for problem in _problems(*line)]:
        raise BookError("\n".join(problems))
    for lang in LANGUAGES:
        for page in dict.fromkeys(old.partition("#")[0] for old in table):
            _redirect(book, site / lang, page, _sections(table, page))


def _sections(table: dict[str, str], page: str) -> dict[str, str]:
    """Return new addresses of a page's sections, relative to it; key "" is the whole page."""
    up = "../" * page.count("/")
    addresses = {}
    for old, new in table.items():
        name, _, anchor = old.partition("#")
        if name == page:
            target, _, fragment = new.partition("#")
            addresses[anchor] = f"{up}{target}.html" + (fragment and f"#{fragment}")
    return addresses


def _redirect(book: Book, folder: Path, page: str, sections: dict[str, str]) -> None:
    path = folder / f"{page}.html"
    address = sections.pop("", None)
    if path.is_file():
        script = render("site", "moved_sections.html", sections=sections, address=address)
        text = path.read_text("utf8").replace("</head>", f"{script}</head>", 1)
    elif address is None:
        raise BookError(f"{moved.FILE}: {page} was removed: add a line for the whole page")
    else:
        path.parent.mkdir(exist_ok=True)
        head, _, _ = (path.parent / address).read_text("utf8").partition("</head>")
        title = BeautifulSoup(head, "html.parser").title.string
        language = book.languages[folder.name]
        values = {"sections": sections, "address": address, "title": title, "language": language}
        text = render("site", "moved.html", **values)
    path.write_text(text, "utf8")


def _problems(folder: Path, old: str, new: str) -> Iterator[str]:
    """Yield a problem if the old address still exists in a site or the new one does not."""
    # Check old anchors only in English: a Chinese heading's own anchor may equal one of them.
    gone = ((old, False),) if folder.name == "en" else ()
    for address, expected in (*gone, (new, True)):
        page, _, anchor = address.partition("#")
        path = folder / f"{page}.html"
        text = path.read_text("utf8") if path.is_file() else ""
        exists = f'id="{anchor}"' in text if anchor else bool(text)
        exists = exists and _REFRESH not in text
        if exists is not expected:
            state = "still" if exists else "not"
            yield f"{moved.FILE}: {old}: {folder.name}/{address} is {state} there"
