"""Collect the pitfalls from the texts: one line of wrong code and one of right code each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bookbuild.source.checkout import Book
from bookbuild.source.outline import Part, sections
from bookbuild.source.texts import Cell, comments
from bookbuild.source.texts import load as load_text

ANY = "…"  # wildcard in a pitfall's code


@dataclass(frozen=True)
class Pitfall:
    """A pitfall of a section; `right` is empty if the fix is the section's answer in words."""

    id: str  # id of the wrong cell, which is permanent
    part: Part
    wrong: str
    right: str = ""


def load(book: Book) -> list[Pitfall]:
    """Return all pitfalls, in reading order.

    Raises:
        BookError: a text is malformed.
    """
    return [
        Pitfall(cell.id, part, *cell.pitfall)
        for name in book.chapters
        for part in sections(load_text(book, name))
        for cell in part.code
        if cell.pitfall
    ]


def problems(book: Book, names: Collection[str]) -> Iterator[str]:
    """Yield one line for each problem of the pitfalls of chapters `names`.

    Every section with a cell tagged `wrong` must have a pitfall. Its wrong code must occur in that
    cell, its right code in a cell of the section tagged `right`; without right code, the section
    needs an answer. Whitespace and semicolons are ignored, and `…` matches any text.
    """
    for name in (name for name in book.chapters if name in names):
        for part in sections(load_text(book, name)):
            wrong = [cell for cell in part.code if "wrong" in cell.metadata.get("tags", ())]
            if wrong and not any(cell.pitfall for cell in part.code):
                yield f"{_at(name, wrong[0])}: tagged `wrong`, but without a `%%% pitfall` block"
            for cell in part.code:
                if cell.pitfall:
                    yield from (f"{_at(name, cell)}: pitfall: {p}" for p in _problems(part, cell))


def _problems(part: Part, cell: Cell) -> Iterator[str]:
    wrong, right = [*cell.pitfall, ""][:2]
    if "wrong" not in cell.metadata.get("tags", ()):
        yield "the cell is not tagged wrong"
    if not _has(cell, wrong):
        yield f"the cell has no {wrong!r}"
    if right and not any(
        _has(c, right) for c in part.code if "right" in c.metadata.get("tags", ())
    ):
        yield f"no cell of the section that is tagged right has {right!r}"
    if not right and not all(part.answer.values()):
        yield "neither right code, nor an answer under the heading"


def _at(name: str, cell: Cell) -> str:
    return f"book/text/{name}.md:{cell.line}: {cell.id}"


def _has(cell: Cell, code: str) -> bool:
    lines = cell.source.split("\n")
    for row, column, _ in comments(cell.source):
        lines[row] = lines[row][:column]
    pieces = (re.escape(_bare(piece)) for piece in code.split(ANY))
    return re.search(".*?".join(pieces), _bare("\n".join(lines))) is not None


def _bare(code: str) -> str:
    return re.sub(r"[\s;]", "", code)
