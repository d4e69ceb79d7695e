"""Collect the symptoms and sections that `helpers.explain` searches to answer a question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bookbuild.source import symptoms, texts
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.outline import locate_section, sections
from bookbuild.source.words import search_words

MOST = 3  # index a name only if it occurs in at most this many sections
EXERCISES = re.compile(r"\d+\. |(Exercises|Recap)$")  # also recaps; none is indexed


def places(book: Book) -> Iterator[dict[str, Any]]:
    """Yield each symptom and section as a dict: kind, address, titles, answer, names, queries."""
    if (book.root / symptoms.FILE).is_file():
        for one in symptoms.load(book).symptoms:
            words = {
                lang: " · ".join([*one.also[lang], *(cause.text[lang] for cause in one.causes)])
                for lang in LANGUAGES
            }
            yield _place("symptom", f"symptoms.html#{one.id}", one.title, words)
    parts = [
        part
        for name in book.chapters
        for part in sections(texts.load(book, name))
        if not EXERCISES.match(part.heading)
    ]
    uses = Counter(name for part in parts for name in part.names)
    ignored = set(search_words()["small"].split())  # names that are common words, such as `for`
    for part in parts:
        href, titles = locate_section(book, f"{part.name}#{part.id}", part.name)
        own = " ".join(name for name in part.names if uses[name] <= MOST and name not in ignored)
        place = _place("section", href.replace(".ipynb", ".html"), titles, part.answer)
        place["names"] = own
        if part.queries:
            place["queries"] = " · ".join(part.queries)
        yield place


def _place(kind: str, href: str, title: dict[str, str], also: dict[str, str]) -> dict[str, Any]:
    return {"kind": kind, "href": href, "title": title, "also": also}
