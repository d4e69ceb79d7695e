"""Provide fixtures that open explorers, and check the Chinese translation of every verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from chromium import launcher
from playwright.sync_api import Browser
from sentences import checked_chapter, english_in, unlike

from helpers.exercises import Verdict
from helpers.verdicts import SENTENCES

# Error messages raised by tested answers, not written by a checker
NO_SENTENCES = ("not yet: assert ", "not yet: Attempted unscale_")


@pytest.fixture(autouse=True)
def verdicts_have_a_chinese_form(monkeypatch):
    """Fail a test if a message of a checker has no translation in `verdicts.json`."""
    seen, init = set(), Verdict.__init__

    def record(self, passed, message):
        init(self, passed, message)
        seen.add((checked_chapter(), message))

    monkeypatch.setattr(Verdict, "__init__", record)
    yield
    for chapter, message in seen:
        if chapter and not message.startswith(NO_SENTENCES):
            english = english_in(message, chapter)
            place = f"in {message!r}, add it to {SENTENCES.name}"
            assert not english, f"untranslated: {english} {place}"
            assert not (zh := unlike(message, chapter)), f"{zh}: uses other chapters' entries"


@pytest.fixture
def cover():
    """Return all settings of an explorer in English, and in Chinese those that cover its labels.

    The numbers come from the same code in both languages. In Chinese each value of each control
    appears at least once.
    """

    def settings(grid, lang):
        if lang == "en":
            return list(grid)
        chosen, shown = [], set()
        for setting in grid:
            if new := set(enumerate(setting)) - shown:
                chosen.append(setting)
                shown |= new
        return chosen

    return settings


@pytest.fixture(scope="package")
def chromium() -> Iterator[Callable]:
    with launcher() as launch:
        yield launch


@pytest.fixture(scope="package")
def browser(chromium) -> Iterator[Browser]:
    """Yield one browser for all modules of this folder."""
    launched = chromium()
    yield launched
    launched.close()


@pytest.fixture
def show(browser):
    """Yield a function that opens explorers; page or console errors and requests fail the test."""
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
