"""Notebooks: their cells, how they are read and written, and how a run's outputs are cleaned."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from bookbuild.book import BookError, read_text, write_text

# ---------------------------------------------------------------- cells


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """The code cells of a notebook."""
    return [c for c in nb.cells if c.cell_type == "code"]


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return cell.metadata.get("tags", [])


def alt(cell: NotebookNode) -> str:
    """The text that stands for a cell's figure."""
    return cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")


def output(cell: NotebookNode) -> str:
    """What a code cell printed, returned or raised, as text."""
    parts = []
    for out in cell.get("outputs", []):
        text = out.get("text") or out.get("data", {}).get("text/plain") or out.get("evalue", "")
        said = f"{out['ename']}: " if out.get("output_type") == "error" else ""
        parts.append(said + "".join(text).rstrip("\n"))
    return "\n".join(filter(None, parts))


@cache
def tokens(source: str) -> tuple[str, ...]:
    """The Python tokens of a cell without comments and blank lines, so that comments may differ.

    A cell that Python cannot tokenize (a magic) is compared line by line instead.
    """
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    blocks = {tokenize.INDENT: "<indent>", tokenize.DEDENT: "<dedent>"}
    try:
        return tuple(
            blocks.get(kind, text) for kind, text in _with_whole_strings(source) if kind not in skip
        )
    except (tokenize.TokenError, SyntaxError):
        return tuple(line.strip() for line in source.splitlines() if line.strip())


def _with_whole_strings(source: str) -> Iterator[tuple[int, str]]:
    """Type and text of each token; an f-string is one, as before Python 3.12."""
    begins = {getattr(tokenize, f"{kind}STRING_START", None) for kind in "FT"}
    ends = {getattr(tokenize, f"{kind}STRING_END", None) for kind in "FT"}
    starts = list(accumulate(map(len, io.StringIO(source)), initial=0))
    open_strings: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row, column = token.start
        if token.type in begins:
            open_strings.append(starts[row - 1] + column)
        elif token.type in ends:
            start = open_strings.pop()
            if not open_strings:
                row, column = token.end
                yield tokenize.STRING, source[start : starts[row - 1] + column]
        elif not open_strings:
            yield token.type, token.string


_JSON = json.JSONEncoder(sort_keys=True)


def digest(text: str) -> str:
    """A short fingerprint of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def written(cell: NotebookNode) -> str:
    """Fingerprint of what an author writes: type, source, and the metadata that means something.

    What Jupyter adds by itself, such as times and collapsed outputs, is left out.
    """
    meant = {
        k: cell.metadata[k]
        for k in ("tags", "claims", "cause", "mystnb", "predict")
        if cell.metadata.get(k)
    }
    return digest(_JSON.encode([cell.cell_type, cell.source, meant]))


def printed(cell: NotebookNode) -> str:
    """Fingerprint of what a run stored in a code cell."""
    return digest(_JSON.encode([cell.execution_count, cell.outputs]))


def stamp(nb: NotebookNode, helpers: str = "") -> None:
    """Note in a notebook what was written, so that a change made by hand is seen.

    `helpers` is the fingerprint of the modules that its run used.
    """
    nb.metadata.made = {
        "helpers": helpers,
        "cells": [
            " ".join([c.id, written(c), *([printed(c)] if c.cell_type == "code" else [])])
            for c in nb.cells
        ],
    }


# ---------------------------------------------------------------- files


def read(path: Path) -> NotebookNode:
    """Read a notebook.

    Raises:
        BookError: the file is missing or is no notebook; the message names the file and the cell.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        data = json.loads(read_text(path, where))
    except (ValueError, RecursionError) as error:
        raise BookError(f"{where}: not a notebook: {error}") from None
    if wrong := _wrong_form(data):
        raise BookError(f"{where}: not a notebook: {wrong}")
    return nbformat.v4.to_notebook_json(data)  # `nbformat.read` would rename twin ids


_FORMS = {  # what each kind of output must have
    "stream": {"name": str, "text": (str, list)},
    "error": {"ename": str, "evalue": str, "traceback": list},
    "execute_result": {"data": dict, "metadata": dict},
    "display_data": {"data": dict, "metadata": dict},
}


