"""Wrap sentences for a terminal, for `explain` and `review`."""

from __future__ import annotations

import textwrap


def wrapped(text: str, lang: str, width: int = 88, indent: str = "") -> list[str]:
    """Return the lines of a sentence; Chinese stays on one line, which the terminal wraps."""
    if lang == "zh":
        return [f"{indent}{text}"]
    indents = {"initial_indent": indent, "subsequent_indent": indent}
    return textwrap.wrap(text, width, break_on_hyphens=False, **indents)
