"""Generate the API reference of `helpers` from its docstrings."""

from __future__ import annotations

import ast
import pkgutil
import re
from importlib import import_module
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock
from sphinx.util.docutils import SphinxDirective


class HelpersApi(SphinxDirective):
    """Directive ```{helpers-api}```: document the public members of each module of `helpers`."""

    def run(self) -> list[nodes.Node]:
        """Return a section per module: chapters' modules in reading order, then shared modules.

        Packages without `__all__`, whose functions serve single cells, are only named.
        """
        helpers = import_module("helpers")
        for path in Path(helpers.__path__[0]).rglob("*.py"):
            self.env.note_dependency(str(path))
        modules = {m.name: m.ispkg for m in pkgutil.iter_modules(helpers.__path__)}
        sources = {
            name: Path(helpers.__path__[0], name, "__init__.py").read_text("utf8")
            for name, package in modules.items()
            if package
        }
        internal = {name for name, source in sources.items() if "__all__" not in source}
        chapters = [name for name in self.config.external_site_map if name in modules]
        shared = [name for name in modules if name not in internal and name not in chapters]
        packages = nodes.bullet_list()
        for name in sorted(internal):
            about = (ast.get_docstring(ast.parse(sources[name])) or "").partition("\n")[0]
            line = nodes.paragraph("", "", nodes.literal("", f"helpers.{name}"), nodes.Text(": "))
            line += nodes.inline("", about.replace("`", ""), lang="en")
            packages += nodes.list_item("", line)
        with mock(self.config.autodoc_mock_imports):  # importing a module resolves base classes
            sections = [self.section(f"helpers.{name}") for name in [*chapters, *shared]]
        return [packages, *sections] if packages.children else sections

    def section(self, module: str) -> nodes.section:
        """Return the section of a module, written by autodoc."""
        title = nodes.title("", "", nodes.literal("", module))
        section = nodes.section("", title, ids=[nodes.make_id(module)], generated=True)
        lines = ["```{eval-rst}", f".. automodule:: {module}", "   :members:", "```"]
        # Mark the docstrings as English for browsers and screen readers, on the Chinese page too.
        section += nodes.raw("", '<div lang="en">', format="html")
        self.state.nested_parse(StringList(lines, self.env.docname), 0, section)
        section += nodes.raw("", "</div>", format="html")
        return section


def plain(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Convert docstrings, which are plain text with `code`, to reStructuredText in place."""
    for number, line in enumerate(lines):
        parts = re.split(r"`+([^`]+)`+", line)
        text = [re.sub(r"(?<=\w)_(?!\w)|[*|\\]", r"\\\g<0>", part) for part in parts[::2]]
        code = [f"``{part}``" for part in parts[1::2]] + [""]
        lines[number] = "".join(t + c for t, c in zip(text, code, strict=True))


def fields(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Skip the fields of a named tuple, because the class docstring describes them."""
    return True if (obj.__doc__ or "").startswith("Alias for field number") else None


def short(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Shorten the types of mocked packages to their last name, as autodoc does for real ones."""
    full = re.compile(rf"(?<![~\w.])(?=(?:{'|'.join(app.config.autodoc_mock_imports)})\.)")
    parts = re.split(r"( = .*?(?=, \*{0,2}\w+: |\) *$|\)$))", signature or "")  # odd: defaults
    parts[::2] = [full.sub("~", part) for part in parts[::2]]
    return signature and "".join(parts), returns and full.sub("~", returns)


def setup(app: Sphinx) -> None:
    """Register the directive and its events."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", fields)
    app.connect("autodoc-process-signature", short)
    app.add_directive("helpers-api", HelpersApi)
