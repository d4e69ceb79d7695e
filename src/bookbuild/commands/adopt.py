"""Copy edits made in a notebook into the chapter's text."""

from __future__ import annotations

import copy

from nbformat import NotebookNode

from bookbuild.notebooks.cells import alt, tokens
from bookbuild.notebooks.comparison import changes, edited, source_fingerprint, stored
from bookbuild.notebooks.conversion import MARKS, MISSING, SOLUTION, WAITING, notebook
from bookbuild.notebooks.files import read
from bookbuild.source import links, questions, texts, translation, versions
from bookbuild.source.checkout import LANGUAGES, Book, BookError, read_text, write_text
from bookbuild.source.texts import OLDEST, SETUP, Cell, Text, Words, comments


def adopt(book: Book, name: str) -> list[str]:
    """Copy edits made in the notebooks of a chapter into `book/text/<name>.md`.

    Returns:
        The cells that were copied, such as `en/detach::detach-why`.

    Raises:
        BookError: no cell was edited; a cell was removed, moved or also changed in the text; or
            the text format cannot express an edit. Nothing is written.
    """
    book.choose([name])
    text, path = copy.deepcopy(texts.load(book, name)), book.text(name)
    where = book.relative(path)
    before = read_text(path, where)
    _, outdated = translation.compare(text, translation.load(book).get(name, {}))
    products = {lang: notebook(text, lang, outdated) for lang in LANGUAGES}
    segments = dict(zip([c.id for c in text.cells], texts.segments(before, text), strict=True))
    head = before.removesuffix("".join(segments.values()))
    copied = []
    for lang in LANGUAGES:
        nb = read(book.notebook(lang, name))
        for cell, after in _edits(f"{lang}/{name}", nb, products[lang]):
            which = f"{lang}/{name}::{cell.id}"
            old = next((c for c in text.cells if c.id == cell.id), None)
            if old is None:
                old = Cell(cell.id, cell.cell_type, 0, Words("", 0))
                place = [None, *(c.id for c in text.cells)].index(after)
                text.cells.insert(place, old)
            _copy_edit(text, old, cell, lang, which)
            segments[cell.id] = texts.dump(old) + "\n\n"
            copied.append((lang, cell, which))
    if not copied:
        raise BookError(
            f"{name}: no cell was edited; `book update {name}` makes its notebooks again"
        )
    after = head.rstrip("\n") + "\n\n" + "".join(segments[c.id] for c in text.cells).rstrip("\n")
    _verify(book, texts.parse(name, after, where), copied)
    write_text(path, after + "\n")
    return [which for *_, which in copied]


def _edits(
    where: str, nb: NotebookNode, product: NotebookNode
) -> list[tuple[NotebookNode, str | None]]:
    """Return the edited cells of a notebook, each with the id of the preceding cell.

    Raises:
        BookError: an edit cannot be copied into the text.
    """
    before, current = stored(nb), {c.id: source_fingerprint(c) for c in product.cells}
    edits, states, cells, previous = edited(nb, product), changes(nb), [], None
    for cell in nb.cells:
        if cell.id in edits:
            change = states[cell.id]
            if change not in ("new", "edited"):
                raise BookError(f"{where}::{cell.id}: moved in the notebook; move it in the text")
            if cell.id == SETUP:
                raise BookError(f"{where}::{SETUP}: the setup cell is shared and cannot be edited")
            if cell.id.endswith((questions.SUFFIX, SOLUTION)) and cell.id in current:
                raise BookError(f"{where}::{cell.id}: made from another cell; edit it in the text")
            if change == "new" and (where.startswith("zh") or cell.id in current):
                raise BookError(
                    f"{where}::{cell.id}: a new cell is written in English, in the text"
                )
            if change == "edited" and before[cell.id][0] != current.get(cell.id):
                raise BookError(f"{where}::{cell.id}: the text changed, too; edit it there")
            if not cell.source.strip():
                raise BookError(f"{where}::{cell.id}: empty; remove it in the text")
            edits.remove(cell.id)
            cells.append((cell, previous))
        if not cell.id.endswith((questions.SUFFIX, SOLUTION)):
            previous = cell.id
    if edits:
        raise BookError(f"{where}::{edits[0]}: removed in the notebook; remove it in the text")
    return cells


