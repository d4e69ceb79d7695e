"""Highlight code with fewer elements, reserve its height, and hide assertions of questions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TextIO

from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import Name, Punctuation, Text, Whitespace
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from bookbuild.site.extensions.sphinx_internals import use_formatter

# Token types without a colour of their own: about 40 % of a long chapter's elements.
PLAIN = {Name, Name.Namespace, Punctuation, Whitespace}


class LightFormatter(HtmlFormatter):
    """HTML formatter that writes tokens of the types in `PLAIN` as text without an element."""

    def format(self, tokensource: Iterable, outfile: TextIO) -> None:
        """Write the tokens of a block of code."""
        tokens = ((Text if kind in PLAIN else kind, text) for kind, text in tokensource)
        super().format(tokens, outfile)


class PythonBlocks(SphinxTransform):
    """Add to each Python block its number of lines, and mark assertions in cells with a question.

    From the number of lines the style sheet reserves the height of blocks not laid out yet. It
    hides the marked lines (class `hll`) until the question is answered.
    """

    default_priority = 220  # after `CellAnchors`, which finds the cells with a question

    def apply(self) -> None:
        """Set the Pygments options of the blocks on this page."""
        for block in self.document.findall(nodes.literal_block):
            if block.get("language") == "python":
                lines = block.astext().strip("\n").count("\n") + 1
                block["highlight_args"] = {
                    **block.get("highlight_args", {}),
                    "cssstyles": f"--lines:{lines}",
                }
        for cell in self.document.findall(nodes.container):
            if "predicted" in cell["classes"]:
                for block in cell.findall(nodes.literal_block):
                    if block.get("language") == "python":
                        block["highlight_args"]["hl_lines"] = assertions(block.astext())


class Signed(SphinxTransform):
    """Mark short code such as `-inf` and `--skip`, so that no line breaks after its hyphen."""

    default_priority = 220

    def apply(self) -> None:
        """Add the class `signed`."""
        for code in self.document.findall(nodes.literal):
            if re.fullmatch(r"-\S{1,20}", code.astext()):
                code["classes"].append("signed")


def assertions(source: str) -> list[int]:
    """Return the line numbers of a cell's assertions.

    A cell with a magic is not valid Python and returns an empty list.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return sorted(
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        for number in range(node.lineno, node.end_lineno + 1)
    )


def setup(app: Sphinx) -> None:
    """Register the transforms and the formatter."""
    app.add_transform(PythonBlocks)
    app.add_transform(Signed)
    app.connect("builder-inited", lambda app: use_formatter(app, LightFormatter))
