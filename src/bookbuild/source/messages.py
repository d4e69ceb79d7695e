"""Load and check the error messages in `book/messages/*.yml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bookbuild.source.checkout import ERRORS_OF, Book, BookError
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

FOLDER = "messages"
TORCH = "torch"  # `found: torch`: the constant text occurs in files of installed packages
MATCHER = Path(__file__).with_name("matcher.yml")
VARIABLE = re.compile(r"\{\w+\}")
# values that are not in the wording
AROUND = {"{package}", "{importer}", "{owner}", "{caller}", "{inside}", "{object}", "{similar}"}
_ADVICE = {"cure": TEXT, "cure_zh": TEXT, "section": TEXT}
_WORDING = mapping({"text": TEXT}, {"found": TEXT, "until": {}}) | {
    "type": ["string", "object"],
    "description": "a wording: a text, or `text` with `found` or `until`",
}
_CASE = mapping(
    {"id": ID, "cause": BILINGUAL},
    _ADVICE
    | {"when": {"type": "object"}, "near": TEXT, "several": {"type": "boolean"}}
    | {"numbers": non_empty_list(TEXT, "a list of relations, such as `m multiple of n`")},
)
_ENTRY = mapping(
    {"id": ID, "cause": BILINGUAL, "wordings": non_empty_list(_WORDING, "a list of wordings")},
    _ADVICE
    | {"run": TEXT, "found": TEXT, "wraps": {"type": "boolean"}, "several": {"type": "boolean"}}
    | {"cases": non_empty_list(_CASE, "a list of special cases")},
    "a message: keys and values",
)
SCHEMA = Schema(
    mapping(
        {
            "family": mapping({"title": BILINGUAL, "heading": BILINGUAL, "description": BILINGUAL}),
            "messages": non_empty_list(_ENTRY, "a list of messages"),
        },
        description="`family` and `messages`",
    )
)


@cache
def matcher() -> dict[str, Any]:
    """Return the rules for matching a pasted text with the messages (`matcher.yml`)."""
    return yaml.load(MATCHER.read_text("utf8"), yaml.CSafeLoader)


@dataclass(frozen=True)
class Family:
    """A family of messages: a file of `book/messages` and the page made from it.

    Lists show `title`; the page of the family shows `heading` and `description`. Each has a text
    for `en` and `zh`.
    """

    name: str
    title: dict[str, str]
    heading: dict[str, str]
    description: dict[str, str]

    @property
    def page(self) -> str:
        """Name of the family's page, without a suffix."""
        return ERRORS_OF + self.name


@dataclass
class Entry:
    """A message, or a special case of one (then with `when`, `numbers` or `near`).

    `wordings` may contain `{variable}` parts. `proofs` has one item per wording: `"torch"`, a URL,
    or `""` if `run` or a cell of the book must print the wording. `several` is True if the cause
    lists possible causes between which the message does not decide.
    """

    id: str
    file: str
    line: int
    cause: dict[str, str]
    cure: str = ""
    cure_zh: str = ""
    section: str = ""
    wordings: list[str] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    until: list[str] = field(default_factory=list)
    run: str = ""
    wraps: bool = False
    several: bool = False
    when: dict[str, str] = field(default_factory=dict)
    numbers: list[str] = field(default_factory=list)
    near: str = ""
    cases: list[Entry] = field(default_factory=list)

    @property
    def where(self) -> str:
        """Location for messages: file, line and id."""
        return f"{self.file}:{self.line}: {self.id}"

    @property
    def family(self) -> str:
        """Name of the message's family."""
        return Path(self.file).stem


def families(book: Book) -> list[Family]:
    """Return the families of messages in the order of their pages in `_toc.yml`.

    Raises:
        BookError: a file is malformed.
    """
    order = {page: number for number, page in enumerate(book.pages)}
    listed = []
    for path in _files(book):
        head = SCHEMA.read(path, book.relative(path))["family"]
        listed.append(Family(path.stem, **{key: one_line(both) for key, both in head.items()}))
    return sorted(listed, key=lambda family: order.get(family.page, len(order)))


def load(book: Book) -> list[Entry]:
    """Return all messages, ordered by file name.

    Raises:
        BookError: a file is malformed; the message gives line, entry and expected value.
    """
    return [
        _entry(row, book.relative(path))
        for path in _files(book)
        for row in SCHEMA.read(path, book.relative(path))["messages"]
    ]


