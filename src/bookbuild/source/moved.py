"""Old addresses of pages and sections, and where each leads now: `book/moved.yml`."""

from __future__ import annotations

from bookbuild.source.checkout import Book
from bookbuild.source.facts import Form

FILE = "book/moved.yml"
_ADDRESS = r"^[\w/-]+(#[\w.-]+)?$"
_LINES = "lines such as `old_page#section: new_page#section`"
_FORM = Form(
    {
        "type": ["object", "null"],
        "patternProperties": {
            _ADDRESS: {"type": "string", "pattern": _ADDRESS, "description": _LINES}
        },
        "additionalProperties": False,
        "description": _LINES,
    }
)


def moved(book: Book) -> dict[str, str]:
    """Return old addresses and new ones, below the folder of a language and without `.html`.

    Raises:
        BookError: the file has another form.
    """
    path = book.root / FILE
    return (_FORM.read(path, FILE) if path.is_file() else None) or {}
