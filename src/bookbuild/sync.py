"""Carry code, outputs and order from the English notebooks to the Chinese ones."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

from nbformat import NotebookNode
from nbformat.v4 import new_notebook

from bookbuild.notebooks import Book, alt, digest, prose, read, set_alt, tokens, write

HAN = re.compile(r"[\u3400-\u9fff]")


def needs_translation(text: str) -> bool:
    """Whether a text has words at all: a cell with nothing but a formula or a rule has none."""
    return bool(
        re.search(
            r"[A-Za-z]{4}", re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", "", text, flags=re.S)
        )
    )


def state(en: NotebookNode, zh: NotebookNode) -> str:
    """How a Chinese cell stands to its English one: `current`, `missing`, `stale` or `unstamped`.

    `missing`: still the English text. `stale`: the English changed and the Chinese did not.
    `unstamped`: the Chinese was written or changed since the last sync, which will stamp it.
    """
    source, target = prose(en), prose(zh)
    stamp = zh.metadata.get("translation")
    if not needs_translation(source):
        return "current"
    if source == target:
        return "missing"
    if stamp is None:
        return "unstamped"
    if stamp["en"] != digest(source):
        return "stale" if stamp["zh"] == digest(target) else "unstamped"
    return "current" if stamp["zh"] == digest(target) else "unstamped"


def translated(en: NotebookNode, old: NotebookNode | None) -> NotebookNode:
    """The Chinese cell for `en`: its code and outputs, the prose and comments of `old`."""
    zh = copy.deepcopy(en)
    if old is None or old.cell_type != en.cell_type:
        return zh
    if en.cell_type == "markdown":
        zh.source = old.source
    else:
        if tokens(old.source) == tokens(en.source):
            zh.source = old.source
        if alt(en) and alt(old):
            set_alt(zh, alt(old))
        if en.metadata.get("cause") and old.metadata.get("cause"):
            zh.metadata["cause"] = old.metadata["cause"]
    if "translation" in old.metadata:
        zh.metadata["translation"] = old.metadata["translation"]
    return zh


def sync(book: Book, names: Iterable[str] = (), keep: Iterable[str] = (), echo=print) -> list[str]:
    """Bring the Chinese notebooks into step and return the cells that wait for a translator.

    English decides which cells there are and in which order. A Chinese text that was changed since
    the last sync counts as the translation of today's English; `keep` names cells
    (`chapter::cell`) whose Chinese still holds although the English changed.
    """
    waiting, keep = [], set(keep)
    for name in book.choose(list(names)):
        en, path = read(book.path("en", name)), book.path("zh", name)
        zh = read(path) if path.exists() else new_notebook()
        old = {c.id: c for c in zh.cells}
        cells = []
        for cell in en.cells:
            new = translated(cell, old.pop(cell.id, None))
            where = f"{name}::{cell.id}"
            status = state(cell, new)
            if not needs_translation(prose(cell)):
                new.metadata.pop("translation", None)
            elif status == "unstamped" or (where in keep and status == "stale"):
                new.metadata["translation"] = {"en": digest(prose(cell)), "zh": digest(prose(new))}
            elif status != "current":
                waiting.append(f"{where}: {status}")
            if lost := _lost_comments(cell, zh.cells):
                waiting.append(f"{where}: {lost}")
            cells.append(new)
        summary = zh.metadata.get("summary") or en.metadata.get("summary", "")
        zh.cells = cells
        zh.metadata = copy.deepcopy(en.metadata)
        zh.metadata["summary"] = summary
        zh.nbformat, zh.nbformat_minor = en.nbformat, en.nbformat_minor
        changed = write(zh, path)
        echo(f"{name}: {'changed' if changed else 'unchanged'}")
        for cell_id in old:
            echo(f"  dropped {name}::{cell_id}: no longer in English")
    for line in waiting:
        echo(f"  translate {line}")
    return waiting


def _lost_comments(en: NotebookNode, old_cells: list[NotebookNode]) -> str:
    """A code cell whose code changed loses its Chinese comments; the translator must know."""
    old = next((c for c in old_cells if c.id == en.id and c.cell_type == "code"), None)
    if en.cell_type != "code" or old is None or tokens(old.source) == tokens(en.source):
        return ""
    return "code changed, translate its comments again" if HAN.search(old.source) else ""
