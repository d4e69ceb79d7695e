"""Test that the diagnose explorer shows the results of real runs in a browser."""

from __future__ import annotations

import json

import pytest

from helpers.explorers import diagnose

DATA = json.loads(diagnose.diagnose_explorer().data)
BATCH, VALID = diagnose.TESTS.index("batch"), diagnose.TESTS.index("valid")


@pytest.mark.parametrize("cause", diagnose.FOUND)
def test_stored_results_match_a_run(cause):
    shown, found = diagnose.FOUND[cause], diagnose.results(cause)
    assert diagnose.kinds(shown) == diagnose.kinds(found)
    assert float(shown[0]) == pytest.approx(float(found[0]), abs=0.011)
    assert float(shown[BATCH]) == pytest.approx(float(found[BATCH]), abs=0.3, nan_ok=True)
    assert abs(int(shown[VALID].split()[0]) - int(found[VALID].split()[0])) <= 8


def test_causes_differ_but_no_single_test_separates_them():
    kinds = [diagnose.kinds(found) for found in diagnose.FOUND.values()]
    assert len(set(kinds)) == len(kinds) == 10
    assert all(len(set(column)) < 9 for column in zip(*kinds, strict=True))


def test_data_match_the_table_and_three_tests_identify_every_cause():
    assert sorted(DATA["causes"]) == list(range(9))
    assert [tuple(found) for found in DATA["found"]] == [
        diagnose.FOUND[cause] for cause in diagnose.CAUSES
    ]
    for cause in range(9):  # one step, one batch and validation are enough
        mine = [DATA["kinds"][cause][n] for n in (BATCH, 2, VALID)]
        alike = [k for k in DATA["kinds"] if [k[n] for n in (BATCH, 2, VALID)] == mine]
        assert len(alike) == 1


# ---------------------------------------------------------------- in a browser


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_explorer_shows_each_test_of_each_training(show, lang):
    page = show(diagnose.diagnose_explorer(lang), width=375)
    element = page.locator("diagnose-explorer")
    for n, cause in enumerate(DATA["causes"]):
        element.locator(".patients button").nth(n).click()
        assert element.locator(".tests code").count() == 0
        for _ in range(6):
            element.locator(".tests button").first.click()
        shown = [
            text.replace("\xa0", " ") for text in element.locator(".tests code").all_inner_texts()
        ]
        assert shown == DATA["found"][cause]
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        element.locator("select").select_option(str(cause + 1))
        assert ("three tests are enough" if lang == "en" else "三项就够") in element.locator(
            ".said"
        ).inner_text().lower()


def test_wrong_cause_is_refuted_and_right_one_requires_enough_tests(show):
    page = show(diagnose.diagnose_explorer("en"), width=800)
    element = page.locator("diagnose-explorer")
    text, task, select = (element.locator(s) for s in (".said", ".task", "select"))
    assert "2 of 9 causes fit" in text.inner_text()
    select.select_option("1")
    assert "“one batch, 200 steps” would give 2.31, not 0.00" in text.inner_text()
    assert element.locator(".tests .bad").count() == 1
    select.select_option("5")  # correct, but not the only cause that fits
    assert "but so does" in text.inner_text() and task.inner_text().startswith("Task")
    element.get_by_role("button", name="validation").click()
    assert task.inner_text().startswith("✓ Done")
    assert "no other cause fits. Tests: 2." in text.inner_text()


def test_explorer_works_by_keyboard_in_chinese(show):
    page = show(diagnose.diagnose_explorer("zh"), width=375)
    element = page.locator("diagnose-explorer")
    element.locator(".patients button").nth(1).focus()
    page.keyboard.press("Enter")
    element.get_by_role("button", name="一步更新").focus()
    page.keyboard.press("Enter")
    element.locator("select").focus()
    page.keyboard.press("ArrowDown")
    assert element.locator(".task").inner_text().startswith("✓ 完成")
