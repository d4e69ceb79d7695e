"""Test that the gather explorer shows PyTorch's reads and writes in a browser."""

from __future__ import annotations

import json

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers import gather

SIZE = st.integers(1, 4)


@given(SIZE, SIZE, SIZE, SIZE, st.integers(0, 1), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=150)
def test_connect_matches_torch_entry_by_entry(rows, columns, high, wide, dim, random):
    """Where the index is larger than `x` or out of range, torch raises."""
    x = torch.tensor([[random.randrange(100) for _ in range(columns)] for _ in range(rows)])
    index = torch.tensor([[random.randrange(4) for _ in range(wide)] for _ in range(high)])
    found = gather.connect(x, dim, index)
    other = index.shape[1 - dim] <= x.shape[1 - dim]
    assert ("error" in found) != (other and int(index.max()) < x.shape[dim])
    if "error" in found:
        return
    total, writers = torch.zeros_like(x), {}
    for i in range(high):
        for j in range(wide):
            n = i * wide + j
            at = (int(index[i, j]), j) if dim == 0 else (i, int(index[i, j]))
            assert found["cells"][n] == at[0] * columns + at[1]
            assert found["gather"][n] == x[at]
            total[at] += n + 1
            writers[at] = [*writers.get(at, []), n + 1]
    assert found["scatter_add"] == total.flatten().tolist()
    for i in range(rows):
        for j in range(columns):
            values = writers.get((i, j), [0])
            shown = found["scatter"][i * columns + j]
            assert shown == (values[0] if len(values) == 1 else None)


# ---------------------------------------------------------------- in a browser


def test_page_shows_every_setting(show):
    page = show(gather.gather_explorer(), width=375)
    element = page.locator("gather-explorer")
    data = json.loads(gather.gather_explorer().data)
    for which, index in enumerate(gather.INDICES.values()):
        element.locator("[data-key=index]").select_option(str(which))
        for dim in (0, 1):
            element.locator(f"[data-key=dim][value='{dim}']").check()
            found = data["found"][which][dim]
            for operation in ("gather", "scatter", "scatter_add"):
                element.locator("[data-key=operation]").select_option(operation)
                shown = element.locator(".grids button").all_inner_texts()
                text = element.locator(".said").inner_text()
                if "error" in found:
                    assert text.startswith(found["error"]) and not shown
                    continue
                assert shown == ["?" if v is None else str(v) for v in found[operation]]
                short = index.shape[1 - dim] < gather.X.shape[1 - dim]
                assert (f"has size {index.shape[1 - dim]} along dimension {1 - dim}" in text) == (
                    short
                )
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_dim_0_and_the_task_requires_dim_1(show):
    page = show(gather.gather_explorer("zh"), width=375)
    element, task = page.locator("gather-explorer"), page.locator("gather-explorer .task")
    assert element.locator(".grids button").all_inner_texts() == ["11", "12", "10"]
    element.locator(".grids button").last.focus()
    page.keyboard.press("ArrowLeft")
    text = element.locator(".said").inner_text()
    assert text.startswith("out[0, 1] = x[0, index[0, 1]] = x[0, 2] = 12。")
    element.locator("[data-key=dim][value='0']").check()
    text = element.locator(".said").inner_text()
    assert text.startswith("out[0, 1] = x[index[0, 1], 1] = x[2, 1] = 31。")
    element.locator("[data-key=index]").select_option("1")
    assert task.inner_text().startswith("任务")
    element.locator("[data-key=dim][value='1']").check()
    assert task.inner_text().startswith("✓ 完成")


def test_scatter_reports_several_writes_to_one_entry(show):
    page = show(gather.gather_explorer(), width=800)
    element = page.locator("gather-explorer")
    element.locator("[data-key=index]").select_option("3")
    element.locator("[data-key=operation]").select_option("scatter")
    element.locator(".grids button").nth(6).hover()
    text = element.locator(".said")
    assert text.inner_text().startswith(
        "src[1, 0], src[1, 1] are all written to out[1, 2], and one of them is kept"
    )
    element.locator("[data-key=operation]").select_option("scatter_add")
    assert text.inner_text().startswith("out[1, 2] = src[1, 0] + src[1, 1] = 7")
    element.locator(".grids button").nth(3).hover()
    assert text.inner_text().startswith("out[0, 3] = 0")
