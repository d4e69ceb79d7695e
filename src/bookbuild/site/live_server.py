"""Serve the built site with Jupyter kernels, so that cells can be run on the page.

The site, the kernels and the handlers below share one origin, one token and the XSRF check of
Jupyter Server. Pages are served unchanged, except for one script and one style sheet in chapters.
"""

from __future__ import annotations

import difflib
import json
import re
import secrets
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from nbformat import NotebookNode
from pygments import highlight
from pygments.lexer import Lexer
from pygments.lexers import PythonLexer
from tornado import web

from bookbuild.notebooks.cells import code_cells, tags
from bookbuild.notebooks.cleaning import clean
from bookbuild.notebooks.execution import prepare_kernels
from bookbuild.notebooks.figures import in_language
from bookbuild.pages.markdown import inline
from bookbuild.site.extensions.cell_markup import Traceback
from bookbuild.site.extensions.code_blocks import LightFormatter
from bookbuild.source.checkout import Book
from bookbuild.source.templates import render
from bookbuild.source.words import words
from helpers.review.cells import after
from helpers.review.reading import syntax_problem, without_magics
from helpers.review.report import WORDS, place, record
from helpers.verdicts import chinese

PROGRAM = Path(__file__).with_name("live")
IDLE = 1800  # seconds until a kernel without an open page is shut down
_PROMPT = re.compile(r"Cell In\[\d+\]")
_SCRIPT = (
    '<link rel="stylesheet" href="../_live/live.css">'
    '<script type="module" src="../_live/live.js"></script>'
)
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif"}


# ---------------------------------------------------------------- outputs as HTML


def rendered(outputs: list[NotebookNode], lang: str) -> str:
    """Return cleaned outputs as HTML with the same markup as on the built page."""
    return "\n".join(_rendered(output, lang) for output in outputs)


def _rendered(output: NotebookNode, lang: str) -> str:
    from myst_nb.core.lexers import AnsiColorLexer

    if output.output_type == "stream":
        kind = "stream" if output.name == "stdout" else "stderr"
        return _block(kind, "myst-ansi", output.text, AnsiColorLexer())
    if output.output_type == "error":
        return _block("traceback", "traceback", "\n".join(output.traceback), Traceback())
    data = {kind: "".join(text) for kind, text in output.data.items() if isinstance(text, str)}
    if html := data.get("text/html", data.get("image/svg+xml")):
        return f'<div class="output text_html">{html}</div>'
    for kind in _IMAGES:
        if kind in data:
            return f'<img alt="" src="data:{kind};base64,{data[kind].strip()}">'
    text = data.get("text/plain", "")
    text = chinese(text) if lang == "zh" else text
    return _block("text_plain", "myst-ansi", text, AnsiColorLexer())


def _block(kind: str, language: str, text: str, lexer: Lexer) -> str:
    code = highlight(text, lexer, LightFormatter())
    return f'<div class="output {kind} highlight-{language} notranslate">{code}</div>'


def cleaned(outputs: list[dict[str, Any]], lang: str) -> list[NotebookNode]:
    """Return a kernel's outputs in the form that `book update` stores."""
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.from_dict(o) for o in outputs])
    return in_language(clean(nbformat.v4.new_notebook(cells=[cell])).cells[0].outputs, lang)


def comparable(outputs: list[NotebookNode]) -> list[dict[str, str]]:
    """Return the parts of outputs that nbval compares, after its replacements."""
    parts = []
    for output in outputs:
        if output.output_type == "error":
            texts = {"ename": output.ename, "evalue": output.evalue}
        else:
            texts = {"text": output.text} if "text" in output else dict(output.data)
        parts.append(
            {kind: _sanitized("".join(text)) for kind, text in texts.items() if kind not in _IMAGES}
        )
    return parts


def _sanitized(text: str) -> str:
    for pattern, replacement in _replacements():
        text = re.sub(pattern, replacement, text)
    return _PROMPT.sub("Cell In[N]", text)


@cache
def _replacements() -> list[tuple[str, str]]:
    from nbval.plugin import get_sanitize_patterns  # not public API, as in `cleaning`

    config = (Book.find().root / "book/nbval.cfg").read_text("utf8")
    return list(get_sanitize_patterns(config))


# ---------------------------------------------------------------- responses


