"""The configuration of Sphinx for each language, made from `_config.yml`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import yaml

NOTEBOOKS_BRANCH = "notebooks"  # what Colab and Binder open; .github/workflows/pages.yml writes it


def write_conf(root: Path, config: dict[str, Any], work: Path, lang: str) -> str:
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


VARIABLES = {"repository": "BOOK_REPOSITORY_URL", "html": "BOOK_BASE_URL"}
_PATHS = ("html_static_path", "templates_path", "locale_dirs")


def _config(config: dict[str, Any], root: Path, lang: str) -> dict[str, Any]:
    """`_config.yml` of one language: its labels, absolute paths, links that lead somewhere."""
    book = root / "book" / lang
    made = json.loads(json.dumps(config))
    sphinx = made["sphinx"]["config"]
    theme = sphinx["html_theme_options"]
    url, base = setting(config, "repository", "url"), setting(config, "html", "baseurl")
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


def setting(config: dict[str, Any], section: str, key: str) -> str:
    """An address from the environment, else from `_config.yml`, without its last slash."""
    value = os.environ.get(VARIABLES[section]) or config.get(section, {}).get(key) or ""
    return value.rstrip("/")
