"""Test which files `helpers.review` reads, skips and reports as unreadable."""

from __future__ import annotations

import json

import pytest

from helpers.review.reading import Source, Unread, notebook, script, sources, without_magics


def cells(*texts, **metadata):
    result = [{"cell_type": "code", "source": text.splitlines(keepends=True)} for text in texts]
    return json.dumps({"cells": result, "metadata": metadata}).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"print 'x'\n", "(Python 2?)"),
        (b"x = (\n", "line 1: "),
        (b"# coding: nonsense\n", "its encoding is unknown"),
        (b"# \xff\n", "its encoding is unknown"),
        (b"x = 1\0\n", "null bytes"),
        (b"#" * 2_000_001, "2,000,001 bytes, at most 2,000,000"),
        (b"(" * 5000, ""),
    ],
)
def test_unreadable_script_is_reported_with_a_reason(data, reason):
    (one,) = script("a.py", data)
    assert isinstance(one, Unread) and one.path == "a.py" and reason in one.reason


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "gbk"])
def test_declared_encoding_is_read(encoding):
    text = f"# coding: {encoding.removesuffix('-sig')}\nname = 'naïve'\n"
    if encoding == "gbk":
        text = text.replace("naïve", "张量")
    (one,) = script("a.py", text.encode(encoding))
    assert one.text == text


def test_windows_line_ends_become_newlines():
    (one,) = script("a.py", b"a = 1\r\nb = 2\r\n")
    assert one.text == "a = 1\nb = 2\n"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("!pip install torch\nx = 1", "pass\nx = 1"),
        ("for a in b:\n    %timeit a\n    a += 1", "for a in b:\n    pass\n    a += 1"),
        ("files = !ls", "files = None"),
        ("%%time\nx = 1", "pass\nx = 1"),
        ("%%bash\nls | wc\n", "\n\n"),
        ("torch.ones?", "pass"),
    ],
)
def test_magics_are_replaced_line_by_line(cell, expected):
    assert without_magics(cell) == expected


def test_notebook_skips_cells_that_are_not_python():
    found = list(notebook("a.ipynb", cells("import torch", "x = (", "%%bash\nls", "y = 2\nz = 3")))
    assert found[0] == Unread("a.ipynb:cell 2", "line 1: '(' was never closed")
    assert isinstance(found[1], Source) and [number for _, number in found[1].cells] == [1, 3, 4]
    last = found[1].text.split("\n").index("z = 3") + 1
    assert found[1].where(last) == "a.ipynb:cell 4:2"


@pytest.mark.parametrize("data", [b"[]", b"{}", b"not json", b'{"cells": [1]}', b"\xff", b"null"])
def test_invalid_notebook_is_reported(data):
    assert list(notebook("a.ipynb", data)) == [Unread("a.ipynb", "no notebook")]


def test_notebook_in_another_language_is_reported():
    data = cells("x <- 1", kernelspec={"language": "R"})
    assert list(notebook("a.ipynb", data)) == [Unread("a.ipynb", "its language is R")]


def test_notebook_format_3_is_read():
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["import torch\n", "x = 1"]}]}]}
    (one,) = notebook("a.ipynb", json.dumps(old).encode())
    assert one.text.startswith("import torch\nx = 1\n")


def test_folder_skips_environments_and_hidden_files(tmp_path):
    for name in (
        "a.py",
        "b/c.py",
        "b/.d.py",
        ".git/e.py",
        "venv/f.py",
        "g/__pycache__/h.py",
        "i.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x = 1")
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    found = list(sources([str(tmp_path), str(tmp_path / "missing.py")]))
    assert [one.path for one in found[:2]] == [str(tmp_path / "a.py"), str(tmp_path / "b/c.py")]
    assert found[2:] == [Unread(str(tmp_path / "missing.py"), "No such file or directory")]
