"""Build one site for all tests; BOOK_SITE=folder selects one that is already built."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from book_pages import LANGUAGES, NAMES, ROOT
from playwright.sync_api import Browser

from bookbuild.pages import write as write_pages
from bookbuild.site.server import server
from bookbuild.site.sphinx_build import build
from bookbuild.source.checkout import Book

FONTS = Path(__file__).with_name("fonts")


def load_toy():
    spec = importlib.util.spec_from_file_location("toy", Path(__file__).with_name("toy.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def toy():
    return load_toy()


@pytest.fixture(scope="session")
def toy_root(toy, tmp_path_factory) -> Path:
    return toy.write(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def toy_site(toy_root) -> Path:
    return build(toy_root, quiet=True)


@pytest.fixture(scope="session")
def toy_with_repository(toy_root, tmp_path_factory) -> Path:
    """Return the site of the toy book, built with `repository.url`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOOK_REPOSITORY_URL", "https://github.com/someone/notes")
        patch.setenv("GITHUB_SHA", "0" * 40)  # the toy book is not a Git checkout
        return build(toy_root, tmp_path_factory.mktemp("repository") / "site", quiet=True)


@pytest.fixture(scope="session")
def site() -> Path:
    """Return the site of the book, built from clean or selected by BOOK_SITE."""
    if built := os.environ.get("BOOK_SITE"):
        return Path(built).resolve()
    write_pages(Book(ROOT))
    return build(ROOT, quiet=True)


@pytest.fixture(scope="session")
def pages(site) -> list[str]:
    """Return the name of every page in both languages, such as `en/detach.html`."""
    found = sorted(f"{p.parent.name}/{p.name}" for p in site.glob("*/*.html"))
    assert {f"{lang}/{name}.html" for lang in LANGUAGES for name in NAMES} <= set(found)
    return found


def serving(folder: Path) -> Iterator[str]:
    with server(folder, port=0) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def url(site) -> Iterator[str]:
    yield from serving(site)


@pytest.fixture(scope="session")
def repository_url(toy_with_repository) -> Iterator[str]:
    yield from serving(toy_with_repository)


@pytest.fixture(scope="module")
def with_fonts(chromium) -> Callable[..., Browser]:
    """Return a function that launches Chromium with `"narrow"` or `"wide"` fonts and flags."""
    return lambda fonts, *flags: chromium(
        *flags, env=os.environ | {"FONTCONFIG_FILE": str(FONTS / f"{fonts}.conf")}
    )


@pytest.fixture(scope="module")
def browser(with_fonts):
    """Launch Chromium with the wide fonts of a bare Debian; a layout that fits them fits others."""
    launched = with_fonts("wide")
    yield launched
    launched.close()


@pytest.fixture(scope="module")
def contexts(browser):
    """Yield one context per screen, shared by all tests of a module."""
    result = {
        "desktop": browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US"),
        "phone": browser.new_context(viewport={"width": 375, "height": 720}, locale="zh-CN"),
    }
    for context in result.values():
        context.set_default_timeout(60_000)  # several tests may share two slow cores
    yield result
    for context in result.values():
        context.close()


@pytest.fixture
def page(contexts):
    opened = contexts["desktop"].new_page()
    yield opened
    opened.close()


@pytest.fixture
def phone(contexts):
    opened = contexts["phone"].new_page()
    yield opened
    opened.close()
