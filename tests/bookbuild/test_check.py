"""Every fault that `book check` must name, made on purpose in a tiny book that has none."""

from __future__ import annotations

import copy

import pytest
from nbformat.v4 import new_notebook

from bookbuild.check import check
from bookbuild.notebooks import BookError, clean, write
from bookbuild.sync import sync


def cell(nb, cell_id):
    return next(c for c in nb.cells if c.id == cell_id)


@pytest.fixture
def faults(book, monkeypatch):
    """The problems of the chapters, without those of the generated pages."""
    return lambda: check(book, book.chapters)


def only(problems, *parts):
    assert len(problems) == 1, problems
    for part in parts:
        assert part in problems[0]


def test_the_tiny_book_has_no_fault(faults):
    assert faults() == []


def test_a_number_changed_in_one_language(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").source = "# add\na = 1 + 2\nassert a == 2\na"

    edit("zh", "adding", change)
    found = faults()
    assert any(p.startswith("zh/adding::adding-numbers: code differs") for p in found), found
    assert any("changed since it was run" in p for p in found)


def test_a_comment_may_differ(faults, edit, book):
    def change(nb):
        cell(nb, "adding-numbers").source = "# 相加\na = 1 + 1\nassert a == 2\na"

    edit("zh", "adding", change)
    assert faults() == []
    sync(book, echo=lambda line: None)
    assert "相加" in book.path("zh", "adding").read_text("utf8")


def test_a_swapped_cell(faults, edit):
    def change(nb):
        nb.cells[-1], nb.cells[-2] = nb.cells[-2], nb.cells[-1]

    edit("zh", "adding", change)
    only(faults(), "zh/adding: cells or their order differ", "adding-recap where English has")


def test_a_cell_missing_at_the_end(faults, edit):
    edit("zh", "adding", lambda nb: nb.cells.pop())
    only(faults(), "zh/adding", "None where English has adding-recap")


def test_a_stale_translation(faults, edit, book):
    def change(nb):
        cell(nb, "adding-recap").source = "## Recap\n\nThe sum is returned."

    edit("en", "adding", change)
    only(faults(), "zh/adding::adding-recap: the English changed")
    assert sync(book, echo=lambda line: None) == ["adding::adding-recap: stale"]
    only(faults(), "zh/adding::adding-recap: the English changed")


def test_a_missing_translation(faults, edit, book):

    def change(nb):
        extra = copy.deepcopy(cell(nb, "adding-recap"))
        extra.id, extra.source = "adding-more", "Some more words."
        nb.cells.append(extra)

    edit("en", "adding", change)
    sync(book, echo=lambda line: None)
    only(faults(), "zh/adding::adding-more: not translated")


def test_a_cause_not_translated(faults, edit):
    def change(nb):
        cell(nb, "failing-error").metadata.cause = "The divisor is zero."

    edit("zh", "failing", change)
    only(faults(), "zh/failing::failing-error: not translated")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_an_unrun_cell(faults, edit, lang):
    def change(nb):
        cell(nb, "adding-numbers").execution_count = None

    edit(lang, "adding", change)
    assert any(f"{lang}/adding::adding-numbers: never run" in p for p in faults())


def test_a_new_cell_with_a_count_but_no_run(faults, edit):
    def change(nb):
        extra = copy.deepcopy(cell(nb, "adding-numbers"))
        extra.id, extra.execution_count = "adding-forged", 3
        nb.cells.append(extra)

    edit("en", "adding", change)
    assert any("en/adding::adding-forged: never run" in p for p in faults())


def test_counts_out_of_order(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").execution_count = 7

    edit("en", "adding", change)
    assert any("adding-numbers: execution count 7, expected 2" in p for p in faults())


def test_an_output_edited_by_hand_in_both_languages(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").outputs[0].data["text/plain"] = "3"

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    found = faults()
    assert [p.partition(": ")[0] for p in found] == [
        "en/adding::adding-numbers",
        "zh/adding::adding-numbers",
    ]
    assert all("output differs from what the run stored" in p for p in found)


def test_an_output_of_a_new_run_not_carried_over(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").outputs[0].data["text/plain"] = "3"
        clean(nb)

    edit("en", "adding", change)
    only(faults(), "zh/adding::adding-numbers: output differs from English; run `book sync`")


def test_a_missing_claim(faults, edit):
    def change(nb):
        del cell(nb, "adding-numbers").metadata["claims"]

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    only(faults(), "claims.yml::A-1: no cell of adding proves it")


def test_a_claim_on_a_cell_that_proves_nothing(faults, edit):
    def change(nb):
        target = cell(nb, "adding-numbers")
        target.source, target.outputs = "a = 1 + 1", []
        clean(nb)

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    only(faults(), "claims.yml::A-1: no cell of adding proves it")


def test_a_claim_with_a_reason_needs_no_cell(faults, edit, book):
    def change(nb):
        del cell(nb, "adding-numbers").metadata["claims"]

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    path = book.root / "book/claims.yml"
    path.write_text(path.read_text("utf8") + "    proof: {en: A slip., zh: 笔误。}\n", "utf8")
    assert faults() == []


def test_a_claim_that_nobody_made(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").metadata["claims"] = ["A-1", "A-9"]

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    only(faults(), "en/adding: proves A-9")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("adding:\n  - id: A-1\n    note: x\n", "lacks 'verdict'"),
        ("adding: [", "claims.yml:"),
    ],
)
def test_a_broken_claims_file(faults, book, row, what):
    (book.root / "book/claims.yml").write_text(row)
    assert any(what in p for p in faults())


def test_tags_that_differ(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").metadata["tags"] = ["cheat"]

    edit("zh", "adding", change)
    only(faults(), "zh/adding::adding-numbers: tags or claims differ from English")


def test_a_claim_twice_and_a_claim_of_no_chapter(faults, book):
    path = book.root / "book/claims.yml"
    rows = path.read_text("utf8")
    twin = rows.partition("\n")[2]
    path.write_text(rows + twin + rows.replace("adding:", "gone:").replace("A-1", "A-2"), "utf8")
    found = faults()
    assert "claims.yml::A-1: 2 rows have this id" in found
    assert "claims.yml::A-2: no chapter gone" in found


def test_an_unknown_verdict(faults, book):
    path = book.root / "book/claims.yml"
    path.write_text(path.read_text("utf8").replace("holds", "maybe"), "utf8")
    assert any("verdict 'maybe' is none of" in p for p in faults())


@pytest.mark.parametrize(
    "text", ["", "{", "{}", '{"cells": 3, "nbformat": 4}', "[]", "not json at all"]
)
def test_a_broken_notebook_file(faults, book, text):
    book.path("en", "adding").write_text(text)
    assert any(p.startswith("en/adding.ipynb: not a notebook") for p in faults()), faults()


def test_a_missing_notebook(faults, book):
    book.path("zh", "adding").unlink()
    only(faults(), "zh/adding.ipynb: there is no such notebook")


def test_a_stray_notebook(book):
    write(clean(new_notebook()), book.path("en", "stray"))
    assert "en/stray.ipynb: not in _toc.yml" in check(book)


def test_the_setup_cell(faults, edit):
    def change(nb):
        cell(nb, "setup").source += "\nimport torch"
        clean(nb)

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    found = faults()
    assert [p.partition(" ")[0] for p in found] == ["en/adding::setup:", "zh/adding::setup:"]


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("/home/someone/book/x.py", "a path of one machine"),
        ("<script src='https://cdn.example/x.js'></script>", "loads from another host"),
    ],
)
def test_what_an_output_must_not_hold(faults, edit, output, what):
    def change(nb):
        cell(nb, "adding-numbers").outputs[0].data["text/html"] = output
        clean(nb)

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    found = faults()
    assert len(found) == 2 and all(what in p for p in found), found


def test_an_exception_without_tag_or_cause(faults, edit):
    def change(nb):
        cell(nb, "failing-error").metadata = {}

    for lang in ("en", "zh"):
        edit(lang, "failing", change)
    found = faults()
    assert any("no tag raises-exception" in p for p in found)
    assert any("does not say why" in p for p in found)


def test_a_figure_without_text(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").outputs[0].data["image/png"] = "iVBORw0KGgo="
        clean(nb)

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    assert all("give it an alt" in p for p in faults()) and faults()


@pytest.mark.parametrize("tag", ["exercise", "solution"])
def test_exercises_show_their_verdict(faults, edit, tag):
    def change(nb):
        cell(nb, "adding-numbers").metadata["tags"] = [tag]

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    assert len(faults()) == 2 and all(f"tagged {tag}" in p for p in faults())


def test_long_lines_and_large_files(faults, edit):
    def change(nb):
        cell(nb, "adding-numbers").source = "a = 2\nassert a == 2  # " + "x" * 80
        cell(nb, "adding-numbers").outputs[0].data["text/plain"] = "2" * 600_000
        clean(nb)

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    found = faults()
    assert sum("columns, at most 79" in p for p in found) == 2
    assert sum("bytes, at most 500000" in p for p in found) == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("# 两数相加\n\n加法需要 $a - b$。", "not the same in both languages: '$a - b$'"),
        ("## 两数相加\n\n加法需要 $a + b$。", "not the same in both languages: '##'"),
        ("# 两数相加\n\n加法需要 $a + b$.", "translation changed; run `book sync`"),
        ("# 两数相加,加法\n\n您需要 $a + b$。", "write 你, not 您"),
    ],
)
def test_what_a_translation_must_keep(faults, edit, text, what):
    def change(nb):
        cell(nb, "adding-title").source = text

    edit("zh", "adding", change)
    assert any(p.startswith("zh/adding::adding-title") and what in p for p in faults()), faults()


def test_two_cells_with_one_id(faults, edit, book):
    text = book.path("en", "adding").read_text("utf8")
    book.path("en", "adding").write_text(text.replace("adding-recap", "adding-title"), "utf8")
    assert any("adding-title" in p for p in faults())


def test_an_unknown_chapter_suggests_the_nearest(book):
    with pytest.raises(BookError, match="no chapter 'ading': did you mean adding"):
        check(book, ["ading"])
