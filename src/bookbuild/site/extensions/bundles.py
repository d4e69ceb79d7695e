"""Light pages: one style sheet with the rules that pages use, one script, no icon fonts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import tinycss2
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from bookbuild.source.checkout import digest

STYLE, SCRIPT = "styles/site.css", "scripts/site.js"  # styles/: the themes' url()s stay right
# The templates of the theme link these; the templates of the book link the bundles instead.
THEME_STYLE = "styles/pydata-sphinx-theme.css"
THEME_SCRIPT = "scripts/pydata-sphinx-theme.js"
OWN_LINK = {"katex.min.css"}  # only some pages need it
UNUSED = (
    *("locales", "vendor/fontawesome", "*webpack-macros.html", "*.png", "scripts/bootstrap*"),
    *("scripts/fontawesome*", "**/*.map", "images/logo_*"),
    *("searchtools.js", "language_data.js", "translations.js"),  # of Sphinx's search
)
# The theme measures each code block when a page is loaded, so that the browser has to lay out the
# whole page; book.js measures a block when it comes into sight.
MEASURES_ALL = re.compile(
    r'"complete"===document\.readyState\?(\w+)\(\):window\.addEventListener\("load",\1\)'
)
COMMENTS = re.compile(r"^[ \t]*//.*\n", re.M)
HOME_STYLE, HOME_SCRIPT = "progress.css", "progress.js"  # of the home page alone
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
INDENT = re.compile(r"^[ \t]+", re.M)  # no string of our scripts goes over several lines
LEFT_OUT = {"doctools.js", "sphinx_highlight.js", "translations.js"}  # they serve Sphinx's search


def bundle(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Link the two bundles instead of their parts: files, and scripts written in the page.

    The script that sets the page's own name is left out: only Sphinx's search reads it.
    """
    styles = [THEME_STYLE, *(name(file) for file in context["css_files"])]
    context["css_files"] = [f for f in context["css_files"] if name(f) in OWN_LINK]
    scripts = [
        name(file) or getattr(file, "attributes", {}).get("body", "")
        for file in context["script_files"]
        if name(file) not in LEFT_OUT
    ]
    context["script_files"] = []
    app.book_bundles[page] = {
        STYLE: [s for s in styles if s and s not in OWN_LINK],
        SCRIPT: [s for s in scripts if s and "DOCUMENTATION_OPTIONS.pagename" not in s],
    }
    context["bundle"] = {"style": STYLE, "script": SCRIPT}


def name(file: object) -> str:
    """Return the name of a linked file below `_static/`, empty for a script written in the page."""
    return (getattr(file, "filename", "") or "").removeprefix("_static/").split("?")[0]


