"""The `book` command: it works where it stands, and its errors are messages."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bookbuild.cli import main


@pytest.fixture
def call(book, monkeypatch):
    monkeypatch.chdir(book.root / "book/en")
    return lambda *args: CliRunner().invoke(main, args)


def test_check_names_each_problem_and_fails(call, book):
    assert call("check", "adding").exit_code == 0
    book.path("zh", "adding").write_text("{}")
    done = call("check", "adding")
    assert done.exit_code == 1
    assert done.stdout == "zh/adding.ipynb: not a notebook: no cells in format 4\n"
    assert "1 problem" in done.stderr


def test_sync_fails_while_a_translation_waits(call, edit):
    assert call("sync").exit_code == 0
    edit("en", "adding", lambda nb: nb.cells[0].update(source="# New words\n\n$a + b$"))
    done = call("sync")
    assert done.exit_code == 1 and "translate adding::adding-title: stale" in done.output
    assert call("sync", "--keep", "adding::adding-title").exit_code == 0


@pytest.mark.parametrize("command", ["run", "sync", "check", "unpack", "record"])
def test_unknown_chapters_get_a_suggestion(call, command):
    done = call(command, "addin")
    assert done.exit_code == 1
    assert "did you mean adding?" in done.stderr and "Traceback" not in done.output


def test_outside_a_book(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = CliRunner().invoke(main, ["check"])
    assert done.exit_code == 1 and done.stderr.startswith("book: no book here")


def test_unpack_and_pack(call, book):
    done = call("unpack", "adding")
    path = book.root / done.output.strip()
    assert path.read_text("utf8").startswith("%%% chapter adding\n")
    assert call("pack", str(path)).exit_code == 0
    assert call("check", "adding").exit_code == 0


def test_serve_without_a_site(call):
    done = call("serve")
    assert done.exit_code == 1 and "run `book build`" in done.stderr
