"""The pages of errors: what messages mean, what to do, and the sections that show it.

`errors` has the field and a line for each message; its text stands on the page of its family, of
which `bookbuild.site.extensions.message_scripts` makes the script that answers are taken from.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html import escape

from bookbuild.pages.chapters import Chapter
from bookbuild.pages.markdown import page
from bookbuild.source import outline
from bookbuild.source.checkout import Book
from bookbuild.source.messages import Entry, Family, families
from bookbuild.source.words import words


@dataclass
class Error:
    """A message of the book, with the cells that print it: their reason and section as HTML."""

    entry: Entry
    seen: list[tuple[str, str]] = field(default_factory=list)


def errors(
    chapters: list[Chapter], entries: list[Entry], said: dict[str, list[tuple[str, str]]]
) -> list[Error]:
    """The messages, each with what the chapters' stored outputs show of it.

    `said` are the cells that say a message, as `messages.said_by_cells` finds them.
    """
    found = {e.id: Error(e) for e in entries}
    cells = {(c.name, cell.id): (c, cell) for c in chapters for cell in c.cells}
    for name, where in said.items():
        for key in where:
            if key in cells:
                chapter, cell = cells[key]
                section = chapter.sections[cell.id]
                title = section.title
                if title != chapter.title:
                    title = f"{chapter.title} › {title}"
                seen = (_inline(cell.metadata.get("cause", "")), _link(section.href, title))
                if seen not in found[name].seen:
                    found[name].seen.append(seen)
    return list(found.values())


def render(
    book: Book,
    lang: str,
    chapters: list[Chapter],
    entries: list[Entry],
    said: dict[str, list[tuple[str, str]]],
) -> dict[str, str]:
    """The pages as Markdown, by name; lists are HTML, so that pages of this size are built quickly.

    Raises:
        BookError: a message has a section that does not exist.
    """
    w = words(lang)
    listed = errors(chapters, entries, said)
    groups = [
        (family, [error for error in listed if error.entry.family == family.name])
        for family in families(book)
    ]
    pages = {family.page: _family(book, lang, family, group, w) for family, group in groups}
    return {"errors": _all(groups, lang, w)} | pages


def _all(groups: list[tuple[Family, list[Error]]], lang: str, w: dict) -> str:
    """The page with the field and a line for each message."""
    parts = [
        f'## [{family.title[lang]}]({family.page}.md)\n\n<ul class="error-lines">\n'
        + "\n".join(_line(f"{family.page}.html", error.entry) for error in group)
        + "\n</ul>"
        for family, group in groups
    ]
    listed = "\n\n".join(parts)
    count = sum(len(group) for _, group in groups)
    body = f"""\
# {w["errors"]}

{w["errors_lead"].format(n=count)}

<div class="error-search" role="search">
<label for="error-search">{w["errors_label"]}</label>
<textarea id="error-search" rows="2" autocomplete="off" autocapitalize="off"
 spellcheck="false"></textarea>
<p id="error-count" role="status" aria-live="polite" data-none="{w["errors_none"]}"
 data-sure="{w["errors_sure"]}" data-others="{w["errors_others"]}"
 data-related="{w["errors_related"]}" data-copy="{w["errors_copy"]}"></p>
<noscript><p>{w["errors_noscript"]}</p></noscript>
<ol id="error-found"></ol>
</div>

<div id="error-list">

{listed}

</div>
"""
    return page("book/messages and the chapters' outputs", w["errors_summary"], body)


def _line(address: str, entry: Entry) -> str:
    """An entry as a link to its text, with the rest of what a pasted text is compared with."""
    data = [" data-wraps"] if entry.wraps else []
    data += [f" data-says='{_json(entry.says[1:])}'"] if entry.says[1:] else []
    cases = []
    for case in entry.cases:
        when = f" data-when='{_json(case.when)}'" if case.when else ""
        near = f' data-near="{_html(case.near)}"' if case.near else ""
        cases.append(f'<span id="{case.id}"{when}{near}></span>')
    return (
        f'<li id="{entry.id}"{"".join(data)}><a href="{address}#{entry.id}">'
        f"<code>{shown(entry.says[0])}</code></a>{''.join(cases)}</li>"
    )


def _json(value: object) -> str:
    """A value for an attribute in single quotes, where JSON's double ones stay as they are."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#x27;")


