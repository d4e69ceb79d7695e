"""Test the `book` command: it finds the book, and prints errors as messages."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib import metadata

import pytest
from click.testing import CliRunner

from bookbuild.cli import main


def test_check_lists_each_problem_and_fails(call, book):
    assert call("check", "adding").exit_code == 0
    book.notebook("zh", "adding").write_text("{}")
    done = call("check", "adding")
    assert done.exit_code == 1
    assert (
        done.stdout
        == "zh/adding.ipynb: not a notebook: lacks nbformat, nbformat_minor, metadata, cells\n"
    )
    assert done.stderr == "1 problem; other chapters and generated pages were not checked\n"


@pytest.mark.parametrize("command", ["update", "check", "adopt"])
def test_unknown_chapter_error_suggests_a_name(call, command):
    done = call(command, "addin")
    assert done.exit_code == 1
    assert done.stderr == "book: no chapter 'addin': did you mean adding?\n"


@pytest.mark.parametrize("command", ["update", "check", "status", "build", "serve"])
def test_commands_outside_a_book_fail(tmp_path_factory, monkeypatch, command):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = CliRunner().invoke(main, [command])
    assert done.exit_code == 1 and done.stderr.startswith("book: no book here")


def test_missing_current_directory_fails_with_one_line(tmp_path):
    gone = tmp_path / "gone"
    script = "import os, sys; os.mkdir(sys.argv[1]); os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
    script += "from bookbuild.cli import main; main(['check'])"
    command = [sys.executable, "-c", script, str(gone)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 1
    assert done.stderr == "book: the current directory no longer exists\n"


def test_serve_without_a_site_fails(call):
    done = call("serve")
    assert done.exit_code == 1 and "run `book build`" in done.stderr


def test_version_option_prints_the_version(call):
    message = call("--version").stdout
    assert message.strip().endswith(metadata.version("executable-pytorch-notes"))


def test_unknown_message_id_error_suggests_an_id(call, book):
    path = book.root / "book/messages/python.yml"
    path.parent.mkdir()
    both = "{en: x, zh: x}"
    path.write_text(
        f"family: {{title: {both}, heading: {both}, description: {both}}}\nmessages:\n"
        f"- {{id: division-by-zero, wordings: ['E: x'], cause: {both}}}\n"
    )
    done = call("messages", "division-by-zer")
    assert done.exit_code == 1
    message = "book: no message 'division-by-zer': did you mean division-by-zero?\n"
    assert done.stderr == message
    assert call("messages", "nope").stderr == "book: no message 'nope': not in book/messages\n"


def test_raising_cell_is_reported_in_one_line(call, mend, quick):
    mend("adding", "a = 1 + 1\nassert a == 2", "a = 1 + 1\nassert a == 3")
    done = call("update", "adding")
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    assert lines == ["book/text/adding.md::adding-numbers: AssertionError: "]
    assert done.exit_code == 1


def test_cli_runs_as_a_module(book):
    command = [sys.executable, "-m", "bookbuild.cli", "check", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=book.root)
    assert done.returncode == 1 and "no chapter 'nowhere'" in done.stderr


@pytest.mark.parametrize("command", ["update", "adopt"])
def test_full_disk_changes_no_file(call, book, mend, edit, cell, quick, monkeypatch, command):
    if command == "adopt":
        edit("en", "adding", lambda nb: setattr(cell(nb, "adding-title"), "source", "# New"))
    else:
        mend("adding", "Addition needs", "Adding needs")
    files = {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()}

    def fsync(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    done = call(command, "adding")
    assert done.exit_code == 1
    assert "cannot be written: No space left on device" in done.output
    assert "Traceback" not in done.output
    assert {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()} == files


def test_broken_configuration_is_reported_in_one_line(call, book):
    (book.root / "_config.yml").write_text("title: [")
    done = call("check")
    assert done.stdout == (
        "_config.yml:2: did not find expected node content while parsing a flow node\n"
    )


def test_damaged_file_is_reported_once(call, book):
    for name in book.chapters:
        path = book.text(name)
        text = path.read_text("utf8").replace("%%% zh\n#", "{{ oldest_pytorch }}\n%%% zh\n#", 1)
        path.write_text(text, "utf8")
    (book.root / "book/versions.json").write_text('{"2.11":')
    done = call("check")
    assert done.stdout.count("versions.json") == 1
    assert "versions.json:1: damaged, restore it with git" in done.stdout
    done = call("update")
    assert done.stderr.count("versions.json") == 1 and done.stderr.count("\n") == 1


def test_missing_text_is_reported_in_one_line(call, book):
    book.text("adding").unlink()
    done = call("check")
    assert done.exit_code == 1 and "book/text/adding.md: there is no such file" in done.stdout


def test_duplicate_chapter_in_toc_is_reported_in_one_line(call, book):
    toc = book.root / "_toc.yml"
    toc.write_text(toc.read_text().replace("file: failing", "file: adding"))
    done = call("check")
    assert done.stderr == "book: _toc.yml: adding is listed 2 times, expected once\n"


def test_check_of_a_chapter_includes_its_pitfalls(call, book):
    toc = book.root / "_toc.yml"
    toc.write_text(toc.read_text() + "      - file: pitfalls\n")
    path = book.text("adding")
    text = path.read_text("utf8").replace("adding-numbers claims=A-1", "adding-numbers tags=wrong")
    path.write_text(text, "utf8")
    assert "tagged `wrong`, but without a `%%% pitfall`" in call("check", "adding").stdout
    assert "tagged `wrong`, but without a `%%% pitfall`" not in call("check", "failing").stdout