def coloured(source: str) -> str:
    """Return Python code as the highlighted HTML inside a code block of the page."""
    html = highlight(source, PythonLexer(stripnl=False, ensurenl=False), LightFormatter())
    return html.partition("<pre>")[2].rpartition("</pre>")[0].removeprefix("<span></span>")


def difference(mine: str, solution: str) -> list[list[str]]:
    """Return [sign, line] pairs with sign `" "` (both), `"-"` (mine) or `"+"` (solution)."""
    lines = difflib.ndiff(mine.strip().splitlines(), solution.strip().splitlines())
    return [[line[0], line[2:]] for line in lines if line[0] in " -+"]


def reviewed(source: str, before: list[str], lang: str) -> str:
    """Return the findings of `helpers.review` in a cell as HTML; "" if it is not valid Python.

    The code is not executed. `before` contains the cells above, to resolve names in this cell.
    """
    text, *earlier = (without_magics(one) for one in (source, *before))
    if syntax_problem(text):
        return ""
    try:
        review_of, findings = after([one for one in earlier if not syntax_problem(one)], text)
    except (SyntaxError, RecursionError):
        return ""
    rows = [record(review_of, one, lang) for one in findings]
    for row, one in zip(rows, findings, strict=True):
        row["at"] = place(review_of, one, lang)
        row["kind"] = WORDS[lang][row["severity"]]
    return render("site", "findings.html", rows=rows, inline=inline, w=WORDS[lang])


