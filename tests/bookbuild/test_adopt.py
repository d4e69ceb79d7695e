"""Test `book adopt`: edits in a notebook are copied into the text, or nothing is written."""

from __future__ import annotations

import copy

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell

from bookbuild.cli import main
from bookbuild.commands.adopt import adopt
from bookbuild.commands.check import check, outdated
from bookbuild.commands.update import update
from bookbuild.notebooks.conversion import SOLUTION, WAITING
from bookbuild.notebooks.files import read, write
from bookbuild.source.checkout import BookError
from bookbuild.source.texts import load


@pytest.fixture
def call(book, monkeypatch, quick):
    monkeypatch.chdir(book.root)
    return lambda *args: CliRunner().invoke(main, args)


def cell_of(text, name):
    return next(c for c in text.cells if c.id == name)


@pytest.mark.parametrize(
    ("lang", "name", "change", "lines"),
    [
        ("en", "adding-recap", {"source": "## Recap\n\nAll.\n"}, {"-The sum is printed.", "+All."}),
        ("zh", "adding-recap", {"source": "## 小结\n\n全部。"}, {"-和会打印出来。", "+全部。"}),
        ("zh", "adding-numbers", {"source": "# 相加\na = 1 + 1\nassert a == 2\na"},
         {"-把两个数相加", "+相加"}),
        ("en", "adding-numbers", {"source": "# sum\na = 1 + 1\nassert a == 2\na"},
         {"-# add both numbers", "+# sum"}),
        ("en", "adding-numbers", {"source": "# add both numbers\na = 2\nassert a == 2\na\n\n"},
         {"-a = 1 + 1", "+a = 2"}),
        ("en", "adding-numbers", {"metadata": {"tags": ["right", "hide-cell"], "claims": ["A-1"]}},
         {"-%%% code adding-numbers claims=A-1",
          "+%%% code adding-numbers tags=right,hide-cell claims=A-1"}),
        ("en", "adding-numbers", {"metadata": {}},
         {"-%%% code adding-numbers claims=A-1", "+%%% code adding-numbers"}),
        ("en", "adding-numbers", {"metadata": {"claims": ["A-1"], "cause": "None."}},
         {"+%%% cause", "+None."}),
        ("en", "adding-numbers", {"metadata": {"claims": ["A-1"],
         "mystnb": {"image": {"alt": "A line."}}}}, {"+%%% alt", "+A line."}),
        ("en", "failing-error", {"metadata": {"tags": ["raises-exception"], "cause": "Why."}},
         {"-The divisor is zero.", "+Why."}),
        ("zh", "failing-error", {"metadata": {"tags": ["raises-exception"], "cause": "除以零。"}},
         {"-除数为零。", "+除以零。"}),
    ],
)  # fmt: skip
def test_edit_changes_only_its_own_lines(book, edit, call, cell, lang, name, change, lines):
    chapter = name.partition("-")[0]
    before = book.text(chapter).read_text("utf8")
    edit(lang, chapter, lambda nb: cell(nb, name).update(copy.deepcopy(change)))
    done = call("adopt", chapter)
    assert f"book/text/{chapter}.md: copied {lang}/{chapter}::{name}" in done.output
    after = book.text(chapter).read_text("utf8")
    old, new = before.split("\n"), after.split("\n")
    diff = {f"-{x}" for x in old if x not in new} | {f"+{x}" for x in new if x not in old}
    assert diff == lines
    source = change.get("source", "").strip("\n")
    assert not source or cell(read(book.notebook(lang, chapter)), name).source.startswith(source)
    assert [p for p in check(book) if "claims.yml" not in p] == []
    english = lang == "en" and ("All." in source or "# sum" in source or "Why." in str(change))
    assert len(outdated(book)) == (english or "None." in str(change) or "A line." in str(change))


def test_adopt_keeps_new_cells_in_place(book, edit, call):
    def add(nb):
        nb.cells.insert(0, new_markdown_cell("Before all.", id="new-0"))
        nb.cells[3:3] = [
            new_code_cell("7 * 6  # known", id="new-1", metadata={"tags": ["right"]}),
            new_markdown_cell("One more\n\nword.", id="new-2"),
        ]
        nb.cells.append(new_code_cell("print(3)", id="new-3"))

    edit("en", "adding", add)
    expected = [c.id for c in read(book.notebook("en", "adding")).cells]
    done = call("adopt", "adding")
    assert done.exit_code == 0, done.output
    written = [c.id for c in load(book, "adding").cells]
    assert written == [name for name in expected if not name.endswith(SOLUTION)]
    assert [c.id for c in read(book.notebook("zh", "adding")).cells] == expected
    assert cell_of(load(book, "adding"), "new-1").metadata == {"tags": ["right"]}
    assert [piece.cell for piece in outdated(book)] == ["new-0", "new-2"]


