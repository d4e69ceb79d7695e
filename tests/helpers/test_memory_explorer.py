"""Test that the memory explorer's table equals the counts of PyTorch's memory tracker."""

from __future__ import annotations

import itertools
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers.memory import BATCHES, COUNTED, SETTINGS, count, memory_explorer

MIB = 2**20


@settings(max_examples=5)
@given(st.integers(0, 7), st.integers(0, 4))
def test_table_matches_training_memory(setting, batch):
    found = count(BATCHES[batch], *SETTINGS[setting])
    parts = found.weights, found.gradients, found.optimizer, found.activations, found.peak
    assert COUNTED[setting][batch] == [int(f"{n / MIB:.0f}") for n in parts]


def test_claims_of_the_sentences_hold_for_every_setting():
    assert len(COUNTED) == len(SETTINGS) and {len(rows) for rows in COUNTED} == {len(BATCHES)}
    for rows in COUNTED:
        for *parts, peak in rows:
            assert abs(sum(parts) - peak) <= 2  # each is rounded
        for smaller, larger in itertools.pairwise(rows):
            assert smaller[3] < larger[3]
            assert all(a >= b for a, b in zip(smaller[:3], larger[:3], strict=True))
    assert [a == 2 * b for b, a in itertools.pairwise(BATCHES)] == [True] * 4


STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent,
    task: e.shadowRoot.querySelector(".task").className,
    key: all(".key > span").map((s) => +s.textContent.match(/\\d+/)[0]),
    peaks: all(".bars small").map((s) => +s.textContent),
    bars: all(".bars button").map((b) => [0, 1, 2, 3].map((p) =>
      parseFloat(b.querySelector(`.p${p}`)?.style.width ?? 0))) }; }"""


def choose(element, adam: bool, half: bool, again: bool) -> None:
    element.get_by_role("radio").nth(int(adam)).check()
    for box, on in zip(element.get_by_role("checkbox").all(), (half, again), strict=True):
        box.set_checked(on)


def test_page_shows_the_numbers_of_every_setting(show):
    page = show(memory_explorer(), lang="zh", width=375)
    element, most = page.locator("memory-explorer"), max(r[4] for rows in COUNTED for r in rows)
    for setting, rows in zip(SETTINGS, COUNTED, strict=True):
        choose(element, *setting)
        element.locator(".bars button").first.focus()
        for k, row in enumerate(rows):
            page.keyboard.press("ArrowRight" if k else "Home")
            now = element.evaluate(STATE)
            assert now["key"] == row[:4] and now["peaks"] == [r[4] for r in rows]
            for bar, want in zip(now["bars"], rows, strict=True):
                assert all(abs(w - 100 * n / most) < 0.01 for w, n in zip(bar, want, strict=False))
            half = [BATCHES[k - 1], rows[k - 1][4], round(100 * rows[k - 1][4] / row[4])]
            numbers = [int(n) for n in re.findall(r"\d+", now["said"].split("✓")[0])]
            assert numbers == [BATCHES[k], row[4], *(half if k else []), row[3]]


def test_explorer_opens_with_93_percent_and_task_can_be_completed(show):
    page = show(memory_explorer(), width=375)
    element = page.locator("memory-explorer")
    assert "93\u00a0%" in element.evaluate(STATE)["said"]
    for setting, rows in zip(SETTINGS, COUNTED, strict=True):
        element.get_by_role("button", name="Reset").click()
        choose(element, *setting)
        element.locator(".bars button").last.click()
        done = "done" in element.evaluate(STATE)["task"]
        assert done == (rows[3][4] < 0.55 * rows[4][4]) == (setting == (False, False, False))


def test_checkpointing_and_bfloat16_reduce_savings_of_halving():
    peaks = {key: [row[-1] for row in rows] for key, rows in zip(SETTINGS, COUNTED, strict=True)}
    for (adam, half, again), peak in peaks.items():
        saved = [1 - less / more for less, more in itertools.pairwise(peak)]
        for smaller in {(adam, True, again), (adam, half, True)} - {(adam, half, again)}:
            there = [1 - less / more for less, more in itertools.pairwise(peaks[smaller])]
            assert all(a < b for a, b in zip(there, saved, strict=True) if b > 0), smaller
