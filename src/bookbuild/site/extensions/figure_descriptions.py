"""Add descriptions of figures for screen readers."""

from __future__ import annotations

from html import escape

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_OPENING = '<figure class="book-figure"'


class Described(SphinxTransform):
    """Add the `%%% alt` text of a cell to its `helpers.figures` figure as `aria-label`."""

    default_priority = 215

    def apply(self) -> None:
        """Add the descriptions to the figures of this notebook."""
        for cell in self.document.findall(nodes.container):
            metadata = cell.get("cell_metadata", {})
            alt = metadata.get("mystnb", {}).get("image", {}).get("alt")
            for node in cell.findall(nodes.raw) if alt else ():
                if (html := node.astext()).startswith(_OPENING):
                    named = f'{_OPENING} role="img" aria-label="{escape(alt)}"'
                    node.children = [nodes.Text(html.replace(_OPENING, named, 1))]
                    node.rawsource = node.astext()


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_transform(Described)
