"""Wrap undocumented APIs of other packages; tests report each one that stops working."""

from __future__ import annotations

from docutils import nodes
from pygments.formatter import Formatter
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def folded_cell() -> type[nodes.Element]:
    """Return MyST-NB's node class of a folded cell; nodes have `prompt_show` and `prompt_hide`."""
    from myst_nb.sphinx_ import HideCodeCellNode

    return HideCodeCellNode


def is_of_cell(index: int, node: nodes.Node) -> bool:
    """Return True if a node was made from the notebook's Markdown cell `index`.

    MyST-NB numbers the lines of that cell from `(index + 1) * 10000`. Sections (which contain the
    following cells) and code cells return False.
    """
    if isinstance(node, nodes.section) or getattr(node, "attributes", {}).get("nb_element"):
        return False
    return node.line is None or node.line // 10_000 == index + 1


def add_link_target(document: nodes.document, anchor: str, node: nodes.Element, text: str) -> None:
    """Make `node` a target of MyST links `page.md#anchor`, even from other pages."""
    if not hasattr(document, "myst_slugs"):
        document.myst_slugs = {}
    document.myst_slugs[anchor] = (node.line or 0, anchor, text)


def link_targets(env: BuildEnvironment, page: str) -> list[tuple[str, str]]:
    """Return the MyST link targets of a page as (anchor, text) pairs."""
    slugs = env.metadata[page].get("myst_slugs", {})
    return sorted((anchor, text) for anchor, (_, _, text) in slugs.items())


def use_formatter(app: Sphinx, formatter: type[Formatter]) -> None:
    """Use `formatter` for all highlighted code."""
    app.builder.highlighter.formatter = formatter
