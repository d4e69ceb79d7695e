"""What the pages share that are one long list: a field that filters it, links, inline code."""

from __future__ import annotations

import re
from html import escape

from bookbuild.source.words import words


def filtered(name: str, lang: str, placeholder: str, listed: str) -> str:
    """A list whose `li` are filtered while a reader types; complete without scripts.

    `listed` is HTML or Markdown; a heading above a list of which nothing is left goes, too.
    """
    w = words(lang, "filter")
    return f"""\
<div class="filter" role="search">
<label for="{name}-filter">{w["label"]}</label>
<input id="{name}-filter" type="search" data-filter="{name}-list" data-none="{w["none"]}"
 placeholder="{escape(placeholder, quote=True)}" autocomplete="off" spellcheck="false">
<p role="status" aria-live="polite"></p>
</div>

<div id="{name}-list" class="filtered">

{listed}

</div>
"""


def link(href: str, title: str) -> str:
    """A link to a page or a section, its title in Markdown with nothing but code."""
    return f'<a href="{escape(href.replace(".ipynb", ".html"), quote=True)}">{inline(title)}</a>'


def inline(markdown: str) -> str:
    """The little Markdown of a line: code in backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(markdown, quote=False))


def block(code: str) -> str:
    """Code that can be copied, as HTML without empty lines, which would end it for Markdown."""
    lines = (escape(line, quote=True) or "<span></span>" for line in code.splitlines())
    return '<div class="highlight"><pre>{}</pre></div>'.format("\n".join(lines))
