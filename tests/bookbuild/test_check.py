"""Test that `book check` reports each fault, planted in a small correct book."""

from __future__ import annotations

import copy
import json
import re

import pytest
from nbformat.v4 import new_notebook

from bookbuild.commands.check import check
from bookbuild.commands.update import update
from bookbuild.notebooks.cleaning import clean
from bookbuild.notebooks.comparison import stamp
from bookbuild.notebooks.files import read, write
from bookbuild.source.checkout import BookError

ADOPT = "edited by hand; `book adopt adding` copies the edit into book/text/adding.md, "


@pytest.fixture
def faults(book):
    """Return a function that lists the problems of the chapters, without the generated pages."""
    return lambda: check(book, book.chapters)


def only(problems, *parts):
    assert len(problems) == 1, problems
    for part in parts:
        assert part in problems[0]


def starts(problems, *beginnings):
    """Assert that the problems begin with the given texts, in this order."""
    assert len(problems) == len(beginnings), problems
    for problem, beginning in zip(problems, beginnings, strict=True):
        assert problem.startswith(beginning)


def test_tiny_book_passes_the_check(book):
    assert check(book) == []
    assert check(book, release=True) == []


# ---------------------------------------------------------------- notebooks edited by hand


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_code_edited_in_notebook_is_reported(faults, edit, cell, lang):
    def change(nb):
        cell(nb, "adding-numbers").source = "# add\na = 1 + 2\nassert a == 2\na"

    edit(lang, "adding", change)
    starts(
        faults(),
        f"{lang}/adding::adding-numbers: {ADOPT}`git checkout book/{lang}/adding.ipynb` undoes it",
    )


def test_same_edit_in_text_and_notebook_requires_a_run(book, mend, edit, cell, quick):
    """Accept code that equals the text, but report that its output is stale."""
    mend("adding", "a = 1 + 1\nassert a == 2\n", "a = 2 + 2\n")
    source = "# add both numbers\na = 2 + 2\na"
    edit("en", "adding", lambda nb: cell(nb, "adding-numbers").update(source=source))
    assert any(
        p == "en/adding: must run: adding-numbers was edited in the notebook; "
        "run `book update adding`"
        for p in check(book)
    )
    assert update(book, echo=lambda line: None) == {} and quick == ["book/text/adding.md"]
    outputs = cell(read(book.notebook("en", "adding")), "adding-numbers").outputs
    assert outputs[0].data["text/plain"] == "4"


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["adding-title"].update(source="# Other words"),
        lambda c: c["adding-numbers"].update(source="# x\na = 1 + 1\nassert a == 2\na"),
        lambda c: c["adding-numbers"].metadata.update(tags=["right"]),
        lambda c: c["adding-numbers"].metadata.update(claims=["A-1", "A-2"]),
        lambda c: c["adding-numbers"].metadata.pop("claims"),
        lambda c: c["adding-numbers"].metadata.update(cause="None."),
        lambda c: c["adding-numbers"].metadata.update(mystnb={"image": {"alt": "None."}}),
        lambda c: c["setup"].update(source=c["setup"].source + "\nimport torch"),
    ],
)
def test_cell_edited_in_notebook_is_reported(faults, edit, lang, change):
    edit(lang, "adding", lambda nb: change({c.id: c for c in nb.cells}))
    assert any(p.startswith(f"{lang}/adding::") and ADOPT in p for p in faults()), faults()


def test_cell_with_forged_stamp_differs_from_text(faults, forge, cell):
    forge("adding", lambda nb: cell(nb, "adding-title").update(source="# Other\n\n$a + b$"))
    starts(
        faults(),
        "en/adding::adding-title: not what the text makes of it; run `book update adding`",
        "zh/adding::adding-title: not what the text makes of it; run `book update adding`",
    )


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_moved_removed_or_added_cells_are_reported(faults, edit, book, lang):
    before = book.notebook(lang, "adding").read_bytes()

    def swap(nb):
        nb.cells[-1], nb.cells[-2] = nb.cells[-2], nb.cells[-1]

    def add(nb):
        nb.cells.append(copy.deepcopy(nb.cells[2]))
        nb.cells[-1].update(id="adding-forged", execution_count=5)

    removed = "removed by hand; remove it in book/text/adding.md"
    for change, message in (
        (swap, ADOPT),
        (add, ADOPT),
        (lambda nb: nb.cells.pop(), removed),
        (lambda nb: nb.cells.pop(0), removed),
    ):
        edit(lang, "adding", change)
        assert any(p.startswith(f"{lang}/adding::") and message in p for p in faults()), faults()
        book.notebook(lang, "adding").write_bytes(before)
    assert faults() == []


