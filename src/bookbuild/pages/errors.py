"""The page of errors: all that the chapters' stored outputs raise, and where it is explained."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

from bookbuild import versions
from bookbuild.book import Book
from bookbuild.pages.chapters import Chapter
from bookbuild.pages.markdown import code, page
from bookbuild.pages.words import words

SHOWN = 300  # characters of a message; the search knows them all


@dataclass
class Error:
    """An exception of the book; the same one may be raised in several places."""

    text: str  # "Type: message"
    causes: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)  # of PyTorch, where not all word it like this


def errors(book: Book, chapters: list[Chapter]) -> list[Error]:
    """The exceptions of the chapters, each once, in reading order.

    One that another version of PyTorch words differently is followed by that wording.

    Raises:
        BookError: `versions.json` is damaged.
    """
    found: dict[str, Error] = {}
    runs = versions.tested(book)
    for chapter in chapters:
        for cell in chapter.cells:
            section = chapter.sections[cell.id]
            for output in cell.outputs:
                if output.output_type != "error":
                    continue
                title = section.title
                if title != chapter.title:
                    title = f"{chapter.title} › {title}"
                link = f"[{title}]({section.href})"
                now = f"{output.ename}: {output.evalue}" if output.evalue else output.ename
                wordings = {now: []}
                for version, tested in runs.items():
                    if text := tested["differs"].get(chapter.name, {}).get(cell.id):
                        wordings.setdefault(text, []).append(version)
                for text, said_by in wordings.items():
                    error = found.setdefault(text, Error(text))
                    for known, new in (
                        (error.causes, [cell.metadata.get("cause")]),
                        (error.links, [link]),
                        (error.versions, said_by),
                    ):
                        known += [item for item in new if item and item not in known]
    return list(found.values())


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """The page as Markdown."""
    w = words(lang)
    items = "\n\n".join(_item(error, w) for error in errors(book, chapters))
    body = f"""\
# {w["errors"]}

{w["errors_lead"]}

<div class="error-search" role="search">
<label for="error-search">{w["errors_label"]}</label>
<input id="error-search" type="search" autocomplete="off" autocapitalize="off" spellcheck="false">
<p id="error-count" role="status" aria-live="polite" data-none="{w["errors_none"]}"
 data-one="{w["errors_one"]}" data-many="{w["errors_many"]}"></p>
<noscript><p>{w["errors_noscript"]}</p></noscript>
</div>

<ul id="error-list">

{items}

</ul>
"""
    return page("the chapters' outputs", w["errors_summary"], body)


def _item(error: Error, w: dict[str, str]) -> str:
    attribute = escape(error.text).replace("\n", "&#10;").replace("\r", "&#13;")
    shown = re.sub(r"\s+", " ", error.text).strip()
    if len(shown) > SHOWN:
        shown = shown[:SHOWN].rstrip() + "…"
    lines = [code(shown)]
    if error.versions:
        lines.append(w["errors_versions"].format(w["enumeration"].join(error.versions)))
    lines += [*error.causes, *(f"→ {link}" for link in error.links)]
    return "\n\n".join([f'<li data-error="{attribute}">', *lines, "</li>"])
