"""Register the book's Sphinx extensions; list `bookbuild.site.extensions` before the theme."""

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
    gc.disable()  # saves time; the process exits after the build and frees its memory
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
        progress_map,  # after `script_words`: its script uses `bookWords`
        page_markdown,
        incremental,
        bundles,
    ):
        extension.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
