"""The leak explorer: which windows leak is counted window by window, and the browser draws it."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from helpers.explorers import leak

DATA = json.loads(leak.leak_explorer().data)
STATES = list(
    itertools.product(
        *(range(len(all_)) for all_ in (leak.METHODS, leak.LENGTHS, leak.HORIZONS, leak.SPLITS))
    )
)


def letters(method, length, horizon, split):
    return DATA["kinds"][method][length][horizon][split]


@pytest.mark.parametrize("state", STATES)
def test_the_letters_are_those_of_sets_of_steps(state):
    method, length, horizon, split = state
    kinds = letters(*state)
    n, h, at = leak.LENGTHS[length], leak.HORIZONS[horizon], leak.SPLITS[split]
    assert len(kinds) == leak.STEPS - n - h + 1
    targets = [set(range(i + n, i + n + h)) for i in range(len(kinds))]
    later = [i for i in range(len(kinds)) if i + n >= at]
    test = [i for i, kind in enumerate(kinds) if kind == "e"]
    assert len(test) == len(later) and (method == 0 or test == later)
    wanted = set().union(*(targets[i] for i in test))
    for i, kind in enumerate(kinds):
        if kind in "tl":
            assert (kind == "l") == bool(wanted & (set(range(i, i + n)) | targets[i]))
        if method == 2 and kind != "e":
            assert (kind == "t") == (i + n + h <= at)
        assert kind in ("tle", "tle", "tex")[method]


def test_what_the_task_the_fallback_and_the_sentences_say():
    clean = {s for s in STATES if "l" not in letters(*s) and leak.HORIZONS[s[2]] >= 3}
    assert clean == {s for s in STATES if s[0] == 2 and leak.HORIZONS[s[2]] >= 3}
    for state in STATES:
        method, _, horizon, _ = state
        kinds, h = letters(*state), leak.HORIZONS[horizon]
        if method == 1:  # the last ones before the split
            assert re.fullmatch(f"t*l{{{h - 1}}}e+", kinds)
        if method == 2:
            assert re.fullmatch(f"t+x{{{h - 1}}}e+", kinds)
    shown = [letters(m, 2, 2, 2) for m in range(3)]
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


def choose(element, **state):
    for key, value in state.items():
        element.locator(f"input[data-key={key}][value='{value}']").check(force=True)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_rows_sentence_and_task_follow_the_state(show, cover, lang):
    page = show(leak.leak_explorer(), lang=lang, width=375)
    element = page.locator("leak-explorer")
    for method, length, horizon, split in cover(STATES, lang):
        choose(element, method=method, length=length, horizon=horizon, split=split)
        now, kinds = element.evaluate(STATE), letters(method, length, horizon, split)
        n, h = leak.LENGTHS[length], leak.HORIZONS[horizon]
        assert now["rows"] == [[kind, n, h] for kind in kinds]
        assert now["starts"] == pytest.approx([i + 0.1 for i in range(len(kinds))])
        assert now["line"].startswith(f"M{leak.SPLITS[split]} ") == (method > 0)
        counts = [int(number) for number in re.findall(r"\d+", now["said"])][:3]
        train, leaks = kinds.count("t") + kinds.count("l"), kinds.count("l")
        assert counts == [train, kinds.count("e"), leaks]
        assert now["done"] == (h >= 3 and leaks == 0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_it_opens_with_leaks_and_the_task_can_be_done_with_the_keyboard(show):
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
