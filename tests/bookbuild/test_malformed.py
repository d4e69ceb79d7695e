"""Test the commands on malformed files: each reports an error and loses no data."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookbuild.cli import main
from bookbuild.site import sphinx_build

COMMANDS = [["check"], ["update"], ["adopt", "adding"], ["status"], ["build"]]
FILES = [
    "_toc.yml",
    "_config.yml",
    "book/claims.yml",
    "book/translated.json",
    "book/validated.json",
    "book/versions.json",
    "book/text/adding.md",
    "book/en/adding.ipynb",
    "book/zh/adding.ipynb",
    "src/helpers/adding.py",
    "tests/helpers/test_adding.py",
]
ODD = {
    "nothing": b"",
    "null": b"null",
    "a number": b"3",
    "a list of nulls": b"[null, null]",
    "nulls": b'{"adding": null, "parts": null, "cells": null, "x": {"y": null}}',
    "numbers": b'{"adding": 3, "parts": 3, "cells": 3}',
    "lists": b'{"adding": [3, null, {}], "parts": [3], "cells": [3]}',
    "deep": b"[" * 2_000,
    "not UTF-8": b"\xff\xfe\x00",
    "a zero byte": b"a\x00b",
    "another's changes": b"<<<<<<< ours\n=======\n>>>>>>> theirs\n",
    "windows": b"%%% summary\r\nx\r\n%%% md a\r\nb\r\n",
    "a surrogate": b'"\\ud800"',
    "a page of it": b"%%% md a\n" * 2000,
}


@pytest.fixture
def call(book, monkeypatch, quick):
    """Return a function that runs a command and checks its exit status, messages and files."""
    monkeypatch.chdir(book.root)
    monkeypatch.setattr(sphinx_build, "build", lambda root: root)

    def run(*args):
        texts = {p: p.read_bytes() for p in (book.root / "book/text").glob("*.md") if p.is_file()}
        before = {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()}
        done = CliRunner().invoke(main, args)
        if not isinstance(done.exception, SystemExit | None):
            raise done.exception
        assert done.exit_code in (0, 1)
        assert done.exit_code == 0 or done.stdout.strip() or done.stderr.strip()
        if done.stderr.startswith("book: "):
            assert done.stderr.count("\n") == 1, done.stderr
            assert len(done.stderr) < 600
            wrote = {p: p.read_bytes() for p in book.root.rglob("*") if p.is_file()}
            assert wrote == before or args[0] == "update"
        if args[0] != "adopt":
            assert all(path.read_bytes() == was for path, was in texts.items())
        return done

    return run


@pytest.mark.parametrize("file", FILES)
def test_odd_content_causes_no_traceback(book, call, file):
    values = not file.endswith(("py", "md"))  # py and md: only a third of the contents
    for number, content in enumerate(ODD.values()):
        if values or number % 3 == 0:
            (book.root / file).write_bytes(content)
            for command in COMMANDS[number % 2 :: 2]:
                call(*command)


@pytest.mark.parametrize("file", FILES)
def test_folder_in_place_of_a_file_causes_no_traceback(book, call, file):
    path = book.root / file
    path.unlink(missing_ok=True)
    path.mkdir()
    for command in COMMANDS:
        call(*command)
    assert path.is_dir()


@pytest.mark.parametrize("file", [f for f in FILES if "validated" not in f and "versions" not in f])
def test_unreadable_file_causes_no_traceback(book, call, monkeypatch, file):
    from pathlib import Path

    path, read = book.root / file, Path.read_text

    def refuse(self, *args, **kwargs):
        if self == path:
            raise PermissionError(13, "Permission denied")
        return read(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)
    for command in COMMANDS:
        call(*command)


def values(value, path=()):
    """Yield the path of each value inside JSON."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from values(value[key], (*path, key))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_value_in_a_data_file_causes_no_traceback(book, call, template, data):
    import yaml

    shutil.copytree(template / "book", book.root / "book", dirs_exist_ok=True)
    shutil.copytree(template, book.root, dirs_exist_ok=True)
    file = data.draw(st.sampled_from([f for f in FILES if (book.root / f).is_file()
                                      and f.endswith(("json", "yml", "ipynb"))]))  # fmt: skip
    path = book.root / file
    tree = yaml.safe_load(path.read_text("utf8"))
    place = data.draw(st.sampled_from(list(values(tree))))
    inside = tree
    for key in place[:-1]:
        inside = inside[key]
    odd = st.sampled_from([None, True, 3, "", "x", [], [None], ["x"], {}, {"x": None}, {"en": 1}])
    if data.draw(st.booleans()):
        inside[place[-1]] = data.draw(odd)
    else:
        del inside[place[-1]]
    path.write_text(json.dumps(tree), "utf8")
    for command in COMMANDS:
        call(*command)


NEW = """\
%%%|%%% zh|%%% md x|%%% code y|```python|```|# 一|$a|[](x.md)|[](gone.ipynb#x)|x = (|1/0|---
{{ oldest_pytorch }}|%matplotlib inline|\tx|raise SystemExit|<b>|\x0c""".replace("\n", "|").split(
    "|"
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_lines_in_a_text_cause_no_traceback(book, call, template, data):
    shutil.copytree(template, book.root, dirs_exist_ok=True)
    path = book.text("adding")
    lines = path.read_text("utf8").split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        new = data.draw(st.sampled_from(NEW))
        how = data.draw(st.sampled_from(["insert", "replace", "delete"]))
        lines[place : place + (how != "insert")] = [] if how == "delete" else [new]
    path.write_text("\n".join(lines), "utf8")
    for command in COMMANDS:
        call(*command)
