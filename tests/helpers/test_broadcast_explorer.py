"""Test that the broadcast explorer's pairs and dtypes equal PyTorch's."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers import broadcast

SHAPE = st.lists(st.sampled_from([1, 1, 2, 3]), max_size=3).map(tuple)
DTYPES = broadcast.DTYPES
NUMBERS = list(broadcast.NUMBERS.values())


@given(SHAPE, SHAPE)
@settings(deadline=None, max_examples=200)
def test_meet_returns_the_elements_of_the_sum(mine, other):
    a, b = torch.randn(mine), torch.randn(other)
    found = broadcast.meet(mine, other)
    try:
        both = a + b
    except RuntimeError as error:
        assert found == {"error": str(error)}
        return
    assert found["shape"] == list(both.shape)
    at, other_at = found["at"]
    assert torch.equal(a.flatten()[at] + b.flatten()[other_at], both.flatten())


@pytest.mark.parametrize("shapes", [((), ()), ((), (3,)), ((3,), ()), ((3,), (3, 1))])
def test_promote_returns_the_dtype_of_the_sum(shapes):
    for mine, other in itertools.product(DTYPES, [*DTYPES, *NUMBERS]):
        check_rule(mine, other, shapes)


def check_rule(mine, other, shapes):
    a = torch.ones(shapes[0], dtype=mine)
    b = torch.ones(shapes[1], dtype=other) if isinstance(other, torch.dtype) else other
    dtype, why = broadcast.promote(a, b)
    assert dtype == (a + b).dtype
    floats = [t for t in (mine, other) if isinstance(t, torch.dtype) and t.is_floating_point]
    if why == "wider":
        assert dtype == torch.promote_types(mine, other) and len(floats) in (0, 2)
    elif why == "category":
        assert [dtype] == floats
    else:
        given = {"same": mine, "default": torch.get_default_dtype(), "a": other, "b": mine}
        assert dtype == given[why]
    if why in "ab":  # the other operand would change the dtype if it had dimensions
        assert (a if why == "a" else torch.as_tensor(b)).dim() == 0


# ---------------------------------------------------------------- in a browser


def test_every_pair_of_shapes_shows_its_sum_or_error(show):
    page = show(broadcast.broadcast_explorer(), width=375)
    element = page.locator("broadcast-explorer")
    pairs = json.loads(broadcast.broadcast_explorer().data)["pairs"]
    for i, mine in enumerate(broadcast.SHAPES):
        element.locator("[data-key=a]").select_option(str(i))
        for j, other in enumerate([*broadcast.SHAPES, ()]):
            element.locator("[data-key=b]").select_option(str(j))
            a = torch.arange(1, 1 + torch.Size(mine).numel()).reshape(mine)
            b = 10 * torch.arange(1, 1 + torch.Size(other).numel()).reshape(other)
            sums = element.locator(".sum button").all_inner_texts()
            if "error" in pairs[i][j % len(broadcast.SHAPES)]:
                with pytest.raises(RuntimeError) as raised:
                    a + b
                text = element.locator(".said").inner_text()
                assert text.startswith(str(raised.value)) and not sums
            else:
                assert sums == [str(n) for n in (a + b).flatten().tolist()]
                sizes = element.locator(".shapes > *").all_inner_texts()[9:11]
                assert [int(n) for n in sizes if n != "·"] == list((a + b).shape)
                text = element.locator(".said").inner_text()
                for name, one in (("a", a), ("b", b)):
                    for d in range((a + b).dim()):  # a size of 1 is not repeated
                        repeated = one.expand_as(a + b).stride(d) == 0 and (a + b).shape[d] > 1
                        assert (f"{name} is repeated along dimension {d}." in text) == repeated
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_shows_result_dtypes(show):
    page = show(broadcast.broadcast_explorer(), width=800)
    element = page.locator("broadcast-explorer")
    for shape, other in ((2, 5), (2, 0), (0, 2), (0, 0)):
        element.locator("[data-key=a]").select_option(str(shape))
        element.locator("[data-key=b]").select_option(str(other))
        for mine, theirs in ((0, 1), (2, 3), (3, 4), (5, 6), (6, 5)):
            element.locator("[data-key=da]").select_option(str(mine))
            element.locator("[data-key=db]").select_option(str(theirs))
            a = torch.ones(broadcast.SHAPES[shape], dtype=DTYPES[mine])
            b = torch.ones(broadcast.SHAPES[other], dtype=DTYPES[theirs])
            dtype = str((a + b).dtype).removeprefix("torch.")
            assert element.locator(".shapes > *").all_inner_texts()[11] == dtype
            assert dtype in element.locator(".said").inner_text()
    element.locator("[data-key=da]").select_option("2")
    element.locator("[data-key=b]").select_option("7")
    assert element.locator(".shapes > *").all_inner_texts()[7::4] == ["Python float", "float32"]
    element.locator("[data-key=number]").select_option("int")
    assert element.locator(".shapes > *").all_inner_texts()[7::4] == ["Python int", "int64"]


def test_explorer_opens_with_nine_sums_and_task_requires_a_scalar(show):
    page = show(broadcast.broadcast_explorer("zh"), width=375)
    element, task = page.locator("broadcast-explorer"), page.locator("broadcast-explorer .task")
    assert element.locator(".sum button").count() == 9
    element.locator(".sum button").first.focus()
    page.keyboard.press("ArrowDown")
    assert element.locator(".said").inner_text().startswith("a[0] + b[1, 0] = 1 + 20。")
    for key in ("[data-key=db]", "[data-key=b]"):
        control = element.locator(key)
        control.select_option("5" if key == "[data-key=db]" else "2")
        assert task.inner_text().startswith("任务")
    element.locator("[data-key=db]").select_option("6")
    assert task.inner_text().startswith("任务")
    element.locator("[data-key=b]").select_option("0")
    assert task.inner_text().startswith("✓ 完成")
