"""The versions of PyTorch that the chapters ran under: `book/versions.json`, by `make versions`."""

from __future__ import annotations

import json
import re

from bookbuild.source.checkout import Book, BookError, read_text

FILE = "versions.json"


def tested(book: Book) -> dict[str, dict]:
    """Other versions of PyTorch, oldest first: `chapters`, each with the date when it ran, and the
    cells that `differs`, each with what it raises instead.

    Raises:
        BookError: the file is damaged.
    """
    path = book.root / "book" / FILE
    if not path.exists():
        return {}
    try:
        found = json.loads(read_text(path, FILE))
        for run in found.values():
            if not all(isinstance(date, str) for date in run["chapters"].values()):
                raise ValueError("a chapter without the date when it ran")
            if not all(
                isinstance(text, str)
                for cells in run["differs"].values()
                for text in cells.values()
            ):
                raise ValueError("a cell that differs without its words")
        return {key: found[key] for key in sorted(found, key=_number)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BookError(f"{FILE}: damaged, restore it with git: {error}") from None


def oldest(book: Book, chapter: str) -> str:
    """The oldest version that a chapter ran under, such as `2.11`; else the pinned one."""
    ran = [name for name, run in tested(book).items() if chapter in run["chapters"]]
    if not ran and (requirements := book.root / "requirements.txt").exists():
        ran = re.findall(r"^torch==(\S+)", read_text(requirements, requirements.name), re.M)
    return ".".join(ran[0].split(".")[:2]) if ran else ""


def _number(name: str) -> list[int]:
    return [int(part) for part in name.partition("+")[0].split(".")]
