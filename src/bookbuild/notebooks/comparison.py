"""Compare a notebook with the state that `book update` wrote."""

from __future__ import annotations

import json

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells, tags, tokens
from bookbuild.source.checkout import digest

_JSON = json.JSONEncoder(sort_keys=True)


def source_fingerprint(cell: NotebookNode) -> str:
    """Return a fingerprint of the parts that an author writes: type, source, the book's metadata.

    Metadata that Jupyter adds, such as times and collapsed outputs, is left out.
    """
    own = {
        k: cell.metadata[k]
        for k in ("tags", "claims", "cause", "mystnb", "predict")
        if cell.metadata.get(k)
    }
    return digest(_JSON.encode([cell.cell_type, cell.source, own]))


def output_fingerprint(cell: NotebookNode) -> str:
    """Return a fingerprint of a code cell's stored outputs and execution count."""
    return digest(_JSON.encode([cell.execution_count, cell.outputs]))


def stamp(nb: NotebookNode, helpers: str = "") -> None:
    """Store fingerprints of the cells in a notebook's metadata, to detect edits by hand.

    `helpers` is the fingerprint of the modules that its run used.
    """
    cells = []
    for cell in nb.cells:
        outputs = [output_fingerprint(cell)] if cell.cell_type == "code" else []
        cells.append(" ".join([cell.id, source_fingerprint(cell), *outputs]))
    nb.metadata.made = {"helpers": helpers, "cells": cells}


def why_run(
    now: NotebookNode,
    before: NotebookNode | None,
    helpers: str,
    states: dict[str, str] | None = None,
) -> str:
    """Return the reason why a chapter must run, or "" if its stored outputs are current.

    `states` is the result of `changes(before)` if it was computed already.
    """
    if before is None:
        return "new"
    stamps = before.metadata.get("made")
    if not isinstance(stamps, dict) or stamps.get("helpers") != helpers:
        return "its helpers changed"
    old, new, states = code_cells(before), code_cells(now), states or changes(before)
    if [c.id for c in old] != [c.id for c in new]:
        return "cells were added, removed or moved"
    for a, b in zip(old, new, strict=True):
        if not same_code(a.source, b.source):
            return f"the code of {b.id} changed"
        if ("raises-exception" in tags(a)) != ("raises-exception" in tags(b)):
            return f"the tags of {b.id} changed"
        if states[a.id] in ("new", "edited"):
            return f"{b.id} was edited in the notebook"
        if states[a.id] == "output":
            return f"the output of {b.id} is not what its run stored"
        if a.execution_count is None:
            return f"{b.id} never ran"
    return ""


def changes(nb: NotebookNode) -> dict[str, str]:
    """Return each cell's change since `book update`: "new", "edited", "output" or "" (none)."""
    before, states = stored(nb), {}
    for cell in nb.cells:
        if cell.id not in before:
            states[cell.id] = "new"
        elif before[cell.id][0] != source_fingerprint(cell):
            states[cell.id] = "edited"
        else:
            same = cell.cell_type != "code" or before[cell.id][1] == output_fingerprint(cell)
            states[cell.id] = "" if same else "output"
    return states


def edited(
    nb: NotebookNode, expected: NotebookNode, states: dict[str, str] | None = None
) -> list[str]:
    """Return ids of cells added, edited, removed or moved in a notebook since `book update`.

    Cells that already match the current text (`expected`) are ignored. `states` is the result of
    `changes(nb)` if it was computed already.
    """
    states, before, now = states or changes(nb), list(stored(nb)), [c.id for c in nb.cells]
    current = {c.id: source_fingerprint(c) for c in expected.cells}
    changed = [
        c.id
        for c in nb.cells
        if states[c.id] in ("new", "edited") and source_fingerprint(c) != current.get(c.id)
    ]
    removed = [name for name in before if name not in now and name in current]
    if changed or removed or now == list(current):
        return changed + removed
    kept, stayed = [c for c in now if c in before], [c for c in before if c in now]
    return [a for a, b in zip(kept, stayed, strict=False) if a != b][:1]  # first moved cell


def stored(nb: NotebookNode) -> dict[str, list[str]]:
    """Return the fingerprints that `book update` stored, by cell id; empty if there are none."""
    try:
        cells = [line.split() for line in nb.metadata["made"]["cells"]]
        return {name: [*prints, ""][:2] for name, *prints in cells if prints}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def same_code(one: str, other: str) -> bool:
    """Return True if two cells have the same code; comments and blank lines may differ."""
    return one == other or tokens(one) == tokens(other)
