"""Test the parts that all chapters share: verdicts, explorers, timing, graph inspection."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers import autograd, timing
from helpers.exercises import verdict
from helpers.explorers import Explorer

# ---------------------------------------------------------------- verdicts


def fail(answer):
    raise AssertionError(f"{answer} is odd")


def test_verdict_passes_if_every_test_passes():
    ran = []
    result = verdict(2, [ran.append, ran.append])
    assert result.passed and ran == [2, 2]
    assert repr(result) == "✓ correct: 2 checks passed"
    assert repr(verdict(1, [ran.append])) == "✓ correct: 1 check passed"


def test_verdict_stops_at_and_reports_the_first_failure():
    ran = []
    result = verdict(3, [fail, ran.append])
    assert not result.passed and ran == []
    assert repr(result) == "✗ not yet: 3 is odd"


def test_verdict_reports_the_exception_of_the_answer():
    result = verdict(None, [lambda answer: answer.shape])
    assert "your code raised AttributeError" in result.message and not result.passed


def test_verdict_requires_at_least_one_test():
    with pytest.raises(ValueError, match="at least one test"):
        verdict(1, [])


# ---------------------------------------------------------------- explorers


def test_explorer_escapes_its_data_and_includes_its_script():
    html = Explorer(
        "copy", ['<b> "q" & </copy-explorer>'], {"en": "a < b", "zh": "甲"}, "zh"
    )._repr_html_()
    assert html.startswith('<copy-explorer lang="zh" data="[&quot;&lt;b&gt;')
    assert '<span lang="en">a &lt; b</span><span lang="zh">甲</span></copy-explorer>' in html
    assert 'BookExplorer.define("copy-explorer"' in html


def test_explorer_rejects_unknown_names_and_languages():
    with pytest.raises(ValueError, match="no explorer named 'x'; there are .*, stride"):
        Explorer("x", [], {"en": "", "zh": ""})
    with pytest.raises(ValueError, match="lang must be 'en', 'zh' or None, got 'fr'"):
        Explorer("copy", [], {"en": "", "zh": ""}, "fr")


# ---------------------------------------------------------------- timing


def test_time_ratio_compares_the_best_times_after_warm_up(monkeypatch):
    calls, threads = [], torch.get_num_threads()
    big = torch.ones(400, 400)
    assert timing.time_ratio(lambda: [big @ big for _ in range(5)], lambda: big[0, 0]) > 2
    ticks = iter([0, 6, 10, 12, 20, 29, 30, 35])  # slow takes 6 and 9, fast 2 and 5
    with monkeypatch.context() as patch:
        patch.setattr("time.perf_counter", lambda: next(ticks))
        assert timing.time_ratio(lambda: 0, lambda: 0, rounds=2) == 3

    # slow takes 6 ms, then 3 calls of fast take 1.2 ms
    ticks = iter([0, 6e-3, 1, 1.0004, 1.0008, 1.0012])
    with monkeypatch.context() as patch:
        patch.setattr("time.perf_counter", lambda: next(ticks))
        assert timing.time_ratio(lambda: 0, lambda: 0, rounds=1) == pytest.approx(15)

    def call(name):
        calls.append((name, torch.get_num_threads()))
        time.sleep(timing.SHORTEST)

    timing.time_ratio(lambda: call("slow"), lambda: call("fast"), rounds=2)
    assert calls == [("slow", 1), ("fast", 1)] * 3
    with pytest.raises(ZeroDivisionError):
        timing.time_ratio(lambda: 1 / 0, lambda: 0)
    assert torch.get_num_threads() == threads
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        timing.time_ratio(lambda: 0, lambda: 0, rounds=0)
    assert timing.time_ratio(float, float, rounds=1) > 0


# ---------------------------------------------------------------- the graph


@given(st.integers(1, 6), st.booleans())
def test_saved_tensors_counts_tensors_needed_by_backward(depth, frozen):
    layers = [nn.Linear(3, 3) for _ in range(depth)]
    model = nn.Sequential(*layers)
    model.requires_grad_(not frozen)
    x = torch.randn(2, 3)
    saved = autograd.saved_tensors(lambda: model(x))
    # each layer saves its input, and its weight where a gradient passes on to the layer before
    assert len(saved) == (0 if frozen else 2 * depth - 1)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_storage_id_distinguishes_storages_without_an_address(device):
    x, other = torch.ones(4, device=device), torch.ones(4, device=device)
    assert autograd.storage_id(x) == autograd.storage_id(x[1:]) == autograd.storage_id(x.detach())
    assert autograd.storage_id(x) != autograd.storage_id(other), (
        "UntypedStorage._cdata, which is private, no longer identifies storages"
    )


def test_leaves_returns_the_leaves_that_backward_reaches():
    a, b = nn.Linear(2, 2), nn.Linear(2, 1)
    x = torch.ones(1, 2)
    assert {id(p) for p in autograd.leaves(b(a(x)))} == {
        id(p) for m in (a, b) for p in m.parameters()
    }
    assert {id(p) for p in autograd.leaves(b(a(x).detach()))} == {id(p) for p in b.parameters()}
    assert autograd.graph(x) == {} and autograd.leaves(x) == []


def test_draw_graphs_labels_every_leaf_and_dashes_detached_ones():
    a, b = nn.Linear(2, 2), nn.Linear(2, 1)
    out = b(a(torch.ones(1, 2)).detach())
    figure = autograd.draw_graphs({"cut": out}, {"a.w": a.weight, "b.w": b.weight, "b.b": b.bias})
    texts = {t.get_text(): t.get_bbox_patch() for t in figure.axes[0].texts if t.get_text()}
    assert set(texts) == {"a.w", "b.w", "b.b", "Addmm"}
    dashed = {name for name, box in texts.items() if box.get_linestyle() == "--"}
    assert dashed == {"a.w"}
    with pytest.raises(ValueError, match="at least one output"):
        autograd.draw_graphs({}, {})


def test_importing_helpers_loads_no_heavy_modules():
    heavy = "matplotlib torchvision IPython h5py visdom sklearn PIL cv2 torchinfo torchmetrics"
    script = (
        "import importlib, pkgutil, sys, torch, helpers\n"
        "before = set(sys.modules)\n"
        "for m in pkgutil.walk_packages(helpers.__path__, 'helpers.'):\n"
        "    importlib.import_module(m.name)\n"
        f"print([m for m in '{heavy}'.split() if m in set(sys.modules) - before])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
