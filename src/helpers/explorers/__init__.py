"""Interactive figures: for each, its numbers in Python and the element that shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

LANGUAGES = ("en", "zh")


class Explorer:
    """Interactive figure: the element `<name-explorer data="…">` with its script, as an output.

    The script, `helpers/explorers/<name>.js`, defines the custom element `<name-explorer>` on the
    base of all explorers, `base.js`, which is included, because an output may stand alone. The
    element uses the language of the page around it, or of the browser if it stands alone.

    Args:
        name: the script's name, such as `"allocator"`.
        data: anything `json` can write; the element reads it from its `data` attribute.
        fallback: a sentence that describes the figure, under `"en"` and `"zh"`; it is shown if
            scripts do not run, in the language of the page.
        lang: `"en"` or `"zh"`, to choose the language of the labels.

    Raises:
        ValueError: no script of that name exists, `lang` is another language, or `fallback`
            lacks one.
    """

    def __init__(
        self, name: str, data: Any, fallback: Mapping[str, str], lang: str | None = None
    ) -> None:
        if lang not in (None, *LANGUAGES):
            raise ValueError(f"lang must be 'en', 'zh' or None, got {lang!r}")
        if set(fallback) != set(LANGUAGES):
            raise ValueError(f"fallback must have 'en' and 'zh', got {sorted(fallback)}")
        self.name, self.fallback, self.lang = f"{name}-explorer", fallback, lang
        self.script = f"{_script('base')}\n{_script(name)}"
        self.data = json.dumps(data, separators=(",", ":"))

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
