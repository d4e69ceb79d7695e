"""The messages as data: one form for `helpers.explain`, in parts for the pages of errors.

`messages.json` has the rules of the matcher and all messages. A site has the same as scripts,
because a page that is read from disk may load nothing else: `messages.js` with what matching needs,
and for each family `errors_<family>.js` with the advice in the language of the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bookbuild.source.checkout import Book
from bookbuild.source.messages import Entry
from bookbuild.source.outline import section

PRODUCT = "src/helpers/messages.json"
SCRIPT = "messages.js"
MATCHED = ("says", "when", "near", "wraps")  # what matching needs; the rest is advice
_MATCHER = Path(__file__).with_name("matcher.yml")


@cache
def matcher() -> dict[str, Any]:
    """Return the rules by which a pasted text is compared with the messages."""
    return yaml.safe_load(_MATCHER.read_text("utf8"))


def product(book: Book, entries: Iterable[Entry]) -> str:
    """Return `messages.json`: rules and messages, one on each line.

    Raises:
        BookError: a message names a section that does not exist.
    """
    rows = (json.dumps(plain(book, entry), ensure_ascii=False) for entry in entries)
    rules = json.dumps(matcher(), ensure_ascii=False)
    return f'{{"matcher": {rules},\n"messages": [\n' + ",\n".join(rows) + "\n]}\n"


def plain(book: Book, entry: Entry) -> dict[str, Any]:
    """Return a message or a special case as values of JSON; what is empty is left out."""
    names = ("id", "says", "when", "near", "cure", "cure_zh", "cause")
    values = {name: value for name in names if (value := getattr(entry, name))}
    if entry.section:
        href, titles = section(book, entry)
        values["section"] = {"href": href.replace(".ipynb", ".html"), **titles}
    if entry.wraps:
        values["wraps"] = True
    if entry.cases:
        values["cases"] = [plain(book, case) for case in entry.cases]
    return values


def index_script(book: Book, entries: Iterable[Entry]) -> str:
    """Return the script that sets `bookMessages`: the rules, and what matching needs of a message.

    The messages are in the order of the lines of `errors.html`.
    """

    def matched(values: dict[str, Any]) -> dict[str, Any]:
        kept = {name: values[name] for name in ("id", *MATCHED) if name in values}
        cases = [matched(case) for case in values.get("cases", ())]
        return kept | ({"cases": cases} if cases else {})

    rows = [matched(plain(book, entry)) for entry in entries]
    return f"globalThis.bookMessages={_json({'matcher': matcher(), 'messages': rows})};\n"


def advice(book: Book, lang: str, entry: Entry) -> dict[str, Any]:
    """Return the advice of a message in one language: `cause`, `cure`, `section`, `cases` by id."""
    return _advice(plain(book, entry), lang)


def _advice(values: dict[str, Any], lang: str) -> dict[str, Any]:
    kept = {"cause": values["cause"][lang]}
    if cure := lang == "zh" and values.get("cure_zh") or values.get("cure"):
        kept["cure"] = cure
    if place := values.get("section"):
        kept["section"] = {"href": place["href"], "title": place[lang]}
    if cases := values.get("cases"):
        kept["cases"] = {case["id"]: _advice(case, lang) for case in cases}
    return kept


def family_script(
    entries: Iterable[Entry],
    advice: dict[str, dict[str, Any]],
    seen: dict[str, list[dict[str, str]]],
) -> str:
    """Return the script that adds the advice of a family to `bookAdvice`, by the messages' ids.

    `seen` has for a message the places of the book that show it: `cause`, `href` and `title`.
    """
    rows = {}
    for entry in entries:
        until = {"until": entry.until[1:]} if any(entry.until[1:]) else {}
        places = {"seen": seen[entry.id]} if seen[entry.id] else {}
        rows[entry.id] = advice[entry.id] | until | places
    return f"globalThis.bookAdvice=Object.assign(globalThis.bookAdvice||{{}},{_json(rows)});\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
