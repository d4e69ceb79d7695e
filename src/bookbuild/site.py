"""Build both languages of the book from one configuration, serve the site, pack it for offline."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from bookbuild.book import LANGUAGES, BookError

ZIP_NAME = "executable-pytorch-notes"


class BuildFailed(BookError):
    """The site could not be built without a warning; the message names page and warning."""


def build(root: Path, out: Path | None = None, quiet: bool = False) -> Path:
    """Build the site of the book at `root`, from clean, both languages at once.

    Args:
        root: the folder of `_config.yml`, `_toc.yml` and `book/`.
        out: where the site goes, `<root>/_build/site` by default; replaced only by a whole site.
        quiet: print no progress.

    Returns:
        The folder of the site: `index.html`, `en/`, `zh/`.

    Raises:
        BuildFailed: a page gave a warning or an error.
    """
    root = root.resolve()
    out = (out or root / "_build/site").resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=out.parent) as name:
        made = Path(name) / "site"
        made.mkdir()
        start = time.monotonic()
        _run_builds(root, made, Path(name), quiet)
        shutil.rmtree(made / "jupyter_execute", ignore_errors=True)  # MyST-NB's copies of figures
        shutil.copy(root / "book/index.html", made)
        (made / ".nojekyll").touch()
        if out.exists():
            out.rename(Path(name) / "old")
        made.rename(out)
    if not quiet:
        print(f"{out}: both languages in {time.monotonic() - start:.0f} s", flush=True)
    return out


def _run_builds(root: Path, made: Path, work: Path, quiet: bool) -> None:
    """Build each language in a process of its own."""
    logs = {lang: work / f"{lang}.log" for lang in LANGUAGES}
    jobs = {}
    try:
        for lang, log in logs.items():
            command = [sys.executable, "-m", "bookbuild.site", root, lang, made / lang]
            with log.open("w") as stderr:
                stdout = subprocess.DEVNULL if quiet else None
                jobs[lang] = subprocess.Popen(
                    command, stdout=stdout, stderr=stderr, env=os.environ | {"NO_COLOR": "1"}
                )
        failed = [lang for lang, job in jobs.items() if job.wait()]
    finally:
        for job in jobs.values():
            job.kill()
            job.wait()
    if failed:
        told = [_readable(logs[lang].read_text("utf8"), root) or lang for lang in failed]
        raise BuildFailed("the site was not built:\n" + "\n".join(told))


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


def _build_language(root: Path, lang: str, out: Path) -> int:
    """Build one language; 0 if there was no warning."""
    from jsonschema import ValidationError
    from jupyter_book.config import validate_yaml
    from jupyter_book.sphinx import build_sphinx

    start = time.monotonic()
    path = root / "_config.yml"
    config = yaml.safe_load(path.read_text("utf8"))
    try:
        validate_yaml(config, raise_on_errors=True)
    except ValidationError as error:
        print(f"_config.yml: {error.message}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as doctrees:
        status = build_sphinx(
            root / "book" / lang,
            out,
            path_config=path,
            noconfig=True,
            confoverrides=overrides(config, root, lang),
            tags=["repository"] if _setting(config, "repository", "url") else [],
            doctreedir=doctrees,
            freshenv=True,
            quiet=True,
            warningiserror=True,
            keep_going=True,
        )
    for name in (".buildinfo", "objects.inv"):
        (out / name).unlink(missing_ok=True)
    if status == 0:
        pages = len(list(out.glob("*.html")))
        print(f"[{lang}] {pages} pages in {time.monotonic() - start:.1f} s", flush=True)
    return 0 if status == 0 else 1


def overrides(config: dict[str, Any], root: Path, lang: str) -> dict[str, Any]:
    """What differs from `_config.yml` in one language, and where the book and its site live."""
    url = _setting(config, "repository", "url")
    base = _setting(config, "html", "baseurl")
    theme: dict[str, Any] = {
        "repository_url": url,
        "path_to_docs": f"{config['repository'].get('path_to_book') or 'book'}/{lang}",
        **dict.fromkeys(
            ("use_repository_button", "use_edit_page_button", "use_issues_button"), bool(url)
        ),
    }
    if not url:
        theme["launch_buttons"] = {"colab_url": "", "binderhub_url": ""}
    language = dict(config["sphinx"]["config"]["languages"][lang]["config"])
    theme |= language.pop("html_theme_options", {})
    return {
        **language,
        "html_theme_options": theme,
        "html_baseurl": f"{base}/{lang}/" if base else "",
        "book_baseurl": base,
        "external_toc_path": str(root / "_toc.yml"),
        "latex_individualpages": False,
    }


def _setting(config: dict[str, Any], section: str, key: str) -> str:
    """An address from the environment, else from `_config.yml`, without its last slash."""
    variable = {"repository": "BOOK_REPOSITORY_URL", "html": "BOOK_BASE_URL"}[section]
    return (os.environ.get(variable) or config.get(section, {}).get(key) or "").rstrip("/")


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


def zip_site(site: Path) -> Path:
    """Pack the site for reading offline; open `index.html` of the unpacked folder.

    Returns:
        The zip, beside the folder of the site.

    Raises:
        BookError: `site` was not built.
    """
    if not (site / "index.html").is_file():
        raise BookError(f"there is no site in {site}: run `book build` first")
    path = site.parent / f"{ZIP_NAME}.zip"
    partial_path = path.with_suffix(".zip.part")
    with zipfile.ZipFile(partial_path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in site.rglob("*") if p.is_file()):
            archive.write(file, Path(ZIP_NAME) / file.relative_to(site))
    return partial_path.replace(path)


if __name__ == "__main__":
    sys.exit(_build_language(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
