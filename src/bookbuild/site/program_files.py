"""Write `llms.txt` and `pitfalls.json`, the files for programs at the root of a site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from bookbuild.notebooks.cells import output
from bookbuild.notebooks.files import shared
from bookbuild.pages.pitfall_list import place
from bookbuild.site.markdown_copies import runs
from bookbuild.source import messages, pitfalls, versions
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.headings import headings
from bookbuild.source.pitfalls import Pitfall
from bookbuild.source.templates import render


def write(book: Book, site: Path, descriptions: dict[str, dict[str, str]]) -> None:
    """Write both files into a site that contains the Markdown copies of all pages.

    Args:
        book: the book of the site.
        site: the folder of the site.
        descriptions: description of each page, by language and page name.
    """
    (site / "pitfalls.json").write_text(_pitfalls(book), "utf8")
    (site / "llms.txt").write_text(_llms(book, site, descriptions), "utf8")


def _prefix(book: Book) -> str:
    """Return the URL prefix of the site's files, empty if the address is unknown."""
    return f"{book.address}/" if book.address else ""


# ---------------------------------------------------------------- pitfalls.json


def _pitfalls(book: Book) -> str:
    """Return the pitfalls in the format of `pitfalls.schema.json`, one per line."""
    cells: dict[str, dict[str, NotebookNode]] = {}
    rows = []
    for pitfall in pitfalls.load(book):
        name = pitfall.part.name
        if name not in cells:
            cells[name] = {cell.id: cell for cell in shared(book.notebook("en", name)).cells}
        if pitfall.id in cells[name]:  # missing if the notebook is older than the text
            row = _pitfall(book, pitfall, cells[name][pitfall.id])
            rows.append(json.dumps(row, ensure_ascii=False))
    about = {
        "$schema": f"{_prefix(book)}pitfalls.schema.json",
        "title": {lang: language.title for lang, language in book.languages.items()},
        "about": "Each wrong code was run in a notebook of the book; `output` is what it printed "
        "or raised under the versions of PyTorch that `proof.torch` names.",
        "license": {"text": "CC-BY-4.0", "code": "MIT"},
    }
    listed = ",\n".join(rows)
    return f'{json.dumps(about, ensure_ascii=False)[:-1]}, "pitfalls": [\n{listed}\n]}}\n'


def _pitfall(book: Book, pitfall: Pitfall, cell: NotebookNode) -> dict[str, Any]:
    name, (href, titles) = pitfall.part.name, place(book, pitfall)
    at, section = _prefix(book), href.replace(".ipynb", ".html")
    torch = sorted({run["torch"] for run in runs(book, "en", name).values()})
    same = [
        version
        for version, run in versions.tested(book).items()
        if name in run["chapters"] and cell.id not in run["differs"].get(name, {})
    ]
    return {
        "id": pitfall.id,
        "chapter": name,
        "title": titles,
        "wrong": pitfall.wrong,
        "right": pitfall.right or None,
        "why": {lang: text or None for lang, text in pitfall.part.answer.items()},
        "since": next(iter([*same, *torch]), None),
        "proof": {"cell": cell.id, "output": output(cell), "torch": torch},
        "address": {lang: f"{at}{lang}/pitfalls/{pitfall.id}.html" for lang in LANGUAGES},
        "section": {lang: f"{at}{lang}/{section}" for lang in LANGUAGES},
    }


# ---------------------------------------------------------------- llms.txt


def _llms(book: Book, site: Path, descriptions: dict[str, dict[str, str]]) -> str:
    """Return the list of Markdown copies in the format of https://llmstxt.org, English first."""
    versions_run = {
        run["torch"] for name in book.chapters for run in runs(book, "en", name).values()
    }
    parts = [
        (lang, language.parts.get(part, part), _links(book, site, lang, pages, descriptions[lang]))
        for lang, language in book.languages.items()
        for part, pages in book.parts
    ]
    return render(
        "site",
        "llms.txt",
        title=book.languages["en"].title,
        at=_prefix(book),
        torch=", ".join(sorted(versions_run)),
        parts=[part for part in parts if part[2]],
    )


def _links(
    book: Book, site: Path, lang: str, pages: list[str], descriptions: dict[str, str]
) -> list[str]:
    """Return one line per page with a Markdown copy; message families follow `errors`."""
    names = []
    for page in pages:
        families = messages.families(book) if page == "errors" else ()
        names += [page, *(family.page for family in families)]
    return [
        f"- [{_title(site / lang / f'{name}.md')}]({_prefix(book)}{lang}/{name}.md): "
        f"{descriptions[name]}"
        for name in names
        if (site / lang / f"{name}.md").is_file()
    ]


def _title(copy: Path) -> str:
    lines = copy.read_text("utf8").splitlines()
    return headings(next(line for line in lines if line.startswith("# ")))[0].plain
