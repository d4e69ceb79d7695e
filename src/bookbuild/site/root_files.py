"""What a site has beside its pages: files for its root, a map of it, addresses that moved."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from html import escape
from pathlib import Path

from bookbuild.site import metatags
from bookbuild.source.checkout import LANGUAGES, Book

ROOT = "_root"  # of `book/`: what lies at the root of the site
_ADDRESSES = "<!-- addresses -->"


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
            page = metatags.Page("en", "index.html", names["en"][0], about, *names["en"], base)
            tags = metatags.card(page, "website")
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
            f'<xhtml:link rel="alternate" hreflang="{metatags.CODES[lang]}" href="{url}"/>'
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
