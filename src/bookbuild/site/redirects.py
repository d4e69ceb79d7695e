"""Redirects from old addresses to new ones: `book/moved.yml`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bookbuild.site import metatags
from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.moved import FILE as MOVED
from bookbuild.source.moved import moved

_REFRESH = 'http-equiv="refresh"'
_GONE = """\
<!doctype html>
<html lang="{code}">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="canonical" href="{new}">
<meta {refresh} content="0; url={new}">
{script}
</head>
<body><p><a href="{new}">{title}</a></p></body>
</html>
"""


def keep_moved(book: Book, site: Path) -> None:
    """Let old addresses lead to the new ones: a page in the place of one that is gone, and on a
    page whose sections went elsewhere a line that sends their readers after them.

    Raises:
        BookError: an address has not moved, or leads nowhere.
    """
    table = moved(book)
    for lang in LANGUAGES:
        for page in dict.fromkeys(old.partition("#")[0] for old in table):
            path = site / lang / f"{page}.html"
            up = "../" * page.count("/")
            sections = {}
            for old, new in table.items():
                if old.partition("#")[0] == page:
                    _leads(site / lang, old, new)
                    name, _, anchor = new.partition("#")
                    sections[old.partition("#")[2]] = f"{up}{name}.html" + (anchor and f"#{anchor}")
            whole = sections.pop("", None)
            script = _script(sections, whole)
            if path.is_file():
                text = path.read_text("utf8").replace("</head>", f"{script}\n</head>", 1)
            elif whole is None:
                raise BookError(f"{MOVED}: {page} is gone: say where its other sections went")
            else:
                path.parent.mkdir(exist_ok=True)
                title = re.search("<title>(.*?)</title>", (path.parent / whole).read_text("utf8"))
                text = _GONE.format(
                    code=metatags.CODES[lang],
                    title=title[1],
                    refresh=_REFRESH,
                    new=whole,
                    script=script,
                )
            path.write_text(text, "utf8")


def _script(sections: dict[str, str], whole: str | None) -> str:
    """Go where a section went; where the page went, too, its other sections are there."""
    found = json.dumps(sections, ensure_ascii=False)
    other = f"||{json.dumps(whole)}+location.hash" if whole else ""
    return (
        f"<script>{{const to={found}[decodeURIComponent(location.hash.slice(1))]{other};"
        "if(to)location.replace(to)}</script>"
    )


def _leads(folder: Path, old: str, new: str) -> None:
    """Hold a line of the table to the site."""
    for address, wanted in ((old, False), (new, True)):
        page, _, anchor = address.partition("#")
        path = folder / f"{page}.html"
        text = path.read_text("utf8") if path.is_file() else ""
        there = f'id="{anchor}"' in text if anchor else bool(text)
        there = there and _REFRESH not in text  # which an old address has
        if there is not wanted:
            raise BookError(f"{MOVED}: {old}: {address} is {'not' if wanted else 'still'} there")
