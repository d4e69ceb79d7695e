"""Test functions called in a new process."""

from __future__ import annotations

import json
import os
import time

import pytest

from helpers import child


def test_a_child_answers_through_json():
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
def test_a_child_that_fails_says_why(function, arguments, words):
    with pytest.raises(RuntimeError, match=words):
        child.call(function, *arguments)


def test_only_the_last_words_of_a_child_are_told():
    with pytest.raises(RuntimeError, match="exec failed in a child process: ValueError: last$"):
        child.call(exec, "raise ValueError('last')")


def test_a_child_that_answered_does_not_fail_while_it_ends():
    assert child.call(exec, "import atexit, os; atexit.register(os._exit, 3)") is None


def test_a_child_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(child, "SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="sleep was not done after 0.1 s in a child process"):
        child.call(time.sleep, 60)


def test_a_child_that_cannot_start_says_so():
    with pytest.raises(RuntimeError, match="getpid failed in a child process"):
        child.call(os.getpid, env={"PYTHONHOME": "/nowhere"})


def test_a_program_runs_in_a_new_process(tmp_path):
    program = "import os, sys\nprint(1)\nprint(os.listdir(), 'torch' in sys.modules)"
    (tmp_path / "a file").touch()
    assert child.run(program, tmp_path) == "['a file'] False"
    assert child.run("print(1)\nassert False, 'two'", tmp_path) == "AssertionError: two"
    assert child.run("", tmp_path) == ""
