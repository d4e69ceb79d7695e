"""Explain the exceptions of notebook cells: `%load_ext helpers.explain`."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import traceback
from typing import Any

from helpers.explain.matching import messages
from helpers.explain.report import WORDS, explain, paragraph
from helpers.figures import language


def load_ipython_extension(shell: Any) -> None:
    """Load `%load_ext helpers.explain`: explain exceptions in cells, and define `%explain`."""
    shell.events.register("post_run_cell", _after_cell)
    shell.register_magic_function(_asked, "line_cell", "explain")


def unload_ipython_extension(shell: Any) -> None:
    """Unload the IPython extension."""
    shell.events.unregister("post_run_cell", _after_cell)
    for magics in shell.magics_manager.magics.values():
        magics.pop("explain", None)


def _asked(line: str, cell: str = "") -> None:
    """Run `%explain question`, or `%%explain` with a text below it."""
    print(explain(f"{line}\n{cell}", language()))


def _after_cell(result: Any) -> None:
    """Print the explanation of a cell's exception, if there is a sure match; never raise."""
    try:
        error = result.error_in_exec
        if error is None or isinstance(error, KeyboardInterrupt | SystemExit):
            return
        matches = messages().find(traceback_of(error))
        if matches and matches[0].sure:
            lang = language()
            parts = [paragraph(matches[0], lang), operands(error, lang)]
            print("\n\n".join(filter(None, parts)))
    except Exception:  # an error in this function must not affect the notebook
        return


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception from the first line of user code."""
    begin = error.__traceback__
    while begin and _installed(begin.tb_frame.f_code.co_filename):
        begin = begin.tb_next
    return "".join(traceback.format_exception(type(error), error, begin or error.__traceback__))


def operands(error: BaseException, lang: str = "en") -> str:
    """Return shape, dtype and device of each tensor in the line of user code that raised.

    For a module, return dtype and device of its parameters. Returns "" if the line contains
    neither. Tensor values are not read and no reference is kept.
    """
    frame = _own_frame(error)
    if frame is None:
        return ""
    where, number = frame
    line = linecache.getline(where.f_code.co_filename, number).strip()
    lines = []
    for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", line)):
        value = _value(name, where)
        if description := _described(value):
            lines.append(f"    {name}: {description}")
    return "\n".join([WORDS[lang]["operands"].format(line=line), *lines]) if lines else ""


def _folder(path: str) -> str:
    """Return a path in lower case with slashes, because Windows ignores both differences."""
    return path.replace("\\", "/").lower()


_LIBRARY = tuple(
    f"{_folder(sysconfig.get_path(name))}/" for name in ("stdlib", "platstdlib", "purelib")
)


def _installed(file: str, library: tuple[str, ...] = _LIBRARY) -> bool:
    """Return True if a file belongs to Python or to an installed package."""
    path = _folder(file)
    packages = "/site-packages/" in path or "/dist-packages/" in path
    return packages or path.startswith(("<frozen ", *library))


def _own_frame(error: BaseException) -> tuple[Any, int] | None:
    """Return the innermost frame of user code and its current line number."""
    frames = list(traceback.walk_tb(error.__traceback__))
    own = (at for at in reversed(frames) if not _installed(at[0].f_code.co_filename))
    return next(own, None)


def _value(name: str, frame: Any) -> Any:
    """Return the value of a dotted name, without running properties."""
    first, *rest = name.split(".")
    value = frame.f_locals.get(first, frame.f_globals.get(first))
    for part in rest:
        own = getattr(value, "__dict__", {})
        tables = (own, own.get("_modules", {}), own.get("_parameters", {}), own.get("_buffers", {}))
        value = next((table[part] for table in tables if part in table), None)
    return value


def _described(value: Any) -> str:
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{tuple(value.shape)} {dtype} {value.device}"
    if isinstance(value, torch.nn.Module):
        kinds = {f"{str(p.dtype).removeprefix('torch.')} {p.device}" for p in value.parameters()}
        return f"{type(value).__name__}, {', '.join(sorted(kinds))}" if kinds else ""
    return ""
