"""Find the headings of a Markdown text and compute their anchors on the site."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from docutils.nodes import make_id
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.front_matter import front_matter_plugin


class Heading(NamedTuple):
    """A heading as Markdown source and as plain text."""

    markdown: str
    plain: str


# Possible heading or underline; without a match, skip the slow Markdown parser.
_CANDIDATE = re.compile(r"^ {0,3}(#|=+\s*$|-+\s*$)", re.M)
_LINK = re.compile(r"\[([^\]]*)\]\((?:[\w-]+\.(?:ipynb|md|html)\b|https?:|#)[^)]*\)")


@cache
def headings(text: str) -> tuple[Heading, ...]:
    """Return the headings of a Markdown text in order, except those in directives and quotes."""
    if not _CANDIDATE.search(text):
        return ()
    tokens = _blocks().parse(text)
    titles = [
        inline.content
        for opening, inline in zip(tokens, tokens[1:], strict=False)
        if opening.type == "heading_open" and opening.level == 0
    ]
    return tuple(Heading(without_links(t), _plain(t)) for t in titles)


def without_links(markdown: str) -> str:
    """Return Markdown with links replaced by their text; code such as `f[0](x)` is kept."""
    return _LINK.sub(r"\1", markdown)


def _plain(title: str) -> str:
    (inline,) = _inlines().parseInline(title)
    return "".join(t.content for t in inline.children if t.type in ("text", "code_inline"))


def anchors(titles: list[str]) -> list[str]:
    """Return the unique anchors of a page's sections from their plain English titles."""
    names: list[str] = []
    for title in titles:
        base = anchor = make_id(title) or "section"
        number = 1
        while anchor in names:
            number += 1
            anchor = f"{base}-{number}"
        names.append(anchor)
    return names


@cache
def _blocks() -> MarkdownIt:
    markdown = MarkdownIt().use(front_matter_plugin).use(colon_fence_plugin)
    return markdown.disable("inline")  # inline parsing is slow, and only titles need it


@cache
def _inlines() -> MarkdownIt:
    return MarkdownIt()
