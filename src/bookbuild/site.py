"""Build both languages of the book from one configuration, serve the site, pack it for offline."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from bookbuild import editions, entries, publish, setup_cell, twins
from bookbuild.book import LANGUAGES, Book, BookError, fingerprint, program, write_text

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NOTEBOOKS_BRANCH = "notebooks"  # what Colab and Binder open; .github/workflows/pages.yml writes it


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
    if not (work / "conf.py").exists() and (told := _conf(root, config, work, lang)):
        return told
    command = [python, "-m", "sphinx", "-q", "-W", "--keep-going", "--no-color", "-b", "html"]
    command += ["-c", work, "-d", work / "doctrees", "-D", f"external_toc_path={root}/_toc.yml"]
    command += ["-t", "repository"] if _setting(config, "repository", "url") else []
    done = subprocess.run(
        [*command, root / "book" / lang, work / "html"],
        capture_output=True,
        text=True,
        pass_fds=lock,
    )
    return (_readable(done.stderr, root) or lang) if done.returncode else ""


def _conf(root: Path, config: dict[str, Any], work: Path, lang: str) -> str:
    """Write Sphinx's `conf.py` of one language; returns what is wrong with the configuration."""
    (work / "_config.yml").write_text(yaml.safe_dump(_config(config, root, lang)), "utf8")
    command = Path(sysconfig.get_path("scripts"), "jupyter-book"), "config", "sphinx"
    done = subprocess.run(
        [*command, "--config", work / "_config.yml", "--toc", root / "_toc.yml", root],
        capture_output=True,
        text=True,
    )
    wrong = re.findall(r"^- .*\[key path: .*\]", done.stdout, re.M)
    if wrong:  # Jupyter Book only warns
        return "\n".join(f"_config.yml: {line[2:]}" for line in wrong)
    return done.stderr if done.returncode else ""


def _frame(root: Path, python: str) -> str:
    """Fingerprint of all that every page depends on: program, configuration, looks, packages."""
    book = root / "book"
    folders = (book / name for name in ("_static", "_templates", "_locale"))
    files = [p for folder in folders for p in folder.rglob("*")]
    total = fingerprint([root / "_config.yml", root / "_toc.yml", *files])
    names = [p.name for p in (root / "src/helpers").glob("*.py")]
    settings = [os.environ.get(name) for name in _VARIABLES.values()]
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
        if repository := _setting(config, "repository", "url"):
            source = setup_cell.source(repository, commit(root))
            _stamp(made, source, root / "_build/notebooks")
        _beside(Book(root), config, made)
        if out.exists():
            out.rename(Path(name) / "old")
        made.rename(out)


def _beside(book: Book, config: dict[str, Any], site: Path) -> None:
    """Add what a site has beside its pages, for search engines, for programs, for old links."""
    languages, base = config["sphinx"]["config"]["languages"], _setting(config, "html", "baseurl")
    names = {
        lang: (about["html_title"], about.get("author") or config["author"])
        for lang, about in ((lang, languages[lang]["config"]) for lang in LANGUAGES)
    }
    pages = [p.name for p in sorted((site / "en").glob("*.html")) if p.stem != "search"]
    pages += entries.write(book, site, names, base)
    twins.write(book, site, names, base)
    publish.root_files(book, site, names, base)
    publish.sitemap(site, pages, base)
    publish.robots(site, base)
    publish.keep_moved(book, site)
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

_VARIABLES = {"repository": "BOOK_REPOSITORY_URL", "html": "BOOK_BASE_URL"}
_PATHS = ("html_static_path", "templates_path", "locale_dirs")


def _config(config: dict[str, Any], root: Path, lang: str) -> dict[str, Any]:
    """`_config.yml` of one language: its labels, absolute paths, links that lead somewhere."""
    book = root / "book" / lang
    made = json.loads(json.dumps(config))
    sphinx = made["sphinx"]["config"]
    theme = sphinx["html_theme_options"]
    url, base = _setting(config, "repository", "url"), _setting(config, "html", "baseurl")
    buttons = ("use_repository_button", "use_edit_page_button", "use_issues_button")
    theme |= dict.fromkeys(buttons, bool(url))
    theme |= {
        "repository_url": url,
        "repository_branch": NOTEBOOKS_BRANCH,
        "path_to_docs": f"{config['repository'].get('path_to_book') or 'book'}/{lang}",
    }
    if not url:
        theme["launch_buttons"] = {"colab_url": "", "binderhub_url": ""}
    language = dict(sphinx["languages"][lang]["config"])
    theme |= language.pop("html_theme_options", {})
    sphinx |= language | {
        "html_baseurl": f"{base}/{lang}/" if base else "",
        "book_baseurl": base,
        "book_branch": config["repository"].get("branch") or "main",
    }
    for key in _PATHS:
        sphinx[key] = [str((book / path).resolve()) for path in sphinx[key]]
    made["logo"] = str((book / made["logo"]).resolve())
    made["html"]["favicon"] = str((book / made["html"]["favicon"]).resolve())
    return made


def _setting(config: dict[str, Any], section: str, key: str) -> str:
    """An address from the environment, else from `_config.yml`, without its last slash."""
    value = os.environ.get(_VARIABLES[section]) or config.get(section, {}).get(key) or ""
    return value.rstrip("/")


# ---------------------------------------------------------------- reading it


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing about each request."""


def server(site: Path, port: int = 8000) -> ThreadingHTTPServer:
    """A server of the site on 127.0.0.1, on a free port if `port` is taken."""
    handler = partial(_Quiet, directory=str(site))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)


def serve(site: Path, port: int = 8000) -> None:
    """Serve the site until Ctrl+C, and print its address.

    Raises:
        BookError: `site` was not built.
    """
    if not (site / "index.html").is_file():
        raise BookError(f"there is no site in {site}: run `book build` first")
    with server(site, port) as http:
        print(f"Reading on http://127.0.0.1:{http.server_port}/ (Ctrl+C stops)", flush=True)
        try:
            http.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped", flush=True)


def offer(book: Book, kinds: Iterable[str]) -> list[Path]:
    """Put files to take along at the root of the built site, and links on its home pages.

    A site that is built anew has neither.

    Args:
        book: whose site it is.
        kinds: of `"pdf"`, `"epub"` and `"zip"`.

    Raises:
        BookError: there is no site, or a file could not be made.
    """
    site = book.root / "_build/site"
    if not (site / "index.html").is_file():
        raise BookError(f"there is no site in {site}: run `book build` first")
    base = _setting(book.config, "html", "baseurl")
    made = [path for kind in kinds for path in editions.make(book, site, base, kind)]
    editions.link(site, made)
    return made


if __name__ == "__main__":  # another interpreter's Sphinx: python -m bookbuild.site PYTHON OUT
    try:
        build(Path.cwd(), Path(sys.argv[2]), python=sys.argv[1])
    except BookError as error:
        sys.exit(str(error))
