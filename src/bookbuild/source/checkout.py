"""The checkout: its configuration, its chapters, where files are and how they are written."""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

LANGUAGES = ("en", "zh")
REFERENCE = "Reference"  # the part of _toc.yml whose pages are no chapters
ERRORS_OF = "errors_"  # with the name of a family of messages: its page
OLD_NOTES = "old_notes"  # runs what the old notes got wrong, out of the chapters' way


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
            BookError: there is none, or the current directory no longer exists.
        """
        try:
            start = (start or Path.cwd()).resolve()
        except FileNotFoundError:
            raise BookError("the current directory no longer exists") from None
        for folder in (start, *start.parents):
            if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
                return cls(folder)
        raise BookError(f"no book here: neither {start} nor a folder above it has a _config.yml")

    @cached_property
    def config(self) -> dict:
        """`_config.yml`."""
        return self._yaml("_config.yml")

    @cached_property
    def parts(self) -> list[tuple[str, list[str]]]:
        """The parts of `_toc.yml` with the names of their pages, in reading order.

        Raises:
            BookError: the file has another form.
        """
        try:
            return [
                (str(part["caption"]), [str(c["file"]) for c in part["chapters"]])
                for part in self._yaml("_toc.yml")["parts"]
            ]
        except (KeyError, TypeError) as error:
            raise BookError(
                f"_toc.yml: expected parts with caption and chapters: {error}"
            ) from None

    @cached_property
    def pages(self) -> list[str]:
        """Names of all pages of `_toc.yml` in reading order, those below another page included."""
        nested = [page for part in self._yaml("_toc.yml")["parts"] for page in part["chapters"]]
        names = []
        while nested:
            page = nested.pop(0)
            names.append(str(page["file"]))
            nested[:0] = page.get("sections") or ()
        return names

    @cached_property
    def chapters(self) -> list[str]:
        """Names of the chapters in reading order; reference pages are not chapters."""
        return [name for part, names in self.parts if part != REFERENCE for name in names]

    @cached_property
    def texts(self) -> list[str]:
        """Names of all that has a text: the chapters, and the reference pages that run."""
        reference = (name for part, names in self.parts if part == REFERENCE for name in names)
        return [*self.chapters, *(name for name in reference if self.text(name).exists())]

    def _yaml(self, name: str) -> dict:
        try:
            loaded = yaml.load(read_text(self.root / name, name), yaml.CSafeLoader) or {}
        except yaml.YAMLError as error:
            raise BookError(f"{name}: {' '.join(str(error).split())}") from None
        if not isinstance(loaded, dict):
            raise BookError(f"{name}: expected keys and values, got {type(loaded).__name__}")
        return loaded

    def text(self, chapter: str) -> Path:
        """The source of a chapter, in both languages."""
        return self.root / "book" / "text" / f"{chapter}.md"

    def notebook(self, lang: str, chapter: str) -> Path:
        """The notebook of a chapter in one language."""
        return self.root / "book" / lang / f"{chapter}.ipynb"

    def relative(self, path: Path) -> str:
        """A path as messages show it."""
        return path.relative_to(self.root).as_posix()

    def choose(self, names: tuple[str, ...] | list[str]) -> list[str]:
        """The chapters called `names`, in reading order; all texts if `names` is empty.

        Raises:
            BookError: a name is no chapter; the message suggests the nearest.
        """
        for name in names:
            if name not in self.texts:
                near = difflib.get_close_matches(name, self.texts, 1, 0.4)
                hint = f"did you mean {near[0]}?" if near else f"have {', '.join(self.texts)}"
                raise BookError(f"no chapter {name!r}: {hint}")
        return [c for c in self.texts if not names or c in names]


def read_text(path: Path, where: str) -> str:
    """The text of a file, whose name in messages is `where`.

    Raises:
        BookError: there is no such file, it cannot be read, or it is not UTF-8.
    """
    try:
        return path.read_text("utf8")
    except FileNotFoundError:
        raise BookError(f"{where}: there is no such file") from None
    except OSError as error:
        raise BookError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BookError(f"{where}: not UTF-8 at byte {error.start}") from None


def fingerprint(files: Iterable[Path]) -> str:
    """Fingerprint of the names and the contents of files; folders and compiled files are passed."""
    total = hashlib.sha256()
    for path in sorted(files):
        if path.is_file() and path.suffix not in (".pyc", ".mo"):
            total.update(f"{path}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return total.hexdigest()


def program() -> list[str]:
    """What works on a book: this package by its content, Python, the installed packages."""
    packages = Path(sysconfig.get_path("purelib")).glob("*.dist-info")
    own = fingerprint(Path(__file__).parents[1].rglob("*"))
    return [own, sys.version, *sorted(path.name for path in packages)]


def write_text(path: Path, text: str) -> bool:
    """Write a file whole or not at all; returns whether anything changed.

    The text goes to a temporary file beside `path`, which then takes its place: a full disk or a
    killed process leaves the old file as it was.

    Raises:
        BookError: something that is not a file is in the way.
    """
    if path.is_file():
        try:
            if path.read_text("utf8") == text:
                return False
        except (OSError, UnicodeDecodeError):
            pass  # it is replaced
    elif path.exists():
        raise BookError(f"{path}: expected a file, found a folder")
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


def digest(text: str) -> str:
    """A short fingerprint of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
