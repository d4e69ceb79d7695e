"""Test reading, cleaning and atomic writing of notebooks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook, new_output

from bookbuild.notebooks.cells import tokens
from bookbuild.notebooks.cleaning import clean, coalesce_streams
from bookbuild.notebooks.comparison import output_fingerprint, source_fingerprint
from bookbuild.notebooks.files import dumps, read, write
from bookbuild.source.checkout import Book, BookError, read_text, write_text


def test_find_searches_parent_folders(book):
    below = book.root / "book/en"
    assert Book.find(below).root == book.root.resolve()


def test_find_error_names_the_searched_folder(tmp_path):
    with pytest.raises(BookError, match=f"no book here: neither {tmp_path}"):
        Book.find(tmp_path)


def test_full_disk_keeps_the_old_file(book, monkeypatch):
    path = book.notebook("en", "adding")
    before = path.read_bytes()

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    nb = read(path)
    nb.cells[0].source += " More."
    with pytest.raises(BookError, match="cannot be written: No space left"):
        write(nb, path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if "part" in p.name] == []


def test_killed_process_leaves_a_complete_file(tmp_path):
    path = tmp_path / "file"
    script = (
        "import sys; from pathlib import Path; from bookbuild.source.checkout import write_text\n"
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


def test_write_rejects_an_invalid_notebook(book):
    path = book.notebook("en", "adding")
    before = path.read_bytes()
    nb = read(path)
    nb.cells[1].outputs = "none"
    with pytest.raises(BookError, match="en/adding.ipynb: not written"):
        write(nb, path)
    assert path.read_bytes() == before


def test_write_text_returns_whether_the_file_changed(tmp_path):
    path = tmp_path / "a/b.txt"
    assert write_text(path, "x") is True
    assert write_text(path, "x") is False
    assert write_text(path, "y") is True and path.read_text() == "y"


def test_clean_is_idempotent_and_drops_volatile_data():
    cell = new_code_cell(
        "x",
        id="x",
        metadata={"execution": {"iopub.status.busy": "now"}, "tags": ["right"]},
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


@given(st.integers(0, 999), st.integers(0, 999))
def test_tokens_include_numbers_and_ignore_comments(a, b):
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
def test_f_string_is_one_token_in_every_python(string):
    assert tokens(f"x = '中', {string}  # f'{{no}}'\ny = {string}\n") == (
        *("x", "=", "'中'", ",", string),
        *("y", "=", string),
    )


@pytest.mark.parametrize("source", ["%matplotlib inline", "f(", "'''", "x = $"])
def test_tokens_accept_invalid_python(source):
    assert tokens(source) and tokens(source) == tokens(source + "\n")


def test_coalesce_streams_joins_streams_by_name():
    """Check what `bookbuild` requires of `coalesce_streams`, a private function of nbval."""
    pieces = [("stdout", "a"), ("stderr", "x"), ("stdout", "b\n"), ("stderr", "y")]
    outputs = [new_output("stream", name=name, text=text) for name, text in pieces]
    shown = new_output("display_data", {"text/plain": "2"})
    joined = coalesce_streams([*outputs[:2], shown, *outputs[2:]])
    assert [o.output_type for o in joined] == ["stream", "stream", "display_data"]
    assert {o.name: o.text for o in joined[:2]} == {"stdout": "ab\n", "stderr": "xy"}
    bar = [new_output("stream", name="stdout", text=t) for t in (" 10%\r", " 100%\n")]
    assert [o.text for o in coalesce_streams(bar)] == [" 100%\n"]


def good():
    """Return a notebook as JSON, with each kind of output."""
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["a\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "2"}, "metadata": {},
         "execution_count": 1},
        {"output_type": "error", "ename": "E", "evalue": "e", "traceback": ["E: e"]},
    ]  # fmt: skip
    code = {"cell_type": "code", "id": "b", "metadata": {"tags": ["x"], "claims": ["A"]},
            "source": "x", "outputs": outputs, "execution_count": 1}  # fmt: skip
    prose = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# A\n", "b"]}
    return {"cells": [prose, code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def places(value, path=()):
    """Yield the path of each value inside JSON."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


ODD = st.sampled_from([None, True, 0, -1, 1.5, "", "x", [], ["x"], [None], {}, {"x": None}, [[]]])


@given(st.sampled_from([p for p in places(good()) if p]), ODD | st.just("gone"))
@settings(deadline=None, max_examples=300)
def test_json_with_an_odd_value_is_read_or_raises(tmp_path_factory, place, value):
    data = good()
    inside = data
    for key in place[:-1]:
        inside = inside[key]
    if value == "gone":
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    path = tmp_path_factory.getbasetemp() / "odd.ipynb"
    path.write_text(json.dumps(data))
    try:
        nb = read(path)
    except BookError as error:
        assert "odd.ipynb: not a notebook" in str(error) and "\n" not in str(error)
        return
    for cell in nb.cells:  # every function accepts a notebook that `read` returns
        assert isinstance(cell.source, str) and isinstance(cell.id, str)
        source_fingerprint(cell)
        if cell.cell_type == "code":
            output_fingerprint(cell)
            tokens(cell.source)
    clean(nb)
    with contextlib.suppress(BookError):
        write(nb, path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not a notebook"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "not a notebook"),
        (b'{"a":' * 100_000, "not a notebook"),
        (b"null", "not a notebook: expected keys and values, got None"),
        (b'{"nbformat": 3}', "not a notebook: lacks nbformat_minor, metadata, cells"),
        (b'{"nbformat": 4, "cells": {}, "metadata": {}}', "lacks nbformat_minor"),
        (b'{"nbformat": 4, "cells": [], "metadata": {}}', "lacks nbformat_minor"),
        (b'{"nbformat": 4, "cells": [], "metadata": {}} x', "not a notebook"),
        (b"NaN", "not a notebook"),
    ],
)
def test_read_rejects_invalid_notebooks(tmp_path, content, what):
    path = tmp_path / "x.ipynb"
    path.write_bytes(content)
    with pytest.raises(BookError, match=what):
        read(path)


def test_folder_or_missing_file_raises(tmp_path):
    with pytest.raises(BookError, match="it: cannot be read: Is a directory"):
        read_text(tmp_path, "it")
    with pytest.raises(BookError, match="expected a file, found a folder"):
        write_text(tmp_path, "x")
    with pytest.raises(BookError, match="it: there is no such file"):
        read_text(tmp_path / "x", "it")
