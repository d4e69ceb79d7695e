"""Test the language of figures in stored outputs."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from nbformat.v4 import new_output

from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.figures import in_language, is_drawing
from bookbuild.notebooks.files import read
from bookbuild.source.checkout import LANGUAGES, Book
from helpers import figures

BOOK = Book(Path(__file__).parents[2])


def drawing(lang="en"):
    html = figures.figure()[0]._repr_html_()
    html = re.sub(' lang="[a-z]+">', f' lang="{lang}">', html, count=1)
    return new_output("execute_result", {"text/html": html, "text/plain": "<figure: >"})


def test_is_drawing_detects_only_drawings():
    assert is_drawing(drawing())
    for data in ({}, {"text/plain": "<figure: >"}, {"text/html": "<p></p>"}):
        assert not is_drawing(new_output("display_data", data))
    assert not is_drawing(new_output("stream", text="<figure"))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_in_language_sets_the_language_of_drawings(lang):
    other = new_output("display_data", {"text/html": '<p lang="en">x</p>'})
    before = [drawing("zh"), other, drawing("en")]
    result = in_language(before, lang)
    assert result == [drawing(lang), other, drawing(lang)]
    assert before == [drawing("zh"), other, drawing("en")]


# Labels that are equal in both languages: numbers, code, words with a capital or a digit.
NAME = re.compile(
    r"""[\d\W_]+|-?\d*e-?\d+
    |.*[_=(\[].*|\w+\.\w+
    |\w*[A-Z0-9]\w*(?:\W+\w*[A-Z0-9]\w*)*
    |[a-z]|[\d.]+\ x\ \+\ [\d.]+\ x′|x′|sigmoid,\ BCELoss|MiB
    |optimizer|scheduler|sampler|rng|scaler            # keys of a checkpoint
    |(?:zero|backward|step)(?:\ (?:zero|backward|step))+  # methods""",
    re.VERBOSE,
)


def test_every_figure_label_is_translated_or_a_name():
    found, lost = 0, set()
    for name in BOOK.chapters:
        for cell in code_cells(read(BOOK.notebook("zh", name))):
            for output in filter(is_drawing, cell.outputs):
                html = output.data["text/html"]
                found += 1
                for written, label in re.findall("<text([^>]*)>([^<]*)</text>", html):
                    code = "lang=" in written or "monospace" in written
                    if not code and not NAME.fullmatch(unescape(label)):
                        lost.add(f"{name}::{cell.id}: {label}")
    assert not lost
    assert found >= 35


def test_figures_contain_no_pixels():
    for name in BOOK.chapters:
        for cell in code_cells(read(BOOK.notebook("en", name))):
            pixels = [o for o in cell.outputs if "image/png" in o.get("data", {})]
            assert not pixels or "Image(" in cell.source, f"{name}::{cell.id}"
