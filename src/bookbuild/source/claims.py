"""The claims of the old notes: `book/claims.yml` and the cells that prove them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import yaml

from bookbuild.source.checkout import Book, BookError, read_text

VERDICTS = ("holds", "partial", "outdated", "wrong", "broken-code", "unsafe")


@dataclass(frozen=True)
class Claim:
    """One claim: what a note said and what holds today, in both languages.

    `proof` is empty where a cell proves the claim (the cell's metadata names the claim), else the
    reason why no cell can.
    """

    id: str
    chapter: str
    note: str
    verdict: str
    since: str
    says: dict[str, str]
    today: dict[str, str]
    proof: dict[str, str]


def load(book: Book) -> list[Claim]:
    """All claims of `book/claims.yml`, in the file's order; the file is chapters with their rows.

    Raises:
        BookError: the file is missing, a row lacks a field, or a verdict is unknown.
    """
    path = book.root / "book" / "claims.yml"
    if not path.exists():
        return []
    return list(_parse(read_text(path, "claims.yml")))


@lru_cache(maxsize=2)
def _parse(text: str) -> tuple[Claim, ...]:
    try:
        chapters = yaml.load(text, yaml.CSafeLoader) or {}
    except yaml.YAMLError as error:
        raise BookError(f"claims.yml: {' '.join(str(error).split())}") from None
    if not isinstance(chapters, dict):
        raise BookError("claims.yml: expected chapters with their rows")
    claims = []
    for chapter, rows in chapters.items():
        if not isinstance(rows or [], list):
            raise BookError(f"claims.yml::{chapter}: expected rows of keys and values")
        for row in rows or ():
            if not isinstance(row, dict):
                raise BookError(f"claims.yml::{chapter}: expected rows of keys and values")
            try:
                claim = Claim(
                    chapter=str(chapter),
                    id=str(row["id"]),
                    note=str(row["note"]),
                    verdict=row["verdict"],
                    since=str(row.get("since", "")),
                    says=_both(row["says"]),
                    today=_both(row["today"]),
                    proof=_both(row["proof"]) if row.get("proof") else {},
                )
            except KeyError as error:
                raise BookError(f"claims.yml::{row.get('id', chapter)}: lacks {error}") from None
            except (TypeError, ValueError) as error:
                raise BookError(f"claims.yml::{row.get('id', chapter)}: {error}") from None
            if claim.verdict not in VERDICTS:
                raise BookError(
                    f"claims.yml::{claim.id}: verdict {claim.verdict!r} is none of "
                    f"{', '.join(VERDICTS)}"
                )
            claims.append(claim)
    return tuple(claims)


def _both(texts: object) -> dict[str, str]:
    if not isinstance(texts, dict) or not all(isinstance(texts[x], str) for x in ("en", "zh")):
        raise ValueError("expected a text for en and one for zh")
    return {"en": texts["en"], "zh": texts["zh"]}