def test_adopt_takes_edits_of_both_languages(book, edit, call, cell):
    edit("en", "adding", lambda nb: cell(nb, "adding-recap").update(source="## Recap\n\nAll."))
    edit("zh", "adding", lambda nb: cell(nb, "adding-recap").update(source="## 小结\n\n全部。"))
    edit("zh", "adding", lambda nb: cell(nb, "adding-title").update(source="# 相加\n\n$a + b$。"))
    done = call("adopt", "adding")
    assert done.exit_code == 0, done.output
    assert [piece.cell for piece in outdated(book)] == ["adding-recap"]
    words = cell_of(load(book, "adding"), "adding-recap").words
    assert (words.en, words.zh) == ("## Recap\n\nAll.", "## 小结\n\n全部。")


def test_adopt_drops_the_mark_of_waiting_translations(book, mend, edit, call, cell):
    mend("adding", "The sum is printed.", "The sum is shown.")
    mend("adding", "%%% zh\n# 两数相加\n\n加法需要 $a + b$。\n", "")
    assert call("update").exit_code == 0

    def translate(nb):
        cell(nb, "adding-recap").source = f"## 小结\n\n和会显示。\n\n{WAITING}"
        cell(nb, "adding-title").source = "# 相加\n\n要 $a + b$。"

    edit("zh", "adding", translate)
    assert call("adopt", "adding").exit_code == 0
    text = load(book, "adding")
    assert cell_of(text, "adding-recap").words.zh == "## 小结\n\n和会显示。"
    assert cell_of(text, "adding-title").words.zh == "# 相加\n\n要 $a + b$。"
    assert [piece.cell for piece in outdated(book)] == ["adding-recap"]


def test_adopt_keeps_link_and_version_placeholders(book, mend, edit, call, cell):
    (book.root / "requirements.txt").write_text("torch==2.14.1\n")
    mend("adding", "Addition needs", "[](failing.ipynb) in PyTorch {{ oldest_pytorch }}.\nIt needs")
    mend("adding", "加法需要", "PyTorch {{ oldest_pytorch }} 里的[](failing.ipynb)。\n需要")
    assert call("update", "--accept", "adding").exit_code == 0
    shown = cell(read(book.notebook("zh", "adding")), "adding-title").source
    assert "PyTorch 2.14 里的[除以零](failing.ipynb)。" in shown
    for lang, old, new in (("en", "It needs", "You need"), ("zh", "需要", "只需")):
        edit(
            lang, "adding",
            lambda nb, o=old, n=new: cell(nb, "adding-title").update(
                source=cell(nb, "adding-title").source.replace(o, n)
            ),
        )  # fmt: skip
    assert call("adopt", "adding").exit_code == 0
    words = cell_of(load(book, "adding"), "adding-title").words
    assert "[](failing.ipynb) in PyTorch {{ oldest_pytorch }}.\nYou need" in words.en
    assert "PyTorch {{ oldest_pytorch }} 里的[](failing.ipynb)。\n只需" in words.zh


