"""Test that the graph explorer's versions, saved tensors and errors equal autograd's."""

from __future__ import annotations

import json
import math

import pytest
import torch

from helpers.explorers import graph

SAVES = {"y = x ** 2": "x", "y = x.exp()": "y", "y = x + 3": None}
SLOPES = {"y = x ** 2": 4.0, "y = x.exp()": math.exp(2), "y = x + 3": 1.0}


@pytest.mark.parametrize("function", graph.FUNCTIONS)
@pytest.mark.parametrize("edit", graph.EDITS)
def test_each_run_matches_the_saved_tensors(function, edit):
    first, computed, edited, once, twice = graph.run(function, edit)
    saved = SAVES[function]
    assert not any(step["error"] for step in (first, computed, edited))
    assert first["tensors"] == {"w": [1, 0], "x": [2, 0]}
    for name, (_, version) in edited["tensors"].items():
        assert version == (edit[:1] == name)

    def fate(step):
        found = [one for _, one in step["nodes"] if one]
        assert [one[:2] for one in found] == ([[saved, 0]] if saved else [])
        return found[0][2] if found else None

    stale = saved is not None and edit[:1] == saved
    assert fate(computed) == (saved and "kept")
    assert fate(edited) == (saved and ("edited" if stale else "kept"))
    assert once["error"] == stale and (once["grad"] is None) == stale
    assert fate(once) == (saved and ("edited" if stale else "freed"))
    assert twice["error"] == (saved is not None)
    if not stale:
        assert once["grad"] == pytest.approx(SLOPES[function], abs=0.01)
        again = 1 if saved else 2
        assert twice["grad"] == pytest.approx(again * SLOPES[function], abs=0.01)


def test_nodes_match_the_autograd_graph():
    w = torch.tensor(1.0, requires_grad=True)
    node, names = (w + 1).exp().grad_fn, []
    while node is not None:
        names.append(node.name().split("::")[-1])
        node = node.next_functions[0][0] if node.next_functions else None
    assert [name for name, _ in graph.run("y = x.exp()", "")[1]["nodes"]] == names


# ---------------------------------------------------------------- in a browser


def test_page_shows_each_step(show):
    page = show(graph.graph_explorer(), width=375)
    element = page.locator("graph-explorer")
    runs = json.loads(graph.graph_explorer().data)["runs"]
    for f, edit in ((0, 1), (1, 2), (2, 0)):
        element.locator("[data-key=f]").select_option(str(f))
        element.locator("[data-key=edit]").select_option(str(edit))
        element.locator(".lines button").first.focus()
        for i, step in enumerate(runs[f][edit]):
            if i:
                page.keyboard.press("ArrowDown")
            names = element.locator(".nodes b").all_inner_texts()
            assert names == [name for name, _ in step["nodes"]]
            shown = element.locator(".tensors [data-part]").all_inner_texts()
            assert shown == [f"{n} = {v:g}, version {k}" for n, (v, k) in step["tensors"].items()]
            text = element.locator(".said").inner_text()
            assert text.startswith("RuntimeError") == step["error"]
            if i > 2 and not step["error"]:
                assert f"w.grad is {step['grad']:g}" in text
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_the_error_and_task_can_be_completed(show):
    page = show(graph.graph_explorer("zh"), width=375)
    element, task = page.locator("graph-explorer"), page.locator("graph-explorer .task")
    text = element.locator(".said")
    assert text.inner_text() == "RuntimeError：PowBackward0 需要版本 0 的 x，现在却是版本 1。"
    for f, edit, done in ((0, 0, False), (2, 1, False), (1, 2, False), (1, 1, True)):
        element.locator("[data-key=edit]").select_option(str(edit))
        element.locator("[data-key=f]").select_option(str(f))
        assert task.inner_text().startswith("✓ 完成" if done else "任务"), (f, edit)
