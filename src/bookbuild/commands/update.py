"""Generate notebooks, message data and translation stamps from the texts."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from nbformat import NotebookNode

from bookbuild import pages
from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.cleaning import clean
from bookbuild.notebooks.comparison import edited, stamp, why_run
from bookbuild.notebooks.conversion import copy_outputs, notebook
from bookbuild.notebooks.dependencies import helpers_used
from bookbuild.notebooks.execution import Interrupted
from bookbuild.notebooks.files import MAX_BYTES, dumps, read, write
from bookbuild.source import texts, translation
from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.texts import Text
from bookbuild.source.translation import Stamps


def update(
    book: Book,
    names: Iterable[str] = (),
    accept: Iterable[str] = (),
    again: bool = False,
    overwrite: bool = False,
    echo: Callable[[str], None] = print,
) -> dict[str, str]:
    """Run the chapters whose code or helpers changed, and write the notebooks of all chapters.

    Files are written atomically. If a chapter fails, its files stay unchanged.

    Args:
        book: the checkout.
        names: chapters to update; all if empty.
        accept: `chapter` or `chapter::cell` whose Chinese matches the current English.
        again: run the chapters even if nothing changed.
        overwrite: overwrite edits that were made in a notebook before the call.
        echo: called with each line of progress.

    Returns:
        The error of each chapter that failed, by name.

    Raises:
        BookError: a text is malformed, a name is unknown, or a notebook was edited by hand;
            nothing is written.
    """
    chosen = book.choose(list(names))
    sources = {name: texts.load(book, name) for name in chosen}
    stamps = translation.load(book)
    accepted = _accepted(book, accept, sources, stamps)
    chapters = [
        _Chapter(book, source, stamps.get(name, {}), accepted.get(name, set()), len(chosen) > 2)
        for name, source in sources.items()
    ]
    for chapter in chapters if not overwrite else ():
        chapter.check_unedited()
    failed, updated = {}, 0
    for number, chapter in enumerate(chapters, 1):
        start, name, progress = time.perf_counter(), chapter.name, f"[{number}/{len(chosen)}]"
        try:
            action = chapter.update(again, lambda line, p=progress: echo(f"{p} {line}"))
        except Interrupted:
            raise
        except BookError as error:
            failed[name] = str(error)
            echo(f"{progress} {error}")
            continue
        # Load again: another process may have updated another chapter meanwhile.
        if translation.save(book, translation.load(book) | {name: chapter.stamps}) or action:
            updated += 1
            seconds = time.perf_counter() - start
            echo(f"{progress} {name}: {action or 'stamped'} in {seconds:.1f} s")
    if not failed:
        for path in pages.write_messages(book):
            echo(f"{book.relative(path)}: written")
        if not updated:
            echo(f"{len(chosen)} chapter{'s' * (len(chosen) != 1)}: nothing to do")
    return failed


class _Chapter:
    """A chapter with its notebooks, made from the text, and the notebook files as first read."""

    def __init__(
        self, book: Book, source: Text, stamps: Stamps, accepted: set[str], several: bool = False
    ) -> None:
        self.book, self.source, self.name, self.several = book, source, source.name, several
        self.stamps, self.outdated = translation.compare(source, stamps, accepted)
        # The files on disk were made before `accepted`, so compare them without it.
        outdated = translation.compare(source, stamps)[1] if accepted else self.outdated
        self.notebooks = {lang: notebook(source, lang, outdated) for lang in LANGUAGES}
        self.accepted = bool(accepted)
        self.contents = {lang: _contents(book.notebook(lang, self.name)) for lang in LANGUAGES}

    def check_unedited(self) -> None:
        """Raise a `BookError` if a notebook was edited by hand or is not a valid notebook."""
        for lang in LANGUAGES:
            try:
                nb = self._stored(lang)
            except BookError as error:
                raise BookError(f"{error}; delete it and run `book update {self.name}`") from None
            if nb and (cells := edited(nb, self.notebooks[lang])):
                raise BookError(edit_advice(lang, self.name, cells[0], nb))

    def update(self, again: bool, echo: Callable[[str], None]) -> str:
        """Run and write the notebooks; return the action taken, or "" if nothing changed."""
        before, helpers = self._stored("en"), helpers_used(self.book, self.source)
        english = self.notebooks["en"]
        reason = "asked for" if again else why_run(english, before, helpers)
        ran = self._run(reason, echo) if reason else before
        copy_outputs(english, ran, "en")
        if self.accepted:
            self.notebooks["zh"] = notebook(self.source, "zh", self.outdated)
        copy_outputs(self.notebooks["zh"], english, "zh")
        for lang, nb in self.notebooks.items():
            stamp(nb, helpers)
            self._check_size(lang, nb)
        for lang, nb in self.notebooks.items():
            self._check_unedited_meanwhile(lang, nb)
        paths = {lang: self.book.notebook(lang, self.name) for lang in LANGUAGES}
        changed = [lang for lang, path in paths.items() if write(self.notebooks[lang], path)]
        return ("ran, " if reason else "") + (
            "written" if changed else "unchanged" if reason else ""
        )

    def _run(self, reason: str, echo: Callable[[str], None]) -> NotebookNode:
        if find_spec("torch") is None:
            raise BookError(
                f"{self.name} must run ({reason}), and that needs PyTorch: "
                "`make lab` or `make test` installs it"
            )
        from bookbuild.notebooks.execution import execute, prepare_kernels

        nb = copy.deepcopy(self.notebooks["en"])
        echo(f"{self.name}: running {len(code_cells(nb))} cells ({reason})")
        prepare_kernels()
        if self.several:
            from bookbuild.notebooks.forked_kernels import fork_kernels

            fork_kernels()
        folder = self.book.notebook("en", self.name).parent
        folder.mkdir(parents=True, exist_ok=True)
        return clean(execute(nb, folder, f"book/text/{self.name}.md"))

    def _check_size(self, lang: str, nb: NotebookNode) -> None:
        size = len(dumps(nb).encode())
        if size > MAX_BYTES:
            sizes = {cell.id: len(str(cell)) for cell in nb.cells}
            largest = max(sizes, key=sizes.get)
            lines = {cell.id: cell.line for cell in self.source.cells}
            raise BookError(
                f"book/text/{self.name}.md:{lines.get(largest, 1)}: {largest}: the {lang} notebook "
                f"would have {size:,} bytes, at most {MAX_BYTES:,}; this cell is its largest"
            )

    def _check_unedited_meanwhile(self, lang: str, nb: NotebookNode) -> None:
        """Raise if a notebook was edited while the cells ran, which may take minutes."""
        if _contents(self.book.notebook(lang, self.name)) == self.contents[lang]:
            return
        current = self._stored(lang)
        if current and (cells := edited(current, nb)):
            advice = edit_advice(lang, self.name, cells[0], current)
            raise BookError(f"{advice}; it was saved during the update, nothing was written")

    def _stored(self, lang: str) -> NotebookNode | None:
        path = self.book.notebook(lang, self.name)
        return read(path) if path.exists() else None


def _contents(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def edit_advice(lang: str, name: str, cell: str, nb: NotebookNode) -> str:
    """Return the error for a cell edited or removed in a notebook, with the commands to run."""
    restore = f"`git checkout book/{lang}/{name}.ipynb`"
    if cell not in (c.id for c in nb.cells):
        return (
            f"{lang}/{name}::{cell}: removed by hand; remove it in book/text/{name}.md, "
            f"or {restore} restores it"
        )
    return (
        f"{lang}/{name}::{cell}: edited by hand; `book adopt {name}` copies the edit into "
        f"book/text/{name}.md, {restore} undoes it"
    )


def _accepted(
    book: Book, accept: Iterable[str], sources: dict[str, Text], stamps: dict
) -> dict[str, set[str]]:
    """Return the accepted cells of each chapter.

    Raises:
        BookError: there is no such cell, or it has no Chinese text to accept.
    """
    chapters: dict[str, set[str]] = {}
    for name in accept:
        chapter, colons, cell = name.partition("::")
        if colons and not cell:
            raise BookError(f"--accept {name}: expected CHAPTER or CHAPTER::CELL")
        if chapter not in sources:
            raise BookError(f"--accept {name}: {book.choose([chapter])[0]} is not updated here")
        source = sources[chapter]
        cells = {piece.partition("/")[0] for piece, _ in source.pieces()}
        if cell and cell not in cells:
            raise BookError(f"--accept {name}: {chapter} has no cell {cell}")
        chosen = {cell} if cell else cells
        _, outdated = translation.compare(source, stamps.get(chapter, {}), chosen)
        if cell and (missing := [piece for piece in outdated if piece.cell == cell]):
            raise BookError(f"--accept {name}: {missing[0]}")
        chapters.setdefault(chapter, set()).update(chosen)
    return chapters
