"""Test that the halves explorer shows PyTorch's rounded gradients in a browser."""

from __future__ import annotations

import json

import pytest
import torch

from helpers.explorers import halves

DATA = json.loads(halves.halves_explorer().data)
EXPONENTS = range(halves.SMALLEST, halves.LARGEST + 1, halves.STEP)


def gradients() -> torch.Tensor:
    """Return all gradients, one float64 element each."""
    sizes = torch.tensor([halves.MANTISSA * 2.0**e for e in EXPONENTS], dtype=torch.float64)
    return sizes.repeat_interleave(torch.tensor(DATA["counts"]))


def lost(dtype: torch.dtype, scale: float) -> tuple[int, int]:
    """Return how many scaled gradients torch stores as 0, and how many as inf."""
    stored = (gradients() * scale).to(dtype)
    return int((stored == 0).sum()), int(stored.isinf().sum())


SAFE = [k for k in range(33) if lost(torch.float16, 2.0**k) == (0, 0)]


def counted(kind: int, scale: int) -> dict[str, int]:
    """Count the gradients of each kind as the element does."""
    found = dict.fromkeys(("zero", "few", "normal", "inf"), 0)
    for e, n in zip(EXPONENTS, DATA["counts"], strict=True):
        found[DATA["stored"][kind][e + scale - DATA["first"]][0]] += n
    return found


def test_every_setting_matches_the_values_torch_stores():
    for kind, dtype in enumerate(halves.TYPES):
        for scale in range(DATA["scales"] + 1):
            found = counted(kind, scale)
            assert (found["zero"], found["inf"]) == lost(dtype, 2.0**scale)
            stored = (gradients() * 2.0**scale).to(dtype).double()
            few = (stored != 0) & (stored < torch.finfo(dtype).smallest_normal)
            assert found["few"] == int(few.sum())


def test_errors_match_the_stored_number():
    for kind, dtype in enumerate(halves.TYPES):
        for k, (name, off) in enumerate(DATA["stored"][kind]):
            value = torch.tensor(halves.MANTISSA * 2.0 ** (DATA["first"] + k), dtype=torch.float64)
            stored = value.to(dtype).double()
            if name not in ("zero", "inf"):
                assert off == pytest.approx(100 * abs(stored / value - 1).item(), rel=0.06)
    assert {name for name, _ in DATA["stored"][1]} == {"normal"}  # bfloat16
    assert {name for name, _ in DATA["stored"][2]} == {"normal"}  # float32


def test_claims_of_chapter_and_fallback_hold():
    """Unscaled, a quarter underflows to 0 and most others lose digits; the default scale works."""
    now = counted(0, 0)
    assert 0.2 < now["zero"] / len(gradients()) < 0.3
    assert now["few"] > (len(gradients()) - now["zero"]) / 2
    assert list(range(15, 20)) == SAFE
    assert gradients().min() < 2e-12 and 0.05 < gradients().max() < 0.15
    start = torch.amp.GradScaler("cpu").get_scale()
    assert lost(torch.float16, start) == (0, 0)


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent,
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    fates: all("[data-fate]").map((r) => r.dataset.fate),
    high: all("[data-fate]").map((r) => +r.getAttribute("height")) }; }"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_every_dtype_and_scale(show, lang):
    page = show(halves.halves_explorer(), lang=lang, width=375)
    element = page.locator("halves-explorer")
    slider = element.get_by_role("slider")
    for kind in range(3):
        element.locator(f"input[type=radio][value='{kind}']").check()
        for scale in (0, 7, 16, 20, 32):
            slider.fill(str(scale))
            now, want = element.evaluate(STATE), counted(kind, scale)
            for e, name in zip(EXPONENTS, now["fates"], strict=True):
                assert name == DATA["stored"][kind][e + scale - DATA["first"]][0]
            for name in ("zero", "inf", "few"):
                assert f"{want[name]}" in now["said"]
            top = max(DATA["counts"])
            assert now["high"] == pytest.approx([130 * n / top for n in DATA["counts"]])
            assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_in_float16_and_describes_the_selected_value(show):
    page = show(halves.halves_explorer("en"), width=375)
    element, output = page.locator("halves-explorer"), page.locator("halves-explorer .said")
    now = counted(0, 0)
    text = f"{now['zero']} become 0, {now['inf']} become infinite, {now['few']} lose digits"
    assert text in output.inner_text()
    element.locator("[aria-current]").focus()
    page.keyboard.press("Home")
    assert "1.2e-12" in output.inner_text() and "stored as 0" in output.inner_text()
    page.keyboard.press("End")
    off = DATA["stored"][0][EXPONENTS[-1] - DATA["first"]][1]
    assert f"stored with an error of {off}\u00a0%" in output.inner_text()
    element.get_by_role("slider").fill("32")
    assert "stored as inf" in output.inner_text()


@pytest.mark.parametrize("scale", [0, 14, 15, 19, 20])
def test_task_requires_float16_with_a_safe_scale(show, scale):
    page = show(halves.halves_explorer("zh"), width=375)
    element = page.locator("halves-explorer")
    element.locator("input[type=radio][value='1']").check()
    element.get_by_role("slider").fill(str(scale))
    assert not element.evaluate(STATE)["done"]  # bfloat16 needs no scale
    element.locator("input[type=radio][value='0']").check()
    assert element.evaluate(STATE)["done"] == (scale in SAFE)
