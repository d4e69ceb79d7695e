"""`%load_ext helpers.review`: each cell of a notebook is reviewed as it runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helpers.figures import language
from helpers.review.reading import Source, syntax_problem, without_magics
from helpers.review.report import shown
from helpers.review.review import Finding, review

MOST = 5000  # lines of earlier cells that are read again with each cell


def after(earlier: Iterable[str], text: str) -> tuple[Source, list[Finding]]:
    """Return the source of a cell with those that ran before it, and what is found in the cell.

    Raises:
        SyntaxError: a text is no Python; see `without_magics`.
        RecursionError: an expression is nested too deeply.
    """
    before = "".join(f"{one}\n" for one in earlier)
    first = before.count("\n") + 1
    source = Source("", before + text, [(first, 0)])
    return source, review(source.text, first=first)


class _Reviewer:
    """The cells that ran, for what the names in the next one are."""

    def __init__(self) -> None:
        self.before: list[str] = []

    def __call__(self, info: Any) -> None:
        """Review a cell before it runs; whatever fails here must not disturb the notebook."""
        try:
            text = without_magics(info.raw_cell)
            if not syntax_problem(text):
                self._review(text)
        except Exception:
            return

    def _review(self, text: str) -> None:
        earlier = [one for one in self.before if one != text]
        while sum(one.count("\n") + 1 for one in earlier) > MOST:
            del earlier[0]
        source, findings = after(earlier, text)
        for finding in findings:
            print(shown(source, finding, language()))
        self.before = [*earlier, text]


_reviewer = _Reviewer()


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext helpers.review`: above a cell's output, what the review finds in the cell."""
    shell.events.register("pre_run_cell", _reviewer)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext helpers.review`."""
    shell.events.unregister("pre_run_cell", _reviewer)
