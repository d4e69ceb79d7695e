"""Explain an error message of PyTorch: its cause, the fix, and the section that shows it.

    python train.py 2>&1 | python -m helpers.explain
    python -m helpers.explain log.txt --lang zh
    python -m helpers.explain --clipboard
    python -m helpers.explain "loss does not go down"

In Jupyter, Colab or IPython, `%load_ext helpers.explain` adds the explanation below an exception,
and `%explain loss does not go down` answers a question.

It works offline and without PyTorch. `messages.json`, which `book update` generates, contains the
messages, symptoms and section titles. The site's `errors.js` matches by the same rules.
"""

from __future__ import annotations

import argparse
import codecs
import json
import linecache
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import traceback
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from helpers.figures import language
from helpers.questions import Questions
from helpers.sentences import wrapped

FILE = Path(__file__).with_name("messages.json")
_DATA = json.loads(FILE.read_text("utf8"))  # rules of the matcher, messages, symptoms, sections
_LIMITS = SimpleNamespace(**_DATA["matcher"]["limits"])
_IGNORED = set(_DATA["matcher"]["in_every_traceback"])
_QUOTES = str.maketrans(dict.fromkeys(_DATA["matcher"]["quotes"], "'"))
_PATTERNS = {
    name: re.compile(pattern, re.A | (re.M if name in ("rank", "head") else 0))
    for name, pattern in _DATA["matcher"]["patterns"].items()
}
_SLOT, _TYPE, _HEAD = (_PATTERNS[name] for name in ("variable", "type", "head"))


def plain(text: str) -> str:
    """Normalize a message for matching: one line, no ANSI colours or ranks, one kind of quotes."""
    text = _PATTERNS["colour"].sub("", text)
    text = unicodedata.normalize("NFKC", text)[-_LIMITS.longest :]
    text = _PATTERNS["space"].sub(" ", text)
    text = _PATTERNS["line_break"].sub("\n", text)
    text = _PATTERNS["escaped_quote"].sub("", text)
    text = _PATTERNS["rank"].sub("", text).translate(_QUOTES)
    return re.sub(r"[ \n]+", " ", text).strip(" ")


def words(text: str) -> list[str]:
    """Return the words of a normalized text in lower case and in order."""
    return _PATTERNS["word"].findall(text.lower())


def squeezed(text: str) -> str:
    """Return only the letters and digits of a text, in lower case."""
    return _PATTERNS["other"].sub("", text.lower())


@dataclass
class Wording:
    """A wording; variable parts are written as `{name}` in `text`."""

    text: str
    entry: int
    kind: str = ""  # type of the exception or warning
    literal: list[str] = field(default_factory=list)  # words outside the variable parts
    names: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = self.text
        if kind := _TYPE.match(text):
            self.kind, text = kind[1], text[kind.end() :]
        self.body = text.rstrip(" .!")
        self.literal = words(plain(_SLOT.sub(" ", text)))
        self.names = _SLOT.findall(text)
        self.numbers = _PATTERNS["number"].findall(_SLOT.sub(" ", text))  # must occur: 139 is not 1
        if not self.literal:  # only the type identifies the message, as in KeyError: {n}
            self.body = f"{_kind(self.kind)}: {self.body}"

    @cached_property
    def anchor(self) -> str:
        """The longest constant part, squeezed; a text that lacks it cannot match."""
        return max((squeezed(piece) for piece in _SLOT.split(self.body)[::2]), key=len)

    @cached_property
    def pieces(self) -> list[re.Pattern[str] | None]:
        """Patterns of the constant parts; None for an empty part at the start or end."""
        texts = _SLOT.split(self.body)[::2]
        return [
            re.compile(_loose(text, n == 0, n == len(texts) - 1), re.I | re.A)
            if text.strip()
            else None
            for n, text in enumerate(texts)
        ]

    def typed(self, text: str, start: int) -> bool:
        """Return True if the wording's type precedes position `start` of a normalized text."""
        before = text[max(0, start - 80) : start]
        return bool(self.kind) and _kind(self.kind) in before[-len(self.kind) - 4 :]

    def match(self, text: str, typed: bool = False) -> tuple[int, int, list[str]] | None:
        """Return (start, end, values) of the last full match in a normalized text, or None.

        With `typed`, only matches after the wording's type count. Each constant part must follow
        the preceding one within 160 characters; there is no backtracking, so the time is bounded.
        """
        pieces = self.pieces
        first = 0 if pieces[0] or len(pieces) == 1 else 1
        if pieces[first] is None:
            return None
        for start in reversed([*pieces[first].finditer(text)]):
            begin, end, values = start.start(), start.end(), []
            if first:
                window = text[max(0, begin - _LIMITS.gap) : begin]
                values.append(_PATTERNS["before"].search(window)[0])
                begin -= len(values[0])
            for piece in pieces[first + 1 :]:
                if piece is None:  # the wording ends with a variable part
                    here = _PATTERNS["last"].match(text, end)
                else:
                    here = piece.search(text, end, end + _LIMITS.gap + 2 * len(piece.pattern))
                    if here is None or here.start() - end > _LIMITS.gap:
                        break
                values.append(here[0] if piece is None else text[end : here.start()])
                if not self.literal and self.names == ["n"] and not values[-1].isdigit():
                    break
                end = here.end()
            else:
                if self.typed(text, begin) or not (typed or self._type_in(values)):
                    return begin, end, values
        return None

    def _type_in(self, values: list[str]) -> bool:
        """Return True if a value contains the wording's type, so the message begins inside it."""
        return bool(self.kind) and any(f"{_kind(self.kind)}:" in value for value in values)


