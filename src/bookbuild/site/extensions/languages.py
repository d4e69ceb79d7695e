"""Connect the builds of both languages: labels, anchors, language switch, addresses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.util.i18n import CatalogRepository

from bookbuild.site import helpers_wheel, metatags
from bookbuild.site.configuration import book_of, language_of
from bookbuild.site.extensions.search_records import kinds
from bookbuild.site.extensions.sphinx_internals import add_link_target
from bookbuild.source import headings, typography
from bookbuild.source.checkout import ERRORS_OF
from bookbuild.source.words import words

log = logging.getLogger(__name__)
# Source file of each generated page; None if it has several sources.
MADE_FROM = {
    "then_and_now": "book/claims.yml",
    "symptoms": "book/symptoms.yml",
    "review": "book/review.yml",
    "errors": None,
    "pitfalls": None,
    "by_name": None,
    "status": None,
    "teachers": None,
}


def translate_parts(app: Sphinx, config: Config) -> None:
    """Translate the names of the parts of the table of contents."""
    names = book_of(app).languages[language_of(app)].parts
    for page in config.external_site_map.values():
        for tree in page.subtrees:
            if names and tree.caption:
                if tree.caption not in names:
                    log.warning("no %s name for the part %r", language_of(app), tree.caption)
                tree.caption = names.get(tree.caption, tree.caption)


# ---------------------------------------------------------------- the same section


def titles(path: Path) -> list[str]:
    """Return the headings of a notebook or Markdown page, without markup, in order."""
    texts = [path.read_text("utf8")]
    if path.suffix == ".ipynb":
        cells = json.loads(texts[0])["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return [heading.plain for text in texts for heading in headings.headings(text)]


class SameAnchors(SphinxTransform):
    """Set the English headings' anchors on sections, so that both languages have the same."""

    default_priority = 200

    def apply(self) -> None:
        """Set the anchors of this page; warn if its headings do not match the English ones."""
        document, page = self.document, self.env.docname
        folder = Path(self.app.srcdir).parent / "en"
        english = next(
            (p for s in (".ipynb", ".md") if (p := folder / f"{page}{s}").exists()), None
        )
        if english is None:
            log.warning("there is no English page %s", page, location=page)
            return
        self.env.note_dependency(str(english))
        sections = [
            s
            for s in document.findall(nodes.section)  # skip sections inside exercises
            if isinstance(s.parent, (nodes.document, nodes.section)) and "generated" not in s
        ]
        expected = titles(english)
        if len(sections) != len(expected):
            message = "%d headings here, %d in the English %s"
            log.warning(message, len(sections), len(expected), english.name, location=page)
            return
        names = headings.anchors(expected)
        for section, anchor in zip(sections, names, strict=True):
            section["ids"] = [anchor, *(i for i in section["ids"] if i not in names)]
            document.ids[anchor] = section
            add_link_target(document, anchor, section, section[0].astext())
        if language_of(self.app) == "en":
            self.keep_messages(page, sections)

    def keep_messages(self, page: str, sections: list[nodes.section]) -> None:
        """Keep straight quotes if the Chinese heading has them too: it is an error message."""
        folder = Path(self.app.srcdir).parent / "zh"
        for path in (folder / f"{page}.ipynb", folder / f"{page}.md"):
            if path.exists():
                self.env.note_dependency(str(path))
                for section, chinese in zip(sections, titles(path), strict=False):
                    if "'" in chinese or '"' in chinese:
                        section[0]["support_smartquotes"] = False


KAGGLE = "https://kaggle.com/kernels/welcome?src=https://raw.githubusercontent.com/"
HAN = re.compile(f"[{typography.HAN}]")
WIDE = re.compile("[\u2018-\u201d\u2026\u3001-\u303f\uff00-\uffef]")  # full-width punctuation


class ChineseLines(SphinxTransform):
    """Join Chinese lines without the space that browsers insert at a line end."""

    default_priority = 205

    def apply(self) -> None:
        """Remove line ends between Chinese characters; each line end is a separate text node."""
        if language_of(self.app) != "zh":
            return
        for text in list(self.document.findall(nodes.Text)):
            siblings = text.parent.children
            place = next(i for i, node in enumerate(siblings) if node is text)
            before = "".join(n.astext() for n in siblings[:place])[-1:]
            after = "".join(n.astext() for n in siblings[place + 1 :])[:1]
            if text == "\n" and joined(before, after):
                text.parent.remove(text)


