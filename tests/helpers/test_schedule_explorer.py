"""The schedule explorer: its data are torch's, and the browser shows them."""

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
    """The rates of a plain loop, written anew, with the scheduler that the shown code builds."""
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


def test_settings_need_a_known_schedule():
    assert settings("ExponentialLR")[0] == "ExponentialLR(optimizer, gamma=0.8)"
    with pytest.raises(ValueError, match="no schedule 'Step'; there are StepLR, MultiStepLR"):
        settings("Step")


@pytest.mark.parametrize("name", GRID)
def test_every_curve_is_torch_s(name):
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


def test_no_value_stands_where_another_machine_might_round_the_other_way():
    for schedule in SCHEDULES.values():
        for row in schedule["rows"]:
            for code in [row["code"]] + [warmed(row["code"])] * ("warm" in row):
                for value in trained(code):
                    low, high = (float(f"{value * (1 + s):.4g}") for s in (-1e-9, 1e-9))
                    exact = "0.5" in code  # halving is exact on every machine
                    assert low == high or value < 1e-12 or exact, (code, value)


def test_warm_up_is_offered_where_torch_takes_it():
    assert [n for n, s in SCHEDULES.items() if "warm" not in s["rows"][0]] == [
        "OneCycleLR",
        "ReduceLROnPlateau",
    ]
    with pytest.raises(ValueError, match="does not support `ReduceLROnPlateau`"):
        explored(warmed(SCHEDULES["ReduceLROnPlateau"]["rows"][0]["code"]))
    assert DATA["warmed"].replace("{}", "X(optimizer)") == warmed("X(optimizer)")
    assert SCHEDULES["ReduceLROnPlateau"]["losses"] == pytest.approx(LOSSES[:EPOCHS])


def test_script_and_data_are_small():
    assert len(schedule_explorer()._repr_html_().encode()) <= 48_000
    assert len(schedule_explorer().data) <= 40_000


# ---------------------------------------------------------------- in a browser


@pytest.fixture
def show(show):
    def open_page(copies=1, lang="en", width=375):
        return show(*[schedule_explorer()] * copies, lang=lang, width=width)

    return open_page


STATE = """(e) => { const r = e.shadowRoot, $ = (s) => r.querySelector(s);
  const steps = (d) => [...d.matchAll(/(?:M0 |V)([-\\d.e]+)H/g)].map((m) => +m[1]);
  return { said: $("p").textContent, code: $("code").textContent,
    names: [...r.querySelectorAll("[data-parameters] label")].map((l) => l.firstChild.data.trim()),
    curve: steps($(".rate").getAttribute("d")), losses: steps($(".loss").getAttribute("d")),
    at: +$(".now").getAttribute("x"), facts: [...r.querySelectorAll("dd")].map((d) => d.innerText),
    label: $("svg").ariaLabel, told: $("[type=range]").ariaValueText,
    warm: $("[type=checkbox]").checked, able: !$("[type=checkbox]").disabled,
    note: $("small").hidden ? "" : $("small").innerText, key: !$(".dash").parentNode.hidden,
    focus: r.activeElement?.type }; }"""


def text(rate: float) -> str:
    """A rate as JavaScript writes it."""
    if rate == int(rate):
        return str(int(rate))
    return f"{rate:.12f}".rstrip("0") if rate >= 1e-6 else f"{rate:g}".replace("e-0", "e-")


def read(now: dict, rates: list[float], epoch: int) -> None:
    assert now["at"] == epoch
    assert f"learning rate of {text(rates[epoch])}." in now["said"]
    assert now["said"].startswith(f"Epoch {epoch} trains")
    assert now["told"] == f"Epoch {epoch}: {text(rates[epoch])}"
    assert ("learns nothing" in now["said"]) == (rates[epoch] == 0)


