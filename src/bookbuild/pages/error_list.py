"""Render the pages of error messages with causes, fixes and the sections that show them.

The page `errors` has the search field and one line per message; the full entry is on the page of
its family. The scripts beside the pages contain the same data, which the search field displays.
"""

from __future__ import annotations

from markupsafe import Markup

from bookbuild.pages import message_data
from bookbuild.pages.chapters import Chapter
from bookbuild.pages.markdown import fill, page
from bookbuild.source.checkout import Book
from bookbuild.source.messages import Entry, families
from bookbuild.source.words import words

Seen = dict[str, list[dict[str, str]]]  # message -> cause, href and title of each place


def seen_in(chapters: list[Chapter], cells: dict[str, list[tuple[str, str]]]) -> Seen:
    """Return for each message the sections whose stored outputs contain it.

    `cells` maps a message's id to the (chapter, id) of each cell that prints it; see
    `message_proofs.cells_with_message`.
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
        BookError: a message names a section that does not exist.
    """
    w, source = words(lang, "errors"), "book/messages and the chapters' outputs"
    groups = [
        (family, [entry for entry in entries if entry.family == family.name])
        for family in families(book)
    ]
    ordered = [entry for _, group in groups for entry in group]
    values = {"w": w, "lang": lang, "script": message_data.SCRIPT}
    values["issues"] = f"{book.repository}/issues/new" if book.repository else ""
    body = fill("errors.md", groups=groups, count=len(ordered), **values)
    files = {"errors.md": page(source, w["summary"], body)}
    for family, group in groups:
        advice = {entry.id: message_data.advice(book, lang, entry) for entry in group}
        places = {entry.id: seen.get(entry.id, []) for entry in group}
        values |= {"family": family, "entries": group, "advice": advice, "seen": places}
        body = fill("errors_family.md", **values)
        files[f"{family.page}.md"] = page(source, family.description[lang], body)
        files[f"{family.page}.js"] = message_data.family_script(group, advice, places)
    return files | {message_data.SCRIPT: message_data.index_script(book, lang, ordered)}


def entry_page(book: Book, lang: str, entry: Entry) -> tuple[Markup, Markup]:
    """Return the HTML of a message's own page: the full entry, and only its cause and fix."""
    advice = message_data.advice(book, lang, entry)
    values = {"w": words(lang, "errors"), "entry": entry, "advice": advice}
    return fill("entry_message.html", **values), fill("entry_answer.html", **values)
