"""Maths rendered by KaTeX while building: readers load no script, and bad TeX stops the build.

`katex/` is KaTeX 0.19.1 as its npm package has it. To update it: `npm pack katex`, then take
`dist/katex.min.js` and `LICENSE` to `katex/`, `dist/katex.min.css` and `dist/fonts/*.woff2` to
`katex/site/`, take the `.woff` and `.ttf` addresses out of the style sheet, and run `tests/site`.
"""

from __future__ import annotations

import atexit
import json
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from py_mini_racer import JSEvalException, MiniRacer
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)
KATEX = Path(__file__).with_name("katex")


@cache
def engine() -> MiniRacer:
    """Return V8 with KaTeX loaded."""
    js = MiniRacer()
    atexit.register(js.close)  # an open V8 sometimes keeps the process from ending
    js.eval((KATEX / "katex.min.js").read_text("utf8"))
    return js


def render(translator: HTML5Translator, node: nodes.Element, display: bool) -> str:
    """Return TeX as HTML; log a warning where KaTeX cannot parse it."""
    tex = node.astext().strip()
    options = {"displayMode": display, "throwOnError": True, "strict": "ignore"}
    try:
        return engine().eval(f"katex.renderToString({json.dumps(tex)}, {json.dumps(options)})")
    except JSEvalException as error:
        reason = str(error).strip().splitlines()[0]
        log.warning("cannot render the formula %r: %s", tex, reason, location=node)
        return f"<code>{translator.encode(tex)}</code>"


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(translator.starttag(node, "span", "", CLASS="math notranslate"))
    translator.body.append(render(translator, node, False) + "</span>")
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on its own line; it scrolls in its own box where the screen is narrow."""
    tag = translator.starttag(node, "div", CLASS="math notranslate", tabindex="0")
    translator.body.append(tag + render(translator, node, True) + "</div>\n")
    raise nodes.SkipNode


def style_sheet(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Link the style sheet of KaTeX on pages with formulas."""
    kinds = (nodes.math, nodes.math_block)
    if doctree is not None and any(next(doctree.findall(k), None) is not None for k in kinds):
        app.add_css_file("katex.min.css")


def setup(app: Sphinx) -> None:
    """Register the renderer and the files that readers load."""
    app.add_html_math_renderer("katex", (inline, None), (block, None))
    app.connect(
        "builder-inited", lambda app: app.config.html_static_path.append(str(KATEX / "site"))
    )
    app.connect("html-page-context", style_sheet)
