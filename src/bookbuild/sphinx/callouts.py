"""Callouts that are plain Markdown: a quotation whose first words are bold and known.

So a notebook reads well in Colab and Jupyter too, where directives would stand as raw text.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

KINDS = {
    "You will learn": "learn",
    "你将学到": "learn",
    "You need": "need",
    "你需要": "need",
    "Then and now": "then-and-now",
    "今昔对照": "then-and-now",
    "On a GPU": "on-a-gpu",
    "在 GPU 上": "on-a-gpu",
}


class Callouts(SphinxTransform):
    """Give such quotations the classes `callout` and `callout-<kind>`."""

    default_priority = 220

    def apply(self) -> None:
        """Find them."""
        for quote in self.document.findall(nodes.block_quote):
            lead = quote.next_node(nodes.strong)
            first = quote.next_node(nodes.paragraph)
            if lead is None or first is None or lead is not first[0]:
                continue
            if kind := KINDS.get(lead.astext().rstrip(".。:： ")):
                quote["classes"] += ["callout", f"callout-{kind}"]


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_transform(Callouts)
