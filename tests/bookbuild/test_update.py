"""Test `book update`: an edit needs one command; interruption and failure lose nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from bookbuild.commands import update as updating
from bookbuild.commands.check import check, outdated
from bookbuild.commands.update import update
from bookbuild.notebooks import execution as running
from bookbuild.notebooks.cells import alt
from bookbuild.notebooks.conversion import MISSING, WAITING
from bookbuild.notebooks.dependencies import helpers_used
from bookbuild.notebooks.execution import use_cuda
from bookbuild.notebooks.files import read
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.texts import load


@pytest.fixture(autouse=True)
def keep_environment(monkeypatch):
    for name in (*running.KERNEL_ENV, "CUDA_VISIBLE_DEVICES", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("BOOK_CUDA", "0")


@pytest.fixture
def no_run(monkeypatch):
    """Raise an error if a cell is run."""

    def execute(*args):
        raise AssertionError("no cell may run")

    monkeypatch.setattr(running, "execute", execute)


def files(book):
    """Return the bytes of every file of the book."""
    return {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()}


def quiet(line):
    """Print nothing."""


# ---------------------------------------------------------------- one edit, one command


def test_second_update_changes_no_file(book, call, no_run):
    before = files(book)
    done = call("update")
    assert (done.exit_code, done.stdout) == (0, "2 chapters: nothing to do\n")
    assert files(book) == before


def test_accepted_edit_of_both_languages_is_current(book, call, mend, no_run):
    mend("adding", "The sum is printed.", "The sum is shown.")
    mend("adding", "和会打印出来。", "和会显示出来。")
    done = call("update", "--accept", "adding::adding-recap")
    assert done.exit_code == 0 and "waits" not in done.output
    for lang, words in (("en", "The sum is shown."), ("zh", "和会显示出来。")):
        recap = read(book.notebook(lang, "adding")).cells[-1].source
        assert recap.endswith(words)
    assert check(book, release=True) == []


def test_changed_english_marks_the_chinese_outdated(book, call, mend, no_run):
    mend("adding", "The sum is printed.", "The sum is shown.")
    done = call("update")
    where = "book/text/adding.md:42: adding::adding-recap: the English changed"
    assert done.exit_code == 0
    assert f"translate: {where}" in done.output and "--accept adding::adding-recap" in done.output
    recap = read(book.notebook("zh", "adding")).cells[-1].source
    assert recap == f"## 小结\n\n和会打印出来。\n\n{WAITING}"
    assert WAITING not in book.notebook("en", "adding").read_text("utf8")
    assert call("check").exit_code == 0
    release = call("check", "--release")
    assert release.exit_code == 1 and where in release.output
    again = files(book)
    assert call("update").exit_code == 0 and files(book) == again


def test_only_accept_makes_a_piece_current(book, call, mend, no_run):
    mend("adding", "The sum is printed.", "The sum is shown.")
    assert call("update").exit_code == 0
    mend("adding", "和会打印出来。", "和会打印出来！")
    assert call("update").exit_code == 0
    assert [piece.cell for piece in outdated(book)] == ["adding-recap"]
    path = book.text("adding")
    path.write_text(path.read_text("utf8").replace("adding-recap", "adding-end"), "utf8")
    assert call("update").exit_code == 0
    assert [piece.cell for piece in outdated(book)] == ["adding-end"]
    assert call("update", "--accept", "adding::adding-title").exit_code == 0
    assert [piece.cell for piece in outdated(book)] == ["adding-end"]
    assert call("update", "--accept", "adding::adding-end").exit_code == 0
    assert outdated(book) == [] and check(book, release=True) == []
    assert WAITING not in book.notebook("zh", "adding").read_text("utf8")


def test_restored_english_is_current_again(book, call, mend, no_run):
    before = files(book)
    mend("adding", "The sum is printed.", "The sum is shown.")
    assert call("update").exit_code == 0
    mend("adding", "The sum is shown.", "The sum is printed.")
    assert call("update").exit_code == 0
    assert files(book) == before


def test_accept_takes_a_whole_chapter(book, call, mend, no_run):
    mend("adding", "The sum is printed.", "The sum is shown.")
    mend("adding", "About adding.", "All about adding.")
    assert call("update").exit_code == 0 and len(outdated(book)) == 2
    done = call("update", "--accept", "adding")
    assert done.exit_code == 0 and outdated(book) == []


def test_changed_formula_in_english_marks_the_chinese_outdated(book, call, mend, no_run):
    mend("adding", "Addition needs $a + b$.", "Addition needs $a + b + c$.")
    assert call("update").exit_code == 0 and check(book) == []
    assert [piece.cell for piece in outdated(book)] == ["adding-title"]


def test_alt_and_cause_use_the_language_of_the_page(book, call, mend, no_run):
    mend("adding", "把两个数相加\n", "把两个数相加\n%%% alt\nA sum.\n%%% zh\n一个和。\n")
    assert call("update").exit_code == 0
    for lang, words, why in (
        ("en", "A sum.", "The divisor is zero."),
        ("zh", "一个和。", "除数为零。"),
    ):
        assert alt(read(book.notebook(lang, "adding")).cells[2]) == words
        assert read(book.notebook(lang, "failing")).cells[2].metadata.cause == why


def test_changed_chinese_stays_current(book, call, mend, no_run):
    mend("adding", "和会打印出来。", "和会显示出来。")
    assert call("update").exit_code == 0
    assert outdated(book) == [] and check(book, release=True) == []


def test_missing_chinese_shows_english_and_fails_the_release(book, call, mend, no_run):
    mend("adding", "%%% zh\n## 小结\n\n和会打印出来。\n", "")
    done = call("update")
    assert done.exit_code == 0 and "adding::adding-recap: not translated" in done.output
    recap = read(book.notebook("zh", "adding")).cells[-1].source
    assert recap == f"## Recap\n\nThe sum is printed.\n\n{MISSING}"
    assert check(book) == [] and len(check(book, release=True)) == 1
    done = call("update", "--accept", "adding::adding-recap")
    assert done.exit_code == 1 and "adding::adding-recap: not translated" in done.output


def test_unpaired_headings_show_english(book, call, mend, no_run):
    mend("adding", "## Recap\n", "## One more\n\nWords.\n\n## Recap\n")
    assert call("update").exit_code == 0
    recap = read(book.notebook("zh", "adding")).cells[-1].source
    assert recap.startswith("## One more") and recap.endswith(MISSING)
    assert check(book) == []


def test_comments_are_translated_line_by_line(book, call, mend, quick):
    mend("adding", "a = 1 + 1\n", "a = 1 + 1  # the sum\n")
    done = call("update")
    assert done.exit_code == 0
    assert "adding-numbers/comments: 2 comments in the code, 1 in Chinese" in done.output
    assert quick == [] and check(book) == []
    mend("adding", "把两个数相加", "把两个数相加\n它们的和")
    assert call("update").exit_code == 0 and len(outdated(book)) == 1  # until it is accepted
    assert call("update", "--accept", "adding::adding-numbers").exit_code == 0
    source = read(book.notebook("zh", "adding")).cells[2].source
    assert source == "# 把两个数相加\na = 1 + 1  # 它们的和\nassert a == 2\na"
    assert check(book, release=True) == []


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("addin::adding-title", "no chapter 'addin': did you mean adding?"),
        ("adding::adding-titel", "adding has no cell adding-titel"),
        ("adding::", "--accept adding::: expected CHAPTER or CHAPTER::CELL"),
        ("", "no chapter ''"),
    ],
)
def test_accept_rejects_unknown_names(book, call, name, what):
    before = files(book)
    done = call("update", "--accept", name)
    assert done.exit_code == 1 and what in done.stderr, done.output
    assert files(book) == before


def test_accept_requires_an_updated_chapter(book, call):
    done = call("update", "failing", "--accept", "adding::adding-title")
    assert done.exit_code == 1 and "--accept adding::adding-title: adding is not upd" in done.stderr


def test_update_and_check_are_limited_to_named_chapters(book, call, mend, no_run):
    mend("adding", "The sum is printed.", "The sum is shown.")
    mend("failing", "This always fails.", "This fails.")
    before = book.notebook("en", "failing").read_bytes()
    assert call("update", "adding").exit_code == 0
    assert book.notebook("en", "failing").read_bytes() == before
    assert check(book, ["adding"]) == [] and check(book, ["failing"]) != []


# ---------------------------------------------------------------- changes that run cells


def test_changed_code_helpers_or_cells_run_the_chapter(book, call, mend, quick):
    new = "%%% code new\n```python\n1\n```\n\n%%% md adding-recap"
    helper = book.root / "src/helpers/adding.py"
    steps = {
        "the code of adding-numbers changed": lambda: mend("adding", "a = 1 + 1\n", "a = 2\n"),
        "its helpers changed": lambda: mend(
            "adding", "a = 2\n", "if 0:\n    import helpers.adding\na = 2\n"
        ),
        "its helpers changed)": lambda: helper.write_text("x = 1\n"),
        "cells were added, removed or moved": lambda: mend("adding", "%%% md adding-recap", new),
        "new": lambda: book.notebook("en", "failing").unlink(),
    }
    text = []
    for why, change in steps.items():
        change()
        text.clear()
        assert update(book, echo=text.append) == {}
        assert any(": running " in line and f"cells ({why}" in line for line in text), (why, text)
        assert check(book) == []
        quick.clear()
        assert update(book, echo=quiet) == {} and quick == []


def test_changed_raises_exception_tag_runs_the_chapter(book, mend, quick):
    mend("adding", "adding-numbers claims", "adding-numbers tags=raises-exception claims")
    text = []
    assert update(book, echo=text.append) == {}
    assert "running 4 cells (the tags of adding-numbers changed)" in text[0]


def test_changed_prose_tags_and_comments_run_nothing(book, call, mend, no_run):
    mend("adding", "# add both numbers", "# add them both")
    mend("adding", "The sum is printed.", "The sum is shown.")
    mend("adding", "adding-numbers claims=A-1", "adding-numbers tags=right claims=A-1")
    mend("failing", "The divisor is zero.", "It is zero.")
    (book.root / "src/helpers/unused.py").write_text("x = 1\n")
    assert call("update").exit_code == 0
    assert "add them both" in read(book.notebook("en", "adding")).cells[2].source


def test_again_runs_an_unchanged_chapter(book, quick):
    text = []
    before = files(book)
    assert update(book, ["adding"], again=True, echo=text.append) == {}
    assert quick == ["book/text/adding.md"]
    assert files(book) == before
    assert text[0] == "[1/1] adding: running 4 cells (asked for)"
    assert text[1].startswith("[1/1] adding: ran, unchanged in ")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_output_edited_in_a_notebook_runs_again(book, call, edit, cell, quick, lang):
    before = files(book)
    edit(lang, "adding", lambda nb: cell(nb, "adding-numbers").outputs.clear())
    assert call("update").exit_code == 0
    assert quick == ["book/text/adding.md"] * (lang == "en")
    assert files(book) == before


def test_update_without_pytorch_writes_prose_and_rejects_code(book, call, mend, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        updating, "find_spec", lambda name: None if name == "torch" else found(name)
    )
    mend("adding", "The sum is printed.", "The sum is shown.")
    assert call("update").exit_code == 0
    mend("adding", "a = 1 + 1\n", "a = 2\n")
    before = files(book)
    done = call("update")
    assert done.exit_code == 1 and files(book) == before
    assert "adding must run (the code of adding-numbers changed), and that needs PyT" in done.output


def test_helper_named_in_a_string_is_a_dependency(book, mend, quick):
    mend("adding", "a = 1 + 1\n", "a = len('xx') or 'helpers.adding'\n")
    for text, runs in (("x = 1\n", 1), ("from helpers import failing\n", 1)):
        assert update(book, echo=quiet) == {}
        quick.clear()
        (book.root / "src/helpers/adding.py").write_text(text)
        assert update(book, echo=quiet) == {} and len(quick) == runs
    quick.clear()
    (book.root / "src/helpers/failing.py").write_text("y = 1\n")
    assert update(book, echo=quiet) == {} and quick == ["book/text/adding.md"]


def test_data_file_is_a_dependency_of_its_module_only(book, mend):
    room = book.root / "src/helpers/room"
    room.mkdir()
    for name in ("__init__.py", "one.py", "one.js", "two.py", "two.js", "base.js"):
        (room / name).write_text(f"# {name}\n")
    mend("adding", "# add both", "import helpers.room.one\n# add both")
    source = load(book, "adding")
    prints = {}
    for name in ("", "one.js", "base.js", "__init__.py", "two.js", "two.py"):
        if name:
            (room / name).write_text("changed\n")
        prints[name] = helpers_used(book, source)
        (room / name).write_text(f"# {name}\n") if name else None
    unused = {name for name, result in prints.items() if result == prints[""]}
    assert unused == {"", "two.js", "two.py"}
    assert len(set(prints.values())) == 4


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("[][3]", "book/text/adding.md::adding-numbers: IndexError: list index out of range"),
        ("import os; os._exit(1)", "book/text/adding.md::adding-numbers: the kernel died"),
        ("while True: pass", "book/text/adding.md::adding-numbers: ran longer than 2 s"),
        ("print('x' * 50_000_000)", "book/text/adding.md::adding-numbers: prints 50,0"),
        ("x = (", "book/text/adding.md::adding-numbers: SyntaxError: incomplete input"),
        ("raise ValueError('a\\n\\nb')", "book/text/adding.md::adding-numbers: ValueError: a b"),
        ("import sys; sys.exit(3)", "book/text/adding.md::adding-numbers: SystemExit: 3"),
    ],
)
def test_failing_cell_is_reported_and_its_notebooks_stay(
    book, mend, monkeypatch, capfd, source, what
):
    monkeypatch.setattr(running, "TIMEOUT", 2 if source.startswith("while") else 60)
    old = "# add both numbers\na = 1 + 1\nassert a == 2\na\n```\n%%% zh\n把两个数相加"
    mend("adding", old, f"{source}\n```")
    mend("failing", "This always fails.", "This fails.")
    before, text = files(book), []
    failed = update(book, echo=text.append)
    assert list(failed) == ["adding"]
    assert failed["adding"].startswith(what) and "\n" not in failed["adding"]
    assert text[1] == f"[1/2] {failed['adding']}"
    changed = {
        p.relative_to(book.root).as_posix() for p, b in files(book).items() if b != before[p]
    }
    assert changed == {"book/en/failing.ipynb", "book/zh/failing.ipynb"}
    out = capfd.readouterr()
    assert (out.out, out.err) == ("", "")


def test_missing_exception_is_reported(book, mend):
    mend("failing", "1 / 0", "1 / 1")
    assert update(book, ["failing"], echo=quiet) == {
        "failing": "book/text/failing.md::failing-error: tagged raises-exception, but nothing was "
        "raised"
    }


SCRIPT = "from bookbuild.cli import main; main(['update'])"


@pytest.fixture
def started(book, mend):
    """Start `book update` in a new process, and wait until it runs a cell that does not end."""
    mend("adding", "a = 1 + 1\n", "import pathlib, os, time\n"
         f"pathlib.Path('{book.root}/pid').write_text(str(os.getpid()))\n"
         "time.sleep(600)\na = 1 + 1\n")  # fmt: skip
    mend("failing", "1 / 0", "2 / 0")
    before = files(book)
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=book.root, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    pid = book.root / "pid"
    until(lambda: pid.exists() and pid.read_text())
    kernel = int(pid.read_text())
    pid.unlink()
    yield child, kernel, before
    child.kill()


def until(happened, seconds=60):
    """Wait until `happened()` is true; fail after `seconds`."""
    begun = time.monotonic()
    while not happened():
        assert time.monotonic() - begun < seconds
        time.sleep(0.05)


def gone(pid):
    """Return whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_killed_update_changes_no_file(book, started, sign):
    child, kernel, before = started
    child.send_signal(sign)
    out, err = child.communicate(timeout=60)
    assert child.returncode != 0
    until(lambda: gone(kernel))
    assert files(book) == before
    if sign == signal.SIGINT:
        assert "book/text/adding.md::adding-numbers: interrupted" in err, (out, err)
        assert "failing" not in out and "Traceback" not in out + err


