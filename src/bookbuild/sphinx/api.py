"""The reference of `helpers`: every module that has a docstring, found by itself."""

from __future__ import annotations

import pkgutil
import re

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class HelpersApi(SphinxDirective):
    """```{helpers-api}``` documents the public members of each module of `helpers`."""

    def run(self) -> list[nodes.Node]:
        """A section for each module, in the order of the alphabet."""
        import helpers

        return [self.section(m.name) for m in pkgutil.iter_modules(helpers.__path__, "helpers.")]

    def section(self, module: str) -> nodes.section:
        """One module by autodoc."""
        title = nodes.title("", "", nodes.literal("", module))
        section = nodes.section("", title, ids=[nodes.make_id(module)], generated=True)
        lines = ["```{eval-rst}", f".. automodule:: {module}", "   :members:", "```"]
        # The docstrings are English on the Chinese page too: say so to browsers.
        section += nodes.raw("", '<div lang="en">', format="html")
        self.state.nested_parse(StringList(lines, self.env.docname), 0, section)
        section += nodes.raw("", "</div>", format="html")
        return section


def plain(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Read docstrings as they are written: text with `code`, not reStructuredText."""
    for number, line in enumerate(lines):
        parts = re.split(r"`+([^`]+)`+", line)
        text = [re.sub(r"(?<=\w)_(?!\w)|[*|\\]", r"\\\g<0>", part) for part in parts[::2]]
        code = [f"``{part}``" for part in parts[1::2]] + [""]
        lines[number] = "".join(t + c for t, c in zip(text, code, strict=True))


def setup(app: Sphinx) -> None:
    """Register the directive and what it needs."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon
    app.add_directive("helpers-api", HelpersApi)