def test_edited_summary_is_reported(faults, edit):
    edit("zh", "adding", lambda nb: nb.metadata.update(summary="别的"))
    only(faults(), "zh/adding::summary: not what the text makes of it")


def test_edited_stamps_are_reported(faults, edit):
    edit("en", "adding", lambda nb: nb.metadata.made.update(helpers="0123"))
    only(faults(), "en/adding: must run: its helpers changed; run `book update adding`")
    edit("en", "adding", lambda nb: nb.metadata.pop("made"))
    assert any(p.startswith("en/adding") for p in faults())


def test_edited_translation_stamps_are_reported(faults, book):
    path = book.root / "book/translated.json"
    path.write_text(path.read_text().replace('"adding-title"', '"adding-gone"'))
    only(faults(), "book/translated.json::adding: not what the text makes of it; run `book update")


def test_duplicate_query_is_reported(book, mend):
    mend("adding", "加法需要 $a + b$。\n", "加法需要 $a + b$。\n%%% queries\nplus sign\nsum\n")
    mend("failing", "这总会失败。\n", "这总会失败。\n%%% queries\nzero\nSum\n")
    only(
        [p for p in check(book) if "query" in p],
        "book/text/failing.md:6: failing-title: the query 'Sum' leads to adding-title already",
    )


def test_text_newer_than_notebooks_is_reported(faults, mend):
    mend("adding", "The sum is printed.", "The sum is shown.")
    starts(
        faults(),
        "en/adding::adding-recap: not what the text makes of it; run `book update adding`",
        "zh/adding::adding-recap: not what the text makes of it; run `book update adding`",
    )


def test_save_by_jupyter_is_ignored(book, edit):
    def save(nb):
        nb.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
        nb.metadata.language_info = {"name": "python", "version": "3.13.1", "mimetype": "text/x"}
        nb.metadata.widgets, nb.nbformat_minor = {}, 5
        for number, cell in enumerate(nb.cells):
            cell.metadata.update(collapsed=False, scrolled=True, trusted=True, editable=True)
            cell.metadata.update(slideshow={"slide_type": ""}, execution={"iopub": str(number)})
            if cell.metadata.get("tags") is None:
                cell.metadata.tags = []

    for lang in ("en", "zh"):
        edit(lang, "adding", save)
    assert check(book) == []


# ---------------------------------------------------------------- outputs


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_unrun_cell_is_reported(faults, edit, cell, lang):
    edit(lang, "adding", lambda nb: cell(nb, "adding-numbers").update(execution_count=None))
    assert any(f"{lang}/adding::adding-numbers: never run" in p for p in faults())


def test_unrun_cell_with_forged_stamp_is_reported(faults, forge, cell):
    forge("adding", lambda nb: cell(nb, "adding-numbers").update(execution_count=None, outputs=[]))
    assert any("en/adding::adding-numbers: never run" in p for p in faults())


def test_wrong_execution_count_is_reported(faults, forge, cell):
    forge("adding", lambda nb: cell(nb, "adding-numbers").update(execution_count=7))
    starts(
        faults(),
        "en/adding::adding-numbers: execution count 7, expected 2; run `book update`",
        "zh/adding::adding-numbers: execution count 7, expected 2; run `book update`",
    )


def test_output_edited_in_both_languages_is_reported(faults, edit, cell):
    def change(nb):
        cell(nb, "adding-numbers").outputs[0].data["text/plain"] = "3"

    for lang in ("en", "zh"):
        edit(lang, "adding", change)
    starts(
        faults(),
        "en/adding::adding-numbers: output differs from what the run stored; run `book update`",
        "zh/adding::adding-numbers: output differs from what the run stored; run `book update`",
    )


