"""Test functions called in a new process."""

from __future__ import annotations

import json
import os
import time

import pytest

from helpers import child


def test_call_returns_the_result_through_json():
    values = child.call(json.loads, '{"a": [1, null]}')
    assert values == {"a": [1, None]}
    assert child.call(os.getenv, "BOOK_ANSWER", env={"BOOK_ANSWER": "42"}) == "42"
    assert child.call(os.getpid) != os.getpid()
    assert "BOOK_ANSWER" not in os.environ


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (json.loads, ("no json",), "loads failed in a child process: .*JSONDecodeError"),
        (os.abort, (), "abort failed in a child process"),
    ],
)
def test_call_raises_the_error_of_the_child(function, arguments, words):
    with pytest.raises(RuntimeError, match=words):
        child.call(function, *arguments)


def test_call_reports_only_the_last_line_of_the_error():
    with pytest.raises(RuntimeError, match="exec failed in a child process: ValueError: last$"):
        child.call(exec, "raise ValueError('last')")


def test_call_ignores_a_failure_after_the_result():
    assert child.call(exec, "import atexit, os; atexit.register(os._exit, 3)") is None


def test_call_raises_after_the_timeout(monkeypatch):
    monkeypatch.setattr(child, "SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="sleep was not done after 0.1 s in a child process"):
        child.call(time.sleep, 60)


def test_call_raises_if_the_child_cannot_start():
    with pytest.raises(RuntimeError, match="getpid failed in a child process"):
        child.call(os.getpid, env={"PYTHONHOME": "/nowhere"})


def test_run_returns_the_last_line_of_a_program(tmp_path):
    program = "import os, sys\nprint(1)\nprint(os.listdir(), 'torch' in sys.modules)"
    (tmp_path / "a file").touch()
    assert child.run(program, tmp_path) == "['a file'] False"
    assert child.run("print(1)\nassert False, 'two'", tmp_path) == "AssertionError: two"
    assert child.run("", tmp_path) == ""
