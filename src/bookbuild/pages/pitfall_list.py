"""Render the page of all pitfalls by chapter, with one line of wrong and right code each."""

from __future__ import annotations

import re
from itertools import groupby

from markupsafe import Markup

from bookbuild.pages.chapters import Chapter
from bookbuild.pages.markdown import fill, inline, page
from bookbuild.source import pitfalls
from bookbuild.source.checkout import Book
from bookbuild.source.outline import locate_section
from bookbuild.source.pitfalls import Pitfall
from bookbuild.source.words import words


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """Return the page as Markdown.

    Raises:
        BookError: a text is malformed.
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
    """Return the address and the title of a pitfall's section, without the chapter's title."""
    href, titles = place(book, pitfall)
    return href, titles[lang].partition(" › ")[2] or titles[lang]


def place(book: Book, pitfall: Pitfall) -> tuple[str, dict[str, str]]:
    """Return the address of the section that shows a pitfall, and its title by language."""
    return locate_section(book, f"{pitfall.part.name}#{pitfall.part.id}", pitfall.id)


def entry_page(book: Book, lang: str, pitfall: Pitfall) -> tuple[str, Markup]:
    """Return the title and the HTML body of a pitfall's own page."""
    href, titles = place(book, pitfall)
    title = titles[lang].rpartition(" › ")[2]
    values = {"pitfall": pitfall, "title": title, "href": href, "whole": titles[lang]}
    return title, fill("entry_pitfall.html", **_values(lang), **values)


def answer(markdown: str) -> Markup:
    """Convert an answer to HTML; its Markdown is limited to code, emphasis and superscripts."""
    html = re.sub(r"\$(\d+)\^\{(\d+)\}\$", r"\1<sup>\2</sup>", str(inline(markdown)))
    return Markup(re.sub(r"\*([^*<>]+)\*(?![^<]*</code>)", r"<em>\1</em>", html))
