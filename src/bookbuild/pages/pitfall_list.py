"""The page of all pitfalls: a line each, wrong and right, by chapter."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby

from bookbuild.pages.chapters import Chapter
from bookbuild.pages.listing import filtered, inline, link
from bookbuild.pages.markdown import page
from bookbuild.source import pitfalls
from bookbuild.source.checkout import Book
from bookbuild.source.outline import Where, section
from bookbuild.source.pitfalls import Pitfall
from bookbuild.source.words import words


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """The page as Markdown.

    Raises:
        BookError: a text has another form.
    """
    w = words(lang, "pitfalls")
    found = pitfalls.load(book)
    titles = {chapter.name: chapter.title for chapter in chapters}
    parts = [
        f'## [{titles[name]}]({name}.ipynb)\n\n<ul class="pitfalls">\n'
        + "\n".join(_item(book, lang, one, w) for one in group)
        + "\n</ul>"
        for name, group in groupby(found, lambda one: one.part.name)
        if name in titles
    ]
    body = f"# {w['title']}\n\n{w['lead'].format(n=len(found))}\n\n" + filtered(
        "pitfall", lang, w["placeholder"], "\n\n".join(parts)
    )
    return page("the texts of the chapters", w["summary"], body)


def _item(book: Book, lang: str, one: Pitfall, w: dict[str, str]) -> str:
    href, titles = place(book, one)
    title = titles[lang].partition(" › ")[2] or titles[lang]
    return (
        f'<li id="{one.id}"><span>{link(href, title)} '
        f'<a class="here" href="pitfalls/{one.id}.html" aria-label="{w["here"]}">#</a></span>\n'
        f"{_both(one, lang, w)}</li>"
    )


def place(book: Book, one: Pitfall) -> tuple[str, dict[str, str]]:
    """The address and the titles of the section that shows a pitfall."""
    return section(book, Where(f"{one.part.name}#{one.part.id}", one.id))


def _both(one: Pitfall, lang: str, w: dict[str, str]) -> str:
    right = f"<code>{escape(one.right)}</code>" if one.right else _words(one.part.answer[lang])
    wrong = f"<code>{escape(one.wrong)}</code>"
    return (
        f'<span class="wrong"><b title="{w["wrong"]}">✗</b> {wrong}</span>\n'
        f'<span class="right"><b title="{w["right"]}">✓</b> {right}</span>'
    )


def alone(book: Book, lang: str, one: Pitfall) -> tuple[str, str]:
    """A pitfall on a page of its own: the section's title, and HTML."""
    href, titles = place(book, one)
    title = titles[lang].rpartition(" › ")[2]
    answer = one.part.answer[lang] if one.right else ""
    lines = [
        f"<h1>{inline(title)}</h1>",
        f'<p class="both">{_both(one, lang, words(lang, "pitfalls"))}</p>',
        f'<p class="cause">{_words(answer)}</p>' if answer else "",
        f"<p>→ {link(href, titles[lang])}</p>",
    ]
    return title, "\n".join(filter(None, lines))


def _words(answer: str) -> str:
    """An answer as HTML: code, emphasis and powers are all that answers have."""
    html = re.sub(r"\$(\d+)\^\{(\d+)\}\$", r"\1<sup>\2</sup>", inline(answer))
    return re.sub(r"\*([^*<>]+)\*(?![^<]*</code>)", r"<em>\1</em>", html)
