"""Test that the freeze explorer shows the changes of PyTorch's training step in a browser."""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from helpers.explorers import freeze

DATA = json.loads(freeze.freeze_explorer().data)
GRID = list(itertools.product((False, True), repeat=5))
STATISTICS = ["bn.running_mean", "bn.running_var", "bn.num_batches_tracked"]
WEIGHTS = ["linear.weight", "bn.weight", "bn.bias"]
HEAD = ["head.weight", "head.bias"]


def settings(switches) -> dict[str, bool]:
    return dict(zip(DATA["switches"], switches, strict=True))


def rule(frozen, evaluation, given, decay, zeros) -> list[str]:
    """Return the names that change by the chapter's rules."""
    trained = given and (not frozen or (zeros and decay))
    return WEIGHTS * trained + STATISTICS * (not evaluation) + HEAD


@pytest.mark.parametrize("switches", GRID)
def test_each_outcome_matches_torch(switches):
    now = settings(switches)
    before, after, grads = freeze.step(**now)
    row = DATA["rows"][GRID.index(switches)]
    assert DATA["names"] == list(before)
    named = zip(DATA["names"], row["changed"], strict=True)
    changed = {name for name, moved in named if moved}
    assert changed == {n for n in before if not torch.equal(before[n], after[n])}
    assert changed == set(rule(**now))
    for i, name in enumerate(DATA["names"]):
        shown = DATA["before"][i], row["after"][i]
        assert shown == tuple(round(t.flatten()[0].item(), 3) for t in (before[name], after[name]))
        assert (shown[0] != shown[1]) == bool(row["changed"][i])  # rounding hides no change
        assert DATA["parameters"][i] == (name in grads)
        grad = grads.get(name)
        if grad is None:
            assert row["grad"][i] == "None"
        else:
            assert row["grad"][i] == round(grad.flatten()[0].item(), 2)
            assert (row["grad"][i] == 0) == (not grad.any())


@pytest.mark.parametrize("switches", GRID)
def test_sgd_step_matches_the_formula(switches):
    now = settings(switches)
    before, after, grads = freeze.step(**now)
    for name, grad in grads.items():
        p = before[name]
        if grad is not None and (now["given"] or name in HEAD):
            p = p - freeze.RATE * (grad + now["decay"] * freeze.DECAY * p)
        torch.testing.assert_close(after[name], p)
        if name in WEIGHTS and now["frozen"]:
            assert (grad is None) != now["zeros"]


def test_explorer_keeps_the_random_state():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    freeze.freeze_explorer()
    assert torch.equal(torch.get_rng_state(), state)


# ---------------------------------------------------------------- in a browser


def text(number) -> str:
    return f"{number:g}".replace("-", "−") if number != "None" else number


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_setting_renders_its_changed_tensors(show, cover, lang):
    page = show(freeze.freeze_explorer(lang), width=375)
    element = page.locator("freeze-explorer")
    boxes, lines = element.get_by_role("checkbox").all(), element.locator(".drawing button")
    task, done = element.locator(".task"), False
    assert [box.is_checked() for box in boxes] == [True, False, True, True, True]
    for switches in cover(GRID, lang):
        row = DATA["rows"][GRID.index(switches)]
        for box, on in zip(boxes, switches, strict=True):
            box.set_checked(on)
        now = settings(switches)
        want = []
        for i, name in enumerate(DATA["names"]):
            moved = f"{text(DATA['before'][i])}→{text(row['after'][i])}"
            numbers = moved if row["changed"][i] else text(DATA["before"][i])
            grad = text(row["grad"][i]) if DATA["parameters"][i] else "–"
            mark = ("good" if name in HEAD else "bad") if row["changed"][i] else ""
            want.append([name, numbers, grad, mark])
        found = lines.evaluate_all(
            "all => all.map(b => [...[...b.children].map(c => c.textContent), b.className])"
        )
        assert found == want
        right = now["given"] and set(rule(**now)) == set(HEAD)
        assert task.inner_text().startswith(("✓ Done", "✓ 完成")) == right
        done |= right
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert done or lang == "zh"  # the keyboard test completes the task in Chinese


WHY = [
    ((1, 0, 1, 1, 1), "linear.weight", "zeros of an earlier step: the optimizer updates it"),
    ((1, 0, 1, 0, 1), "linear.weight", "an update of 0"),
    ((1, 0, 1, 1, 0), "bn.bias", "the optimizer skips it"),
    ((1, 0, 0, 1, 1), "bn.weight", "does not contain it"),
    ((0, 0, 0, 1, 1), "bn.weight", "does not contain it"),
    ((0, 0, 1, 1, 1), "bn.weight", "optimizer updates it"),
    ((1, 0, 1, 1, 1), "bn.running_var", "the forward pass in train() updates it"),
    ((1, 1, 1, 1, 1), "bn.running_var", "does not change this buffer"),
    ((1, 1, 0, 1, 1), "head.bias", "optimizer updates it"),
]


def test_selected_line_shows_the_reason(show):
    page = show(freeze.freeze_explorer("en"), width=800)
    element = page.locator("freeze-explorer")
    for switches, name, reason in WHY:
        for box, on in zip(element.get_by_role("checkbox").all(), switches, strict=True):
            box.set_checked(bool(on))
        element.get_by_role("button", name=name).focus()
        output = element.locator(".said").inner_text()
        moved = name in rule(*switches)
        assert (
            output.startswith(f"{name} {'changes' if moved else 'does not change'}.")
            and reason in output
        )


def test_task_can_be_completed_by_keyboard(show):
    page = show(freeze.freeze_explorer("zh"), width=375)
    element, task = page.locator("freeze-explorer"), page.locator("freeze-explorer .task")
    boxes = element.get_by_role("checkbox").all()
    element.locator(".drawing button").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert "bn.running_mean 变了" in element.locator(".said").inner_text()
    boxes[2].uncheck()
    boxes[1].focus()
    page.keyboard.press("Space")
    assert task.inner_text().startswith("任务")  # without the backbone in the optimizer
    boxes[2].check()
    assert task.inner_text().startswith("任务")
    boxes[4].focus()
    page.keyboard.press("Space")
    assert task.inner_text().startswith("✓ 完成")
