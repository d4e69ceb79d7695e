"""The page of symptoms: bugs without a message, how to tell, and what may be behind them."""

from __future__ import annotations

from itertools import groupby

from bookbuild.pages.listing import block, filtered, inline, link
from bookbuild.pages.markdown import page
from bookbuild.source import symptoms
from bookbuild.source.checkout import Book
from bookbuild.source.outline import section
from bookbuild.source.symptoms import Symptom
from bookbuild.source.words import words


def render(book: Book, lang: str) -> str:
    """The page as Markdown.

    Raises:
        BookError: `symptoms.yml` has another form, or names a section that does not exist.
    """
    w, families = words(lang, "symptoms"), words(lang, "symptom_families")
    found = symptoms.load(book).symptoms
    parts = [
        f'## {families.get(family, family)}\n\n<ul class="symptoms">\n'
        + "\n".join(_item(book, lang, one, w) for one in group)
        + "\n</ul>"
        for family, group in groupby(found, lambda one: one.family)
    ]
    body = f"# {w['title']}\n\n{w['lead'].format(n=len(found))}\n\n" + filtered(
        "symptom", lang, w["placeholder"], "\n\n".join(parts)
    )
    return page("book/symptoms.yml", w["summary"], body)


def _item(book: Book, lang: str, one: Symptom, w: dict) -> str:
    """A symptom as HTML without empty lines, so that Markdown leaves it alone."""
    lines = [
        f'<li id="{one.id}"><details>',
        f"<summary>{inline(one.says[lang])}</summary>",
        f'<p class="also">{w["also"]}{inline(w["sep"].join(one.also[lang]))}</p>',
        block(one.tell),
        f"<p>{inline(one.sign[lang])}</p>",
        "<ol>",
    ]
    for cause in one.causes:
        where = ""
        if cause.section:
            href, titles = section(book, cause)
            where = f"<br>→ {link(href, titles[lang])}"
        lines.append(f"<li>{inline(cause.says[lang])}{where}</li>")
    lines.append("</ol>")
    lines.append(f'<p><a class="here" href="#{one.id}">#{one.id}</a></p>')
    return "\n".join([*lines, "</details></li>"])
