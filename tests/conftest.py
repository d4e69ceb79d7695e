"""What all tests share: the browser, and that a busy machine is no failure.

Without Chromium its tests are skipped; REQUIRE_BROWSER=1 makes that a failure.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from bookbuild.editions.pdf import chromium as find_chromium

settings.register_profile("book", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("book")

# A job in the background ignores interrupts, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")  # a session's would keep an event loop that nbclient trips over
def chromium() -> Iterator[Callable]:
    """Launches Chromium with our flags and others; takes the options of Playwright's `launch`."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    if path is None:
        reason = "Chromium was not found: the tests in a browser were NOT run"
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and REQUIRE_BROWSER=1 asks for them")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        launch = partial(playwright.chromium.launch, executable_path=path)
        yield lambda *flags, **options: launch(args=[*FLAGS, *flags], **options)


@pytest.fixture(scope="module")
def browser(chromium):
    launched = chromium()
    yield launched
    launched.close()
