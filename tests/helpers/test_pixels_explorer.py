"""Test that the pixels explorer shows the model's predictions in a browser."""

from __future__ import annotations

import io
import itertools
import json
import re
from base64 import b64decode
from functools import cache

import numpy as np
import PIL.Image
import pytest
import torch

from helpers.explorers.pixels import (
    IMAGENET,
    LAYOUTS,
    NORMALIZED,
    SCALES,
    answered,
    pixels_explorer,
    prepared,
    shown,
    trained,
)


@cache
def data():
    return json.loads(pixels_explorer().data)


GRID = list(itertools.product((False, True), LAYOUTS, SCALES, NORMALIZED))
RIGHT = (True, "permute", "divided", "own")
NAMES = {"en": ["petals", "leaves", "sky", "trees"], "zh": ["花瓣", "叶子", "天空", "树木"]}


def fails(setting) -> bool:
    _, layout, scale, _ = setting
    return layout == "as read" or scale == "uint8"


def by_hand(setting) -> np.ndarray:
    """Compute the model's four input pictures in NumPy: float64 of shape (4, 3, 16, 16)."""
    rgb, layout, scale, normalized = setting
    x = trained().pictures[shown()].numpy().astype(np.float64)
    x = x if rgb else x[..., ::-1]
    x = x.transpose(0, 3, 1, 2) if layout == "permute" else x.reshape(4, 3, 16, 16)
    x = x / {"float": 1, "divided": 255, "twice": 255**2}[scale]
    mean, std = IMAGENET if normalized == "ImageNet" else (trained().mean, trained().std)
    if normalized != "none":
        x = (x - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    return x


def test_model_classifies_all_images_by_mean_colour():
    """The model's weights, applied to mean colours in float64, give the same predictions."""
    model, mean, std, pictures, label, names = trained()
    assert len(label) == data()["all"] == 189 and names == tuple(NAMES["en"])
    text = answered(prepared(*RIGHT)).argmax(1)
    assert torch.equal(text, label)
    x = (pictures.double() / 255 - torch.tensor(mean)) / torch.tensor(std)
    weight, bias = (
        p.detach().double().flatten(1) for p in (model[0].weight, model[0].bias[:, None])
    )
    by_formula = x.mean((1, 2)) @ weight.T + bias[:, 0]
    assert torch.equal(by_formula.argmax(1), label)


@pytest.mark.parametrize("setting", GRID)
def test_each_row_matches_torch(setting):
    row = data()["rows"][GRID.index(setting)]
    if fails(setting):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            answered(prepared(*setting)[shown()])
        text = f"{caught.type.__name__}: {caught.value}"
        assert data()["errors"][row] == text.replace("input[189, ", "input[4, ")
        return
    low, high, right, output, percents = row
    x = prepared(*setting)
    np.testing.assert_allclose(x[shown()].numpy(), by_hand(setting), rtol=1e-4, atol=1e-5)
    assert x.dtype == torch.float32
    assert [low, high] == pytest.approx(
        [x[shown()].min().item(), x[shown()].max().item()], abs=0.0051
    )
    chances = answered(x)
    best, second = chances.topk(2).values.unbind(1)
    assert right == (chances.argmax(1) == trained().label).sum()
    assert output == chances[shown()].argmax(1).tolist()
    assert percents == pytest.approx((100 * best[shown()]).tolist(), abs=0.51)
    assert (best - second).min() > 1e-4  # rounding cannot change the predicted class
    assert ((100 * best[shown()]) % 1 - 0.5).abs().min() > 1e-3


def test_claims_of_chapter_and_fallback_hold():
    rows = {s: r for s, r in zip(GRID, data()["rows"], strict=True) if isinstance(r, list)}
    assert [s for s, row in rows.items() if row[2] == 189] == [RIGHT]
    assert [s for s, row in rows.items() if row[3] == [0, 1, 2, 3]] == [RIGHT]
    start = rows[False, "permute", "divided", "ImageNet"]
    assert sum(a == b for a, b in enumerate(start[3])) == 1
    assert rows[True, "permute", "divided", "ImageNet"][2] / 189 == pytest.approx(0.9, abs=0.01)
    assert {s for s in GRID if s not in rows} == {s for s in GRID if fails(s)}


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent,
    task: e.shadowRoot.querySelector(".task").textContent,
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    facts: e.shadowRoot.querySelector(".facts").textContent,
    answers: all(".four b").map((b) => b.textContent.replace("→ ", "")),
    looks: all(".four b").map((b) => b.className), images: all("img").map((i) => i.src) }; }"""


def set_all(element, setting) -> None:
    rgb, *others = setting
    for control, keys, key in zip(
        element.get_by_role("combobox").all(), (LAYOUTS, SCALES, NORMALIZED), others, strict=True
    ):
        control.select_option(str(list(keys).index(key)))
    element.get_by_role("checkbox").set_checked(rgb)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_input_and_output_of_each_setting(show, cover, lang):
    page = show(pixels_explorer(), lang=lang, width=375)
    element = page.locator("pixels-explorer")
    std, mean = (np.reshape(v, (3, 1, 1)) for v in (trained().std, trained().mean))
    for setting in cover(GRID, lang):
        element.get_by_role("button", name="Reset" if lang == "en" else "重置").click()
        set_all(element, setting)
        now, row = element.evaluate(STATE), data()["rows"][GRID.index(setting)]
        shape = "(16, 16, 3)" if setting[1] == "as read" else "(3, 16, 16)"
        assert now["facts"].startswith(shape)
        assert ("uint8" in now["facts"]) == (setting[2] == "uint8")
        images = [
            np.asarray(PIL.Image.open(io.BytesIO(b64decode(source.split(",")[1]))))
            for source in now["images"]
        ]
        assert now["done"] == (setting == RIGHT)
        if fails(setting):
            assert now["said"].startswith(data()["errors"][row]) and set(now["looks"]) == {"bad"}
            continue
        given = by_hand(setting) * std + mean
        want = np.clip(255 * given, 0, 255).transpose(0, 2, 3, 1)
        np.testing.assert_allclose(np.stack(images), want, atol=0.51)
        low, high, right, text, percents = row
        ends = [float(n) for n in now["facts"].replace("−", "-").split("·")[2].split("…")]
        assert ends == pytest.approx([low, high], abs=0.001)
        assert now["answers"] == [NAMES[lang][c] for c in text]
        assert now["looks"] == ["good" if c == i else "bad" for i, c in enumerate(text)]
        numbers = [int(n) for n in re.findall(r"\d+", now["said"])]
        assert numbers[:3] == [189, right, percents[1]]
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_page_shows_the_original_images_for_training_and_errors(show):
    page = show(pixels_explorer(), width=375)
    element = page.locator("pixels-explorer")
    for setting in (RIGHT, (True, "as read", "uint8", "none")):
        set_all(element, setting)
        for source, picture in zip(
            element.evaluate(STATE)["images"], trained().pictures[shown()], strict=True
        ):
            image = PIL.Image.open(io.BytesIO(b64decode(source.split(",")[1])))
            assert np.array_equal(np.asarray(image), picture.numpy())


def test_explorer_opens_with_wrong_classes_and_describes_each_image(show):
    page = show(pixels_explorer("en"), width=375)
    element = page.locator("pixels-explorer")
    now = element.evaluate(STATE)
    assert "No error; of 189" in now["said"] and "classifies the leaves as trees" in now["said"]
    assert now["looks"].count("good") == 1 and "all 189 test images" in now["task"]
    element.locator(".four [aria-current]").focus()
    page.keyboard.press("Home")
    assert "classifies the petals as leaves" in element.evaluate(STATE)["said"]
    element.locator(".four button").nth(2).hover()
    assert "Correct: sky" in element.evaluate(STATE)["said"]
