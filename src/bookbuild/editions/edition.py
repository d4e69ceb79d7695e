"""Collect the built pages of one language, rewritten for a single file to print or read offline.

The file runs no scripts: folded parts are open, the questions of a chapter are answered in a key
at its end, and an explorer shows its initial state, or its description, with the address of its
interactive version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from bs4 import BeautifulSoup, SoupStrainer, Tag

from bookbuild.source.checkout import LANGUAGES, OLD_NOTES, Book, Language
from bookbuild.source.templates import render
from bookbuild.source.words import words

NAME = "executable-pytorch-notes"
# Pages that only serve the site: a reader's search replaces them, or their links lead nowhere.
LEFT_OUT = {"errors", "by_name", "then_and_now", "status", "teachers", "api", OLD_NOTES}
# HTML parsers convert the names of SVG to lowercase; restore the mixed-case names in the figures.
SVG_NAMES = {name.lower(): name for name in ("clipPath", "preserveAspectRatio", "viewBox")}
# Pygments classes printed in black: each coloured element would add an object to the PDF.
_BLACK = re.compile(r"n[a-df-z]?|o|p|w|m[fhio]|bp|pre|std std-\w+")
_SITE_ONLY = (
    ".headerlink, .filter, .toctree-wrapper, a.here, button, form, input, label, textarea, "
    ".error-search, fieldset, noscript, .cheat-tools"
)


@dataclass(frozen=True)
class Edition:
    """One language of a built site, as the source of a PDF or an EPUB."""

    book: Book
    site: Path
    lang: str
    base: str  # the address of the published site, empty if it is unknown

    @property
    def code(self) -> str:
        """The value of `lang` in HTML."""
        return self._language.tag

    @property
    def words(self) -> dict[str, str]:
        """The labels of editions in this language."""
        return words(self.lang, "editions")

    @property
    def title(self) -> str:
        """The name of the book."""
        return self._language.title

    @property
    def author(self) -> str:
        """The author of the book."""
        return self._language.author

    @property
    def _language(self) -> Language:
        return self.book.languages[self.lang]

    def parts(self) -> list[tuple[str, list[str]]]:
        """Return the name of each part with the names of its pages that the edition includes."""
        names = self._language.parts
        kept = [
            (names.get(part, part), [p for p in pages if p not in LEFT_OUT])
            for part, pages in self.book.parts
        ]
        return [(part, pages) for part, pages in kept if pages]

    def pages(self, still: bool) -> Iterator[Page]:
        """Yield the pages in reading order; if `still`, replace explorers by descriptions."""
        kept = {name for _, names in self.parts() for name in names}
        for _, names in self.parts():
            for name in names:
                yield _page(self, name, kept, still)


@dataclass(frozen=True)
class Page:
    """A page of an edition: its article, in which links to other pages are `name.html#anchor`."""

    name: str
    title: str
    article: Tag

    def html(self) -> str:
        """Return the article as text that is both valid HTML and well-formed XML."""
        for span in self.article.find_all("span", class_=True):
            if _BLACK.fullmatch(" ".join(span["class"])) and not span.find(True):
                span.unwrap()
        return self.article.decode(formatter="minimal")


def _page(edition: Edition, name: str, kept: set[str], still: bool) -> Page:
    path = edition.site / edition.lang / f"{name}.html"
    soup = BeautifulSoup(path.read_text("utf8"), "html.parser", parse_only=SoupStrainer("article"))
    article = soup.article
    for node in article.select(_SITE_ONLY):
        node.decompose()
    for drawing in article.find_all("svg"):
        restore_svg_names(drawing)
    _ask(soup, article, words(edition.lang, "questions")["key"])
    _unfold(article, edition.words["solution"])
    _explorers(soup, article, edition, name, still)
    for link in article.select("a[href]"):
        _rewrite_link(link, edition, name, kept)
    return Page(name, article.h1.get_text().strip(), article)


def restore_svg_names(svg: Tag) -> None:
    """Restore the mixed-case names of a drawing's elements and attributes in place."""
    for node in [svg, *svg.find_all(True)]:
        node.name = SVG_NAMES.get(node.name, node.name)
        node.attrs = {SVG_NAMES.get(key, key): value for key, value in node.attrs.items()}