def _loose(piece: str, first: bool, last: bool) -> str:
    """Return a pattern of a constant part that tolerates missing spaces and different quotes."""
    text = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", piece).translate(_QUOTES))
    text = text.lstrip() if first else text
    quote = "'?" if re.search(r"\w", text) else "'"  # required if the part has no other text
    pattern = "".join(" ?" if c == " " else quote if c == "'" else re.escape(c) for c in text)
    if first and re.match(r"'?\w", text):
        pattern = r"(?<![\w])" + pattern
    if first and text == "'":
        pattern += r"(?=\S)"  # an opening quote is followed by text
    if last and re.search(r"\w'?$", text):
        pattern += r"(?![\w])"
    return pattern


@dataclass
class Answer:
    """An entry that matches a text, with score and position of the match."""

    entry: dict[str, Any]
    score: float
    sure: bool
    whole: bool = False  # True if the text contains the whole wording
    typed: bool = False  # True if the type precedes the wording
    span: tuple[int, int] = (0, 0)  # start and end in the normalized text
    head: list[str] = field(default_factory=list)  # message: constant parts and values alternate
    beside: bool = False  # True for a warning in a text that contains other messages

    case: dict[str, Any] | None = None  # the special case whose condition is met
    values: dict[str, str] = field(default_factory=dict)

    @property
    def constant(self) -> int:
        """Total length of the message's constant parts; a longer match is more specific."""
        return sum(map(len, self.head[::2]))

    @property
    def id(self) -> str:
        """Permanent id of the special case if there is one, else of the entry."""
        return (self.case or self.entry)["id"]


