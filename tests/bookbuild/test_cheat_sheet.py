"""Test the cheat sheet: its lines can be pasted, and each chapter's part runs on its own."""

from __future__ import annotations

import ast
import re
import unicodedata
from pathlib import Path

import pytest

from bookbuild.notebooks.cells import code_cells, tags, tokens
from bookbuild.notebooks.files import read
from bookbuild.source.checkout import Book
from bookbuild.source.headings import headings
from helpers.names import undefined_names

BOOK = Book(Path(__file__).resolve().parents[2])
COLUMNS = 62  # characters; two columns of this width fit on A4


@pytest.fixture(scope="module", params=["en", "zh"])
def sheet(request):
    return read(BOOK.notebook(request.param, "cheat_sheet"))


def parts(nb):
    """Return the code cells of each chapter, keyed by the file that its heading links to."""
    found = {}
    for cell in nb.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            (name,) = re.findall(r"\]\((\w+)\.ipynb\)", cell.source)
            found[name] = []
        elif cell.cell_type == "code" and found:
            found[name].append(cell)
    return found


def shown(cells):
    return [cell for cell in cells if "remove-cell" not in tags(cell)]


def columns(line):
    """Return the width of a line in columns; a Chinese character counts as two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def names_of_helpers(cells):
    """Return the names that cells import from `helpers`."""
    return {
        alias.asname or alias.name
        for cell in cells
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if f"{getattr(node, 'module', '')}.{alias.name}".lstrip(".").startswith("helpers")
    }


def test_every_chapter_has_a_section_in_order(sheet):
    found = parts(sheet)
    assert list(found) == BOOK.chapters
    assert [name for name, cells in found.items() if len(shown(cells)) < 3] == []
    titles = [h.plain for c in sheet.cells if c.cell_type == "markdown" for h in headings(c.source)]
    assert all(titles) and len(titles) == 1 + len(BOOK.chapters)


def test_shown_lines_contain_no_assert_and_no_helper(sheet):
    for name, cells in parts(sheet).items():
        ours = names_of_helpers(cells) | {"helpers", "assert", "raises"}
        for cell in shown(cells):
            assert not ours & set(tokens(cell.source)), f"{name}: {cell.id}"


def test_shown_lines_fit_the_column_and_print_nothing(sheet):
    for cell in shown(code_cells(sheet)):
        wide = [line for line in cell.source.splitlines() if columns(line) > COLUMNS]
        assert not wide and not cell.outputs, cell.id


def test_proof_follows_every_shown_cell(sheet):
    for name, cells in parts(sheet).items():
        for cell, proof in zip(cells, [*cells[1:], None], strict=True):
            if "remove-cell" not in tags(cell):
                assert proof and "remove-cell" in tags(proof), f"{name}: {cell.id}"
                assert {"assert", "raises"} & set(tokens(proof.source)), f"{name}: {cell.id}"


def test_chapters_use_no_names_of_other_chapters(sheet):
    for name, cells in parts(sheet).items():
        assert undefined_names("\n".join(cell.source for cell in cells)) == [], name
