"""Verify messages by running code, reading cells' outputs and searching installed packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.files import read
from bookbuild.source.checkout import Book
from bookbuild.source.messages import TORCH, VARIABLE, Entry
from helpers.explain import Messages
from helpers.explain.text import plain
from helpers.explain.wordings import Wording


def constants(wording: str) -> list[str]:
    """Return the text of a wording between its variables, in pieces of about 32 characters."""
    text = re.sub(r"^(?:\w+\.)*\w*(?:Error|Exception|Warning|Exit|Interrupt): ", "", wording)
    pieces = []
    for part in VARIABLE.split(text):
        pieces += textwrap.wrap(part.strip(" .,:;!'\"`()[]"), 32, break_long_words=False)
    return [piece for piece in pieces if len(piece) > 5] or [max(pieces, key=len)]


def not_in(wordings: list[str], folders: list[Path]) -> list[str]:
    """Return the wordings with more than 40 % of their constant text missing from packages.

    Shared libraries and Python files under `folders` are searched by `grep`. A whole wording is
    seldom found, because source code may split a string at any position.
    """
    if not wordings:
        return []
    files = [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix == ".py" or ".so" in path.suffixes
    ]
    existing = _grep(sorted({piece for wording in wordings for piece in constants(wording)}), files)
    lacking = []
    for wording in wordings:
        pieces = constants(wording)
        if sum(len(p) for p in pieces if p in existing) < 0.6 * sum(map(len, pieces)):
            lacking.append(wording)
    return lacking


def _grep(pieces: list[str], files: list[str]) -> set[str]:
    """Return the pieces that occur in at least one file."""
    existing: set[str] = set()
    for start in range(0, len(files), 1000):
        ran = subprocess.run(
            ["grep", "-a", "-o", "-h", "-F", "-f", "-", *files[start : start + 1000]],
            input="\n".join(pieces).encode(),
            capture_output=True,
            env={"LC_ALL": "C"},
        )
        existing |= set(ran.stdout.decode(errors="replace").splitlines())
    # grep -o prints only the longest match at a position: count pieces that it contains, too
    return {p for p in pieces if p in existing or any(p in f for f in existing)}


_DRIVER = """
import gc, importlib, json, os, sys, tempfile, traceback, warnings
slow = {  # imported once before the first proof that contains the word; others run earlier
    "torch": "torchvision",  # also imports torch, and torch._dynamo, which each optimizer imports
    "torch.export": "torch.export",
    "torch.compile": "torch._dynamo",
    "matplotlib": "matplotlib.pyplot",
    "sklearn": "sklearn.metrics",
    "torchmetrics": "torchmetrics",
}
for name, code in sorted(json.load(sys.stdin), key=lambda x: [word in x[1] for word in slow]):
    for word, module in slow.items():
        if word in code:
            importlib.import_module(module)
    gc.freeze()  # keeps the collector from writing to pages shared with the child
    with tempfile.TemporaryFile() as out:
        if (child := os.fork()) == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
            warnings.simplefilter("always")
            for part in code.split("\\n---\\n"):
                try:
                    exec(compile(part, "<message>", "exec"), {"__name__": "__main__"})
                except BaseException:
                    traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        os.waitpid(child, 0)
        out.seek(0)
        print(json.dumps([name, out.read().decode(errors="replace")]), flush=True)
"""


def printed(codes: list[tuple[str, str]]) -> dict[str, str]:
    """Run each piece of code in its own process; return its stdout and stderr by name.

    Parts separated by a line `---` run one after the other, each with its own variables.
    Slow packages such as PyTorch are imported once in a parent process that forks: Linux and macOS
    only.
    """
    if not codes:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-u", "-c", _DRIVER, folder],  # stdout and stderr in their order
            input=json.dumps(codes),
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if ran.returncode:
        raise RuntimeError(f"the proofs could not be run: {ran.stderr[-500:]}")
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def cells_with_message(
    entries: list[Entry], notebooks: Mapping[str, NotebookNode]
) -> dict[str, list[tuple[str, str]]]:
    """Return for each entry the cells, as (chapter, id), whose stored output matches a wording."""
    search = Messages([{"id": e.id, "wordings": e.wordings} for e in entries])
    cells: dict[str, list[tuple[str, str]]] = {}
    for name, notebook in notebooks.items():
        for cell in code_cells(notebook):
            for output in cell.outputs:
                raises = output.output_type == "error"
                text = f"{output.ename}: {output.evalue}" if raises else output.get("text", "")
                answers = search.whole(plain(text)).values() if text else ()
                least = 0.45 * max((a.score for a in answers), default=0)
                for answer in answers:
                    places = cells.setdefault(answer.entry["id"], [])
                    if answer.score >= least and (name, cell.id) not in places:
                        places.append((name, cell.id))
    return cells


def unproved(book: Book, entries: list[Entry], installed: list[Path]) -> Iterator[str]:
    """Yield one line for each wording that its proof does not contain.

    A proof is what `run` prints, what the installed packages under `installed` contain, what the
    book's own cells print, or the address of a public source.
    """
    outputs = printed([(e.id, e.run) for e in entries if e.run])
    paths = {name: book.notebook("en", name) for name in book.texts}
    cells = cells_with_message(entries, {name: read(p) for name, p in paths.items() if p.exists()})
    strings = [t for e in entries for t, proof in zip(e.wordings, e.proofs, strict=True)
               if proof == TORCH]  # fmt: skip
    missing = set(not_in(strings, installed))
    for entry in entries:
        output = plain(outputs.get(entry.id, ""))
        runs = any(Wording(wording, 0).match(output) for wording in entry.wordings)
        for text, proof in zip(entry.wordings, entry.proofs, strict=True):
            if not proof and Wording(text, 0).match(output):
                continue
            if entry.run and not runs:
                yield f"{entry.where}: run does not print {text!r}, but {output[-100:]!r}"
            elif proof == TORCH and text in missing:
                yield f"{entry.where}: the installed packages do not contain {text!r}"
            elif proof and proof != TORCH and not proof.startswith("https://"):
                yield f"{entry.where}: found: expected torch or an address, got {proof!r}"
            elif not proof and (entry.run or entry.id not in cells):
                yield f"{entry.where}: neither `run` nor a cell prints {text!r}; give it `found`"
