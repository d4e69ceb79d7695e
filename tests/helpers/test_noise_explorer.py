"""Test that the noise explorer shows PyTorch's noise schedule in a browser."""

from __future__ import annotations

import itertools
import json
import math
import re

import pytest
import torch

from helpers.explorers import noise

DATA = json.loads(noise.noise_explorer().data)
CHOICES = list(itertools.product(range(len(noise.STEPS)), range(len(noise.LAST))))


@pytest.mark.parametrize(("steps", "last"), CHOICES)
def test_remaining_signal_equals_the_product_of_1_minus_beta(steps, last):
    count, largest = noise.STEPS[steps], noise.LAST[last]
    product, found = 1.0, [1.0]
    for k in range(count):
        product *= 1 - (1e-4 + (largest - 1e-4) * k / (count - 1))
        if (k + 1) % (count // 10) == 0:
            found.append(product)
    assert DATA["left"][steps][last] == pytest.approx(found, rel=1e-3)


def test_claims_of_task_and_fallback_hold():
    ends = {(s, b): left[-1] for s, rows in zip(noise.STEPS, DATA["left"], strict=True)
            for b, left in zip(noise.LAST, rows, strict=True)}  # fmt: skip
    assert 0.595 < ends[50, 0.02] < 0.605 and ends[1000, 0.02] < 1e-4
    assert [b for b in noise.LAST if ends[50, b] < 0.01] == [0.2, 0.4]
    for (steps, last), left in ends.items():
        total = steps * (1e-4 + last) / 2  # the sum of the betas
        assert total <= -math.log(left) < (1 + 0.6 * last) * total
    assert sum(DATA["weights"]) == 1


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const root = e.shadowRoot, path = (s) => root.querySelector(s)
    .getAttribute("d").slice(1).split("L").map((p) => p.split(" ").map(Number));
  return { said: root.querySelector(".said").textContent, data: path(".data"),
    normal: path(".normal"), done: root.querySelector(".task").className.includes("done") }; }"""


def density(x: torch.Tensor, left: float) -> torch.Tensor:
    """Return the density of the noisy data, computed with torch.distributions."""
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.tensor(noise.WEIGHTS)),
        torch.distributions.Normal(
            math.sqrt(left) * torch.tensor(noise.CENTRES), math.sqrt(left * noise.STD**2 + 1 - left)
        ),
    )
    return mixture.log_prob(x).exp()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_drawn_curves_are_densities(show, cover, lang):
    page = show(noise.noise_explorer(), lang=lang, width=375)
    element = page.locator("noise-explorer")
    for (steps, last), at in cover(itertools.product(CHOICES, (0, 3, 10)), lang):
        element.locator(f"input[data-key=steps][value='{steps}']").check(force=True)
        element.locator(f"input[data-key=last][value='{last}']").check(force=True)
        element.get_by_role("slider").fill(str(at))
        now, left = element.evaluate(STATE), DATA["left"][steps][last][at]
        x, y = torch.tensor(now["data"]).T
        assert torch.allclose(-y / 1.8, density(x, left), atol=2e-3)
        x, y = torch.tensor(now["normal"]).T
        normal = torch.distributions.Normal(0, 1).log_prob(x).exp()
        assert torch.allclose(-y / 1.8, normal, atol=2e-3)
        percent = float(re.search(r"([\d.]+)\u00a0%", now["said"])[1])
        assert percent == pytest.approx(max(100 * left, 0.01), rel=0.05)
        assert now["done"] == (noise.STEPS[steps] == 50 and at == 10 and left < 0.01)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_data_left_and_task_can_be_completed(show):
    page = show(noise.noise_explorer("en"), width=375)
    element, task = page.locator("noise-explorer"), page.locator("noise-explorer .task")
    text = element.locator(".said")
    assert "After 50 of 50 steps, 60\u00a0%" in text.inner_text()
    assert "another distribution" in text.inner_text() and task.inner_text().startswith("Task")
    element.locator("input[data-key=last]").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert task.inner_text().startswith("✓ Done") and "close to" in text.inner_text()
    element.get_by_role("slider").fill("5")
    assert "not ended yet" in text.inner_text() and task.inner_text().startswith("Task")
