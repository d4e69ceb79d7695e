"""The map of the home page: a path for beginners, and what the reader has done of each chapter."""

from __future__ import annotations

import json

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookbuild.pages import course
from bookbuild.site.configuration import book_of
from bookbuild.site.extensions.languages import here


class Progress(SphinxDirective):
    """```{progress}``` is the map; `progress.js` fills in what the browser has stored.

    It is hidden without scripts.
    """

    def run(self) -> list[nodes.Node]:
        """Return the map, which `bookbuild.pages.course` writes.

        Raises:
            DirectiveError: `_toc.yml` has no path for beginners, so that there is no map.
        """
        app = self.env.app
        file = book_of(app).root / course.MAP.format(here(app))
        self.env.note_dependency(str(file))
        if not file.is_file():
            raise self.error("no map: expected `new_to_pytorch` in `meta` of _toc.yml")
        return [nodes.raw("", file.read_text("utf8"), format="html")]


def add(app: Sphinx) -> None:
    """Add the numbers of all tasks to the script of all pages.

    They are two: questions and explorers, and exercises, which only live pages can mark as solved.
    """
    book = book_of(app)
    names = [name for name in book.chapters if book.notebook("en", name).exists()]
    tasks = [course.tasks(book, name) for name in names]
    counts = [sum(t.questions + t.explorers for t in tasks), sum(t.exercises for t in tasks)]
    app.env.book_tasks = counts
    app.add_js_file(None, body=f"bookWords.tasks={json.dumps(counts)}")


def setup(app: Sphinx) -> None:
    """Register the directive and the event."""
    app.add_directive("progress", Progress)
    app.connect("builder-inited", add)
