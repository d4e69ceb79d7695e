"""Bundle style sheets and scripts: only the CSS rules in use, one script, no icon fonts."""

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

STYLE, SCRIPT = "styles/site.css", "scripts/site.js"  # in styles/, relative url()s stay valid
# Files that the theme's templates link; the book's templates link the bundles instead.
THEME_STYLE = "styles/pydata-sphinx-theme.css"
THEME_SCRIPT = "scripts/pydata-sphinx-theme.js"
OWN_LINK = {"katex.min.css"}  # linked separately, because only pages with formulas need it
UNUSED = (
    *("locales", "vendor/fontawesome", "*webpack-macros.html", "*.png", "scripts/bootstrap*"),
    *("scripts/fontawesome*", "**/*.map", "images/logo_*"),
    *("searchtools.js", "language_data.js"),  # of Sphinx's search
)
# The theme measures each code block when a page loads, which makes the browser lay out the
# whole page; book.js measures a block when it scrolls into view.
MEASURES_ALL = re.compile(
    r'"complete"===document\.readyState\?(\w+)\(\):window\.addEventListener\("load",\1\)'
)
COMMENTS = re.compile(r"^[ \t]*//.*\n", re.M)
HOME_STYLE, HOME_SCRIPT = "progress.css", "progress.js"  # used only on the home page
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
INDENT = re.compile(r"^[ \t]+", re.M)  # safe, because no string in the scripts spans lines
SPHINX_SEARCH_SCRIPTS = {"doctools.js", "sphinx_highlight.js", "translations.js"}


def bundle(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Link the two bundles instead of their parts: linked files and inline scripts.

    The inline script with the page's name is left out, because only Sphinx's search reads it.
    """
    styles = [THEME_STYLE, *(static_path(file) for file in context["css_files"])]
    context["css_files"] = [f for f in context["css_files"] if static_path(f) in OWN_LINK]
    scripts = [
        static_path(file) or getattr(file, "attributes", {}).get("body", "")
        for file in context["script_files"]
        if static_path(file) not in SPHINX_SEARCH_SCRIPTS
    ]
    context["script_files"] = []
    app.book_bundles[page] = {
        STYLE: [s for s in styles if s and s not in OWN_LINK],
        SCRIPT: [s for s in scripts if s and "DOCUMENTATION_OPTIONS.pagename" not in s],
    }
    context["bundle"] = {"style": STYLE, "script": SCRIPT}


def static_path(file: object) -> str:
    """Return a linked file's path below `_static/`, or "" for an inline script."""
    return (getattr(file, "filename", "") or "").removeprefix("_static/").split("?")[0]


def bundled(app: Sphinx) -> dict[str, list[str]]:
    """Return the parts of each bundle for all pages, including pages of earlier builds."""
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
    """Write the bundles after the theme has written its last style sheet."""
    if error or app.builder.format != "html":
        return
    static, bundles = Path(app.outdir) / "_static", bundled(app)
    bundles[SCRIPT].append(THEME_SCRIPT)
    own = [file[0] for file in (*app.config.html_css_files, *app.config.html_js_files)]
    for parts in bundles.values():  # the book's files last and in order, because they override
        parts.sort(key=lambda part: own.index(part) if part in own else -1)
    script = bundled_script(static, bundles[SCRIPT], own)
    style = "\n".join(contents(static, part) for part in bundles[STYLE])
    pages = [p.read_text("utf8") for p in Path(app.outdir).glob("**/*.html")]
    later = [p.read_text("utf8") for p in static.glob("search.js")]  # loaded on demand
    words = {w for source in (*pages, script, *later) for w in re.findall(r"[\w-]+", source)}
    write_home(static)
    (static / SCRIPT).write_text(script, "utf8")
    (static / STYLE).write_text(purged(app, style, words), "utf8")
    delete_parts(static, [*bundles[STYLE], *bundles[SCRIPT]])


def contents(static: Path, part: str) -> str:
    """Return the text of a part of a bundle: of its file, or the inline script itself."""
    return (static / part).read_text("utf8") if is_file(static, part) else part


def bundled_script(static: Path, parts: list[str], own: list[str]) -> str:
    """Return the parts as one script; the files in `own` are minified.

    Raises:
        ExtensionError: this version of the theme measures code blocks in another way.
    """
    scripts = {part: contents(static, part) for part in parts}
    for part in set(scripts).intersection(own):
        scripts[part] = minified(scripts[part])
    # delay the theme's script until `load`, because its measurements force a layout
    scripts[THEME_SCRIPT] = f'addEventListener("load", () => {{\n{scripts[THEME_SCRIPT]}\n}})'
    script = "\n;".join(scripts.values())  # some scripts end without a semicolon
    script = re.sub(r"^//# sourceMappingURL=.*$", "", script, flags=re.M)
    script, count = MEASURES_ALL.subn("0", script)
    if count != 1:
        raise ExtensionError(
            f"{THEME_SCRIPT}: expected one place that measures all blocks of code, found {count}: "
            "adapt MEASURES_ALL in bundles.py to this version of the theme"
        )
    return script


def delete_parts(static: Path, parts: list[str]) -> None:
    """Delete the files that the bundles replace, and files that no page uses."""
    replaced = [static / part for part in (*parts, *SPHINX_SEARCH_SCRIPTS) if is_file(static, part)]
    for path in {*replaced, *(path for pattern in UNUSED for path in static.glob(pattern))}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def purged(app: Sphinx, style: str, words: set[str]) -> str:
    """Return a style sheet reduced to the rules that `purge` keeps.

    The result is cached with the classes it depends on, because parsing takes longer than the rest
    of an incremental build.
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
    """Minify the script and the style sheet of the home page in the same way as the bundles."""
    script, style = static / HOME_SCRIPT, static / HOME_STYLE
    if script.is_file():
        text = minified(script.read_text("utf8"))
        script.write_text(text, "utf8")
        rules = purge(parsed(style.read_text("utf8")), set(re.findall(r"[\w-]+", text)))
        style.write_text(rules, "utf8")


def is_file(static: Path, part: str) -> bool:
    """Return True if a part of a bundle is a file and not an inline script."""
    return len(part) < 200 and (static / part).is_file()


def minified(script: str) -> str:
    """Return a script of the book without full-line comments and indentation."""
    return INDENT.sub("", COMMENTS.sub("", script))


def parsed(style: str) -> list:
    """Parse a style sheet and return its rules."""
    return tinycss2.parse_stylesheet(style, skip_comments=True, skip_whitespace=True)


def purge(rules: list, words: set[str]) -> str:
    """Return the text of the rules whose classes all occur in `words`, without icon fonts."""
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            prelude = tinycss2.serialize(rule.prelude)
            selectors = [s for s in selector_list(prelude) if is_used(s, words)]
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


def is_used(selector: str, words: set[str]) -> bool:
    """Return True if every class of a selector, outside `:not()`, is among `words`."""
    names = CLASS.findall(re.sub(r":not\([^)]*\)", "", selector))
    return all(name in words for name in names)


def selector_list(selectors: str) -> list[str]:
    """Split a selector list at its top-level commas."""
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
    app.connect("build-finished", write, priority=950)  # after 500: the theme writes pygments.css