# ---------------------------------------------------------------- edited by hand


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_update_keeps_a_notebook_edited_by_hand(book, call, edit, cell, lang):
    edit(lang, "adding", lambda nb: cell(nb, "adding-title").update(source="# Mine\n\n$a + b$"))
    before = files(book)
    done = call("update")
    line = (
        f"{lang}/adding::adding-title: edited by hand; `book adopt adding` copies the edit into "
        f"book/text/adding.md, `git checkout book/{lang}/adding.ipynb` undoes it"
    )
    assert (done.exit_code, done.stderr) == (1, f"book: {line}\n")
    assert line in call("check").output
    assert files(book) == before


@pytest.mark.parametrize("text", ["{}", "<<<<<<< ours", ""])
def test_invalid_notebook_error_suggests_deleting_it(book, call, no_run, text):
    before = files(book)
    book.notebook("zh", "adding").write_text(text)
    done = call("update")
    assert done.exit_code == 1
    assert done.stderr.startswith("book: zh/adding.ipynb: not a notebook: ")
    assert done.stderr.endswith("; delete it and run `book update adding`\n")
    book.notebook("zh", "adding").unlink()
    assert call("update").exit_code == 0 and files(book) == before


def test_update_keeps_stamps_of_other_chapters(book, no_run):
    path = book.root / "book/translated.json"
    before = json.loads(path.read_text())
    update(book, ["failing"], echo=quiet)
    assert json.loads(path.read_text()) == before and list(before) == ["adding", "failing"]


