"""Sphinx extensions of the book: list `bookbuild.sphinx` first, before the theme."""

from __future__ import annotations

import gc

from sphinx.application import Sphinx

from bookbuild.sphinx import (
    again,
    api,
    callouts,
    cells,
    chapters,
    drawings,
    languages,
    maths,
    messages,
    search,
    slim,
    twins,
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register them all."""
    gc.disable()  # it would take a sixth of the time, and the process ends with the build
    content = (languages, search, maths, cells, drawings, callouts, chapters, api, messages, twins)
    for extension in (*content, again, slim):
        extension.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
