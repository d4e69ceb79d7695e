"""Test that the PPO explorer shows PyTorch's objective and gradient in a browser."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers import ppo
from helpers.policy_gradient import ppo_loss

DATA = json.loads(ppo.ppo_explorer().data)
RATIOS = ppo.RATIOS


@given(st.floats(0.01, 3), st.floats(-4, 4), st.sampled_from([0.1, 0.2, 0.3]))
@settings(deadline=None, max_examples=100)
def test_objective_equals_the_negative_ppo_loss(ratio, advantage, clip):
    log_prob = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    old, a = torch.zeros(1, dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64)
    loss = ppo_loss(log_prob, old, a, clip)
    (grad,) = torch.autograd.grad(loss, log_prob)
    objective, slope = ppo.clipped(ratio, advantage, clip)
    assert objective == pytest.approx(-loss.item(), abs=0.006)
    if min(abs(ratio - 1 + clip), abs(ratio - 1 - clip)) > 1e-9:  # at a kink rounding decides
        assert slope * ratio == pytest.approx(-grad.item(), abs=0.02)


def test_claims_of_fallback_and_task_hold():
    up, down = ([slope for _, slope in row] for row in DATA["signs"])
    assert up == [1.0 if r <= 1.2 else 0.0 for r in RATIOS]
    assert down == [-1.0 if r >= 0.8 else 0.0 for r in RATIOS]
    for sign, row in zip((1, -1), DATA["signs"], strict=True):
        for r, (value, _) in zip(RATIOS, row, strict=True):
            assert value == pytest.approx(min(r, 1.2) if sign > 0 else -max(r, 0.8))
    assert DATA["kinks"] == pytest.approx([0, 0.8, 1.2, 2])
    assert DATA["lines"] == [[0.0, 0.8, 1.2, 1.2], [-0.8, -0.8, -1.2, -2.0]]


# ---------------------------------------------------------------- in a browser

STATE = """(e) => ({ said: e.shadowRoot.querySelector(".said").textContent,
  done: e.shadowRoot.querySelector(".task").className.includes("done"),
  at: ["cx", "cy"].map((k) => +e.shadowRoot.querySelector("circle").getAttribute(k)),
  flat: e.shadowRoot.querySelector("circle").classList.contains("flat") })"""


def minus(number):
    return f"{number:g}".replace("-", "−")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_each_ratio_and_sign(show, cover, lang):
    page = show(ppo.ppo_explorer(), lang=lang, width=375)
    element = page.locator("ppo-explorer")
    for sign, at in cover(itertools.product((0, 1), range(len(RATIOS))), lang):
        element.get_by_role("radio", name="−1" if sign else "+1").check()
        element.get_by_role("slider").fill(str(at))
        now = element.evaluate(STATE)
        value, slope = DATA["signs"][sign][at]
        assert now["at"] == pytest.approx([10 * RATIOS[at], (0 if sign else 20) - 10 * value])
        assert now["flat"] == (slope == 0)
        words = (
            (f"is {minus(value)}. ", f"is {minus(slope)}:" if slope else "gradient is 0,")
            if lang == "en"
            else (f"目标函数是 {minus(value)}。", f"是 {minus(slope)}：" if slope else "是 0，")
        )
        assert all(w in now["said"] for w in words), now["said"]
        outside = not 0.8 < RATIOS[at] < 1.2
        assert now["done"] == (sign == 0 and outside and slope != 0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_zero_gradient_and_hover_sets_the_ratio(show):
    page = show(ppo.ppo_explorer("en"), width=375)
    element = page.locator("ppo-explorer")
    assert "gradient is 0" in element.locator(".said").inner_text()
    element.locator("[data-point='at=3']").hover()
    assert "At ratio 0.35" in element.locator(".said").inner_text()
    assert element.locator(".task").inner_text().startswith("✓ Done")
