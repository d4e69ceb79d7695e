"""Test that the copy explorer shows PyTorch's results in a browser."""

from __future__ import annotations

import pytest
import torch

from helpers.explorers.copy import WAYS, copy_explorer, try_way


def test_try_way_matches_torch():
    message = {code: try_way(way) for code, way in WAYS.items()}
    x = torch.zeros(2, requires_grad=True)
    for code, way in WAYS.items():
        s = torch.sigmoid(x)
        y = way(s)
        assert message[code]["shares"] == (y.data_ptr() == s.data_ptr())
        assert message[code]["requires_grad"] == y.requires_grad
    assert {code: t["outcome"] for code, t in message.items()} == {
        "y = s": "RuntimeError",
        "y = s.detach()": "RuntimeError",
        "y = s.clone()": 0.25,
        "y = s.detach().clone()": 0.25,
        "y = s.data": 0.0,
    }


# ---------------------------------------------------------------- in a browser


@pytest.mark.parametrize("how", ["keyboard", "touch"])
def test_rows_run_one_by_one_and_stay_visible(show, how):
    page = show(copy_explorer(), width=375)
    element, task = page.locator("copy-explorer"), page.locator("copy-explorer .task")
    buttons = element.locator(".ways button")
    message = [try_way(way) for way in WAYS.values()]

    def shown() -> list[list[str]]:
        return [button.locator("> *").all_inner_texts() for button in buttons.all()]

    assert [row[0] for row in shown()] == [code.removeprefix("y = ") for code in WAYS]
    assert [row[1] for row in shown()] == ["0", "?", "?", "?", "?"]
    for i, (code, row) in enumerate(zip(WAYS, message, strict=True)):
        assert task.inner_text().startswith("Task:")
        if how == "keyboard":
            buttons.nth(i).press("Enter")
        else:
            buttons.nth(i).click()
        wrong = row["outcome"] == 0.0
        result = "error" if isinstance(row["outcome"], str) else f"{row['outcome']:g}"
        assert shown()[i][1:] == [f"{row['s']:g}", result]
        text = element.locator(".said").inner_text()
        assert text.startswith(code)
        assert ("shares its storage" in text) == row["shares"]
        assert ("part of the graph" in text) == row["requires_grad"]
        assert ("RuntimeError" in text) == (row["outcome"] == "RuntimeError")
        assert task.inner_text().startswith("✓ Done:" if wrong else "Task:")
    assert not any("?" in row for row in shown())
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_pointing_shows_a_prompt_before_the_result(show):
    page = show(copy_explorer("zh"), width=800)
    element = page.locator("copy-explorer")
    element.locator(".ways button").nth(4).hover()
    text = element.locator(".said").inner_text()
    assert text.startswith("y = s.data 与 s 共享存储，并且与计算图断开。") and "按一下运行" in text
    assert element.locator(".task").inner_text().startswith("任务")
