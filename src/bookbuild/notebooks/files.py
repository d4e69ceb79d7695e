"""Read, validate and write notebook files."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from bookbuild.source.checkout import BookError, read_text, write_text
from bookbuild.source.data_files import TEXT, Schema

MAX_BYTES = 500_000  # limit of a notebook: GitHub and Colab render larger ones slowly or not at all


def read(path: Path) -> NotebookNode:
    """Read a notebook.

    Raises:
        BookError: the file is missing or not a notebook; the message names the file and the cell.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        data = json.loads(read_text(path, where))
    except (ValueError, RecursionError) as error:
        raise BookError(f"{where}: not a notebook: {error}") from None
    if problem := _SCHEMA.problem(data)[1]:
        raise BookError(f"{where}: not a notebook: {problem}")
    return nbformat.v4.to_notebook_json(data)  # `nbformat.read` would rename duplicate ids


def shared(path: Path) -> NotebookNode:
    """Return a notebook as `read` does, from a cache: callers must not modify it.

    Raises:
        BookError: the file is missing or not a notebook.
    """
    return _shared(path, path.stat().st_mtime_ns) if path.is_file() else read(path)


@lru_cache(maxsize=128)
def _shared(path: Path, changed: int) -> NotebookNode:
    return read(path)


def _part(**required: dict) -> dict:
    """Return the schema of a mapping with these keys and any others."""
    return {"type": "object", "properties": required, "required": [*required]}


_ANY = {"type": "object"}
_TEXTS = {"type": "array", "items": TEXT, "description": "a list of texts"}
_SOURCE = {"type": ["string", "array"], "items": TEXT, "description": "a text"}
_OUTPUT = {
    "anyOf": [
        _part(output_type={"const": "stream"}, name=TEXT, text=_SOURCE),
        _part(output_type={"const": "error"}, ename=TEXT, evalue=TEXT, traceback=_TEXTS),
        _part(output_type={"enum": ["execute_result", "display_data"]}, data=_ANY, metadata=_ANY),
    ],
    "description": "a stream, an error or data with all its parts",
}
_METADATA = {
    "type": "object",
    "properties": {
        "tags": _TEXTS,
        "claims": _TEXTS,
        "cause": TEXT,
        "mystnb": {
            "type": "object",
            "properties": {"image": {"type": "object", "properties": {"alt": TEXT}}},
        },
    },
}
_COUNT = {"type": ["integer", "null"], "description": "a number or null"}
_CELL = _part(id=TEXT, cell_type=TEXT, source=_SOURCE, metadata=_METADATA) | {
    "if": {"properties": {"cell_type": {"const": "code"}}},
    "then": _part(outputs={"type": "array", "items": _OUTPUT}, execution_count=_COUNT),
}
_SCHEMA = Schema(
    _part(
        nbformat={"const": 4, "description": "format 4"},
        nbformat_minor={"type": "integer", "description": "a number"},
        metadata=_ANY,
        cells={"type": "array", "items": _CELL},
    )
)


def problems_of_schema(nb: NotebookNode, thoroughly: bool = True) -> str | None:
    """Return a schema problem or None; without `thoroughly`, check only for duplicate ids."""
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
    """Return a notebook as the JSON text that is stored."""
    return nbformat.writes(nb, version=nbformat.NO_CONVERT, indent=1, ensure_ascii=False) + "\n"


def write(nb: NotebookNode, path: Path) -> bool:
    """Write a notebook atomically; return True if the file changed.

    Raises:
        BookError: the notebook is not valid; nothing is written.
    """
    if wrong := problems_of_schema(nb):
        raise BookError(f"{path.parent.name}/{path.name}: not written, not valid: {wrong}")
    return write_text(path, dumps(nb))
