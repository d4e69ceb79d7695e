"""Write the EPUB: one XHTML file per page of an edition, and the package that EPUB 3 requires."""

from __future__ import annotations

import datetime
import re
import uuid
import zipfile
from pathlib import Path

from bs4 import Tag
from markupsafe import Markup

from bookbuild.editions.edition import Edition, Page
from bookbuild.source.templates import render

_STYLE = Path(__file__).with_name("reader.css")
_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".gif": "image/gif", ".svg": "image/svg+xml"}


def make(edition: Edition, out: Path) -> None:
    """Write an edition as an EPUB file to `out`."""
    files: dict[str, str | bytes] = {"reader.css": _STYLE.read_text("utf8")}
    titles, properties, images = {}, {}, set()
    for page in edition.pages(still=True):
        style, body = _body(page, edition)
        titles[page.name] = page.title
        properties[page.name] = [
            kind for kind, tag in (("mathml", "math"), ("svg", "svg")) if page.article.find(tag)
        ]
        images |= {image["src"] for image in page.article.find_all("img", src=True)}
        values = {"title": page.title, "style": Markup(style), "body": Markup(body)}
        files[f"{page.name}.xhtml"] = render("editions", "page.xhtml", edition=edition, **values)
    shown = sorted(image for image in images if image.startswith("_images/"))
    files |= {name: (edition.site / edition.lang / name).read_bytes() for name in shown}
    for name in ("contents", "cover"):
        values = {"title": edition.words[name], "titles": titles, "style": ""}
        files[f"{name}.xhtml"] = render("editions", f"{name}.xhtml", edition=edition, **values)
    files["cover.svg"] = render("editions", "cover.svg", edition=edition)
    files["book.opf"] = render(
        "editions",
        "book.opf",
        edition=edition,
        id=uuid.uuid5(uuid.NAMESPACE_URL, f"{edition.base or edition.title}/{edition.lang}").urn,
        now=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        pages=properties,
        images={name: _TYPES[Path(name).suffix] for name in shown},
    )
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", render("editions", "container.xml"))
        for name, content in files.items():
            archive.writestr(f"book/{name}", content)


def _body(page: Page, edition: Edition) -> tuple[str, str]:
    """Return the style of a page's figures and its body, as XHTML with formulas in MathML."""
    article = page.article
    for formula in article.select(".katex"):
        maths = formula.math
        for node in maths.find_all("annotation"):
            node.decompose()
        maths["alttext"] = maths.get_text()
        formula.replace_with(maths)
    style = "".join(sorted({node.extract().get_text() for node in article.find_all("style")}))
    light = style.split(":is(html", 1)[0]  # the rules after it are for the dark theme
    colours = dict(re.findall(r"--(fig-[\w-]+):\s*(#\w+)", light))
    for node in article.find_all(True):
        node.attrs = {key: value for key, value in node.attrs.items() if _kept(node, key)}
    for link in article.select("a[href]"):
        link["href"] = re.sub(r"^([\w-]+)\.html(?=#|$)", r"\1.xhtml", link["href"])
    for traceback in article.select(".cell_output pre"):
        _narrow(traceback)
    for drawing in article.find_all("svg"):
        _draw(drawing, edition.lang)
    return _coloured(light, colours), _coloured(page.html(), colours)


def _kept(node: Tag, key: str) -> bool:
    """Return True if EPUB readers support this attribute of `node`."""
    role = key == "role" and node.name == "figure"  # <figure> has this role implicitly
    return not (role or key == "tabindex" or key.startswith("data-"))


def _narrow(pre: Tag) -> None:
    """Remove the rule above a traceback and shorten the indentation of its first line."""
    for text in pre.find_all(string=re.compile(r"^-{70,}\n$")):
        text.extract()
    for text in pre.find_all(string=re.compile("^ {8,}Traceback ")):
        text.replace_with(f"  {text.lstrip()}")


def _coloured(text: str, colours: dict[str, str]) -> str:
    """Replace CSS variables by their values, because EPUB readers do not support them."""
    return re.sub(r"var\(--(fig-[\w-]+)\)", lambda m: colours.get(m[1], "currentColor"), text)


def _draw(svg: Tag, lang: str) -> None:
    """Make a drawing well-formed XML and keep only the labels of one language."""
    svg["xmlns"], svg["xmlns:xlink"] = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
    for node in svg.find_all(lang=True):
        if node["lang"] != lang:
            node.decompose()
        else:
            del node["lang"]
    for node in svg.find_all(href=True):
        node["xlink:href"] = node.attrs.pop("href")
