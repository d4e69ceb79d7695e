"""Test that the smoothing explorer shows TensorBoard's line in a browser."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest
import tensorboard
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.explorers.smooth import LARGE, SPIKE, noisy_losses, smooth, smooth_explorer

DATA = json.loads(smooth_explorer().data)
TURN = DATA["turn"]


def lowest(values: list[float]) -> int:
    return min(range(len(values)), key=values.__getitem__)


def low(weight: int) -> int:
    return lowest(smooth(DATA["logged"], weight / 100))


def test_installed_tensorboard_uses_this_formula():
    with zipfile.ZipFile(Path(tensorboard.__file__).with_name("webfiles.zip")) as files:
        script = files.read("index.js").decode()
    average = r"(\w)=\1\*(\w)\+\(1-\2\)\*(\w),(\w)\+\+"
    assert re.search(rf"{average}.{{1,30}}1-Math\.pow\(\2,\4\)", script)
    assert re.search(r"scalarSmoothing:\.6\b", script)  # the slider's default


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60), st.floats(0, 0.99))
def test_smooth_equals_an_exponentially_weighted_mean(values, weight):
    x = torch.tensor(values, dtype=torch.float64)
    shares = weight ** torch.arange(len(x), dtype=torch.float64).flip(0)
    for debias, total in ((True, shares.sum()), (False, 1 / (1 - weight))):
        want = float((shares * x).sum() / total)
        assert smooth(values, weight, debias)[-1] == pytest.approx(want, rel=1e-6, abs=1e-6)


def test_no_minimum_depends_on_rounding():
    whole, logged = (values.tolist() for values in noisy_losses())
    assert lowest(whole) == TURN == 45 and logged[SPIKE] == LARGE == max(logged[5:])
    for weight in range(100):
        line = smooth(logged, weight / 100)
        assert lowest(line) == low(weight)
        first, second = sorted(line)[:2]
        assert second - first > 1e-5


def test_claims_of_chapter_and_fallback_hold():
    """Strong smoothing shows the minimum late; with 0 or 0.6 the noise determines it."""
    good = [weight for weight in range(100) if abs(low(weight) - TURN) <= 3]
    assert good == list(range(good[0], good[-1] + 1)) and good[0] > 60 and 75 in good
    assert low(99) == 98 and low(0) == low(60) == 62
    whole = DATA["whole"]
    assert whole[TURN:] == sorted(whole[TURN:]) and whole[-1] - whole[TURN] > 0.25
    lines = [smooth(DATA["logged"], weight / 100) for weight in range(100)]
    lifts = [line[SPIKE] - line[SPIKE - 1] for line in lines]
    assert lifts == sorted(lifts, reverse=True) and lifts[99] < 0.04 and lifts[75] > 0.4


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const root = e.shadowRoot;
  const y = (name) => root.querySelector(`path.${name}`).getAttribute("d").slice(1)
    .split("L").map((point) => (168 - +point.split(" ")[1]) / 50);
  return { said: root.querySelector(".said").textContent,
    done: root.querySelector(".task").className.includes("done"),
    line: y("line"), logged: y("logged"), whole: y("whole"),
    dots: [...root.querySelectorAll("svg circle")].map((c) => (168 - +c.getAttribute("cy")) / 50),
    focus: root.activeElement?.ariaLabel }; }"""


def numbers(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_drawn_lines_match_python(show, lang):
    page = show(smooth_explorer(), lang=lang, width=375)
    element = page.locator("smooth-explorer")
    for debias in (True, False):
        element.get_by_role("checkbox").set_checked(debias)
        for weight in (0, 37, 60, 75, 90, 99):
            element.get_by_role("slider").fill(str(weight))
            now, line = element.evaluate(STATE), smooth(DATA["logged"], weight / 100, debias)
            assert now["line"] == pytest.approx(line, abs=0.002)
            assert now["logged"] == pytest.approx(DATA["logged"], abs=0.002)
            assert now["whole"] == pytest.approx(DATA["whole"], abs=0.002)
            assert now["dots"] == pytest.approx([LARGE, min(line)], abs=0.002)
            want = [lowest(line), TURN, LARGE, line[SPIKE] - line[SPIKE - 1], line[SPIKE]]
            assert numbers(now["said"])[:5] == pytest.approx(want, abs=0.0051)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_focused_step_is_described(show):
    page = show(smooth_explorer(), width=375)
    element = page.locator("smooth-explorer")
    line = smooth(DATA["logged"], 0.99)
    element.locator("g[aria-current]").focus()
    for key, step in (("Home", 0), ("ArrowRight", 1), ("End", 99), ("ArrowLeft", 98)):
        page.keyboard.press(key)
        now = element.evaluate(STATE)
        want = [step, DATA["logged"][step], line[step]]
        assert numbers(now["focus"]) == pytest.approx(want, abs=0.0051)
        assert numbers(now["said"])[:3] == pytest.approx(want, abs=0.0051)
    element.locator("g[role=button]").nth(30).hover()
    assert element.evaluate(STATE)["said"].startswith("Step 30: ")


def test_task_requires_medium_smoothing_and_debiasing(show):
    page = show(smooth_explorer(), width=375)
    element = page.locator("smooth-explorer")
    assert "lowest at step 98, the loss without noise at 45" in element.evaluate(STATE)["said"]
    for weight, debias in ((99, True), (0, True), (60, True), (75, False), (75, True)):
        element.get_by_role("checkbox").set_checked(debias)
        element.get_by_role("slider").fill(str(weight))
        assert element.evaluate(STATE)["done"] == (debias and abs(low(weight) - TURN) <= 3)
    assert element.evaluate(STATE)["done"]
