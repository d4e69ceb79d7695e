"""Add anchors, fold prompts, verdicts and quotation (`{cell}`) to notebook cells on the page."""

from __future__ import annotations

import json
import re
from functools import partial
from html import escape
from itertools import takewhile
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.lexer import RegexLexer
from pygments.token import Generic, Name, Text
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from bookbuild.notebooks.cells import output
from bookbuild.notebooks.conversion import SOLUTION
from bookbuild.site.configuration import language_of
from bookbuild.site.extensions.sphinx_internals import add_link_target, folded_cell, is_of_cell
from bookbuild.source import questions
from helpers import verdicts


def notebook_cells(env: BuildEnvironment) -> list[dict]:
    """Return the cells of the notebook that is read; an empty list for another page."""
    path = Path(env.doc2path(env.docname))
    return json.loads(path.read_text("utf8"))["cells"] if path.suffix == ".ipynb" else []


class CellAnchors(SphinxTransform):
    """Add to each cell its id as anchor, to cells with a question the class `predicted`, and to
    solutions their own prompt.
    """

    default_priority = 210

    def apply(self) -> None:
        """Add the markup to the cells of this notebook."""
        cells = notebook_cells(self.env)
        if not cells:
            return
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


def begin_folded(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write the start tag and prompt of a folded cell.

    MyST-NB's own start tag hides the prompt from screen readers and is always in English.
    """
    classes = " ".join(node["classes"])
    translator.body.append(
        f'<details class="hide {classes}"><summary>'
        f'<span class="collapsed">{escape(node["prompt_show"])}</span>'
        f'<span class="expanded">{escape(node["prompt_hide"])}</span></summary>'
    )


def end_folded(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write the end tag of a folded cell."""
    translator.body.append("</details>\n")


class Explanations(SphinxTransform):
    """Wrap the explanation: the prose cell directly after a cell with a question.

    The page hides it with the output until the question is answered. All other cells stay visible:
    a second prose cell, a heading, code.
    """

    default_priority = 215  # after `CellAnchors`, which finds the cells with a question

    def apply(self) -> None:
        """Move each explanation into a container with the class `why`."""
        cells = notebook_cells(self.env)
        if not cells:
            return
        for node in list(self.document.findall(nodes.container)):
            if "predicted" not in node["classes"]:
                continue
            index = node["cell_index"] + 1
            if index == len(cells) or not explains(cells[index]):
                continue
            place = node.parent.index(node) + 1
            parts = list(takewhile(partial(is_of_cell, index), node.parent[place:]))
            if parts:
                why = nodes.container("", *parts, classes=["why"])
                node.parent[place : place + len(parts)] = [why]


def explains(cell: dict) -> bool:
    """Return True if a cell is prose from the text, not a generated question or label."""
    generated = cell.get("id", "").endswith((questions.SUFFIX, SOLUTION))
    return cell["cell_type"] == "markdown" and not generated


class ChineseVerdicts(SphinxTransform):
    """Translate checkers' verdicts on Chinese pages; the stored outputs are in English."""

    default_priority = 215

    def apply(self) -> None:
        """Change the outputs of this notebook that are verdicts."""
        if language_of(self.app) != "zh":
            return
        for block in self.document.findall(nodes.literal_block):
            shown = block.astext()
            if "text_plain" not in block["classes"] or not shown.startswith(verdicts.MARKS):
                continue
            for source in (verdicts.SENTENCES, verdicts.__file__):
                self.env.note_dependency(str(source))
            block.rawsource = verdicts.chinese(shown)
            block.children = [nodes.Text(block.rawsource)]


class Traceback(RegexLexer):
    """Lexer of notebook tracebacks; Pygments' own fails on some quotation marks in messages."""

    name = "notebook traceback"
    flags = re.MULTILINE
    tokens = {
        "root": [
            (r"^-{20,}$", Generic.Subheading),  # the rule of hyphens above a traceback
            (r"^[\w.]+(?=(: |$| +Traceback ))", Name.Exception),
            (r"^-+> ?\d+.*$", Generic.Traceback),
            (r".+|\n", Text),
        ]
    }


class Cell(SphinxDirective):
    """Directive ```{cell} chapter#cell-id```: show a cell's code and stored text output."""

    required_arguments = 1
    option_spec = {"class": directives.class_option}

    def run(self) -> list[nodes.Node]:
        """Return the cell as a code block and its output."""
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
    """Register the transform, the directive, the lexer and the folded cell."""
    app.add_config_value("solution_prompts", ["Show a solution", "Hide the solution"], "env")
    app.add_transform(CellAnchors)
    app.add_transform(Explanations)
    app.add_transform(ChineseVerdicts)
    app.add_directive("cell", Cell)
    app.add_lexer("traceback", Traceback)
    app.connect(
        "builder-inited",
        lambda app: app.add_node(folded_cell(), override=True, html=(begin_folded, end_folded)),
    )
