"""Recognize callouts, answers and keywords written as plain Markdown.

Colab and Jupyter show directives as raw text, so notebooks use none.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

KINDS = {
    "You will learn": "learn",
    "You will learn to": "learn",
    "你将学到": "learn",
    "你将学会": "learn",
    "You need": "need",
    "你需要": "need",
    "Then and now": "then-and-now",
    "今昔对照": "then-and-now",
    "On a GPU": "on-a-gpu",
    "在 GPU 上": "on-a-gpu",
    "译文待更新": "waiting",
    "尚未翻译": "waiting",
}


class Callouts(SphinxTransform):
    """Add the classes `callout` and `callout-<kind>` to quotations that begin with a known word."""

    default_priority = 220

    def apply(self) -> None:
        """Add the classes; move the cards *You will learn* and *You need* into one container."""
        cards = nodes.container(classes=["chapter-cards"])
        for quote in list(self.document.findall(nodes.block_quote)):
            kind = kind_of(quote)
            if kind is None:
                continue
            quote["classes"] += ["callout", f"callout-{kind}"]
            if kind in ("learn", "need"):
                if not cards.children:
                    quote.parent.insert(quote.parent.index(quote), cards)
                quote.parent.remove(quote)
                cards += quote


class Answers(SphinxTransform):
    """Add a class to the answer of a section: a bold paragraph directly below its heading."""

    default_priority = 220

    def apply(self) -> None:
        """Add the class `answer`."""
        for section in self.document.findall(nodes.section):
            first = section[1] if len(section) > 1 else None
            if isinstance(first, nodes.paragraph) and [type(n) for n in first] == [nodes.strong]:
                first["classes"].append("answer")


class Keywords(SphinxTransform):
    """Mark the keywords of a chapter: a paragraph in italics directly under its title."""

    default_priority = 220

    def apply(self) -> None:
        """Add the class `keywords`."""
        title = next(iter(self.document.findall(nodes.section)), None)
        first = title[1] if title and len(title) > 1 else None
        if isinstance(first, nodes.paragraph) and [type(n) for n in first] == [nodes.emphasis]:
            first["classes"].append("keywords")


def kind_of(quote: nodes.block_quote) -> str | None:
    """Return the kind of callout that begins with the first words of a quotation, if any."""
    first = next((child for child in quote[0].children if child.astext()), None)
    return KINDS.get(first.astext().rstrip(".。:： ")) if isinstance(first, nodes.strong) else None


def setup(app: Sphinx) -> None:
    """Register the transforms."""
    app.add_transform(Callouts)
    app.add_transform(Answers)
    app.add_transform(Keywords)
