"""Write a page for each message and pitfall, with its own address, title and description.

The pages are rendered without Sphinx, which would take minutes for thousands of them, and without
a chapter's navigation. The pages `errors_*.html` and `pitfalls.html` list them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from bookbuild.pages import error_list
from bookbuild.pages import pitfall_list as pitfalls_page
from bookbuild.site import metatags
from bookbuild.source import messages, pitfalls
from bookbuild.source.checkout import ERRORS_OF, LANGUAGES, Book
from bookbuild.source.templates import render
from bookbuild.source.words import words


@dataclass(frozen=True)
class Entry:
    """A message or a pitfall in one language; `body` and `answer` are HTML."""

    kind: str
    id: str
    title: str
    description: str
    body: Markup
    listed: str  # address of the entry on the page that lists it
    answer: str = ""  # cause and fix of a message; empty for a pitfall

    @property
    def path(self) -> str:
        """Address of the page relative to the language's folder."""
        return f"{self.kind}/{self.id}.html"


def entries(book: Book, lang: str) -> Iterator[Entry]:
    """Yield the messages and pitfalls if the page that lists them is in the table of contents."""
    if "errors" in book.pages:
        yield from (_message(book, lang, message) for message in messages.load(book))
    if "pitfalls" in book.pages:
        yield from (_pitfall(book, lang, pitfall) for pitfall in pitfalls.load(book))


def _message(book: Book, lang: str, message: messages.Entry) -> Entry:
    wording = message.wordings[0]
    body, answer = error_list.entry_page(book, lang, message)
    return Entry(
        kind="errors",
        id=message.id,
        title=metatags.short(re.sub(r"\{\w+\}", "…", wording), 110),
        description=message.cause[lang],
        body=_below(body),
        listed=f"{ERRORS_OF}{message.family}.html#{message.id}",
        answer=answer.strip(),
    )


def _pitfall(book: Book, lang: str, pitfall: pitfalls.Pitfall) -> Entry:
    title, body = pitfalls_page.entry_page(book, lang, pitfall)
    right = pitfall.right or pitfall.part.answer[lang]
    return Entry(
        kind="pitfalls",
        id=pitfall.id,
        title=metatags.short(f"{title} · {pitfall.wrong}", 110),
        description=f"✗ {pitfall.wrong} ✓ {right}",
        body=_below(body),
        listed=f"pitfalls.html#{pitfall.id}",
    )


def _below(html: str) -> Markup:
    """Adapt the links of HTML from the language's folder to a page one folder below."""
    return Markup(str(html).replace('<a href="', '<a href="../'))


def write(book: Book, site: Path) -> list[str]:
    """Write the pages to a site; return their addresses relative to a language's folder."""
    paths: dict[str, None] = {}
    for lang in LANGUAGES:
        descriptions = set()
        for entry in entries(book, lang):
            paths[entry.path] = None
            if entry.description in descriptions:  # several messages may have the same cause
                entry = replace(entry, description=f"{entry.title}: {entry.description}")
            descriptions.add(entry.description)
            file = site / lang / entry.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_html(book, lang, entry), "utf8")
    return list(paths)


def _html(book: Book, lang: str, entry: Entry) -> str:
    description = metatags.short(entry.description.replace("`", ""))
    page = metatags.Page(book.languages[lang], entry.path, entry.title, description, book.address)
    if entry.answer:
        data = metatags.question(page, entry.title, entry.answer)
    else:
        data = metatags.article(page)
    other = book.other_language(lang)
    head = metatags.head(page, data)
    values = {"entry": entry, "page": page, "other": other, "head": head}
    return render("site", "entry.html", words=words(lang, "entries"), **values)
