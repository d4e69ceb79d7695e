"""Test the minutes and tasks of the chapters, and the errors of the page for teachers."""

from __future__ import annotations

import re

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from bookbuild.pages import course
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.words import words

NEED = {
    "en": "> **You need** PyTorch 2 or newer, no GPU, 25 minutes; the last section needs Linux.",
    "zh": "> **你需要** PyTorch 2 或更新的版本，不需要 GPU，25 分钟；最后一节需要 Linux。",
}


@pytest.fixture
def tiny(book) -> Book:
    """Return the small book with the required minutes in each chapter."""
    for name in book.chapters:
        for lang, line in NEED.items():
            file = book.notebook(lang, name)
            nb = nbformat.read(file, 4)
            nb.cells[0].source += f"\n\n{line}"
            nbformat.write(nb, file)
    return book


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_minutes_and_requirements_are_read_from_the_chapter(tiny, lang):
    lesson = course.lessons(tiny, lang)["adding"]
    assert lesson.minutes == 25 and lesson.tasks.exercises == 1
    assert "25" not in lesson.need and "Linux" in lesson.need and "**" not in lesson.need
    assert lesson.need.startswith("PyTorch 2") and lesson.need.count("GPU") == 1


def test_earlier_chapters_are_those_linked_in_the_prose(tiny):
    path = tiny.text("failing")
    link = "See [the sum](adding.ipynb#recap) and [itself](failing.ipynb).\n\n"
    path.write_text(path.read_text("utf8").replace("This always fails.", link, 1), "utf8")
    lessons = course.lessons(tiny, "en")
    assert lessons["failing"].earlier == ["adding"] and lessons["adding"].earlier == []


def test_chapter_without_minutes_raises(book):
    with pytest.raises(BookError, match=r"book/text/adding\.md: expected a line \*\*You need\*\*"):
        course.lessons(book, "en")


def test_tasks_count_questions_explorers_and_exercises(book):
    explorer = new_output("display_data", {"text/html": "<copy-explorer data='1'></copy-explorer>"})
    cells = [
        new_markdown_cell("<copy-explorer> in prose is none"),
        new_code_cell("a", metadata={"predict": "?"}),
        new_code_cell("b", outputs=[explorer, explorer]),  # one task per cell
        new_code_cell("c", metadata={"tags": ["exercise"]}),
        new_code_cell("d", metadata={"tags": ["solution"], "predict": "?"}),
    ]
    nbformat.write(new_notebook(cells=cells), book.notebook("en", "adding"))
    assert course.tasks(book, "adding") == course.Tasks(questions=2, explorers=1, exercises=1)


@given(st.integers(0, 5000))
def test_duration_equals_its_hours_and_minutes(minutes):
    for lang in ("en", "zh"):
        w = words(lang, "course")
        hours, rest = (w[k].format(r"(\d+)") for k in ("hours", "minutes"))
        found = re.fullmatch(f"(?:{hours})? ?(?:{rest})?", course.duration(minutes, lang))
        assert 60 * int(found[1] or 0) + int(found[2] or 0) == minutes
        assert int(found[2] or 0) < 60


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ("", "expected a list of chapters"),
        ("meta: {new_to_pytorch: []}\n", "expected a list of chapters"),
        ("meta: {new_to_pytorch: adding}\n", "expected a list of chapters"),
        ("meta: {new_to_pytorch: [adding, errors]}\n", "no chapter 'errors'"),
    ],
)
def test_invalid_first_path_raises(book, meta, message):
    toc = book.root / "_toc.yml"
    toc.write_text(toc.read_text("utf8") + meta, "utf8")
    with pytest.raises(BookError, match=f"_toc.yml: meta: new_to_pytorch: {message}"):
        course.first_path(Book(book.root))


@pytest.mark.parametrize("cff", [None, "title: [", "title: Tiny\nversion: 1\n"])
def test_citation_without_a_field_raises(book, cff):
    if cff is not None:
        (book.root / "CITATION.cff").write_text(cff, "utf8")
    with pytest.raises(BookError, match=r"CITATION\.cff: expected title, version and authors"):
        course.citation(book)
