"""Functions around undocumented parts of other packages; a test names one that stops working."""

from __future__ import annotations

from docutils import nodes
from pygments.formatter import Formatter
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def folded_cell() -> type[nodes.Element]:
    """Return MyST-NB's class of a folded cell, with `prompt_show` and `prompt_hide`."""
    from myst_nb.sphinx_ import HideCodeCellNode

    return HideCodeCellNode


def add_link_target(document: nodes.document, anchor: str, node: nodes.Element, text: str) -> None:
    """Let links of MyST, also those of other pages, lead to `node` by `page.md#anchor`."""
    if not hasattr(document, "myst_slugs"):
        document.myst_slugs = {}
    document.myst_slugs[anchor] = (node.line or 0, anchor, text)


def link_targets(env: BuildEnvironment, page: str) -> list[tuple[str, str]]:
    """Return the anchors of a page that links of MyST may lead to, with their texts."""
    slugs = env.metadata[page].get("myst_slugs", {})
    return sorted((anchor, text) for anchor, (_, _, text) in slugs.items())


def use_formatter(app: Sphinx, formatter: type[Formatter]) -> None:
    """Let `formatter` write all highlighted code of the pages."""
    app.builder.highlighter.formatter = formatter
