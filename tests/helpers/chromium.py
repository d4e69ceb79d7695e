"""Start Chromium for the tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from bookbuild.editions.pdf import chromium as find_chromium

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def launcher() -> Iterator[Callable]:
    """Yield a function that launches Chromium with `FLAGS`, more flags and Playwright's options."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    if path is None:
        reason = "Chromium was not found: the tests in a browser were NOT run"
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, but REQUIRE_BROWSER=1 is set")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        launch = partial(playwright.chromium.launch, executable_path=path)
        yield lambda *flags, **options: launch(args=[*FLAGS, *flags], **options)
