"""A page for each message and each pitfall: its own address, title and description.

They are short and plain, without the frame of a chapter: Sphinx would take minutes for thousands of
them, and whoever comes from a search engine wants the answer. The long pages list them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from bookbuild.pages import error_list
from bookbuild.pages import pitfall_list as pitfalls_page
from bookbuild.site import metatags
from bookbuild.source import messages, pitfalls
from bookbuild.source.checkout import ERRORS_OF, LANGUAGES, Book

_WORDS = {
    "en": {
        "errors": ("All error messages", "{} · PyTorch error, cause and cure"),
        "pitfalls": ("All pitfalls", "{} · PyTorch pitfall"),
        "other": "中文",
        "paste": "Another message, or a whole traceback",
        "explain": "Explain",
        "proved": "The section runs both and shows what comes out.",
    },
    "zh": {
        "errors": ("全部报错信息", "{} · PyTorch 报错，原因和改法"),
        "pitfalls": ("全部陷阱", "{} · PyTorch 常见陷阱"),
        "other": "English",
        "paste": "另一条报错，或整段 traceback",
        "explain": "解释",
        "proved": "该小节运行了两种写法，并给出输出。",
    },
}
_PAGE = """\
<!doctype html>
<html lang="{code}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} — {book}</title>
<meta name="description" content="{description}">
<link rel="icon" href="../_static/favicon.svg">
<link rel="apple-touch-icon" href="../../touch-icon.png">
<link rel="stylesheet" href="../_static/entry.css">
{tags}
</head>
<body>
<header><nav><a href="../index.html">{book}</a> <a href="../{listed}">{all}</a></nav>
<a href="../../{other_lang}/{path}" lang="{other_code}" hreflang="{other_code}">{other}</a></header>
<main>
{body}
</main>
</body>
</html>
"""


@dataclass(frozen=True)
class Entry:
    """A message or a pitfall in one language; `about` and `body` are HTML."""

    kind: str
    id: str
    title: str
    about: str
    body: str
    listed: str  # where it stands among the others
    answer: str = ""  # to a message

    @property
    def path(self) -> str:
        """Its address below the folder of the language."""
        return f"{self.kind}/{self.id}.html"


def entries(book: Book, lang: str) -> Iterator[Entry]:
    """All of them; where the table of contents has no such page, there are none of its kind."""
    w, pages = _WORDS[lang], {name for _, names in book.parts for name in names}
    form = (
        f'<form action="../errors.html"><label>{w["paste"]} <input name="q" type="search" '
        f'autocomplete="off" spellcheck="false"></label> <button>{w["explain"]}</button></form>'
    )
    for one in messages.load(book) if "errors" in pages else ():
        said = one.says[0]
        heading = f"<h1><code>{error_list.shown(said)}</code></h1>"
        body = f"{heading}\n{error_list.told(book, lang, one)}\n{form}"
        yield Entry(
            "errors",
            one.id,
            metatags.short(re.sub(r"\{\w+\}", "…", said), 110),
            one.cause[lang],
            body,
            f"{ERRORS_OF}{one.family}.html#{one.id}",
            "\n".join(x for x in error_list.advice(book, lang, one) if "→" not in x),
        )
    for one in pitfalls.load(book) if "pitfalls" in pages else ():
        title, body = pitfalls_page.alone(book, lang, one)
        title = metatags.short(f"{title} · {one.wrong}", 110)
        body += f"\n<p>{w['proved']}</p>"
        about = f"✗ {one.wrong} ✓ {one.right or one.part.answer[lang]}"
        yield Entry("pitfalls", one.id, title, about, body, f"pitfalls.html#{one.id}")


def write(book: Book, site: Path, names: dict[str, tuple[str, str]], base: str) -> list[str]:
    """Write their pages into a site; returns their addresses below the folder of a language.

    `names` has the book's name and its author in each language.
    """
    paths: dict[str, None] = {}
    for lang in LANGUAGES:
        told = set()
        for entry in entries(book, lang):
            paths[entry.path] = None
            if entry.about in told:  # two messages may have one cause
                entry = replace(entry, about=f"{entry.title}: {entry.about}")
            told.add(entry.about)
            file = site / lang / entry.path
            file.parent.mkdir(exist_ok=True)
            file.write_text(_html(entry, lang, *names[lang], base), "utf8")
    return list(paths)


def _html(entry: Entry, lang: str, name: str, author: str, base: str) -> str:
    w, other = _WORDS[lang], next(x for x in LANGUAGES if x != lang)
    about = metatags.short(entry.about.replace("`", ""))
    page = metatags.Page(lang, entry.path, entry.title, about, name, author, base)
    answer = re.sub(r' (?:class|id)="[^"]*"|</?(?:var|span)>', "", entry.answer)
    data = metatags.question(page, entry.title, answer) if answer else metatags.article(page)
    tags = [f'<link rel="canonical" href="{page.url}">'] if base else []
    every, title = w[entry.kind]
    return _PAGE.format(
        code=metatags.CODES[lang],
        title=escape(title.format(entry.title)),
        book=escape(name),
        description=escape(about),
        tags="\n".join([*tags, *metatags.tags(page, data)]),
        listed=entry.listed,
        all=every,
        path=entry.path,
        other=w["other"],
        other_lang=other,
        other_code=metatags.CODES[other],
        body=re.sub(r'href="(?=\w+\.html)', 'href="../', entry.body),
    )
