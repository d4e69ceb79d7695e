"""The cheat sheet: a notebook that runs, made of the chapters' cells tagged `cheat`."""

from __future__ import annotations

import builtins
import copy
from collections import Counter
from collections.abc import Iterator

from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell

from bookbuild import setup_cell
from bookbuild.book import Book
from bookbuild.notebooks import code_cells, dumps, stamp, tags
from bookbuild.pages.chapters import Chapter
from bookbuild.pages.markdown import GENERATED
from bookbuild.pages.words import words
from bookbuild.products import KERNEL
from helpers.names import global_names

KEPT_TAGS = ("gpu", "raises-exception", "nbval-ignore-output")
KNOWN = {*dir(builtins), "__name__", "display", "get_ipython"}


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """The notebook as the text that is stored."""
    return dumps(assemble(book, lang, chapters))


def assemble(book: Book, lang: str, chapters: list[Chapter]) -> NotebookNode:
    """The notebook, with the outputs that the chapters store."""
    w = words(lang)
    comment = GENERATED.format("the chapters' cells tagged cheat")
    cells = [
        _prose("title", f"<!-- {comment} -->\n\n# {w['cheat_sheet']}\n\n{w['cheat_sheet_lead']}"),
        new_code_cell(setup_cell.source(), id="setup", metadata={"tags": ["setup", "remove-cell"]}),
    ]
    for chapter in chapters:
        cells += _chapter(chapter)
    _number(cells)
    # not `new_notebook`, which gives cells with one id new ones at random
    sheet = from_dict(
        {
            "cells": cells,
            "metadata": KERNEL | {"summary": w["cheat_sheet_summary"]},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )
    stamp(sheet)
    return sheet


def problems(nb: NotebookNode) -> Iterator[str]:
    """Cells that share their id, or use a name which no cell of the sheet before them has made."""
    for cell_id, count in Counter(cell.id for cell in nb.cells).items():
        if count > 1:
            yield f"{cell_id}: cells of several chapters have this id"
    known = set(KNOWN)
    for cell in code_cells(nb):
        try:
            read, made = global_names(cell.source)
        except SyntaxError:  # a magic
            continue
        missing = read - made - known
        for name in sorted(missing):
            yield (
                f"{cell.id}: uses {name}, which no cheat cell before it makes; "
                "make it there or tag the cell that does"
            )
        known |= made | missing


def _chapter(chapter: Chapter) -> Iterator[NotebookNode]:
    """A chapter's cells: imports unseen, then the lines to keep under their sections' names."""
    cheats = [cell for cell in chapter.cells if "cheat" in tags(cell)]
    if not cheats:
        return
    yield _prose(f"{chapter.name}-chapter", f"## [{chapter.title}]({chapter.name}.ipynb)")
    here = None
    for cell in chapter.cells:
        if "cheat-setup" in tags(cell):
            yield _carried(cell, ["cheat-setup", "remove-cell"])
        elif "cheat" in tags(cell):
            section = chapter.sections[cell.id]
            if section != here:
                yield _prose(f"{cell.id}-section"[:64], f"**[{section.title}]({section.href})**")
            here = section
            yield _carried(cell, ["cheat"])


def _prose(cell_id: str, text: str) -> NotebookNode:
    """A prose cell; nbformat's own function validates each one, which takes long."""
    return NotebookNode(cell_type="markdown", id=cell_id, metadata=NotebookNode(), source=text)


def _carried(cell: NotebookNode, roles: list[str]) -> NotebookNode:
    """A chapter's cell without what only matters in the chapter."""
    cell = copy.deepcopy(cell)
    kept = {"tags": roles + [tag for tag in tags(cell) if tag in KEPT_TAGS]}
    if "mystnb" in cell.metadata:
        kept["mystnb"] = cell.metadata["mystnb"]
    cell.metadata = NotebookNode(kept)
    return cell


def _number(cells: list[NotebookNode]) -> None:
    """Count the code cells 1..n; what was never run stays without a number."""
    for number, cell in enumerate((c for c in cells if c.cell_type == "code"), 1):
        if cell.id != "setup" and cell.execution_count is None:
            continue
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
