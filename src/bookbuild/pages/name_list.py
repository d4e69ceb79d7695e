"""Generate the index by name: each PyTorch name with the sections about it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from io import IOBase
from itertools import groupby
from pathlib import Path

from bookbuild.pages.markdown import fill, page
from bookbuild.pages.torch_names import ALIASES, imports, torch_names
from bookbuild.source import texts
from bookbuild.source.checkout import Book
from bookbuild.source.outline import Part, locate_section, sections
from bookbuild.source.words import words

HEADING, ANSWER, CODE = range(3)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_ATTRIBUTE = re.compile(
    r"(?:(?<![\w.])(\w+)(?:\.\w+)*|(?<=[)\]]))(\.(?:[A-Za-z]\w+|[HTt]))(?![\w'\"])(\(?)"
)
_IMPORT = re.compile(r"^\s*(?:from \S+ )?import (.+)$", re.M)
_IN_PROSE = re.compile(r"(?:[\w.]*\.)?([A-Za-z]\w*)(?:\(.*\))?")
_PYTHON = (str, list, dict, set, int, float, Path, IOBase)
_OF_PYTHON = {f".{name}" for kind in _PYTHON for name in dir(kind)}


def sections_by_name(book: Book) -> dict[str, list[Part]]:
    """Return for each name the sections about it; a heading with the name puts a section first.

    A section is about the names in its heading, in its answer (the bold line), and in its cells
    tagged `wrong` or `right`. A name in the code of more than 2% of the sections (a method: more
    than 5%) is too common to be a subject of its cells. A method such as `.detach` has no class,
    because code does not state one, and is listed only if the book's prose names it.
    """
    chapters = [texts.load(book, name) for name in book.chapters]
    prose = "\n".join(c.words.en for text in chapters for c in text.cells if c.type == "markdown")
    spans = {*_SPAN.findall(prose)}
    spans |= {f"{match[1]}()" for span in spans if (match := _IN_PROSE.fullmatch(span))}
    spans |= {f"{m[1:]}()" for span in spans for _, m, call in _ATTRIBUTE.findall(span) if call}
    parts = [(part, *names) for text in chapters for part, *names in _parts(text, spans)]
    known = Counter(name for *_, names in parts for name in names)
    by_end = {_last(name): name for name in sorted(known, reverse=True)}
    places: dict[str, list[tuple[int, Part]]] = defaultdict(list)
    for part, aliases, used in parts:
        titled = _of_prose(part.heading, aliases, by_end)
        answered = _of_prose(part.answer["en"], aliases, by_end)
        rare = {
            name
            for name in used
            if known[name] <= max(1, len(parts) / (20 if name.startswith(".") else 50))
        }
        for name in titled | answered | rare:
            rank = HEADING if name in titled else ANSWER if name in answered else CODE
            places[name].append((rank, part))
    order = sorted(places, key=lambda name: (_last(name).lower(), name))
    return {name: _ranked(places[name]) for name in order}


def _parts(text: texts.Text, spans: set[str]) -> Iterator[tuple[Part, dict[str, str], set[str]]]:
    """Yield each section of a chapter with the chapter's aliases and the names in its code.

    `spans` are all inline-code texts of the book, such as `.data` and `detach()`; methods and
    attributes that are not among them are left out.
    """
    everything = "\n".join(cell.source for cell in text.cells if cell.type == "code")
    aliases = ALIASES | imports(everything)
    modules = {*aliases, *re.findall(r"\w+", " ".join(_IMPORT.findall(everything)))}
    for part in sections(text):
        cells = (c for c in part.code if {"wrong", "right"} & {*c.metadata.get("tags", ())})
        code = "\n".join(cell.source for cell in cells)
        methods = {
            name
            for owner, name, called in _ATTRIBUTE.findall(code)
            if owner not in modules and (f"{name[1:]}()" if called else name) in spans
        }
        yield part, aliases, {*torch_names(code, aliases)} | (methods - _OF_PYTHON)


def _of_prose(markdown: str, aliases: dict[str, str], by_end: dict[str, str]) -> set[str]:
    """Return the names in a heading or an answer; `by_end` maps a last part to its full name."""
    names = set(torch_names(markdown, aliases))
    for span in _SPAN.findall(markdown):
        if not set(torch_names(span, aliases)):
            match = _IN_PROSE.fullmatch(span)
            own = (
                [match[1]] if match else [m[1:] for _, m, call in _ATTRIBUTE.findall(span) if call]
            )
            names |= {by_end[name] for name in own if name in by_end}
    return names


def _ranked(places: list[tuple[int, Part]]) -> list[Part]:
    """Return sections by rank, then reading order; after the first five, drop rank CODE."""
    ordered = sorted(places, key=lambda place: place[0])
    return [part for n, (rank, part) in enumerate(ordered) if n < 5 or rank != CODE]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def render(book: Book, lang: str, names: dict[str, list[Part]]) -> str:
    """Return the page as Markdown; `names` has the sections of each name."""
    w = words(lang, "names")
    listed = [(name, _places(book, lang, name, parts)) for name, parts in names.items()]
    groups = [
        (letter, [*group])
        for letter, group in groupby(listed, lambda item: _last(item[0])[0].upper())
    ]
    values = {"w": w, "field": words(lang, "filter"), "groups": groups, "count": len(names)}
    return page("the texts of the chapters", w["summary"], fill("by_name.md", **values))


def _places(book: Book, lang: str, name: str, parts: list[Part]) -> list[tuple[str, str]]:
    """Return the address and title of each section."""
    places = (locate_section(book, f"{part.name}#{part.id}", name) for part in parts)
    return [(href, titles[lang].partition(" › ")[2] or titles[lang]) for href, titles in places]
