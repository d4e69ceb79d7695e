"""Find the messages of the book in a pasted text; the site's `errors.js` has the same rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from helpers.explain.conditions import related
from helpers.explain.data import DATA, DIRECTORIES, HEAD, LIMITS, OWNERS, PATTERNS, TYPE, VARIABLE
from helpers.explain.logs import cause_of, error_levels, errors_in, first_error, main_error
from helpers.explain.similar import similar
from helpers.explain.text import base_type, plain, squeezed, value_of, words
from helpers.explain.wordings import Wording

_IGNORED = set(DATA["matcher"]["in_every_traceback"])


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
    def several(self) -> bool:
        """True if the cause lists possible causes between which the text does not decide."""
        return bool((self.case or self.entry).get("several"))

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
                    PATTERNS["sentence"].split(text, maxsplit=1)[0],
                    PATTERNS["aside"].sub("", text),
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
            if w.text in entries[w.entry]["wordings"] or self.weight(w.literal) >= LIMITS.telling
        ]

    def weight(self, several: list[str]) -> float:
        """Return the sum of the words' weights; rare words weigh more, unknown words 0."""
        return sum(self._rare.get(word, 0.0) for word in several)

    def _rarest(self, several: Iterable[str]) -> float:
        return max((self._rare.get(word, 0.0) for word in several), default=0.0)

    def find(self, pasted: str) -> list[Answer]:
        """Return the entries that match a pasted text: sure matches first, then by score.

        If any match is sure, only sure matches are returned, else possibly related entries. If no
        match of a chain of exceptions is sure, the exceptions before the last one decide.
        """
        text = plain(pasted)
        found = self._found(text) if text else []
        if not (found and found[0].sure) and (above := cause_of(text)):
            causes = self._found(above)
            return causes if causes and causes[0].sure else found
        return found

    def _found(self, text: str) -> list[Answer]:
        """Return the entries that match a normalized text, as `find` does."""
        best = self.whole(text)
        if not any(a.score >= LIMITS.telling and not a.entry.get("wraps") for a in best.values()):
            main = main_error(text)
            place = (main.start, main.end) if main else (0, len(text))
            for wording, score, sure in self._parts(text):
                if wording.entry in best and best[wording.entry].whole:
                    continue
                entry = self.entries[wording.entry]
                score *= LIMITS.wraps if entry.get("wraps") else 1
                answer = Answer(entry, score, sure)
                _keep(best, wording.entry, _cased(answer, wording, text, place, ()))
        _demote(best.values(), text)
        if PATTERNS["foreign"].search(text) and "torch" not in text.lower():
            for answer in best.values():
                answer.sure = False

        def rank(n: int) -> tuple[bool, bool, bool, float, int, int]:
            a, wraps = best[n], bool(best[n].entry.get("wraps"))
            return not a.sure, wraps, a.beside, -round(a.score, 6), -a.constant, n

        matches = [best[n] for n in sorted(best, key=rank)]
        least = LIMITS.kept * matches[0].score if matches else 0
        if matches and not matches[0].sure and HEAD.search(text):
            least = max(least, LIMITS.perhaps)
        matches = [a for a in matches if a.sure == matches[0].sure and a.score >= least]
        return _apart(matches)[: LIMITS.shown]

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
        short = bool(wording.literal and wording.kind) and weight < LIMITS.telling
        if (here := wording.match(text, typed=short)) is None:
            return None
        main = main_error(text)
        if main and here[0] >= main.end:  # prefer the same message in the main error
            before = wording.match(text[: main.end], typed=short)
            here = before if before and before[1] > main.start else here
        start, end, values = here
        typed = not wording.literal or wording.typed(text, start)
        later = sum(head.start() >= end for head in errors_in(text))
        if not wording.literal and wording.names == ["n"]:
            weight += 1
        score = (weight + 3 * typed) * 0.9 ** min(later, 4)
        entry = self.entries[wording.entry]
        score *= LIMITS.wraps if entry.get("wraps") else 1
        head = _head(wording, values, typed)
        others = len(HEAD.findall(text)) > typed or bool(PATTERNS["crash"].search(text, end))
        beside = wording.kind.endswith("Warning") and others
        answer = Answer(entry, score, True, True, typed, (start, end), head, beside=beside)
        return _cased(answer, wording, text, (start, end), values)

    def _parts(self, text: str) -> list[tuple[Wording, float, bool]]:
        """Return (wording, score, sure) of partial matches: truncated or reworded messages."""
        main = main_error(text)
        kind = main.type if main else ""
        line = text[first_error(text) :]
        if main:
            line = text[main.start : main.end].replace("('", ": ", 1)
        line = TYPE.sub("", line)[: LIMITS.length]
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
            other = kind and wording.kind and base_type(wording.kind) not in kind
            least = LIMITS.telling * (
                1.5 if other else 1
            )  # a different exception type requires a better match
            telling = self._rarest(set(literal) - {*words_met}) < self._rarest(words_met) + 1
            sure = score >= least and (
                share >= LIMITS.sure and telling or covered >= LIMITS.covered
            )
            sure = sure and (not digits or all(number in text for number in wording.numbers))
            if sure or (met >= LIMITS.telling / 2 and max(share, covered) >= LIMITS.related):
                parts.append((wording, score, sure))
        return parts


