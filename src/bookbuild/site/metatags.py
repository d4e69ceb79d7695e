"""What a page says of itself to search engines and to those who share it.

What needs the address that the site is published under (the translation's address, OpenGraph, the
card of Twitter, addresses in structured data) is written only where that is known.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import Any

CODES = {"en": "en", "zh": "zh-CN"}  # as `lang` and `hreflang` have them
LOCALES = {"en": "en_US", "zh": "zh_CN"}
LICENSE = "https://creativecommons.org/licenses/by/4.0/"
PICTURE = (1200, 630)  # what tests/site/screenshot.py makes of each language, beside index.html


@dataclass(frozen=True)
class Page:
    """A page in one language; `path` is its address below the folder of the language."""

    lang: str
    path: str
    title: str
    description: str
    book: str  # the book's name
    author: str
    base: str = ""  # where the site is published, without a slash at the end

    @property
    def url(self) -> str:
        """The page's own address, empty if nobody knows it."""
        return self.base and f"{self.base}/{self.lang}/{self.path}"


def short(text: str, most: int = 160) -> str:
    """A text on one line, at most so long."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def tags(page: Page, data: dict[str, Any] | None = None) -> list[str]:
    """The elements of a page's head: translations, a card where it is shared, structured data."""
    made = []
    if page.base:
        for code, lang in (*((CODES[x], x) for x in CODES), ("x-default", "en")):
            url = escape(f"{page.base}/{lang}/{page.path}")
            made.append(f'<link rel="alternate" hreflang="{code}" href="{url}">')
        made += card(page, "article" if data else "website")
    if data:
        text = json.dumps({"@context": "https://schema.org"} | data, ensure_ascii=False)
        text = text.replace("<", "\\u003c")
        made.append(f'<script type="application/ld+json">{text}</script>')
    return made


def card(page: Page, kind: str) -> list[str]:
    """What a messenger or a network shows of a link to the page."""
    codes = dict(LOCALES)
    about = {
        "og:type": kind,
        "og:site_name": page.book,
        "og:title": page.title,
        "og:description": page.description,
        "og:url": page.url,
        "og:locale": codes.pop(page.lang),
        "og:locale:alternate": next(iter(codes.values())),
        "og:image": f"{page.base}/social.{page.lang}.png",
        "og:image:width": PICTURE[0],
        "og:image:height": PICTURE[1],
        "og:image:alt": page.book,
    }
    made = [f'<meta property="{k}" content="{escape(str(v))}">' for k, v in about.items()]
    return [*made, '<meta name="twitter:card" content="summary_large_image">']


def article(page: Page) -> dict[str, Any]:
    """A chapter, or a part of one, as schema.org has it."""
    found = {
        "@type": "TechArticle",
        "headline": short(page.title, 110),
        "description": page.description,
        "inLanguage": CODES[page.lang],
        "isAccessibleForFree": True,
        "license": LICENSE,
        "author": {"@type": "Organization", "name": page.author},
        "isPartOf": {"@type": "Book", "name": page.book},
        "dependencies": "PyTorch",
    }
    if page.base:
        found |= {"url": page.url, "image": f"{page.base}/social.{page.lang}.png"}
        found["isPartOf"]["url"] = f"{page.base}/{page.lang}/index.html"
        found["author"]["url"] = f"{page.base}/"
    return found


def question(page: Page, asks: str, answer: str) -> dict[str, Any]:
    """A message and what to do about it, as schema.org has questions."""
    told = {"@type": "Answer", "text": answer}
    found = {"@type": "FAQPage", "name": page.title, "inLanguage": CODES[page.lang]}
    found["mainEntity"] = [{"@type": "Question", "name": asks, "acceptedAnswer": told}]
    return found | ({"url": page.url} if page.base else {})
