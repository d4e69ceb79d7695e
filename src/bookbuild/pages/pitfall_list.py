"""The page of all pitfalls: a line each, wrong and right, by chapter."""

from __future__ import annotations

import re
from itertools import groupby

from markupsafe import Markup

from bookbuild.pages.chapters import Chapter
from bookbuild.pages.markdown import fill, inline, page
from bookbuild.source import pitfalls
from bookbuild.source.checkout import Book
from bookbuild.source.outline import Where, section
from bookbuild.source.pitfalls import Pitfall
from bookbuild.source.words import words


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """Return the page as Markdown.

    Raises:
        BookError: a text has another form.
    """
    everything = pitfalls.load(book)
    by_name = {chapter.name: chapter for chapter in chapters}
    groups = [
        (by_name[name], [(pitfall, *_titled(book, lang, pitfall)) for pitfall in group])
        for name, group in groupby(everything, lambda pitfall: pitfall.part.name)
        if name in by_name
    ]
    w = words(lang, "pitfalls")
    values = _values(lang) | {"groups": groups, "count": len(everything)}
    body = fill("pitfalls.md", field=words(lang, "filter"), **values)
    return page("the texts of the chapters", w["summary"], body)


def _values(lang: str) -> dict[str, object]:
    return {"w": words(lang, "pitfalls"), "lang": lang, "answer": answer}


def _titled(book: Book, lang: str, pitfall: Pitfall) -> tuple[str, str]:
    """Return the address of the section of a pitfall, and its title without the chapter's."""
    href, titles = place(book, pitfall)
    return href, titles[lang].partition(" › ")[2] or titles[lang]


def place(book: Book, pitfall: Pitfall) -> tuple[str, dict[str, str]]:
    """Return the address and the titles of the section that shows a pitfall."""
    return section(book, Where(f"{pitfall.part.name}#{pitfall.part.id}", pitfall.id))


def alone(book: Book, lang: str, pitfall: Pitfall) -> tuple[str, Markup]:
    """Return a pitfall for a page of its own: the section's title, and HTML."""
    href, titles = place(book, pitfall)
    title = titles[lang].rpartition(" › ")[2]
    values = {"pitfall": pitfall, "title": title, "href": href, "whole": titles[lang]}
    return title, fill("entry_pitfall.html", **_values(lang), **values)


def answer(markdown: str) -> Markup:
    """Return an answer as HTML; its only Markdown is code, emphasis and powers."""
    html = re.sub(r"\$(\d+)\^\{(\d+)\}\$", r"\1<sup>\2</sup>", str(inline(markdown)))
    return Markup(re.sub(r"\*([^*<>]+)\*(?![^<]*</code>)", r"<em>\1</em>", html))