@pytest.mark.parametrize(
    ("lang", "change", "what"),
    [
        ("en", lambda nb: nb.cells.pop(2), "en/adding::adding-numbers: removed in the notebook"),
        ("zh", lambda nb: nb.cells.pop(), "zh/adding::adding-recap: removed in the notebook"),
        ("en", lambda nb: nb.cells.insert(2, nb.cells.pop(3)), ": moved in the notebook; move it"),
        ("en", lambda nb: nb.cells[1].update(source="x = 1"), "en/adding::setup: the setup cell"),
        ("zh", lambda nb: nb.cells[2].update(source="a = 3"), ": the code is changed in English"),
        ("zh", lambda nb: nb.cells[2].update(source="# x\n# y\na = 1 + 1\nassert a == 2\na"),
         "zh/adding::adding-numbers: comments are added or removed in English"),
        ("zh", lambda nb: nb.cells[2].metadata.update(tags=["right"]), ": tags and claims are ch"),
        ("zh", lambda nb: nb.cells[2].metadata.update(cause="无。"), "an cause is added or"),
        ("zh", lambda nb: nb.cells.append(new_markdown_cell("新", id="x")), ": a new cell is wr"),
        ("en", lambda nb: nb.cells.append(new_markdown_cell(" \n", id="x")), "en/adding::x: empty"),
        ("en", lambda nb: nb.cells[0].update(source=""), "en/adding::adding-title: empty"),
        ("en", lambda nb: nb.cells[0].update(source="# A\n%%% md x\nb"), "en/adding::adding-title"),
        ("en", lambda nb: nb.cells[0].update(source="%%% zh"), "adding"),
        ("en", lambda nb: nb.cells[2].update(source="a = (  # x"), "Python cannot read the code"),
        ("en", lambda nb: nb.cells[2].metadata.update(tags=["a b"]), "adding"),
        ("en", lambda nb: nb.cells[2].metadata.update(mystnb={"code": 1}), "adding-numbers"),
        ("en", lambda nb: nb.cells[2].metadata.update(cause=3), "adding"),
        ("en", lambda nb: nb.cells[2].metadata.update(mystnb={"image": 3}), "adding"),
        ("en", lambda nb: nb.cells[0].update(cell_type="raw"), "adding-title"),
        ("en", lambda nb: None, "adding: no cell was edited; `book update adding` makes its"),
    ],
)  # fmt: skip
def test_adopt_rejects_other_edits_and_writes_nothing(
    book, edit, call, tmp_path, lang, change, what
):
    edit(lang, "adding", change)
    before = {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()}
    done = call("adopt", "adding")
    assert done.exit_code == 1 and what in done.stderr and done.stderr.count("\n") == 1
    assert isinstance(done.exception, SystemExit)
    assert {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()} == before


def test_adopt_rejects_a_cell_that_also_changed_in_the_text(book, mend, edit, call, cell):
    mend("adding", "The sum is printed.", "The sum is shown.")
    edit("en", "adding", lambda nb: cell(nb, "adding-recap").update(source="## Recap\n\nAll."))
    done = call("adopt", "adding")
    assert "en/adding::adding-recap: the text changed, too; edit it there" in done.stderr
    assert call("update").exit_code == 1


def test_edit_that_matches_the_text_is_ignored(book, mend, edit, call, cell):
    mend("adding", "The sum is printed.", "All.")
    edit("en", "adding", lambda nb: cell(nb, "adding-recap").update(source="## Recap\n\nAll."))
    assert call("update").exit_code == 0
    assert check(book) == []


PROSE = st.text(st.sampled_from("ab #`$%\n*[]()中，。{}\t\"'\\"), min_size=1, max_size=60)


@given(prose=PROSE, chinese=PROSE, code=PROSE, cause=PROSE)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow,
          HealthCheck.function_scoped_fixture])  # fmt: skip
def test_adopt_takes_any_edit_exactly_or_rejects_it(book, prose, chinese, code, cause):
    kept = {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()}
    try:
        for lang, words in (("en", prose), ("zh", chinese)):
            nb = read(book.notebook(lang, "adding"))
            cells = {c.id: c for c in nb.cells}
            cells["adding-recap"].source = words
            if lang == "en":
                cells["adding-numbers"].source = code
                cells["adding-numbers"].metadata.cause = cause
            write(nb, book.notebook(lang, "adding"))
        before = book.text("adding").read_bytes()
        try:
            adopt(book, "adding")
        except BookError as error:
            assert "\n" not in str(error)
            assert book.text("adding").read_bytes() == before
        else:
            text = load(book, "adding")
            recap, numbers = cell_of(text, "adding-recap").words, cell_of(text, "adding-numbers")
            assert (recap.en, recap.zh) == (prose.strip("\n"), chinese.strip("\n"))
            assert (numbers.source, numbers.cause.en) == (code.strip("\n"), cause)
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


def test_adopt_rejects_unknown_chapter_and_missing_notebook(book):
    with pytest.raises(BookError, match="no chapter 'addin': did you mean adding"):
        adopt(book, "addin")
    book.notebook("en", "adding").unlink()
    with pytest.raises(BookError, match="en/adding.ipynb: there is no such file"):
        adopt(book, "adding")
    assert update(book, ["failing"], echo=lambda line: None) == {}
