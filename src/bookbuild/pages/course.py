"""Collect minutes, tasks and requirements of each chapter for teachers and the home page."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml
from nbformat import NotebookNode

from bookbuild.notebooks.cells import code_cells, tags
from bookbuild.notebooks.files import shared
from bookbuild.pages.markdown import fill, page
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.outline import outline
from bookbuild.source.texts import load
from bookbuild.source.words import words

CITATION = "CITATION.cff"
MAP = "_build/map/{}.html"  # by language: the map that Sphinx includes in the home page
_NEED = {"en": "**You need**", "zh": "**你需要**"}
_MINUTES = {"en": re.compile(r"(?:, | )(\d+) minutes"), "zh": re.compile("[，、 ](\\d+) 分钟")}
_EXPLORER = re.compile(r"<[a-z]+-explorer\b")
_LINK = re.compile(r"\]\((\w+)\.ipynb[#)]")


@dataclass(frozen=True)
class Tasks:
    """Number of questions, explorers and exercises of a chapter."""

    questions: int
    explorers: int
    exercises: int


@dataclass(frozen=True)
class Lesson:
    """Entry of a chapter in the page for teachers, in one language."""

    name: str
    title: str
    minutes: int
    tasks: Tasks
    need: str  # Markdown: the requirements of the chapter, without its minutes
    earlier: list[str]  # names of the chapters before it that its prose links to


def tasks(book: Book, name: str) -> Tasks:
    """Count the tasks in the English notebook of a chapter.

    Raises:
        BookError: the file is missing or not a notebook.
    """
    cells = code_cells(shared(book.notebook("en", name)))
    return Tasks(
        questions=sum("predict" in cell.metadata for cell in cells),
        explorers=sum(map(_has_explorer, cells)),
        exercises=sum("exercise" in tags(cell) for cell in cells),
    )


def lessons(book: Book, lang: str) -> dict[str, Lesson]:
    """Return the chapters in reading order, by name.

    Raises:
        BookError: a text or a notebook cannot be read, or a text states no minutes.
    """
    return {name: _lesson(book, lang, name) for name in book.chapters}


def first_path(book: Book) -> list[str]:
    """Return the chapters for a reader who is new to PyTorch, in order: `meta` of `_toc.yml`.

    Raises:
        BookError: the list is missing, or names a page that is not a chapter.
    """
    names = (book.toc.get("meta") or {}).get("new_to_pytorch")
    if not isinstance(names, list) or not names:
        raise BookError("_toc.yml: meta: new_to_pytorch: expected a list of chapters")
    if unknown := [name for name in names if name not in book.chapters]:
        raise BookError(f"_toc.yml: meta: new_to_pytorch: no chapter {unknown[0]!r}")
    return names


def duration(minutes: int, lang: str) -> str:
    """Format minutes for readers of `lang`, such as "5 h 15 min"."""
    w = words(lang, "course")
    hours, rest = divmod(minutes, 60)
    parts = [w["hours"].format(hours)] if hours else []
    parts += [w["minutes"].format(rest)] if rest or not hours else []
    return " ".join(parts)


def render(book: Book, lang: str) -> str:
    """Return the page for teachers as Markdown.

    Raises:
        BookError: data is missing from a text, a notebook, `_toc.yml` or `CITATION.cff`.
    """
    by_name, w = lessons(book, lang), words(lang, "teachers")
    names = book.languages[lang].parts
    parts = [
        (names.get(part, part), [by_name[name] for name in chapters if name in by_name])
        for part, chapters in book.parts
    ]
    body = fill(
        "teachers.md",
        w=w,
        c=words(lang, "course"),
        parts=[(part, own) for part, own in parts if own],
        path=[by_name[name] for name in first_path(book)],
        lessons=by_name,
        citation=citation(book),
        minutes=lambda own: duration(sum(lesson.minutes for lesson in own), lang),
        total=lambda own, kind: sum(getattr(lesson.tasks, kind) for lesson in own),
    )
    return page(f"the chapters, _toc.yml and {CITATION}", w["summary"], body)


def render_map(book: Book, lang: str) -> str:
    """Return the home page's map as HTML: beginners' path, minutes and number of tasks.

    Raises:
        BookError: a chapter states no minutes, or the path names a page that is not a chapter.
    """
    by_name, path = lessons(book, lang), first_path(book)
    w, c = words(lang, "progress"), words(lang, "course")
    minutes = sum(by_name[name].minutes for name in path)
    kinds = ("questions", "explorers", "exercises")
    html = fill(
        "progress.html",
        w=w,
        lead=w["new_path"].format(n=len(path), time=duration(minutes, lang)),
        path=[(name, outline(book, name).sections[0].titles[lang].plain) for name in path],
        chapters=[
            ",".join(str(n) for n in (one.minutes, *(getattr(one.tasks, k) for k in kinds)))
            for one in by_name.values()
        ],
        texts=[c["minutes"], w["sure"], *(c[kind] for kind in kinds)],
    )
    return str(html)


def citation(book: Book) -> dict[str, str]:
    """Return the title, authors, version and URL of the book from `CITATION.cff`.

    Raises:
        BookError: the file is missing, or has no title, authors or version.
    """
    path = book.root / CITATION
    try:
        data = yaml.safe_load(path.read_text("utf8"))
        authors = " and ".join(one["name"] for one in data["authors"])
        stated = {"title": data["title"], "version": str(data["version"]), "authors": authors}
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise BookError(f"{CITATION}: expected title, version and authors: {error}") from None
    return stated | {"address": book.address or book.repository}


def _has_explorer(cell: NotebookNode) -> bool:
    """Return True if a cell shows an explorer."""
    shown = ("".join(out.get("data", {}).get("text/html", "")) for out in cell.outputs)
    return any(_EXPLORER.search(html) for html in shown)


def _lesson(book: Book, lang: str, name: str) -> Lesson:
    text = load(book, name)
    prose = [c.words.in_language(lang) for c in text.cells if c.type == "markdown"]
    minutes, need = _need(book, lang, name)
    linked = {other for part in prose for other in _LINK.findall(part)}
    before = book.chapters[: book.chapters.index(name)]
    return Lesson(
        name=name,
        title=outline(book, name).sections[0].titles[lang].markdown,
        minutes=minutes,
        tasks=tasks(book, name),
        need=need,
        earlier=[other for other in before if other in linked],
    )


def _need(book: Book, lang: str, name: str) -> tuple[int, str]:
    """Return the minutes of a chapter, and its *You need* line without them."""
    first = shared(book.notebook(lang, name)).cells[0].source
    line = next((x for x in first.splitlines() if _NEED[lang] in x), "")
    stated = _MINUTES[lang].search(line)
    if not stated:
        where = book.relative(book.text(name))
        raise BookError(f"{where}: expected a line {_NEED[lang]} with the minutes, as in `detach`")
    rest = line[: stated.start()] + line[stated.end() :]
    return int(stated[1]), rest.partition(_NEED[lang])[2].strip()
