"""Bring what somebody wrote in a notebook back into the chapter's text."""

from __future__ import annotations

from nbformat import NotebookNode

from bookbuild import text as texts
from bookbuild import translation
from bookbuild.book import LANGUAGES, Book, BookError, read_text, write_text
from bookbuild.notebooks import alt, read, tokens, written
from bookbuild.products import MISSING, WAITING, notebook
from bookbuild.text import SETUP, Cell, comments, fenced, replace_body
from bookbuild.update import changes, edited, stored


def adopt(book: Book, name: str) -> list[str]:
    """Take what was edited in the notebooks of a chapter into `book/text/<name>.md`.

    Returns:
        The cells that were taken, such as `en/detach::detach-why`.

    Raises:
        BookError: no cell was edited, one was removed or moved, one also changed in the text, or
            Chinese code differs in more than comments; nothing is written.
    """
    book.choose([name])
    text, file = texts.load(book, name), book.text(name)
    _, waiting = translation.compare(text, translation.load(book).get(name, {}))
    source, taken = read_text(file, book.relative(file)), []
    for lang in LANGUAGES:
        nb, product = read(book.notebook(lang, name)), notebook(text, lang, waiting)
        todo = _edits(f"{lang}/{name}", nb, product)
        for cell, after in reversed(
            todo
        ):  # from the end: lines before a change stay where they are
            now = texts.parse(name, source)
            old = next((c for c in now.cells if c.id == cell.id), None)
            if old is None:
                source = _insert(source, cell, after, now)
            else:
                source = _replace(source, cell, old, lang, f"{lang}/{name}::{cell.id}")
        taken += [f"{lang}/{name}::{cell.id}" for cell, _ in todo]
    if not taken:
        raise BookError(
            f"{name}: no cell was edited; `book update {name}` makes its notebooks anew"
        )
    texts.parse(name, source, book.relative(file))
    write_text(file, source)
    return taken


def _edits(
    where: str, nb: NotebookNode, product: NotebookNode
) -> list[tuple[NotebookNode, str | None]]:
    """The edited cells of a notebook, each with the id of the cell before it.

    Raises:
        BookError: an edit cannot be taken over.
    """
    before, wanted = stored(nb), {c.id: written(c) for c in product.cells}
    edits, states, found, after = edited(nb, product), changes(nb), [], None
    for cell in nb.cells:
        if cell.id in edits:
            change = states[cell.id]
            if change not in ("new", "edited"):
                raise BookError(f"{where}::{cell.id}: moved in the notebook; move it in the text")
            if cell.id == SETUP:
                raise BookError(f"{where}::{SETUP}: the setup cell is the same in every chapter")
            if change == "new" and (where.startswith("zh") or cell.id in wanted):
                raise BookError(
                    f"{where}::{cell.id}: a new cell is written in English, in the text"
                )
            if change == "edited" and before[cell.id][0] != wanted.get(cell.id):
                raise BookError(f"{where}::{cell.id}: the text changed, too; edit it there")
            edits.remove(cell.id)
            found.append((cell, after))
        after = cell.id
    if edits:
        raise BookError(f"{where}::{edits[0]}: removed in the notebook; remove it in the text")
    return found


def _replace(source: str, cell: NotebookNode, old: Cell, lang: str, which: str) -> str:
    """The text with one block exchanged; the parts of a cell from its last to its first."""
    parts: list[tuple[int, str]] = []
    for words, new in ((old.cause, cell.metadata.get("cause", "")), (old.alt, alt(cell))):
        line = words and (words.line if lang == "en" else words.zh_line)
        if line:
            parts.append((line, new))
    missing = None  # Chinese for a block that has none
    if old.type == "markdown":
        body = cell.source
        for mark in (WAITING, MISSING):
            body = body.removesuffix(f"\n\n{mark}")
        if lang == "zh" and old.words.zh is None:
            missing = body
        else:
            parts.append((old.words.line if lang == "en" else old.words.zh_line, body))
    elif lang == "en":
        parts.append((old.line, fenced(cell.source)))
    else:
        if tokens(cell.source) != tokens(old.source):
            raise BookError(f"{which}: the code is changed in English; here only comments")
        said = "\n".join(c.lstrip("# ") for *_, c in comments(cell.source))
        if old.words.zh is not None:
            parts.append((old.words.zh_line, said))
        elif said != old.words.en:
            missing = said
    for line, body in sorted(parts, reverse=True):
        source = replace_body(source, line, body.strip("\n"))
    return source if missing is None else _add_chinese(source, old.words.line, missing)


def _add_chinese(source: str, line: int, chinese: str) -> str:
    """The text with Chinese for a block that has none."""
    lines = source.split("\n")
    end = next((n for n in range(line, len(lines)) if lines[n].startswith("%%%")), len(lines))
    while not lines[end - 1].strip():
        end -= 1
    return "\n".join([*lines[:end], "%%% zh", chinese, *lines[end:]])


def _insert(source: str, cell: NotebookNode, after: str | None, text: texts.Text) -> str:
    """The text with a new cell behind the one called `after`."""
    if cell.cell_type == "markdown":
        new = f"%%% md {cell.id}\n{cell.source}"
    else:
        words = [
            f"{key}={','.join(cell.metadata[key])}"
            for key in ("tags", "claims")
            if cell.metadata.get(key)
        ]
        new = " ".join([f"%%% code {cell.id}", *words]) + "\n" + fenced(cell.source)
        for key, said in (("alt", alt(cell)), ("cause", cell.metadata.get("cause"))):
            new += f"\n%%% {key}\n{said}" if said else ""
    ids = [c.id for c in text.cells]
    following = text.cells[ids.index(after) + 1 :] if after in ids else text.cells
    if not following:
        return source.rstrip("\n") + f"\n\n{new}\n"
    lines = source.split("\n")
    lines[following[0].line - 1 : following[0].line - 1] = [*new.split("\n"), ""]
    return "\n".join(lines)
