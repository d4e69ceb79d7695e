"""Notebook cells on the page: their anchors, the prompts that unfold them, and one cell quoted."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.lexer import RegexLexer
from pygments.token import Generic, Name, Text
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from bookbuild.notebooks.cells import output
from bookbuild.site.extensions.sphinx_internals import add_link_target, folded_cell


class CellAnchors(SphinxTransform):
    """Make `page.html#cell-id` lead to a cell, mark what a question is asked about, and give
    solutions a prompt of their own.
    """

    default_priority = 210

    def apply(self) -> None:
        """Name the cells of this notebook."""
        path = Path(self.env.doc2path(self.env.docname))
        if path.suffix != ".ipynb":
            return
        cells = json.loads(path.read_text("utf8"))["cells"]
        for node in self.document.findall(nodes.container):
            if node.get("nb_element") != "cell_code":
                continue
            name = cells[node["cell_index"]].get("id")
            if cells[node["cell_index"]]["metadata"].get("predict"):
                node["classes"].append("predicted")
            if name and name not in self.document.ids:
                node["ids"].append(name)
                self.document.ids[name] = node
                add_link_target(self.document, name, node, name)
            if "tag_solution" in node["classes"] and node.get("hide_mode"):
                node["prompt_show"], node["prompt_hide"] = self.config.solution_prompts


def unfold(translator: HTML5Translator, node: nodes.Element) -> None:
    """Start a folded cell; MyST-NB's own hides the prompt from screen readers, in English."""
    classes = " ".join(node["classes"])
    translator.body.append(
        f'<details class="hide {classes}"><summary>'
        f'<span class="collapsed">{escape(node["prompt_show"])}</span>'
        f'<span class="expanded">{escape(node["prompt_hide"])}</span></summary>'
    )


def fold(translator: HTML5Translator, node: nodes.Element) -> None:
    """End a folded cell."""
    translator.body.append("</details>\n")


def mark_assertions(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the assertions below a question elements of their own: they say what comes out."""
    below = r'(class="cell [^"]*\bpredicted\b.*?<pre>(?:<span></span>)?)(.*?)(?=</pre>)'
    if "body" in context:
        context["body"] = re.sub(below, _assertions, context["body"], flags=re.S)


def _assertions(code: re.Match[str]) -> str:
    """Highlighted code with an element around each line of an assertion."""
    lines, inside = code[2].split("\n"), False
    for number, line in enumerate(lines):
        plain = re.sub(r"<[^>]*>", "", line)
        goes_on = inside and re.match(r"\s+\S|[])}]", plain)
        inside = bool(goes_on or re.match(r"\s*assert\b", plain))
        if inside:
            lines[number] = f'<span class="assertion">{line}</span>'
    return code[1] + "\n".join(lines)


class Traceback(RegexLexer):
    """A notebook's traceback; Pygments' own stumbles over what messages quote."""

    name = "notebook traceback"
    flags = re.MULTILINE
    tokens = {
        "root": [
            (r"^[\w.]+(?=(: |$| +Traceback ))", Name.Exception),
            (r"^-+> ?\d+.*$", Generic.Traceback),
            (r".+|\n", Text),
        ]
    }


class Cell(SphinxDirective):
    """```{cell} chapter#cell-id``` shows that cell's code and stored text output."""

    required_arguments = 1
    option_spec = {"class": directives.class_option}

    def run(self) -> list[nodes.Node]:
        """The cell as a code block and its output."""
        chapter, _, name = self.arguments[0].partition("#")
        path = Path(self.env.srcdir) / f"{chapter}.ipynb"
        if not path.exists():
            raise self.error(f"there is no notebook {path.name}")
        self.env.note_dependency(str(path))
        cells = json.loads(path.read_text("utf8"))["cells"]
        cell = next((c for c in cells if c.get("id") == name), None)
        if cell is None:
            raise self.error(f"{path.name} has no cell {name!r}")
        code = nodes.literal_block(text := "".join(cell["source"]), text, language="python")
        quote = nodes.container("", code, classes=["quoted-cell", *self.options.get("class", [])])
        if text := output(cell):
            result = nodes.literal_block(text, text, language="none", classes=["output"])
            quote += result
        return [quote]


def setup(app: Sphinx) -> None:
    """Register the transform, the directive, the folded cell and the marks."""
    app.add_config_value("solution_prompts", ["Show a solution", "Hide the solution"], "env")
    app.add_transform(CellAnchors)
    app.add_directive("cell", Cell)
    app.add_lexer("traceback", Traceback)
    app.connect("html-page-context", mark_assertions)
    app.connect(
        "builder-inited",
        lambda app: app.add_node(folded_cell(), override=True, html=(unfold, fold)),
    )
