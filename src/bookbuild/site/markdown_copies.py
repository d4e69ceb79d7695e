"""Write a Markdown copy of each page for programs.

The copy of a chapter is made from its notebook with the stored outputs, that of another
page from its HTML. The copy of a chapter states the PyTorch version that ran the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter
from nbformat import NotebookNode

from bookbuild.notebooks import question_cells
from bookbuild.notebooks.cells import alt, output, tags
from bookbuild.notebooks.conversion import MISSING, WAITING
from bookbuild.notebooks.files import shared
from bookbuild.source import questions, texts, translation, versions
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.words import words
from helpers.verdicts import chinese

_LEFT_OUT = "a.headerlink, .filter, .error-search, form, fieldset, svg, script, .pst-js-only"


def write(book: Book, site: Path) -> None:
    """Write the Markdown copies of the chapters into a site."""
    for lang in LANGUAGES:
        for path in sorted((book.root / "book" / lang).glob("*.ipynb")):
            if (site / lang / f"{path.stem}.html").is_file():
                copy = chapter(book, lang, path.stem, shared(path))
                (site / lang / f"{path.stem}.md").write_text(copy, "utf8")


def from_html(html: str) -> str:
    """Convert a page's HTML to Markdown, with links to the Markdown copies of other pages."""
    soup = BeautifulSoup(html, "html.parser")
    for node in soup.select(_LEFT_OUT):
        node.decompose()
    for link in soup.find_all("a", href=True):
        link["href"] = re.sub(r"^([\w-]+)\.html(?=#|$)", r"\1.md", link["href"])
    converter = MarkdownConverter(heading_style="ATX", bullets="-", escape_underscores=False)
    return converter.convert_soup(soup).strip() + "\n"


# ---------------------------------------------------------------- a chapter


def chapter(book: Book, lang: str, name: str, notebook: NotebookNode) -> str:
    """Return a chapter as Markdown, with the stored output of each cell."""
    asked = _questions(book, lang, name)
    first, *cells = notebook.cells
    title, _, rest = first.source.partition("\n")
    parts = [title, _about(book, lang, name), rest.strip()]
    for cell in cells:
        if cell.id in asked:
            parts.append(asked[cell.id])
        elif cell.cell_type == "markdown":
            parts += [] if "remove-cell" in tags(cell) else [cell.source]
        elif cell.id != texts.SETUP:
            parts.extend(_code(lang, cell))
    text = "\n\n".join(part for part in parts if part)
    return re.sub(r"(\]\([\w-]+)\.ipynb(?=[)#])", r"\1.md", text) + "\n"


def _questions(book: Book, lang: str, name: str) -> dict[str, str]:
    """Return the questions of a chapter as Markdown, by the ids of their notebook cells."""
    if not book.text(name).exists():
        return {}
    text = texts.load(book, name)
    _, outdated = translation.compare(text, translation.load(book).get(name, {}))
    untranslated = {piece.piece for piece in outdated} if lang == "zh" else set()
    cells = {}
    for cell in text.cells:
        if cell.predict:
            source = question_cells.markdown(cell.predict, lang)
            if f"{cell.id}/predict" in untranslated:
                source += f"\n\n{WAITING if cell.predict.zh else MISSING}"
            cells[cell.id + questions.SUFFIX] = source
    return cells


def _about(book: Book, lang: str, name: str) -> str:
    """Return the quotation below the title: PyTorch version, and links to page and notebook."""
    w = words(lang, "markdown_copies")
    other = book.other_language(lang)
    lines = [w["ran"].format(_under(book, lang, name)), w["marks"]]
    also = [v for v, run in versions.tested(book).items() if name in run["chapters"]]
    if also:
        lines.append(w["also"].format(w["comma"].join(also), "status.md"))
    lines.append(
        f"[{w['page']}]({name}.html) · [notebook](_sources/{name}.ipynb) · "
        f"[{other.name}](../{other.code}/{name}.md)"
    )
    return "\n".join(f"> {line}" for line in lines)


def _under(book: Book, lang: str, name: str) -> str:
    """Return a phrase with the device and PyTorch version of the last run, "" if unknown."""
    w = words(lang, "markdown_copies")
    devices = sorted(runs(book, lang, name).items())
    return w["and"].join(w["under"].format(device=d.upper(), **run) for d, run in devices)


def runs(book: Book, lang: str, name: str) -> dict[str, dict]:
    """Return the date and PyTorch version of a chapter's last run, by device."""
    return versions.validated(book).get(f"{lang}/{name}", {})


def _code(lang: str, cell: NotebookNode) -> Iterator[str]:
    w = words(lang, "markdown_copies")
    if "remove-cell" not in tags(cell):
        yield fenced(cell.source, "python")
        if cell.execution_count is None:
            yield f"*{w['not_run']}*"
    text = output(cell)
    if lang == "zh":
        text = chinese(text)
    if text:
        raises = any(out.output_type == "error" for out in cell.outputs)
        if len(cell.outputs[-1].get("data", ())) > 1:  # a figure or an explorer
            yield w["figure"] + (alt(cell) or text.strip("<>").partition(": ")[2] or text)
        else:
            yield f"{w['raises' if raises else 'prints']}:\n\n{fenced(text, 'text')}"


def fenced(text: str, language: str) -> str:
    """Return a fenced code block whose fence is longer than any in the code."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