def joined(before: str, after: str) -> bool:
    """Return True if Chinese typography requires no space between two characters."""
    wide = WIDE.match(before) or WIDE.match(after)
    return bool(wide or (HAN.match(before) and HAN.match(after)))


# ---------------------------------------------------------------- the page


def page_context(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Add this page's translation, description and addresses to the template context."""
    book, home = book_of(app), page == app.config.root_doc
    translation = book.other_language(language_of(app))
    context["book_home_title"] = app.config.book_home_title
    context["book_translation"] = translation
    context["book_translation_url"] = f"{context['content_root']}../{translation.code}/{page}.html"
    if doctree is None:
        return
    about = metatags.Page(
        language=book.languages[language_of(app)],
        path=f"{page}.html",
        title=app.config.book_home_title if home else app.env.titles[page].astext(),
        description=app.env.metadata[page]["description"],
        address=book.address,
    )
    chapter = not home and kinds(app).get(page, ("", ""))[0] == "chapter"
    head = metatags.head(about, metatags.article(about) if chapter else None)
    copy = f'<link rel="alternate" type="text/markdown" href="{page}.md">'
    context["metatags"] = "\n".join([context.get("metatags", ""), copy, head])


def repository_links(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Point edit links to the source of a page, and prefill issues with the page's address.

    Add a launch button for Kaggle, which the theme does not support, and a menu item for the wheel
    that a downloaded notebook installs.
    """
    chapter = doctree is not None and app.env.doc2path(page).endswith(".ipynb")
    wheel = helpers_wheel.name(book_of(app)) if chapter else ""
    branch = book_of(app).config["repository"].get("branch") or "main"
    for group in context.get("header_buttons", []):
        if wheel and group.get("label") == "download-buttons":
            url = f"{context['content_root']}../{helpers_wheel.FOLDER}/{wheel}"
            tooltip = words(language_of(app), "downloads")["wheel"]
            button = {"type": "link", "url": url, "text": ".whl", "tooltip": tooltip}
            group["buttons"].insert(1, button)
        for button in list(group.get("buttons", [])):
            if button.get("text") == "Colab":
                notebook = button["url"].partition("/github/")[2].replace("/blob/", "/", 1)
                tooltip = button["tooltip"].replace("Colab", "Kaggle")
                group["buttons"].append(
                    button | {"text": "Kaggle", "tooltip": tooltip, "url": f"{KAGGLE}{notebook}"}
                )
            repository = button.get("url", "").split("/edit/")[0].split("/issues/")[0]
            if button.get("label") == "source-issues-button":
                button["url"] = (
                    f"{repository}/issues/new?title={quote(f'{language_of(app)}/{page}: ')}"
                )
            elif button.get("label") == "source-edit-button":
                if path := source(app, page):
                    button["url"] = f"{repository}/edit/{branch}/{path}"
                else:
                    group["buttons"].remove(button)


def source(app: Sphinx, page: str) -> str | None:
    """Return the file of the repository that a page is made from, if there is one."""
    if page in MADE_FROM:
        return MADE_FROM[page]
    if page.startswith(ERRORS_OF):
        return f"book/messages/{page.removeprefix(ERRORS_OF)}.yml"
    root = Path(app.srcdir).parents[1]
    text = root / f"book/text/{page}.md"
    return (text if text.exists() else Path(app.env.doc2path(page))).relative_to(root).as_posix()


def setup(app: Sphinx) -> None:
    """Register the transform and the events."""
    app.add_config_value("book_home_title", "", "html")
    folder = Path(app.srcdir).parent / "_locale"
    for catalog in CatalogRepository(folder, ["."], app.config.language, "utf-8").catalogs:
        catalog.write_mo(app.config.language)
    app.add_message_catalog("booktheme", folder)  # overrides the theme's own catalog
    app.add_transform(SameAnchors)
    app.add_transform(ChineseLines)
    app.connect("config-inited", translate_parts, priority=950)
    app.connect("html-page-context", page_context, priority=100)
    app.connect("html-page-context", repository_links, priority=600)
