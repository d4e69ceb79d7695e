"""The EPUB: a file for each page of an edition, as EPUB 3 wants it."""

from __future__ import annotations

import datetime
import re
import uuid
import zipfile
from html import escape
from pathlib import Path

from bookbuild.editions.edition import Edition, Page

_STYLE = Path(__file__).with_name("reader.css")
_CONTAINER = """\
<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles>
<rootfile full-path="book/book.opf" media-type="application/oebps-package+xml"/>
</rootfiles>
</container>
"""
_OPF = """\
<?xml version="1.0" encoding="UTF-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id"
 xml:lang="{code}">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:identifier id="id">{id}</dc:identifier>
<dc:title>{title}</dc:title>
<dc:language>{code}</dc:language>
<dc:creator>{author}</dc:creator>
<dc:rights>CC BY 4.0, code: MIT</dc:rights>
<meta property="dcterms:modified">{now}</meta>
</metadata>
<manifest>
<item id="contents" href="contents.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="cover-image" href="cover.svg" media-type="image/svg+xml" properties="cover-image"/>
<item id="style" href="reader.css" media-type="text/css"/>
{items}
</manifest>
<spine>
{spine}
</spine>
</package>
"""
_PAGE = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"
 lang="{code}" xml:lang="{code}">
<head>
<title>{title}</title>
<link rel="stylesheet" href="reader.css" type="text/css"/>
{style}
</head>
<body>
{body}
</body>
</html>
"""
_COVER = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 800" width="600" height="800">
<rect width="600" height="800" fill="#12395b"/>
<rect x="40" y="40" width="520" height="720" fill="none" stroke="#fff" stroke-width="2"/>
<g fill="#fff" text-anchor="middle" font-family="sans-serif">
{lines}
</g>
</svg>
"""
# The head of a traceback is as wide as a screen.
_RULE = re.compile(r"(?:-{70,}\n)((?:<[^>]+>)?\w+(?:</span>)?) {8,}(Traceback )")
_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".gif": "image/gif", ".svg": "image/svg+xml"}


def make(edition: Edition, out: Path) -> None:
    """Write an edition."""
    title, code, words = escape(edition.title), edition.code, edition.words
    files: dict[str, str | bytes] = {"cover.svg": _cover(edition)}
    styles, titles = {}, {}
    for page in edition.pages(still=True):
        styles[page.name], body = _body(page, edition)
        titles[page.name] = escape(page.title)
        style = f"<style>{styles[page.name]}</style>" if styles[page.name] else ""
        files[f"{page.name}.xhtml"] = _PAGE.format(
            code=code, title=titles[page.name], style=style, body=body
        )
    listed = "\n".join(
        f"<li><span>{escape(part)}</span><ol>"
        + "".join(f'<li><a href="{n}.xhtml">{titles[n]}</a></li>' for n in names)
        + "</ol></li>"
        for part, names in edition.parts()
    )
    nav = f'<nav epub:type="toc" id="toc"><h1>{words["contents"]}</h1><ol>\n{listed}\n</ol></nav>'
    cover = f'<div class="cover"><img src="cover.svg" alt="{title}"/></div>'
    for name, head, body in (
        ("contents", words["contents"], nav),
        ("cover", words["cover"], cover),
    ):
        files[f"{name}.xhtml"] = _PAGE.format(code=code, title=head, style="", body=body)
    shown = {n for text in files.values() for n in re.findall(r'src="(_images/[^"]+)"', str(text))}
    files |= {name: (edition.site / edition.lang / name).read_bytes() for name in sorted(shown)}
    files["reader.css"] = _STYLE.read_text("utf8")
    spine = ["cover", "contents", *titles]
    files["book.opf"] = _OPF.format(
        code=code,
        id=uuid.uuid5(uuid.NAMESPACE_URL, f"{edition.base or edition.title}/{edition.lang}").urn,
        title=title,
        author=escape(edition.author),
        now=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        items="\n".join(
            [_item(name, files[f"{name}.xhtml"]) for name in spine if name != "contents"]
            + [
                f'<item id="image-{i}" href="{name}" media-type="{_TYPES[Path(name).suffix]}"/>'
                for i, name in enumerate(sorted(shown))
            ]
        ),
        spine="\n".join(f'<itemref idref="{name}"/>' for name in spine),
    )
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", _CONTAINER)
        for name, content in files.items():
            archive.writestr(f"book/{name}", content)


def _item(name: str, text: str) -> str:
    kinds = [kind for kind, tag in (("mathml", "<math"), ("svg", "<svg")) if tag in text]
    properties = f' properties="{" ".join(kinds)}"' if kinds else ""
    return f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"{properties}/>'


def _body(page: Page, edition: Edition) -> tuple[str, str]:
    """The style of a page's figures and its body: formulas as MathML, code with little colour."""
    article = page.article
    for formula in article.select(".katex"):
        maths = formula.math
        for node in maths.find_all("annotation"):
            node.decompose()
        maths["alttext"] = maths.get_text()
        formula.replace_with(maths)
    style = {node.extract().get_text() for node in article.find_all("style")}
    style = "".join(sorted(style))
    colours = dict(re.findall(r"--(fig-[\w-]+):\s*(#\w+)", style.split(":is(html", 1)[0]))
    for node in article.find_all(True):
        for name in [
            name for name in node.attrs if name.startswith("data-") and name != "data-svg"
        ]:
            del node[name]
        node.attrs.pop("tabindex", None)
        if node.name == "figure":
            node.attrs.pop("role", None)  # it is one
    for link in article.select("a[href]"):
        link["href"] = re.sub(r"^([\w-]+)\.html(?=#|$)", r"\1.xhtml", link["href"])
    text = _RULE.sub(r"\1  \2", page.html(lambda svg: _svg(svg, edition.lang)))
    return _coloured(style.split(":is(html", 1)[0], colours), _coloured(text, colours)


def _coloured(text: str, colours: dict[str, str]) -> str:
    """Readers of books know no variables."""
    return re.sub(r"var\(--(fig-[\w-]+)\)", lambda m: colours.get(m[1], "currentColor"), text)


def _svg(svg: str, lang: str) -> str:
    """A drawing as XML, with labels of one language."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("<svg", f"<svg {names}", 1)
    other = "zh" if lang == "en" else "en"
    svg = re.sub(rf'<(\w+) lang="{other}"[^>]*>.*?</\1>', "", svg, flags=re.S)
    return re.sub(r' lang="\w+"', "", re.sub(r'(?<!xlink:)href="', 'xlink:href="', svg))


def _cover(edition: Edition) -> str:
    """A few words in a frame."""
    words = edition.title.split()
    lines = [
        f'<text x="300" y="{300 + 70 * i}" font-size="52">{escape(word)}</text>'
        for i, word in enumerate(words)
    ]
    lines.append(f'<text x="300" y="700" font-size="20">{escape(edition.author)}</text>')
    return _COVER.format(lines="\n".join(lines))