# ---------------------------------------------------------------- devices and warnings


@pytest.mark.parametrize(
    ("mode", "gpu", "answer"), [("0", True, False), ("auto", True, True), ("auto", False, False)]
)
def test_use_cuda_follows_the_setting_and_the_driver(monkeypatch, mode, gpu, answer):
    monkeypatch.setenv("BOOK_CUDA", mode)
    monkeypatch.setattr(running, "driver_sees_gpu", lambda: gpu)
    assert use_cuda() is answer


@pytest.mark.parametrize(("mode", "what"), [("1", "reports no GPU"), ("yes", "must be 0, 1")])
def test_missing_gpu_or_invalid_setting_raises(monkeypatch, mode, what):
    monkeypatch.setenv("BOOK_CUDA", mode)
    monkeypatch.setattr(running, "driver_sees_gpu", lambda: False)
    with pytest.raises(BookError, match=what):
        use_cuda()


OLD = "import warnings\nwarnings.warn({!r}, {})"


@pytest.mark.parametrize(
    ("source", "raises"),
    [
        (OLD.format("gone in 3.0", "DeprecationWarning"), "DeprecationWarning: gone in 3.0"),
        (OLD.format("cell: f() is deprecated", "UserWarning"), "UserWarning: cell: f"),
        (OLD.format("gone", "FutureWarning").replace("\n", "\ntry:\n    ") + "\n"
         "except FutureWarning: pass\n" + OLD.format("a warning like any other", "UserWarning") +
         "\nwith warnings.catch_warnings(record=True) as caught:\n"
         "    warnings.simplefilter('always')\n    warnings.warn('old', DeprecationWarning)\n"
         "assert len(caught) == 1\nassert 'category' not in dir()", None),
    ],
)  # fmt: skip
def test_warnings_setting_turns_deprecations_into_errors(book, mend, monkeypatch, source, raises):
    mend("adding", "# add both numbers\na = 1 + 1\n", f"{source}\na = 1 + 1\n")
    mend("adding", "%%% zh\n把两个数相加\n", "")
    monkeypatch.setenv("BOOK_WARNINGS", "error")
    failed = update(book, ["adding"], echo=quiet)
    expected = f"book/text/adding.md::adding-numbers: {raises}"
    assert failed["adding"].startswith(expected) if raises else failed == {}


