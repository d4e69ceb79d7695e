"""Test that the recompile explorer shows the calls that torch.compile compiles."""

from __future__ import annotations

import itertools
import json

import pytest

from helpers.explorers import recompile

DATA = json.loads(recompile.recompile_explorer().data)
SETTINGS = list(itertools.product(recompile.DYNAMIC, (False, True), (False, True)))


@pytest.mark.parametrize(("dynamic", "drop", "numbered"), SETTINGS)
def test_recorded_compilations_match_torch(dynamic, drop, numbered):
    found = recompile.record(recompile.DYNAMIC[dynamic], drop, numbered)
    assert found == recompile.RECORDED[recompile.key(dynamic, drop, numbered)]


def test_every_setting_is_recorded():
    assert set(recompile.RECORDED) == {recompile.key(*setting) for setting in SETTINGS}
    assert [call[2] for call in recompile.plan(False)] == [64, 64, 29, 100, 40] * 2
    assert [call[2] for call in recompile.plan(True)] == [64, 64, 100, 40] * 2


def test_unknown_recompile_reason_raises():
    with pytest.raises(ValueError, match="another reason: x"):
        recompile.kind("x")


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent.split("✓")[0],
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    sizes: all(".calls button").map((b) => parseInt(b.textContent)),
    bad: all(".calls button").map((b, i) => b.classList.contains("bad") ? i : -1)
      .filter((i) => i >= 0) }; }"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_every_setting(show, lang):
    page = show(recompile.recompile_explorer(), lang=lang, width=375)
    element = page.locator("recompile-explorer")
    for dynamic, drop, numbered in SETTINGS:
        element.evaluate(
            "(e, state) => { e.reset(); e.set(state); }",
            {"dynamic": dynamic, "drop": drop, "numbered": numbered},
        )
        now, found = element.evaluate(STATE), recompile.RECORDED
        compiled = sorted(found[recompile.key(dynamic, drop, numbered)])
        assert now["bad"] == compiled
        assert now["sizes"] == [call[2] for call in recompile.plan(drop)]
        assert str(len(compiled)) in now["said"]
        assert now["done"] == (not drop and len(compiled) == 2)


def test_explorer_opens_with_five_compilations_and_task_completes(show):
    page = show(recompile.recompile_explorer("en"), width=375)
    element, task = page.locator("recompile-explorer"), page.locator("recompile-explorer .task")
    now = element.evaluate(STATE)
    assert now["bad"] == [0, 2, 3, 5, 8] and "contains the number of another epoch" in now["said"]
    element.get_by_role("checkbox").nth(1).uncheck()
    assert task.inner_text().startswith("Task")
    element.get_by_role("checkbox").nth(0).check()
    assert task.inner_text().startswith("Task")  # without the batch of 29
    element.get_by_role("checkbox").nth(0).uncheck()
    element.get_by_role("radio", name="True").check()
    assert task.inner_text().startswith("✓ Done")


def test_hovered_call_shows_the_reason(show):
    page = show(recompile.recompile_explorer("en"), width=800)
    element = page.locator("recompile-explorer")
    for place, words in (
        (2, "another batch size"),
        (3, "no_grad()"),
        (1, "an existing graph"),
        (0, "no compiled graph yet"),
    ):
        element.locator(".calls button").nth(place).hover()
        assert words in element.locator(".said").inner_text()


def test_narrow_phone_truncates_no_number(show):
    page = show(recompile.recompile_explorer("en"), width=320)
    cut = """(e) => [...e.shadowRoot.querySelectorAll(".calls button")]
      .filter((b) => b.scrollWidth > b.clientWidth + 1).length"""
    assert page.locator("recompile-explorer").evaluate(cut) == 0
