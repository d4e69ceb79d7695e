"""Test that the modes explorer shows PyTorch's effects in a browser."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import nn

from helpers.explorers.modes import MODES, modes_explorer, switched

DATA = json.loads(modes_explorer().data)
GRID = list(itertools.product(range(3), (False, True), (False, True)))


def effects(row) -> tuple:
    return row["differ"], row["moved"], bool(row["kept"]), bool(row["error"])


@pytest.mark.parametrize("mode, training, frozen", GRID)
def test_each_effect_matches_its_setting(mode, training, frozen):
    row = DATA["rows"][mode][training][frozen]
    name = list(MODES)[mode]
    assert row == switched(name, training=training, frozen=frozen)
    graph = name == "enable_grad" and not frozen
    assert effects(row) == (training, training, graph, name == "inference_mode")
    assert row["weights"] == (4 if graph else 0)


def test_kept_memory_is_input_and_activations():
    """eval() keeps 64 inputs and outputs of 4 floats; train() adds tensors of the other layers."""
    both = 2 * 64 * 4 * 4
    assert switched("enable_grad", training=False, frozen=False)["kept"] == both
    masks = switched("enable_grad", training=True, frozen=False)["kept"] - both
    assert masks >= 64 * 4 // 8


def test_clone_of_an_inference_tensor_allows_training():
    with torch.inference_mode():
        features = nn.Linear(4, 4)(torch.randn(2, 4))
    nn.Linear(4, 2)(features.clone()).sum().backward()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        nn.Linear(4, 2)(features)


# ---------------------------------------------------------------- in a browser


def choose(element, mode, training, frozen):
    element.get_by_role("radio").nth(mode).check()
    for box, on in zip(element.get_by_role("checkbox").all(), (training, frozen), strict=True):
        box.set_checked(on)


def shown(row) -> list[str]:
    return [
        "differ" if row["differ"] else "are equal",
        "are updated" if row["moved"] else "are unchanged",
        f"{row['kept']:,} bytes",
        f"{row['weights']} of 4",
        "RuntimeError" if row["error"] else "works",
    ]


def test_page_shows_the_effects_of_each_setting(show):
    page = show(modes_explorer(), width=375)
    element = page.locator("modes-explorer")
    for mode, training, frozen in GRID:
        choose(element, mode, training, frozen)
        row = DATA["rows"][mode][training][frozen]
        assert element.locator(".effects b").all_inner_texts() == shown(row)
        bad = element.locator(".effects button").evaluate_all(
            "all => all.map(b => b.classList.contains('bad'))"
        )
        differ, moved, kept, error = effects(row)
        assert bad == [differ, moved, kept, False, error]
        for button in element.locator(".effects button").all():
            button.focus()
            text = element.locator(".said").inner_text()
            assert button.locator("b").inner_text() in text
            assert not any(word in text for word in ("undefined", "null", "false"))


def test_explorer_opens_with_no_grad_in_training_mode(show):
    element = show(modes_explorer(), width=375).locator("modes-explorer")
    assert "Dropout draws a new mask in each pass" in element.locator(".said").inner_text()
    assert element.locator(".effects .bad").count() == 2


@pytest.mark.parametrize("mode, frozen", [(1, False), (1, True), (0, True)])
def test_task_accepts_each_solution(show, mode, frozen):
    element = show(modes_explorer(), lang="zh", width=375).locator("modes-explorer")
    task = element.locator(".task")
    for wrong in [(0, False, False), (2, False, True), (mode, True, frozen)]:
        choose(element, *wrong)
        assert task.inner_text().startswith("任务")
        element.get_by_role("button", name="重置").click()
    choose(element, mode, False, frozen)
    assert task.inner_text().startswith("✓ 完成")