def bundled(app: Sphinx) -> dict[str, list[str]]:
    """Return the parts of the bundles: of all pages, also those that an earlier build wrote."""
    file = Path(app.doctreedir) / "bundles.json"
    if file.exists():
        app.book_bundles = json.loads(file.read_text("utf8")) | app.book_bundles
    file.write_text(json.dumps(app.book_bundles), "utf8")
    parts: dict[str, list[str]] = {STYLE: [], SCRIPT: []}
    for _, page in sorted(app.book_bundles.items()):
        for bundle, known in parts.items():
            known += [part for part in page[bundle] if part not in known]
    return parts


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the bundles, once the theme has written its last style sheet."""
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"

    def text(part: str) -> str:
        return (static / part).read_text("utf8") if is_file(static, part) else part

    bundles = bundled(app)
    bundles[SCRIPT].append(THEME_SCRIPT)
    own = [file[0] for file in (*app.config.html_css_files, *app.config.html_js_files)]
    for parts in bundles.values():  # ours last, in their order: they override
        parts.sort(key=lambda part: own.index(part) if part in own else -1)
    scripts = {part: text(part) for part in bundles[SCRIPT]}
    for part in set(scripts).intersection(own):
        scripts[part] = light(scripts[part])
    # in a task of its own: it lays the page out for what it measures
    scripts[THEME_SCRIPT] = f'addEventListener("load", () => {{\n{scripts[THEME_SCRIPT]}\n}})'
    script = "\n;".join(scripts.values())  # some leave out their last ;
    script = re.sub(r"^//# sourceMappingURL=.*$", "", script, flags=re.M)
    script, count = MEASURES_ALL.subn("0", script)
    if count != 1:
        raise ExtensionError(
            f"{THEME_SCRIPT}: expected one place that measures all blocks of code, found {count}: "
            "adapt MEASURES_ALL in bundles.py to this version of the theme"
        )
    style = "\n".join(text(part) for part in bundles[STYLE])
    pages = [p.read_text("utf8") for p in Path(app.outdir).glob("**/*.html")]
    later = [p.read_text("utf8") for p in static.glob("search.js")]  # loaded when it is needed
    words = {w for source in (*pages, script, *later) for w in re.findall(r"[\w-]+", source)}
    write_home(static)
    (static / SCRIPT).write_text(script, "utf8")
    (static / STYLE).write_text(purged(app, style, words), "utf8")
    parts = [static / part for names in bundles.values() for part in names if is_file(static, part)]
    parts += [static / part for part in LEFT_OUT if is_file(static, part)]
    for path in {*parts, *(path for pattern in UNUSED for path in static.glob(pattern))}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def purged(app: Sphinx, style: str, words: set[str]) -> str:
    """Return a style sheet with the rules that `purge` keeps.

    The result is stored with the classes that it depends on, because parsing takes longer than the
    rest of a build that changes a sentence.
    """
    classes = sorted(words.intersection(CLASS.findall(style)))
    key = digest(json.dumps([style, classes]))
    file = Path(app.doctreedir) / "style.json"
    stored = json.loads(file.read_text("utf8")) if file.exists() else {}
    if stored.get("key") != key:
        stored = {"key": key, "style": purge(parsed(style), words)}
        file.write_text(json.dumps(stored), "utf8")
    return stored["style"]


def write_home(static: Path) -> None:
    """Make the script and the style sheet of the home page light, as the bundles are."""
    script, style = static / HOME_SCRIPT, static / HOME_STYLE
    if script.is_file():
        text = light(script.read_text("utf8"))
        script.write_text(text, "utf8")
        rules = purge(parsed(style.read_text("utf8")), set(re.findall(r"[\w-]+", text)))
        style.write_text(rules, "utf8")


def is_file(static: Path, part: str) -> bool:
    """Return True if a part of a bundle is a file, not a script written in the page."""
    return len(part) < 200 and (static / part).is_file()


def light(script: str) -> str:
    """Return a script of the book without comments on lines of their own and indentation."""
    return INDENT.sub("", COMMENTS.sub("", script))


def parsed(style: str) -> list:
    """Return the rules of a style sheet."""
    return tinycss2.parse_stylesheet(style, skip_comments=True, skip_whitespace=True)


def purge(rules: list, words: set[str]) -> str:
    """Return the rules whose classes all occur in a page or a script, without icon fonts."""
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [s for s in split(tinycss2.serialize(rule.prelude)) if used(s, words)]
            if selectors:
                body = tinycss2.serialize(rule.content).strip()
                kept.append(f"{','.join(selectors)}{{{body}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            inner = purge(tinycss2.parse_rule_list(rule.content, True, True), words)
            if inner:
                kept.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword not in ("font-face", "charset"):
            kept.append(rule.serialize())
    return "".join(kept)


def used(selector: str, words: set[str]) -> bool:
    """Return True if every class of a selector, outside `:not()`, is among `words`."""
    names = CLASS.findall(re.sub(r":not\([^)]*\)", "", selector))
    return all(name in words for name in names)


def split(selectors: str) -> list[str]:
    """Return the selectors of a list, split at its outer commas."""
    parts, depth = [""], 0
    for character in selectors:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.book_bundles = {}
    app.connect("html-page-context", bundle, priority=950)
    app.connect("build-finished", write, priority=950)  # the theme rewrites pygments.css at 500