class Messages:
    """Search index of the book's messages."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries
        self.wordings = [
            Wording(part, number)
            for number, e in enumerate(entries)
            for text in e["wordings"]
            for part in dict.fromkeys(
                (
                    text,
                    _PATTERNS["sentence"].split(text, maxsplit=1)[0],
                    _PATTERNS["aside"].sub("", text),
                )
            )
        ]
        seen: dict[str, set[int]] = {}
        for wording in self.wordings:
            for word in set(wording.literal) - _IGNORED:
                seen.setdefault(word, set()).add(wording.entry)
        self._rare = {word: math.log(1 + len(entries) / len(where)) for word, where in seen.items()}
        # Keep a shortened wording only if its words are specific enough.
        self.wordings = [
            w
            for w in self.wordings
            if w.text in entries[w.entry]["wordings"] or self.weight(w.literal) >= _LIMITS.telling
        ]

    def weight(self, several: list[str]) -> float:
        """Return the sum of the words' weights; rare words weigh more, unknown words 0."""
        return sum(self._rare.get(word, 0.0) for word in several)

    def _rarest(self, several: Iterable[str]) -> float:
        return max((self._rare.get(word, 0.0) for word in several), default=0.0)

    def find(self, pasted: str) -> list[Answer]:
        """Return the entries that match a pasted text: sure matches first, then by score.

        If any match is sure, only sure matches are returned, else possibly related entries.
        """
        text = plain(pasted[-_LIMITS.longest :])
        if not text:
            return []
        best = self.whole(text)
        if not any(a.score >= _LIMITS.telling and not a.entry.get("wraps") for a in best.values()):
            main = _main(text)
            place = (main.start, main.end) if main else (0, len(text))
            for wording, score, sure in self._parts(text):
                if wording.entry in best and best[wording.entry].whole:
                    continue
                entry = self.entries[wording.entry]
                score *= _LIMITS.wraps if entry.get("wraps") else 1
                answer = Answer(entry, score, sure)
                _keep(best, wording.entry, _cased(answer, wording, text, place, ()))
        _demote(best.values(), text)
        if _PATTERNS["foreign"].search(text) and "torch" not in text.lower():
            for answer in best.values():
                answer.sure = False

        def rank(n: int) -> tuple[bool, bool, bool, float, int, int]:
            a, wraps = best[n], bool(best[n].entry.get("wraps"))
            return not a.sure, wraps, a.beside, -round(a.score, 6), -a.constant, n

        matches = [best[n] for n in sorted(best, key=rank)]
        least = _LIMITS.kept * matches[0].score if matches else 0
        if matches and not matches[0].sure and _HEAD.search(text):
            least = max(least, _LIMITS.perhaps)
        matches = [a for a in matches if a.sure == matches[0].sure and a.score >= least]
        return _apart(matches)[: _LIMITS.shown]

    def whole(self, text: str) -> dict[int, Answer]:
        """Return by entry number the answers whose whole wording a normalized text contains."""
        best: dict[int, Answer] = {}
        letters = squeezed(text)
        for wording in self.wordings:
            if wording.anchor in letters and (answer := self._whole(wording, text)):
                _keep(best, wording.entry, answer)
        return best

    def _whole(self, wording: Wording, text: str) -> Answer | None:
        """Return the answer if the text contains the whole wording, else None."""
        weight = self.weight(wording.literal)
        # A short wording needs its type: `'model'` is not specific, `KeyError: 'model'` is.
        short = bool(wording.literal and wording.kind) and weight < _LIMITS.telling
        if (here := wording.match(text, typed=short)) is None:
            return None
        main = _main(text)
        if main and here[0] >= main.end:  # prefer the same message in the main error
            before = wording.match(text[: main.end], typed=short)
            here = before if before and before[1] > main.start else here
        start, end, values = here
        typed = not wording.literal or wording.typed(text, start)
        later = sum(head.start() >= end for head in _errors(text))
        if not wording.literal and wording.names == ["n"]:
            weight += 1
        score = (weight + 3 * typed) * 0.9 ** min(later, 4)
        entry = self.entries[wording.entry]
        score *= _LIMITS.wraps if entry.get("wraps") else 1
        head = _head(wording, values, typed)
        others = len(_HEAD.findall(text)) > typed or bool(_PATTERNS["crash"].search(text, end))
        beside = wording.kind.endswith("Warning") and others
        answer = Answer(entry, score, True, True, typed, (start, end), head, beside=beside)
        return _cased(answer, wording, text, (start, end), values)

    def _parts(self, text: str) -> list[tuple[Wording, float, bool]]:
        """Return (wording, score, sure) of partial matches: truncated or reworded messages."""
        main = _main(text)
        kind = main.type if main else ""
        line = text[main.start : main.end].replace("('", ": ", 1) if main else text
        line = _TYPE.sub("", line)[: _LIMITS.length]
        own = words(line)
        digits = re.search(r"\d", line)
        pairs = set(zip(own, own[1:], strict=False))
        whole = self.weight(sorted(set(own)))
        parts = []
        for wording in self.wordings:
            literal = wording.literal
            both = [p for p in zip(literal, literal[1:], strict=False) if p in pairs]
            if not both and not (len(own) <= 3 and set(own) & set(literal)):
                continue
            words_met = sorted({word for pair in both for word in pair})
            met = self.weight(words_met)
            total = self.weight(sorted(set(literal))) or 1.0
            share, own_share = met / total, met / (whole or 1.0)
            unknown = sum(word not in self._rare for word in own)
            covered = own_share * len(own) / (len(own) + unknown)
            score = met * (share + covered) / 2
            other = kind and wording.kind and _kind(wording.kind) not in kind
            least = _LIMITS.telling * (
                1.5 if other else 1
            )  # a different exception type requires a better match
            telling = self._rarest(set(literal) - {*words_met}) < self._rarest(words_met) + 1
            sure = score >= least and (
                share >= _LIMITS.sure and telling or covered >= _LIMITS.covered
            )
            sure = sure and (not digits or all(number in text for number in wording.numbers))
            if sure or (met >= _LIMITS.telling / 2 and max(share, covered) >= _LIMITS.related):
                parts.append((wording, score, sure))
        return parts


@lru_cache(1)
def _errors(text: str) -> list[re.Match[str]]:
    """Return the heads of errors in a normalized text, without reports of other errors.

    Warnings, the reports of launchers, the errors of processes whose parent failed and exceptions
    that Python ignores are left out, unless the text contains nothing else.
    """
    heads = [*_HEAD.finditer(text)]
    marks = [*re.finditer(r"Exception ignored in|Traceback \(most recent", text)][::-1]
    ends = [*(head.start() for head in heads[1:]), len(text)]
    errors, tracebacks = [], 2  # since the last ignored exception
    for head, end in zip(heads, ends, strict=False):
        begin = head.start()
        while marks and marks[-1].start() < begin:
            tracebacks = 0 if marks.pop()[0].startswith("E") else tracebacks + 1
        message = text[begin : min(end, begin + _LIMITS.length)].split("Traceback (most recent")[0]
        if tracebacks >= 2 and not _PATTERNS["report"].search(message):
            errors.append(head)
    return errors or heads[-1:]


