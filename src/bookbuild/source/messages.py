"""Messages that readers meet: `book/messages/*.yml`, and what proves each wording."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

from bookbuild.source.checkout import LANGUAGES, Book, BookError, read_text
from bookbuild.source.outline import section
from bookbuild.source.typography import lint

FOLDER = "messages"
PRODUCT = "src/helpers/messages.json"
TORCH = "torch"  # `found: torch`: the wording's constant parts lie in the installed packages
_VARIABLE = re.compile(r"\{\w+\}")
_FIELDS = {"id", "says", "run", "found", "cause", "cure", "cure_zh", "section", "wraps", "cases"}
_OF_CASE = {"id", "when", "near", "cause", "cure", "cure_zh", "section"}


@dataclass
class Entry:
    """A message, or a special case of one (then with `when` or `near`).

    `says` are its wordings with `{variable}` parts; `proofs` has for each what shows that it is
    real: `torch`, an address, or nothing, where `run` or a cell of the book must print it.
    """

    id: str
    file: str
    cause: dict[str, str]
    cure: str = ""
    cure_zh: str = ""
    section: str = ""
    says: list[str] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    until: list[str] = field(default_factory=list)
    run: str = ""
    wraps: bool = False
    when: dict[str, str] = field(default_factory=dict)
    near: str = ""
    cases: list[Entry] = field(default_factory=list)

    @property
    def where(self) -> str:
        """How a problem names it."""
        return f"{self.file}::{self.id}"


def load(book: Book) -> list[Entry]:
    """All messages, in the order of the files' names.

    Raises:
        BookError: a file has another form; the message names the entry and what was expected.
    """
    folder = book.root / "book" / FOLDER
    return [
        entry
        for path in sorted(folder.glob("*.yml"))
        for entry in _parse(read_text(path, book.relative(path)), f"{FOLDER}/{path.name}")
    ]


@lru_cache(maxsize=32)
def _parse(text: str, file: str) -> tuple[Entry, ...]:
    try:
        rows = yaml.load(text, yaml.CSafeLoader) or []
    except yaml.YAMLError as error:
        raise BookError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(rows, list):
        raise BookError(f"{file}: expected a list of messages, got {type(rows).__name__}")
    return tuple(_entry(row, file) for row in rows)


def _entry(row: Any, file: str, case: bool = False) -> Entry:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise BookError(f"{file}: expected a message with an id, got {str(row)[:60]!r}")
    where = f"{file}::{row['id']}"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row["id"]):
        raise BookError(f"{where}: expected an id of small letters, digits and hyphens")
    if unknown := row.keys() - (_OF_CASE if case else _FIELDS):
        raise BookError(f"{where}: unknown: {', '.join(sorted(map(str, unknown)))}")
    cause = row.get("cause")
    if not isinstance(cause, dict) or not all(isinstance(cause.get(x), str) for x in LANGUAGES):
        raise BookError(f"{where}: expected a cause with en and zh")
    for name in ("run", "found", "cure", "cure_zh", "section", "near"):
        if not isinstance(row.get(name, ""), str):
            raise BookError(f"{where}: {name}: expected a text, got {row[name]!r}")
    entry = Entry(
        row["id"],
        file,
        {lang: " ".join(cause[lang].split()) for lang in LANGUAGES},
        **{name: row.get(name, "").strip() for name in ("cure", "cure_zh", "section", "near")},
    )
    if case:
        when = row.get("when", {})
        if not isinstance(when, dict) or not (when or entry.near):
            raise BookError(f"{where}: a case needs a condition: when or near")
        entry.when = {str(k): str(v) for k, v in when.items()}
        for pattern in (entry.near, *entry.when.values()):
            try:
                re.compile(pattern)
            except re.error as error:
                raise BookError(f"{where}: {pattern!r} is no regular expression: {error}") from None
            if re.search(r"\(\?[^:=!]", pattern):
                raise BookError(
                    f"{where}: {pattern!r}: expected what Python and JavaScript share, without "
                    "flags, names or a look behind; case is ignored anyway"
                )
        return entry
    says = row.get("says")
    if not isinstance(says, list) or not says:
        raise BookError(f"{where}: expected `says`, a list of wordings")
    entry.run, entry.wraps = row.get("run", "").strip(), bool(row.get("wraps"))
    for wording in says:
        own = {"text": wording} if isinstance(wording, str) else wording
        if not isinstance(own, dict) or not isinstance(own.get("text"), str):
            raise BookError(f"{where}: expected a wording, got {str(wording)[:60]!r}")
        if not _VARIABLE.sub("", own["text"]).strip(" :"):
            raise BookError(f"{where}: a wording without a constant part: {own['text']!r}")
        entry.says.append(" ".join(own["text"].split()))
        entry.proofs.append(str(own.get("found") or row.get("found", "")))
        entry.until.append(str(own.get("until", "")))
    entry.cases = [_entry(row, file, case=True) for row in row.get("cases") or ()]
    for case_ in entry.cases:
        names = set(_VARIABLE.findall(" ".join(entry.says)))
        if unknown := {f"{{{name}}}" for name in case_.when} - names:
            raise BookError(f"{case_.where}: no wording has {', '.join(sorted(unknown))}")
    return entry


# ---------------------------------------------------------------- what is made of them


def product(book: Book, entries: list[Entry]) -> str:
    """`messages.json` of the helpers: what the matching and the explanations need."""
    titles = {}
    for entry in entries:
        for one in (entry, *entry.cases):
            if one.section:
                titles[one.section] = section(book, one)

    def plain(entry: Entry) -> dict[str, Any]:
        made: dict[str, Any] = {"id": entry.id}
        if entry.says:
            made["says"] = entry.says
        for name in ("when", "near", "cure", "cure_zh"):
            if value := getattr(entry, name):
                made[name] = value
        made["cause"] = entry.cause
        if entry.section:
            href, by_language = titles[entry.section]
            made["section"] = {"href": href.replace(".ipynb", ".html"), **by_language}
        if entry.wraps:
            made["wraps"] = True
        if entry.cases:
            made["cases"] = [plain(case) for case in entry.cases]
        return made

    rows = (json.dumps(plain(e), ensure_ascii=False) for e in entries)
    return "[\n" + ",\n".join(rows) + "\n]\n"


def problems(book: Book, entries: list[Entry]) -> Iterator[str]:
    """What is wrong with the messages as a whole, a line each."""
    everything = [one for entry in entries for one in (entry, *entry.cases)]
    for name, count in Counter(one.id for one in everything).items():
        if count > 1:
            yield f"{FOLDER}: {count} messages have the id {name}"
    for text, count in Counter(t.lower() for e in entries for t in e.says).items():
        if count > 1:
            yield f"{FOLDER}: {count} messages have the wording {text!r}"
    for one in everything:
        for problem in lint(_VARIABLE.sub("x", one.cause["zh"])):
            yield f"{one.where}: {problem}"
        if one.section:
            try:
                section(book, one)
            except BookError as error:
                yield str(error)


# ---------------------------------------------------------------- proofs
