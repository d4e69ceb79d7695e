"""Test that the batch explorer shows PyTorch's splits and gradients in a browser."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers import batch


@given(n=st.integers(1, 20), replicas=st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_split_gradients_match_the_formula(n, replicas):
    x, y = torch.randn(n), torch.randn(n)
    got = batch.split_gradients(x, y, replicas)
    assert got["sizes"] == [len(part) for part in torch.ones(n).chunk(replicas)]
    per_sample = 2 * (x - y) * x  # the derivative of (w x - y)^2 at w = 1
    means = [part.mean() for part in per_sample.split(got["sizes"])]
    assert got["exact"] == pytest.approx(per_sample.mean().item(), abs=2e-3)
    assert got["averaged"] == pytest.approx(torch.stack(means).mean().item(), abs=2e-3)


def test_explorer_data_matches_torch():
    rows = json.loads(batch.batch_explorer().data)
    assert len(rows) == batch.LARGEST_BATCH
    for n, row in enumerate(rows, 1):
        assert row["exact"] == round(sum(2 * (1 - k / 2) for k in range(1, n + 1)) / n, 3)
        assert len(row["splits"]) == batch.MOST_REPLICAS
        for replicas, (shards, averaged) in enumerate(row["splits"], 1):
            assert shards == [len(part) for part in torch.ones(n).chunk(replicas)]
            if len(set(shards)) == 1:
                assert averaged == row["exact"]
    assert rows[9]["splits"][3] == [[3, 3, 3, 1], -4.25] and rows[9]["exact"] == -3.5


# ---------------------------------------------------------------- in a browser


def test_every_split_shows_its_shares_and_gradients(show):
    page = show(batch.batch_explorer(), width=375)
    element = page.locator("batch-explorer")
    sliders, bars = element.get_by_role("slider"), element.locator(".shares")
    rows = json.loads(batch.batch_explorer().data)
    for n in (1, 2, 5, 10, 13, 16):
        sliders.nth(0).fill(str(n))
        for replicas in range(1, batch.MOST_REPLICAS + 1):
            sliders.nth(1).fill(str(replicas))
            sizes, averaged = rows[n - 1]["splits"][replicas - 1]
            shares, weights = (bar.locator("> *").all_inner_texts() for bar in bars.all())
            assert shares == [f"{size}/{n}" for size in sizes]
            assert weights == [f"1/{len(sizes)}"] * len(sizes)
            exact, got = element.locator("dd").all_inner_texts()
            assert float(exact.replace("−", "-")) == rows[n - 1]["exact"]
            assert float(got.replace("−", "-")) == averaged
            text = element.locator(".said").inner_text()
            assert ("so the gradient is right" in text) == (averaged == rows[n - 1]["exact"])
            assert (f"{replicas - len(sizes)} replica" in text) == (replicas > len(sizes))
            widths = [b.bounding_box()["width"] for b in bars.nth(0).locator("button").all()]
            assert widths == pytest.approx(
                [s / n * (sum(widths) + 2 * len(sizes) - 2) for s in sizes], abs=4
            )
            assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_initial_gradient_is_wrong_and_task_completes(show):
    page = show(batch.batch_explorer("zh"), width=375)
    element, task = page.locator("batch-explorer"), page.locator("batch-explorer .task")
    assert element.locator("dd").all_inner_texts() == ["−3.5", "−4.25"]
    replicas = element.get_by_role("slider").nth(1)
    for n, done in ((1, False), (3, False), (4, False), (5, True)):
        replicas.fill(str(n))
        assert task.inner_text().startswith("✓ 完成" if done else "任务"), n


def test_pointing_at_a_share_describes_it(show):
    page = show(batch.batch_explorer(), width=800)
    element = page.locator("batch-explorer")
    element.locator(".shares button").nth(1).hover()
    text = element.locator(".said").inner_text()
    assert text.startswith("replica 1 has 3 of 10 samples and weighs 1/4.")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert element.locator(".said").inner_text().startswith("replica 3 has 1 of 10")


SPILLED = """(e) => [...e.shadowRoot.querySelectorAll(".shares button")]
  .filter((b) => b.scrollWidth > b.clientWidth + 1).map((b) => b.textContent)"""


def test_share_labels_fit_on_a_narrow_phone(show):
    page = show(batch.batch_explorer(), width=320)
    element = page.locator("batch-explorer")
    for n in range(1, batch.LARGEST_BATCH + 1):
        for replicas in range(1, batch.MOST_REPLICAS + 1):
            element.evaluate("(e, state) => e.set(state)", {"n": n, "replicas": replicas})
            assert element.evaluate(SPILLED) == [], (n, replicas)
            text = element.locator(".said").inner_text()
            assert ("1 of 1 sample and" in text) == (n == 1)
