"""Test the leak explorer against a count window by window, and its drawing in a browser."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from helpers.explorers import leak

DATA = json.loads(leak.leak_explorer().data)
STATES = list(
    itertools.product(range(len(leak.METHODS)), range(len(leak.HORIZONS)), range(len(leak.SPLITS)))
)
N = leak.LENGTH


def letters(method, horizon, split):
    return DATA["kinds"][method][horizon][split]


@pytest.mark.parametrize("method", range(len(leak.METHODS)))
def test_letters_match_sets_of_steps(method):
    for _, horizon, split in (state for state in STATES if state[0] == method):
        kinds, h, at = letters(method, horizon, split), leak.HORIZONS[horizon], leak.SPLITS[split]
        assert len(kinds) == leak.STEPS - N - h + 1
        targets = [set(range(i + N, i + N + h)) for i in range(len(kinds))]
        later = [i for i in range(len(kinds)) if i + N >= at]
        test = [i for i, kind in enumerate(kinds) if kind == "e"]
        assert len(test) == len(later) and (method == 0 or test == later)
        expected = set().union(*(targets[i] for i in test))
        for i, kind in enumerate(kinds):
            if kind in "tl":
                assert (kind == "l") == bool(expected & (set(range(i, i + N)) | targets[i]))
            if method == 2 and kind != "e":
                assert (kind == "t") == (i + N + h <= at)
            assert kind in ("tle", "tle", "tex")[method]


def test_claims_of_task_fallback_and_sentences_hold():
    clean = {s for s in STATES if "l" not in letters(*s) and leak.HORIZONS[s[1]] >= 3}
    assert clean == {s for s in STATES if s[0] == 2 and leak.HORIZONS[s[1]] >= 3}
    for state in STATES:
        method, horizon, _ = state
        kinds, h = letters(*state), leak.HORIZONS[horizon]
        if method == 1:  # the last ones before the split
            assert re.fullmatch(f"t*l{{{h - 1}}}e+", kinds)
        if method == 2:
            assert re.fullmatch(f"t+x{{{h - 1}}}e+", kinds)
    shown = [letters(m, 2, 5) for m in range(3)]
    assert shown[0].count("l") > shown[0].count("t")
    assert [kinds.count("l") for kinds in shown[1:]] == [2, 0]


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const root = e.shadowRoot;
  return { said: root.querySelector(".said").textContent,
    rows: [...root.querySelectorAll("svg g")].map((g) => [g.getAttribute("class"),
      g.querySelectorAll("rect:not(.target)").length, g.querySelectorAll(".target").length]),
    starts: [...root.querySelectorAll("svg g")].map((g) => +g.firstChild.getAttribute("x")),
    line: root.querySelector(".split")?.getAttribute("d") ?? "",
    done: root.querySelector(".task").className.includes("done") }; }"""


def choose(element, method=None, **sliders):
    if method is not None:
        element.locator(f"input[data-key=method][value='{method}']").check(force=True)
    for key, value in sliders.items():
        element.locator(f"input[data-key={key}]").fill(str(value))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_rows_sentence_and_task_match_the_state(show, cover, lang):
    page = show(leak.leak_explorer(), lang=lang, width=375)
    element = page.locator("leak-explorer")
    for method, horizon, split in cover(STATES, lang):
        choose(element, method=method, horizon=horizon, split=split)
        now, kinds, h = element.evaluate(STATE), letters(method, horizon, split), horizon + 1
        assert now["rows"] == [[kind, N, h] for kind in kinds]
        assert now["starts"] == pytest.approx([i + 0.1 for i in range(len(kinds))])
        assert now["line"].startswith(f"M{leak.SPLITS[split]} ") == (method > 0)
        counts = [int(number) for number in re.findall(r"\d+", now["said"])][:3]
        train, leaks = kinds.count("t") + kinds.count("l"), kinds.count("l")
        assert counts == [train, kinds.count("e"), leaks]
        assert now["done"] == (h >= 3 and leaks == 0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_leaks_and_task_can_be_done_by_keyboard(show):
    page = show(leak.leak_explorer("en"), width=375)
    element, task = page.locator("leak-explorer"), page.locator("leak-explorer .task")
    assert "Neighbouring windows" in element.locator(".said").inner_text()
    assert task.inner_text().startswith("Task")
    element.locator("input[data-key=method]").first.focus()
    page.keyboard.press("ArrowRight")
    assert "the last ones before the split" in element.locator(".said").inner_text()
    page.keyboard.press("ArrowRight")
    assert task.inner_text().startswith("✓ Done")
    choose(element, horizon=0)
    assert task.inner_text().startswith("Task")
    choose(element, method=1)
    assert "no window crosses the split" in element.locator(".said").inner_text()
