"""The book's notebooks on disk: where they are, how they are read, cleaned and written."""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import os
import re
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path

import nbformat
import yaml
from nbformat import NotebookNode

LANGUAGES = ("en", "zh")
REFERENCE = ("cheat_sheet", "errors", "then_and_now", "status", "glossary", "api")
CHEAT_SHEET = "cheat_sheet"

SETUP = """\
# Colab, Kaggle, Binder: install the book's helpers where they are missing.
import importlib, importlib.util, pathlib, subprocess, sys
if importlib.util.find_spec("helpers") is None:
    clone, source = pathlib.Path("../.."), "{source}"
    if (clone / "src/helpers").is_dir():
        source = str(clone)
    if not source:
        raise RuntimeError("helpers is not installed: set repository.url in "
                           "_config.yml, run `book run`, and open this again")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", source],
                   check=True)
    importlib.invalidate_caches()"""


class BookError(Exception):
    """Something the reader of the message can mend; shown without a traceback."""


@dataclass(frozen=True)
class Book:
    """A checkout of the book."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Book:
        """The book that `start` (the current directory) stands in: nearest `_config.yml` upward.

        Raises:
            BookError: there is none.
        """
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
                return cls(folder)
        raise BookError(f"no book here: neither {start} nor a folder above it has a _config.yml")

    @cached_property
    def config(self) -> dict:
        """`_config.yml`."""
        return yaml.safe_load((self.root / "_config.yml").read_text("utf8")) or {}

    @cached_property
    def parts(self) -> list[tuple[str, list[str]]]:
        """The parts of `_toc.yml` with the names of their pages, in reading order."""
        toc = yaml.safe_load((self.root / "_toc.yml").read_text("utf8"))
        return [(p["caption"], [c["file"] for c in p["chapters"]]) for p in toc["parts"]]

    @cached_property
    def chapters(self) -> list[str]:
        """Names of the chapters in reading order; reference pages are not chapters."""
        return [name for _, names in self.parts for name in names if name not in REFERENCE]

    def path(self, lang: str, chapter: str) -> Path:
        """Where the notebook of a chapter is."""
        return self.root / "book" / lang / f"{chapter}.ipynb"

    def choose(self, names: tuple[str, ...] | list[str]) -> list[str]:
        """The chapters called `names`, in reading order; all if `names` is empty.

        Raises:
            BookError: a name is no chapter; the message suggests the nearest.
        """
        for name in names:
            if name not in self.chapters:
                near = difflib.get_close_matches(name, self.chapters, 1, 0.4)
                hint = f"did you mean {near[0]}?" if near else f"have {', '.join(self.chapters)}"
                raise BookError(f"no chapter {name!r}: {hint}")
        return [c for c in self.chapters if not names or c in names]

    @cached_property
    def setup(self) -> str:
        """The source of every chapter's setup cell, with the repository's address stamped in."""
        repository = self.config.get("repository") or {}
        url = os.environ.get("BOOK_REPOSITORY_URL") or repository.get("url") or ""
        branch = repository.get("branch") or "main"
        return SETUP.format(source=f"git+{url}@{branch}" if url else "")


# ---------------------------------------------------------------- cells


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """The code cells of a notebook."""
    return [c for c in nb.cells if c.cell_type == "code"]


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return cell.metadata.get("tags", [])


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


def alt(cell: NotebookNode) -> str:
    """The text that stands for a cell's figure."""
    return cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")


def set_alt(cell: NotebookNode, text: str) -> None:
    """Give a cell's figure its text."""
    cell.metadata["mystnb"] = {"image": {"alt": text}}


def prose(cell: NotebookNode) -> str:
    """What a translator translates: a prose cell's text; a code cell's figure text and cause."""
    if cell.cell_type == "markdown":
        return cell.source
    return "\n".join(filter(None, (alt(cell), cell.metadata.get("cause", ""))))


def digest(text: str) -> str:
    """A short fingerprint of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def fingerprints(cell: NotebookNode) -> list[str]:
    """Fingerprints of a code cell's code (comments left out) and of its outputs."""
    outputs = [{k: v for k, v in o.items() if k != "traceback"} for o in cell.outputs]
    return [
        digest("\0".join(tokens(cell.source))),
        digest(json.dumps(outputs, sort_keys=True, ensure_ascii=False)),
    ]


# ---------------------------------------------------------------- files


def read(path: Path) -> NotebookNode:
    """Read a notebook.

    Raises:
        BookError: the file is missing or is no notebook.
    """
    where = f"{path.parent.name}/{path.name}"
    try:
        data = json.loads(path.read_text("utf8"))
    except FileNotFoundError:
        raise BookError(f"{where}: there is no such notebook") from None
    except ValueError as error:
        raise BookError(f"{where}: not a notebook: {error}") from None
    if not (isinstance(data, dict) and data.get("nbformat") == 4 and "cells" in data):
        raise BookError(f"{where}: not a notebook: no cells in format 4")
    try:
        return nbformat.v4.to_notebook_json(data)  # `nbformat.read` would rename twin ids
    except Exception as error:
        raise BookError(f"{where}: not a notebook: {type(error).__name__}: {error}") from None


def problems_of_schema(nb: NotebookNode) -> str | None:
    """What is wrong with a notebook's form, or None."""
    ids = [cell.get("id") for cell in nb.cells]
    if twins := sorted({str(i) for i in ids if ids.count(i) > 1}):
        return f"several cells have the id {', '.join(twins)}"
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        return str(error).splitlines()[0]
    return None


def dumps(nb: NotebookNode) -> str:
    """A notebook as the text that is stored."""
    return nbformat.writes(nb, version=nbformat.NO_CONVERT, indent=1, ensure_ascii=False) + "\n"


def write_text(path: Path, text: str) -> bool:
    """Write a file whole or not at all; returns whether anything changed.

    The text goes to a temporary file beside `path`, which then takes its place: a full disk or a
    killed process leaves the old file as it was.
    """
    if path.exists() and path.read_text("utf8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


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
    from nbval.plugin import coalesce_streams

    ran = {}
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
        ran[cell.id] = fingerprints(cell)
    nb.metadata = NotebookNode(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "ran": ran,
            "summary": nb.metadata.get("summary", ""),
        }
    )
    nb.nbformat, nb.nbformat_minor = 4, 5
    return nb
