"""Render the page of symptoms: bugs without a message, a check for each, and likely causes."""

from __future__ import annotations

from itertools import groupby

from bookbuild.pages.markdown import fill, page
from bookbuild.source import symptoms
from bookbuild.source.checkout import Book
from bookbuild.source.outline import locate_section
from bookbuild.source.symptoms import Cause
from bookbuild.source.words import words


def render(book: Book, lang: str) -> str:
    """Return the page as Markdown.

    Raises:
        BookError: `symptoms.yml` is malformed, or names a section that does not exist.
    """

    def place(cause: Cause) -> tuple[str, str]:
        href, titles = locate_section(book, cause.section, cause.where)
        return href, titles[lang]

    everything, w = symptoms.load(book).symptoms, words(lang, "symptoms")
    groups = [(name, [*group]) for name, group in groupby(everything, lambda s: s.family)]
    values = {"w": w, "lang": lang, "field": words(lang, "filter"), "place": place}
    body = fill(
        "symptoms.md",
        groups=groups,
        count=len(everything),
        families=words(lang, "symptom_families"),
        **values,
    )
    return page("book/symptoms.yml", w["summary"], body)
