"""Test that the norm explorer shows PyTorch's BatchNorm outputs in a browser."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers import norm

NUMBER = st.floats(-20, 20, width=16)


@given(st.lists(NUMBER, min_size=2, max_size=20))
@settings(deadline=None, max_examples=50)
def test_training_mode_uses_batch_statistics(batch):
    found = norm.in_training(torch.tensor(batch))
    mean = sum(batch) / len(batch)
    var = sum((x - mean) ** 2 for x in batch) / len(batch)
    assert [found["mean"], found["var"]] == pytest.approx([mean, var], abs=1e-3)
    assert found["out"] == pytest.approx((batch[0] - mean) / math.sqrt(var + 1e-5), abs=1e-2)


@given(st.integers(0, 30), st.integers(2, 9), NUMBER)
@settings(deadline=None, max_examples=50)
def test_evaluation_mode_uses_running_statistics(steps, n, x):
    batches = torch.randn(steps, n) * 3 + 4
    found = norm.in_evaluation(batches, x)
    mean, var = 0.0, 1.0
    for batch in batches:
        mean += 0.1 * (batch.mean().item() - mean)
        var += 0.1 * (batch.var().item() - var)
    assert [found["mean"], found["var"]] == pytest.approx([mean, var], rel=1e-3, abs=1e-4)
    assert found["out"] == pytest.approx((x - mean) / math.sqrt(var + 1e-5), rel=1e-3, abs=1e-3)


def test_data_contains_one_sample_in_batches_of_each_size():
    data = json.loads(norm.norm_explorer().data)
    assert data["all"] == (norm.SAMPLE - norm.MEAN) / norm.STD == 0.5
    for n, row in zip(norm.SIZES, data["rows"], strict=True):
        assert len(row["eval"]) == len(norm.STEPS) and row["eval"][0]["out"] == norm.SAMPLE
        for batch, found in zip(row["batches"], row["train"], strict=True):
            assert len(batch) == n and batch[0] == norm.SAMPLE
            assert norm.in_training(torch.tensor(batch))["mean"] == pytest.approx(
                found["mean"], abs=0.06
            )


# ---------------------------------------------------------------- in a browser


def test_the_page_shows_each_output(show):
    page = show(norm.norm_explorer(), width=375)
    element = page.locator("norm-explorer")
    data = json.loads(norm.norm_explorer().data)
    size, step = element.get_by_role("slider").all()
    rows = element.locator("[role=button]")
    for i in (0, 1, 4):
        size.fill(str(i))
        for mode in ("train", "eval"):
            element.locator(f"input[value={mode}]").check()
            for k in (0, 1, 5):
                step.fill(str(k))
                found = data["rows"][i]
                outs = [f["out"] for f in found["train"]]
                outs = outs if mode == "train" else [found["eval"][k]["out"]] * norm.DRAWS
                names = [row.get_attribute("aria-label") for row in rows.all()]
                assert names == [
                    f"batch {j}: {out:g}".replace("-", "−") for j, out in enumerate(outs, 1)
                ]
                text = element.locator(".said").inner_text()
                low, high = (f"{v:g}".replace("-", "−") for v in (min(outs), max(outs)))
                if mode == "train":
                    assert text.endswith(f"between {low} and {high}.")
                else:
                    assert f"output is {low} in every batch" in text
                    assert f"After {norm.STEPS[k]} step{'s' * (norm.STEPS[k] != 1)} the" in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_in_train_mode_and_task_requires_eval_mode(show):
    page = show(norm.norm_explorer("zh"), width=375)
    element, task = page.locator("norm-explorer"), page.locator("norm-explorer .task")
    assert "在 −0.4 到 1.29 之间" in element.locator(".said").inner_text()
    element.locator("[role=button]").first.focus()
    page.keyboard.press("ArrowDown")
    assert element.locator(".said").inner_text().startswith("第 2 批")
    step = element.get_by_role("slider").nth(1)
    step.fill("7")
    assert task.inner_text().startswith("任务")  # in training mode nothing else counts
    step.fill("2")
    element.locator("input[value=eval]").check()
    assert task.inner_text().startswith("任务")
    step.focus()
    page.keyboard.press("End")
    assert task.inner_text().startswith("✓ 完成")
