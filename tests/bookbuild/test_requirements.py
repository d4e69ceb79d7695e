"""Test the requirements that `make` installs and the packages for offline machines."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
EXTRAS = ("book", "export", "lab", "monitoring", "test", "video")
PROJECT = "executable-pytorch-notes"


def pinned(name):
    lines = (ROOT / name).read_text("utf8").splitlines()
    return dict(re.fullmatch(r"(\S+)==(\S+)", x).groups() for x in lines if not x.startswith("#"))


FULL, LIGHT = pinned("requirements.txt"), pinned("requirements-book.txt")
FILES = {"requirements.txt": FULL, "requirements-book.txt": LIGHT}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements_of(name, extra):
    """Yield the requirements of a distribution in this environment, with or without an extra."""
    for requirement in map(Requirement, metadata.requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield from ((normal(requirement.name), e) for e in ("", *requirement.extras))


def all_requirements(todo):
    """Return the names of all direct and indirect requirements of distributions with extras."""
    todo, seen = list(todo), set()
    while todo:
        if (asked := todo.pop()) not in seen:
            seen.add(asked)
            # the requirements of torch (CUDA libraries) depend on the platform
            todo += [] if asked[0] == "torch" else requirements_of(*asked)
    return {name for name, _ in seen} - {PROJECT}


def test_every_required_package_is_pinned():
    assert all_requirements((PROJECT, extra) for extra in ("", *EXTRAS)) <= set(map(normal, FULL))


def test_page_requirements_match_the_book_extra():
    """Pin exactly the packages that the `book` extra requires."""
    book = set(requirements_of(PROJECT, "book")) - set(requirements_of(PROJECT, ""))
    assert all_requirements(book) == set(map(normal, LIGHT))
    assert "torch" not in LIGHT and "numpy" not in LIGHT


def test_page_pins_equal_the_full_pins():
    assert LIGHT.items() <= FULL.items()


def test_installed_versions_match_the_pins():
    installed = {name: metadata.version(name).partition("+")[0] for name in FULL}
    assert installed == FULL


@pytest.mark.parametrize("name", FILES)
def test_pins_are_sorted_and_contain_no_address(name):
    assert list(FILES[name]) == sorted(FILES[name], key=str.lower)
    text = (ROOT / name).read_text("utf8")
    assert "://" not in text and "--" not in text and " @ " not in text


def test_version_is_the_same_in_all_files():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]["version"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))["version"]
    first, *released = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf8"), re.M)
    assert first in ("Unreleased", version) and (released or [first])[0] == version == cited
    assert metadata.version(PROJECT) == version
