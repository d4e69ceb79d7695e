"""Build the site: run Sphinx for each language, then write the files beside the pages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bookbuild.notebooks import setup_cell
from bookbuild.pages import SCRIPTS
from bookbuild.pages import write as write_pages
from bookbuild.site import (
    entry_pages,
    helpers_wheel,
    markdown_copies,
    program_files,
    redirects,
    root_files,
)
from bookbuild.site.configuration import write_conf
from bookbuild.site.extensions.page_markdown import DESCRIPTIONS
from bookbuild.source.checkout import (
    ADDRESSES,
    LANGUAGES,
    Book,
    BookError,
    fingerprint,
    program,
    write_text,
)
from bookbuild.source.texts import SETUP

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class BuildFailed(BookError):
    """Raised if Sphinx reports a warning or an error; the message names page and warning."""


def build(
    root: Path, out: Path | None = None, quiet: bool = False, python: str = sys.executable
) -> Path:
    """Build the site of the book at `root` in both languages in parallel; return its folder.

    Sphinx caches parsed pages in `_build/cache` and rereads only changed ones. The cache is
    deleted if the configuration, the templates, this package or a dependency changed, and after a
    failed build, so that the site always equals the result of a clean build.

    Args:
        root: the folder of `_config.yml`, `_toc.yml` and `book/`.
        out: folder of the site, by default `<root>/_build/site`; replaced only after success.
        quiet: print no progress.
        python: path of the Python interpreter that runs Sphinx.

    Raises:
        BuildFailed: Sphinx reported a warning or an error for a page.
        BookError: the repository is set, but the commit is unknown.
    """
    book = Book(root.resolve())
    out = (out or book.root / "_build/site").resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    folder = "cache" if python == sys.executable else "cache-of-another-sphinx"
    cache = book.root / "_build" / folder
    with (
        _locked(cache) as lock,
        tempfile.TemporaryDirectory(prefix=".building-", dir=out.parent) as name,
        ThreadPoolExecutor(1) as pool,
    ):
        site = Path(name) / "site"
        entries = pool.submit(entry_pages.write, book, site)  # in parallel with Sphinx
        _build_pages(book, cache, python, quiet, lock)
        _fill(book, cache, site, entries.result())
        if out.exists():
            out.rename(Path(name) / "old")
        site.rename(out)
    if not quiet:
        count = sum(len(list((cache / lang / "html").glob("*.html"))) for lang in LANGUAGES)
        print(f"{out}: {count} pages in {time.monotonic() - start:.1f} s", flush=True)
    return out


@contextmanager
def _locked(cache: Path) -> Iterator[list[int]]:
    """Lock a cache for one build; yield the file descriptors that child processes must inherit.

    A child that outlives a killed build keeps the lock. Windows has no such lock, so builds must
    not overlap.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        if fcntl is None:
            yield []
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield [file.fileno()]


def _build_pages(book: Book, cache: Path, python: str, quiet: bool, lock: list[int]) -> None:
    """Update the pages in the cache.

    `state.json` exists only after a build without warnings. It stores two kinds of fingerprint:
    of all shared inputs, to decide if the cache is still valid, and of each language's sources, to
    decide if Sphinx runs for that language. Sphinx decides which pages to reread.
    """
    state = cache / "state.json"
    old = {}
    if python == sys.executable and state.exists():  # another Python may have other packages
        old = json.loads(state.read_text("utf8"))
    new = {"shared": _shared(book.root, python)}
    new |= {lang: _sources(book.root, lang) for lang in LANGUAGES}
    if old == new:
        if not quiet:
            print("nothing has changed", flush=True)
        return
    changed = [lang for lang in LANGUAGES if old.get(lang) != new[lang]]
    if old.get("shared") != new["shared"]:
        changed = list(LANGUAGES)
        for lang in LANGUAGES:
            shutil.rmtree(cache / lang, ignore_errors=True)
    state.unlink(missing_ok=True)
    with ThreadPoolExecutor(len(LANGUAGES)) as pool:
        job = partial(_language, book, cache, python, lock)
        warnings = list(filter(None, pool.map(job, changed)))
    if warnings:
        raise BuildFailed("the site was not built:\n" + "\n".join(warnings))
    write_text(state, json.dumps(new))


def _language(book: Book, cache: Path, python: str, lock: list[int], lang: str) -> str:
    """Run Sphinx for one language; return its warnings, "" if there are none."""
    work = cache / lang
    work.mkdir(exist_ok=True)
    if not (work / "conf.py").exists() and (warnings := write_conf(book, work, lang)):
        return warnings
    command = [python, "-m", "sphinx", "-q", "-W", "--keep-going", "--no-color", "-b", "html"]
    command += [
        "-c",
        work,
        "-d",
        work / "doctrees",
        "-D",
        f"external_toc_path={book.root}/_toc.yml",
    ]
    command += ["-t", "repository"] if book.repository else []
    process = subprocess.run(
        [*command, book.root / "book" / lang, work / "html"],
        capture_output=True,
        text=True,
        pass_fds=lock,
    )
    return (_readable(process.stderr, book.root) or lang) if process.returncode else ""