class Chapter:
    """Code cells of a page's notebook, and the comparison of a run with stored outputs."""

    def __init__(self, path: Path) -> None:
        self.path, self.lang = path, path.parent.name
        self.cells = code_cells(nbformat.read(path, as_version=4))

    def described(self, gpu: bool) -> dict[str, Any]:
        """Return the cells in order, the labels, and `gpu`: True if kernels use a GPU."""
        keys = [{"id": c.id, "source": c.source, "tags": tags(c)} for c in self.cells]
        return {"cells": keys, "words": words(self.lang, "live"), "gpu": gpu}

    def output(self, name: str, outputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return `html`, the rendered outputs, and `same`: True if they equal the stored ones."""
        cell = next(c for c in self.cells if c.id == name)
        now = cleaned(outputs, self.lang)
        for output in now:  # add the figure's alt text, as in the built page
            if "text/html" in output.get("data", {}) and (alt := _alt(cell)):
                output.data["text/html"] = "".join(output.data["text/html"]).replace(
                    '<figure class="book-figure"',
                    f'<figure class="book-figure" role="img" aria-label="{alt}"',
                    1,
                )
        same = comparable(now) == comparable(in_language(cell.outputs, self.lang))
        return {"html": rendered(now, self.lang), "same": same}


def _alt(cell: NotebookNode) -> str:
    from html import escape

    from bookbuild.notebooks.cells import alt

    return escape(alt(cell))


# ---------------------------------------------------------------- handlers


class Page(JupyterHandler):
    """Handler of pages; adds the script that runs cells if the page has a notebook."""

    def initialize(self, site: Path, notebooks: Path) -> None:
        """Store the folders of the site and of the notebooks."""
        self.site, self.notebooks = site, notebooks

    @property
    def content_security_policy(self) -> str:
        """Forbid pages of other origins to embed this one."""
        return "frame-ancestors 'self'"

    @web.authenticated
    def get(self, lang: str, name: str) -> None:
        """Send a page."""
        _ = self.xsrf_token  # sets the cookie that POST requests require
        file = self.site / lang / f"{name}.html"
        if not file.is_file():
            raise web.HTTPError(404)
        html = file.read_text("utf8")
        if (self.notebooks / lang / f"{name}.ipynb").is_file():
            html = html.replace("</head>", f"{_SCRIPT}</head>", 1)
        self.set_header("Cache-Control", "no-cache")
        self.finish(html)


class Site(JupyterHandler, web.StaticFileHandler):
    """Handler of static files; requires the token."""

    def initialize(self, path: str) -> None:
        """Store the folder of the files."""
        web.StaticFileHandler.initialize(self, path, "index.html")

    @property
    def content_security_policy(self) -> str:
        """Forbid pages of other origins to embed this one."""
        return "frame-ancestors 'self'"

    @web.authenticated
    async def get(self, path: str, include_body: bool = True) -> None:
        """Send a file."""
        await web.StaticFileHandler.get(self, path, include_body)

    def compute_etag(self) -> str | None:
        """Return the ETag of `StaticFileHandler`; `JupyterHandler` overrides it."""
        return web.StaticFileHandler.compute_etag(self)


class Live(JupyterHandler):
    """Handler of the script's JSON requests about a page's notebook."""

    def initialize(self, notebooks: Path, gpu: bool) -> None:
        """Store the folder of the notebooks, and `gpu`: True if kernels use a GPU."""
        self.notebooks, self.gpu = notebooks, gpu

    @web.authenticated
    def get(self, lang: str, name: str) -> None:
        """Send the cells of a notebook."""
        _ = self.xsrf_token
        self.finish(self.chapter(lang, name).described(self.gpu))

    @web.authenticated
    def post(self, lang: str, name: str) -> None:
        """Send rendered outputs, highlighted code, its review, or a diff with the solution."""
        try:
            asked = json.loads(self.request.body)
            if "outputs" in asked:
                answer = self.chapter(lang, name).output(asked["cell"], asked["outputs"])
            elif "review" in asked:
                answer = {"html": reviewed(asked["review"], asked["before"], lang)}
            elif "solution" in asked:
                answer = {"lines": difference(asked["source"], asked["solution"])}
            else:
                answer = {"html": coloured(asked["source"])}
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise web.HTTPError(400, f"expected a cell and its outputs: {error}") from None
        self.finish(answer)

    def chapter(self, lang: str, name: str) -> Chapter:
        """Return the notebook of a page; raise HTTP 404 if there is none."""
        path = self.notebooks / lang / f"{name}.ipynb"
        if not path.is_file():
            raise web.HTTPError(404)
        return Chapter(path)


class NoFiles(AsyncLargeFileManager):
    """Contents manager without HTTP handlers: pages cannot read or write files."""

    def get_extra_handlers(self) -> list[tuple[str, type]]:
        """Return no handlers, because `/files/` would serve the notebooks' folder."""
        return []


class LiveServer(ServerApp):
    """Jupyter Server with kernels and sessions only, without files, terminals and extensions."""

    name = "book"
    default_services = ("auth", "api", "kernels", "kernelspecs", "sessions", "security")

    def find_server_extensions(self) -> None:
        """Enable no installed extension."""

    def load_config_file(self, suppress_errors: bool = True) -> None:
        """Ignore configuration files: a user's settings could expose the server."""


def live(book: Book, port: int = 8888, browser: bool = True) -> None:
    """Serve the built site with kernels on 127.0.0.1 until Ctrl+C, and print its address.

    Args:
        book: the checkout whose site and notebooks are served.
        port: preferred port; the next free port is used if it is taken.
        browser: if True, open the home page in a browser.

    Raises:
        BookError: the site was not built, or `BOOK_CUDA` has an invalid value.
    """
    site, notebooks = book.site, book.root / "book"
    gpu = prepare_kernels()
    token = secrets.token_hex(24)
    app = LiveServer.instance(
        ip="127.0.0.1",
        port=port,
        root_dir=str(notebooks),
        contents_manager_class=NoFiles,
        default_url="/book/index.html",
        open_browser=browser,
        allow_root=True,
        log_level="WARN",
    )
    app.config.IdentityProvider.token = token
    app.config.MappingKernelManager.update(
        {"cull_idle_timeout": IDLE, "cull_interval": 60, "cull_connected": False}
    )
    app.initialize(argv=[])
    app.web_app.add_handlers(
        ".*$",
        [
            (r"/book/_live/(live\.(?:js|css))", Site, {"path": str(PROGRAM)}),
            (r"/book/_live/(en|zh)/(\w+)", Live, {"notebooks": notebooks, "gpu": gpu}),
            (r"/book/(en|zh)/(\w+)\.html", Page, {"site": site, "notebooks": notebooks}),
            (r"/book/(.*)", Site, {"path": str(site)}),
        ],
    )
    address = f"http://127.0.0.1:{app.port}/book/index.html?token={token}"
    print(f"Cells run on {address} (Ctrl+C stops)", flush=True)
    app.start()