def test_output_that_differs_between_languages_is_reported(faults, edit, cell):
    def change(nb):
        cell(nb, "adding-numbers").outputs[0].data["text/plain"] = "3"
        stamp(nb, nb.metadata.made["helpers"])

    edit("en", "adding", change)
    only(
        faults(), "zh/adding::adding-numbers: output differs from English; run `book update adding`"
    )


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("/home/someone/book/x.py", "a path of one machine in the output: /home/someone"),
        ("C:\\Users\\someone\\x.py", "a path of one machine"),
        ("<script src='https://cdn.example/x.js'></script>", "loads from another host"),
        ("<img src='//cdn.example/x.png'>", "loads from another host"),
    ],
)
def test_local_paths_and_remote_loads_in_outputs_are_reported(faults, forge, cell, output, what):
    forge(
        "adding",
        lambda nb: cell(nb, "adding-numbers").outputs[0].data.update({"text/html": output}),
    )
    found = faults()
    assert len(found) == 2 and all(what in p for p in found), found


def test_exception_without_cause_is_reported(book, mend, quick):
    mend("failing", "%%% cause\nThe divisor is zero.\n%%% zh\n除数为零。\n", "")
    assert update(book, ["failing"], echo=lambda line: None) == {}
    starts(
        check(book, ["failing"]),
        "en/failing::failing-error: raises, but has no `%%% cause`",
        "zh/failing::failing-error: raises, but has no `%%% cause`",
    )


def test_exception_without_tag_is_reported(faults, forge, cell):
    forge("failing", lambda nb: cell(nb, "failing-error").metadata.update(tags=[]))
    assert sum("raises, but has no tag raises-exception" in p for p in faults()) == 2


@pytest.mark.parametrize(
    "data",
    [
        {"image/png": "iVBORw0KGgo="},
        {"text/html": '<figure class="book-figure" lang="en"></figure>'},
    ],
    ids=["pixels", "drawing"],
)
def test_figure_without_alt_text_is_reported(faults, forge, cell, data):
    forge("adding", lambda nb: cell(nb, "adding-numbers").outputs[0].data.update(data))
    found = faults()
    assert sum("add `%%% alt`" in p for p in found) == 2
    english = [p for p in found if "zh/adding::adding-numbers: output differs from English" in p]
    assert len(english) == len(found) - 2 == ("text/html" in data)  # drawings have a language


@pytest.mark.parametrize(("tag", "mark"), [("exercise", "✗"), ("solution", "✓")])
def test_exercise_output_without_verdict_is_reported(faults, forge, cell, tag, mark):
    def change(nb):
        cell(nb, f"adding-{tag}").outputs[0].text = "nothing"

    forge("adding", change)
    found = faults()
    assert len(found) == 2 and all(
        f"tagged {tag}, but its output has no {mark}" in p for p in found
    )


def test_long_lines_and_large_files_are_reported(faults, mend, forge, cell):
    mend("adding", "assert a == 2\n", "assert a == 2  # " + "x" * 80 + "\n")
    forge(
        "adding",
        lambda nb: cell(nb, "adding-numbers").outputs[0].data.update({"text/plain": "2" * 600_000}),
    )
    found = faults()
    line = "book/text/adding.md:17: adding-numbers: line of 97 columns, at most 79: assert a =="
    assert any(p.startswith(line) for p in found), found
    size = "bytes, at most 500000"
    assert [p[:10] for p in found if size in p] == ["en/adding:", "zh/adding:"]


# ---------------------------------------------------------------- claims


def test_claim_without_cell_is_reported(book, mend, quick):
    mend("adding", " claims=A-1", "")
    assert update(book, echo=lambda line: None) == {}
    only(check(book), "book/claims.yml:2: A-1: no cell of adding proves it")
    path = book.root / "book/claims.yml"
    path.write_text(path.read_text("utf8") + "    proof: {en: A slip., zh: 笔误。}\n", "utf8")
    assert check(book, ["adding"]) == []


