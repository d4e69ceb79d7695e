"""Load `book/moved.yml`: old and new addresses of pages and sections."""

from __future__ import annotations

from bookbuild.source.checkout import Book, BookError
from bookbuild.source.data_files import Schema

FILE = "book/moved.yml"
_ADDRESS = r"^[\w/-]+(#[\w.-]+)?$"
_LINES = "lines such as `old_page#section: new_page#section`"
_SCHEMA = Schema(
    {
        "type": ["object", "null"],
        "patternProperties": {
            _ADDRESS: {"type": "string", "pattern": _ADDRESS, "description": _LINES}
        },
        "additionalProperties": False,
        "description": _LINES,
    }
)


def load(book: Book) -> dict[str, str]:
    """Return new addresses by old address, relative to a language's folder, without `.html`.

    Chains of moves are resolved to the last address.

    Raises:
        BookError: the file is malformed, or addresses form a cycle.
    """
    path = book.root / FILE
    lines = (_SCHEMA.read(path, FILE) if path.is_file() else None) or {}
    return {old: _last(lines, old) for old in lines}


def _last(lines: dict[str, str], old: str) -> str:
    passed = [old]
    new = lines[old]
    while new in lines:
        if new in passed:
            raise BookError(f"{FILE}: {old}: leads back to itself: {' → '.join(passed)}")
        passed.append(new)
        new = lines[new]
    return new
