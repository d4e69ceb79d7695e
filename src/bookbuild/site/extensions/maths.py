"""Render maths with KaTeX during the build: pages need no script, and invalid TeX is an error.

`katex/` is KaTeX 0.19.1 from its npm package. To update it: run `npm pack katex`, copy
`dist/katex.min.js` and `LICENSE` to `katex/`, copy `dist/katex.min.css` and `dist/fonts/*.woff2` to
`katex/site/`, remove the `.woff` and `.ttf` URLs from the style sheet, and run `tests/site`.
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
    """Return a V8 engine with KaTeX loaded."""
    js = MiniRacer()
    atexit.register(js.close)  # an open engine may keep the process from exiting
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
    """Write an inline formula."""
    translator.body.append(translator.starttag(node, "span", "", CLASS="math notranslate"))
    translator.body.append(render(translator, node, False) + "</span>")
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a display formula; on narrow screens it scrolls horizontally in its box."""
    tag = translator.starttag(node, "div", CLASS="math notranslate", tabindex="0")
    translator.body.append(tag + render(translator, node, True) + "</div>\n")
    raise nodes.SkipNode


def style_sheet(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Link KaTeX's style sheet on pages with formulas."""
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
