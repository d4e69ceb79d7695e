"""Explain an error message of PyTorch: what it means, what to do, where the book shows it.

    python train.py 2>&1 | python -m helpers.explain
    python -m helpers.explain log.txt --lang zh
    python -m helpers.explain --clipboard

In Jupyter, Colab or IPython, `%load_ext helpers.explain` adds the explanation below an exception.

Everything works offline and without PyTorch. The messages stand in `messages.json`, made from
`book/messages` by `book update`; the page of errors finds them by the same rules (`errors.js`).
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("messages.json")
LONGEST = 20_000  # characters of a log that are looked at, from its end
SURE = 0.62  # share of a wording that must be met, if not all of it is
RELATED = 0.3
TELLING = 6.0  # weight of words that may stand for an answer; a word of one message alone has 6.2

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(
    r"^[ \t]*(?:(?:\[?(?:rank ?|default|Rank ?)\d+\]?|\(\w+ pid=\d+[^)]*\)|stderr"
    r"|[EWI]\d{4} [\d:.]+ \d+ \S+\]) ?[:|]? ?)+",
    re.M,
)
_QUOTES = str.maketrans(dict.fromkeys('“”„‘’`"«»', "'"))
_SLOT = re.compile(r"\{(\w+)\}")
_TYPE = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Exit|Failed)): ?")
_HEAD = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Failed|Exit)(?=:| ?$)", re.M)
_WORD = re.compile(r"[a-z_][a-z_0-9]+|[一-鿿]")


def plain(text: str) -> str:
    """A message as it is compared: one line, without colours, ranks and kinds of quotes."""
    text = _ANSI.sub("", text)
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"\\+n", "\n", text)
    text = re.sub(r"\\+(?=['\"])", "", text)
    text = _RANK.sub("", text).translate(_QUOTES)
    return re.sub(r"\s+", " ", text).strip()


def words(text: str) -> list[str]:
    """The words of a plain text, in lower case and in order."""
    return _WORD.findall(text.lower())


@dataclass
class Wording:
    """A wording with its variable parts: `text` has them as `{name}`."""

    text: str
    entry: int
    kind: str = ""  # the exception's or warning's type
    literal: list[str] = field(default_factory=list)  # its words outside the variable parts
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        text = self.text
        if kind := _TYPE.match(text):
            self.kind, text = kind[1], text[kind.end() :]
        self.body = text
        self.literal = words(plain(_SLOT.sub(" ", text)))
        self.names = _SLOT.findall(text)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What a plain text must contain, with a group for each variable part."""
        pieces = _SLOT.split(self.body)
        found = ""
        for n, piece in enumerate(pieces):
            if n % 2:
                last = n == len(pieces) - 2 and not pieces[-1].strip()
                found += r"(\[[^\]]{0,160}\]|\([^)]{0,160}\)|\S*)" if last else r"(.{0,160}?)"
                continue
            for char in _loose(piece, first=n == 0, last=n == len(pieces) - 1):
                found += char
        return re.compile(found, re.I)


def _loose(piece: str, first: bool, last: bool) -> str:
    """A literal piece as a pattern: spaces may be lost, quotes may differ."""
    text = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", piece).translate(_QUOTES))
    text = text.lstrip() if first else text
    text = text.rstrip(" .!") if last else text
    found = "".join(" ?" if c == " " else "'?" if c == "'" else re.escape(c) for c in text)
    if first and re.match(r"\w", text):
        found = r"(?<![\w])" + found
    if last and re.search(r"\w$", text):
        found += r"(?![\w])"
    return found