@pytest.mark.parametrize(
    ("code", "proves"),
    [
        ("a = 1 + 1", False),
        ("a = 'assert'  # assert", False),
        ("a = 1 + 1\nassert a", True),
        ("a = 1 + 1\na", True),
    ],
)
def test_claim_requires_a_cell_that_asserts_or_outputs(book, mend, quick, code, proves):
    mend(
        "adding",
        "# add both numbers\na = 1 + 1\nassert a == 2\na\n```\n%%% zh\n把两个数相加",
        code + "\n```",
    )
    assert update(book, echo=lambda line: None) == {}
    found = check(book)
    assert found == ([] if proves else ["book/claims.yml:2: A-1: no cell of adding proves it"])


def test_unknown_claim_of_a_cell_is_reported(book, mend, quick):
    mend("adding", " claims=A-1", " claims=A-1,A-9")
    assert update(book, echo=lambda line: None) == {}
    only(check(book), "en/adding: proves A-9, which claims.yml does not have")


def test_duplicate_claim_and_claim_of_unknown_chapter_are_reported(faults, book):
    path = book.root / "book/claims.yml"
    rows = path.read_text("utf8")
    twin = rows.partition("\n")[2]
    path.write_text(rows + twin + rows.replace("adding:", "gone:").replace("A-1", "A-2"), "utf8")
    found = faults()
    assert "book/claims.yml:2: A-1: 2 claims have this id" in found
    assert "book/claims.yml:13: A-2: no chapter gone" in found


def test_chinese_of_claims_is_linted(faults, book):
    path = book.root / "book/claims.yml"
    path.write_text(path.read_text("utf8").replace("一加一等于二。", "您的1加1"), "utf8")
    assert "book/claims.yml:2: A-1: 您: write 你 (全书用“你”)" in faults()


# ---------------------------------------------------------------- files


def test_missing_notebook_is_reported(book):
    book.notebook("zh", "adding").unlink()
    only(check(book, ["adding"]), "zh/adding.ipynb: there is no such file")


def test_files_missing_from_toc_are_reported(book):
    for lang in ("en", "zh"):
        write(clean(new_notebook()), book.notebook(lang, "stray"))
    book.text("stray").write_text("")
    assert check(book) == [
        f"{file}: not in _toc.yml" for file in ("text/stray.md", "en/stray.ipynb", "zh/stray.ipynb")
    ]


def test_duplicate_cell_id_is_reported(faults, book):
    path = book.notebook("en", "adding")
    path.write_text(
        path.read_text("utf8").replace('"id": "adding-recap"', '"id": "adding-title"'), "utf8"
    )
    assert any("several cells have the id adding-title" in p for p in faults())


def test_unknown_chapter_raises_with_a_suggestion(book):
    with pytest.raises(BookError, match=r"no chapter 'ading': did you mean adding\?"):
        check(book, ["ading"])


# ---------------------------------------------------------------- required parts of a chapter


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("加法需要 $a + b$。", "加法需要 $a - b$。", "not the same in both languages: '$a - b$'"),
        ("# 两数相加", "## 两数相加", "not the same in both languages: '##'"),
        (
            "加法需要 $a + b$。",
            "[加](b.md)法 $a + b$。",
            "not the same in both languages: '](b.md)'",
        ),
        ("加法需要 $a + b$。", "加法需要。真的.", "half-width full stop"),
        ("加法需要", "您需要", "您: write 你"),
        ("关于加法。", "关于加法,您。", "summary: half-width punctuation"),
        ("把两个数相加", "把2个数相加", "adding-numbers/comments: no space between"),
        ("About adding.", "", ": no summary"),
        (
            "%%% code setup tags=setup,remove-cell\n",
            "",
            "the first code cell is not `%%% code setup`",
        ),
        ("## Recap", "## The end", ": the last section is not “Recap”"),
        ("## 小结", "## 总结", ": the last section is not “小结”"),
        ("和会打印出来。", "和会打印出来。\n\n## 再见", ": the last section is not “小结”"),
        ("adding-exercise tags=exercise", "adding-exercise", "book/text/adding.md: no exercise"),
        ("check_adding = ", "check_other = ", "that check_other rejects a wrong answer"),
    ],
)
def test_malformed_text_is_reported(faults, mend, book, old, new, what):
    if old.startswith("check_"):
        path = book.text("adding")
        path.write_text(path.read_text("utf8").replace("check_adding", "check_other"), "utf8")
    else:
        mend("adding", old, new)
    found = [p for p in faults() if what in p]
    assert found and all("adding" in p for p in found), faults()


