"""Test the accumulation explorer: its weights, gradients and all-reduces equal those of DDP."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from helpers import ddp_worker, distributed
from helpers.explorers.accumulate import PARTS, RANKS, SIZE, accumulate_explorer

ROWS = json.loads(accumulate_explorer().data)["rows"]
GRID = list(itertools.product(*(range(1, n + 1) for n in (RANKS, PARTS, SIZE))))


def test_shown_gradients_match_torch():
    assert len(ROWS) == len(GRID)
    for (ranks, parts, last), (exact, means, sums) in zip(GRID, ROWS, strict=True):
        pieces = ranks * parts
        n = SIZE * (pieces - 1) + last
        each = 2 - torch.arange(1, n + 1, dtype=torch.float64)  # 2 (w x - y) x for each sample
        assert exact == sums == pytest.approx(each.mean().item(), abs=6e-4)
        by_piece = [piece.mean() for piece in each.split(SIZE)]
        assert len(by_piece) == pieces
        assert means == pytest.approx(torch.stack(by_piece).mean().item(), abs=6e-4)
        assert (means == exact) == (last == SIZE or pieces == 1)


@pytest.mark.parametrize("spare", [False, True])
def test_ddp_averages_match_the_explorer(spare):
    with distributed.alone():
        parallel = DDP(nn.Linear(3, 1))
        syncs = ddp_worker.count_syncs(parallel)
        for part in range(3):
            with parallel.no_sync() if spare and part < 2 else nullcontext():
                parallel(torch.ones(4, 3)).mean().backward()
    assert len(syncs) == (1 if spare else 3)


STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent.split("✓")[0],
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    pieces: all(".time button").map((b) => [b.textContent.trim(), b.className]),
    meets: all(".time .meet").length, found: all("dd").map((d) => +d.textContent.replace("−", "-")),
    look: all("dd")[1].className }; }"""


def test_every_setting_shows_its_numbers(show):
    page = show(accumulate_explorer(), lang="zh", width=375)
    element = page.locator("accumulate-explorer")
    sliders, box = element.get_by_role("slider").all(), element.get_by_role("checkbox")
    for (ranks, parts, last), row in list(zip(GRID, ROWS, strict=True))[::3]:
        for slider, value in zip(sliders, (ranks, parts, last), strict=True):
            slider.fill(str(value))
        pieces, way, spare = ranks * parts, last % 2, bool(parts % 2)
        n = SIZE * (pieces - 1) + last
        element.locator("select").select_option(str(way))
        box.set_checked(spare)
        element.locator(".time button").last.focus()
        now = element.evaluate(STATE)
        assert now["found"] == [row[0], row[1 + way]]
        assert now["look"] == ("right" if row[0] == row[1 + way] else "wrong")
        sizes = [SIZE] * (pieces - 1) + [last]
        weights = [f"{size}/{n}" if way else f"1/{pieces}" for size in sizes]
        fair = ["good" if way or size * pieces == n else "bad" for size in sizes]
        texts = [f"{size} → {weight}" for size, weight in zip(sizes, weights, strict=True)]
        assert now["pieces"] == [[*pair] for pair in zip(texts, fair, strict=True)]
        averages = 0 if ranks == 1 else 1 if spare else parts
        assert now["meets"] == averages * ranks  # one mark per rank and all-reduce
        numbers = [int(k) for k in re.findall(r"\d+", now["said"])]
        assert numbers == [ranks - 1, parts, n, last, *map(int, weights[-1].split("/")),
                           *([averages] if averages else [])]  # fmt: skip


def test_initial_gradient_is_wrong_and_task_requires_two_changes(show):
    page = show(accumulate_explorer(), width=375)
    element = page.locator("accumulate-explorer")
    now = element.evaluate(STATE)
    assert (now["found"], now["look"], now["meets"]) == ([-9, -10.25], "wrong", 6)
    element.get_by_role("checkbox").press("Space")
    now = element.evaluate(STATE)
    assert now["meets"] == 2 and not now["done"]
    element.locator("select").select_option("1")
    assert element.evaluate(STATE)["done"]
