"""The index by name: every name of PyTorch that a section is about, with its sections."""

from __future__ import annotations

from itertools import groupby

from bookbuild.pages.api_names import Place
from bookbuild.pages.listing import filtered, link
from bookbuild.pages.markdown import page

_WORDS = {
    "en": {
        "title": "Index by name",
        "summary": "Every name of PyTorch that a section of this book is about, from A to Z.",
        "lead": (
            "{n} names of PyTorch and torchvision, each with the sections that are about it, the "
            "most telling first."
        ),
        "placeholder": "detach, DataLoader, autocast …",
        "separator": ", ",
    },
    "zh": {
        "title": "按名称查",
        "summary": "本书各节讲到的 PyTorch 名称，从 A 到 Z。",
        "lead": "PyTorch 和 torchvision 的 {n} 个名称，以及讲到它们的小节，最相关的排在最前。",
        "placeholder": "例如 detach、DataLoader、autocast",
        "separator": "、",
    },
}


def render(names: dict[str, list[Place]], lang: str) -> str:
    """The page as Markdown."""
    w = _WORDS[lang]
    parts = [
        f'## {letter}\n\n<ul class="names">\n'
        + "\n".join(_item(name, names[name], lang, w) for name in group)
        + "\n</ul>"
        for letter, group in groupby(names, lambda name: name.rpartition(".")[2][0].upper())
    ]
    body = f"# {w['title']}\n\n{w['lead'].format(n=len(names))}\n\n" + filtered(
        "name", lang, w["placeholder"], "\n\n".join(parts)
    )
    return page("the texts of the chapters", w["summary"], body)


def _item(name: str, places: list[Place], lang: str, w: dict[str, str]) -> str:
    before, _, last = name.rpartition(".")
    links = w["separator"].join(
        link(p.href, p.titles[lang].partition(" › ")[2] or p.titles[lang]) for p in places
    )
    return (
        f'<li id="{name}"><a class="name" href="#{name}"><code>{before}.<b>{last}</b></code></a> '
        f"{links}</li>"
    )
