"""Print all pages of an edition as one PDF with Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from markupsafe import Markup

from bookbuild.editions.edition import Edition, Page
from bookbuild.source.checkout import BookError
from bookbuild.source.templates import render

# In order of preference: the headless shell opens no window.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
LIMIT = 600  # timeout of Chromium, in seconds
_STYLE = Path(__file__).with_name("paper.css")


def chromium() -> str | None:
    """Return `$CHROMIUM`, else the path of the first installed browser of `NAMES`, else None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def make(edition: Edition, out: Path) -> None:
    """Print an edition as a PDF to `out`.

    Raises:
        BookError: Chromium was not found, failed, or did not finish within `LIMIT` seconds.
    """
    browser = chromium()
    if browser is None:
        raise BookError(
            f"a PDF requires Chromium, and none of {', '.join(NAMES)} was found: "
            "install one, or set CHROMIUM to its path"
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
            process = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BookError(f"Chromium did not print: {error}") from None
        if not (folder / "book.pdf").is_file():
            raise BookError(f"Chromium did not print: {process.stderr.strip()[-1000:]}")
        shutil.move(folder / "book.pdf", out)


def document(edition: Edition) -> str:
    """Return all pages as one HTML document; each running header is the chapter's title."""
    pages = {page.name: page for page in edition.pages(still=False)}
    style = [_STYLE.read_text("utf8")]
    for page in pages.values():
        title = page.title.replace("\\", r"\\").replace('"', r"\"")
        style.append(f'@page {page.name} {{ @top-left {{ content: "{title}" }} }}')
    script = edition.book.root / "book/_static/print.js"
    return render(
        "editions",
        "book.html",
        edition=edition,
        style=Markup("\n".join(style)),
        titles={name: page.title for name, page in pages.items()},
        articles=[Markup(_article(page)) for page in pages.values()],
        script=Markup(script.read_text("utf8")),
    )


def _article(page: Page) -> str:
    """Return a page's HTML with its name before each id, so that ids are unique in the PDF."""
    article = page.article
    for node in article.select("[id]"):
        node["id"] = f"{page.name}--{node['id']}"
    for link in article.select("a[href]"):
        if local := re.fullmatch(r"([\w-]+)\.html(?:#(.*))?", link["href"]):
            link["href"] = f"#{local[1]}" + (f"--{local[2]}" if local[2] else "")
    article["id"], article["style"] = page.name, f"page: {page.name}"
    return page.html()
