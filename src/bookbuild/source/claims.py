"""Load the claims of the old notes from `book/claims.yml`."""

from __future__ import annotations

from dataclasses import dataclass

from bookbuild.source.checkout import Book
from bookbuild.source.data_files import BILINGUAL, TEXT, Row, Schema, mapping

FILE = "book/claims.yml"
VERDICTS = ("holds", "partial", "outdated", "wrong", "broken-code", "unsafe")
_CLAIM = mapping(
    {"id": TEXT, "note": {}, "verdict": {"enum": VERDICTS}, "says": BILINGUAL, "today": BILINGUAL},
    {"since": {}, "proof": BILINGUAL},
    "a claim: keys and values",
)
SCHEMA = Schema(
    {
        "type": ["object", "null"],
        "additionalProperties": {
            "type": ["array", "null"],
            "items": _CLAIM,
            "description": "a list of claims",
        },
        "description": "chapters with their claims",
    }
)


@dataclass(frozen=True)
class Claim:
    """A claim of the old notes and what is true today, in both languages.

    `proof` is empty if a cell proves the claim (the cell's metadata names it), else it is the
    reason why no cell can prove it.
    """

    id: str
    line: int
    chapter: str
    note: str
    verdict: str
    since: str
    says: dict[str, str]
    today: dict[str, str]
    proof: dict[str, str]

    @property
    def where(self) -> str:
        """Location for messages: file, line and id."""
        return f"{FILE}:{self.line}: {self.id}"


def load(book: Book) -> list[Claim]:
    """Return all claims of `book/claims.yml` in file order.

    Raises:
        BookError: the file is malformed.
    """
    path = book.root / FILE
    chapters = SCHEMA.read(path, FILE) if path.exists() else None
    return [_claim(row, name) for name, rows in (chapters or {}).items() for row in rows or ()]


def _claim(row: Row, chapter: object) -> Claim:
    return Claim(
        id=row["id"],
        line=row.line,
        chapter=str(chapter),
        note=str(row["note"]),
        verdict=row["verdict"],
        since=str(row.get("since", "")),
        says=row["says"],
        today=row["today"],
        proof=row.get("proof", {}),
    )
