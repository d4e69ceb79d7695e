"""The Markdown twin of each page that is no notebook, made of the page itself.

The twins of notebooks are made of the notebooks: see `bookbuild.site.markdown_twins`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from bookbuild.site.markdown_twins import markdown


def write(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Write it beside the page."""
    if doctree is not None and not app.env.doc2path(page).endswith(".ipynb"):
        Path(app.outdir, f"{page}.md").write_text(markdown(context["body"]), "utf8")


def setup(app: Sphinx) -> None:
    """Register the event."""
    app.connect("html-page-context", write)
