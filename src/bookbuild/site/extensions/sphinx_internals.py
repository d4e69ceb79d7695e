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


def is_of_cell(index: int, node: nodes.Node) -> bool:
    """Return True if a part of a page was made from the notebook's Markdown cell `index`.

    MyST-NB numbers the lines of that cell from `(index + 1) * 10000`. Sections, which contain the
    next cells, and cells of code are no such parts.
    """
    if isinstance(node, nodes.section) or getattr(node, "attributes", {}).get("nb_element"):
        return False
    return node.line is None or node.line // 10_000 == index + 1


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
