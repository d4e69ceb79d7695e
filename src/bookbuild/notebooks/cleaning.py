"""Remove the parts of outputs that differ between two runs."""

from __future__ import annotations

import re

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_KERNEL_FILE = re.compile(r"[^\s\"']*/ipykernel_\d+/\d+\.py")
_PACKAGE_PATH = re.compile(r"[^\s\"']*/(?:site|dist)-packages/|[^\s\"']*/(?=src/helpers/)")
_TQDM_RATE = re.compile(r" ?\[\d\d:\d\d(?::\d\d)?<[^]]*\]")


def _portable(text: str) -> str:
    return _PACKAGE_PATH.sub("", _KERNEL_FILE.sub("<cell>.py", text))


def _short(traceback: list[str]) -> list[str]:
    """Return a traceback without library frames: the frames of the cell, and the message."""
    plain = [_ANSI.sub("", line) for line in traceback]
    return [_portable(x) for x in plain if not x.startswith("File ")]


def clean(nb: NotebookNode) -> NotebookNode:
    """Remove times, paths and ANSI codes from a notebook in place, and number its cells 1..n."""
    for n, cell in enumerate(code_cells(nb), 1):
        for key in ("execution", "collapsed", "scrolled"):
            cell.metadata.pop(key, None)
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
    """Join consecutive stdout and stderr outputs exactly as nbval does before it compares."""
    from nbval.plugin import coalesce_streams  # not public API; a test checks its behaviour

    return coalesce_streams(outputs)
