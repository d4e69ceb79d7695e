"""The pages of errors: what messages mean, what to do, and the sections that show it.

`errors` has the field and a line for each message; its text stands on the page of its family. The
scripts beside them have the same as data, from which the field makes its answers.
"""

from __future__ import annotations

import re
from html import escape

from bookbuild.pages import message_data
from bookbuild.pages.chapters import Chapter
from bookbuild.pages.listing import inline, link
from bookbuild.pages.markdown import page
from bookbuild.source import outline
from bookbuild.source.checkout import Book
from bookbuild.source.messages import Entry, Family, families
from bookbuild.source.words import words

Seen = dict[str, list[dict[str, str]]]  # message -> cause, href and title of each place


def seen_in(chapters: list[Chapter], cells: dict[str, list[tuple[str, str]]]) -> Seen:
    """Return the places of the chapters whose stored outputs show each message.

    `cells` are the chapter and id of each cell that prints a message; see
    `message_proofs.said_by_cells`.
    """
    known = {(c.name, cell.id): (c, cell) for c in chapters for cell in c.cells}
    places: Seen = {}
    for message, keys in cells.items():
        own = []
        for chapter, cell in (known[key] for key in keys if key in known):
            section = chapter.sections[cell.id]
            title = section.title
            if title != chapter.title:
                title = f"{chapter.title} › {title}"
            href = section.href.replace(".ipynb", ".html")
            place = {"cause": cell.metadata.get("cause", ""), "href": href, "title": title}
            if place not in own:
                own.append(place)
        places[message] = own
    return places


def render(book: Book, lang: str, entries: list[Entry], seen: Seen) -> dict[str, str]:
    """Return the files by name: pages in Markdown, with lists in HTML, and their scripts.

    Raises:
        BookError: a message has a section that does not exist.
    """
    w = words(lang, "errors")
    groups = grouped(book, entries)
    files = {"errors.md": _all(groups, lang, w)}
    for family, group in groups:
        files[f"{family.page}.md"] = _family(book, lang, family, group, seen, w)
        files[f"{family.page}.js"] = message_data.advice(book, lang, group, seen)
    everything = [entry for _, group in groups for entry in group]
    return files | {message_data.SCRIPT: message_data.index(book, everything)}


def grouped(book: Book, entries: list[Entry]) -> list[tuple[Family, list[Entry]]]:
    """Return the families in the order of their pages, each with its messages."""
    return [
        (family, [entry for entry in entries if entry.family == family.name])
        for family in families(book)
    ]


def _all(groups: list[tuple[Family, list[Entry]]], lang: str, w: dict) -> str:
    """The page with the field and a line for each message."""
    parts = [
        f'## [{family.title[lang]}]({family.page}.md)\n\n<ul class="error-lines">\n'
        + "\n".join(_line(f"{family.page}.html", entry) for entry in group)
        + "\n</ul>"
        for family, group in groups
    ]
    listed = "\n\n".join(parts)
    count = sum(len(group) for _, group in groups)
    body = f"""\
# {w["title"]}

{w["lead"].format(n=count)}

<div class="error-search" role="search">
<label for="error-search">{w["label"]}</label>
<textarea id="error-search" rows="2" autocomplete="off" autocapitalize="off"
 spellcheck="false"></textarea>
<p id="error-count" role="status" aria-live="polite" data-none="{w["none"]}"
 data-sure="{w["sure"]}" data-others="{w["others"]}"
 data-related="{w["related"]}" data-copy="{w["copy"]}"
 data-cases="{w["cases"]}" data-seen="{w["seen"]}"
 data-older="{w["older"]}" data-until="{w["until"]}" data-colon="{w["colon"]}"></p>
<script src="{message_data.SCRIPT}" defer></script>
<noscript><p>{w["noscript"]}</p></noscript>
<ol id="error-found"></ol>
</div>

<div id="error-list">

{listed}

</div>
"""
    return page("book/messages and the chapters' outputs", w["summary"], body)


def _line(address: str, entry: Entry) -> str:
    """An entry as a link to its text; its special cases have their addresses here, too."""
    cases = "".join(f'<span id="{case.id}"></span>' for case in entry.cases)
    return (
        f'<li id="{entry.id}"><a href="{address}#{entry.id}">'
        f"<code>{shown(entry.says[0])}</code></a>{cases}</li>"
    )


def _family(book: Book, lang: str, family: Family, group: list[Entry], seen: Seen, w: dict) -> str:
    """The page of a family, with the whole text of each message."""
    listed = "\n".join(_item(book, lang, entry, seen.get(entry.id, []), w) for entry in group)
    body = f"""\
# {w["title"]}{w["colon"]}{family.heading[lang]}

{w["family"].format(n=len(group))}

<ul class="error-list" data-copy="{w["copy"]}">
{listed}
</ul>
"""
    return page("book/messages and the chapters' outputs", family.description[lang], body)


def _item(book: Book, lang: str, entry: Entry, places: list[dict[str, str]], w: dict) -> str:
    """An entry as HTML without blank lines, so that Markdown leaves it alone."""
    seen = []
    if places:
        seen.append(f'<details class="seen"><summary>{w["seen"]}</summary><ul>')
        for place in places:
            cause = f"{w['colon']}{inline(place['cause'])}" if place["cause"] else ""
            seen.append(f"<li>{link(place['href'], place['title'])}{cause}</li>")
        seen.append("</ul></details>")
    lines = [
        f'<li id="{entry.id}">',
        f'<p class="message"><a href="errors/{entry.id}.html">'
        f"<code>{shown(entry.says[0])}</code></a></p>",
        told(book, lang, entry, seen),
        "</li>",
    ]
    return "\n".join(lines)


def told(book: Book, lang: str, entry: Entry, seen: list[str] | None = None) -> str:
    """What the book says of a message: advice, special cases, what `seen` adds, other wordings."""
    w, lines = words(lang, "errors"), advice(book, lang, entry)
    older = [
        f"<code>{shown(text)}</code>{until}"
        for text, until in zip(
            entry.says[1:],
            (w["until"].format(x) if x else "" for x in entry.until[1:]),
            strict=True,
        )
    ]
    if entry.cases:
        lines.append(f'<details class="cases"><summary>{w["cases"]}</summary>')
        for case in entry.cases:
            lines.append(f'<div class="case" id="{case.id}">')
            lines += [*advice(book, lang, case), "</div>"]
        lines.append("</details>")
    lines += seen or []
    if older:
        lines.append(f'<details class="older"><summary>{w["older"]}</summary><ul>')
        lines += [f"<li>{text}</li>" for text in older] + ["</ul></details>"]
    return "\n".join(lines)


def advice(book: Book, lang: str, entry: Entry) -> list[str]:
    """Cause, cure and section, as HTML."""
    lines = [f'<p class="cause">{_variables(inline(entry.cause[lang]))}</p>']
    cure = entry.cure_zh if lang == "zh" and entry.cure_zh else entry.cure
    if cure:  # an empty line would end the HTML
        code = "\n".join(_html(line) or "<span></span>" for line in cure.splitlines())
        lines.append(f'<div class="cure"><pre><code>{code}</code></pre></div>')
    if entry.section:
        href, titles = outline.section(book, entry)
        lines.append(f"<p>→ {link(href, titles[lang])}</p>")
    return lines


def shown(wording: str) -> str:
    """A wording as HTML."""
    return _variables(_html(wording))


def _variables(html: str) -> str:
    """Variable parts marked: they are filled in where a message was pasted."""
    return re.sub(r"\{(\w+)\}", r"<var>\1</var>", html)


def _html(text: str) -> str:
    return escape(text, quote=True)