@dataclass
class Main:
    """The error that ended the program: its type, and where its message starts and ends."""

    type: str
    start: int
    end: int


@lru_cache(1)
def _main(text: str) -> Main | None:
    """Return the last error in a normalized text that is no report of another one, or None."""
    if not (heads := _errors(text)):
        return None
    begin, after = heads[-1].start(), heads[-1].end()
    following = [pattern.search(text, after) for pattern in (_HEAD, _PATTERNS["next_line"])]
    ends = [begin + _LIMITS.length, len(text), *(match.start() for match in following if match)]
    return Main(_kind(heads[-1][0]), begin, min(ends))


def _demote(answers: Iterable[Answer], text: str) -> None:
    """Make an answer to another line of a log secondary to the error that ended the program.

    If an answer to this error, or to the lines between it and its traceback, exists, answers to
    later lines are `beside` it. Otherwise lines that are no errors of their own (warnings, log
    lines, reports) are only related.
    """
    main = _main(text)
    if main is None or _PATTERNS["report"].search(main.type):
        return

    def about_main(answer: Answer) -> bool:
        first, last = answer.span
        between = text[last : main.start]
        near = len(between) < _LIMITS.length and "Traceback (most recent" not in between
        return not answer.whole or (first < main.end and near)

    met = [a for a in answers if a.sure and about_main(a)]
    answered = any(not a.beside and not a.entry.get("wraps") for a in met)
    for answer in answers:
        if answered:
            answer.beside = answer.beside or answer.span[0] >= main.end
        elif not met and (
            answer.beside
            or answer.entry.get("wraps")
            or not answer.typed
            or answer.span[0] >= main.end
        ):
            answer.sure = False


def _apart(matches: list[Answer]) -> list[Answer]:
    """Keep the best answer, and answers to other messages in the same text.

    Another message follows its own type and does not overlap with a better answer.
    """
    if not matches or not matches[0].sure:
        return matches
    kept = matches[:1]
    for answer in matches[1:]:
        begin, end = answer.span
        separate = all(end <= a.span[0] or a.span[1] <= begin for a in kept)
        if answer.whole and answer.typed and separate:
            kept.append(answer)
    return kept


def _head(wording: Wording, values: Sequence[str], typed: bool) -> list[str]:
    """Return a wording with the values of a text, as alternating constant parts and values.

    Args:
        wording: the wording.
        values: values of the variable parts.
        typed: True if the type precedes the message in the text.
    """
    parts = _SLOT.split(wording.text if typed else _TYPE.sub("", wording.text))
    parts[1::2] = [_PATTERNS["edges"].sub("", value) or "…" for value in values]
    return parts


def _keep(best: dict[int, Answer], number: int, answer: Answer) -> None:
    if number not in best or best[number].score < answer.score:
        best[number] = answer


def _kind(kind: str) -> str:
    return kind.rpartition(".")[2]


def _about(text: str, start: int) -> str:
    """Return the part of a log that special cases are matched with: the message's surroundings."""
    return text[max(0, start - _LIMITS.before) :]


def _cased(
    answer: Answer, wording: Wording, text: str, place: tuple[int, int], groups: Sequence[str]
) -> Answer:
    """Add to `answer` the values and the first special case whose conditions are met.

    Args:
        answer: the answer.
        wording: its wording.
        text: the normalized text.
        place: start and end of the message in the text.
        groups: values of the wording's variable parts.
    """
    values = {
        name: _PATTERNS["edges"].sub("", value or "")
        for name, value in zip(wording.names, groups, strict=False)
    }
    above = text[max(0, place[0] - _LIMITS.length) : place[0]]
    values.setdefault("object", _object(values.get("name", ""), wording.kind, above))
    around = _around(values, text[max(0, place[0] - _LIMITS.before) : place[1]])
    answer.values = around | values
    text = _about(text, place[0])
    for case in answer.entry.get("cases", ()):
        when = case.get("when", {})
        if not all(
            name in answer.values and re.fullmatch(pattern, answer.values[name], re.I | re.A)
            for name, pattern in when.items()
        ):
            continue
        if not all(related(relation, answer.values) for relation in case.get("numbers", ())):
            continue
        if (near := case.get("near")) and not re.search(near, text, re.I | re.A):
            continue
        answer.case = case
        answer.score += 1
        break
    return answer


def _around(values: dict[str, str], text: str) -> dict[str, str]:
    """Return the installed package that a message is about, and the one that uses it.

    The `package` contains the named `module`, or else the last frame of an installed package; the
    `importer` is the package of the last frame in another one. PyTorch is left out.

    Args:
        values: values of the message.
        text: the frames above the message, and the message.
    """
    frames = [match[1] for match in _PATTERNS["package"].finditer(text)]
    module = _PATTERNS["module"].match(values.get("module", ""))
    package = module[1] if module else frames[-1] if frames else ""
    importer = next((name for name in reversed(frames) if name != package), "")
    found = {"package": package, "importer": importer}
    return {name: value for name, value in found.items() if value}


