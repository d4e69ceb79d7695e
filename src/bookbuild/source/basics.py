"""Define the language codes and `BookError`; read and write text files."""

from __future__ import annotations

import difflib
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

LANGUAGES = ("en", "zh")


class BookError(Exception):
    """Raised for an error in the user's files or arguments; printed without a traceback."""


def read_text(path: Path, where: str) -> str:
    """Return the text of a UTF-8 file; error messages call it `where`.

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


def nearest(name: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return "did you mean …?" with the closest of `known`, or `otherwise` if none is close."""
    near = difflib.get_close_matches(name, known, 1, cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


def fingerprint(files: Iterable[Path]) -> str:
    """Return a fingerprint of the names and contents of files, ignoring compiled ones."""
    total = hashlib.sha256()
    for path in sorted(files):
        if path.is_file() and path.suffix not in (".pyc", ".mo"):
            total.update(f"{path}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return total.hexdigest()


def write_text(path: Path, text: str) -> bool:
    """Write a file atomically; return True if its contents changed.

    The text is written to a temporary file, which then replaces `path`: a full disk or a killed
    process leaves the old file unchanged.

    Raises:
        BookError: the disk is full, or `path` is a folder or not writable.
    """
    if path.is_file():
        try:
            if path.read_text("utf8") == text:
                return False
        except (OSError, UnicodeDecodeError):
            pass  # it is replaced
    elif path.exists():
        raise BookError(f"{path}: expected a file, found a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        raise BookError(f"{path}: cannot be written: {error.strerror or error}") from None
    return True


def _replace(path: Path, text: str) -> None:
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


def digest(text: str) -> str:
    """Return a short fingerprint of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
