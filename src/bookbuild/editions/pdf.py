"""The PDF: all pages of an edition on one, printed by Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path

from bookbuild.editions.edition import Edition, Page
from bookbuild.source.checkout import BookError

# The first has no window to keep: it takes about a third less CPU time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
LIMIT = 600  # seconds
_STYLE = Path(__file__).with_name("paper.css")
_DOCUMENT = """\
<!doctype html>
<html lang="{code}" data-theme="light" data-mode="light">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta name="author" content="{author}">
<link rel="stylesheet" href="_static/styles/site.css">
<link rel="stylesheet" href="_static/katex.min.css">
<style>{style}</style>
</head>
<body>
<div class="cover"><h1>{title}</h1><p>{author}</p><p>{address}</p></div>
<nav class="all-pages"><h1>{contents}</h1>
{listed}
</nav>
<main class="bd-content">
{articles}
</main>
<script>{script}</script>
</body>
</html>
"""


def chromium() -> str | None:
    """The browser that prints: CHROMIUM in the environment, else one of the usual names."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def make(edition: Edition, out: Path) -> None:
    """Print an edition.

    Raises:
        BookError: there is no Chromium, or it did not print.
    """
    browser = chromium()
    if browser is None:
        raise BookError(
            f"a PDF is printed by Chromium, and none of {', '.join(NAMES)} was found: "
            "install one, or name it in CHROMIUM"
        )
    with tempfile.TemporaryDirectory(prefix="book-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for part in ("_static", "_images"):
            if (edition.site / edition.lang / part).is_dir():
                shutil.copytree(edition.site / edition.lang / part, folder / part)
        (folder / "book.html").write_text(document(edition), "utf8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", f"--user-data-dir={folder}/profile"]
        command += ["--no-pdf-header-footer", "--generate-pdf-document-outline"]
        command += [f"--print-to-pdf={folder}/book.pdf", (folder / "book.html").as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BookError(f"Chromium did not print: {error}") from None
        if not (folder / "book.pdf").is_file():
            raise BookError(f"Chromium did not print: {done.stderr.strip()[-1000:]}")
        shutil.move(folder / "book.pdf", out)


def document(edition: Edition) -> str:
    """All pages on one; a running head is the name of a kind of page, which each chapter is."""
    pages = {page.name: page for page in edition.pages(still=False)}
    style = [_STYLE.read_text("utf8")]
    for page in pages.values():
        quoted = page.title.replace("\\", r"\\").replace('"', r"\"")
        style.append(f'@page {page.name} {{ @top-left {{ content: "{quoted}" }} }}')
    listed = "\n".join(
        f"<h2>{escape(part)}</h2>\n<ol>"
        + "".join(f'<li><a href="#{n}">{escape(pages[n].title)}</a></li>' for n in names)
        + "</ol>"
        for part, names in edition.parts()
    )
    script = edition.book.root / "book/_static/print.js"
    return _DOCUMENT.format(
        code=edition.code,
        title=escape(edition.title),
        author=escape(edition.author),
        address=escape(edition.base),
        contents=edition.words["contents"],
        style="\n".join(style),
        listed=listed,
        articles="\n".join(map(_article, pages.values())),
        script=script.read_text("utf8"),
    )


def _article(page: Page) -> str:
    """A page whose anchors are its own among those of all."""
    article = page.article
    for node in article.select("[id]"):
        node["id"] = f"{page.name}--{node['id']}"
    for link in article.select("a[href]"):
        if found := re.fullmatch(r"([\w-]+)\.html(?:#(.*))?", link["href"]):
            link["href"] = f"#{found[1]}" + (f"--{found[2]}" if found[2] else "")
    article["id"], article["style"] = page.name, f"page: {page.name}"
    return page.html()