def _object(name: str, kind: str, text: str) -> str:
    """Return the expression whose attribute or key the last line of code reads, or `x`.

    Args:
        name: the attribute or key.
        kind: type of the error; only a `KeyError` can be about a key that is a variable.
        text: the text before the message.
    """
    found = []
    if 0 < len(name) <= 60:
        found = re.findall(_PATTERNS["read"].pattern.replace("NAME", re.escape(name)), text, re.A)
    if not found and kind == "KeyError":
        found = _PATTERNS["looked_up"].findall(text)
    return found[-1] if found else "x"


_RELATIONS = {
    "==": float.__eq__,
    "!=": float.__ne__,
    "<": float.__lt__,
    "<=": float.__le__,
    ">": float.__gt__,
    ">=": float.__ge__,
    "multiple of": lambda a, b: a > b > 0 and a % b == 0,
    "close to": lambda a, b: 0 < abs(a - b) <= _LIMITS.close * max(a, b),
}
_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}


def related(relation: str, values: dict[str, str]) -> bool:
    """Return True if a relation between the values of a message holds.

    Args:
        relation: two terms and `==`, `!=`, `<`, `<=`, `>`, `>=`, `multiple of` or `close to`
            (not equal, and at most 5 % apart) between them. A term is a number, the name of a
            value (its first number, in bytes if a unit follows) or `product(name)` (the product
            of its integers), optionally with a factor: `n > 10 * m`.
        values: the values of the message, by name.

    Returns:
        False if the relation does not hold, or a value is missing or contains no number.
    """
    left, name, right = _PATTERNS["relation"].fullmatch(relation).groups()
    a, b = (_number(term, values) for term in (left, right))
    return a is not None and b is not None and _RELATIONS[name](a, b)


def _number(term: str, values: dict[str, str]) -> float | None:
    factor, number, name, product = _PATTERNS["term"].fullmatch(term).groups()
    if product:
        factors = _PATTERNS["integer"].findall(values.get(product, ""))
        value = math.prod(map(float, factors)) if factors else None
    elif number:
        value = float(number)
    else:
        quantity = _PATTERNS["quantity"].search(values.get(name, ""))
        value = float(quantity[1]) * _UNITS[quantity[2] or ""] if quantity else None
    return None if value is None else value * float(factor or 1)


def _frames(pasted: str) -> list[re.Match[str]]:
    """Return the frames above the error that ended the program, in order."""
    text = _PATTERNS["space"].sub(" ", pasted[-_LIMITS.longest :])
    message = plain(pasted)
    main, end = _main(message), -1
    if main:  # the same occurrence of the type in the text as pasted
        parts = text.split(main.type)
        before = message.count(main.type, 0, main.start) + 1
        end = len(main.type.join(parts[:before])) if before < len(parts) else -1
    frames = [*_PATTERNS["frame"].finditer(text)]
    return [frame for frame in frames if frame.start() < end] or frames


def own_line(pasted: str) -> tuple[str, str] | None:
    """Return the innermost location in a pasted traceback outside installed packages.

    Returns:
        File name and line number; for a notebook cell, an empty name and `number:line`. None if
        there is no such line.
    """
    best = None
    for frame in _frames(pasted):
        file, line, cell, cell_line = frame.groups()
        if cell:
            best = "", f"{cell}:{cell_line}"
        elif not _PATTERNS["installed"].search(file):
            best = re.split(r"[\\/]", file)[-1], line
    return best


def unknown(pasted: str) -> dict[str, str] | None:
    """Return what is known of an error without an entry: its type, and where it was raised.

    `library` is the package of the last frame, if that is not the reader's own code; `file` and
    `line` are those of the reader's code otherwise. Both are missing without a traceback.
    `kind` and `words` are missing if only the type of the error decides what it generally means;
    `type` is empty for a line of a log.

    Returns:
        None if the text has neither the type of an error nor a log line with known words such as
        "out of memory", or if the message is Chinese, because it is then a question.
    """
    text = plain(pasted)
    main = _main(text)
    if main and re.search("[\u3400-\u9fff]", text[main.start :]):
        return None
    facts = {"type": main.type if main else ""}
    line = text[main.start : main.end] if main else text[-_LIMITS.length :]
    if main or _PATTERNS["logged"].search(text):
        kind = _general(facts["type"], line)
        if "name" in kind:
            words = re.search(kind["words"], line, re.I | re.A)
            facts |= {"kind": kind["name"], "words": words[0].replace("`", "")}
    if not main and "kind" not in facts:
        return None
    frames = _frames(pasted)
    if frames:
        library = _PATTERNS["library"].search(frames[-1][1] or "")
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
        for one in _DATA["matcher"]["unknown"]["kinds"]
        if (
            re.search(one["words"], line, re.I | re.A)
            if "name" in one
            else re.search(one["types"], kind)
        )
    )