@dataclass
class Answer:
    """An entry that a text met."""

    entry: dict[str, Any]
    score: float
    sure: bool
    whole: bool = False  # the whole wording was met
    case: dict[str, Any] | None = None  # the special case whose condition holds
    values: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The permanent address of what is shown first."""
        return (self.case or self.entry)["id"]


class Messages:
    """The messages of the book, to be searched."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries
        self.wordings = [
            Wording(text, number) for number, e in enumerate(entries) for text in e["says"]
        ]
        seen: dict[str, set[int]] = {}
        for wording in self.wordings:
            for word in wording.literal:
                seen.setdefault(word, set()).add(wording.entry)
        self._rare = {word: math.log(1 + len(entries) / len(where)) for word, where in seen.items()}

    def weight(self, several: list[str]) -> float:
        """How much words tell: the rarer among the messages, the more; unknown ones nothing."""
        return sum(self._rare.get(word, 0.0) for word in several)

    def find(self, pasted: str) -> list[Answer]:
        """What a pasted message or log may be, the best first; the sure ones stand before others.

        Only sure ones are answers; where there is none, the rest is perhaps related.
        """
        text = plain(pasted[-LONGEST:])
        if not text:
            return []
        best: dict[int, Answer] = {}
        for wording in self.wordings:
            if answer := self._whole(wording, text):
                _keep(best, wording.entry, answer)
        if not any(not a.entry.get("wraps") for a in best.values()):
            for wording, score, sure in self._parts(text):
                entry = self.entries[wording.entry]
                _keep(best, wording.entry, _cased(Answer(entry, score, sure), wording, text, ()))
        found = sorted(best.values(), key=lambda a: (not a.sure, -a.score))
        if not found:
            return []
        top = found[0]
        return [a for a in found if a.sure == top.sure and a.score >= 0.45 * top.score][:6]

    def _whole(self, wording: Wording, text: str) -> Answer | None:
        """The whole wording stands in the text."""
        places = [*wording.pattern.finditer(text)]
        if not places:
            return None
        here = places[-1]
        before = text[max(0, here.start() - 80) : here.start()]
        typed = bool(wording.kind) and _kind(wording.kind) in before[-len(wording.kind) - 4 :]
        weight = self.weight(wording.literal)
        if wording.kind and weight < TELLING and not typed:
            return None
        if not wording.literal and not typed:
            return None
        later = sum(1 for _ in _HEAD.finditer(text, here.end()))
        score = (weight + 3 * typed) * 0.9 ** min(later, 4)
        entry = self.entries[wording.entry]
        if entry.get("wraps"):
            score *= 0.2
        return _cased(Answer(entry, score, True, True), wording, text, here.groups())

    def _parts(self, text: str) -> list[tuple[Wording, float, bool]]:
        """Wordings of which the text has only a part: cut short, worded anew, typed from memory."""
        heads = [m.start() for m in _HEAD.finditer(text)]
        told = text[heads[-1] :] if heads else text
        told = _TYPE.sub("", told)[:600]
        mine = words(told)
        pairs = set(zip(mine, mine[1:], strict=False))
        whole = self.weight(sorted(set(mine)))
        found = []
        for wording in self.wordings:
            literal = wording.literal
            both = [p for p in zip(literal, literal[1:], strict=False) if p in pairs]
            if not both and not (len(mine) <= 3 and set(mine) & set(literal)):
                continue
            met = self.weight(sorted({word for pair in both for word in pair}))
            total = self.weight(sorted(set(literal))) or 1.0
            share, mine_share = met / total, met / (whole or 1.0)
            unknown = sum(word not in self._rare for word in mine)
            covered = mine_share * len(mine) / (len(mine) + unknown)
            enough = met >= TELLING
            sure = enough and (share >= SURE or (covered >= 0.85 and met >= 2 * TELLING))
            if sure or (met >= TELLING / 2 and max(share, covered) >= RELATED):
                found.append((wording, met * (share + covered) / 2, sure))
        return found


def _keep(best: dict[int, Answer], number: int, answer: Answer) -> None:
    if number not in best or best[number].score < answer.score:
        best[number] = answer


def _kind(kind: str) -> str:
    return kind.rpartition(".")[2]


def _cased(answer: Answer, wording: Wording, text: str, groups: tuple[str, ...]) -> Answer:
    """With the first special case whose conditions hold."""
    answer.values = {
        name: (value or "").strip(" '.,;")
        for name, value in zip(wording.names, groups, strict=False)
    }
    for case in answer.entry.get("cases", ()):
        when = case.get("when", {})
        if not all(
            name in answer.values and re.fullmatch(wanted, answer.values[name], re.I)
            for name, wanted in when.items()
        ):
            continue
        if (near := case.get("near")) and not re.search(near, text, re.I):
            continue
        answer.case = case
        answer.score += 1
        break
    return answer


@cache
def messages() -> Messages:
    """The messages that this package ships."""
    return Messages(json.loads(FILE.read_text("utf8")))
