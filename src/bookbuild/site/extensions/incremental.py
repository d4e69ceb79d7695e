"""Repeated builds: the pages are the same as after a build from clean.

Sphinx itself reads a page again when its source, or a file that it depends on, is newer than the
last read. Three things it does not do: a page shows the titles of others in its navigation and
links to their sections, so all pages are written again when these change; one page is written even
if none changed, because otherwise Sphinx skips the steps that copy style sheets and scripts; and
figures that no page shows any more are deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookbuild.site.extensions.sphinx_internals import link_targets


def shared(env: BuildEnvironment) -> str:
    """Return all that pages may show of other pages: titles, summaries, sections, labels, tasks."""
    pages = {}
    for page in sorted(env.found_docs):
        summary, links = env.metadata[page].get("summary"), link_targets(env, page)
        pages[page] = [env.titles[page].astext(), env.tocs[page].pformat(), summary, links]
    domains = env.domaindata
    labels = [sorted(domains["std"][name].items()) for name in ("labels", "anonlabels")]
    tasks = getattr(env, "book_tasks", None)
    return json.dumps([pages, labels, sorted(domains["py"]["objects"]), tasks], default=str)


def update(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """Return the pages to write beside those that were read again: all, or the home page."""
    before, env.book_shared = getattr(env, "book_shared", None), shared(env)
    return env.found_docs if before != env.book_shared else [env.config.root_doc]


def delete_figures(app: Sphinx, error: Exception | None) -> None:
    """Delete the figures that no page shows any more."""
    if error or app.builder.format != "html":
        return
    shown = {name for _, name in app.env.images.values()}
    for path in Path(app.outdir).glob("_images/*"):
        if path.name not in shown:
            path.unlink()


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("env-updated", update)
    app.connect("build-finished", delete_figures)
