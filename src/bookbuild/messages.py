"""Messages that readers meet: `book/messages/*.yml`, and what proves each wording."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from nbformat import NotebookNode

from bookbuild.book import LANGUAGES, Book, BookError, read_text
from bookbuild.headings import anchors, headings
from bookbuild.notebooks import code_cells, read
from bookbuild.text import load as load_text
from bookbuild.typography import lint
from helpers.explain import Messages, Wording, plain

FOLDER = "messages"
PRODUCT = "src/helpers/messages.json"
TORCH = "torch"  # `found: torch`: the wording's constant parts lie in the installed packages
_VARIABLE = re.compile(r"\{\w+\}")
_FIELDS = {"id", "says", "run", "found", "cause", "cure", "cure_zh", "section", "wraps", "cases"}
_OF_CASE = {"id", "when", "near", "cause", "cure", "cure_zh", "section"}


@dataclass
class Entry:
    """A message, or a special case of one (then with `when` or `near`).

    `says` are its wordings with `{variable}` parts; `proofs` has for each what shows that it is
    real: `torch`, an address, or nothing, where `run` or a cell of the book must print it.
    """

    id: str
    file: str
    cause: dict[str, str]
    cure: str = ""
    cure_zh: str = ""
    section: str = ""
    says: list[str] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)
    until: list[str] = field(default_factory=list)
    run: str = ""
    wraps: bool = False
    when: dict[str, str] = field(default_factory=dict)
    near: str = ""
    cases: list[Entry] = field(default_factory=list)

    @property
    def where(self) -> str:
        """How a problem names it."""
        return f"{self.file}::{self.id}"


def load(book: Book) -> list[Entry]:
    """All messages, in the order of the files' names.

    Raises:
        BookError: a file has another form; the message names the entry and what was expected.
    """
    folder = book.root / "book" / FOLDER
    return [
        entry
        for path in sorted(folder.glob("*.yml"))
        for entry in _parse(read_text(path, book.relative(path)), f"{FOLDER}/{path.name}")
    ]


@lru_cache(maxsize=32)
def _parse(text: str, file: str) -> tuple[Entry, ...]:
    try:
        rows = yaml.load(text, yaml.CSafeLoader) or []
    except yaml.YAMLError as error:
        raise BookError(f"{file}: {' '.join(str(error).split())}") from None
    if not isinstance(rows, list):
        raise BookError(f"{file}: expected a list of messages, got {type(rows).__name__}")
    return tuple(_entry(row, file) for row in rows)


def _entry(row: Any, file: str, case: bool = False) -> Entry:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise BookError(f"{file}: expected a message with an id, got {str(row)[:60]!r}")
    where = f"{file}::{row['id']}"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row["id"]):
        raise BookError(f"{where}: expected an id of small letters, digits and hyphens")
    if unknown := row.keys() - (_OF_CASE if case else _FIELDS):
        raise BookError(f"{where}: unknown: {', '.join(sorted(map(str, unknown)))}")
    cause = row.get("cause")
    if not isinstance(cause, dict) or not all(isinstance(cause.get(x), str) for x in LANGUAGES):
        raise BookError(f"{where}: expected a cause with en and zh")
    for name in ("run", "found", "cure", "cure_zh", "section", "near"):
        if not isinstance(row.get(name, ""), str):
            raise BookError(f"{where}: {name}: expected a text, got {row[name]!r}")
    entry = Entry(
        row["id"],
        file,
        {lang: " ".join(cause[lang].split()) for lang in LANGUAGES},
        **{name: row.get(name, "").strip() for name in ("cure", "cure_zh", "section", "near")},
    )
    if case:
        when = row.get("when", {})
        if not isinstance(when, dict) or not (when or entry.near):
            raise BookError(f"{where}: a case needs a condition: when or near")
        entry.when = {str(k): str(v) for k, v in when.items()}
        for pattern in (entry.near, *entry.when.values()):
            try:
                re.compile(pattern)
            except re.error as error:
                raise BookError(f"{where}: {pattern!r} is no regular expression: {error}") from None
            if re.search(r"\(\?[^:=!]", pattern):
                raise BookError(
                    f"{where}: {pattern!r}: expected what Python and JavaScript share, without "
                    "flags, names or a look behind; case is ignored anyway"
                )
        return entry
    says = row.get("says")
    if not isinstance(says, list) or not says:
        raise BookError(f"{where}: expected `says`, a list of wordings")
    entry.run, entry.wraps = row.get("run", "").strip(), bool(row.get("wraps"))
    for wording in says:
        own = {"text": wording} if isinstance(wording, str) else wording
        if not isinstance(own, dict) or not isinstance(own.get("text"), str):
            raise BookError(f"{where}: expected a wording, got {str(wording)[:60]!r}")
        if not _VARIABLE.sub("", own["text"]).strip(" :"):
            raise BookError(f"{where}: a wording without a constant part: {own['text']!r}")
        entry.says.append(" ".join(own["text"].split()))
        entry.proofs.append(str(own.get("found") or row.get("found", "")))
        entry.until.append(str(own.get("until", "")))
    entry.cases = [_entry(row, file, case=True) for row in row.get("cases") or ()]
    for case_ in entry.cases:
        names = set(_VARIABLE.findall(" ".join(entry.says)))
        if unknown := {f"{{{name}}}" for name in case_.when} - names:
            raise BookError(f"{case_.where}: no wording has {', '.join(sorted(unknown))}")
    return entry


# ---------------------------------------------------------------- what is made of them


def product(book: Book, entries: list[Entry]) -> str:
    """`messages.json` of the helpers: what the matching and the explanations need."""
    titles = {}
    for entry in entries:
        for one in (entry, *entry.cases):
            if one.section:
                titles[one.section] = section(book, one)

    def plain(entry: Entry) -> dict[str, Any]:
        made: dict[str, Any] = {"id": entry.id}
        if entry.says:
            made["says"] = entry.says
        for name in ("when", "near", "cure", "cure_zh"):
            if value := getattr(entry, name):
                made[name] = value
        made["cause"] = entry.cause
        if entry.section:
            href, by_language = titles[entry.section]
            made["section"] = {"href": href.replace(".ipynb", ".html"), **by_language}
        if entry.wraps:
            made["wraps"] = True
        if entry.cases:
            made["cases"] = [plain(case) for case in entry.cases]
        return made

    rows = (json.dumps(plain(e), ensure_ascii=False) for e in entries)
    return "[\n" + ",\n".join(rows) + "\n]\n"


def section(book: Book, entry: Entry) -> tuple[str, dict[str, str]]:
    """The address of the section that an entry names by a cell of it, with its titles.

    Raises:
        BookError: there is no such chapter, or no such cell in it.
    """
    name, _, cell_id = entry.section.partition("#")
    if name not in book.texts:
        raise BookError(f"{entry.where}: section: no chapter {name!r}")
    places = _places(book, name, book.text(name).stat().st_mtime_ns)
    if cell_id not in places:
        raise BookError(f"{entry.where}: section: {name} has no cell {cell_id!r}")
    return places[cell_id]


@lru_cache(maxsize=64)
def _places(book: Book, name: str, changed: int) -> dict[str, tuple[str, dict[str, str]]]:
    """The section of each cell of a chapter, by its id, and the chapter itself by ``."""
    cells = load_text(book, name).cells
    pairs = []  # of each heading: the cell, both titles
    for cell in cells:
        if cell.type == "markdown":
            english, chinese = headings(cell.words.en), headings(cell.words.zh or cell.words.en)
            chinese = chinese if len(chinese) == len(english) else english
            pairs += [(cell.id, e, z) for e, z in zip(english, chinese, strict=True)]
    begins = {}
    chapter = here = (f"{name}.ipynb", {})
    for n, ((own, *both), anchor) in enumerate(
        zip(pairs, anchors([e.plain for _, e, _ in pairs]), strict=True)
    ):
        titles = {lang: h.plain for lang, h in zip(LANGUAGES, both, strict=True)}
        if not n:
            chapter = here = begins[own] = (f"{name}.ipynb", titles)
            continue
        titles = {lang: f"{chapter[1][lang]} › {title}" for lang, title in titles.items()}
        begins.setdefault(own, (f"{name}.ipynb#{anchor}", titles))
    found = {"": chapter}
    for cell in cells:
        here = begins.get(cell.id, here)
        found[cell.id] = here
    return found


def problems(book: Book, entries: list[Entry]) -> Iterator[str]:
    """What is wrong with the messages as a whole, a line each."""
    everything = [one for entry in entries for one in (entry, *entry.cases)]
    for name, count in Counter(one.id for one in everything).items():
        if count > 1:
            yield f"{FOLDER}: {count} messages have the id {name}"
    for text, count in Counter(t.lower() for e in entries for t in e.says).items():
        if count > 1:
            yield f"{FOLDER}: {count} messages have the wording {text!r}"
    for one in everything:
        for problem in lint(_VARIABLE.sub("x", one.cause["zh"])):
            yield f"{one.where}: {problem}"
        if one.section:
            try:
                section(book, one)
            except BookError as error:
                yield str(error)


# ---------------------------------------------------------------- proofs


def constants(wording: str) -> list[str]:
    """The constant parts of a wording without its type, in pieces short enough to be found."""
    text = re.sub(r"^(?:\w+\.)*\w*(?:Error|Exception|Warning|Exit|Interrupt): ", "", wording)
    pieces = []
    for part in _VARIABLE.split(text):
        pieces += textwrap.wrap(part.strip(" .,:;!'\"`()[]"), 32, break_long_words=False)
    return [piece for piece in pieces if len(piece) > 5] or [max(pieces, key=len)]


def not_in(wordings: list[str], folders: list[Path]) -> list[str]:
    """The wordings of whose constant parts less than 60 % stand in the files of installed packages.

    Libraries and Python files under `folders` are searched by `grep`. All of a wording is seldom
    found: a compiler or an author may have broken it anywhere.
    """
    if not wordings:
        return []
    files = [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix == ".py" or ".so" in path.suffixes
    ]
    found = _grep(sorted({piece for wording in wordings for piece in constants(wording)}), files)
    lacking = []
    for wording in wordings:
        pieces = constants(wording)
        if sum(len(p) for p in pieces if p in found) < 0.6 * sum(map(len, pieces)):
            lacking.append(wording)
    return lacking


def _grep(pieces: list[str], files: list[str]) -> set[str]:
    """The pieces that some file has."""
    found: set[str] = set()
    for start in range(0, len(files), 1000):
        ran = subprocess.run(
            ["grep", "-a", "-o", "-h", "-F", "-f", "-", *files[start : start + 1000]],
            input="\n".join(pieces).encode(),
            capture_output=True,
            env={"LC_ALL": "C"},
        )
        found |= set(ran.stdout.decode(errors="replace").splitlines())
    # grep prints the longest piece at a place: shorter ones within it are there, too
    return {p for p in pieces if p in found or any(p in f for f in found)}


_DRIVER = """
import gc, importlib, json, os, sys, tempfile, warnings
import numpy, torch, torchvision
slow = {  # what takes seconds is imported once, after those that do not say the word
    "torch.export": "torch.export",
    "torch.compile": "torch._dynamo",
    "matplotlib": "matplotlib.pyplot",
    "sklearn": "sklearn.metrics",
    "torchmetrics": "torchmetrics",
}
for name, code in sorted(json.load(sys.stdin), key=lambda x: [word in x[1] for word in slow]):
    for word, module in slow.items():
        if word in code:
            importlib.import_module(module)
    gc.freeze()  # or each child would copy what it only looks at
    with tempfile.TemporaryFile() as out:
        if (child := os.fork()) == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
            warnings.simplefilter("always")
            try:
                exec(compile(code, "<message>", "exec"), {"__name__": "__main__"})
            except BaseException:
                import traceback
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        os.waitpid(child, 0)
        out.seek(0)
        print(json.dumps([name, out.read().decode(errors="replace")]), flush=True)
