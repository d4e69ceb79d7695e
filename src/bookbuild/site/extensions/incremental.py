"""Make an incremental build produce the same pages as a clean build.

Sphinx itself rereads a page when its source, or a file that it depends on, is newer than the last
read. This module adds three steps: all pages are rewritten when titles or sections change, because
pages show those of other pages in navigation and links; at least one page is rewritten, because
otherwise Sphinx skips the steps that copy style sheets and scripts; and figures that are no longer
used are deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookbuild.site.extensions.sphinx_internals import link_targets


def shared(env: BuildEnvironment) -> str:
    """Return as JSON the content that other pages may show: titles, sections, labels and tasks."""
    pages = {}
    for page in sorted(env.found_docs):
        summary, links = env.metadata[page].get("summary"), link_targets(env, page)
        pages[page] = [env.titles[page].astext(), env.tocs[page].pformat(), summary, links]
    domains = env.domaindata
    labels = [sorted(domains["std"][name].items()) for name in ("labels", "anonlabels")]
    tasks = getattr(env, "book_tasks", None)
    return json.dumps([pages, labels, sorted(domains["py"]["objects"]), tasks], default=str)


def update(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """Return further pages to rewrite: all if shared content changed, else the home page."""
    before, env.book_shared = getattr(env, "book_shared", None), shared(env)
    return env.found_docs if before != env.book_shared else [env.config.root_doc]


def delete_figures(app: Sphinx, error: Exception | None) -> None:
    """Delete figures that no page uses."""
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
