"""Read the tags, outputs and Python tokens of notebook cells."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import accumulate

from nbformat import NotebookNode


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """Return the code cells of a notebook."""
    return [c for c in nb.cells if c.cell_type == "code"]


def tags(cell: NotebookNode) -> list[str]:
    """Return the tags of a cell."""
    return cell.metadata.get("tags", [])


def alt(cell: NotebookNode) -> str:
    """Return the alt text of a cell's figure, "" if there is none."""
    return cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")


def output(cell: NotebookNode) -> str:
    """Return the output of a code cell as text: what it printed, returned and raised."""
    parts = []
    for out in cell.get("outputs", []):
        text = out.get("text") or out.get("data", {}).get("text/plain") or out.get("evalue", "")
        name = f"{out['ename']}: " if out.get("output_type") == "error" else ""
        parts.append(name + "".join(text).rstrip("\n"))
    return "\n".join(filter(None, parts))


@cache
def tokens(source: str) -> tuple[str, ...]:
    """Return the Python tokens of a cell, without comments and blank lines.

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
    """Yield the type and text of each token; an f-string is one token, as before Python 3.12."""
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
