"""Load the records of runs: PyTorch versions per chapter, and the last run that passed."""

from __future__ import annotations

import re

from bookbuild.source.checkout import Book, read_text
from bookbuild.source.data_files import TEXT, Schema, mapping

VERSIONS = "book/versions.json"  # `make versions` writes it
VALIDATED = "book/validated.json"  # `make validated` writes it


def _rows(values: dict, keys: str = "", description: str = "") -> dict:
    """Return the schema of a mapping with any keys, or with those that match a pattern."""
    schema = {"type": "object", "additionalProperties": values}
    if keys:
        schema |= {"additionalProperties": False, "patternProperties": {keys: values}}
    return schema | ({"description": description} if description else {})


_TESTED = Schema(
    _rows(
        mapping({"chapters": _rows(TEXT), "differs": _rows(_rows(TEXT))}),
        r"^\d+(\.\d+)*(\+.*)?$",
        "a version of PyTorch with `chapters` and `differs`",
    )
)
_RUN = {"date": TEXT, "torch": TEXT, "seconds": {"type": "number"}}
_DEVICES = {"cpu": mapping(_RUN), "gpu": mapping({**_RUN, "card": TEXT})}
_VALIDATED = Schema(_rows(mapping({}, _DEVICES)))


def tested(book: Book) -> dict[str, dict]:
    """Return the PyTorch versions tested besides the pinned one, oldest first.

    Each value has `chapters`, with the date of each run, and `differs`, with the cells whose result
    differs and what they raise.

    Raises:
        BookError: the file is damaged.
    """
    path = book.root / VERSIONS
    runs = _TESTED.read(path, VERSIONS) if path.exists() else {}
    return {version: runs[version] for version in sorted(runs, key=_number)}


def validated(book: Book) -> dict[str, dict[str, dict]]:
    """Return the last passing test runs: notebook -> device -> date, torch, seconds, card.

    Raises:
        BookError: the file is damaged.
    """
    path = book.root / VALIDATED
    return _VALIDATED.read(path, VALIDATED) if path.exists() else {}


def oldest(book: Book, chapter: str) -> str:
    """Return the oldest version tested with a chapter, such as `2.11`; else the pinned version."""
    versions = [version for version, run in tested(book).items() if chapter in run["chapters"]]
    if not versions and (requirements := book.root / "requirements.txt").exists():
        pinned = read_text(requirements, requirements.name)
        versions = re.findall(r"^torch==(\S+)", pinned, re.M)
    return ".".join(versions[0].split(".")[:2]) if versions else ""


def _number(version: str) -> list[int]:
    return [int(part) for part in version.partition("+")[0].split(".")]
