"""The forms in which terminals, mail, forums, blogs and launchers show an error message."""

from __future__ import annotations

import re
from collections.abc import Callable

Form = Callable[[str], str]


def by_line(change: Callable[[int, str], str]) -> Form:
    """Return a form that changes each line, given its number."""
    return lambda text: "\n".join(change(n, line) for n, line in enumerate(text.split("\n"), 1))


def cut(width: int, prefix: str = "", end: str = "") -> Form:
    """Return a form whose lines are cut after `width` characters."""

    def change(text: str) -> str:
        rows = [
            line[n : n + width]
            for line in text.split("\n")
            for n in range(0, len(line) or 1, width)
        ]
        return "\n".join(f"{prefix}{row:<{width}}{end}" if end else prefix + row for row in rows)

    return change


def filled(width: int) -> Form:
    """Return a form whose lines are broken at the last space before `width`."""
    return lambda text: re.sub(rf"([^\n]{{1,{width}}})(?: +|$)\n?", r"\1\n", text, flags=re.M)


def boxed(width: int) -> Form:
    """Return a form with a frame around it, as rich prints a traceback."""
    inner, line = cut(width - 4, "│ ", " │"), "─" * (width - 2)
    return lambda text: f"╭{line}╮\n{inner(text)}\n╰{line}╯"


def replaced(pairs: dict[str, str]) -> Form:
    """Return a form with other characters."""
    return lambda text: text.translate(str.maketrans(pairs))


def curly(text: str) -> str:
    """Return a text with typographic quotation marks."""
    text = re.sub(r'"([^"\n]*)"', r"“\1”", text)
    return re.sub(r"'([^'\n]*)'", r"‘\1’", text)


ENTITIES = replaced({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
RUN = 'Traceback (most recent call last):\n  File "run.py", line 9, in main\n    run()\n'
LAUNCHER = (
    "E1129 11:02:14.500000 80 torch/distributed/elastic/multiprocessing/api.py:869] failed "
    f"(exitcode: 1) local_rank: 1 (pid: 82) of binary: /usr/bin/python3\n{RUN}"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "====================\ntrain.py FAILED\n--------------------\nFailures:\n"
)


def ranks(text: str) -> str:
    """Return the output of two processes, line by line."""
    return by_line(lambda n, line: f"[rank0]: {line}\n[rank1]: {line}")(text)


FORMS: dict[str, Form] = {
    **{f"cut at {width}": cut(width) for width in (72, 80, 97, 100, 120)},
    "cut, spaces removed": lambda text: re.sub(" +$", "", cut(80)(text), flags=re.M),
    "cut and quoted": cut(72, "> "),
    "cut with a bar": cut(80, "│ "),
    "cut and indented": lambda text: cut(76, "    ")(text).lstrip(),
    "filled to 72": filled(72),
    "filled to 100": filled(100),
    "boxed": boxed(80),
    "wide box": boxed(120),
    "quoted": by_line(lambda n, line: f"> {line}"),
    "comment": by_line(lambda n, line: f"# {line}"),
    "line numbers": by_line(lambda n, line: f"{n:>4} {line}"),
    "line numbers and bars": by_line(lambda n, line: f"{n:>4} | {line}"),
    "arrow of Jupyter": by_line(lambda n, line: f"{'---->' if n == 2 else '     '} {n} {line}"),
    "times": by_line(lambda n, line: f"2026-05-01T12:00:{n % 60:02}.123Z {line}"),
    "entities": ENTITIES,
    "entities twice": lambda text: ENTITIES(ENTITIES(text)),
    "entity for a space": lambda text: ENTITIES(text).replace(" ", "&nbsp;"),
    "curly quotes": curly,
    "full width": replaced(dict(zip("():,;?!", "（）：，；？！", strict=True))),
    "no-break spaces": replaced({" ": "\u00a0"}),
    "zero width": lambda text: re.sub(r"(?<=[./_])", "\u200b", text),
    "soft hyphens": "\u00ad".join,
    "Markdown": lambda text: re.sub(r"([_*\[\]<>#`])", r"\\\1", text),
    "all of Markdown": lambda text: re.sub(r"([_*\[\]<>#`(){}.!+|~-])", r"\\\1", text),
    "colours": lambda text: re.sub(r"(\w+)", "\x1b[1;31m\\1\x1b[0m", text),
    "colours without escape": lambda text: re.sub(r"(\w+Error|File)", r"[0;31m\1[0m", text),
    "colours spelled out": lambda text: re.sub(r"(\w+Error|File)", r"\\x1b[0;31m\1\\x1b[0m", text),
    "links": lambda text: re.sub(
        r"(/[\w/.]+)", "\x1b]8;;file://\\1\x1b\\\\\\1\x1b]8;;\x1b\\\\", text
    ),
    "rank": by_line(lambda n, line: f"[rank0]: {line}"),
    "two ranks": ranks,
}
CHAINS: dict[str, Form] = {
    "launcher": lambda text: f"{ranks(text)}\n{LAUNCHER}",
    "cause": lambda text: (
        f"{text}\n\nThe above exception was the direct cause of the following exception:\n\n"
        f"{RUN}brewery.YeastError: no hops in the wort"
    ),
    "handled": lambda text: (
        f"{text}\n\nDuring handling of the above exception, another exception occurred:\n\n"
        f"{RUN}RuntimeError: Training failed"
    ),
}
