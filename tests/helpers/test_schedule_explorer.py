"""Test that the schedule explorer shows PyTorch's learning rates in a browser."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler

from helpers.demos.learning_rate import LOSSES
from helpers.explorers.schedule import (
    BASE,
    EPOCHS,
    GRID,
    explored,
    schedule_explorer,
    settings,
    warmed,
)

DATA = json.loads(schedule_explorer().data)
SCHEDULES = {schedule["name"]: schedule for schedule in DATA["schedules"]}


def trained(code: str) -> list[float]:
    """Return the learning rates of a plain loop with the scheduler of the displayed code."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = SGD([weight], lr=BASE, momentum=0.9)
    scheduler = eval(code, {**vars(lr_scheduler), "optimizer": optimizer})
    used = []
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        weight.sum().backward()
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        scheduler.step(*[LOSSES[epoch]] * plateau)
    return used


def test_settings_rejects_an_unknown_schedule():
    assert settings("ExponentialLR")[0] == "ExponentialLR(optimizer, gamma=0.8)"
    with pytest.raises(ValueError, match="no schedule 'Step'; there are StepLR, MultiStepLR"):
        settings("Step")


@pytest.mark.parametrize("name", GRID)
def test_every_curve_matches_torch(name):
    schedule = SCHEDULES[name]
    choices = list(itertools.product(*schedule["parameters"].values()))
    assert len(schedule["rows"]) == len(choices)
    for row, values in zip(schedule["rows"], choices, strict=True):
        assert row["code"].startswith(f"{name}(optimizer, ")
        for parameter, value in zip(schedule["parameters"], values, strict=True):
            assert value in row["code"] and (parameter == "rule" or f"{parameter}=" in row["code"])
        assert row["rates"] == pytest.approx(trained(row["code"]), rel=6e-4, abs=1e-11)
        if "warm" in row:
            assert row["warm"] == pytest.approx(trained(warmed(row["code"])), rel=6e-4, abs=1e-11)
            assert row["warm"][:10] == pytest.approx([0.01 + 0.009 * t for t in range(10)])
    assert ("losses" in schedule) == (name == "ReduceLROnPlateau")


def test_shown_values_are_independent_of_machine_rounding():
    for schedule in SCHEDULES.values():
        for row in schedule["rows"]:
            for code in [row["code"]] + [warmed(row["code"])] * ("warm" in row):
                for value in trained(code):
                    low, high = (float(f"{value * (1 + s):.4g}") for s in (-1e-9, 1e-9))
                    exact = "0.5" in code  # halving is exact on every machine
                    assert low == high or value < 1e-12 or exact, (code, value)


def test_warm_up_is_offered_only_where_torch_supports_it():
    assert [n for n, s in SCHEDULES.items() if "warm" not in s["rows"][0]] == [
        "OneCycleLR",
        "ReduceLROnPlateau",
    ]
    with pytest.raises(ValueError, match="does not support `ReduceLROnPlateau`"):
        explored(warmed(SCHEDULES["ReduceLROnPlateau"]["rows"][0]["code"]))
    assert DATA["warmed"].replace("{}", "X(optimizer)") == warmed("X(optimizer)")
    assert SCHEDULES["ReduceLROnPlateau"]["losses"] == pytest.approx(LOSSES[:EPOCHS])


def test_script_and_data_are_small():
    assert len(schedule_explorer()._repr_html_().encode()) <= 60_000
    assert len(schedule_explorer().data) <= 40_000


# ---------------------------------------------------------------- in a browser


STATE = """(e) => { const r = e.shadowRoot, $ = (s) => r.querySelector(s);
  const steps = (d) => [...d.matchAll(/(?:M0 |V)([-\\d.e]+)H/g)].map((m) => +m[1]);
  const box = $("[type=checkbox]");
  return { said: $(".said").textContent, code: $(".code").textContent,
    names: [...r.querySelectorAll(".two .select")].map((l) => l.firstChild.data.trim()),
    curve: steps($(".curve").getAttribute("d")), losses: steps($(".loss").getAttribute("d")),
    at: +$(".now").getAttribute("x"), ticks: [...r.querySelectorAll(".y span")].map((s) =>
      +s.textContent), epochs: [...r.querySelectorAll(".x span")].map((s) => +s.textContent),
    told: $("[type=range]").value, warm: Boolean(box?.checked), able: Boolean(box),
    note: $("span.check")?.innerText ?? "", key: $(".drawing .title").innerText,
    task: $(".task").innerText, focus: r.activeElement?.dataset.key }; }"""


def text(rate: float) -> str:
    """Format a learning rate as JavaScript does."""
    if rate == int(rate):
        return str(int(rate))
    return f"{rate:.12f}".rstrip("0") if rate >= 1e-6 else f"{rate:g}".replace("e-0", "e-")


def read(now: dict, rates: list[float], epoch: int) -> None:
    assert now["at"] == epoch == int(now["told"])
    assert now["said"].startswith(f"The learning rate of epoch {epoch} is {text(rates[epoch])}.")
    assert ("weights do not change" in now["said"]) == (rates[epoch] == 0)


