"""Test the threshold explorer against scikit-learn and torchmetrics, and in a browser."""

from __future__ import annotations

import json
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from references import sk, tm

from helpers.explorers.threshold import at_threshold, rare_scores, threshold_explorer

DATA = json.loads(threshold_explorer().data)
LAST = len(DATA["bins"][0])


def by_libraries(truth: torch.Tensor, score: torch.Tensor, threshold: float) -> list[float | None]:
    text = (score >= threshold).long()
    scores = (sk().precision_score, sk().recall_score, sk().f1_score)
    ratios = [score(truth, text, zero_division=float("nan")) for score in scores]
    matrix = tm().binary_confusion_matrix(text, truth).flatten().tolist()
    return [*matrix, *(None if r != r else pytest.approx(r) for r in ratios)]


def test_every_threshold_matches_the_libraries():
    truth, score = rare_scores()
    assert len(DATA["rows"]) == LAST + 1
    for k, row in enumerate(DATA["rows"]):
        assert row == by_libraries(truth, score, k / LAST)
        assert row[3] == sum(DATA["bins"][1][k:]) and row[1] == sum(DATA["bins"][0][k:])
    histograms = [score[truth == c].histc(LAST, 0, 1).tolist() for c in (0, 1)]
    assert DATA["bins"] == histograms


def test_claims_about_lower_thresholds_hold():
    alarms, right = [row[1] for row in DATA["rows"]], [row[0] + row[3] for row in DATA["rows"]]
    assert alarms[15] == 0 < alarms[14]  # no false positives down to a threshold of 0.3
    assert right[15] > right[25] > right[0]  # so the accuracy rises first, and falls in the end


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1), st.floats(0, 1))
def test_at_threshold_matches_the_libraries_for_any_scores(pairs, threshold):
    truth, score = (torch.tensor(column) for column in zip(*pairs, strict=True))
    score = score.double()
    assert at_threshold(truth, score, threshold) == by_libraries(truth, score, threshold)


STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent,
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    cells: all("td[data-part]").map((c) => +c.textContent),
    scores: all(".scores b").map((b) => b.textContent),
    focus: e.shadowRoot.activeElement?.ariaLabel,
    bars: all("svg rect").map((r) => [r.dataset.part, r.className.baseVal]) }; }"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_threshold_is_reachable_by_keyboard(show, lang):
    page = show(threshold_explorer(), lang=lang, width=375)
    element = page.locator("threshold-explorer")
    assert element.evaluate(STATE)["cells"] == DATA["rows"][LAST // 2][:4]
    element.locator("g[aria-current]").focus()
    for k in [0, *range(1, 6), LAST - 1, LAST]:
        page.keyboard.press({0: "Home", LAST: "End"}.get(k, "ArrowRight"))
        if k == LAST - 1:
            page.keyboard.press("End")
            page.keyboard.press("ArrowLeft")
        now, (tn, fp, fn, tp, *ratios) = element.evaluate(STATE), DATA["rows"][k]
        assert f"{k / LAST:.2f}" in now["focus"] and now["cells"] == [tn, fp, fn, tp]
        for text, ratio in zip(now["scores"], [(tn + tp) / 1000, *ratios], strict=True):
            if ratio is None:
                assert text == "0 / 0"
            else:
                assert float(text[:-2]) == pytest.approx(100 * ratio, abs=0.0501)
        found = [int(n) for n in re.findall(r"\d+", now["said"])]
        assert {tn + tp, 1000, tp, 30, fp} <= set(found)
        assert {look for part, look in now["bars"] if part in ("tn", "tp")} <= {"good"}
        assert {look for part, look in now["bars"] if part in ("fp", "fn")} <= {"bad"}
        counts = dict.fromkeys(("tn", "fp", "fn", "tp"), 0)
        for part, _ in now["bars"]:
            counts[part] += 1
        bins = [[bool(n) for n in one] for one in DATA["bins"]]
        want = [sum(bins[0][:k]), sum(bins[0][k:]), sum(bins[1][:k]), sum(bins[1][k:])]
        assert list(counts.values()) == want


def test_explorer_opens_with_low_recall_and_one_threshold_solves_it(show):
    page = show(threshold_explorer(), width=375)
    element = page.locator("threshold-explorer")
    now = element.evaluate(STATE)
    assert (
        now["scores"][0] == "97.3\u00a0%" and now["scores"][2] == "10.0\u00a0%" and not now["done"]
    )
    best = max(k for k, row in enumerate(DATA["rows"]) if row[3] >= 27)
    for k in (best + 1, best - 1, best):
        element.get_by_role("slider").fill(str(k))
        assert element.evaluate(STATE)["done"] == (k == best)
    element.get_by_role("slider").fill("0")  # all are found: no "but", no 只
    assert "correct; of the 30 positives 30 are found" in element.evaluate(STATE)["said"]
    element.get_by_role("button", name="Reset").click()
    element.locator("svg").hover(position={"x": 1, "y": 20})  # pointing moves it, too
    assert element.evaluate(STATE)["cells"] == DATA["rows"][0][:4]
