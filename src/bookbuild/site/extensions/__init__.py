"""Sphinx extensions of the book: list `bookbuild.site.extensions` first, before the theme."""

from __future__ import annotations

import gc

from sphinx.application import Sphinx

from bookbuild.site.extensions import (
    bundles,
    callouts,
    cell_markup,
    chapter_list,
    code_blocks,
    figure_descriptions,
    incremental,
    languages,
    maths,
    page_markdown,
    progress_map,
    reference,
    script_words,
    search_records,
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all extensions."""
    gc.disable()  # the process ends with the build, which returns its memory
    for extension in (
        languages,
        search_records,
        maths,
        cell_markup,
        figure_descriptions,
        code_blocks,
        callouts,
        chapter_list,
        reference,
        script_words,
        progress_map,  # its script needs the words
        page_markdown,
        incremental,
        bundles,
    ):
        extension.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
