"""Write Markdown copies of the pages that are not notebooks, and the descriptions of all pages.

For the Markdown copies of notebooks, see `bookbuild.site.markdown_copies`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from bookbuild.site import metatags
from bookbuild.site.markdown_copies import from_html

DESCRIPTIONS = "descriptions.json"


def write(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Write the Markdown copy beside the page."""
    if doctree is not None and not app.env.doc2path(page).endswith(".ipynb"):
        Path(app.outdir, f"{page}.md").write_text(from_html(context["body"]), "utf8")


def describe(app: Sphinx, document: nodes.document) -> None:
    """Store the description of a page: its `summary`, else its first paragraph of prose."""
    metadata = app.env.metadata[app.env.docname]
    text = metadata.get("summary")
    if not text:
        outside = (nodes.document, nodes.section)
        paragraphs = (p for p in document.findall(nodes.paragraph) if isinstance(p.parent, outside))
        text = next((p.astext() for p in paragraphs), app.env.titles[app.env.docname].astext())
    metadata["description"] = metatags.short(text)


def write_descriptions(app: Sphinx, error: Exception | None) -> None:
    """Write the descriptions of all pages beside the doctrees, as input for `llms.txt`."""
    if error or app.builder.format != "html":
        return
    pages = {page: app.env.metadata[page]["description"] for page in sorted(app.env.found_docs)}
    Path(app.doctreedir, DESCRIPTIONS).write_text(json.dumps(pages), "utf8")


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("doctree-read", describe, priority=900)  # after Sphinx has collected the titles
    app.connect("build-finished", write_descriptions)
    app.connect("html-page-context", write)
