"""requirements.txt: what `make` installs, and all that a machine without internet is given."""

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PINNED = dict(
    re.fullmatch(r"(\S+)==(\S+)", line).groups()
    for line in (ROOT / "requirements.txt").read_text("utf8").splitlines()
    if not line.startswith("#")
)
EXTRAS = ("book", "lab", "monitoring", "test", "video")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def needed():
    """The names of all that the project needs with its extras, directly or not."""
    todo, seen = [("executable-pytorch-notes", extra) for extra in ("", *EXTRAS)], set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name == "torch":  # its own needs differ by platform: the CUDA libraries
            continue
        for requirement in map(Requirement, metadata.requires(name) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                for wanted in ("", *requirement.extras):
                    todo.append((normal(requirement.name), wanted))
    return {name for name, _ in seen} - {"executable-pytorch-notes"}


def test_every_package_that_is_needed_is_pinned():
    assert needed() <= set(map(normal, PINNED))


def test_what_is_installed_is_what_is_pinned():
    installed = {name: metadata.version(name).partition("+")[0] for name in PINNED}
    assert installed == PINNED


def test_pins_are_sorted_and_name_no_place():
    assert list(PINNED) == sorted(PINNED, key=str.lower)
    text = (ROOT / "requirements.txt").read_text("utf8")
    assert "://" not in text and "--" not in text and " @ " not in text