def test_cuda_home_without_a_gpu_causes_no_warning(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    running.prepare_kernels()
    command = [sys.executable, "-c", "import torch.utils.benchmark"]
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


def test_invalid_warnings_setting_raises(monkeypatch):
    monkeypatch.setenv("BOOK_WARNINGS", "errors")
    with pytest.raises(BookError, match="must be default, error or unset, got 'errors'"):
        running.prepare_kernels()


def test_update_builds_notebooks_from_texts_alone(book, quick):
    for path in book.root.rglob("book/*/*"):
        if path.suffix in (".ipynb", ".md") and path.parent.name in ("en", "zh"):
            path.unlink()
    (book.root / "book/translated.json").unlink()
    assert update(Book(book.root), echo=quiet) == {}
    assert check(Book(book.root), release=True) == []


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_edit_saved_during_the_run_is_kept(book, mend, edit, cell, monkeypatch, lang, overwrite):
    mend("adding", "a = 1 + 1", "a = 3 - 1")
    real = running.execute

    def execute(nb, folder, where):
        def act(nb):
            cell(nb, "adding-title").source += "\n\nSaved in the meantime."

        edit(lang, "adding", act)
        return nb

    monkeypatch.setattr(running, "execute", execute)
    monkeypatch.setattr("bookbuild.commands.update.clean", lambda nb: nb)
    before = {x: book.notebook(x, "adding").read_bytes() for x in ("en", "zh")}
    failed = update(book, ["adding"], overwrite=overwrite, echo=quiet)
    assert failed["adding"].startswith(f"{lang}/adding::adding-title: edited by hand")
    assert "saved during the update, nothing was written" in failed["adding"]
    after = {x: book.notebook(x, "adding").read_bytes() for x in ("en", "zh")}
    assert b"Saved in the meantime." in after[lang]
    assert {x for x in after if after[x] != before[x]} == {lang}
    assert running.execute is not real


def test_notebook_written_by_another_update_is_not_an_edit(book, mend, quick, monkeypatch):
    mend("adding", "a = 1 + 1", "a = 3 - 1")
    run = running.execute

    def execute(nb, folder, where):
        monkeypatch.setattr(running, "execute", run)
        assert update(Book(book.root), ["adding"], echo=quiet) == {}
        return run(nb, folder, where)

    monkeypatch.setattr(running, "execute", execute)
    assert update(book, ["adding"], echo=quiet) == {}


def test_oversized_notebook_is_rejected_with_its_largest_cell(book, mend, quick):
    before = files(book)
    mend("adding", "Addition needs $a + b$.", "\n".join(["word " * 900] * 120))
    failed = update(book, ["adding"], echo=quiet)
    assert failed["adding"].startswith("book/text/adding.md:6: adding-title: the en notebook would")
    after = files(book)
    assert {p.name for p in after if after[p] != before[p]} == {"adding.md"}


def test_update_builds_a_notebook_once_per_language(book, quick, monkeypatch):
    from bookbuild.commands import update as updating

    calls, make = [], updating.notebook
    monkeypatch.setattr(updating, "notebook", lambda *args: calls.append(args[1]) or make(*args))
    assert update(book, ["adding"], again=True, echo=quiet) == {}
    assert calls == ["en", "zh"]
