"""Everything that can be proved about the notebooks without running them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from nbformat import NotebookNode

from bookbuild import claims as claims_file
from bookbuild.notebooks import (
    CHEAT_SHEET,
    LANGUAGES,
    Book,
    BookError,
    alt,
    code_cells,
    fingerprints,
    problems_of_schema,
    prose,
    read,
    tags,
    tokens,
)
from bookbuild.sync import state
from bookbuild.typography import lint

MAX_BYTES = 500_000
MAX_COLUMNS = 79
_PATHS = re.compile(r"(?:/(?:home|root|tmp|Users|work|mnt|var)|[A-Z]:\\\\)[/\\][\w./\\-]+")
_FOREIGN = re.compile(r"""(?:src|href)=\\?["'](?:https?:)?//[^"'\\]+""")
# What a translation must carry over unchanged: maths, link targets, directives, labels.
_FIXED = re.compile(
    r"\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)\s]+\)|^[`:]{3,}\{[\w-]+\}|^:class: .+|^\([\w-]+\)=$|^#+ ",
    re.S | re.M,
)


def check(book: Book, names: Iterable[str] = ()) -> list[str]:
    """All problems of the chapters, each as one line `file::cell: what`."""
    chosen = book.choose(list(names))
    problems = [] if names else list(_files(book))
    proved: dict[str, set[str]] = {}
    for name in chosen:
        notebooks = {}
        for lang in LANGUAGES:
            try:
                notebooks[lang] = read(book.path(lang, name))
            except BookError as error:
                problems.append(str(error))
                continue
            problems += _notebook(book, lang, name, notebooks[lang])
        if len(notebooks) == 2:
            problems += _languages(name, notebooks["en"], notebooks["zh"])
        proved[name] = _proved(notebooks["en"]) if "en" in notebooks else set()
    problems += _claims(book, proved)
    if not names:
        from bookbuild import pages

        problems += pages.stale(book)
    return problems


def _files(book: Book) -> Iterator[str]:
    """The two languages hold the notebooks that `_toc.yml` names, and no others."""
    for lang in LANGUAGES:
        for path in sorted((book.root / "book" / lang).glob("*.ipynb")):
            if path.stem not in (*book.chapters, CHEAT_SHEET):
                yield f"{lang}/{path.name}: not in _toc.yml"


def _notebook(book: Book, lang: str, name: str, nb: NotebookNode) -> Iterator[str]:
    """One notebook by itself."""
    where = f"{lang}/{name}"
    if wrong := problems_of_schema(nb):
        yield f"{where}: not valid: {wrong}"
        return
    if (size := book.path(lang, name).stat().st_size) > MAX_BYTES:
        yield f"{where}: {size} bytes, at most {MAX_BYTES}"
    if not nb.metadata.get("summary"):
        yield f"{where}: no summary"
    code = code_cells(nb)
    if not code or code[0].id != "setup" or code[0].source != book.setup:
        yield f"{where}::setup: the first code cell is not the setup cell; run `book run`"
    ran = nb.metadata.get("ran", {})
    for number, cell in enumerate(code, 1):
        for problem in _code(cell, number, ran.get(cell.id)):
            yield f"{where}::{cell.id}: {problem}"
    if lang == "zh":
        texts = [(c.id, prose(c)) for c in nb.cells] + [("summary", nb.metadata.get("summary", ""))]
        for cell_id, text in texts:
            for problem in lint(text):
                yield f"{where}::{cell_id}: {problem}"


def _code(cell: NotebookNode, number: int, ran: list[str] | None) -> Iterator[str]:
    """One code cell: run, as stored by that run, and fit for every reader."""
    if cell.id != "setup":
        for line in cell.source.splitlines():
            if len(line) > MAX_COLUMNS:
                yield f"line of {len(line)} columns, at most {MAX_COLUMNS}: {line[:40]}…"
    waits_for_gpu = "gpu" in tags(cell) and cell.execution_count is None and not cell.outputs
    if not waits_for_gpu:
        if cell.execution_count is None or ran is None:
            yield "never run, so nothing would be compared; run `book run`"
        elif cell.execution_count != number:
            yield f"execution count {cell.execution_count}, expected {number}; run `book run`"
        elif ran[0] != fingerprints(cell)[0]:
            yield "code changed since it was run; run `book run`"
        elif ran[1] != fingerprints(cell)[1]:
            yield "output differs from what the run stored; run `book run`"
    stored = json.dumps(cell.outputs, ensure_ascii=False)
    for path in _PATHS.findall(stored):
        yield f"a path of one machine in the output: {path}"
    for link in _FOREIGN.findall(stored):
        yield f"the output loads from another host: {link}"
    raised = any(o.output_type == "error" for o in cell.outputs)
    if raised and "raises-exception" not in tags(cell):
        yield "raises, but has no tag raises-exception"
    if raised and not cell.metadata.get("cause"):
        yield "raises, but does not say why: give it a cause"
    if any("image/png" in o.get("data", {}) for o in cell.outputs) and not alt(cell):
        yield "a figure without a text for those who cannot see it: give it an alt"
    for tag, mark in (("exercise", "✗"), ("solution", "✓")):
        if tag in tags(cell) and mark not in stored:
            yield f"tagged {tag}, but its output has no {mark}"


def _languages(name: str, en: NotebookNode, zh: NotebookNode) -> Iterator[str]:
    """The Chinese notebook against the English one."""
    where = f"zh/{name}"
    if [(c.id, c.cell_type) for c in en.cells] != [(c.id, c.cell_type) for c in zh.cells]:
        pairs = zip_longest((c.id for c in en.cells), (c.id for c in zh.cells))
        first = next((f"{b} where English has {a}" for a, b in pairs if a != b), "a cell's type")
        yield f"{where}: cells or their order differ: {first}; run `book sync`"
        return
    if zh.metadata.get("summary") == en.metadata.get("summary"):
        yield f"{where}::summary: not translated"
    for a, b in zip(en.cells, zh.cells, strict=True):
        status = state(a, b)
        if status == "missing":
            yield f"{where}::{b.id}: not translated"
        elif status == "stale":
            yield f"{where}::{b.id}: the English changed since it was translated"
        elif status == "unstamped":
            yield f"{where}::{b.id}: translation changed; run `book sync`"
        if a.cell_type == "markdown":
            mine, theirs = (Counter(_FIXED.findall(c.source)) for c in (b, a))
            for piece in (mine - theirs) + (theirs - mine):
                yield f"{where}::{b.id}: not the same in both languages: {piece.strip()!r}"
            continue
        if tokens(a.source) != tokens(b.source):
            yield f"{where}::{b.id}: code differs from English; run `book sync`"
        if tags(a) != tags(b) or a.metadata.get("claims") != b.metadata.get("claims"):
            yield f"{where}::{b.id}: tags or claims differ from English; run `book sync`"
        if a.outputs != b.outputs or a.execution_count != b.execution_count:
            yield f"{where}::{b.id}: output differs from English; run `book sync`"


def _proved(nb: NotebookNode) -> set[str]:
    """The claims that a cell of a notebook proves: it asserts, or its output is compared."""
    return {
        claim
        for cell in code_cells(nb)
        for claim in cell.metadata.get("claims", [])
        if "assert" in tokens(cell.source)
        or (cell.outputs and "nbval-ignore-output" not in tags(cell))
    }


def _claims(book: Book, proved: dict[str, set[str]]) -> Iterator[str]:
    """Every claim of a chapter has its proof, and every cell's claim exists."""
    try:
        rows = claims_file.load(book)
    except BookError as error:
        yield str(error)
        return
    known = Counter(c.id for c in rows)
    for claim_id, count in known.items():
        if count > 1:
            yield f"claims.yml::{claim_id}: {count} rows have this id"
    for claim in rows:
        if claim.chapter not in book.chapters:
            yield f"claims.yml::{claim.id}: no chapter {claim.chapter}"
        elif claim.chapter in proved and not claim.proof and claim.id not in proved[claim.chapter]:
            yield f"claims.yml::{claim.id}: no cell of {claim.chapter} proves it"
        for text in (claim.says["zh"], claim.today["zh"]):
            for problem in lint(text):
                yield f"claims.yml::{claim.id}: {problem}"
    for name, ids in proved.items():
        for claim_id in sorted(ids - set(known)):
            yield f"en/{name}: proves {claim_id}, which claims.yml does not have"
