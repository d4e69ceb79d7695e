"""Test that the streams explorer shows PyTorch's random draws in a browser."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from helpers.explorers.streams import ADDED, PLACES, position, program, streams_explorer

DATA = json.loads(streams_explorer().data)
NAMES = ["fc1", "fc2", "order1", "noise1", "order2", "noise2"]
GRID = list(itertools.product(range(3), range(3), range(2), range(2)))  # line, place, own, fork


def run(line: int, place: int, own: int, fork: int):
    return program(list(ADDED)[line], PLACES[place], bool(own), bool(fork))


def others(draws) -> dict[str, tuple[float, ...]]:
    return {draw.name: draw.values for draw in draws if draw.name != "added"}


def changed(line: int, place: int, own: int, fork: int) -> list[str]:
    now, before = others(run(line, place, own, fork)), others(program(None, own=bool(own)))
    return [name for name in NAMES if now[name] != before[name]]


def by_hand(extra, own: bool) -> dict[str, tuple[float, ...]]:
    """Run the same program as plain code, with the added line first."""
    torch.manual_seed(0)
    extra()
    found = {name: nn.Linear(2, 2, bias=False).weight.flatten() for name in ("fc1", "fc2")}
    generator = torch.Generator().manual_seed(1) if own else None
    loader = DataLoader(torch.arange(6), batch_size=6, shuffle=True, generator=generator)
    for epoch in (1, 2):
        for batch in loader:
            found[f"order{epoch}"], found[f"noise{epoch}"] = batch, torch.rand(4)
    return {name: tuple(values.tolist()) for name, values in found.items()}


@pytest.mark.parametrize("own", [False, True])
def test_program_matches_plain_pytorch_code(own):
    with torch.random.fork_rng():
        for name, extra in ADDED.items():
            assert others(program(name, own=own)) == by_hand(extra, own)
        assert others(program(None, own=own)) == by_hand(lambda: None, own)


@pytest.mark.parametrize("setting", GRID)
def test_each_draw_uses_the_reported_numbers(setting):
    """Each number of the stream, drawn alone, gives the weight or noise at its place."""
    generator = torch.Generator().manual_seed(0)
    stream = [torch.rand(1, generator=generator).item() for _ in range(40)]
    draws, ends = run(*setting), {False: 0, True: 0}
    for name, own, start, count, values in draws:
        forked = name == "added" and setting[3]
        assert start == ends[own] and own == (bool(setting[2]) and name.startswith("order"))
        ends[own] += 0 if forked else count
        if name.startswith(("fc", "noise")):
            part = torch.tensor(stream[start : start + count])
            want = (2 * part - 1) / 2**0.5 if name.startswith("fc") else part
            torch.testing.assert_close(torch.tensor(values), want)
        elif name.startswith("order"):
            assert sorted(values) == list(range(6))
    assert [draw.name for draw in draws if draw.name != "added"] == NAMES
    assert draws[[0, 2, 4][setting[1]]].name == "added"


def test_data_matches_the_draws():
    for line, place, own, fork in GRID:
        shown = DATA["runs"][line][place][own][fork]
        for row, draw in zip(shown, run(line, place, own, fork), strict=True):
            assert row[:4] == [draw.name, int(draw.own), draw.start, draw.count]
            assert DATA["values"][row[4]] == pytest.approx(draw.values, abs=0.0051)
        before = DATA["plain"][own]
        mine = [row for row in shown if row[0] != "added"]
        differ = [row[0] for row, old in zip(mine, before, strict=True) if row[4] != old[4]]
        assert differ == changed(line, place, own, fork)  # rounding hides no change


def test_explorer_keeps_the_random_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    streams_explorer()
    assert torch.equal(torch.rand(3), expected)
    generator = torch.Generator().manual_seed(3)
    torch.rand(7, generator=generator)
    assert position(3, generator) == position(3, generator) == 7


def test_claims_of_chapter_and_fallback_hold():
    for line in range(3):
        assert changed(line, 0, 0, 0) == NAMES
        assert changed(line, 0, 1, 0) == [n for n in NAMES if not n.startswith("order")]
        assert changed(line, 2, 0, 0) == NAMES[4:] and changed(line, 1, 0, 0) == NAMES[2:]
        assert all(changed(line, place, own, 1) == [] for place in range(3) for own in range(2))
    assert [s for s in GRID if not changed(*s)] == [s for s in GRID if s[3]]


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  const text = (n) => n.textContent.replace(/\\s+/g, " ").trim();
  const number = (r, name) => +r.getAttribute(name);
  return { said: text(e.shadowRoot.querySelector(".said")),
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    rows: all(".rows button").map((b) => [...b.children].map(text)),
    looks: all(".rows button").map((b) => b.className),
    blocks: all("svg rect").map((r) => [Math.round((number(r, "x") - 1) / 11.9),
      Math.round(number(r, "width") / 11.9), number(r, "y"), r.className.baseVal]),
    texts: all("svg g text").map(text) }; }"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_the_changes_of_each_setting(show, cover, lang):
    page = show(streams_explorer(), lang=lang, width=375)
    element = page.locator("streams-explorer")
    selects, boxes = element.get_by_role("combobox").all(), element.get_by_role("checkbox").all()
    for line, place, own, fork in cover(GRID, lang):
        element.get_by_role("button", name="Reset" if lang == "en" else "重置").click()
        for control, value in zip(selects, (line, place), strict=True):
            control.select_option(str(value))
        for box, on in zip(boxes, (own, fork), strict=True):
            box.set_checked(bool(on))
        now, draws = element.evaluate(STATE), run(line, place, own, fork)
        differ = changed(line, place, own, fork)
        assert now["looks"] == ["bad" if name in differ else "good" for name in NAMES]
        assert [row[2] for row in now["rows"]] == ["≠" if n in differ else "=" for n in NAMES]
        for (_, shown, _), values in zip(now["rows"], others(draws).values(), strict=True):
            numbers = [float(n) for n in shown.replace("−", "-").split()]
            assert numbers == pytest.approx(values, abs=0.0101)
        added = next(d for d in draws if d.name == "added")
        want = [[d.start, d.count] for d in draws if d != added] + [[added.start, added.count]]
        assert [block[:2] for block in now["blocks"]] == want
        lanes = [68 if d.own else 24 for d in draws if d != added] + [1 if fork else 24]
        assert [block[2] for block in now["blocks"]] == lanes
        assert now["blocks"][-1][3] == ("fork" if fork else "hold") and now["texts"][-1] == "+"
        assert "+" not in now["texts"][:-1]
        assert int(re.search(r"\d+", now["said"])[0]) == added.count
        assert now["done"] == (not differ)
        assert not any(word in now["said"] for word in ("undefined", "null", "NaN"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_changed_draws_and_explains_them(show):
    page = show(streams_explorer(), width=375)
    element = page.locator("streams-explorer")

    def said() -> str:
        return element.evaluate(STATE)["said"]

    assert said().startswith("The added line draws 1 number; 6 of 6 change. Order, epoch 1 begins")
    assert "at number 10 instead of 9" in said()
    element.get_by_role("checkbox").nth(0).check()
    assert "4 of 6 change. Order, epoch 1 comes from the loader's generator" in said()
    element.get_by_role("combobox").nth(1).select_option("2")
    assert "1 of 6 change. Order, epoch 1 was drawn before the added line" in said()
    element.locator(".rows [aria-current]").focus()
    page.keyboard.press("End")
    assert "Noise, epoch 2 begins at number 14 instead of 13" in said()
    element.get_by_role("checkbox").nth(1).check()
    assert "none of the six changes. Noise, epoch 2 begins at number 13, because" in said()
    element.locator("svg g[data-point]").first.hover()
    assert "Layer fc1 was drawn before the added line" in said()