def _ask(soup: BeautifulSoup, article: Tag, title: str) -> None:
    """Number the questions, letter their choices, and move the answers to a key at the end.

    An answer is the right choice with its reason, the cell's assertions and output, the prose that
    explains them, and the verdicts on the other choices. Question and answer link to each other.
    """
    key = soup.new_tag("section", attrs={"class": "key"})
    for number, card in enumerate(article.select(".predict"), 1):
        asked, answered = f"question-{number}", f"answer-{number}"
        choices, verdicts = soup.new_tag("ol"), []
        for letter, choice in zip("ABCDE", card.find_all("details"), strict=False):
            item = soup.new_tag("li")
            item.extend(list(choice.summary.extract().contents))
            choices.append(item)
            verdict = choice.p.extract()
            verdict.strong.insert(0, f"{letter} ")
            verdicts.append((choice["class"] != ["yes"], verdict))
            choice.decompose()
        card.append(choices)
        card["id"] = asked
        lead = soup.new_tag("a", href=f"#{answered}")
        lead.string = f"{number}. "
        card.p.insert(0, lead)
        answer = soup.new_tag("div", attrs={"class": "solved", "id": answered})
        back = soup.new_tag("a", href=f"#{asked}")
        back.string = f"{number}. "
        answer.extend(verdict for _, verdict in sorted(verdicts, key=lambda pair: pair[0]))
        answer.p.insert(0, back)
        _move_result(soup, article.find(id=card.get("data-cell")), answer.p)
        key.append(answer)
    if key.find(True):
        heading = soup.new_tag("h2")
        heading.string = title
        key.insert(0, heading)
        article.append(key)


def _move_result(soup: BeautifulSoup, cell: Tag | None, place: Tag) -> None:
    """Move the assertions, output and explanation of a cell with a question into `place`."""
    if cell is None or "predicted" not in cell.get("class", []):
        return
    why = cell.find_next_sibling()
    moved = [cell.select_one(".cell_output")]
    moved += [why] if why is not None and "why" in why.get("class", []) else []
    for part in filter(None, reversed(moved)):
        place.insert_after(part.extract())
    if lines := [line.extract() for line in cell.select(".hll")]:
        code = soup.new_tag("pre")
        code.extend(lines)
        place.insert_after(code)


def _unfold(article: Tag, solution: str) -> None:
    """Unfold folded parts; replace each summary line by a title, for solutions by `solution`."""
    for fold in article.find_all("details"):
        title, code = fold.summary.extract(), "hide" in fold.get("class", [])
        fold.name = "div"
        if code:
            title.clear()
            title.string = solution
        if not code or fold.find_parent(class_="tag_solution"):
            title.name, title["class"] = "p", "unfolded"
            fold.insert(0, title)


def _explorers(soup: BeautifulSoup, article: Tag, edition: Edition, name: str, still: bool) -> None:
    """Add each explorer's address on the site; if `still`, keep only its description."""
    for explorer in article.find_all(re.compile("-explorer$")):
        note = soup.new_tag("p", attrs={"class": "moves"})
        if still:
            fallback = explorer.find("span", lang=edition.lang) or explorer
            note.append(f"{fallback.get_text().strip()} ")
        cell = explorer.find_parent(class_="cell")
        at = f"{edition.lang}/{name}.html" + (f"#{cell['id']}" if cell and cell.get("id") else "")
        if edition.base:
            link = soup.new_tag("a", href=f"{edition.base}/{at}")
            link.string = f"{edition.base}/{at}"
            note.extend([edition.words["moves"] + edition.words["colon"], link])
        else:
            note.append(edition.words["moves_here"])
        explorer.insert_after(note)
        if still:
            explorer.decompose()
    for script in article.find_all("script") if still else ():
        script.decompose()


def _rewrite_link(link: Tag, edition: Edition, name: str, kept: set[str]) -> None:
    """Keep a link within the edition; point others to the published site, or unlink them."""
    page, hash_, anchor = link["href"].partition("#")
    if re.match(r"\w+:", page):
        return
    if page.removesuffix(".html") in kept or not page:
        link["href"] = f"{page or name + '.html'}{hash_}{anchor}"
    elif edition.base:
        link["href"] = f"{edition.base}/{edition.lang}/{link['href']}"
    else:
        link.unwrap()


def make(book: Book, site: Path, base: str, kind: str) -> list[Path]:
    """Make a `"pdf"` or an `"epub"` of each language, or one `"zip"`, at the root of a site.

    Raises:
        BookError: it could not be made.
    """
    module = import_module("bookbuild.editions." + {"zip": "offline"}.get(kind, kind))
    if kind == "zip":
        module.make(book, site, path := site / f"{NAME}.zip")
        return [path]
    paths = [site / f"{NAME}.{lang}.{kind}" for lang in LANGUAGES]
    editions = [Edition(book, site, lang, base) for lang in LANGUAGES]
    with ThreadPoolExecutor(len(LANGUAGES)) as pool:
        list(pool.map(module.make, editions, paths))
    return paths


def link(site: Path, paths: list[Path]) -> None:
    """Link files on the home page of their language, and a zip file on both home pages."""
    for lang in LANGUAGES if paths else ():
        home = site / lang / "index.html"
        files = [p for p in paths if p.suffix == ".zip" or f".{lang}." in p.name]
        sizes = {path: max(1, round(path.stat().st_size / 1e6)) for path in files}
        links = render("editions", "take_along.html", words=words(lang, "editions"), sizes=sizes)
        soup = BeautifulSoup(home.read_text("utf8"), "html.parser")
        soup.find(id="take-along").replace_with(BeautifulSoup(links, "html.parser"))
        home.write_text(soup.decode(formatter="minimal"), "utf8")
