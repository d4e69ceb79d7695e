"""The explorer of moves: every row does what its code does, and the browser shows it."""

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
def test_each_row_of_the_explorer_is_what_its_code_does(kind, move):
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
def test_the_code_to_write_instead_reaches_the_target(kind, move):
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


def test_the_outcomes_of_the_explorer():
    def outcomes(kind):
        return [move_rows.try_move(kind, move)["outcome"] for move in move_rows.CONVERSIONS]

    assert outcomes("tensor") == ["assign", "assign", "nothing"]
    assert outcomes("parameter") == ["leaf", "leaf", "nothing"]
    assert outcomes("module") == ["in place", "replaced", "nothing"]
    assert outcomes("buffer") == ["rebound", "rebound", "nothing"]
    for kind in ("attribute", "list", "optimizer"):
        assert outcomes(kind) == ["missed", "missed", "nothing"]


def test_explorer_carries_all_rows_and_has_words_for_each_outcome():
    explorer = move_rows.move_explorer("zh")
    rows = json.loads(explorer.data)
    assert rows == [move_rows.try_move(*row) for row in ROWS]
    for word in {row["outcome"] for row in rows}:
        found = re.findall(rf'^ +"?{word}"?:', explorer.script, re.M)
        assert len(found) == 2, word  # English and Chinese
    for kind in move_rows.OBJECTS:
        assert explorer.script.count(f"{kind}: ") >= 2, kind


@pytest.mark.parametrize(("kind", "move"), [("model", ".double()"), ("tensor", ".half()")])
def test_try_move_refuses_what_it_does_not_know(kind, move):
    with pytest.raises(ValueError, match="must be one of .*got"):
        move_rows.try_move(kind, move)


# ---------------------------------------------------------------- the explorer in a browser


def test_explorer_shows_every_row_in_both_languages(show):
    chinese = re.compile("[\u4e00-\u9fff]")
    for lang in ("en", "zh"):
        # Two on a page: the second one is parsed when the element is defined already.
        explorer = move_rows.move_explorer(lang)
        page = show(explorer, explorer, width=375)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        element = page.locator("move-explorer").last
        assert "Seven kinds" not in page.locator("main").inner_text()
        assert element.get_by_label("What you have" if lang == "en" else "手里的对象").count() == 1
        kind, move = element.locator("select").all()
        status, said = element.locator("[aria-live=polite]"), set()
        for row in (move_rows.try_move(*row) for row in ROWS):
            kind.select_option(row["kind"])
            move.select_option(row["move"])
            text = status.inner_text()
            for part in ("code", "watch", "before", "after", "fix"):
                assert row[part] in text, (row, text)
            assert ("same object" in text or "同一个对象" in text) == (row["returned"] == "same")
            verdict = status.locator("strong").inner_text()
            assert bool(chinese.search(verdict)) == (lang == "zh")
            said.add(verdict)
        assert (
            len(said)
            == len({row["outcome"] for row in json.loads(move_rows.move_explorer().data)}) + 1
        )


def test_explorer_works_by_keyboard(show):
    page = show(move_rows.move_explorer(), width=375)
    status = page.locator("move-explorer [aria-live]")
    seen = [status.inner_text()]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    seen.append(status.inner_text())
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    seen.append(status.inner_text())
    assert len(set(seen)) == 3 and "p = nn.Parameter" in seen[1] and '.to("meta")' in seen[2]
