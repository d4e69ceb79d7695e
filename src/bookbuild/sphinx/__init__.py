"""Sphinx extensions of the book: list `bookbuild.sphinx` first, before the theme."""

from __future__ import annotations

from sphinx.application import Sphinx

from bookbuild.sphinx import api, callouts, cells, chapters, languages, maths, search, slim


def setup(app: Sphinx) -> dict[str, bool]:
    """Register them all."""
    # Jupyter Book sets it for an extension that is left out.
    app.add_config_value("comments_config", {}, "")
    for extension in (languages, search, maths, cells, callouts, chapters, api, slim):
        extension.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
