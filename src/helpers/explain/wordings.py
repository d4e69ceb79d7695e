"""Match one wording of a message with a text."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property

from helpers.explain.data import LIMITS, PATTERNS, QUOTES, TYPE, VARIABLE
from helpers.explain.text import base_type, plain, squeezed, words

TRACEBACK = "Traceback (most recent"


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
        if kind := TYPE.match(text):
            self.kind, text = kind[1], text[kind.end() :]
        self.body = text.rstrip(" .!")
        self.literal = words(plain(VARIABLE.sub(" ", text)))
        self.names = VARIABLE.findall(text)
        # all numbers must occur: 139 is not 1
        self.numbers = PATTERNS["number"].findall(VARIABLE.sub(" ", text))
        if not self.literal:  # only the type identifies the message, as in KeyError: {n}
            self.body = f"{base_type(self.kind)}: {self.body}"

    @cached_property
    def anchor(self) -> str:
        """The longest constant part, squeezed; a text that lacks it cannot match."""
        return max((squeezed(piece) for piece in VARIABLE.split(self.body)[::2]), key=len)

    @cached_property
    def pieces(self) -> list[re.Pattern[str] | None]:
        """Patterns of the constant parts; None for an empty part at the start or end."""
        texts = VARIABLE.split(self.body)[::2]
        return [
            re.compile(_loose(text, n == 0, n == len(texts) - 1), re.I | re.A)
            if text.strip()
            else None
            for n, text in enumerate(texts)
        ]

    def typed(self, text: str, start: int) -> bool:
        """Return True if the wording's type precedes position `start` of a normalized text."""
        before = text[max(0, start - 80) : start].lower()
        return bool(self.kind) and base_type(self.kind).lower() in before[-len(self.kind) - 4 :]

    def match(self, text: str, typed: bool = False) -> tuple[int, int, list[str]] | None:
        """Return (start, end, values) of the last full match in a normalized text, or None.

        With `typed`, only matches after the wording's type count. Each constant part must follow
        the preceding one within 160 characters and before the next traceback; there is no
        backtracking, so the time is bounded.
        """
        pieces = self.pieces
        first = 0 if pieces[0] or len(pieces) == 1 else 1
        if pieces[first] is None:
            return None
        for start in reversed([*pieces[first].finditer(text)]):
            begin, end, values = start.start(), start.end(), []
            if first:
                window = text[max(0, begin - LIMITS.gap) : begin]
                values.append(PATTERNS["before"].search(window)[0])
                begin -= len(values[0])
            for piece in pieces[first + 1 :]:
                quoted = None
                if piece is not None and piece.pattern == "'" == text[end - 1]:
                    quoted = PATTERNS["quoted"].match(text, end)
                if piece is None:  # the wording ends with a variable part
                    here = PATTERNS["last"].match(text, end)
                elif quoted:
                    here = quoted
                else:
                    here = piece.search(text, end, end + LIMITS.gap + 2 * len(piece.pattern))
                    if here is None or here.start() - end > LIMITS.gap:
                        break
                value = here[0] if piece is None else text[end : here.start()]
                values.append(quoted[1] if quoted else value)
                if not self.literal and self.names == ["n"] and not values[-1].isdigit():
                    break
                end = here.end()
            else:
                apart = any(TRACEBACK in value for value in values)
                if not apart and (self.typed(text, begin) or not (typed or self._type_in(values))):
                    return begin, end, values
        return None

    def _type_in(self, values: list[str]) -> bool:
        """Return True if a value contains the wording's type, so the message begins inside it."""
        return bool(self.kind) and any(f"{base_type(self.kind)}:" in value for value in values)


def _loose(piece: str, first: bool, last: bool) -> str:
    """Return a pattern of a constant part that tolerates missing spaces and other punctuation."""
    text = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", piece).translate(QUOTES))
    text = text.lstrip() if first else text
    quote = "'?" if re.search(r"\w", text) else "'"  # required if the part has no other text
    pattern = "".join(" ?" if c == " " else quote if c == "'" else re.escape(c) for c in text)
    if re.search(r"\w", text):
        pattern = re.sub(r"(?:,|\\\.|;)(?= \?)", "[,.;]?", pattern)
    if re.fullmatch(r"'? \w{1,4} '?", text):  # ` on ` is no part of `DetectionModel`
        pattern = re.sub(r"(\w+)", r"\\b\1\\b", pattern)
    elif not last and re.search(r"[a-z] $", text, re.I):  # `assert ` does not begin `Assertion`
        pattern = pattern[:-2] + "(?: |(?![a-z_]))"
    if first and re.match(r"'?\w", text):
        pattern = r"(?<![\w])" + pattern
    if first and text == "'":
        pattern += r"(?=\S)"  # an opening quote is followed by text
    if last and re.search(r"\w'?$", text):
        pattern += r"(?!_*[^\W_])"  # `use_` of Markdown ends with `use`
    return pattern
