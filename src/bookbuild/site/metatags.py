"""Generate the metadata in a page's head for search engines and shared links.

Metadata that needs the address of the published site (translations, the card of a shared link,
addresses in structured data) is written only if that address is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from bookbuild.source.checkout import Language
from bookbuild.source.templates import render

LOCALES = {"en": "en_US", "zh": "zh_CN"}
LICENSE = "https://creativecommons.org/licenses/by/4.0/"
PICTURE = (1200, 630)  # of social.*.png, which tests/site/screenshot.py makes


@dataclass(frozen=True)
class Page:
    """A page in one language; `path` is relative to the language's folder."""

    language: Language
    path: str
    title: str
    description: str
    address: str = ""  # URL of the published site, without a trailing slash

    @property
    def url(self) -> str:
        """Return the page's URL, "" if the site's address is unknown."""
        return self.address and f"{self.address}/{self.language.code}/{self.path}"

    @property
    def picture(self) -> str:
        """Return the URL of the preview image for shared links."""
        return f"{self.address}/social.{self.language.code}.png"

    @property
    def translations(self) -> dict[str, str]:
        """Return the URLs of the page's translations by `hreflang` value."""
        folders = {"en": "en", "zh-CN": "zh", "x-default": "en"}
        return {tag: f"{self.address}/{code}/{self.path}" for tag, code in folders.items()}


def short(text: str, most: int = 160) -> str:
    """Return a text on one line, cut to at most `most` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def head(page: Page, data: dict[str, Any] | None = None) -> Markup:
    """Return the description, translations, card and structured `data` of a page."""
    if data:
        data = {"@context": "https://schema.org"} | data
    return render("site", "head.html", page=page, data=data, locales=LOCALES, size=PICTURE)


def card(page: Page, kind: str) -> Markup:
    """Return the Open Graph and Twitter elements for the preview of a shared link."""
    return render("site", "card.html", page=page, kind=kind, locales=LOCALES, size=PICTURE)


def article(page: Page) -> dict[str, Any]:
    """Return the structured data of a chapter, or of a part of one."""
    language = page.language
    data = {
        "@type": "TechArticle",
        "headline": short(page.title, 110),
        "description": page.description,
        "inLanguage": language.tag,
        "isAccessibleForFree": True,
        "license": LICENSE,
        "author": {"@type": "Organization", "name": language.author},
        "isPartOf": {"@type": "Book", "name": language.title},
        "dependencies": "PyTorch",
    }
    if page.address:
        data |= {"url": page.url, "image": page.picture}
        data["isPartOf"]["url"] = f"{page.address}/{language.code}/index.html"
        data["author"]["url"] = f"{page.address}/"
    return data


def question(page: Page, asks: str, answer: str) -> dict[str, Any]:
    """Return the structured data of a message; `answer` is HTML."""
    accepted = {"@type": "Answer", "text": answer}
    data = {"@type": "FAQPage", "name": page.title, "inLanguage": page.language.tag}
    data["mainEntity"] = [{"@type": "Question", "name": asks, "acceptedAnswer": accepted}]
    return data | ({"url": page.url} if page.address else {})
