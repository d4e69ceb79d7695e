"""What we use of other packages that they do not promise: one function each, held by a test."""

from __future__ import annotations

from docutils import nodes
from sphinx.environment import BuildEnvironment


def folded_cell() -> type[nodes.Element]:
    """MyST-NB's node of a folded cell, with `prompt_show` and `prompt_hide`."""
    from myst_nb.sphinx_ import HideCodeCellNode

    return HideCodeCellNode


def add_link_target(document: nodes.document, anchor: str, node: nodes.Element, text: str) -> None:
    """Let links of MyST, also those of other pages, lead to `node` by `page.md#anchor`."""
    if not hasattr(document, "myst_slugs"):
        document.myst_slugs = {}
    document.myst_slugs[anchor] = (node.line or 0, anchor, text)


def link_targets(env: BuildEnvironment, page: str) -> list[tuple[str, str]]:
    """The anchors that links of MyST may lead to on a page that was read, and their texts."""
    slugs = env.metadata[page].get("myst_slugs", {})
    return sorted((anchor, text) for anchor, (_, _, text) in slugs.items())


def forget_kinds_of_objects(env: BuildEnvironment) -> None:
    """Let the search index number the kinds of objects anew: in the order that it meets them."""
    env._search_index_objtypes.clear()
    env._search_index_objnames.clear()
