"""Test that the masks explorer shows PyTorch's attention weights in a browser."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.explorers import masks

DATA = json.loads(masks.masks_explorer().data)
NEED = (False, True)


def softmax(x: torch.Tensor, keep: torch.Tensor, empty: float) -> torch.Tensor:
    scores = (x @ x.T / math.sqrt(len(x))).masked_fill(~keep, -torch.inf)
    return scores.softmax(-1).where(keep.any(-1, keepdim=True), empty)


@given(st.integers(0, 2**16 - 1), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_each_attention_api_follows_its_mask_convention(bits, seed):
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
    keep = torch.tensor([bits >> n & 1 for n in range(16)], dtype=torch.bool).reshape(4, 4)
    bias = torch.where(keep, 0.0, -torch.inf)
    zeros, nans = softmax(x, keep, 0.0), softmax(x, keep, math.nan)
    for mask in (keep, bias):
        torch.testing.assert_close(masks.by_function(x, mask), zeros)
    for mask, need in itertools.product((~keep, bias), NEED):
        found = masks.by_module(x, mask, need_weights=need)
        torch.testing.assert_close(found, nans if need else zeros, equal_nan=True)
    added = (x @ x.T / 2 + keep.float()).softmax(-1)
    torch.testing.assert_close(masks.by_function(x, keep.float()), added)
    torch.testing.assert_close(masks.by_module(x, keep.float(), need_weights=True), added)


def test_key_padding_mask_matches_attn_mask():
    torch.manual_seed(0)
    x, module = torch.randn(1, 4, 4), nn.MultiheadAttention(4, 1, batch_first=True)
    keep = masks.KEEPS["padding"]
    by_key = module(x, x, x, key_padding_mask=~keep[:1])[1]
    torch.testing.assert_close(by_key, module(x, x, x, attn_mask=~keep)[1])


def test_masks_match_their_names():
    assert list(masks.MASKS) == DATA["names"]
    for keep, row in zip(masks.KEEPS.values(), DATA["rows"], strict=True):
        assert row["keep"] == keep.int().tolist()
        for name, mask in zip(DATA["names"], row["masks"], strict=True):
            if name == "0 or -inf":
                want = [[0.0 if on else "-inf" for on in line] for line in keep.tolist()]
            else:
                want = eval(name, {"keep": keep}).tolist()
            assert mask == want
            assert type(mask[0][0]) is type(want[0][0])
    assert not DATA["rows"][2]["keep"][0].count(1)  # a query without a key


def attended(table) -> list[list[int]]:
    return [[int(w not in (0, "nan")) for w in line] for line in table]


def test_only_valid_masks_keep_the_expected_keys():
    """Rounding leaves no positive weight at 0, and only these choices solve the task."""
    for row in DATA["rows"]:
        whole = all(map(any, row["keep"]))
        for n, name in enumerate(DATA["names"]):
            right = attended(row["sdpa"][n]) == row["keep"]
            assert right == (name in ("keep", "0 or -inf"))
            for need in NEED:
                right = attended(row["mha"][n][need]) == row["keep"]
                assert right == (name in ("~keep", "0 or -inf"))
                empty = (name, need) == ("keep", True) and row is DATA["rows"][0]
                empty |= right and need and not whole
                assert any("nan" in line for line in row["mha"][n][need]) == empty


def test_sdpa_backends_return_zeros_for_a_fully_masked_row():
    q = torch.randn(1, 1, 4, 4)
    mask = torch.zeros(4, 4, dtype=torch.bool)
    for backend in (nn.attention.SDPBackend.MATH, nn.attention.SDPBackend.FLASH_ATTENTION):
        with nn.attention.sdpa_kernel(backend):
            assert (F.scaled_dot_product_attention(q, q, q, attn_mask=mask) == 0).all()


# ---------------------------------------------------------------- in a browser


def shown(value) -> str:
    return "nan" if value == "nan" else f"{value:.2f}" if value else "0"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_the_weights_of_every_choice(show, cover, lang):
    page = show(masks.masks_explorer(lang), width=375)
    element = page.locator("masks-explorer")
    pattern, *apis = element.locator("select").all()
    grid = itertools.product(range(len(DATA["rows"])), range(4), NEED)
    for p, n, need in cover(grid, lang):
        row = DATA["rows"][p]
        pattern.select_option(str(p))
        for select in apis:
            select.select_option(str(n))
        element.get_by_role("checkbox").set_checked(need)
        tables = (row["sdpa"][n], row["mha"][n][need])
        want = [shown(w) for table in tables for line in table for w in line]
        assert element.locator(".weights button").all_inner_texts() == want
        bad = element.locator(".weights button").evaluate_all(
            "all => all.map(b => b.classList.contains('bad'))"
        )
        flat = [
            (w == "nan" or (w > 0) != bool(on))
            for table in tables
            for line, keep in zip(table, row["keep"], strict=True)
            for w, on in zip(line, keep, strict=True)
        ]
        assert bad == flat
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_inverted_mask_and_explains_each_cell(show):
    page = show(masks.masks_explorer("en"), width=375)
    element = page.locator("masks-explorer")
    text = element.locator(".said")
    assert "mask[2, 0] is True. In MultiheadAttention, True means ignore" in text.inner_text()
    element.locator("[aria-current]").focus()
    page.keyboard.press("ArrowDown")
    assert "All keys of query 3 are masked, so its whole row is nan." in text.inner_text()
    element.get_by_role("checkbox").uncheck()
    assert "its whole row is 0." in text.inner_text()
    element.locator(".weights button").first.focus()
    assert "mask[0, 0] is True. In SDPA, True means attend" in text.inner_text()
    element.locator("select").nth(1).select_option("3")
    page.keyboard.press("Tab")
    element.locator(".weights button").nth(1).hover()
    assert "mask[0, 1] is −inf. A float mask is added to the score" in text.inner_text()
    assert "weight 0." in text.inner_text()


def test_task_requires_both_masks(show):
    page = show(masks.masks_explorer("zh"), width=375)
    element, task = page.locator("masks-explorer"), page.locator("masks-explorer .task")
    mha = element.locator("select").nth(2)
    assert task.inner_text().startswith("任务")
    element.locator("select").first.select_option("2")
    mha.select_option("1")
    assert task.inner_text().startswith("任务")  # a query without a key gets nan
    element.get_by_role("checkbox").uncheck()
    assert task.inner_text().startswith("✓ 完成")
    element.get_by_role("button", name="重置").click()
    mha.focus()
    page.keyboard.press("ArrowDown")  # ~keep
    assert task.inner_text().startswith("✓ 完成")