def _shared(root: Path, python: str) -> str:
    """Return the fingerprint of the inputs that all pages depend on.

    These are the configuration, the addresses set in the environment, templates and style sheets,
    this package, installed packages, and the names of the documented modules.
    """
    folders = (root / "book" / name for name in ("_static", "_templates", "_locale"))
    files = [path for folder in folders for path in folder.rglob("*")]
    settings = [p for p in (root / "pyproject.toml",) if p.is_file()]  # sets the wheel's name
    total = fingerprint([root / "_config.yml", root / "_toc.yml", *settings, *files])
    modules = sorted(path.name for path in (root / "src/helpers").glob("*.py"))
    addresses = [os.environ.get(name) for name in ADDRESSES.values()]
    return json.dumps([total, program(), python, modules, addresses])


def _sources(root: Path, lang: str) -> str:
    """Return the fingerprint of a language's pages and of the modules and verdicts they show.

    The names of all notebooks are included, because each home page lists them.
    """
    names = sorted(path.name for path in (root / "book").glob("*/*.ipynb"))
    helpers = root / "src/helpers"
    files = [*(root / "book" / lang).rglob("*"), *helpers.rglob("*.py")]
    return json.dumps([names, fingerprint([*files, *helpers.glob("verdicts.json")])])


def _fill(book: Book, cache: Path, site: Path, entries: list[str]) -> None:
    """Copy the cached pages and write the files beside them into the site's folder."""
    for lang in LANGUAGES:
        ignore = shutil.ignore_patterns(".buildinfo*", "objects.inv")
        shutil.copytree(cache / lang / "html", site / lang, ignore=ignore, dirs_exist_ok=True)
    wheel = helpers_wheel.write(book, site)
    if book.repository or wheel:
        built_from = commit(book.root) if book.repository else ""
        source = setup_cell.source(book.repository, built_from, wheel, book.address)
        _stamp(site, source, book.root / "_build/notebooks" if book.repository else None)
    _write_beside(book, cache, site, entries)


def _write_beside(book: Book, cache: Path, site: Path, entries: list[str]) -> None:
    """Write the files for search engines, programs and old links, which Sphinx does not write."""
    pages = [p.name for p in sorted((site / "en").glob("*.html")) if p.stem != "search"]
    if (scripts := book.root / SCRIPTS).is_dir():
        shutil.copytree(scripts, site, dirs_exist_ok=True)
    markdown_copies.write(book, site)
    descriptions = {
        lang: json.loads((cache / lang / "doctrees" / DESCRIPTIONS).read_text("utf8"))
        for lang in LANGUAGES
    }
    program_files.write(book, site, descriptions)
    root_files.write(book, site, pages + entries)
    redirects.write(book, site)
    (site / ".nojekyll").touch()


def commit(root: Path) -> str:
    """Return the commit to install `helpers` from: `GITHUB_SHA`, else the checkout's HEAD.

    Raises:
        BookError: `GITHUB_SHA` is not set and `root` is not a git checkout.
    """
    if sha := os.environ.get("GITHUB_SHA"):
        return sha
    command = ["git", "-C", root, "rev-parse", "HEAD"]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        raise BookError(
            "the repository is set, so the notebooks need the commit to install the helpers from, "
            f"but {root} is no git checkout and GITHUB_SHA is not set"
        )
    return process.stdout.strip()


def _stamp(site: Path, source: str, branch: Path | None) -> None:
    """Write the setup cell into the site's notebooks; copy them to `branch` if given."""
    if branch:
        shutil.rmtree(branch, ignore_errors=True)
    for path in sorted(site.glob("*/_sources/*.ipynb")):
        notebook = json.loads(path.read_text("utf8"))
        for cell in notebook["cells"]:
            if cell["id"] == SETUP:
                cell["source"] = source
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf8")
        if branch:
            copy = branch / path.parent.parent.name / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)


def _readable(log: str, root: Path) -> str:
    """Return Sphinx's warnings with paths relative to `root` and cell ids instead of lines."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", log).replace(f"{root}{os.sep}", "")

    def cell(match: re.Match[str]) -> str:
        number = int(match[2]) // 10_000  # MyST-NB numbers lines from 10000 * cell
        cells = json.loads((root / match[1]).read_text("utf8"))["cells"]
        return f"{match[1]}::{cells[number - 1].get('id', number)}:"

    log = re.sub(r"(\S+\.ipynb):(\d{5,}):", cell, log)
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(lines[-40:])


if __name__ == "__main__":  # python -m bookbuild.site.sphinx_build PYTHON OUT, by `make newest`
    try:
        write_pages(Book(Path.cwd()))
        build(Path.cwd(), Path(sys.argv[2]), python=sys.argv[1])
    except BookError as error:
        sys.exit(str(error))
