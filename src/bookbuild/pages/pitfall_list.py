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

_WORDS = {
    "en": {
        "title": "All pitfalls · wrong → right",
        "summary": "Every pitfall of the book in a line: wrong code, and what to write.",
        "lead": (
            "{n} pitfalls, a line each: what people write, and what to write instead.\n"
            "The code is from cells that run; the title leads to the section that shows it fail."
        ),
        "placeholder": "clone, mask, scheduler …",
        "wrong": "Wrong",
        "right": "Right",
        "here": "Link to this line",
    },
    "zh": {
        "title": "全部陷阱 · 错 → 对",
        "summary": "书中每个陷阱一行：错误的代码，以及该怎么写。",
        "lead": (
            "{n} 个陷阱，每个一行：大家常写的代码，以及应该怎么写。\n"
            "代码都来自能运行的单元格；标题指向演示它出错的小节。"
        ),
        "placeholder": "clone、掩码、调度器……",
        "wrong": "错",
        "right": "对",
        "here": "此行的链接",
    },
}


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """The page as Markdown.

    Raises:
        BookError: a text has another form.
    """
    w = _WORDS[lang]
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
        f'<p class="both">{_both(one, lang, _WORDS[lang])}</p>',
        f'<p class="cause">{_words(answer)}</p>' if answer else "",
        f"<p>→ {link(href, titles[lang])}</p>",
    ]
    return title, "\n".join(filter(None, lines))


def _words(answer: str) -> str:
    """An answer as HTML: code, emphasis and powers are all that answers have."""
    html = re.sub(r"\$(\d+)\^\{(\d+)\}\$", r"\1<sup>\2</sup>", inline(answer))
    return re.sub(r"\*([^*<>]+)\*(?![^<]*</code>)", r"<em>\1</em>", html)
