"""Make the recordings that the chapters show, on a machine with a GPU."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from bookbuild.source.checkout import Book, BookError
from helpers import recorded


def recordings(book: Book, names: Iterable[str] = ()) -> dict[str, Callable[[], Any]]:
    """The measurements of the chapters: name of each recording -> the function that measures it."""
    found: dict[str, Callable[[], Any]] = {}
    for chapter in book.choose(list(names)):
        if chapter in recorded.RECORDINGS:
            module = importlib.import_module(f"helpers.measure.{chapter}")
            found |= {
                name: getattr(module, f"record_{name}") for name in recorded.RECORDINGS[chapter]
            }
    return found


def record(book: Book, names: Iterable[str] = (), echo=print) -> None:
    """Measure and write each recording; one that fails leaves its file and the others alone.

    Raises:
        BookError: there is no CUDA device, or a measurement failed.
    """
    import torch

    names = book.choose(list(names))
    if not torch.cuda.is_available():
        raise BookError("this machine has no CUDA device, so nothing can be recorded")
    todo, failed = recordings(book, names), []
    for n, (name, measure) in enumerate(todo.items(), 1):
        begun = time.perf_counter()
        try:
            path = recorded.record(name, measure)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
            echo(f"[{n}/{len(todo)}] {failed[-1]}")
        else:
            echo(f"[{n}/{len(todo)}] {path.name}: {time.perf_counter() - begun:.1f} s")
    if failed:
        raise BookError(f"{len(failed)} of {len(todo)} recordings failed")
