"""Run the command line `python -m helpers.explain`."""

from __future__ import annotations

import argparse
import codecs
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from helpers.explain.matching import messages
from helpers.explain.report import WORDS, answers, explain
from helpers.figures import language


def main(arguments: list[str] | None = None) -> int:
    """Run `python -m helpers.explain`.

    Returns:
        0 if a message matches, 1 if none matches, 2 if the input or output fails, and
        130 after Ctrl+C (exit codes).
    """
    parser = argparse.ArgumentParser(
        prog="python -m helpers.explain",
        description="Explain an error message of PyTorch, offline.",
    )
    parser.add_argument(
        "file", nargs="?", help="a file with a traceback, or a question; default: standard input"
    )
    parser.add_argument("--clipboard", action="store_true", help="read the clipboard")
    parser.add_argument("--lang", choices=sorted(WORDS), help="default: from the locale")
    chosen = parser.parse_args(arguments)
    try:
        pasted = _pasted(chosen.file, chosen.clipboard)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except OSError as error:
        source = "the clipboard" if chosen.clipboard else chosen.file or "the input"
        return _failed(f"cannot read {source}: {error.strerror or error}")
    if not pasted.strip():
        return _failed("expected a message or a traceback, got nothing")
    try:
        _print(explain(pasted, chosen.lang or language()))
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard buffered output at exit
        return _failed(f"cannot write the explanation: {error.strerror or error}")
    return 0 if any(answer.sure for answer in messages().find(pasted)) else 1


def _failed(message: str, code: int = 2) -> int:
    print(f"helpers.explain: {message}", file=sys.stderr)
    return code


def _print(text: str) -> None:
    """Print a text, replacing characters that the terminal cannot encode.

    Raises:
        OSError: stdout is closed, or the disk is full.
    """
    if sys.stdout is None:
        raise OSError("the output is closed")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    print(text, flush=True)


_CLIPBOARDS = (
    ["pbpaste"],
    ["wl-paste", "--no-newline"],
    ["xclip", "-selection", "clipboard", "-o"],
    ["xsel", "--clipboard", "--output"],
    ["powershell", "-NoProfile", "-Command", "Get-Clipboard"],
)


# Several lines or words, or Chinese text, that do not look like a path or a file name.
_QUESTION = re.compile(
    r"(?=.*[\s\u3400-\u9fff])(?![/\\~.]|[A-Za-z]:\\)"
    r"(?!.*\.(?:txt|log|out|err|md)$).+|.*\n.*",
    re.S,
)
# A name such as nn.LSTM; also a file name without an ending, unless the book contains it.
_NAME = re.compile(
    r"(?!.*\.(?:txt|log|out|err|md|py|ipynb|json|ya?ml|csv|gz|zip|pt|pth)$)[A-Za-z_][\w.()-]*"
)


def _question(name: str) -> bool:
    """Return True if an argument is a text to explain and not a file name."""
    missing = not os.path.lexists(name) and not os.path.isdir(os.path.dirname(name))
    return (
        not name
        or missing
        and bool(_QUESTION.fullmatch(name) or _NAME.fullmatch(name) and answers(name))
    )


def _pasted(name: str | None, clipboard: bool) -> str:
    """Return the text to explain.

    Raises:
        OSError: the file cannot be read, stdin is closed, or no clipboard program is installed.
    """
    if clipboard:
        command = next((c for c in _CLIPBOARDS if shutil.which(c[0])), None)
        if command is None:
            names = ", ".join(c[0] for c in _CLIPBOARDS)
            raise OSError(f"none of these programs is installed: {names}")
        return decoded(subprocess.run(command, capture_output=True).stdout)
    if name not in (None, "-"):
        return decoded(os.fsencode(name) if _question(name) else Path(name).read_bytes())
    if sys.stdin is None:
        raise OSError("it is closed")
    if sys.stdin.isatty():
        print("Paste the message, then press Ctrl+D:", file=sys.stderr)
    return decoded(sys.stdin.buffer.read())


_MARKS = (  # UTF-32 first: its byte order mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)


_ZEROS = {  # positions of zero bytes in each group of four, for mostly English text
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}


def decoded(data: bytes) -> str:
    """Decode a log in UTF-8, UTF-16 or UTF-32, with or without a byte order mark.

    `>` in Windows PowerShell 5 writes UTF-16. Invalid bytes are replaced.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    zeros = tuple(data[n::4].count(0) > len(data) / 8 for n in range(4))
    return data.decode(_ZEROS.get(zeros, "utf-8"), "replace")


if __name__ == "__main__":
    sys.exit(main())