def _wrong_form(data: object) -> str | None:
    """What keeps JSON from being a notebook that we can work with, or None."""
    if not isinstance(data, dict) or data.get("nbformat") != 4:
        return "no cells in format 4"
    if not isinstance(data.get("cells"), list) or not isinstance(data.get("metadata"), dict):
        return "it lacks cells or metadata"
    if type(data.get("nbformat_minor")) is not int:
        return "nbformat_minor must be an int"
    for number, cell in enumerate(data["cells"], 1):
        name = cell.get("id") if isinstance(cell, dict) else None
        if not isinstance(name, str):
            return f"cell {number} has no id"
        needed = {"cell_type": str, "source": (str, list), "metadata": dict}
        if cell.get("cell_type") == "code":
            needed |= {"outputs": list, "execution_count": (int, type(None))}
        if wrong := _lacks(cell, needed):
            return f"cell {name}: {wrong}"
        meant = cell["metadata"]
        for key in ("tags", "claims"):
            if not isinstance(meant.get(key, []), list) or not _strings(meant.get(key, [])):
                return f"cell {name}: {key} must be a list of texts"
        try:
            words = {"cause": meant.get("cause", ""), "alt": alt(NotebookNode(metadata=meant))}
        except AttributeError:
            return f"cell {name}: mystnb must hold an image with its alt"
        for key, value in words.items():
            if not isinstance(value, str):
                return f"cell {name}: {key} must be text"
        if not _strings(cell["source"]):
            return f"cell {name}: source must be text"
        for output in cell.get("outputs", []):
            kind = output.get("output_type") if isinstance(output, dict) else None
            if not isinstance(kind, str) or kind not in _FORMS:
                return f"cell {name}: an output of unknown type {kind!r}"
            if wrong := _lacks(output, _FORMS[kind]):
                return f"cell {name}: output: {wrong}"
            texts = output.get("text", []), output.get("traceback", [])
            if not all(map(_strings, texts)):
                return f"cell {name}: an output that is not text"
    return None


def _lacks(mapping: dict, needed: dict) -> str | None:
    for key, kind in needed.items():
        if key not in mapping:
            return f"it lacks {key}"
        if not isinstance(mapping[key], kind) or isinstance(mapping[key], bool):
            return f"{key} is {type(mapping[key]).__name__}"
    return None


def _strings(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(v, str) for v in value)
    )


def problems_of_schema(nb: NotebookNode, thoroughly: bool = True) -> str | None:
    """What is wrong with a notebook's form, or None; only twin ids unless `thoroughly`."""
    ids = [cell.get("id") for cell in nb.cells]
    if twins := sorted({str(i) for i in ids if ids.count(i) > 1}):
        return f"several cells have the id {', '.join(twins)}"
    if not thoroughly:
        return None
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        return str(error).splitlines()[0]
    return None


def dumps(nb: NotebookNode) -> str:
    """A notebook as the text that is stored."""
    return nbformat.writes(nb, version=nbformat.NO_CONVERT, indent=1, ensure_ascii=False) + "\n"


def write(nb: NotebookNode, path: Path) -> bool:
    """Write a notebook whole or not at all; returns whether anything changed.

    Raises:
        BookError: the notebook is not valid; nothing is written.
    """
    if wrong := problems_of_schema(nb):
        raise BookError(f"{path.parent.name}/{path.name}: not written, not valid: {wrong}")
    return write_text(path, dumps(nb))


# ---------------------------------------------------------------- cleaning

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_KERNEL_FILE = re.compile(r"[^\s\"']*/ipykernel_\d+/\d+\.py")
_PACKAGE_PATH = re.compile(r"[^\s\"']*/(?:site|dist)-packages/|[^\s\"']*/(?=src/helpers/)")
_TQDM_RATE = re.compile(r" ?\[\d\d:\d\d(?::\d\d)?<[^]]*\]")


def _portable(text: str) -> str:
    return _PACKAGE_PATH.sub("", _KERNEL_FILE.sub("<cell>.py", text))


def _short(traceback: list[str]) -> list[str]:
    """The reader's own frame and the message; frames inside libraries say nothing to a reader."""
    plain = [_ANSI.sub("", line) for line in traceback]
    return [_portable(x) for x in plain if not x.startswith("File ")]


def clean(nb: NotebookNode) -> NotebookNode:
    """Take out what differs between two runs and means nothing, and number the cells 1..n.

    A `gpu` cell that never ran keeps no number: a reader sees no output that no run produced.
    """
    for n, cell in enumerate(code_cells(nb), 1):
        for key in ("execution", "collapsed", "scrolled"):
            cell.metadata.pop(key, None)
        if "gpu" in tags(cell) and not cell.outputs:
            cell.execution_count = None
            continue
        cell.execution_count = n
        cell.outputs = coalesce_streams(cell.outputs)
        for out in cell.outputs:
            if out.output_type == "execute_result":
                out.execution_count = n
            elif out.output_type == "error":
                out.traceback = _short(out.traceback)
                out.evalue = _portable(_ANSI.sub("", out.evalue))
            elif out.output_type == "stream":
                out.text = _TQDM_RATE.sub("", _portable(out.text))
            if "data" in out:
                out.metadata = {}
    return nb


def coalesce_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join the pieces of stdout and of stderr, exactly as nbval does before it compares."""
    from nbval.plugin import coalesce_streams  # private to nbval; tests hold it to what we need

    return coalesce_streams(outputs)
