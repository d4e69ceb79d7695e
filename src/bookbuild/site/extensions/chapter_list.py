"""List all chapters by part, with their summaries, from the table of contents."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class chapters_list(nodes.General, nodes.Element):
    """Placeholder node for the list, replaced when all titles are known."""


class Chapters(SphinxDirective):
    """Directive ```{chapters}```: list each page's title and `summary` (from its metadata)."""

    def run(self) -> list[nodes.Node]:
        """Return the placeholder that `fill_in` replaces."""
        return [chapters_list()]


def fill_in(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Replace the placeholders by the list."""
    for place in list(doctree.findall(chapters_list)):
        trees = app.config.external_site_map.root.subtrees
        place.replace_self([part(app, page, tree.caption, tree.files()) for tree in trees])


def part(app: Sphinx, page: str, caption: str, files: list[str]) -> nodes.container:
    """Return a container with the name and the pages of a part."""
    items = nodes.bullet_list(classes=["chapters"])
    for name in (str(f) for f in files if str(f) in app.env.titles):
        link = nodes.reference(
            "",
            app.env.titles[name].astext(),
            refuri=app.builder.get_relative_uri(page, name),
            internal=True,
        )
        line = nodes.paragraph("", "", link)
        if summary := app.env.metadata[name].get("summary"):
            line += [nodes.Text(" "), nodes.inline("", summary, classes=["summary"])]
        items += nodes.list_item("", line)
    heading = nodes.paragraph("", caption, classes=["part-name"])
    return nodes.container("", heading, items, classes=["part"])


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_node(chapters_list)
    app.add_directive("chapters", Chapters)
    app.connect("doctree-resolved", fill_in)
