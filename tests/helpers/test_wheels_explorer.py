"""Test the explorer of builds against `runs` and `driver_suffices`."""

from __future__ import annotations

import itertools
import json

import pytest

from helpers.explorers.wheels import DRIVERS, GPUS, WHEELS, outcome, wheels_explorer

DATA = json.loads(wheels_explorer().data)


def test_rows_match_the_outcomes():
    for (g, gpu), (d, driver), (w, wheel) in itertools.product(
        enumerate(GPUS), enumerate(DRIVERS), enumerate(WHEELS)
    ):
        assert DATA["rows"][g][d][w] == outcome(wheel, gpu, driver)


def test_claims_about_the_cards_hold():
    served = {gpu: [w for w in WHEELS if outcome(w, gpu, DRIVERS[-1])["kernel"]] for gpu in GPUS}
    assert served["RTX 5090"] == ["cu128", "cu130"]
    assert [gpu for gpu, wheels in served.items() if len(wheels) == 1] == ["GTX 1080"]
    assert served["V100"] == ["cu126", "cu128"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_and_explains_each_choice(show, cover, lang):
    output = {
        "en": ("runs", "no kernel", "driver too old"),
        "zh": ("能运行", "没有核函数", "驱动太旧"),
    }
    element = show(wheels_explorer(lang), width=375).locator("wheels-explorer")
    for g, d in cover(itertools.product(range(len(GPUS)), range(len(DRIVERS))), lang):
        element.locator("select").select_option(str(g))
        element.get_by_role("radio").nth(d).check()
        for w, button in enumerate(element.locator(".builds button").all()):
            row = DATA["rows"][g][d][w]
            n = 1 if row["kernel"] is None else 0 if row["driver"] else 2
            assert button.locator(".row span").first.inner_text() == output[lang][n]
            button.focus()
            text = element.locator(".said").inner_text()
            assert list(WHEELS)[w] in text
            assert (DRIVERS[d] if n == 2 else row["kernel"] if n == 0 else list(GPUS)[g]) in text
            assert "undefined" not in text


def test_the_task_is_solved_by_one_card(show):
    element = show(wheels_explorer("en"), width=375).locator("wheels-explorer")
    task = element.locator(".task")
    for g, gpu in enumerate(GPUS):
        element.get_by_role("button", name="Reset").click()
        element.locator("select").select_option(str(g))
        assert task.inner_text().startswith("✓ Done" if gpu == "GTX 1080" else "Task")
