"""Bugs without a message, as people say them: `book/symptoms.yml`, and what proves each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from bookbuild.source.checkout import LANGUAGES, Book, BookError, read_text
from bookbuild.source.outline import section
from bookbuild.source.typography import lint

FILE = "symptoms.yml"
_FIELDS = {"id", "says", "also", "tell", "sign", "broken", "sound", "bad", "found", "causes"}
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Cause:
    """What may be behind a symptom; `section` is `chapter#cell`, or empty if no chapter treats it.

    `where` names its symptom in problems.
    """

    says: dict[str, str]
    section: str
    where: str


@dataclass(frozen=True)
class Symptom:
    """What people see, how to tell, and what may be behind it, the likeliest first.

    `broken` and `sound` change the stand-in of the file; the output of `tell` has `bad` after the
    first and not after the second. Where that needs hardware, `found` is the address that says so.
    """

    id: str
    family: str
    says: dict[str, str]
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
    """All of them in the file's order, and the code that makes the stand-in."""

    stand_in: str
    symptoms: tuple[Symptom, ...]


def load(book: Book) -> Symptoms:
    """The symptoms of the book.

    Raises:
        BookError: the file has another form; the message names the symptom and what was expected.
    """
    path = book.root / "book" / FILE
    return _parse(read_text(path, book.relative(path)))


@lru_cache(maxsize=8)
def _parse(text: str) -> Symptoms:
    try:
        families = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise BookError(f"{FILE}: {' '.join(str(error).split())}") from None
    if not isinstance(families, dict):
        raise BookError(f"{FILE}: expected families of symptoms, got {type(families).__name__}")
    families = dict(families)
    stand_in = families.pop("stand_in", "")
    if not isinstance(stand_in, str):
        raise BookError(f"{FILE}: stand_in: expected code, got {stand_in!r}")
    found = []
    for family, rows in families.items():
        if not isinstance(rows, list) or not rows:
            raise BookError(f"{FILE}: {family}: expected a list of symptoms")
        found += [_symptom(row, str(family)) for row in rows]
    return Symptoms(stand_in, tuple(found))


def _symptom(row: Any, family: str) -> Symptom:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise BookError(f"{FILE}: {family}: expected a symptom with an id, got {str(row)[:60]!r}")
    where = f"{FILE}::{row['id']}"
    if not _ID.fullmatch(row["id"]):
        raise BookError(f"{where}: expected an id of small letters, digits and hyphens")
    if unknown := row.keys() - _FIELDS:
        raise BookError(f"{where}: unknown: {', '.join(sorted(map(str, unknown)))}")
    for name in ("tell", "broken", "sound", "bad", "found"):
        if not isinstance(row.get(name, ""), str):
            raise BookError(f"{where}: {name}: expected a text, got {row[name]!r}")
    if not row.get("tell"):
        raise BookError(f"{where}: expected `tell`, the code that tells")
    proved = bool(row.get("broken") and row.get("bad"))
    if proved == bool(row.get("found")):
        raise BookError(f"{where}: expected either `broken` and `bad`, or `found`")
    if row.get("found", "https://")[:8] != "https://":
        raise BookError(f"{where}: found: expected an address, got {row['found']!r}")
    try:
        re.compile(row.get("bad", ""))
    except re.error as error:
        raise BookError(f"{where}: bad: no regular expression: {error}") from None
    also = row.get("also")
    if not isinstance(also, dict) or not all(
        isinstance(also.get(x), list) and also[x] and all(isinstance(s, str) for s in also[x])
        for x in LANGUAGES
    ):
        raise BookError(f"{where}: expected `also` with a list of other wordings in en and zh")
    causes = row.get("causes")
    if not isinstance(causes, list) or not causes:
        raise BookError(f"{where}: expected `causes`, a list")
    return Symptom(
        row["id"],
        family,
        _both(row.get("says"), f"{where}: says"),
        {lang: also[lang] for lang in LANGUAGES},
        row["tell"].strip(),
        _both(row.get("sign"), f"{where}: sign"),
        tuple(_cause(cause, where) for cause in causes),
        *(row.get(name, "") for name in ("broken", "sound", "bad", "found")),
    )


def _cause(row: Any, where: str) -> Cause:
    says = _both(row, f"{where}: cause")
    if unknown := row.keys() - {*LANGUAGES, "section"}:
        raise BookError(f"{where}: cause: unknown: {', '.join(sorted(map(str, unknown)))}")
    if not isinstance(row.get("section", ""), str):
        raise BookError(f"{where}: section: expected a text, got {row['section']!r}")
    return Cause(says, row.get("section", ""), where)


def _both(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(value.get(x), str) for x in LANGUAGES):
        raise BookError(f"{where}: expected en and zh, got {str(value)[:60]!r}")
    return {lang: " ".join(value[lang].split()) for lang in LANGUAGES}


def problems(book: Book, symptoms: Symptoms) -> Iterator[str]:
    """What is wrong with the symptoms as a whole, a line each."""
    found = symptoms.symptoms
    for name, count in Counter(one.id for one in found).items():
        if count > 1:
            yield f"{FILE}: {count} symptoms have the id {name}"
    for one in found:
        chinese = [one.says["zh"], one.sign["zh"], *one.also["zh"]]
        for text in [*chinese, *(cause.says["zh"] for cause in one.causes)]:
            for problem in lint(text):
                yield f"{FILE}::{one.id}: {problem}"
        for cause in one.causes:
            if cause.section:
                try:
                    section(book, cause)
                except BookError as error:
                    yield str(error)
    without = [c for one in found for c in one.causes if not c.section]
    total = sum(len(one.causes) for one in found)
    if 3 * len(without) > total:
        yield f"{FILE}: {len(without)} of {total} causes have no section, at most a third may"
