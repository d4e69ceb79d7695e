"""Find the modules of `helpers` that a chapter uses, directly and indirectly."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bookbuild.source.checkout import Book, read_text
from bookbuild.source.texts import Text


def helpers_used(book: Book, text: Text) -> str:
    """Return a fingerprint of the `helpers` modules and data files that a chapter uses."""
    folder = book.root / "src" / "helpers"
    todo = [m for cell in text.cells if cell.source for m in _imported(cell.source)]
    seen: set[Path] = set()
    while todo:
        for path in _files(folder, todo.pop()):
            if path not in seen:
                seen.add(path)
                if path.suffix == ".py":
                    todo += _imported(read_text(path, book.relative(path)))
    total = hashlib.sha256()
    for path in sorted(seen):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:12]


def _files(folder: Path, module: str) -> Iterator[Path]:
    """Yield the source and data files of `helpers.<module>` and of its parent packages.

    A data file with the name of a module, such as an explorer's script, belongs to that module.
    """
    path, last = folder, module.rpartition(".")[2]
    for name in module.split("."):
        if (path / name).is_dir():
            path /= name
            data = (p for p in path.iterdir() if p.is_file() and p.suffix not in (".pyc", ".py"))
            yield from (p for p in data if p.stem == last or not p.with_suffix(".py").is_file())
            if (path / "__init__.py").exists():
                yield path / "__init__.py"
        elif (path / f"{name}.py").is_file():
            yield path / f"{name}.py"
            return
        else:
            return


_IMPORT = re.compile(r"\b(?:from|import)\s+helpers\b([.\w]*)(?:\s+import\s+(\([^)]*\)|[^\n;]*))?")
_NAMED = re.compile(r"""["']helpers\.([\w.]+)["']""")


@cache
def _imported(source: str) -> tuple[str, ...]:
    """Return the modules of `helpers` that a piece of code imports or names in a string.

    Names that are not modules are harmless, because no file has their name.
    """
    modules = _NAMED.findall(source)
    for package, names in _IMPORT.findall(source):
        inside = package.removeprefix(".")
        modules += [inside] if inside else []
        words = re.sub(r"#[^\n]*|\bas\s+\w+", "", names)
        modules += [".".join(filter(None, (inside, name))) for name in re.findall(r"\w+", words)]
    return tuple(modules)