def _demote(answers: Iterable[Answer], text: str) -> None:
    """Make an answer to another line of a log secondary to the error that ended the program.

    If an answer to this error, or to the lines between it and its traceback, exists, answers to
    later lines are `beside` it. Otherwise lines that are not separate errors (warnings, log
    lines, reports) are only related. In a log without exceptions, the lines marked as errors
    decide.
    """
    if levels := error_levels(text):
        _demote_levels([a for a in answers if a.whole], levels)
    main = main_error(text)
    if main is None or PATTERNS["report"].search(main.type):
        return

    def about_main(answer: Answer) -> bool:
        first, last = answer.span
        between = text[last : main.start]
        near = len(between) < LIMITS.length and "Traceback (most recent" not in between
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


def _demote_levels(answers: list[Answer], levels: list[tuple[int, bool]]) -> None:
    """Make answers to lines that are not marked as errors secondary to those that are.

    Args:
        answers: whole matches.
        levels: start of each line, and True for an error.
    """

    def about_error(answer: Answer) -> bool:
        first, last = answer.span
        before = [error for start, error in levels if start <= first][-1:]
        inside = [error for start, error in levels if first < start < last]
        return any(before + inside) or not before

    answered = any(about_error(a) for a in answers)
    for answer in answers:
        if not about_error(answer):
            answer.beside, answer.sure = answered, answered


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
    parts = VARIABLE.split(wording.text if typed else TYPE.sub("", wording.text))
    parts[1::2] = [value_of(value) or "…" for value in values]
    return parts


def _keep(best: dict[int, Answer], number: int, answer: Answer) -> None:
    if number not in best or best[number].score < answer.score:
        best[number] = answer


def _about(text: str, start: int) -> str:
    """Return the part of a log that special cases are matched with: the message's surroundings."""
    return text[max(0, start - LIMITS.before) :]


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
        name: value_of(value or "") for name, value in zip(wording.names, groups, strict=False)
    }
    above = text[max(0, place[0] - LIMITS.length) : place[0]]
    values.setdefault("object", _object(values.get("name", ""), wording.kind, above))
    around = _around(values, text[max(0, place[0] - LIMITS.before) : place[1]])
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
    """Return the values that a message takes from the text around it and from known names.

    The installed `package` contains the named `module`, or else the last frame of an installed
    package; the `importer` is the package of the last frame in another one. PyTorch is left out.
    The `owner` is the package that defines the named function or class, if its name is a known
    one. The `caller` is the package of the last frame, and `inside` the owner if this frame is in
    the owner's own code. `similar` is the public name of PyTorch of which the named one is a
    typing slip.

    Args:
        values: values of the message.
        text: the frames above the message, and the message.
    """
    frames = [_named(match[1]) for match in PATTERNS["package"].finditer(text)]
    module = PATTERNS["module"].match(values.get("module", ""))
    package = module[1] if module else frames[-1] if frames else ""
    importer = next((name for name in reversed(frames) if name != package), "")
    found = {"package": package, "importer": importer, "owner": _owner(values, text)}
    place = ["", *PATTERNS["place"].findall(text)][-1]
    caller = PATTERNS["package"].search(place)
    found["caller"] = _named(caller[1]) if caller else ""
    found["inside"] = _inside(found["owner"], place)
    found["similar"] = similar(values.get("module", ""), values.get("name", ""))
    return {name: value for name, value in found.items() if value}


def _owner(values: dict[str, str], text: str) -> str:
    """Return the package that defines the function or class of a message, or an empty string.

    Before Python 3.10 a message names only `__init__`; then the last line of code decides, or the
    text above without a frame, if it calls one class.

    Args:
        values: values of the message.
        text: the frames above the message, and the message.
    """
    name = values.get("function") or values.get("type", "")
    if name == "__init__":
        made = {*PATTERNS["made"].findall(text.rpartition("File ")[2])}
        name = made.pop() if len(made) == 1 else ""
    return next((package for package, names in OWNERS.items() if names.fullmatch(name)), "")


def _named(folder: str) -> str:
    """Return the package of a folder in site-packages as pip names it."""
    return next((name for name, known in DIRECTORIES.items() if known == folder), folder)


def _inside(owner: str, place: str) -> str:
    """Return the owner if a file is in its installed package or repository, or an empty text."""
    folder = DIRECTORIES.get(owner, owner.replace("-", "_"))
    within = PATTERNS["within"].pattern.replace("NAME", folder)
    return owner if owner and re.search(within, place, re.A) else ""


def _object(name: str, kind: str, text: str) -> str:
    """Return the expression whose attribute or key the last line of code reads, or `x`.

    Args:
        name: the attribute or key.
        kind: type of the error; only a `KeyError` can be about a key that is a variable.
        text: the text before the message.
    """
    expressions = []
    if 0 < len(name) <= 60:
        pattern = PATTERNS["read"].pattern.replace("NAME", re.escape(name))
        expressions = re.findall(pattern, text, re.A)
    if not expressions and kind == "KeyError":
        expressions = PATTERNS["looked_up"].findall(text)
    return expressions[-1] if expressions else "x"


@cache
def messages() -> Messages:
    """Return the search index of the messages in `messages.json`."""
    return Messages(DATA["messages"])
