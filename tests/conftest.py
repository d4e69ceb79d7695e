"""Provide the browser fixtures and the Hypothesis profile of all tests.

Without Chromium, browser tests are skipped; with REQUIRE_BROWSER=1 they fail.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator

import pytest
from chromium import launcher
from hypothesis import HealthCheck, settings

settings.register_profile("book", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("book")

# Restore SIGINT: a background job ignores it, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after pytest-rerunfailures has connected
def pytest_configure(config: pytest.Config) -> None:
    """Send each message of pytest-rerunfailures at once.

    The plugin writes twice before it reads, so the second write waits for a delayed
    acknowledgement: 40 ms for each test with `-n`.
    """
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.fixture(scope="module")  # a session fixture's event loop breaks nbclient
def chromium() -> Iterator[Callable]:
    with launcher() as launch:
        yield launch


@pytest.fixture(scope="module")
def browser(chromium):
    launched = chromium()
    yield launched
    launched.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the Chinese variants of browser tests with `rest`: the English ones share their code."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if "chromium" in item.fixturenames and "zh" in parameters:
        item.add_marker("rest")
