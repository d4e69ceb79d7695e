"""Test that the sampling explorer shows PyTorch's probabilities in a browser."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from helpers.explorers import sampling

DATA = json.loads(sampling.sampling_explorer().data)
LOGITS = sampling.LOGITS
ALL = len(LOGITS)


def by_hand(temperature: float, k: int, p: float) -> list[float]:
    """Return the probabilities of the kept words in descending order, computed in a loop."""
    chances = (LOGITS / temperature).softmax(-1)[:k]
    chances = (chances / chances.sum()).tolist()
    kept = []
    while len(kept) < k and sum(kept) < p:
        kept.append(chances[len(kept)])
    return [c / sum(kept) for c in kept]


def test_no_setting_depends_on_rounding():
    for t in DATA["temperatures"]:
        for k in range(1, ALL + 1):
            chances = (LOGITS / t).softmax(-1)[:k]
            sums = (chances / chances.sum()).cumsum(-1)[:-1]
            for p in DATA["p"][:-1]:
                assert not len(sums) or (sums - p).abs().min() > 1e-5


def test_every_setting_matches_a_reference_loop():
    for t, rows in zip(DATA["temperatures"], DATA["kept"], strict=True):
        for k, row in enumerate(rows, 1):
            for p, kept in zip(DATA["p"], row, strict=True):
                assert kept == (len(by_hand(t, k, p)) if p < 1 else k)
    for t, chances in zip(DATA["temperatures"], DATA["chances"], strict=True):
        torch.testing.assert_close(
            torch.tensor(chances, dtype=torch.float64), (LOGITS / t).softmax(-1), atol=1e-4, rtol=0
        )


def test_claims_of_chapter_and_fallback_hold():
    """The same top-p keeps more words at a higher temperature, never fewer."""
    assert LOGITS.tolist() == sorted(LOGITS.tolist(), reverse=True)
    for p in range(len(DATA["p"])):
        kept = [rows[ALL - 1][p] for rows in DATA["kept"]]
        assert kept == sorted(kept)
    assert DATA["kept"][0][-1][8] < DATA["kept"][-1][-1][8] < ALL  # initially a word is cut


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent,
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    shown: all(".bars output").map((o) => o.textContent),
    kept: all(".bars .hold").map((s) => parseFloat(s.style.width)),
    cut: all(".bars .free").map((s) => parseFloat(s.style.width)),
    one: all(".bars .one").map((s) => parseFloat(s.style.width)) }; }"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_each_temperature_and_cut(show, cover, lang):
    page = show(sampling.sampling_explorer(), lang=lang, width=375)
    element = page.locator("sampling-explorer")
    sliders = element.get_by_role("slider").all()
    cuts = ((ALL, 9), (5, 9), (ALL, 3), (6, 6), (1, 0))
    for t, (k, p) in cover(itertools.product(range(len(DATA["temperatures"])), cuts), lang):
        temperature = DATA["temperatures"][t]
        plain = (LOGITS / temperature).softmax(-1).tolist()
        for slider, value in zip(sliders, (t, k, p), strict=True):
            slider.fill(str(value))
        now = element.evaluate(STATE)
        want = by_hand(temperature, k, DATA["p"][p] if p < 9 else 2.0)
        assert now["kept"] == pytest.approx([100 * c for c in want], abs=0.02)
        assert now["cut"] == pytest.approx([100 * c for c in plain[len(want) :]], abs=0.02)
        one = [100 * c for c in LOGITS.softmax(-1).tolist()]
        assert now["one"] == pytest.approx(one, abs=0.02)
        numbers = [float(text[:-2]) for text in now["shown"][: len(want)]]
        assert numbers == pytest.approx([100 * c for c in want], abs=0.06)
        assert len(set(now["shown"][len(want) :])) <= 1
        counted = f" {len(want)} " if lang == "zh" else f"{len(want)} of 8 "
        assert counted in now["said"]
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_at_high_temperature_and_explains_each_cut(show):
    page = show(sampling.sampling_explorer("en"), width=375)
    element, text = page.locator("sampling-explorer"), page.locator("sampling-explorer .said")
    sliders = element.get_by_role("slider").all()
    assert f"{DATA['kept'][-1][-1][8]} of {ALL} words remain" in text.inner_text()
    assert "sampled with" in text.inner_text()
    element.locator(".bars [aria-current]").focus()
    page.keyboard.press("End")
    assert "cheese has" in text.inner_text() and "is cut by top-p" in text.inner_text()
    sliders[1].fill("2")
    assert "is cut by top-k" in text.inner_text() and "2 of 8" in text.inner_text()
    sliders[1].fill("1")
    assert "1 of 8 words remains" in text.inner_text()
    element.locator(".bars button").first.hover()
    assert "calm has" in text.inner_text() and "sampled with 100.0\u00a0%" in text.inner_text()


def test_task_requires_top_p_and_temperature(show):
    page = show(sampling.sampling_explorer("zh"), width=375)
    element = page.locator("sampling-explorer")
    sliders = element.get_by_role("slider").all()

    def done(t: float, k: int, p: float) -> bool:
        element.get_by_role("button", name="重置").click()
        values = (DATA["temperatures"].index(t), k, DATA["p"].index(p))
        for slider, value in zip(sliders, values, strict=True):
            slider.fill(str(value))
        return element.evaluate(STATE)["done"]

    reached = {
        (t, p)
        for t, rows in zip(DATA["temperatures"], DATA["kept"], strict=True)
        for p, kept in zip(DATA["p"], rows[-1], strict=True)
        if kept == 3 and by_hand(t, ALL, p)[0] < 0.5
    }
    assert reached and all(t > 1 for t, _ in reached)
    assert done(2.0, ALL, 0.5) and (2.0, 0.5) in reached
    assert not done(1.0, ALL, 0.7)  # keeps three words, but the first is too probable
    assert not done(3.0, 3, 1.0)  # top-k is not off