"""


def printed(codes: list[tuple[str, str]]) -> dict[str, str]:
    """All that pieces of code print, warn and raise, by name; each runs in a process of its own.

    PyTorch, and what else takes long, is imported once, in a process that then forks: on Linux and
    macOS.
    """
    if not codes:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-c", _DRIVER, folder],
            input=json.dumps(codes),
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if ran.returncode:
        raise RuntimeError(f"the proofs could not be run: {ran.stderr[-500:]}")
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def said_by_cells(
    entries: list[Entry], notebooks: Mapping[str, NotebookNode]
) -> dict[str, list[tuple[str, str]]]:
    """Of each entry, the cells whose stored output has a wording of it, as chapter and cell id."""
    search = Messages([{"id": e.id, "says": e.says} for e in entries])
    found: dict[str, list[tuple[str, str]]] = {}
    for name, notebook in notebooks.items():
        for cell in code_cells(notebook):
            for output in cell.outputs:
                raises = output.output_type == "error"
                text = f"{output.ename}: {output.evalue}" if raises else output.get("text", "")
                answers = search.whole(plain(text)).values() if text else ()
                least = 0.45 * max((a.score for a in answers), default=0)
                for answer in answers:
                    places = found.setdefault(answer.entry["id"], [])
                    if answer.score >= least and (name, cell.id) not in places:
                        places.append((name, cell.id))
    return found


def unproved(book: Book, entries: list[Entry], installed: list[Path]) -> Iterator[str]:
    """The wordings that their proof does not show, a line each: what `run` prints, what the
    installed packages under `installed` hold, what the book's own cells print."""
    said = printed([(e.id, e.run) for e in entries if e.run])
    stored = {name: book.notebook("en", name) for name in book.texts}
    notebooks = {name: read(path) for name, path in stored.items() if path.exists()}
    cells = said_by_cells(entries, notebooks)
    every = [
        (e, text, proof) for e in entries for text, proof in zip(e.says, e.proofs, strict=True)
    ]
    strings = set(not_in([text for _, text, proof in every if proof == TORCH], installed))
    for entry, text, proof in every:
        ran = plain(said.get(entry.id, ""))
        if not proof and Wording(text, 0).match(ran):
            continue
        if entry.run and not any(Wording(t, 0).match(ran) for t in entry.says):
            yield f"{entry.where}: run does not say {text!r}, but {ran[-100:]!r}"
        elif proof == TORCH:
            if text in strings:
                yield f"{entry.where}: the installed packages do not hold {text!r}"
        elif proof and not proof.startswith("https://"):
            yield f"{entry.where}: found: expected torch or an address, got {proof!r}"
        elif not proof and (entry.run or entry.id not in cells):
            yield f"{entry.where}: neither `run` nor a cell prints {text!r}; give it `found`"
