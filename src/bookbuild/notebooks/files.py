"""Notebook files: read, validate and write."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from bookbuild.notebooks.cells import alt
from bookbuild.source.checkout import BookError, read_text, write_text

MAX_BYTES = 500_000  # of a notebook: GitHub and Colab show larger ones slowly or not at all


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
