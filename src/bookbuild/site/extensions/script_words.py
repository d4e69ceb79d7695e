"""Add the labels of the scripts as `bookWords` (by group and name) in the page's language.

They are part of the language's script bundle and not repeated in each page.
"""

from __future__ import annotations

import json

from sphinx.application import Sphinx

from bookbuild.site.configuration import language_of
from bookbuild.source.words import table

GROUP = "script_"  # prefix of the groups of `words.yml` that scripts read


def add(app: Sphinx) -> None:
    """Add the labels before the scripts that read them."""
    groups = {
        name.removeprefix(GROUP): {key: texts[language_of(app)] for key, texts in words.items()}
        for name, words in table().items()
        if name.startswith(GROUP)
    }
    words = json.dumps(groups, ensure_ascii=False, separators=(",", ":"))
    app.add_js_file(None, body=f"globalThis.bookWords={words}")


def setup(app: Sphinx) -> None:
    """Register the event."""
    app.connect("builder-inited", add)
