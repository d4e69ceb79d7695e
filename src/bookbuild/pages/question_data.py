"""What `helpers.explain` finds for a question: symptoms and sections, and words for the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bookbuild.source import symptoms, texts
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.outline import Where, section, sections

LATE = re.compile(r"\d+\. |(Exercises|Recap)$")  # headings of sections that answer nothing


def places(book: Book) -> Iterator[dict[str, Any]]:
    """Yield each symptom and section: its kind, address, titles and the text that answers."""
    if (book.root / symptoms.FILE).is_file():
        for one in symptoms.load(book).symptoms:
            words = {
                lang: " · ".join([*one.also[lang], *(cause.text[lang] for cause in one.causes)])
                for lang in LANGUAGES
            }
            yield _place("symptom", f"symptoms.html#{one.id}", one.title, words)
    for name in book.chapters:
        for part in sections(texts.load(book, name)):
            if not LATE.match(part.heading):
                href, titles = section(book, Where(f"{name}#{part.id}", name))
                yield _place("section", href.replace(".ipynb", ".html"), titles, part.answer)


def _place(kind: str, href: str, title: dict[str, str], also: dict[str, str]) -> dict[str, Any]:
    return {"kind": kind, "href": href, "title": title, "also": also}
