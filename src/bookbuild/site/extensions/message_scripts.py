"""The texts of messages as scripts, which the page of errors loads where an answer needs them.

`book/_static/errors.js` loads them as scripts because a page that is read from disk may not fetch.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from sphinx.application import Sphinx

from bookbuild.source.checkout import ERRORS_OF

_LIST = re.compile(r'<ul class="error-list".*</ul>', re.S)


def write(app: Sphinx, error: Exception | None) -> None:
    """Write, beside the page of each family, its list as a script: `bookErrors[page]` is HTML."""
    if error or app.builder.format != "html":
        return
    for page in sorted(app.env.found_docs):
        if page.startswith(ERRORS_OF) and (listed := _LIST.search(_source(app, page))):
            text = json.dumps(listed[0], ensure_ascii=False)
            script = f'(globalThis.bookErrors||={{}})["{page}"]={text};\n'
            Path(app.outdir, f"{page}.js").write_text(script, "utf8")


def _source(app: Sphinx, page: str) -> str:
    return Path(app.env.doc2path(page)).read_text("utf8")


def setup(app: Sphinx) -> None:
    """Register the event."""
    app.connect("build-finished", write)