def _advised(error: dict[str, str], lang: str) -> str:
    """Return where an error without an entry was raised, and what its type generally means."""
    texts = _DATA["matcher"]["unknown"]
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
    parts = [_filled(text, error) for text in (texts[place][lang], kind[lang])]
    return "\n".join(line for part in parts for line in wrapped(part, lang))


@cache
def messages() -> Messages:
    """Return the search index of the messages in `messages.json`."""
    return Messages(_DATA["messages"])


@cache
def questions() -> Questions:
    """Return the search index of the symptoms and sections in `messages.json`."""
    return Questions(_DATA["places"], _DATA["search"])


# ---------------------------------------------------------------- output

_WORDS = {
    "en": {
        "others": "It also contains:",
        "places": "No message of the book matches. Symptoms and sections that may answer:",
        "related": "No message of the book matches. Perhaps related:",
        "perhaps": "Perhaps related:",
        "none": "Nothing in the book matches. Paste the whole traceback with its last line, or ask "
        "in a few words: loss is nan, freeze layers.",
        "report": "Report what is missing:",
        "do": "What to do:",
        "operands": "In `{line}`:",
        "file": "Raised in {file}, line {line}.",
        "cell": "Raised in cell {cell}, line {line}.",
    },
    "zh": {
        "others": "这段文本里还有：",
        "places": "书中没有与之匹配的报错。下面的症状和小节可能有答案：",
        "related": "书中没有与之匹配的报错。可能相关的有：",
        "perhaps": "可能相关的有：",
        "none": "书中没有匹配的内容。请粘贴完整的 traceback，包括最后一行；或者用几个词提问："
        "损失是 nan、冻结部分层。",
        "report": "反馈书中缺少的内容：",
        "do": "怎么改：",
        "operands": "在 `{line}` 里：",
        "file": "出错的是 {file} 第 {line} 行。",
        "cell": "出错的是第 {cell} 个单元格的第 {line} 行。",
    },
}


def explain(pasted: str, lang: str = "en") -> str:
    """Return cause, fix and section of a message, traceback or log as text for a terminal.

    For a question, return matching symptoms and sections.

    Args:
        pasted: the text as printed, or a question.
        lang: `"en"` or `"zh"`.

    Raises:
        TypeError: `pasted` is not a text, but for example an exception.
        ValueError: `lang` is neither `"en"` nor `"zh"`.
    """
    if not isinstance(pasted, str):
        raise TypeError(
            f"explain expects a text, got {type(pasted).__name__}; for an exception, pass "
            "''.join(traceback.format_exception(error))"
        )
    if lang not in _WORDS:
        raise ValueError(f"lang must be one of {', '.join(_WORDS)}, got {lang!r}")
    labels, matches = _WORDS[lang], messages().find(pasted)
    if not matches or not matches[0].sure:
        if error := unknown(pasted):
            related = [labels["perhaps"], *(_paragraph(a, lang) for a in matches[:3])]
            return "\n\n".join(
                [_advised(error, lang), *(related if matches else ()), *report(pasted, lang)]
            )
        parts = answers(pasted, lang)
        head = labels["places" if parts else "related" if matches else "none"]
        parts += [_paragraph(a, lang) for a in matches[: 0 if parts else 3]]
        return "\n\n".join([head, *parts, *([] if parts else report(pasted, lang))])
    parts = [_paragraph(matches[0], lang, own_line(pasted))]
    if matches[1:]:
        parts += [labels["others"], *(_paragraph(a, lang) for a in matches[1:3])]
    return "\n\n".join(parts)


def answers(question: str, lang: str = "en") -> list[str]:
    """Return up to two symptoms and three sections that match a question, best first.

    Each result has title, address and, for a section, its answer (shortened).
    """
    places = questions().find(plain(question))
    symptoms = [place for place in places if place.kind == "symptom"][:2]
    sections = [place for place in places if place.kind == "section"][:3]
    shown = [place for place in places if place in symptoms + sections]
    return [
        "\n".join(
            [
                f"→ {place.title[lang]} ({place.href})",
                *(
                    wrapped(place.also[lang], lang)
                    if place.kind == "section" and place.also[lang]
                    else ()
                ),
            ]
        )
        for place in shown
    ]


def report(pasted: str, lang: str = "en") -> list[str]:
    """Return a link that reports a text without folder paths, if pip installed this from GitHub."""
    try:
        origin = distribution("executable-pytorch-notes").read_text("direct_url.json")
        address = json.loads(origin or "{}").get("url", "")
    except PackageNotFoundError:
        return []
    if not address.startswith("https://github.com/"):
        return []
    text = _PATTERNS["folders"].sub("", pasted.strip())[-_LIMITS.length :]
    query = urlencode({"title": "helpers.explain: ", "body": f"```text\n{text}\n```"})
    return [f"{_WORDS[lang]['report']}\n{address.removesuffix('.git')}/issues/new?{query}"]


