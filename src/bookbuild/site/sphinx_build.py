"""Build both languages of the book from one configuration, serve the site, pack it for offline."""

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
from typing import Any

import yaml

from bookbuild.notebooks import setup_cell
from bookbuild.pages import write as write_pages
from bookbuild.site import entry_pages, markdown_twins, redirects, root_files
from bookbuild.site.configuration import VARIABLES, setting, write_conf
from bookbuild.source.checkout import LANGUAGES, Book, BookError, fingerprint, program, write_text

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class BuildFailed(BookError):
    """The site could not be built without a warning; the message names page and warning."""


def build(
    root: Path, out: Path | None = None, quiet: bool = False, python: str = sys.executable
) -> Path:
    """Build the site of the book at `root`, both languages at once.

    What Sphinx has read is kept in `_build/cache`, so that only changed pages are read again. It is
    thrown away when the configuration, the templates, the program or a package changed, and when
    the last build failed; so the site is always the one that a build from clean would make.

    Args:
        root: the folder of `_config.yml`, `_toc.yml` and `book/`.
        out: where the site goes, `<root>/_build/site` by default; replaced only by a whole site.
        quiet: print no progress.
        python: the interpreter whose Sphinx builds the pages.

    Returns:
        The folder of the site: `index.html`, `en/`, `zh/`.

    Raises:
        BuildFailed: a page gave a warning or an error.
        BookError: the repository is set, but the commit is not known.
    """
    root = root.resolve()
    out = (out or root / "_build/site").resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    config = yaml.safe_load((root / "_config.yml").read_text("utf8"))
    cache = root / "_build" / ("cache" if python == sys.executable else "cache-of-another-sphinx")
    with _locked(cache) as lock:
        pages = _pages(root, config, cache, python, quiet, lock)
        _put(root, config, cache, out)
    if not quiet:
        print(f"{out}: {pages} pages in {time.monotonic() - start:.1f} s", flush=True)
    return out


