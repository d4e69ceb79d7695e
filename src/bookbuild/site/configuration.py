"""Write Sphinx's configuration for each language from `_config.yml`."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx

from bookbuild.source.checkout import Book

NOTEBOOKS_BRANCH = "notebooks"  # pushed by .github/workflows/pages.yml for Colab and Binder
_PATHS = ("html_static_path", "templates_path", "locale_dirs")


def write_conf(book: Book, work: Path, lang: str) -> str:
    """Write Sphinx's `conf.py` for one language to `work`; return the errors in `_config.yml`.

    An empty string means that `conf.py` was written.
    """
    (work / "_config.yml").write_text(yaml.safe_dump(_config(book, lang)), "utf8")
    command = Path(sysconfig.get_path("scripts"), "jupyter-book"), "config", "sphinx"
    process = subprocess.run(
        [*command, "--config", work / "_config.yml", "--toc", book.root / "_toc.yml", book.root],
        capture_output=True,
        text=True,
    )
    # Jupyter Book only warns about an invalid value: raise an error instead.
    warnings = re.findall(r"^- .*\[key path: .*\]", process.stdout, re.M)
    if warnings:
        return "\n".join(f"_config.yml: {line[2:]}" for line in warnings)
    return process.stderr if process.returncode else ""


def _config(book: Book, lang: str) -> dict[str, Any]:
    """Return `_config.yml` for one language, with absolute paths.

    Without `repository.url`, repository links and launch buttons are disabled.
    """
    folder = book.root / "book" / lang
    config = json.loads(json.dumps(book.config))  # a deep copy of plain types, which YAML can write
    options = config.pop("languages")[lang]["config"]
    sphinx = config["sphinx"]["config"]
    theme = sphinx["html_theme_options"] | options.pop("html_theme_options", {})
    buttons = ("use_repository_button", "use_edit_page_button", "use_issues_button")
    theme |= dict.fromkeys(buttons, bool(book.repository))
    theme |= {
        "repository_url": book.repository,
        "repository_branch": NOTEBOOKS_BRANCH,
        "path_to_docs": f"{config['repository'].get('path_to_book') or 'book'}/{lang}",
    }
    if not book.repository:
        theme["launch_buttons"] = {"colab_url": "", "binderhub_url": ""}
    sphinx |= options | {
        "html_theme_options": theme,
        "html_baseurl": f"{book.address}/{lang}/" if book.address else "",
    }
    for key in _PATHS:
        sphinx[key] = [str((folder / path).resolve()) for path in sphinx[key]]
    config["logo"] = str((folder / config["logo"]).resolve())
    config["html"]["favicon"] = str((folder / config["html"]["favicon"]).resolve())
    return config


def language_of(app: Sphinx) -> str:
    """Return the language of this build, `"en"` or `"zh"`: the name of its source folder."""
    return Path(app.srcdir).name


@cache
def book_of(app: Sphinx) -> Book:
    """Return the book whose pages Sphinx builds."""
    return Book(Path(app.srcdir).parents[1])
