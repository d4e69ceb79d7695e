"""Load the texts of the rules of `helpers.review` from `book/review.yml` and the pitfalls.

The wrong code of each rule is in `cases.txt`, which the tests of the rules use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bookbuild.source import pitfalls
from bookbuild.source.checkout import Book, BookError, read_text
from bookbuild.source.data_files import (
    BILINGUAL,
    ID,
    TEXT,
    Row,
    Schema,
    mapping,
    non_empty_list,
    one_line,
    repeated,
)
from bookbuild.source.outline import locate_section
from bookbuild.source.typography import lint, lint_english

FILE = "book/review.yml"
CASES = "tests/helpers/review/cases.txt"
SCHEMA = Schema(
    {
        "type": "object",
        "additionalProperties": non_empty_list(
            mapping(
                {"id": ID, "effect": BILINGUAL, "fix": TEXT | {"description": "the fix as code"}},
                {"section": TEXT | {"description": "`chapter#cell`"}},
                "a rule: keys and values",
            ),
            "a list of rules",
        ),
        "description": "families of rules",
    }
)


@dataclass(frozen=True)
class RuleText:
    """Texts of a rule; `why` is the answer of its pitfall's section, "" without a pitfall."""

    id: str
    family: str
    where: str  # location for messages: file, line and id
    effect: dict[str, str]
    fix: str
    href: str
    titles: dict[str, str]
    why: dict[str, str]


@dataclass(frozen=True)
class Case:
    """Wrong code of a rule, without the usual imports of PyTorch, and the lines to report."""

    wrong: str
    lines: tuple[int, ...]


_CASE = re.compile(r"^=== (\S+)\n(.*?)^--- right\n", re.S | re.M)
_IMPORTS = re.compile(  # PyTorch imports if no others follow; the page omits them
    r"\A(?:import torch\n|from torch import nn\n|import torch\.nn\.functional as F\n)+"
    r"(?!import |from )"
)
_MARK = "  # <-"


def cases(book: Book) -> dict[str, Case]:
    """Return the wrong code of each rule by the rule's id.

    Raises:
        BookError: the file cannot be read.
    """
    return {name: _case(code) for name, code in _CASE.findall(read_text(book.root / CASES, CASES))}


def _case(code: str) -> Case:
    lines = _IMPORTS.sub("", code).rstrip().split("\n")
    marked = tuple(number for number, line in enumerate(lines, 1) if line.endswith(_MARK))
    return Case("\n".join(line.removesuffix(_MARK) for line in lines), marked)


def load(book: Book) -> list[RuleText]:
    """Return the texts of all rules in file order; an empty list if the file does not exist.

    Raises:
        BookError: the file is malformed, or a rule has no section.
    """
    if not (book.root / FILE).is_file():
        return []
    known = {one.id: one for one in pitfalls.load(book)}
    families = SCHEMA.read(book.root / FILE, FILE)
    return [_rule_text(book, row, str(name), known) for name in families for row in families[name]]


def _rule_text(book: Book, row: Row, family: str, known: dict[str, pitfalls.Pitfall]) -> RuleText:
    where, pitfall = f"{FILE}:{row.line}: {row['id']}", known.get(row["id"])
    if bool(pitfall) == bool(row.get("section")):
        raise BookError(f"{where}: expected either the id of a pitfall, or a `section`")
    place = row.get("section") or f"{pitfall.part.name}#{pitfall.part.id}"
    href, titles = locate_section(book, place, where)
    why = pitfall.part.answer if pitfall else dict.fromkeys(row["effect"], "")
    effect, fix = one_line(row["effect"]), row["fix"].rstrip()
    return RuleText(
        row["id"], family, where, effect, fix, href.replace(".ipynb", ".html"), titles, why
    )


def problems(rules: list[RuleText]) -> Iterator[str]:
    """Yield one line for each problem of all rules together, such as duplicate ids."""
    yield from repeated("id", ((one.id, one.where) for one in rules))
    for one in rules:
        yield from (f"{one.where}: {problem}" for problem in lint(one.effect["zh"]))
        yield from (f"{one.where}: {problem}" for problem in lint_english(one.effect["en"]))
