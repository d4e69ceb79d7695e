"""Test that the keys explorer shows the results of load_state_dict in a browser."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from torch import nn

from helpers.explorers.keys import edited, keys_explorer, loaded, model_now, saved_model

DATA = json.loads(keys_explorer().data)
GRID = list(itertools.product((False, True), repeat=5))  # strict, then the four repairs
OWN = model_now().state_dict()
ALL = sum(v.numel() for v in OWN.values())


def code(switches) -> str:
    return "".join(str(int(on)) for on in switches)


def test_file_matches_a_compiled_data_parallel_state_dict():
    wrapped = torch.compile(nn.DataParallel(saved_model())).state_dict()
    file = edited(False, False, False, False)
    assert {k: v.shape for k, v in wrapped.items()} == {k: v.shape for k, v in file.items()}
    assert DATA["file"] == [[k, list(v.shape)] for k, v in saved_model().state_dict().items()]
    assert DATA["model"] == [[k, list(v.shape)] for k, v in OWN.items()]


@pytest.mark.parametrize("switches", GRID, ids=code)
def test_each_state_matches_load_state_dict(switches):
    strict, *repairs = switches
    weights = edited(*repairs)
    raised, names, text = loaded(weights, strict)
    assert DATA["keys"][code(repairs)] == list(weights)
    row = DATA["rows"][code(switches)]
    state = dict(zip(OWN, row["state"], strict=True))
    assert row["raised"] == raised and [k for k, s in state.items() if s == "l"] == names
    sizes = re.findall(r"size mismatch for (\S+):", text)
    assert [k for k, s in state.items() if s == "s"] == sizes
    missing, extra = [k for k in OWN if state[k] == "m"], [k for k in weights if k not in OWN]
    if not raised:
        assert text == str(torch.nn.modules.module._IncompatibleKeys(missing, extra))
    elif strict:
        for title, want in (("Missing", missing), ("Unexpected", extra)):
            line = re.search(rf"{title} key\(s\) in state_dict: (.*)", text)
            assert re.findall(r'"([^"]+)"', line[1] if line else "") == want
    else:
        assert sizes and "key(s)" not in text  # with strict=False only size mismatches are reported


def test_claims_of_chapter_and_fallback_hold():
    """Nothing loads at first; one setting loads all that fits, another does so with an error."""
    full = {k for k, v in OWN.items() if v.shape == saved_model().state_dict().get(k, v).shape}
    done = [s for s in GRID if not loaded(edited(*s[1:]), s[0])[0]]
    assert loaded(edited(*[False] * 4), False)[1] == []
    assert [s for s in done if set(loaded(edited(*s[1:]), s[0])[1]) == full] == [
        (False, *[True] * 4)
    ]
    assert loaded(edited(True, True, True, False), False)[:2] == (
        True,
        sorted(full, key=list(OWN).index),
    )


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  const text = (n) => n.textContent.replace(/\\s+/g, " ").trim();
  return { said: text(e.shadowRoot.querySelector(".said")),
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    rows: all(".keys button").map((b) => [...b.children].map(text)),
    good: all(".keys button").map((b) => b.lastElementChild.className) }; }"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_setting_shows_the_loaded_keys(show, cover, lang):
    page = show(keys_explorer(), lang=lang, width=375)
    element = page.locator("keys-explorer")
    for switches in cover(GRID, lang):
        element.get_by_role("button", name="Reset" if lang == "en" else "重置").click()
        strict, *repairs = switches
        boxes = element.get_by_role("checkbox").all()
        for box, on in zip([boxes[-1], *boxes[:-1]], switches, strict=True):
            box.set_checked(on)
        now, weights = element.evaluate(STATE), edited(*repairs)
        raised, names, _ = loaded(weights, strict)
        shown = dict(zip(OWN, now["rows"], strict=True))
        assert now["good"] == ["good" if k in names else "bad" for k in OWN]
        for (k, v), (_, right) in zip(OWN.items(), shown.values(), strict=True):
            assert right == f"{k} {tuple(v.shape)} {'✓' if k in names else '✗'}"
        left = [f"{k} {tuple(v.shape)}" for k, v in weights.items()]
        out = "left out" if lang == "en" else "已去掉"
        assert [row[0] for row in now["rows"]] == left + [out] * (6 - len(left))
        full = str(sum(OWN[k].numel() for k in names))
        lost = [[k for k in OWN if k not in weights], [k for k in weights if k not in OWN]]
        other = [k for k in weights if k in OWN and k not in names]
        counts = [str(len(keys)) for keys in (*lost, other) if keys]
        found = re.findall(r"\d+", now["said"].split("。" if lang == "zh" else ". ")[0])
        start = [full, str(ALL)] if lang == "en" else [str(ALL), full]
        assert found == start + counts
        assert ("RuntimeError" in now["said"]) == raised
        assert now["done"] == (switches == (False, *[True] * 4))
        assert not any(word in now["said"] for word in ("undefined", "null", "false"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_focused_key_is_explained_and_highlighted(show):
    page = show(keys_explorer(), width=375)
    element = page.locator("keys-explorer")
    assert "0 of 148 values" in element.evaluate(STATE)["said"]
    element.locator(".keys [aria-current]").focus()
    page.keyboard.press("End")
    assert "The file has no key head.bias" in element.evaluate(STATE)["said"]
    element.get_by_role("checkbox").nth(1).check()
    assert "No key begins with module., so nothing was stripped" in element.evaluate(STATE)["said"]
    element.get_by_role("checkbox").nth(0).check()
    assert "head.bias is (4,) in the model and (10,) in the file" in element.evaluate(STATE)["said"]
    element.locator(".keys button").first.hover()
    assert "stem.weight was overwritten before the error" in element.evaluate(STATE)["said"]
    element.locator(".said [data-part=s]").hover()
    lit = element.evaluate(
        """(e) => { const root = e.shadowRoot, rule = root.querySelectorAll("style")[1].sheet;
          return [...root.querySelectorAll(rule.cssRules[0].selectorText)]
            .filter((n) => n.closest(".keys")).length; }"""
    )
    assert lit == 4  # both entries of the head, in the file and in the model
