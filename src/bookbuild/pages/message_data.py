"""Serialize the messages: one file for `helpers.explain`, several scripts for the error pages.

`messages.json` contains the rules of the matcher, all messages, and, for questions, the symptoms,
sections and words of `search.yml`. The site contains the same data as scripts,
because a `file://` page can load only scripts: `messages.js` has the data that matching needs,
and `errors_<family>.js` has the advice of a family in the language of the page.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from bookbuild.pages.question_data import places
from bookbuild.source.checkout import Book
from bookbuild.source.messages import Entry, matcher
from bookbuild.source.outline import locate_section
from bookbuild.source.words import search_words

PRODUCT = "src/helpers/explain/messages.json"
SCRIPT = "messages.js"
COLUMNS = 68  # width up to which a page does not wrap code
_COMMENTED = re.compile(r"(\s*)(\S.*?)\s{2,}(# .*)")
MATCHED = (
    "wordings",
    "when",
    "numbers",
    "near",
    "wraps",
    "several",
)  # the keys that matching needs; all others are advice


def product(book: Book, entries: Iterable[Entry]) -> str:
    """Return the contents of `messages.json`, with one message, symptom or section per line.

    Raises:
        BookError: a message names a section that does not exist.
    """
    rules = {"matcher": matcher(), "search": search_words()}
    rows = {"messages": (plain(book, entry) for entry in entries), "places": places(book)}
    parts = [f'"{name}": {json.dumps(one, ensure_ascii=False)}' for name, one in rules.items()]
    for name, several in rows.items():
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in several)
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{" + ",\n".join(parts) + "}\n"


def plain(book: Book, entry: Entry) -> dict[str, Any]:
    """Return a message or a special case as a JSON-serializable dict without empty values."""
    names = ("id", "wordings", "when", "numbers", "near", "cure", "cure_zh", "cause")
    values = {name: value for name in names if (value := getattr(entry, name))}
    values |= {name: comments_above(values[name]) for name in ("cure", "cure_zh") if name in values}
    if entry.section:
        href, titles = locate_section(book, entry.section, entry.where)
        values["section"] = {"href": href.replace(".ipynb", ".html"), **titles}
    values |= {name: True for name in ("wraps", "several") if getattr(entry, name)}
    if entry.cases:
        values["cases"] = [plain(book, case) for case in entry.cases]
    return values


def comments_above(code: str) -> str:
    """Move trailing comments above their lines if one of them would extend past `COLUMNS`.

    The page wraps longer lines, and a wrapped comment would look like code. If the comments fit
    with less space before them, they are aligned further left instead.
    """
    lines = code.splitlines()
    commented = {line: parts for line in lines if (parts := _COMMENTED.fullmatch(line))}
    if all(_columns(line) <= COLUMNS for line in commented):
        return code
    width = max(_columns(parts[1] + parts[2]) for parts in commented.values())
    shown = []
    for line in lines:
        if not (parts := commented.get(line)):
            shown.append([line])
            continue
        own = parts[1] + parts[2]
        shown.append([own + " " * (width + 2 - _columns(own)) + parts[3]])
    if any(_columns(line) > COLUMNS for (line,) in shown if _COMMENTED.fullmatch(line)):
        shown = [
            [parts[1] + parts[3], parts[1] + parts[2]] if (parts := commented.get(line)) else [line]
            for line in lines
        ]
    return "\n".join(line for several in shown for line in several)


def _columns(line: str) -> int:
    """Return the width of a line; a Chinese character takes two columns."""
    return len(line) + sum(unicodedata.east_asian_width(c) in "WF" for c in line)


def index_script(book: Book, lang: str, entries: Iterable[Entry]) -> str:
    """Return the script that sets `bookMessages`: matcher rules, and each message's matching data.

    Texts of the rules are in one language.

    The messages are in the order of their lines in `errors.html`, and these have their ids and
    first wordings. They and their special cases are stored by column, with 0 for a missing value,
    because columns compress better; the column `cases` contains the number of a message's special
    cases.
    """

    def matched(values: dict[str, Any]) -> dict[str, Any]:
        kept = {name: values[name] for name in MATCHED if name in values}
        cases = [{"id": case["id"]} | matched(case) for case in values.get("cases", ())]
        return kept | ({"cases": cases} if cases else {})

    rows = [matched(plain(book, entry)) for entry in entries]
    cases = [case for row in rows for case in row.get("cases", ())]
    rows = [row | ({"cases": len(row["cases"])} if "cases" in row else {}) for row in rows]
    rows = [row | {"wordings": row["wordings"][1:] or 0} for row in rows]
    rules = _in_language(matcher(), lang)
    data = {"matcher": rules, "columns": _by_column(rows), "cases": _by_column(cases)}
    return f"globalThis.bookMessages={_json(data)};\n"


def _in_language(value: Any, lang: str) -> Any:
    """Leave out the texts in other languages."""
    if isinstance(value, list):
        return [_in_language(item, lang) for item in value]
    if not isinstance(value, dict):
        return value
    others = {"en", "zh"} - {lang} if value.keys() >= {"en", "zh"} else set()
    return {key: _in_language(item, lang) for key, item in value.items() if key not in others}


def _by_column(rows: list[dict[str, Any]]) -> dict[str, list]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, 0) for row in rows] for name in names}


def advice(book: Book, lang: str, entry: Entry) -> dict[str, Any]:
    """Return a message's `cause`, `cure`, `section` and `cases` (by id) in one language.

    The first clause of a case's cause is its `title`.
    """
    return _advice(plain(book, entry), lang)


def _advice(values: dict[str, Any], lang: str) -> dict[str, Any]:
    kept = {"cause": values["cause"][lang]}
    if cure := lang == "zh" and values.get("cure_zh") or values.get("cure"):
        kept["cure"] = cure
    if place := values.get("section"):
        kept["section"] = {"href": place["href"], "title": place[lang]}
    if cases := values.get("cases"):
        kept["cases"] = {case["id"]: titled(_advice(case, lang)) for case in cases}
    return kept


FIRST_CLAUSE = re.compile(
    r"((?:`[^`]*`|\([^)]*\)|（[^）]*）|[^`(（])*?(?:[.:;] |[。：；]))(.+)", re.DOTALL
)  # punctuation inside code or brackets does not end a clause


def titled(case: dict[str, Any]) -> dict[str, Any]:
    """Split a case's cause into `title` (its first clause) and `cause` (the rest, if any)."""
    match = FIRST_CLAUSE.fullmatch(case["cause"])
    title, cause = match.groups() if match else (case["cause"], "")
    return {"title": title, **case, "cause": cause}


def family_script(
    entries: Iterable[Entry],
    advice: dict[str, dict[str, Any]],
    seen: dict[str, list[dict[str, str]]],
) -> str:
    """Return the script that adds the advice of a family to `bookAdvice`, by message id.

    `seen` has for each message the sections that show it, as `cause`, `href` and `title`.
    """
    rows = {}
    for entry in entries:
        until = {"until": entry.until[1:]} if any(entry.until[1:]) else {}
        places = {"seen": seen[entry.id]} if seen[entry.id] else {}
        rows[entry.id] = advice[entry.id] | until | places
    return f"globalThis.bookAdvice=Object.assign(globalThis.bookAdvice||{{}},{_json(rows)});\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
