"""Test that the mean explorer shows PyTorch's losses in a browser."""

from __future__ import annotations

import json

import pytest
import torch

from helpers.explorers import mean


@pytest.fixture(scope="module")
def data() -> dict:
    return json.loads(mean.mean_explorer().data)


def text(total: torch.Tensor, divisor: float) -> str:
    return f"{total / divisor:.3f}" if divisor else "nan"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("number", range(16))
def test_every_state_matches_torch(data, weighted, number):
    kept = [bool(number >> i & 1) for i in range(4)]
    shown = data["rows"][weighted][number]
    weight = mean.WEIGHTS if weighted else torch.ones(3)
    rows = -mean.BATCH.log_softmax(1)[torch.arange(4), mean.LABELS]
    counts = weight[mean.LABELS] * torch.tensor(kept)
    each = counts * rows
    assert shown["each"] == [f"{v:.3f}" for v in each.tolist()]
    assert shown["plain"] == f"{each.mean():.3f}"
    means = []
    for part, message in zip(
        (slice(4), slice(2), slice(2, 4)), (shown, *shown["halves"]), strict=True
    ):
        total, divisor = each[part].sum(), counts[part].sum().item()
        assert message["sum"] == f"{total:.3f}" and float(message["divisor"]) == divisor
        assert message["mean"] == text(total, divisor)
        means.append(total / divisor)
    mean_of_means = (means[1] + means[2]) / 2
    assert shown["means"] == ("nan" if mean_of_means.isnan() else f"{mean_of_means:.3f}")
    assert data["labels"] == mean.LABELS.tolist()
    assert data["weights"] == mean.WEIGHTS.tolist()


def test_means_agree_only_for_equal_divisors(data):
    for row in (row for rows in data["rows"] for row in rows if row["means"] != "nan"):
        divisors = {half["divisor"] for half in row["halves"]}
        assert (row["mean"] == row["means"]) == (len(divisors) == 1)


# ---------------------------------------------------------------- in a browser


def cells(element) -> list[str]:
    return element.locator("td").all_inner_texts()


@pytest.mark.parametrize("weighted", [False, True])
def test_page_shows_every_state(show, data, weighted):
    page = show(mean.mean_explorer(), width=375)
    element = page.locator("mean-explorer")
    element.get_by_role("checkbox").set_checked(weighted)
    samples = element.locator(".batches button")
    state = 0b1101
    for number in range(16):
        for i in range(4):
            if (state ^ number) >> i & 1:
                samples.nth(i).press("Enter")
        state = number
        row = data["rows"][weighted][number]
        a, b = row["halves"]
        assert cells(element) == [
            f"{row['sum']} / {row['divisor']}",
            row["mean"],
            f"({a['sum']} / {a['divisor']} + {b['sum']} / {b['divisor']}) / 2",
            row["means"],
            f"{row['sum']} / 4",
            row["plain"],
        ]
        for i, sample in enumerate(samples.all()):
            on = bool(number >> i & 1)
            assert sample.get_attribute("aria-pressed") == str(on).lower()
            assert sample.locator("b").inner_text() == (row["each"][i] if on else "ignored")
        assert ("0 / 0 is nan" in element.locator(".said").inner_text()) == (row["means"] == "nan")


def test_explorer_opens_with_different_means_and_task_completes(show, data):
    page = show(mean.mean_explorer("zh"), width=375)
    element, task = page.locator("mean-explorer"), page.locator("mean-explorer .task")
    assert cells(element)[1] != cells(element)[3]
    samples = element.locator(".batches button")
    samples.nth(1).click()  # all samples count, so the means agree, but no sample is left out
    assert cells(element)[1] == cells(element)[3] and task.inner_text().startswith("任务")
    samples.nth(0).click()
    samples.nth(2).click()
    assert cells(element)[1] == cells(element)[3] and task.inner_text().startswith("✓ 完成")


def test_hovered_divisor_highlights_its_samples(show):
    page = show(mean.mean_explorer(), width=800)
    page.locator("mean-explorer .said [data-part=b1]").hover()
    outlined = page.locator("mean-explorer").evaluate(
        """(e) => [...e.shadowRoot.querySelectorAll(".batches button")].map((b) =>
          getComputedStyle(b).outlineStyle === "solid")"""
    )
    assert outlined == [False, False, True, True]
