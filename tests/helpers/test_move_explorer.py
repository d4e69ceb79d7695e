"""Test that the move explorer shows the results of its code in a browser."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

from helpers.cuda_semantics import where
from helpers.explorers import move as move_rows

ROWS = [(kind, move) for kind in move_rows.OBJECTS for move in move_rows.CONVERSIONS]


def run(code: str) -> dict:
    scope = {"torch": torch, "nn": nn}
    exec(code, scope)
    return scope


@pytest.mark.parametrize(("kind", "move"), ROWS)
def test_each_row_matches_its_code(kind, move):
    row = move_rows.try_move(kind, move)
    assert row["kind"] == kind and row["move"] == move
    *setup, action = row["code"].splitlines()
    scope = run("\n".join(setup))
    name, before = action.removesuffix(move), eval(row["watch"], scope)
    assert where(before) == row["before"]
    result = eval(action, scope)
    after = eval(row["watch"], scope)
    assert where(after) == row["after"]
    assert (after is before) == row["kept"]
    assert (result is scope[name]) == (row["returned"] == "same")


@pytest.mark.parametrize(("kind", "move"), ROWS)
def test_suggested_code_reaches_the_target(kind, move):
    row = move_rows.try_move(kind, move)
    target = where(eval("torch.ones(2)" + move, run("")))
    assert bool(row["fix"]) == (row["outcome"] in ("assign", "leaf", "missed", "replaced"))
    scope = run(row["fix"] or row["code"])
    assert where(eval(row["watch"], scope)) == target
    if "p" in scope:
        assert isinstance(scope["p"], nn.Parameter) and scope["p"].is_leaf
    if "optimizer" in scope:
        held = {p for group in scope["optimizer"].param_groups for p in group["params"]}
        assert held == set(scope["m"].parameters())


def test_try_move_returns_the_expected_outcomes():
    def outcomes(kind):
        return [move_rows.try_move(kind, move)["outcome"] for move in move_rows.CONVERSIONS]

    assert outcomes("tensor") == ["assign", "assign", "nothing"]
    assert outcomes("parameter") == ["leaf", "leaf", "nothing"]
    assert outcomes("module") == ["in place", "replaced", "nothing"]
    assert outcomes("buffer") == ["rebound", "rebound", "nothing"]
    for kind in ("attribute", "list", "optimizer"):
        assert outcomes(kind) == ["missed", "missed", "nothing"]


def test_explorer_contains_all_rows_and_text_for_each_outcome():
    explorer = move_rows.move_explorer("zh")
    rows = json.loads(explorer.data)
    assert rows == [move_rows.try_move(*row) for row in ROWS]
    for word in {row["outcome"] for row in rows}:
        found = re.findall(rf'^"?{word}"?:', explorer.script, re.M)
        assert len(found) == 4, word  # a mark and a sentence, in English and Chinese
    for kind in move_rows.OBJECTS:
        assert explorer.script.count(f"{kind}: ") >= 2, kind


@pytest.mark.parametrize(("kind", "move"), [("model", ".double()"), ("tensor", ".half()")])
def test_try_move_rejects_unknown_arguments(kind, move):
    with pytest.raises(ValueError, match="must be one of .*got"):
        move_rows.try_move(kind, move)


# ---------------------------------------------------------------- the explorer in a browser


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_explorer_shows_every_row(show, lang):
    # Two explorers: the second is parsed after the element is defined.
    explorer = move_rows.move_explorer(lang)
    page = show(explorer, explorer, width=375)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    element = page.locator("move-explorer").last
    cells = element.locator(".kinds button")
    rows = [move_rows.try_move(*row) for row in ROWS]
    assert cells.count() == len(rows)
    chinese, output = re.compile("[\u4e00-\u9fff]"), set()
    for i, row in enumerate(rows):
        cells.nth(i).focus()
        assert element.locator("pre").inner_text() == (row["fix"] or row["code"])
        text = element.locator(".said").inner_text()
        for part in ("watch", "before", "after"):
            assert row[part] in text, (row, text)
        verdict = text.split(row["after"], 1)[1]
        assert bool(chinese.search(verdict)) == (lang == "zh")
        output.add((row["outcome"], verdict.split("✓")[0]))
        colour = cells.nth(i).get_attribute("class")
        good = row["outcome"] in ("in place", "rebound")
        assert colour == ("free" if row["outcome"] == "nothing" else "good" if good else "bad")
    assert len({verdict for _, verdict in output}) == len({r["outcome"] for r in rows}) + 1


def test_task_requires_a_click_on_the_right_cell(show):
    page = show(move_rows.move_explorer(), width=800)
    element, task = page.locator("move-explorer"), page.locator("move-explorer .task")
    cells = element.locator(".kinds button")
    right = ROWS.index(("module", '.to("meta")'))
    cells.nth(right).hover()
    assert "meta gives the module new parameters" in element.locator(".said").inner_text()
    cells.nth(right + 3).click()
    assert task.inner_text().startswith("Task")
    cells.nth(right).click()
    assert task.inner_text().startswith("✓ Done")


def test_explorer_works_by_keyboard(show):
    page = show(move_rows.move_explorer(), width=375)
    status = page.locator("move-explorer .said")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert status.inner_text().startswith("m.layers[0].weight")
    for key, watch in (("ArrowDown", "next(iter"), ("ArrowUp", "m.layers"), ("Home", "x:")):
        page.keyboard.press(key)
        assert status.inner_text().startswith(watch), key


def test_object_names_do_not_overlap_the_cells(show):
    for lang in ("en", "zh"):
        page = show(move_rows.move_explorer(lang), width=320)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        wide = page.locator("move-explorer .kinds > span").evaluate_all(
            "all => all.filter((s) => s.scrollWidth > s.clientWidth).map((s) => s.textContent)"
        )
        assert wide == []
