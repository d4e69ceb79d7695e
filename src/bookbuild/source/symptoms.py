"""Load and check `book/symptoms.yml`: bugs that raise no error, as people describe them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bookbuild.source.checkout import LANGUAGES, Book, BookError
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

FILE = "book/symptoms.yml"
_WORDINGS = non_empty_list(TEXT, "a list of other wordings")
_SYMPTOM = mapping(
    {
        "id": ID,
        "title": BILINGUAL,
        "also": mapping(dict.fromkeys(LANGUAGES, _WORDINGS)),
        "tell": TEXT | {"minLength": 1, "description": "the code that detects the symptom"},
        "sign": BILINGUAL,
        "causes": non_empty_list(
            mapping(dict.fromkeys(LANGUAGES, TEXT), {"section": TEXT}), "a list"
        ),
    },
    {
        "broken": TEXT,
        "sound": TEXT,
        "bad": TEXT,
        "found": TEXT | {"pattern": "^https://", "description": "an address"},
    },
    "a symptom: keys and values",
)
SCHEMA = Schema(
    {
        "type": "object",
        "properties": {"stand_in": TEXT | {"description": "code"}},
        "additionalProperties": non_empty_list(_SYMPTOM, "a list of symptoms"),
        "description": "families of symptoms",
    }
)


@dataclass(frozen=True)
class Cause:
    """A possible cause of a symptom; `section` is `chapter#cell`, or empty if no chapter treats it.

    `where` is the location of its symptom, for messages.
    """

    text: dict[str, str]
    section: str
    where: str


@dataclass(frozen=True)
class Symptom:
    """A symptom, the code that detects it, and its possible causes, most likely first.

    `broken` and `sound` are code that modifies the file's stand-in program: after `broken`, the
    output of `tell` matches `bad`, after `sound` not. If this needs hardware, `found` is a URL.
    """

    id: str
    where: str  # location for messages: file, line and id
    family: str
    title: dict[str, str]
    also: dict[str, list[str]]
    tell: str
    sign: dict[str, str]
    causes: tuple[Cause, ...]
    broken: str = ""
    sound: str = ""
    bad: str = ""
    found: str = ""


@dataclass(frozen=True)
class Symptoms:
    """All symptoms in file order, and the code of the stand-in program."""

    stand_in: str
    symptoms: tuple[Symptom, ...]


def load(book: Book) -> Symptoms:
    """Return the symptoms of the book.

    Raises:
        BookError: the file is malformed; the message gives line, symptom and expected value.
    """
    families = SCHEMA.read(book.root / FILE, FILE)
    rows = [(name, row) for name in families if name != "stand_in" for row in families[name]]
    symptoms = tuple(_symptom(row, str(family)) for family, row in rows)
    return Symptoms(families.get("stand_in", ""), symptoms)


def _symptom(row: Row, family: str) -> Symptom:
    where = f"{FILE}:{row.line}: {row['id']}"
    if bool(row.get("broken") and row.get("bad")) == bool(row.get("found")):
        raise BookError(f"{where}: expected either `broken` and `bad`, or `found`")
    try:
        re.compile(row.get("bad", ""))
    except re.error as error:
        raise BookError(f"{where}: bad: not a regular expression: {error}") from None
    return Symptom(
        row["id"],
        where,
        family,
        one_line(row["title"]),
        row["also"],
        row["tell"].strip(),
        one_line(row["sign"]),
        tuple(Cause(one_line(c), c.get("section", ""), where) for c in row["causes"]),
        *(row.get(name, "") for name in ("broken", "sound", "bad", "found")),
    )


def problems(book: Book, symptoms: Symptoms) -> Iterator[str]:
    """Yield one line for each problem of all symptoms together, such as duplicate ids."""
    rows = symptoms.symptoms
    yield from repeated("id", ((one.id, one.where) for one in rows))
    for one in rows:
        both = [one.title, one.sign, *(cause.text for cause in one.causes)]
        for text in [*one.also["zh"], *(words["zh"] for words in both)]:
            yield from (f"{one.where}: {problem}" for problem in lint(text))
        for words in both[1:]:  # not the title, which uses readers' own words
            yield from (f"{one.where}: {problem}" for problem in lint_english(words["en"]))
        for cause in one.causes:
            if cause.section:
                try:
                    locate_section(book, cause.section, cause.where)
                except BookError as error:
                    yield str(error)
    without = [c for one in rows for c in one.causes if not c.section]
    total = sum(len(one.causes) for one in rows)
    if 3 * len(without) > total:
        yield f"{FILE}: {len(without)} of {total} causes have no section, at most a third may"
