"""A browser for the explorers' own tests.

Without Chromium they are skipped; REQUIRE_BROWSER=1 makes that a failure.
"""

from __future__ import annotations

import os
import shutil

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")  # a session's would keep an event loop that nbclient trips over
def browser():
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        reason = "Chromium was not found: the tests in a browser were NOT run"
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and REQUIRE_BROWSER=1 asks for them")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def show(browser):
    """Open explorers on a bare page; requests, page errors and console errors fail the test."""
    pages, troubles = [], []

    def open_page(*explorers, lang="en", width=800, dark=False):
        page = browser.new_page(viewport={"width": width, "height": 800})
        pages.append(page)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda m: m.type == "error" and troubles.append(m.text))
        page.on("request", lambda request: troubles.append(request.url))
        page.set_content(
            f'<!doctype html><html lang="{lang}"><meta charset="utf-8"><title>test</title>'
            f"<style>:root{{color-scheme:{'dark' if dark else 'light'}}}</style><body><main>"
            + "".join(explorer._repr_html_() for explorer in explorers)
            + "</main>"
        )
        return page

    yield open_page
    for page in pages:
        page.close()
    assert troubles == []
