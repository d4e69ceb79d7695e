"""Describe an error that the book does not contain: where it was raised, and its general kind."""

from __future__ import annotations

import re

from helpers.explain.data import DATA, LIMITS, PATTERNS
from helpers.explain.logs import first_error, frames_of, main_error, message_of, own_line
from helpers.explain.text import filled, plain, words
from helpers.sentences import wrapped


def unknown(pasted: str) -> dict[str, str] | None:
    """Return what is known of an error without an entry: its type, and where it was raised.

    `library` is the package of the last frame, if that is not the reader's own code; `file` and
    `line` are those of the reader's code otherwise. Both are missing without a traceback.
    `kind` and `words` are missing if only the type of the error decides what it generally means;
    `type` is empty for a line of a log.

    Returns:
        None if the text has neither the type of an error nor a log line with known words such as
        "out of memory", or if it is a question: the message is Chinese, or it has no type and asks.
    """
    text = plain(pasted)
    main = main_error(text)
    if chinese := main and re.search("[\u3400-\u9fff]", text[main.start :]):
        # Chinese text after an English message is not a part of it.
        chinese = len(words(text[main.start :][: chinese.start()])) < LIMITS.english
    if chinese or not main and PATTERNS["asked"].search(text):
        return None
    facts = {"type": main.type if main else ""}
    begin = first_error(text)
    line = text[begin:][: LIMITS.length] if begin else text[-LIMITS.length :]
    if main:
        line = message_of(pasted)
    if main or PATTERNS["logged"].search(text):
        kind = _general(facts["type"], line)
        if "name" in kind:
            met = re.search(kind["words"], line, re.I | re.A)
            facts |= {"kind": kind["name"], "words": met[0].replace("`", "")}
    if not main and "kind" not in facts:
        return None
    frames = frames_of(pasted)
    if frames:
        library = PATTERNS["library"].search(frames[-1][1] or "")
        own = own_line(pasted) if not library else None
        if library:
            facts["library"] = library[1]
        elif own and own[0]:
            facts["file"], facts["line"] = own
    return facts


def _general(kind: str, line: str) -> dict[str, str]:
    """Return the first of the general kinds of errors whose words or types occur."""
    return next(
        one
        for one in DATA["matcher"]["unknown"]["kinds"]
        if (
            re.search(one["words"], line, re.I | re.A)
            if "name" in one
            else re.search(one["types"], kind)
        )
    )


def advised(error: dict[str, str], lang: str) -> str:
    """Return where an error without an entry was raised, and what its type generally means."""
    texts = DATA["matcher"]["unknown"]
    place = (
        "log"
        if not error["type"]
        else "library"
        if error.get("library", "torch") != "torch"
        else "own"
        if "file" in error
        else "plain"
    )
    kind = next(
        one
        for one in texts["kinds"]
        if (
            one.get("name") == error["kind"]
            if "kind" in error
            else re.search(one.get("types", "$^"), error["type"])
        )
    )
    parts = [filled(text, error) for text in (texts[place][lang], kind[lang])]
    return "\n".join(line for part in parts for line in wrapped(part, lang))
