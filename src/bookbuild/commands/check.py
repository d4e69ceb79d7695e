"""Check texts, notebooks, data files and generated files without running any code."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import zip_longest

from nbformat import NotebookNode

from bookbuild import pages
from bookbuild.commands.update import edit_advice
from bookbuild.notebooks import question_proofs
from bookbuild.notebooks.cells import alt, code_cells, tags, tokens
from bookbuild.notebooks.comparison import changes, edited, source_fingerprint, why_run
from bookbuild.notebooks.conversion import notebook
from bookbuild.notebooks.dependencies import helpers_used
from bookbuild.notebooks.figures import in_language, is_drawing
from bookbuild.notebooks.files import MAX_BYTES, problems_of_schema, read
from bookbuild.source import claims as claims_file
from bookbuild.source import (
    links,
    messages,
    moved,
    pitfalls,
    reviews,
    symptoms,
    texts,
    translation,
    versions,
)
from bookbuild.source.checkout import LANGUAGES, OLD_NOTES, Book, BookError, read_text
from bookbuild.source.headings import headings
from bookbuild.source.texts import SETUP, Cell, Text
from bookbuild.source.translation import Outdated
from bookbuild.source.typography import lint, lint_english

MAX_COLUMNS = 79
MAX_EDITS = 3  # edited cells reported individually for each notebook
RECAP = ("Recap", "小结")
_UPDATE = "not what the text makes of it; run `book update {}`"
_PATHS = re.compile(r"(?:/(?:home|root|tmp|Users|work|mnt|var)/|\b[A-Z]:\\\\)[\w./\\-]+")
_FOREIGN = re.compile(r"""(?:src|href)=\\?["'](?:https?:)?//[^"'\\]+""")
# Matches an assertion that a checker rejects an answer (`expect` is in tests/helpers/verdicts.py).
_REFUSAL = re.compile(
    r"\bassert\b[^\n]*(?:\bnot [\w.]+(?:\([^\n]*\))?\.passed|\.passed (?:==|is) (?!True)"
    r"|\.message\b)"
    r"|\bexpect\([^\n]*, says\)"
)
# Parts that a translation must keep unchanged: maths, links, directives, labels, headings.
_FIXED = re.compile(
    r"\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)\s]+\)|^[`:]{3,}\{[\w-]+\}|^:class: .+|^\([\w-]+\)=$|^#+ ",
    re.S | re.M,
)


def check(
    book: Book,
    names: Iterable[str] = (),
    release: bool = False,
    failed: Collection[str] = (),
) -> list[str]:
    """Return all problems, each as one line `file:line: id: problem`.

    Args:
        book: the checkout.
        names: chapters to check; if empty, all chapters and the generated pages.
        release: also report outdated or missing translations.
        failed: chapters whose notebooks are skipped, because `book update` failed for them.
    """
    chosen = book.choose(list(names))
    try:
        stamps = translation.load(book)
    except BookError as error:
        return [str(error)]
    problems = [] if names else [*_files(book), *_queries(book)]
    problems += _damaged(book)
    notebooks: dict[tuple[str, str], NotebookNode] = {}
    for name in chosen:
        try:
            source = texts.load(book, name)
            current, outdated = translation.compare(source, stamps.get(name, {}))
            problems += _text(source, outdated)
            problems += links.problems(source)
            if name in book.chapters:
                problems += _chapter(book, source)
            if name not in failed:
                if current != stamps.get(name):
                    problems.append(f"{translation.FILE}::{name}: {_UPDATE.format(name)}")
                problems += _notebooks(book, source, outdated, notebooks)
        except BookError as error:
            problems.append(str(error))
            continue
        problems += map(str, outdated) if release else ()
    problems += _claims(book, _proofs(book, chosen, notebooks))
    problems += _data_files(book, chosen)
    problems += pages.problems(book, notebooks) if not names else ()
    return list(dict.fromkeys(problems))


def _damaged(book: Book) -> Iterator[str]:
    """Yield the problems of files that only the build or the status page reads."""
    for load in (lambda book: book.config, moved.load, versions.tested, versions.validated):
        try:
            load(book)
        except BookError as error:
            yield str(error)


def _notebooks(
    book: Book,
    source: Text,
    outdated: list[Outdated],
    notebooks: dict[tuple[str, str], NotebookNode],
) -> Iterator[str]:
    """Yield the problems of a chapter's notebooks; add the notebooks read to `notebooks`."""
    name, helpers = source.name, helpers_used(book, source)
    for lang in LANGUAGES:
        try:
            nb = notebooks[lang, name] = read(book.notebook(lang, name))
            yield from _notebook(book, lang, source, outdated, helpers, nb)
        except BookError as error:
            yield str(error)
    if all((lang, name) in notebooks for lang in LANGUAGES):
        yield from _same_outputs(name, notebooks["en", name], notebooks["zh", name])


def _proofs(
    book: Book, chosen: list[str], notebooks: dict[tuple[str, str], NotebookNode]
) -> dict[str, set[str]]:
    """Return for each chapter the ids of the claims that its cells prove."""
    proved = {name: _proved(notebooks["en", name]) for name in chosen if ("en", name) in notebooks}
    if OLD_NOTES in book.texts and OLD_NOTES not in proved:
        path = book.notebook("en", OLD_NOTES)
        proved[OLD_NOTES] = _proved(read(path)) if path.exists() else set()
    return proved


def _data_files(book: Book, chosen: list[str]) -> Iterator[str]:
    """Yield the problems of messages, rules, symptoms, and the pitfalls of `chosen` chapters."""
    listed = book.pages
    try:
        yield from messages.problems(book, messages.load(book))
        yield from reviews.problems(reviews.load(book))
        if "symptoms" in listed:
            yield from symptoms.problems(book, symptoms.load(book))
        if "pitfalls" in listed:
            yield from pitfalls.problems(book, chosen)
    except BookError as error:
        yield str(error)


def outdated(book: Book, names: Iterable[str] = ()) -> list[Outdated]:
    """Return the pieces whose Chinese is missing or outdated."""
    stamps = translation.load(book)
    return [
        piece
        for name in book.choose(list(names))
        for piece in translation.compare(texts.load(book, name), stamps.get(name, {}))[1]
    ]


def _files(book: Book) -> Iterator[str]:
    """Yield the texts and notebooks that `_toc.yml` does not list."""
    for folder, suffix in (("text", "md"), *((x, "ipynb") for x in LANGUAGES)):
        for path in sorted((book.root / "book" / folder).glob(f"*.{suffix}")):
            if path.stem not in book.texts:
                yield f"{folder}/{path.name}: not in _toc.yml"


def _queries(book: Book) -> Iterator[str]:
    """Yield the queries that are assigned to more than one section."""
    seen: dict[str, str] = {}
    for name in book.texts:
        with suppress(BookError):  # reported when the chapter itself is checked
            for cell in texts.load(book, name).cells:
                for query in cell.queries:
                    first = seen.setdefault(query.lower(), cell.id)
                    if first != cell.id:
                        where = f"book/text/{name}.md:{cell.line}: {cell.id}"
                        yield f"{where}: the query {query!r} leads to {first} already"


def _text(source: Text, outdated: list[Outdated]) -> Iterator[str]:
    """Yield the problems of a chapter's text: summary, setup cell, widths, terms, translation."""
    where, untranslated = f"book/text/{source.name}.md", {piece.piece for piece in outdated}
    if not source.summary.en:
        yield f"{where}:{source.summary.line}: no summary"
    if next((c.id for c in source.cells if c.type == "code"), "") != SETUP:
        yield f"{where}:{source.cells[0].line}: the first code cell is not `%%% code {SETUP}`"
    for cell in source.cells:
        for line in cell.source.splitlines():
            if len(line) > MAX_COLUMNS:
                yield (
                    f"{where}:{cell.line}: {cell.id}: line of {len(line)} columns, "
                    f"at most {MAX_COLUMNS}: {line[:40]}…"
                )
    for piece, words in source.pieces():
        for problem in lint_english(words.en):
            yield f"{where}:{words.line}: {piece}: {problem}"
        for problem in lint(words.zh or ""):
            yield f"{where}:{words.zh_line}: {piece}: {problem}"
        if words.zh is None or piece in untranslated or "/" in piece:
            continue
        ours, theirs = (Counter(_FIXED.findall(t)) for t in (words.zh, words.en))
        for fixed in (ours - theirs) + (theirs - ours):
            yield (
                f"{where}:{words.zh_line}: {piece}: not the same in both languages: "
                f"{fixed.strip()!r}"
            )


def _chapter(book: Book, source: Text) -> Iterator[str]:
    """Yield a missing recap, helper module or test, and the problems of a chapter's exercises."""
    titled = [c for c in source.cells if c.type == "markdown" and headings(c.words.en)]
    last = titled[-1].words if titled else source.cells[-1].words
    for text, recap in zip((last.en, last.zh), RECAP, strict=True):
        if text is not None and [h.plain for h in headings(text)][-1:] != [recap]:
            where = f"book/text/{source.name}.md:{source.cells[-1].line}"
            yield f"{where}: the last section is not “{recap}”"
    test = f"tests/helpers/test_{source.name}.py"
    if not (book.root / "src" / "helpers" / f"{source.name}.py").exists():
        yield f"src/helpers/{source.name}.py: there is no such module"
    try:
        functions = _functions(read_text(book.root / test, test))
    except (BookError, SyntaxError, ValueError) as error:
        yield str(error) if isinstance(error, BookError) else f"{test}: {error}"
        return
    tests = [code for name, code in functions.items() if name.lower().startswith("test")]
    if not any(re.search(r"^\s+assert\b", code, re.M) for code in tests):
        yield f"{test}: no test asserts anything"
    yield from _exercises(source, test, tests, functions)


def _exercises(
    source: Text, test: str, tests: list[str], functions: dict[str, str]
) -> Iterator[str]:
    """Yield the problems of a chapter's exercises and of the tests of their checkers."""
    exercises = [c for c in source.cells if "exercise" in c.metadata.get("tags", ())]
    if not exercises:
        yield f"book/text/{source.name}.md: no exercise"
    refusing = []  # code asserting that an answer is rejected, directly or in a function it calls
    for code in tests:
        called = [functions.get(name, "") for name in set(re.findall(r"\b\w+(?=\()", code))]
        if any(map(_REFUSAL.search, (code, *called))):
            refusing.append(code)
    for cell in exercises:
        checkers = sorted(set(re.findall(r"\bcheck_\w+", cell.source)))
        if not checkers:
            yield f"book/text/{source.name}.md:{cell.line}: {cell.id}: no checker `check_…`"
        for checker in checkers:
            if not any(re.search(rf"\b{checker}\b", code) for code in refusing):
                yield f"{test}: no test asserts that {checker} rejects a wrong answer"


def _functions(source: str) -> dict[str, str]:
    """Return the source of each function and class of a module, with decorators, by name."""
    lines, functions = source.splitlines(), {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([d.lineno for d in node.decorator_list], default=node.lineno)
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return functions


def _notebook(
    book: Book, lang: str, source: Text, outdated: list[Outdated], helpers: str, nb: NotebookNode
) -> Iterator[str]:
    """Yield the problems of a notebook: schema, size, edits by hand, cells not up to date."""
    name = source.name
    where = f"{lang}/{name}"
    expected, states = notebook(source, lang, outdated), changes(nb)
    # Unchanged cells were valid when written; validating them again would add 10 % to the time.
    if wrong := problems_of_schema(nb, thoroughly=any(states.values())):
        yield f"{where}: not valid: {wrong}"
        return
    if (size := book.notebook(lang, name).stat().st_size) > MAX_BYTES:
        yield f"{where}: {size} bytes, at most {MAX_BYTES}"
    by_hand = edited(nb, expected, states)
    for cell_id in by_hand[:MAX_EDITS]:
        yield edit_advice(lang, name, cell_id, nb)
    if more := len(by_hand[MAX_EDITS:]):
        yield f"{where}: {more} more cells edited or removed by hand"
    if not by_hand:
        yield from _as_written(where, name, expected, nb)
    for cell, after in zip_longest(source.cells, source.cells[1:]) if lang == "en" else ():
        if cell.predict:
            if after and _explains_beyond_a_heading(after):
                yield (
                    f"book/text/{name}.md:{after.line}: {after.id}: explains the output of "
                    f"{cell.id} and is hidden with it up to its heading: begin a cell there"
                )
            for problem in question_proofs.problems(cell.predict.en, cell.proofs, cell.id, nb):
                yield f"book/text/{name}.md:{cell.predict.line}: {cell.id}: {problem}"
    of_cells = [
        f"{where}::{cell.id}: {problem}"
        for number, cell in enumerate(code_cells(nb), 1)
        for problem in _code(cell, number, states[cell.id])
    ]
    yield from of_cells
    if not by_hand and not of_cells and (why := why_run(expected, nb, helpers, states)):
        yield f"{where}: must run: {why}; run `book update {name}`"


def _explains_beyond_a_heading(cell: Cell) -> bool:
    """Return True if a prose cell contains a heading after its first line."""
    if cell.type != "markdown" or cell.words.en.lstrip().startswith("#"):
        return False
    return any(headings(words) for words in (cell.words.en, cell.words.zh or ""))


def _as_written(where: str, name: str, expected: NotebookNode, nb: NotebookNode) -> Iterator[str]:
    """Yield the cells that differ from the text in order or content."""
    for a, b in zip_longest(expected.cells, nb.cells):
        if a is None or b is None or a.id != b.id:
            yield f"{where}: cells or their order differ from the text; run `book update {name}`"
            return
        if source_fingerprint(a) != source_fingerprint(b):
            yield f"{where}::{a.id}: {_UPDATE.format(name)}"
    if expected.metadata.summary != nb.metadata.get("summary"):
        yield f"{where}::summary: {_UPDATE.format(name)}"


def _same_outputs(name: str, en: NotebookNode, zh: NotebookNode) -> Iterator[str]:
    """Yield the cells whose Chinese output differs from the stored English output."""
    stored = {c.id: c for c in code_cells(en)}
    for cell in code_cells(zh):
        own = stored.get(cell.id, cell)
        outputs = in_language(own.outputs, "zh")
        if outputs != cell.outputs or own.execution_count != cell.execution_count:
            yield f"zh/{name}::{cell.id}: output differs from English; run `book update {name}`"


def _code(cell: NotebookNode, number: int, change: str) -> Iterator[str]:
    """Yield the problems of a code cell: not run, output changed or not portable, no alt text."""
    if cell.execution_count is None:
        yield "never run, so no output can be compared; run `book update`"
    elif cell.execution_count != number:
        yield f"execution count {cell.execution_count}, expected {number}; run `book update`"
    elif change == "output":
        yield "output differs from what the run stored; run `book update`"
    stored = json.dumps(cell.outputs, ensure_ascii=False)
    for path in _PATHS.findall(stored):
        yield f"a path of one machine in the output: {path}"
    for link in _FOREIGN.findall(stored):
        yield f"the output loads from another host: {link}"
    raised = any(o.output_type == "error" for o in cell.outputs)
    if raised and "raises-exception" not in tags(cell):
        yield "raises, but has no tag raises-exception"
    if raised and not cell.metadata.get("cause"):
        yield "raises, but has no `%%% cause`"
    if any(map(_is_picture, cell.outputs)) and not alt(cell):
        yield "a figure without a text alternative: add `%%% alt`"
    for tag, mark in (("exercise", "✗"), ("solution", "✓")):
        if tag in tags(cell) and mark not in stored:
            yield f"tagged {tag}, but its output has no {mark}"


def _is_picture(output: NotebookNode) -> bool:
    return "image/png" in output.get("data", {}) or is_drawing(output)


def _proved(nb: NotebookNode) -> set[str]:
    """Return the claims named by cells that assert something or have a compared output."""
    return {
        claim
        for cell in code_cells(nb)
        for claim in cell.metadata.get("claims", [])
        if cell.outputs or "assert" in tokens(cell.source)
    }


def _claims(book: Book, proved: dict[str, set[str]]) -> Iterator[str]:
    """Yield claims that no cell proves, and cells that name an unknown claim."""
    try:
        rows = claims_file.load(book)
    except BookError as error:
        yield str(error)
        return
    known = Counter(c.id for c in rows)
    for claim in rows:
        if known[claim.id] > 1:
            yield f"{claim.where}: {known[claim.id]} claims have this id"
        if claim.chapter not in book.chapters:
            yield f"{claim.where}: no chapter {claim.chapter}"
        elif (
            claim.chapter in proved
            and not claim.proof
            and not any(claim.id in proved.get(name, ()) for name in (claim.chapter, OLD_NOTES))
        ):
            yield f"{claim.where}: no cell of {claim.chapter} proves it"
        for problem in (*lint(claim.says["zh"]), *lint(claim.today["zh"])):
            yield f"{claim.where}: {problem}"
        for problem in lint_english(claim.today["en"]):
            yield f"{claim.where}: {problem}"
    for name, ids in proved.items():
        for claim_id in sorted(ids - set(known)):
            yield f"en/{name}: proves {claim_id}, which claims.yml does not have"
