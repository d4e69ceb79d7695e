"""Review each notebook cell before it runs, after `%load_ext helpers.review`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helpers.figures import language
from helpers.review.reading import Source, syntax_problem, without_magics
from helpers.review.report import shown
from helpers.review.review import Finding, review

MOST = 5000  # maximum number of lines of earlier cells parsed with each cell


def after(earlier: Iterable[str], text: str) -> tuple[Source, list[Finding]]:
    """Return the joined source of the earlier cells and this cell, and the findings in this cell.

    Raises:
        SyntaxError: a text is not valid Python; see `without_magics`.
        RecursionError: an expression is nested too deeply.
    """
    before = "".join(f"{cell}\n" for cell in earlier)
    first = before.count("\n") + 1
    source = Source("", before + text, [(first, 0)])
    return source, review(source.text, first=first)


class _Reviewer:
    """IPython event handler; stores executed cells to resolve names in later ones."""

    def __init__(self) -> None:
        self.before: list[str] = []

    def __call__(self, info: Any) -> None:
        """Review a cell before it runs; errors of the review do not affect the notebook."""
        try:
            text = without_magics(info.raw_cell)
            if not syntax_problem(text):
                self._review(text)
        except Exception:
            return

    def _review(self, text: str) -> None:
        earlier = [cell for cell in self.before if cell != text]
        while sum(cell.count("\n") + 1 for cell in earlier) > MOST:
            del earlier[0]
        source, findings = after(earlier, text)
        for finding in findings:
            print(shown(source, finding, language()))
        self.before = [*earlier, text]


_reviewer = _Reviewer()


def load_ipython_extension(shell: Any) -> None:
    """Load `%load_ext helpers.review`: print findings above the output of each cell."""
    shell.events.register("pre_run_cell", _reviewer)


def unload_ipython_extension(shell: Any) -> None:
    """Unload the IPython extension."""
    shell.events.unregister("pre_run_cell", _reviewer)
