"""Add the home page's map: a path for beginners, and the reader's progress in each chapter."""

from __future__ import annotations

import json

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bookbuild.pages import course
from bookbuild.site.configuration import book_of, language_of


class Progress(SphinxDirective):
    """Directive ```{progress}```: insert the map; `progress.js` adds the stored progress.

    Without JavaScript the map is hidden.
    """

    def run(self) -> list[nodes.Node]:
        """Return the map written by `bookbuild.pages.course`.

        Raises:
            DirectiveError: `_toc.yml` has no path for beginners, so no map was written.
        """
        app = self.env.app
        file = book_of(app).root / course.MAP.format(language_of(app))
        self.env.note_dependency(str(file))
        if not file.is_file():
            raise self.error("no map: expected `new_to_pytorch` in `meta` of _toc.yml")
        return [nodes.raw("", file.read_text("utf8"), format="html")]


def add(app: Sphinx) -> None:
    """Add the book's total numbers of tasks to the script of all pages.

    One total is questions and explorers; one is exercises, which only live pages mark as solved.
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
