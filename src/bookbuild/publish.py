"""What a site has beside its pages: files for its root, a map of it, addresses that moved."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from html import escape
from pathlib import Path

import yaml

from bookbuild import head
from bookbuild.book import LANGUAGES, Book, BookError, read_text

ROOT = "_root"  # of `book/`: what lies at the root of the site
MOVED = "moved.yml"  # of `book/`: old addresses and new ones
_ADDRESSES = "<!-- addresses -->"
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


def root_files(book: Book, site: Path, names: dict[str, tuple[str, str]], base: str) -> None:
    """Copy what lies at the root; where the address is known, the pages there are told it.

    A page that was not found is shown under any address, so its links need the site's own.
    """
    shutil.copytree(book.root / "book" / ROOT, site, dirs_exist_ok=True)
    for path in site.glob("*.html"):
        text, tags = path.read_text("utf8"), []
        if base and path.stem == "404":
            tags = [f'<base href="{escape(base)}/">']
        elif base:
            about = re.search('name="description" content="(.*?)"', text)[1]
            page = head.Page("en", "index.html", names["en"][0], about, *names["en"], base)
            tags = head.card(page, "website")
        path.write_text(text.replace(_ADDRESSES, "\n".join(tags)), "utf8")


def robots(site: Path, base: str) -> None:
    """Let everybody in; where the address is known, say where the map is."""
    lines = ["User-agent: *", "Allow: /", *([f"Sitemap: {base}/sitemap.xml"] if base else [])]
    (site / "robots.txt").write_text("\n".join(lines) + "\n", "utf8")


def sitemap(site: Path, paths: Iterable[str], base: str) -> None:
    """All pages with their translations; without an address there can be no map."""
    if not base:
        return
    lines = []
    for path in paths:
        urls = {lang: escape(f"{base}/{lang}/{path}") for lang in LANGUAGES}
        links = "".join(
            f'<xhtml:link rel="alternate" hreflang="{head.CODES[lang]}" href="{url}"/>'
            for lang, url in urls.items()
        )
        lines += [f"<url><loc>{url}</loc>{links}</url>" for url in urls.values()]
    listed = "\n".join(lines)
    (site / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        f'xmlns:xhtml="http://www.w3.org/1999/xhtml">\n{listed}\n</urlset>\n',
        "utf8",
    )


# ---------------------------------------------------------------- what moved


def moved(book: Book) -> dict[str, str]:
    """Old addresses and new ones, below the folder of a language and without `.html`.

    Raises:
        BookError: the file has another form.
    """
    path = book.root / "book" / MOVED
    found = yaml.safe_load(read_text(path, MOVED)) or {} if path.is_file() else {}
    form = re.compile(r"[\w/-]+(#[\w.-]+)?")
    if not isinstance(found, dict) or not all(
        isinstance(x, str) and form.fullmatch(x) for pair in found.items() for x in pair
    ):
        raise BookError(f"{MOVED}: expected lines such as `old_page#section: new_page#section`")
    return found


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
                    code=head.CODES[lang],
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
