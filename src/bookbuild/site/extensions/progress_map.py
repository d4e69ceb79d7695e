"""The map of the home page: a path for beginners, and what the reader has done of each chapter."""

from __future__ import annotations

import json

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookbuild.pages import course
from bookbuild.site.configuration import book_of
from bookbuild.site.extensions.languages import here
from bookbuild.source.checkout import BookError
from bookbuild.source.outline import outline
from bookbuild.source.templates import render
from bookbuild.source.words import words


class Progress(SphinxDirective):
    """```{progress}``` is the map; `progress.js` fills in what the browser has stored.

    It is hidden without scripts.
    """

    def run(self) -> list[nodes.Node]:
        """Return the map, with minutes and numbers of tasks of each chapter.

        Raises:
            DirectiveError: a chapter states no minutes, or the path names no chapter.
        """
        app = self.env.app
        book, lang = book_of(app), here(app)
        try:
            lessons, path = course.lessons(book, lang), course.first_path(book)
        except BookError as error:
            raise self.error(str(error)) from None
        for file in course.sources(book, lang):
            self.env.note_dependency(str(file))
        w, c = words(lang, "progress"), words(lang, "course")
        minutes = sum(lessons[name].minutes for name in path)
        kinds = ("questions", "explorers", "exercises")
        html = render(
            "site",
            "progress.html",
            w=w,
            lead=w["new_path"].format(n=len(path), time=course.duration(minutes, lang)),
            path=[(name, outline(book, name).sections[0].titles[lang].plain) for name in path],
            chapters=[
                ",".join(str(n) for n in (one.minutes, *(getattr(one.tasks, k) for k in kinds)))
                for one in lessons.values()
            ],
            texts=[c["minutes"], w["sure"], *(c[kind] for kind in kinds)],
        )
        return [nodes.raw("", str(html), format="html")]


def add(app: Sphinx) -> None:
    """Add the numbers of all tasks to the script of all pages.

    They are two: questions and explorers, and exercises, which only live pages can mark as solved.
    """
    book = book_of(app)
    names = [name for name in book.chapters if book.notebook("en", name).exists()]
    found = [course.tasks(book, name) for name in names]
    counts = [sum(t.questions + t.explorers for t in found), sum(t.exercises for t in found)]
    app.env.book_tasks = counts
    app.add_js_file(None, body=f"bookWords.tasks={json.dumps(counts)}")


def setup(app: Sphinx) -> None:
    """Register the directive and the event."""
    app.add_directive("progress", Progress)
    app.connect("builder-inited", add)