def _files(book: Book) -> list[Path]:
    return sorted((book.root / "book" / FOLDER).glob("*.yml"))


def _entry(row: Row, file: str) -> Entry:
    entry = _advice(row, file)
    entry.run, entry.wraps = row.get("run", "").strip(), row.get("wraps", False)
    for wording in row["wordings"]:
        own = {"text": wording} if isinstance(wording, str) else wording
        if not VARIABLE.sub("", own["text"]).strip(" :"):
            raise BookError(f"{entry.where}: a wording without a constant part: {own['text']!r}")
        entry.wordings.append(" ".join(own["text"].split()))
        entry.proofs.append(own.get("found") or row.get("found", ""))
        entry.until.append(str(own.get("until", "")))
    variables = set(VARIABLE.findall(" ".join(entry.wordings)))
    entry.cases = [_case(case, file, variables) for case in row.get("cases", ())]
    for one in (entry, *entry.cases):
        used = VARIABLE.findall(" ".join([*one.cause.values(), one.cure, one.cure_zh]))
        if unknown := {*used} - variables - AROUND:
            raise BookError(f"{one.where}: no wording has {', '.join(sorted(unknown))}")
    return entry


def _case(row: Row, file: str, variables: set[str]) -> Entry:
    case = _advice(row, file)
    case.near = row.get("near", "").strip()
    case.when = {str(name): str(pattern) for name, pattern in row.get("when", {}).items()}
    case.numbers = [str(relation) for relation in row.get("numbers", ())]
    if not (case.when or case.numbers or case.near):
        raise BookError(f"{case.where}: a case needs a condition: when, numbers or near")
    for pattern in (case.near, *case.when.values()):
        _check_pattern(pattern, case.where)
    named = {name for relation in case.numbers for name in _names(relation, case.where)}
    if unknown := {f"{{{name}}}" for name in {*case.when, *named}} - variables - AROUND:
        raise BookError(f"{case.where}: no wording has {', '.join(sorted(unknown))}")
    return case


def _names(relation: str, where: str) -> Iterator[str]:
    """Yield the variable names that a relation compares.

    Raises:
        BookError: it does not have the syntax documented in `helpers.explain.conditions.related`.
    """
    patterns = matcher()["patterns"]
    parts = re.fullmatch(patterns["relation"], relation)
    terms = [re.fullmatch(patterns["term"], parts[n]) for n in (1, 3)] if parts else [None]
    if not all(terms):
        raise BookError(
            f"{where}: {relation!r}: expected two terms with a relation between them, "
            "such as `m multiple of n` or `product(shape) > n`"
        )
    yield from (name for term in terms for name in (term[3], term[5]) if name)


def _advice(row: Row, file: str) -> Entry:
    """Return an `Entry` with the fields that messages and special cases share."""
    texts = {name: row.get(name, "").strip() for name in _ADVICE}
    several = row.get("several", False)
    return Entry(row["id"], file, row.line, one_line(row["cause"]), several=several, **texts)


@cache
def _check_pattern(pattern: str, where: str) -> None:
    """Raise a `BookError` unless a pattern is valid in both Python and JavaScript."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise BookError(f"{where}: {pattern!r} is not a regular expression: {error}") from None
    if re.search(r"\(\?[^:=!]", pattern):
        raise BookError(
            f"{where}: {pattern!r}: expected what Python and JavaScript share, without "
            "flags, names or a look behind; case is ignored anyway"
        )


def problems(book: Book, entries: list[Entry]) -> Iterator[str]:
    """Yield one line for each problem of all messages together, such as duplicate ids."""
    pages = book.pages
    for family in families(book) if "errors" in pages else ():
        if family.page not in pages:
            yield f"book/{FOLDER}/{family.name}.yml: _toc.yml does not list {family.page}"
    everything = [one for entry in entries for one in (entry, *entry.cases)]
    yield from repeated("id", ((one.id, one.where) for one in everything))
    wordings = ((text.lower(), entry.where) for entry in entries for text in entry.wordings)
    yield from repeated("wording", wordings)
    for one in everything:
        cause = {lang: VARIABLE.sub("x", text) for lang, text in one.cause.items()}
        for problem in (*lint_english(cause["en"]), *lint(cause["zh"])):
            yield f"{one.where}: {problem}"
        if one.section:
            try:
                locate_section(book, one.section, one.where)
            except BookError as error:
                yield str(error)
