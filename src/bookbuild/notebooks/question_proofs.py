"""Check each choice of a question against a stored output or an assertion of the chapter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells, output
from bookbuild.source.questions import parse


def problems(words: str, proofs: list[str], name: str, nb: NotebookNode) -> Iterator[str]:
    """Yield one line for each choice without a valid proof; `name` is the id of the cell."""
    cells = {c.id: c for c in code_cells(nb)}
    if name not in cells:
        return  # the notebook is older than the text
    for choice, proof in zip(parse(words).choices, proofs, strict=True):
        where = f"predict: {choice.text!r}"
        if proof.startswith("assert "):
            if not _stands(proof, cells.values()):
                yield f"{where}: no cell has `{proof}`"
            continue
        form = re.fullmatch(r"output(?: of ([\w-]+))?", proof)
        code = re.match(r"(`+)(.+?)\1", choice.text)
        if not form:
            yield f"{where}: expected a proof `= output` or `= assert …`, got {proof!r}"
        elif not code:
            yield f"{where}: expected the printed text in backticks at the beginning of the choice"
        elif form[1] and form[1] not in cells:
            yield f"{where}: there is no cell {form[1]}"
        elif form[1] and not _prints(cells[form[1]], code[2]):
            yield f"{where}: {form[1]} does not print it"
        elif _prints(cells[name], code[2]) != choice.right:
            yield f"{where}: the cell's output {'has no such thing' if choice.right else 'has it'}"


def _prints(cell: NotebookNode, code: str) -> bool:
    """Return True if a cell's output contains `code` as a whole word; whitespace is normalized."""
    ours, theirs = (" ".join(text.split()) for text in (code, output(cell)))
    return re.search(rf"(?<![\w.-]){re.escape(ours)}(?![\w]|\.\d)", theirs) is not None


def _stands(proof: str, cells: object) -> bool:
    """Return True if an executed cell has this assertion, ignoring formatting and message."""
    tests = _asserted(proof)
    return bool(tests) and any(
        tests & _asserted(cell.source) for cell in cells if cell.execution_count is not None
    )


@cache
def _asserted(source: str) -> frozenset[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return frozenset()
    return frozenset(ast.unparse(n.test) for n in ast.walk(tree) if isinstance(n, ast.Assert))
