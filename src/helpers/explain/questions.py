"""Find the symptoms and sections of the book that answer a question.

`helpers.explain` uses this module for texts that match no message. The ranking is simpler than that
of the site (`search.js`), which is the reference.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_CHUNK = re.compile(
    r"[\u3400-\u9fff]+|[\w\u00c0-\u024f]+(?:\.[\w\u00c0-\u024f]+)*", re.A
)  # as in search.js: Chinese characters beside a name are split off
_HAN = re.compile(r"[\u3400-\u9fff]")
_SEAM = re.compile(r"_+|\.|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Za-z])(?=\d)")
_ENDS = re.compile(r"(?:ations?|at(?:es?|ed|ing)|ions?|ing|(?<!e)ed|es|e|(?<!s)s)$")
_SHORT_NOT = re.compile(r"\b(is|are|was|were|do|does|did|has|have)n['’]t\b", re.I)  # to "is not"
# Weights: match in a title, in the text, in the names; factor for a match by a synonym.
_TITLE, _ALSO, _NAMED, _OTHER = 6.0, 2.0, 1.0, 0.7
_LEAST, _LONGEST = 0.35, 300  # minimum share of matched weight; characters read of a question


@dataclass(frozen=True)
class Place:
    """A symptom or a section, with `title` and `also` (the text that is searched) by language.

    `names` are further names in the prose of a section, such as functions and methods; `queries`
    are queries that it answers.
    """

    kind: str
    href: str
    title: dict[str, str]
    also: dict[str, str]
    names: str = ""
    queries: str = ""

    @property
    def own_title(self) -> dict[str, str]:
        """The title without the chapter's title."""
        return {lang: title.rpartition(" › ")[2] for lang, title in self.title.items()}


class Questions:
    """Search index of symptoms and sections; `words` has the contents of `search.yml`."""

    def __init__(self, places: Iterable[dict[str, Any]], words: dict[str, Any]) -> None:
        self.places = [Place(**place) for place in places]
        self._small = set(words["small"].split())
        self._small_han = re.compile(words["small_han"])
        self._particles = set(words["particles_han"])
        self._weak = {_stem(word) for word in words["weak"].split()}
        self._same: dict[str, list[str]] = {}
        for group in words["same"]:
            for name in group:
                self._same.setdefault(_key(name), []).extend(group)
        names = sorted((name for group in words["same"] for name in group), key=len, reverse=True)
        self._names = re.compile("|".join(map(_bounded, names)), re.I | re.A)
        self._terms = [
            (
                _of(p.own_title),
                _of(p.also) | _of(p.title) | _terms(p.queries),
                _names(p.names),
            )
            for p in self.places
        ]
        self._titles = [_key("\n".join(p.own_title.values())) for p in self.places]
        self._text = [
            _key("\n".join([*p.title.values(), *p.also.values(), p.queries])) for p in self.places
        ]
        self._seen = Counter(term for both in self._terms for term in set().union(*both))

    def find(self, question: str) -> list[Place]:
        """Return the places that match a question, best first; an empty list without a match."""
        scores = [0.0] * len(self.places)
        shares, total = scores.copy(), 0.0
        question = _SHORT_NOT.sub(r"\1 not", question[:_LONGEST])
        for phrase in self._units(question):
            hits = self._hits(phrase)
            weight = math.log(1 + len(scores) / len(hits)) if hits else 0.0
            weight *= 0.4 if _stem(phrase) in self._weak else 1
            total += weight
            for number, score in hits.items():
                scores[number] += weight * score
                shares[number] += weight
        least = _LEAST * max(shares, default=0)
        asked = _key(self._small_han.sub("", question)) or "\n"

        def rank(number: int) -> float:
            whole = 1.5 if asked in self._titles[number] else 1
            short = 1 + len(self._terms[number][0]) / 20
            return -scores[number] * (shares[number] / total) ** 2 * whole / short

        numbers = [number for number, share in enumerate(shares) if share > least]
        return [self.places[number] for number in sorted(numbers, key=rank)]

    def _hits(self, phrase: str) -> dict[int, float]:
        """Return the score of each place that contains a phrase or one of its synonyms.

        The words of a synonym must be adjacent: "not a number" does not match scattered words.
        """
        others = self._same.get(_key(phrase), ())
        ways = [(_terms(way), _key(way)) for way in dict.fromkeys([phrase, *others])]
        scores = {}
        for number, terms in enumerate(self._terms):
            parts = [*zip((_TITLE, _ALSO, _NAMED), terms, strict=True)]
            score = max(
                next((weight for weight, text in parts if way <= text), 0) * (_OTHER if n else 1)
                for n, (way, whole) in enumerate(ways)
                if not n or len(way) == 1 or whole in self._text[number]
            )
            if score:
                scores[number] = score
        return scores

    def _units(self, question: str) -> Iterator[str]:
        """Yield phrases of `search.yml` with hits, other words, and pairs of Chinese characters."""
        end = 0
        for match in self._names.finditer(question):
            if self._hits(match[0]):  # otherwise split the phrase into words
                yield from self._words(question[end : match.start()])
                yield match[0]
                end = match.end()
        yield from self._words(question[end:])

    def _words(self, text: str) -> Iterator[str]:
        """Yield the words of a text, and its pairs of Chinese characters that occur in the book."""
        for chunk in _CHUNK.findall(text):
            if not _HAN.match(chunk):
                yield from [chunk] if chunk.lower() not in self._small else []
                continue
            for run in self._small_han.split(chunk):
                for pair in sorted(_terms(run)):
                    if pair[1:] and self._seen[pair] and self._particles.isdisjoint(pair):
                        yield pair


def _stem(word: str) -> str:
    rest = _ENDS.sub("", word.lower())
    rest = rest if len(rest) > 2 and re.search("[aeiouy]", rest) else word.lower()
    return re.sub(r"([^aeiou])\1$", r"\1", rest)


def _terms(text: str) -> set[str]:
    """Return the index terms of a text: stems, parts of names, pairs of Chinese characters."""
    terms = set()
    for chunk in _CHUNK.findall(text):
        if _HAN.match(chunk):
            terms |= {chunk[n : n + 2] for n in range(max(1, len(chunk) - 1))}
        else:
            terms |= {_stem(part) for part in _SEAM.split(chunk) if part}
    return terms


def _names(text: str) -> set[str]:
    """Return the index terms of names: their parts and each full name."""
    return _terms(text) | {_stem(name) for name in text.split()}


def _of(texts: dict[str, str]) -> set[str]:
    return set().union(*map(_terms, texts.values()))


def _key(name: str) -> str:
    """Normalize a phrase for comparison: "undo the scaling" equals "undo scaling"."""
    return re.sub(r"\b(?:the|an?|of)\b|[\s_+-]+", "", name.lower())


def _bounded(name: str) -> str:
    parts = r"[\s_+-]*".join(map(re.escape, _CHUNK.findall(name)))
    before = "" if _HAN.match(name) else r"(?<![\w.])"
    return before + parts + (r"(?![\w.]*[A-Za-z0-9_])" if re.search(r"[A-Za-z0-9_]$", name) else "")
