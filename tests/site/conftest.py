"""One browser and one built site for all tests of the site.

BOOK_SITE=folder tests a site that is already built. Without Chromium the browser tests are skipped;
REQUIRE_BROWSER=1 makes that a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookbuild.site import build, server

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Under xdist, tests that share a costly fixture stay in one process."""
    for item in items:
        for fixture in ("visits", "toy"):
            if fixture in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(fixture))


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
def site() -> Path:
    """The book itself, built from clean."""
    if built := os.environ.get("BOOK_SITE"):
        return Path(built).resolve()
    return build(ROOT, quiet=True)


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
def toy_url(toy_site) -> Iterator[str]:
    yield from serving(toy_site)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        reason = "Chromium was not found: the tests in a browser were NOT run"
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and REQUIRE_BROWSER=1 asks for them")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def contexts(browser):
    """One context for each screen, shared by all tests."""
    made = {
        "desktop": browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-US"),
        "phone": browser.new_context(viewport={"width": 375, "height": 720}, locale="zh-CN"),
    }
    yield made
    for context in made.values():
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