def _paragraph(answer: Answer, lang: str, line: tuple[str, str] | None = None) -> str:
    labels, shown = _WORDS[lang], answer.case or answer.entry
    wording = _SLOT.sub("…", answer.entry["wordings"][0])
    lines = ["".join(answer.head) or wording]
    if line:
        file, number = line
        cell, _, cell_line = number.partition(":")
        lines.append(
            labels["file"].format(file=file, line=number)
            if file
            else labels["cell"].format(cell=cell, line=cell_line)
        )
    lines += wrapped(_filled(shown["cause"][lang], answer.values), lang)
    cure = lang == "zh" and shown.get("cure_zh") or shown.get("cure")
    if cure:
        cure = "".join(_known(_PATTERNS["steps"].findall(cure), answer.values))
        lines += [labels["do"], *(f"    {line}".rstrip() for line in cure.splitlines())]
    section = shown.get("section") or answer.entry.get("section")
    if section:
        lines.append(f"→ {section[lang]} ({section['href']})")
    return "\n".join(lines)


def _filled(cause: str, values: dict[str, str]) -> str:
    return "".join(_known(_PATTERNS["sentences"].findall(cause), values)).strip()


def _known(parts: list[str], values: dict[str, str]) -> list[str]:
    """Fill in the values of sentences or steps of code, without those that lack a value.

    If all of them lack a value, keep all, with the name in place of the value.
    """
    kept = [part for part in parts if all(values.get(name) for name in _SLOT.findall(part))]
    return [_SLOT.sub(lambda m: values.get(m[1]) or m[1], part) for part in kept or parts]


# ---------------------------------------------------------------- in a notebook


def load_ipython_extension(shell: Any) -> None:
    """Load `%load_ext helpers.explain`: explain exceptions in cells, and define `%explain`."""
    shell.events.register("post_run_cell", _after_cell)
    shell.register_magic_function(_asked, "line_cell", "explain")


def unload_ipython_extension(shell: Any) -> None:
    """Unload the IPython extension."""
    shell.events.unregister("post_run_cell", _after_cell)
    for magics in shell.magics_manager.magics.values():
        magics.pop("explain", None)


def _asked(line: str, cell: str = "") -> None:
    """Run `%explain question`, or `%%explain` with a text below it."""
    print(explain(f"{line}\n{cell}", language()))


def _after_cell(result: Any) -> None:
    """Print the explanation of a cell's exception, if there is a sure match; never raise."""
    try:
        error = result.error_in_exec
        if error is None or isinstance(error, KeyboardInterrupt | SystemExit):
            return
        matches = messages().find(chain(error))
        if matches and matches[0].sure:
            lang = language()
            parts = [_paragraph(matches[0], lang), operands(error, lang)]
            print("\n\n".join(filter(None, parts)))
    except Exception:  # an error in this function must not affect the notebook
        return


def chain(error: BaseException) -> str:
    """Return `Type: message` lines of an exception and its causes, the exception last."""
    seen: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and here not in seen:
        seen.append(here)
        here = here.__cause__ or (None if here.__suppress_context__ else here.__context__)
    return "\n".join(f"{type(e).__name__}: {e}" for e in reversed(seen))


def operands(error: BaseException, lang: str = "en") -> str:
    """Return shape, dtype and device of each tensor in the line of user code that raised.

    For a module, return dtype and device of its parameters. Returns "" if the line contains
    neither. Tensor values are not read and no reference is kept.
    """
    frame = _own_frame(error)
    if frame is None:
        return ""
    where, number = frame
    line = linecache.getline(where.f_code.co_filename, number).strip()
    lines = []
    for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", line)):
        value = _value(name, where)
        if description := _described(value):
            lines.append(f"    {name}: {description}")
    return "\n".join([_WORDS[lang]["operands"].format(line=line), *lines]) if lines else ""


def _folder(path: str) -> str:
    """Return a path in lower case with slashes, because Windows ignores both differences."""
    return path.replace("\\", "/").lower()


_LIBRARY = tuple(
    f"{_folder(sysconfig.get_path(name))}/" for name in ("stdlib", "platstdlib", "purelib")
)


def _installed(file: str, library: tuple[str, ...] = _LIBRARY) -> bool:
    """Return True if a file belongs to Python or to an installed package."""
    path = _folder(file)
    packages = "/site-packages/" in path or "/dist-packages/" in path
    return packages or path.startswith(("<frozen ", *library))


