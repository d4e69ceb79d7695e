"""Test which tests `make quick` selects for a change."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def quick():
    spec = importlib.util.spec_from_file_location("quick", ROOT / "tests/quick.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "tests", "notebook"),
    [
        ("src/helpers/detach.py", {"helpers/test_detach"}, "detach"),
        ("src/helpers/exercises/detach.py", {"helpers/test_detach"}, "detach"),
        ("src/helpers/fake.py", {"helpers/test_fake"}, None),
        (
            "src/helpers/explorers/keys.js",
            {"helpers/test_keys_explorer", "helpers/test_explorer_scripts"},
            None,
        ),
        ("book/text/detach.md", {"helpers/test_detach"}, "detach"),
        (
            "book/messages/python.yml",
            {"helpers/test_explain", "bookbuild/test_messages"},
            None,
        ),
        ("src/bookbuild/source/typography.py", {"bookbuild/test_typography"}, None),
        ("book/_static/search.js", {"site/test_build", "site/test_search"}, None),
        ("tests/helpers/test_detach.py", {"helpers/test_detach"}, None),
        ("tests/helpers/gone.py", set(), None),
    ],
)
def test_changed_file_selects_its_tests_and_notebook(quick, path, tests, notebook):
    assert {f"tests/{name}.py" for name in tests} <= quick.tests_of(path)
    assert quick.notebook_of(path) == ({f"book/en/{notebook}.ipynb"} if notebook else set())


def test_messages_of_returns_only_changed_messages(quick, monkeypatch):
    path = "book/messages/python.yml"
    first, *others = yaml.safe_load((ROOT / path).read_text("utf8"))["messages"]
    before = [first | {"cure": "another"}, *others[1:]]
    monkeypatch.setattr(quick, "git", lambda *command: yaml.safe_dump({"messages": before}))
    assert quick.messages_of(path, "HEAD") == {first["id"], others[0]["id"]}
    assert quick.messages_of("book/messages/gone.yml", "HEAD") == set()
