"""Reading, writing and cleaning notebooks; nothing is ever half written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookbuild.notebooks import Book, BookError, clean, dumps, read, tokens, write, write_text


def test_find_goes_upward(book):
    below = book.root / "book/en"
    assert Book.find(below).root == book.root.resolve()


def test_find_says_where_it_looked(tmp_path):
    with pytest.raises(BookError, match=f"no book here: neither {tmp_path}"):
        Book.find(tmp_path)


def test_setup_cell_carries_the_repository(book, monkeypatch):
    assert 'source = pathlib.Path("../.."), ""' in book.setup
    monkeypatch.setenv("BOOK_REPOSITORY_URL", "file:///somewhere")
    assert '"git+file:///somewhere@main"' in Book(book.root).setup


def test_a_full_disk_leaves_the_old_file(book, monkeypatch):
    path = book.path("en", "adding")
    before = path.read_bytes()

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    nb = read(path)
    nb.cells[0].source += " More."
    with pytest.raises(OSError, match="No space left"):
        write(nb, path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if "part" in p.name] == []


def test_a_killed_process_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    script = (
        "import sys; from pathlib import Path; from bookbuild.notebooks import write_text\n"
        "n = 0\nprint('go', flush=True)\n"
        "while True:\n    n += 1; write_text(Path(sys.argv[1]), f'{n}:' + 'x' * 2_000_000 + ':end')"
    )
    child = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE)
    child.stdout.readline()
    time.sleep(0.5)
    child.send_signal(signal.SIGKILL)
    child.wait()
    text = path.read_text()
    assert len(text) > 2_000_000 and text.endswith(":end")


def test_an_invalid_notebook_is_not_written(book):
    path = book.path("en", "adding")
    before = path.read_bytes()
    nb = read(path)
    nb.cells[1].outputs = "none"
    with pytest.raises(BookError, match="en/adding.ipynb: not written"):
        write(nb, path)
    assert path.read_bytes() == before


def test_write_text_says_whether_anything_changed(tmp_path):
    path = tmp_path / "a/b.txt"
    assert write_text(path, "x") is True
    assert write_text(path, "x") is False
    assert write_text(path, "y") is True and path.read_text() == "y"


def test_clean_is_idempotent_and_drops_what_means_nothing():
    cell = new_code_cell(
        "x",
        id="x",
        metadata={"execution": {"iopub.status.busy": "now"}, "tags": ["cheat"]},
        outputs=[
            new_output("stream", name="stdout", text="a"),
            new_output("stream", name="stdout", text="b 10%| [00:01<00:09, 1.2it/s]\n"),
            new_output(
                "error",
                ename="ValueError",
                evalue="\x1b[31mbad\x1b[0m /usr/lib/python3/site-packages/torch/x.py",
                traceback=[
                    "\x1b[31mValueError\x1b[0m",
                    "File /usr/x.py:3, in f",
                    "ValueError: bad",
                ],
            ),
        ],
    )
    nb = clean(new_notebook(cells=[cell]))
    stream, error = nb.cells[0].outputs
    assert stream.text == "ab 10%|\n"
    assert error.evalue == "bad torch/x.py"
    assert error.traceback == ["ValueError", "ValueError: bad"]
    assert nb.cells[0].execution_count == 1 and "execution" not in nb.cells[0].metadata
    once = dumps(nb)
    assert dumps(clean(nb)) == once


def test_a_gpu_cell_that_never_ran_gets_no_number():
    gpu = new_code_cell("x", id="x", metadata={"tags": ["gpu"]}, execution_count=5)
    nb = clean(new_notebook(cells=[gpu, new_code_cell("y", id="y")]))
    assert [c.execution_count for c in nb.cells] == [None, 2]


@given(st.integers(0, 999), st.integers(0, 999))
def test_tokens_see_numbers_and_not_comments(a, b):
    one = tokens(f"x = {a}  # one\nif x:\n    y = 1\n")
    two = tokens(f"x = {b}  # 二\n\nif x:\n    # 注释\n    y = 1")
    assert (one == two) == (a == b)


@pytest.mark.parametrize(
    "string",
    [
        "f'{a}'",
        "rf\"{a!r:>{width}} {{b}} 中文 {c['d']}\"",
        "f'''one {two} {f\"{three}\"}'''",
        "f'''one\n  {two}'''",
        "f''",
    ],
)
def test_an_f_string_is_one_token_in_every_python(string):
    assert tokens(f"x = '中', {string}  # f'{{no}}'\ny = {string}\n") == (
        *("x", "=", "'中'", ",", string),
        *("y", "=", string),
    )


@pytest.mark.parametrize("source", ["%matplotlib inline", "f(", "'''", "x = $"])
def test_tokens_of_what_python_cannot_read(source):
    assert tokens(source) and tokens(source) == tokens(source + "\n")
