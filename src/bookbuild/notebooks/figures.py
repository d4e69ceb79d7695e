"""Find figures of `helpers.figures` in stored outputs and set the language of their labels."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

from nbformat import NotebookNode

_OPENING = re.compile(r'<figure class="book-figure" lang="\w+">')


def is_drawing(output: NotebookNode) -> bool:
    """Return True if an output is a figure of `helpers.figures`."""
    return bool(_OPENING.match("".join(output.get("data", {}).get("text/html", ""))))


def in_language(outputs: Iterable[NotebookNode], lang: str) -> list[NotebookNode]:
    """Return copies of outputs whose figures have labels in `lang` (`"en"` or `"zh"`)."""
    copies = copy.deepcopy(list(outputs))
    for output in filter(is_drawing, copies):
        html = "".join(output.data["text/html"])
        output.data["text/html"] = _OPENING.sub(f'<figure class="book-figure" lang="{lang}">', html)
    return copies
