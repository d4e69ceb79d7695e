"""Test that the PyTorch version promised by pages and package was tested."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from bookbuild.commands.update import update
from bookbuild.notebooks.files import read
from bookbuild.source import versions
from bookbuild.source.checkout import Book, BookError

REAL = Book.find(Path(__file__))


def test_required_torch_is_the_oldest_that_ran_every_chapter():
    project = tomllib.loads((REAL.root / "pyproject.toml").read_text("utf8"))["project"]
    floor = next(d for d in project["dependencies"] if d.startswith("torch>="))
    oldest = [tuple(map(int, versions.oldest(REAL, c).split("."))) for c in REAL.chapters]
    assert floor == "torch>=" + ".".join(map(str, max(oldest)))


def test_page_shows_the_oldest_version_that_ran_its_chapter(book, mend):
    mend("adding", "Addition needs", "It needs PyTorch {{ oldest_pytorch }}.\nAddition needs")
    runs = {v: {"chapters": {"adding": ""}, "differs": {}} for v in ("2.15.0", "2.9.1")}
    runs["2.8.0"] = {"chapters": {"failing": ""}, "differs": {}}
    (book.root / "book/versions.json").write_text(json.dumps(runs))
    assert update(book, ["adding"], echo=lambda line: None) == {}
    assert "PyTorch 2.9." in read(book.notebook("en", "adding")).cells[0].source


def test_untested_chapter_requires_the_pinned_version(book):
    (book.root / "requirements.txt").write_text("numpy==2.0\ntorch==2.14.1\n")
    assert versions.oldest(book, "adding") == "2.14"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"2.9": {}}',
        '{"2.9": {"chapters": ["adding"], "differs": {}}}',
        '{"x": {"chapters": {}, "differs": {}}}',
    ],
)
def test_damaged_versions_file_raises(book, text):
    (book.root / "book/versions.json").write_text(text)
    with pytest.raises(BookError, match="versions.json(:1)?: damaged"):
        versions.tested(book)
