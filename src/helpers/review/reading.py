"""Read the source of scripts, folders and notebooks, and report files that cannot be read."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from helpers.review.code import CELL
from helpers.review.syntax import parsed

LARGEST = 2_000_000  # limit in bytes of a script; in characters of a notebook's code cells
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "build", "dist"}


@dataclass(frozen=True)
class Source:
    """Source of a file; for a notebook, `cells` has the first line and number of each cell."""

    path: str
    text: str
    cells: list[tuple[int, int]] = field(default_factory=list)

    def where(self, line: int) -> str:
        """Return the location of `line` as text: file and line, for a notebook cell and line."""
        if not self.cells:
            return f"{self.path}:{line}"
        first, number = max(start for start in self.cells if start[0] <= line)
        return f"{self.path}:cell {number}:{line - first + 1}"


@dataclass(frozen=True)
class Unread:
    """A file or a cell that cannot be read, and the reason."""

    path: str
    reason: str


def sources(paths: Iterable[str]) -> Iterator[Source | Unread]:
    """Yield the sources of files and folders; `-` reads standard input."""
    for path in paths:
        if path == "-":
            yield from script("<stdin>", sys.stdin.buffer.read())
        elif Path(path).is_dir():
            for file in files(Path(path)):
                yield from read(file)
        else:
            yield from read(Path(path))


def files(folder: Path) -> Iterator[Path]:
    """Yield the scripts and notebooks in a folder, except hidden ones and virtual environments."""
    for parent, folders, names in os.walk(folder):
        kept = (
            subfolder
            for subfolder in sorted(folders)
            if subfolder not in _SKIPPED and subfolder[0] != "."
        )
        folders[:] = [
            subfolder for subfolder in kept if not Path(parent, subfolder, "pyvenv.cfg").exists()
        ]
        for name in sorted(names):
            if name.endswith((".py", ".ipynb")) and not name.startswith("."):
                yield Path(parent, name)


def read(path: Path) -> Iterator[Source | Unread]:
    """Yield the source of a file, or an `Unread` with the reason."""
    try:
        data = path.read_bytes()
    except OSError as error:
        yield Unread(str(path), error.strerror or str(error))
        return
    how = notebook if path.suffix == ".ipynb" else script
    yield from how(str(path), data)


def script(path: str, data: bytes) -> Iterator[Source | Unread]:
    """Yield the source of a script, or an `Unread` if it is too large or not valid Python."""
    if len(data) > LARGEST:
        yield Unread(path, f"{len(data):,} bytes, at most {LARGEST:,}")
        return
    text = _decoded(data)
    if text is None:
        yield Unread(path, "its encoding is unknown")
        return
    if problem := syntax_problem(text):
        text = without_magics(text)
        if syntax_problem(text):
            yield Unread(path, problem)
            return
    yield Source(path, text)


def _decoded(data: bytes) -> str | None:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError):
        return None
    return re.sub(r"\r\n?", "\n", text).removeprefix("\ufeff")


def syntax_problem(text: str) -> str:
    """Return the reason why a text cannot be parsed as Python, "" if it can."""
    try:
        parsed(text)
    except SyntaxError as error:
        python2 = re.search(r"(?m)^\s*(print [^(=]|except \w+, \w+:|exec \")", text)
        note = " (Python 2?)" if python2 else ""
        return f"line {error.lineno}: {error.msg}{note}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


_LINE_MAGIC = re.compile(r"^(\s*)(?:[%!?].*|[\w.]+\?{1,2}\s*)$", re.M)
_VALUE_MAGIC = re.compile(r"^(\s*[\w, ]+=\s*)[%!].*$", re.M)
_PYTHON_MAGICS = {"%%time", "%%timeit", "%%capture", "%%prun"}


def without_magics(text: str) -> str:
    """Replace the magics and shell commands of a cell; the number of lines does not change.

    A cell in another language, such as `%%bash`, is replaced by empty lines.
    """
    first = next((line for line in text.split("\n") if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in _PYTHON_MAGICS:
        return "\n" * text.count("\n")
    return _VALUE_MAGIC.sub(r"\1None", _LINE_MAGIC.sub(r"\1pass", text))


def notebook(path: str, data: bytes) -> Iterator[Source | Unread]:
    """Yield the unreadable cells of a notebook, then all other code cells as one source."""
    try:
        content = json.loads(data)
        sheets = content.get("worksheets") or [content]
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        language = content.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        texts = [_cell(cell) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield Unread(path, "no notebook")
        return
    if not str(language).lower().startswith("python"):
        yield Unread(path, f"its language is {language}")
        return
    lines: list[str] = []
    starts = []
    for number, text in enumerate(texts, 1):
        if problem := syntax_problem(text):
            text = without_magics(text)
            if syntax_problem(text):
                yield Unread(f"{path}:cell {number}", problem)
                continue
        starts.append((len(lines) + 1, number))
        lines += [*text.split("\n"), CELL]
    joined = "\n".join(lines)
    if len(joined) > LARGEST:
        yield Unread(path, f"{len(joined):,} characters of code, at most {LARGEST:,}")
    elif starts:
        yield Source(path, joined, starts)


def _cell(cell: dict) -> str:
    text = cell.get("source", cell.get("input", ""))
    return re.sub(r"\r\n?", "\n", "".join(text))
