"""Sphinx extensions of the book: list `bookbuild.sphinx` first, before the theme."""

from __future__ import annotations

from sphinx.application import Sphinx

from bookbuild.sphinx import again, api, callouts, cells, chapters, languages, maths, search, slim


def setup(app: Sphinx) -> dict[str, bool]:
    """Register them all."""
    for extension in (languages, search, maths, cells, callouts, chapters, api, again, slim):
        extension.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