@contextmanager
def _locked(cache: Path) -> Iterator[list[int]]:
    """One build at a time; what a killed build started keeps the lock until it ends.

    Yields what its processes inherit to keep it. Windows has no such lock: there it is on you.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        if fcntl is None:
            yield []
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield [file.fileno()]


def _pages(
    root: Path, config: dict[str, Any], cache: Path, python: str, quiet: bool, lock: list[int]
) -> int:
    """Bring the pages in the cache up to date; returns how many there are."""
    state = cache / "state.json"
    old = {}
    if python == sys.executable and state.exists():  # another's packages are not known here
        old = json.loads(state.read_text("utf8"))
    now = {"always": _frame(root, python), "pages": _sources(root)}
    if old.get("always") != now["always"]:
        for lang in LANGUAGES:
            shutil.rmtree(cache / lang, ignore_errors=True)
    if old != now:
        state.unlink(missing_ok=True)  # until it is whole
        with ThreadPoolExecutor(len(LANGUAGES)) as pool:
            job = partial(_language, root, config, cache, python, lock)
            told = list(filter(None, pool.map(job, LANGUAGES)))
        if told:
            raise BuildFailed("the site was not built:\n" + "\n".join(told))
        write_text(state, json.dumps(now))
    elif not quiet:
        print("nothing has changed", flush=True)
    return sum(len(list((cache / lang / "html").glob("*.html"))) for lang in LANGUAGES)


def _language(
    root: Path, config: dict[str, Any], cache: Path, python: str, lock: list[int], lang: str
) -> str:
    """Bring one language up to date; returns what it complained about."""
    work = cache / lang
    work.mkdir(exist_ok=True)
    if not (work / "conf.py").exists() and (told := write_conf(root, config, work, lang)):
        return told
    command = [python, "-m", "sphinx", "-q", "-W", "--keep-going", "--no-color", "-b", "html"]
    command += ["-c", work, "-d", work / "doctrees", "-D", f"external_toc_path={root}/_toc.yml"]
    command += ["-t", "repository"] if setting(config, "repository", "url") else []
    done = subprocess.run(
        [*command, root / "book" / lang, work / "html"],
        capture_output=True,
        text=True,
        pass_fds=lock,
    )
    return (_readable(done.stderr, root) or lang) if done.returncode else ""


def _frame(root: Path, python: str) -> str:
    """Fingerprint of all that every page depends on: program, configuration, looks, packages."""
    book = root / "book"
    folders = (book / name for name in ("_static", "_templates", "_locale"))
    files = [p for folder in folders for p in folder.rglob("*")]
    total = fingerprint([root / "_config.yml", root / "_toc.yml", *files])
    names = [p.name for p in (root / "src/helpers").glob("*.py")]
    settings = [os.environ.get(name) for name in VARIABLES.values()]
    return json.dumps([total, program(), python, sorted(names), settings])


def _sources(root: Path) -> str:
    """Fingerprint of the pages, and of the modules that the reference is made from."""
    files = [p for lang in LANGUAGES for p in (root / "book" / lang).rglob("*")]
    return fingerprint([*files, *(root / "src/helpers").rglob("*.py")])


def _put(root: Path, config: dict[str, Any], cache: Path, out: Path) -> None:
    """Put the pages in their place, with notebooks that know where the helpers are."""
    with tempfile.TemporaryDirectory(prefix=".building-", dir=out.parent) as name:
        made = Path(name) / "site"
        for lang in LANGUAGES:
            left = shutil.ignore_patterns(".buildinfo*", "objects.inv")
            shutil.copytree(cache / lang / "html", made / lang, ignore=left)
        if repository := setting(config, "repository", "url"):
            source = setup_cell.source(repository, commit(root))
            _stamp(made, source, root / "_build/notebooks")
        _beside(Book(root), config, made)
        if out.exists():
            out.rename(Path(name) / "old")
        made.rename(out)


def _beside(book: Book, config: dict[str, Any], site: Path) -> None:
    """Add what a site has beside its pages, for search engines, for programs, for old links."""
    languages, base = config["sphinx"]["config"]["languages"], setting(config, "html", "baseurl")
    names = {
        lang: (about["html_title"], about.get("author") or config["author"])
        for lang, about in ((lang, languages[lang]["config"]) for lang in LANGUAGES)
    }
    pages = [p.name for p in sorted((site / "en").glob("*.html")) if p.stem != "search"]
    pages += entry_pages.write(book, site, names, base)
    markdown_twins.write(book, site, names, base)
    root_files.root_files(book, site, names, base)
    root_files.sitemap(site, pages, base)
    root_files.robots(site, base)
    redirects.keep_moved(book, site)
    (site / ".nojekyll").touch()


def commit(root: Path) -> str:
    """The commit that the pages are built from: `GITHUB_SHA`, else the checkout's.

    Raises:
        BookError: there is neither.
    """
    if sha := os.environ.get("GITHUB_SHA"):
        return sha
    command = ["git", "-C", root, "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BookError(
            "the repository is set, so the notebooks need the commit to install the helpers from, "
            f"but {root} is no git checkout and GITHUB_SHA is not set"
        )
    return done.stdout.strip()


def _stamp(site: Path, source: str, branch: Path) -> None:
    """Write the setup cell into the notebooks of the site, and copies for the branch."""
    shutil.rmtree(branch, ignore_errors=True)
    for path in sorted(site.glob("*/_sources/*.ipynb")):
        notebook = json.loads(path.read_text("utf8"))
        for cell in notebook["cells"]:
            if cell["id"] == setup_cell.ID:
                cell["source"] = source
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf8")
        copy = branch / path.parent.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _readable(log: str, root: Path) -> str:
    """Sphinx's warnings with paths as the author knows them, and cells instead of lines."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", log).replace(f"{root}{os.sep}", "")

    def cell(match: re.Match[str]) -> str:
        number = int(match[2]) // 10_000  # MyST-NB counts about 10000 lines a cell
        cells = json.loads((root / match[1]).read_text("utf8"))["cells"]
        return f"{match[1]}::{cells[number - 1].get('id', number)}:"

    log = re.sub(r"(\S+\.ipynb):(\d{5,}):", cell, log)
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(lines[-40:])


# ---------------------------------------------------------------- configuration


# ---------------------------------------------------------------- reading it


if __name__ == "__main__":  # another interpreter's Sphinx: python -m bookbuild.site PYTHON OUT
    try:
        write_pages(Book(Path.cwd()))
        build(Path.cwd(), Path(sys.argv[2]), python=sys.argv[1])
    except BookError as error:
        sys.exit(str(error))
