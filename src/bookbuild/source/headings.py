"""The headings of a page, and the anchors that the site gives them."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from docutils.nodes import make_id
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.front_matter import front_matter_plugin


class Heading(NamedTuple):
    """A heading as Markdown and without markup."""

    markdown: str
    plain: str


_ATX = re.compile(r"^#{1,6}(?:[ \t]+(.*))?$", re.M)
# What may hide a heading or look like one: fences, HTML, underlines, indentation, definitions.
_HARD = re.compile(
    r"```|~~~|:::|<|[\r\0\v\f\x1c-\x1e\x85\u2028\u2029]"
    r"|^ {0,3}(?:-+|=+)[ \t]*$|^[ \t]+#|^ {0,3}\[[^]]*\]:",
    re.M,
)


@cache
def headings(text: str) -> tuple[Heading, ...]:
    """The headings of a Markdown text in order; those in directives and quotations are none."""
    if not re.search(r"^ {0,3}(?:#|-+\s*$|=+\s*$)", text, re.M):
        return ()
    if _HARD.search(text):
        tokens = _blocks().parse(text)
        titles = [
            inline.content
            for opening, inline in zip(tokens, tokens[1:], strict=False)
            if opening.type == "heading_open" and opening.level == 0
        ]
    else:  # what nearly all cells are, in a fraction of the time
        titles = [
            re.sub(r"(?:^|[ \t])#+$", "", (line[1] or "").strip()).strip()
            for line in _ATX.finditer(text)
        ]
    return tuple(Heading(re.sub(r"\[(.*?)\]\([^)]*\)", r"\1", t), _plain(t)) for t in titles)


def _plain(title: str) -> str:
    (inline,) = _inlines().parseInline(title)
    return "".join(t.content for t in inline.children if t.type in ("text", "code_inline"))


def anchors(titles: list[str]) -> list[str]:
    """The anchors of the sections of a page with these English titles, without markup."""
    made: list[str] = []
    for title in titles:
        base = anchor = make_id(title) or "section"
        number = 1
        while anchor in made:
            number += 1
            anchor = f"{base}-{number}"
        made.append(anchor)
    return made


@cache
def _blocks() -> MarkdownIt:
    markdown = MarkdownIt().use(front_matter_plugin).use(colon_fence_plugin)
    return markdown.disable("inline")  # most of the time, and only titles need it


@cache
def _inlines() -> MarkdownIt:
    return MarkdownIt()
