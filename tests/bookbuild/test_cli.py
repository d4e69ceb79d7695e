"""The `book` command: it works where it stands, and its errors are messages."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest
from click.testing import CliRunner

from bookbuild.cli import main
from bookbuild.commands import check as checking


@pytest.fixture
def call(book, monkeypatch):
    monkeypatch.chdir(book.root / "book/en")
    return lambda *args: CliRunner().invoke(main, args)


def test_check_names_each_problem_and_fails(call, book):
    assert call("check", "adding").exit_code == 0
    book.notebook("zh", "adding").write_text("{}")
    done = call("check", "adding")
    assert done.exit_code == 1
    assert done.stdout == "zh/adding.ipynb: not a notebook: no cells in format 4\n"
    assert done.stderr == "1 problem\n"


def test_check_proves_anew_whatever_byte_changes_and_only_then(call, book, monkeypatch):
    ran, real = [], checking.check
    monkeypatch.setattr(checking, "check", lambda *args: ran.append(args[1:]) or real(*args))
    assert [call("check").exit_code for _ in range(2)] == [0, 0]
    assert ran == [((), False)]
    call("check", "--release"), call("check", "adding"), call("check")
    assert ran[1:] == [((), True), (("adding",), False), ((), False)]
    files = [p for p in book.root.rglob("*") if p.is_file() and "_build" not in p.parts]
    assert len(files) > 12
    for path in files:
        before, times = path.read_bytes(), os.stat(path)
        for changed in (before[:-1] + b"#", b""):
            path.write_bytes(changed)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            ran.clear()
            again = call("check")
            assert ran == [((), False)], path
            path.write_bytes(before)
            call("check")
            assert len(ran) == 1 + (again.exit_code == 0), "what has a problem is not kept"
    (book.root / "book/text/new.md").write_text("")
    assert call("check").stdout == "text/new.md: not in _toc.yml\n"


@pytest.mark.parametrize("command", ["update", "check", "adopt"])
def test_unknown_chapters_get_a_suggestion(call, command):
    done = call(command, "addin")
    assert done.exit_code == 1
    assert done.stderr == "book: no chapter 'addin': did you mean adding?\n"


@pytest.mark.parametrize("command", ["update", "check", "status", "build", "serve"])
def test_outside_a_book(tmp_path_factory, monkeypatch, command):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    done = CliRunner().invoke(main, [command])
    assert done.exit_code == 1 and done.stderr.startswith("book: no book here")


def test_in_a_folder_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    script = "import os, sys; os.mkdir(sys.argv[1]); os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
    script += "from bookbuild.cli import main; main(['check'])"
    command = [sys.executable, "-c", script, str(gone)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 1
    assert done.stderr == "book: the current directory no longer exists\n"


def test_serve_without_a_site(call):
    done = call("serve")
    assert done.exit_code == 1 and "run `book build`" in done.stderr


def test_it_says_its_version(call):
    told = call("--version").stdout
    assert told.strip().endswith(metadata.version("executable-pytorch-notes"))
