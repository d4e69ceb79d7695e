"""Sphinx extensions of the book: list `bookbuild.sphinx` first, before the theme."""

from __future__ import annotations

import sys

# jsonschema, which MyST-NB imports, would compile a grammar for addresses: seconds, for nothing.
sys.modules.setdefault("rfc3987_syntax", None)

from sphinx.application import Sphinx  # noqa: E402

from bookbuild.sphinx import (  # noqa: E402
    again,
    api,
    callouts,
    cells,
    chapters,
    languages,
    maths,
    search,
    slim,
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register them all."""
    for extension in (languages, search, maths, cells, callouts, chapters, api, again, slim):
        extension.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