@pytest.mark.parametrize("name", GRID)
def test_every_setting_shows_torch_s_numbers(show, name):
    element = show().locator("schedule-explorer")
    schedule = SCHEDULES[name]
    element.get_by_label("Schedule").select_option(label=name)
    selects = element.locator("[data-parameters] select")
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
            shown = [(100 - y) / 100 * max(rates) for y in now["curve"]]
            assert shown == pytest.approx(rates, rel=2e-3, abs=2e-5)
            rates = row["warm" if warm else "rates"]
            top = max(rates)
            assert now["facts"] == [
                text(rates[0]), f"{text(top)} (epoch {rates.index(top)})", text(rates[-1])
            ]  # fmt: skip
            assert all(text(r) in now["label"] for r in (rates[0], top, rates[-1]))
            epoch = (7 + 11 * number) % EPOCHS
            slider.fill(str(epoch))
            read(element.evaluate(STATE), rates, epoch)
    now = element.evaluate(STATE)
    assert now["able"] == (now["note"] == "") == ("warm" in schedule["rows"][0])
    assert now["key"] == bool(now["losses"]) == ("losses" in schedule)
    if "losses" in schedule:
        assert [(100 - y) / 100 for y in now["losses"]] == pytest.approx(LOSSES[:EPOCHS])
        assert " After it the validation loss is " in now["said"]


def test_the_keyboard_alone_is_enough(show):
    page = show(width=900)
    element = page.locator("schedule-explorer")

    def now():
        return element.evaluate(STATE)

    page.keyboard.press("Tab")
    for _ in range(4):
        page.keyboard.press("ArrowDown")  # StepLR, Multi, Exponential, Linear, Cosine
    assert now()["code"].startswith("CosineAnnealingLR(optimizer, T_max=50")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert now()["warm"] and now()["focus"] == "checkbox"
    row = next(r for r in SCHEDULES["CosineAnnealingLR"]["rows"] if "T_max=40" in r["code"])
    page.keyboard.press("Tab")
    for epoch in range(1, EPOCHS):
        page.keyboard.press("ArrowRight")
        read(now(), row["warm"], epoch)
    page.keyboard.press("ArrowRight")  # there is no epoch after the last
    read(now(), row["warm"], EPOCHS - 1)
    page.keyboard.press("Home")
    read(now(), row["warm"], 0)
    outline = element.evaluate("(e) => getComputedStyle(e.shadowRoot.activeElement).outlineStyle")
    assert outline == "solid"


def test_a_schedule_without_warm_up_switches_it_off(show):
    element = show().locator("schedule-explorer")
    element.locator("[type=checkbox]").check()
    kind = element.get_by_label("Schedule")
    for name, why in (("OneCycleLR", "brings its own"), ("ReduceLROnPlateau", "refuses")):
        kind.select_option(label=name)
        now = element.evaluate(STATE)
        assert not now["able"] and not now["warm"] and why in now["note"]
    kind.select_option(label="StepLR")
    now = element.evaluate(STATE)
    assert now["able"] and not now["warm"] and now["note"] == "" and now["losses"] == []


@pytest.mark.parametrize("lang", ["en", "zh-CN"])
def test_a_narrow_screen_needs_no_sideways_scroll(show, lang):
    page = show(lang=lang)
    element = page.locator("schedule-explorer")
    for name in GRID:
        element.locator("select").first.select_option(label=name)
        if element.locator("[type=checkbox]").is_enabled():
            element.locator("[type=checkbox]").check()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        words = element.evaluate("(e) => e.shadowRoot.querySelector('p').textContent")
        assert words.startswith("第 0 轮用的学习率是 " if lang == "zh-CN" else "Epoch 0 trains")


def test_two_on_a_page_do_not_disturb_each_other(show):
    first, second = show(copies=2).locator("schedule-explorer").all()
    second.get_by_label("Schedule").select_option(label="LambdaLR")
    second.locator("[type=range]").fill("7")
    assert first.evaluate(STATE)["code"].startswith("StepLR") and first.evaluate(STATE)["at"] == 0
    read(second.evaluate(STATE), SCHEDULES["LambdaLR"]["rows"][0]["rates"], 7)
