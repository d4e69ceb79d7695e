"""From the texts to everything made of them: notebooks of both languages, pages, stamps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.cleaning import clean
from bookbuild.notebooks.comparison import edited, stamp, why_run
from bookbuild.notebooks.conversion import notebook
from bookbuild.notebooks.dependencies import helpers_used
from bookbuild.notebooks.execution import Interrupted
from bookbuild.notebooks.files import read, write
from bookbuild.source import texts as texts
from bookbuild.source import translation
from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.texts import Text
from bookbuild.source.translation import Waiting


def update(
    book: Book,
    names: Iterable[str] = (),
    accept: Iterable[str] = (),
    again: bool = False,
    over: bool = False,
    echo: Callable[[str], None] = print,
) -> list[str]:
    """Make what is not as its text says: run the chapters whose code or helpers changed, write all.

    Each file is written whole or not at all. A chapter that fails leaves its files as they were.

    Args:
        book: the checkout.
        names: chapters; all if empty.
        accept: `chapter` or `chapter::cell` whose Chinese holds for today's English.
        again: run these chapters even if nothing changed.
        over: write over what was edited in a notebook.
        echo: shows progress.

    Returns:
        What failed, a line each.

    Raises:
        BookError: a text has another form, a name is unknown, or a notebook was edited by hand;
            nothing is written.
    """
    chosen = book.choose(list(names))
    sources = {name: texts.load(book, name) for name in chosen}
    stamps = translation.load(book)
    accepted = _accepted(book, accept, sources, stamps)
    found = {
        name: translation.compare(source, stamps.get(name, {}), accepted.get(name, ()))
        for name, source in sources.items()
    }
    for name, source in sources.items() if not over else ():
        # as the notebooks were written: before anything was accepted
        refuse_edited(book, source, translation.compare(source, stamps.get(name, {}))[1])
    failed, done = [], 0
    for number, (name, source) in enumerate(sources.items(), 1):
        begun = time.perf_counter()
        made, late = found[name]
        try:
            what = _chapter(
                book, source, late, again, echo=lambda s, n=number: echo(f"[{n}/{len(chosen)}] {s}")
            )
        except Interrupted:
            raise
        except BookError as error:
            failed.append(str(error))
            echo(f"[{number}/{len(chosen)}] {error}")
            continue
        # Read again: somebody may have updated another chapter meanwhile.
        if translation.save(book, translation.load(book) | {name: made}) or what:
            done += 1
            seconds = time.perf_counter() - begun
            echo(f"[{number}/{len(chosen)}] {name}: {what or 'stamped'} in {seconds:.1f} s")
    if not failed:
        from bookbuild import pages

        for path in pages.write_messages(book):
            echo(f"{book.relative(path)}: written")
        if not done:
            echo(f"{len(chosen)} chapter{'s' * (len(chosen) != 1)}: nothing to do")
    return failed


def _chapter(
    book: Book, source: Text, late: list[Waiting], again: bool, echo: Callable[[str], None]
) -> str:
    """Make the notebooks of one chapter; returns what was done, empty if nothing."""
    before = _existing(book, "en", source.name)
    helpers = helpers_used(book, source)
    english = notebook(source, "en", ran=before)
    why = "asked for" if again else why_run(english, before, helpers)
    if why:
        if find_spec("torch") is None:
            raise BookError(
                f"{source.name} must run ({why}), and that needs PyTorch: "
                "`make lab` or `make test` installs it"
            )
        from bookbuild.notebooks.execution import execute, prepare_kernels

        echo(f"{source.name}: running {len(code_cells(english))} cells ({why})")
        prepare_kernels()
        for cell in code_cells(english):
            cell.outputs, cell.execution_count = [], None
        folder = book.notebook("en", source.name).parent
        folder.mkdir(parents=True, exist_ok=True)
        ran = clean(execute(english, folder, f"book/text/{source.name}.md"))
        english = notebook(source, "en", ran=ran)
    stamp(english, helpers)
    chinese = notebook(source, "zh", late, english)
    stamp(chinese, helpers)
    changed = [
        lang
        for lang, nb in zip(LANGUAGES, (english, chinese), strict=True)
        if write(nb, book.notebook(lang, source.name))
    ]
    return ("ran, " if why else "") + ("written" if changed else "unchanged" if why else "")


def refuse_edited(book: Book, source: Text, waiting: list[Waiting]) -> None:
    """Refuse to write over what somebody wrote in a notebook.

    Raises:
        BookError: a notebook of the chapter was edited by hand, or is no notebook.
    """
    for lang in LANGUAGES:
        try:
            nb = _existing(book, lang, source.name)
        except BookError as error:
            raise BookError(f"{error}; delete it and run `book update {source.name}`") from None
        if nb and (cells := edited(nb, notebook(source, lang, waiting))):
            raise BookError(told(lang, source.name, cells[0]))


def told(lang: str, name: str, cell: str) -> str:
    """What to do about a cell that was edited in a notebook."""
    return (
        f"{lang}/{name}::{cell}: edited by hand; `book adopt {name}` takes the edit into "
        f"book/text/{name}.md, `git checkout book/{lang}/{name}.ipynb` drops it"
    )


def _existing(book: Book, lang: str, name: str) -> NotebookNode | None:
    path = book.notebook(lang, name)
    return read(path) if path.exists() else None


def _accepted(
    book: Book, accept: Iterable[str], sources: dict[str, Text], stamps: dict
) -> dict[str, set[str]]:
    """The accepted cells of each chapter.

    Raises:
        BookError: there is no such cell, or it has no Chinese that could hold.
    """
    found: dict[str, set[str]] = {}
    for name in accept:
        chapter, colons, cell = name.partition("::")
        if colons and not cell:
            raise BookError(f"--accept {name}: {name} names no cell")
        if chapter not in sources:
            raise BookError(f"--accept {name}: {book.choose([chapter])[0]} is not updated here")
        source = sources[chapter]
        cells = {piece.partition("/")[0] for piece, _ in source.pieces()}
        if cell and cell not in cells:
            raise BookError(f"--accept {name}: {chapter} has no cell {cell}")
        wanted = {cell} if cell else cells
        _, late = translation.compare(source, stamps.get(chapter, {}), wanted)
        if cell and (missing := [w for w in late if w.cell == cell]):
            raise BookError(f"--accept {name}: {missing[0]}")
        found.setdefault(chapter, set()).update(wanted)
    return found