def _own_frame(error: BaseException) -> tuple[Any, int] | None:
    """Return the innermost frame of user code and its current line number."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = (at for at in reversed(frames) if not _installed(at[0].f_code.co_filename))
    return next(own, None)


def _value(name: str, frame: Any) -> Any:
    """Return the value of a dotted name, without running properties."""
    first, *rest = name.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for part in rest:
        own = getattr(value, "__dict__", {})
        tables = (own, own.get("_modules", {}), own.get("_parameters", {}), own.get("_buffers", {}))
        value = next((table[part] for table in tables if part in table), None)
    return value


def _described(value: Any) -> str:
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{tuple(value.shape)} {dtype} {value.device}"
    if isinstance(value, torch.nn.Module):
        kinds = {f"{str(p.dtype).removeprefix('torch.')} {p.device}" for p in value.parameters()}
        return f"{type(value).__name__}, {', '.join(sorted(kinds))}" if kinds else ""
    return ""


# ---------------------------------------------------------------- on the command line


def main(arguments: list[str] | None = None) -> int:
    """Run `python -m helpers.explain`.

    Returns:
        0 if a message matches, 1 if none matches, 2 if the input or output fails, and
        130 after Ctrl+C (exit codes).
    """
    parser = argparse.ArgumentParser(
        prog="python -m helpers.explain",
        description="Explain an error message of PyTorch, offline.",
    )
    parser.add_argument(
        "file", nargs="?", help="a file with a traceback, or a question; default: standard input"
    )
    parser.add_argument("--clipboard", action="store_true", help="read the clipboard")
    parser.add_argument("--lang", choices=sorted(_WORDS), help="default: from the locale")
    chosen = parser.parse_args(arguments)
    try:
        pasted = _pasted(chosen.file, chosen.clipboard)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except OSError as error:
        source = "the clipboard" if chosen.clipboard else chosen.file or "the input"
        return _failed(f"cannot read {source}: {error.strerror or error}")
    if not pasted.strip():
        return _failed("expected a message or a traceback, got nothing")
    try:
        _print(explain(pasted, chosen.lang or language()))
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard buffered output at exit
        return _failed(f"cannot write the explanation: {error.strerror or error}")
    return 0 if any(answer.sure for answer in messages().find(pasted)) else 1


def _failed(message: str, code: int = 2) -> int:
    print(f"helpers.explain: {message}", file=sys.stderr)
    return code


def _print(text: str) -> None:
    """Print a text, replacing characters that the terminal cannot encode.

    Raises:
        OSError: stdout is closed, or the disk is full.
    """
    if sys.stdout is None:
        raise OSError("the output is closed")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    print(text, flush=True)


_CLIPBOARDS = (
    ["pbpaste"],
    ["wl-paste", "--no-newline"],
    ["xclip", "-selection", "clipboard", "-o"],
    ["xsel", "--clipboard", "--output"],
    ["powershell", "-NoProfile", "-Command", "Get-Clipboard"],
)


# Several lines or words, or Chinese text, that do not look like a path or a file name.
_QUESTION = re.compile(
    r"(?=.*[\s\u3400-\u9fff])(?![/\\~.]|[A-Za-z]:\\)"
    r"(?!.*\.(?:txt|log|out|err|md)$).+|.*\n.*",
    re.S,
)


def _question(name: str) -> bool:
    """Return True if an argument is a text to explain and not a file name."""
    missing = not os.path.lexists(name) and not os.path.isdir(os.path.dirname(name))
    return not name or missing and bool(_QUESTION.fullmatch(name))


def _pasted(name: str | None, clipboard: bool) -> str:
    """Return the text to explain.

    Raises:
        OSError: the file cannot be read, stdin is closed, or no clipboard program is installed.
    """
    if clipboard:
        command = next((c for c in _CLIPBOARDS if shutil.which(c[0])), None)
        if command is None:
            names = ", ".join(c[0] for c in _CLIPBOARDS)
            raise OSError(f"none of these programs is installed: {names}")
        return decoded(subprocess.run(command, capture_output=True).stdout)
    if name not in (None, "-"):
        return decoded(os.fsencode(name) if _question(name) else Path(name).read_bytes())
    if sys.stdin is None:
        raise OSError("it is closed")
    if sys.stdin.isatty():
        print("Paste the message, then press Ctrl+D:", file=sys.stderr)
    return decoded(sys.stdin.buffer.read())


_MARKS = (  # UTF-32 first: its byte order mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_ZEROS = {  # positions of zero bytes in each group of four, for mostly English text
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}


def decoded(data: bytes) -> str:
    """Decode a log in UTF-8, UTF-16 or UTF-32, with or without a byte order mark.

    `>` in Windows PowerShell 5 writes UTF-16. Invalid bytes are replaced.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    zeros = tuple(data[n::4].count(0) > len(data) / 8 for n in range(4))
    return data.decode(_ZEROS.get(zeros, "utf-8"), "replace")


if __name__ == "__main__":
    sys.exit(main())
