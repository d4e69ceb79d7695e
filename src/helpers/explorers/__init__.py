"""Provide interactive figures; each consists of a Python module and a JavaScript element."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

LANGUAGES = ("en", "zh")


class Explorer:
    """Cell output with the custom element `<name-explorer data="…">` and its script.

    The script, `helpers/explorers/<name>.js`, defines the element `<name-explorer>`, which extends
    the base element in `base.js`. Both scripts are included, because an output must be
    self-contained. The element uses the page's language, or without one the browser's.

    Args:
        name: the script's name, such as `"allocator"`.
        payload: JSON-serializable value; the element reads it from its `data` attribute.
        fallback: description of the figure by language (`"en"`, `"zh"`), shown if
            scripts do not run.
        lang: language of the labels, `"en"`, `"zh"` or None for the page's language.

    Raises:
        ValueError: the script does not exist, `lang` is invalid, or `fallback`
            lacks a language.
    """

    def __init__(
        self, name: str, payload: Any, fallback: Mapping[str, str], lang: str | None = None
    ) -> None:
        if lang not in (None, *LANGUAGES):
            raise ValueError(f"lang must be 'en', 'zh' or None, got {lang!r}")
        if set(fallback) != set(LANGUAGES):
            raise ValueError(f"fallback must have 'en' and 'zh', got {sorted(fallback)}")
        self.name, self.fallback, self.lang = f"{name}-explorer", fallback, lang
        self.script = f"{_script('base')}\n{_script(name)}"
        self.data = json.dumps(payload, separators=(",", ":"))

    def __repr__(self) -> str:
        return f"<{self.name}: {self.fallback['en']}>"

    def _repr_html_(self) -> str:
        lang = f' lang="{self.lang}"' if self.lang else ""
        name, texts = self.name, {key: escape(text) for key, text in self.fallback.items()}
        spans = "".join(f'<span lang="{key}">{texts[key]}</span>' for key in LANGUAGES)
        style = (
            f"{name} [lang=zh],{name}:lang(zh) [lang=en]{{display:none}}"
            f"{name}:lang(zh) [lang=zh]{{display:inline}}"
        )
        return (
            f'<{name}{lang} data="{escape(self.data)}">{spans}</{name}>\n'
            f"<style>{style}</style>\n<script>{self.script}</script>"
        )


@cache
def _script(name: str) -> str:
    folder = files("helpers") / "explorers"
    path = folder / f"{name}.js"
    if not path.is_file():
        scripts = (p.name for p in folder.iterdir() if p.name.endswith(".js"))
        known = sorted({script.removesuffix(".js") for script in scripts} - {"base"})
        raise ValueError(f"no explorer named {name!r}; there are {', '.join(known)}")
    lines = (line.strip() for line in path.read_text("utf8").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))
