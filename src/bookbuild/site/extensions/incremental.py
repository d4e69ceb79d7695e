"""Building again: pages that were built before are those that a build from clean would make.

Sphinx reads and writes a page again when its source is newer than its page. It does not see that a
page shows the titles of others in its navigation and that its links lead to sections of others, it
goes by times instead of content, and it leaves behind what only older pages needed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookbuild.site.extensions.sphinx_internals import forget_kinds_of_objects, link_targets


def digest(env: BuildEnvironment, page: str) -> str:
    """Fingerprint of a page's source and of the files that it depends on."""
    names = [env.doc2path(page), *sorted(map(str, env.dependencies.get(page, ())))]
    files = [Path(env.srcdir, name) for name in names]
    total = hashlib.sha256()
    for path in files:
        total.update(path.read_bytes() if path.is_file() else b"missing")
    return total.hexdigest()


def changed(
    app: Sphinx, env: BuildEnvironment, added: set[str], known: set[str], removed: set[str]
) -> list[str]:
    """The pages whose content is not what was read, whatever their times say."""
    read = getattr(env, "book_read", {})
    return [page for page in env.found_docs if read.get(page) != digest(env, page)]


def seen_elsewhere(env: BuildEnvironment) -> str:
    """What other pages may show of a page or lead to: titles, summaries, sections, labels."""
    pages = {}
    for page in sorted(env.found_docs):
        summary, links = env.metadata[page].get("summary"), link_targets(env, page)
        pages[page] = [env.titles[page].astext(), env.tocs[page].pformat(), summary, links]
    domains = env.domaindata
    labels = [sorted(domains["std"][name].items()) for name in ("labels", "anonlabels")]
    return json.dumps([pages, labels, sorted(domains["py"]["objects"])], default=str)


def update(app: Sphinx, env: BuildEnvironment) -> Iterable[str]:
    """The pages to write again beside those that changed: all, if others may show what changed.

    One is always written, so that what follows a build always has something to do.
    """
    env.book_read = {page: digest(env, page) for page in env.found_docs}
    seen, env.book_seen = getattr(env, "book_seen", None), seen_elsewhere(env)
    forget_kinds_of_objects(env)
    return env.found_docs if seen != env.book_seen else [env.config.root_doc]


def tidy(app: Sphinx, error: Exception | None) -> None:
    """Drop figures that no page shows any more."""
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    shown = {
        name
        for page in out.glob("*.html")
        for name in re.findall(r"_images/([\w.-]+)", page.read_text("utf8"))
    }
    for path in out.glob("_images/*"):
        if path.name not in shown:
            path.unlink()


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("env-get-outdated", changed)
    app.connect("env-updated", update)
    app.connect("build-finished", tidy)