def _copy_edit(text: Text, old: Cell, cell: NotebookNode, lang: str, which: str) -> None:
    """Copy an edited notebook cell into the text cell from which it was made."""
    metadata = {
        key: list(cell.metadata[key]) for key in ("tags", "claims") if cell.metadata.get(key)
    }
    beside = {"alt": alt(cell), "cause": cell.metadata.get("cause")}
    source = _unmarked(cell.source, lang)
    if lang == "en":
        _copy_english(text, old, source, metadata, beside)
        return
    if metadata != old.metadata:
        raise BookError(f"{which}: tags and claims are changed in English")
    for key, new in beside.items():
        words = getattr(old, key)
        if bool(words) != bool(new):
            raise BookError(f"{which}: an {key} is added or removed in English")
        if words and new != (words.zh or words.en):
            words.zh = new
    if old.type == "markdown":
        for mark in (WAITING, MISSING):
            source = source.removesuffix(mark).rstrip("\n")
        old.words.zh = _restore_placeholders(text, old.words.zh or old.words.en, source, lang)
    else:
        _copy_comments(old, source, which)


def _copy_english(
    text: Text, old: Cell, source: str, metadata: dict[str, list[str]], beside: dict[str, str]
) -> None:
    old.metadata = metadata
    if old.type == "markdown":
        old.words.en = _restore_placeholders(text, old.words.en, source, "en")
    else:
        old.source = source
    for key, new in beside.items():
        words = getattr(old, key) or Words("", 0)
        words.en = new
        setattr(old, key, words if new else None)


def _copy_comments(old: Cell, source: str, which: str) -> None:
    """Copy the comments of a Chinese code cell; its code must equal the English cell's code."""
    if tokens(source) != tokens(old.source):
        raise BookError(f"{which}: the code is changed in English; here only comments")
    chinese = texts.comment_words(source)
    if chinese == (old.words.zh or texts.comment_words(old.source)):
        return
    if len(comments(source)) != len(comments(old.source)):
        raise BookError(f"{which}: comments are added or removed in English")
    old.words.zh = chinese


def _unmarked(source: str, lang: str) -> str:
    """Return the code without the first line, which marks it as wrong or right."""
    source = source.strip("\n")
    for mark in MARKS.values():
        source = source.removeprefix(f"{mark[lang]}\n")
    return source


def _plain(cell: NotebookNode, source: str, lang: str) -> str:
    """Return the fingerprint of a cell without the line that marks it as wrong or right."""
    return source_fingerprint(NotebookNode(cell, source=_unmarked(source, lang)))


def _restore_placeholders(text: Text, before: str, source: str, lang: str) -> str:
    """Return prose in which placeholders and empty links are restored as in the text."""
    for link in links.EMPTY.finditer(before):
        source = source.replace(links.fill(text.book, link[0], lang), link[0])
    if OLDEST in before:
        source = source.replace(versions.oldest(text.book, text.name), OLDEST, before.count(OLDEST))
    return source


def _verify(book: Book, text: Text, copied: list[tuple[str, NotebookNode, str]]) -> None:
    """Raise unless the new text converts to the edited cells.

    Raises:
        BookError: the text format cannot express an edit.
    """
    text.book = book
    products = {lang: {c.id: c for c in notebook(text, lang).cells} for lang in LANGUAGES}
    for lang, cell, which in copied:
        new, source = products[lang].get(cell.id), cell.source.strip("\n")
        for mark in (WAITING, MISSING):
            source = source.removesuffix(f"\n\n{mark}")
        if new is None or _plain(cell, source, lang) != _plain(new, new.source, lang):
            raise BookError(f"{which}: the text cannot express this edit; change it in the text")