@pytest.mark.parametrize("name", GRID)
def test_page_shows_the_rates_of_torch_for_every_setting(show, name):
    page = show(schedule_explorer(), width=375)
    element = page.locator("schedule-explorer")
    schedule = SCHEDULES[name]
    element.get_by_label("schedule").select_option(label=name)
    selects = element.locator(".two select")
    slider, box = element.locator("[type=range]"), element.locator("[type=checkbox]")
    choices = itertools.product(*schedule["parameters"].values())
    for number, (row, values) in enumerate(zip(schedule["rows"], choices, strict=True)):
        for i, value in enumerate(values):
            selects.nth(i).select_option(label=value)
        for warm in [False] + [True] * ("warm" in row):
            if "warm" in row:
                box.set_checked(warm)
            rates = trained(warmed(row["code"]) if warm else row["code"])
            now = element.evaluate(STATE)
            assert now["code"] == (warmed(row["code"]) if warm else row["code"])
            assert now["names"] == list(schedule["parameters"]) and now["warm"] == warm
            top, middle, bottom = now["ticks"]
            assert [(100 - y) / 100 * top for y in now["curve"]] == pytest.approx(
                rates, rel=2e-3, abs=2e-5
            )
            rates = row["warm" if warm else "rates"]
            assert (top, bottom) == (max(rates), 0) and middle == pytest.approx(top / 2, rel=1e-3)
            assert now["epochs"] == [0, 10, 20, 30, 40, 50]
            epoch = (7 + 11 * number) % EPOCHS
            slider.fill(str(epoch))
            read(element.evaluate(STATE), rates, epoch)
            assert page.evaluate("document.documentElement.scrollWidth") <= 375
    now = element.evaluate(STATE)
    assert now["able"] == (now["note"] == "") == ("warm" in schedule["rows"][0])
    assert ("validation loss" in now["key"]) == bool(now["losses"]) == ("losses" in schedule)
    if "losses" in schedule:
        assert [(100 - y) / 100 for y in now["losses"]] == pytest.approx(LOSSES[:EPOCHS])
        loss = text(schedule["losses"][epoch])
        assert f" After epoch {epoch} the validation loss is {loss}." in now["said"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_explorer_opens_on_the_cut_cosine_and_task_can_be_done(show, lang):
    page = show(schedule_explorer(lang), width=375)
    element = page.locator("schedule-explorer")
    done = {"en": "✓ Done", "zh": "✓ 完成"}[lang]
    cosine = SCHEDULES["CosineAnnealingLR"]["rows"]
    now = element.evaluate(STATE)
    assert "T_max=50" in now["code"] and now["warm"] and now["at"] == EPOCHS - 1
    for length, says, reached in (
        ("50", ("is cut off", "走不完"), False),
        ("20", ("ends at epoch 30, and rises again", "到第 30 轮就走完了"), False),
        ("40", ("ends with the training", "正好随训练走完"), True),
    ):
        element.get_by_label("T_max").select_option(label=length)
        now = element.evaluate(STATE)
        assert says[lang == "zh"] in now["said"] and now["task"].startswith(done) == reached
        row = next(r for r in cosine if f"T_max={length}," in r["code"])
        near = row["warm"][-1] < 0.01 * BASE
        assert near == reached and (min(row["warm"][10:]) == row["warm"][-1]) == (length != "20")


def test_explorer_works_by_keyboard(show):
    page = show(schedule_explorer(), width=900)
    element = page.locator("schedule-explorer")

    def now():
        return element.evaluate(STATE)

    page.keyboard.press("Tab")
    keys = []
    for _ in range(5):
        page.keyboard.press("Tab")
        keys.append(now()["focus"])
    assert keys == ["one", "p", "q", "warm", "at"]
    row = SCHEDULES["CosineAnnealingLR"]["rows"][0]
    for epoch in range(EPOCHS - 1, 0, -1):
        read(now(), row["warm"], epoch)
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # there is no epoch before the first
    read(now(), row["warm"], 0)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert not now()["warm"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowDown")
    assert "T_max=40" in now()["code"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowUp")
    assert now()["code"].startswith("LinearLR") and now()["focus"] == "one"


def test_hovering_the_curve_shows_the_rate(show):
    page = show(schedule_explorer(), width=800)
    element = page.locator("schedule-explorer")
    box = element.locator(".plot svg").bounding_box()
    for epoch in (0, 12, 49):
        page.mouse.move(box["x"] + (epoch + 0.5) / EPOCHS * box["width"], box["y"] + 30)
        row = SCHEDULES["CosineAnnealingLR"]["rows"][0]
        read(element.evaluate(STATE), row["warm"], epoch)


def test_schedule_without_warm_up_explains_why_and_keeps_the_choice(show):
    page = show(schedule_explorer(), schedule_explorer(), width=375)
    first, element = page.locator("schedule-explorer").all()
    kind = element.get_by_label("schedule")
    for name, why in (("OneCycleLR", "has its own"), ("ReduceLROnPlateau", "does not support")):
        kind.select_option(label=name)
        now = element.evaluate(STATE)
        assert not now["able"] and why in now["note"] and now["code"].startswith(name)
    kind.select_option(label="StepLR")
    now = element.evaluate(STATE)
    assert now["able"] and now["warm"] and now["note"] == "" and now["losses"] == []
    assert "Cosine" in first.evaluate(STATE)["code"]
