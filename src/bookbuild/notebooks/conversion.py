"""Convert a chapter's text to a notebook in each language."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from nbformat import NotebookNode, from_dict

from bookbuild.notebooks import question_cells, setup_cell
from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.comparison import same_code
from bookbuild.notebooks.figures import in_language
from bookbuild.source import links, questions, versions
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.headings import headings
from bookbuild.source.outline import queries
from bookbuild.source.texts import OLDEST, SETUP, Cell, Text, with_comments
from bookbuild.source.translation import Outdated
from bookbuild.source.words import table, words

KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WAITING = "> **译文待更新**：英文原文已有改动，以上译自旧版。"
MISSING = "> **尚未翻译**：以上暂用英文原文。"
# First line of a cell tagged `wrong` or `right`: Jupyter and Colab do not show tags.
MARKS = {tag: table()["notebooks"][tag] for tag in ("wrong", "right")}
SOLUTION = "-label"  # id suffix of the cell above a solution; the site shows a prompt instead


def notebook(
    text: Text,
    lang: str,
    outdated: Iterable[Outdated] = (),
) -> NotebookNode:
    """Return a chapter as a notebook in one language, without outputs and stamps.

    Args:
        text: the chapter.
        lang: `"en"` or `"zh"`.
        outdated: pieces whose Chinese is missing or outdated; each gets a note.
    """
    untranslated = {piece.piece for piece in outdated}
    cells = []
    for cell in text.cells:
        cells += _before(cell, lang, untranslated)
        product = _prose(cell, lang, untranslated) if cell.type == "markdown" else _code(cell, lang)
        if product["cell_type"] == "markdown" and text.book:
            product["source"] = _filled(text.book, text.name, cell, product["source"], lang)
        cells.append(product)
    metadata = KERNEL | {"summary": text.summary.in_language(lang)}
    if typed := queries(text, lang):
        metadata["queries"] = typed
    return from_dict(
        {
            "cells": cells,
            "metadata": metadata,
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def copy_outputs(nb: NotebookNode, ran: NotebookNode | None, lang: str) -> None:
    """Copy outputs from an executed notebook into the cells of `nb` whose code is the same."""
    before = {cell.id: cell for cell in code_cells(ran)} if ran else {}
    for cell in code_cells(nb):
        if (old := before.get(cell.id)) and same_code(old.source, cell.source):
            cell.outputs = in_language(old.outputs, lang)
            cell.execution_count = old.execution_count


def _filled(book: Book, name: str, cell: Cell, source: str, lang: str) -> str:
    """Return prose with its placeholders and empty links filled in."""
    if OLDEST in source:
        source = source.replace(OLDEST, versions.oldest(book, name))
    try:
        return links.fill(book, source, lang)
    except BookError as error:
        raise BookError(f"book/text/{name}.md:{cell.line}: {cell.id}: {error}") from None


def _prose(cell: Cell, lang: str, untranslated: set[str]) -> dict:
    source = cell.words.in_language(lang)
    if lang == "zh" and cell.id in untranslated:
        missing = cell.words.zh in (None, "", cell.words.en)
        # Anchors require the same sections in both languages: show English if they differ.
        if not missing and len(headings(source)) != len(headings(cell.words.en)):
            source, missing = cell.words.en, True
        source += f"\n\n{MISSING if missing else WAITING}"
    return {"cell_type": "markdown", "id": cell.id, "metadata": {}, "source": source}


def _before(cell: Cell, lang: str, untranslated: set[str]) -> Iterator[dict]:
    """Yield the cells inserted before a code cell: a solution's label, then its question."""
    if "solution" in cell.metadata.get("tags", ()):
        source = words(lang, "notebooks")["solution"]
        label = {"cell_type": "markdown", "id": cell.id + SOLUTION, "source": source}
        yield label | {"metadata": {"tags": ["remove-cell"]}}
    if cell.predict:
        source = question_cells.html(cell.predict.in_language(lang), cell.id, lang)
        if lang == "zh" and f"{cell.id}/predict" in untranslated:
            source += f"\n\n{WAITING if cell.predict.zh else MISSING}"
        question = {"cell_type": "markdown", "id": cell.id + questions.SUFFIX, "source": source}
        yield question | {"metadata": {}}


def _code(cell: Cell, lang: str) -> dict:
    source = setup_cell.source() if cell.id == SETUP else cell.source
    if lang == "zh" and cell.words.zh is not None:
        source = with_comments(source, cell.words.zh.split("\n"))
    metadata: dict = copy.deepcopy(cell.metadata)
    tags = metadata.get("tags", ())
    for tag, mark in MARKS.items():
        if tag in tags:
            source = f"{mark[lang]}\n{source}"
    if "solution" in tags:
        metadata |= {"cellView": "form", "jupyter": {"source_hidden": True, "outputs_hidden": True}}
    if cell.predict:
        metadata |= {"predict": cell.predict.en.split("\n")[0], "jupyter": {"outputs_hidden": True}}
    if cell.alt:
        metadata["mystnb"] = {"image": {"alt": cell.alt.in_language(lang)}}
    if cell.cause:
        metadata["cause"] = cell.cause.in_language(lang)
    return {
        "cell_type": "code",
        "id": cell.id,
        "metadata": metadata,
        "source": source,
        "execution_count": None,
        "outputs": [],
    }
