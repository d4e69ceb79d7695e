"""Test that the clip explorer shows PyTorch's clipped gradients in a browser."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers import clip

NUMBER = st.floats(-50, 50, width=32)


@given(NUMBER, NUMBER, st.integers(1, 9))
@settings(deadline=None, max_examples=100)
def test_clipped_matches_the_formula(x, y, limit):
    found = clip.clipped((x, y), limit)
    norm = math.hypot(x, y)
    scale = min(1, limit / norm) if norm else 1
    assert found["returned"] == pytest.approx(norm, abs=0.01)
    assert found["norm"] == pytest.approx([x * scale, y * scale], abs=0.01)
    assert found["value"] == pytest.approx([max(-limit, min(limit, g)) for g in (x, y)], abs=0.01)


def test_explorer_data_contains_every_gradient():
    data = json.loads(clip.clip_explorer().data)
    for x, row in enumerate(data):
        for y, limits in enumerate(row):
            for limit, found in enumerate(limits, 1):
                assert found == list(clip.clipped((x, y), limit).values())


def test_clipping_by_value_keeps_the_direction_only_on_diagonal_and_axes():
    data = json.loads(clip.clip_explorer().data)
    for x, y, limit in itertools.product(range(9), range(9), range(1, 9)):
        a, b = data[x][y][limit - 1][2]
        kept = a * y == b * x
        assert kept == (max(x, y) <= limit or x == y or not x or not y), (x, y, limit)


# ---------------------------------------------------------------- in a browser


def minus(numbers):
    return f"({', '.join(f'{n:g}' for n in numbers)})"


def test_page_describes_the_changed_direction(show):
    page = show(clip.clip_explorer(), width=375)
    element = page.locator("clip-explorer")
    for x, y, limit in (
        (8, 2, 2),
        (3, 4, 5),
        (3, 4, 4),
        (5, 5, 3),
        (0, 7, 2),
        (0, 0, 1),
        (8, 8, 8),
    ):
        element.locator(f"[aria-label='({x}, {y})']").dispatch_event("click")
        element.get_by_role("slider").fill(str(limit))
        found, text = clip.clipped((x, y), limit), element.locator(".said").inner_text()
        assert f"The gradient ({x}, {y}) has norm {found['returned']:g}." in text
        values = [found["norm"], found["value"]]
        if found["returned"] <= limit:
            assert values == [[x, y]] * 2
            assert (
                "not exceeded: neither method" in text
                or (x, y) == (0, 0)
                and "nothing to clip" in text
            )
            continue
        assert f"By norm it becomes {minus(values[0])}" in text
        a, b = values[1]
        if values[1] == [x, y]:
            assert f"by value it stays {minus(values[1])}" in text
        elif a * y == b * x:
            assert f"by value {minus(values[1])}, in the same direction" in text
        else:
            assert f"by value {minus(values[1])}, in another direction" in text
        for name, (a, b) in zip(("norm", "value"), values, strict=True):
            circle = element.locator(f"circle.{name}")
            place = [float(circle.get_attribute(key)) for key in ("cx", "cy")]
            assert place == pytest.approx([a, clip.LARGEST - b])


def test_explorer_opens_with_a_changed_direction_and_task_completes(show):
    page = show(clip.clip_explorer("zh"), width=375)
    element, task = page.locator("clip-explorer"), page.locator("clip-explorer .task")
    assert "方向变了" in element.locator(".said").inner_text()
    element.locator("[aria-current]").focus()
    page.keyboard.press("ArrowUp")
    assert element.locator(".said").inner_text().startswith("梯度 (8, 3)")
    page.keyboard.press("ArrowDown")
    for _ in range(3):  # two words of the sentence, then the slider
        page.keyboard.press("Tab")
    for _ in range(6):
        assert task.inner_text().startswith("任务")
        page.keyboard.press("ArrowRight")
    assert task.inner_text().startswith("✓ 完成")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