def _family(book: Book, lang: str, family: Family, group: list[Error], w: dict) -> str:
    """The page of a family, with the whole text of each message."""
    listed = "\n".join(_item(book, lang, error, w) for error in group)
    body = f"""\
# {w["errors"]}{w["colon"]}{family.heading[lang]}

{w["errors_family"].format(n=len(group))}

<ul class="error-list" data-copy="{w["errors_copy"]}">
{listed}
</ul>
"""
    return page("book/messages and the chapters' outputs", family.description[lang], body)


def _item(book: Book, lang: str, error: Error, w: dict) -> str:
    """An entry as HTML without blank lines, so that Markdown leaves it alone."""
    name, said = error.entry.id, shown(error.entry.says[0])
    seen = []
    if error.seen:
        seen.append(f'<details class="seen"><summary>{w["errors_seen"]}</summary><ul>')
        seen += [
            f"<li>{link}{w['colon'] if cause else ''}{cause}</li>" for cause, link in error.seen
        ]
        seen.append("</ul></details>")
    lines = [
        f'<li id="{name}">',
        f'<p class="message"><a href="errors/{name}.html"><code>{said}</code></a></p>',
        told(book, lang, error.entry, seen),
        "</li>",
    ]
    return "\n".join(lines)


def told(book: Book, lang: str, entry: Entry, seen: list[str] | None = None) -> str:
    """What the book says of a message: advice, special cases, what `seen` adds, other wordings."""
    w, lines = words(lang), advice(book, lang, entry)
    older = [
        f"<code>{shown(text)}</code>{until}"
        for text, until in zip(
            entry.says[1:],
            (w["errors_until"].format(x) if x else "" for x in entry.until[1:]),
            strict=True,
        )
    ]
    if entry.cases:
        lines.append(f'<details class="cases"><summary>{w["errors_cases"]}</summary>')
        for case in entry.cases:
            lines.append(f'<div class="case" id="{case.id}">')
            lines += [*advice(book, lang, case), "</div>"]
        lines.append("</details>")
    lines += seen or []
    if older:
        lines.append(f'<details class="older"><summary>{w["errors_older"]}</summary><ul>')
        lines += [f"<li>{text}</li>" for text in older] + ["</ul></details>"]
    return "\n".join(lines)


def advice(book: Book, lang: str, entry: Entry) -> list[str]:
    """Cause, cure and section, as HTML."""
    lines = [f'<p class="cause">{_variables(_inline(entry.cause[lang]))}</p>']
    cure = entry.cure_zh if lang == "zh" and entry.cure_zh else entry.cure
    if cure:  # an empty line would end the HTML
        code = "\n".join(_html(line) or "<span></span>" for line in cure.splitlines())
        lines.append(f'<div class="cure"><pre><code>{code}</code></pre></div>')
    if entry.section:
        href, titles = outline.section(book, entry)
        lines.append(f"<p>→ {_link(href, titles[lang])}</p>")
    return lines


def _link(href: str, title: str) -> str:
    return f'<a href="{_html(href.replace(".ipynb", ".html"))}">{_inline(title)}</a>'


def shown(wording: str) -> str:
    """A wording as HTML."""
    return _variables(_html(wording))


def _variables(html: str) -> str:
    """Variable parts marked: they are filled in where a message was pasted."""
    return re.sub(r"\{(\w+)\}", r"<var>\1</var>", html)


def _html(text: str) -> str:
    return escape(text, quote=True)


def _inline(markdown: str) -> str:
    """The little Markdown of a cause: code in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(markdown, quote=False))
