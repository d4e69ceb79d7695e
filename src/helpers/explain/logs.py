"""Find the errors and the frames of tracebacks in a log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from helpers.explain.data import HEAD, LIMITS, PATTERNS
from helpers.explain.text import base_type, plain, printed


@lru_cache(1)
def errors_in(text: str) -> list[re.Match[str]]:
    """Return the heads of errors in a normalized text, without reports of other errors.

    Warnings, the reports of launchers, the errors of processes whose parent failed and exceptions
    that Python ignores are left out, unless the text contains nothing else.
    """
    heads = [*HEAD.finditer(text)]
    marks = [*re.finditer(r"Exception ignored in|Traceback \(most recent", text)][::-1]
    ends = [*(head.start() for head in heads[1:]), len(text)]
    errors, tracebacks = [], 2  # since the last ignored exception
    for head, end in zip(heads, ends, strict=False):
        begin = head.start()
        while marks and marks[-1].start() < begin:
            tracebacks = 0 if marks.pop()[0].startswith("E") else tracebacks + 1
        message = text[begin : min(end, begin + LIMITS.length)].split("Traceback (most recent")[0]
        if tracebacks >= 2 and not PATTERNS["report"].search(message):
            errors.append(head)
    return errors or heads[-1:]


@dataclass
class Main:
    """The error that ended the program: its type, and where its message starts and ends."""

    type: str
    start: int
    end: int


@lru_cache(1)
def main_error(text: str) -> Main | None:
    """Return the last error in a normalized text that is no report of another one, or None."""
    if not (heads := errors_in(text)):
        return None
    begin, after = heads[-1].start(), heads[-1].end()
    following = [pattern.search(text, after) for pattern in (HEAD, PATTERNS["next_line"])]
    ends = [begin + LIMITS.length, len(text), *(match.start() for match in following if match)]
    return Main(base_type(heads[-1][0]), begin, min(ends))


def message_of(pasted: str) -> str:
    """Return the message of the error that ended the program, up to the end of its paragraph."""
    text, message = printed(pasted), plain(pasted)
    if not (main := main_error(message)):
        return ""
    parts = text.split(main.type)
    before = message.count(main.type, 0, main.start) + 1
    if before >= len(parts):
        return message[main.start : main.end]
    after = main.type.join(["", *parts[before:]])
    return plain(PATTERNS["paragraph"].split(after, maxsplit=1)[0])[: main.end - main.start]


def error_levels(text: str) -> list[tuple[int, bool]]:
    """Return the lines of a log without exceptions: their start, and True for a marked error.

    The list is empty if the text has an exception, or no line is marked as an error (`[E]`).
    """
    levels = [] if HEAD.search(text) else [*PATTERNS["level"].finditer(text)]
    lines = [(level.start(), level[1] in "EF") for level in levels]
    return lines if any(error for _, error in lines) else []


def first_error(text: str) -> int:
    """Return where the first line marked as an error begins in a normalized text, or 0."""
    return next((start for start, error in error_levels(text) if error), 0)


def cause_of(text: str) -> str:
    """Return a normalized text up to the last link of a chain of exceptions, or an empty one.

    The text below the link has at most one traceback.
    """
    links = [*PATTERNS["chain"].finditer(text)]
    below = text[links[-1].end() :] if links else ""
    return text[: links[-1].start()] if links and below.count("Traceback (most recent") < 2 else ""


def frames_of(pasted: str) -> list[re.Match[str]]:
    """Return the frames above the error that ended the program, in order."""
    text, message = printed(pasted), plain(pasted)
    main, end = main_error(message), -1
    if main:  # the same occurrence of the type in the text as pasted
        parts = text.split(main.type)
        before = message.count(main.type, 0, main.start) + 1
        end = len(main.type.join(parts[:before])) if before < len(parts) else -1
    frames = [*PATTERNS["frame"].finditer(text)]
    return [frame for frame in frames if frame.start() < end] or frames


def own_line(pasted: str) -> tuple[str, str] | None:
    """Return the innermost location in a pasted traceback outside installed packages.

    Returns:
        File name and line number; for a notebook cell, an empty name and `number:line`. None if
        there is no such line.
    """
    best = None
    for frame in frames_of(pasted):
        file, line, cell, cell_line = frame.groups()
        if cell:
            best = "", f"{cell}:{cell_line}"
        elif not PATTERNS["installed"].search(file):
            best = re.split(r"[\\/]", file)[-1], line
    return best