def test_missing_module_and_missing_tests_are_reported(faults, book):
    (book.root / "src/helpers/adding.py").unlink()
    (book.root / "tests/helpers/test_failing.py").unlink()
    assert faults() == [
        "src/helpers/adding.py: there is no such module",
        "tests/helpers/test_failing.py: there is no such file",
    ]


@pytest.mark.parametrize(
    ("tests", "what"),
    [
        ("def test_it():\n    check_adding(1)\n", ["no test asserts anything", "that check_add"]),
        ("def test_it():\n    assert check_adding(1).passed\n", ["that check_adding rejects"]),
        ("check_adding\ndef test_it():\n    assert not x.passed\n", ["that check_adding"]),
        ("def test_it():\n    assert not check_adding_twice(1).passed\n", ["that check_adding"]),
        ("def test_it(\n", ["test_adding.py: '(' was never closed"]),
        ("def test_it():\n    assert 'no' in check_adding(1).message\n", []),
        ("@pytest.mark.parametrize('f', [check_adding])\ndef test_it(f):\n"
         "    assert f(1).passed == (1 is None)\n", []),
        ("def judge(v):\n    assert not v.passed\ndef test_it():\n    judge(check_adding)\n"
         "def test_that():\n    assert 1\n", []),
    ],
)  # fmt: skip
def test_tests_without_wrong_answers_are_reported(faults, book, tests, what):
    (book.root / "tests/helpers/test_adding.py").write_text(tests)
    found = faults()
    assert len(found) == len(what) and all(w in f for w, f in zip(what, found, strict=True)), found


def test_exercise_without_checker_is_reported(faults, book):
    path = book.text("adding")
    path.write_text(path.read_text("utf8").replace("check_adding", "adding"), "utf8")
    assert any("adding-exercise: no checker `check_…`" in p for p in faults())


def test_check_accepts_untranslated_chapter_but_release_rejects_it(book, quick):
    """Pass without Chinese, but report each untranslated piece for a release."""
    text = book.text("adding").read_text("utf8")
    alone = re.sub(r"^%%% zh\n.*?(?=^%%%|\Z)", "", text, flags=re.M | re.S)
    book.text("adding").write_text(alone, "utf8")
    assert update(book, echo=lambda line: None) == {}
    assert check(book) == []
    assert [p.split(": ")[1:] for p in check(book, release=True)] == [
        ["adding::summary", "not translated"],
        ["adding::adding-title", "not translated"],
        ["adding::adding-numbers/comments", "comments not translated"],
        ["adding::adding-recap", "not translated"],
    ]


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("[x](gone.ipynb#x)", "9: adding-title: gone.ipynb#x: no chapter 'gone'"),
        ("[x](adding.ipynb#reacp)", "adding has no section 'reacp': did you mean recap?"),
        ("[x](erors.md)", "erors.md: no page 'erors': did you mean errors?"),
        ("[x](adding.ipynb#recap) [y](errors.md#any) [z](failing.ipynb) [i](index.md)", ""),
    ],
)
def test_broken_link_is_reported(book, mend, link, message):
    mend("adding", "Addition needs $a + b$.", f"Addition needs $a + b$. {link}")
    lines = [line for line in check(book) if "book/text/adding.md" in line]
    assert [line for line in lines if "not the same" not in line] == lines[: bool(message)]
    assert not message or message in lines[0]


def test_notebook_without_cells_is_reported_in_few_lines(book):
    path = book.notebook("zh", "adding")
    nb = json.loads(path.read_text("utf8"))
    path.write_text(json.dumps(nb | {"cells": []}), "utf8")
    lines = [line for line in check(book) if line.startswith("zh/adding")]
    assert len(lines) == 4 and "removed by hand" in lines[0]
    assert not any("adopt" in line for line in lines)
