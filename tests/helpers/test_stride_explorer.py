"""The stride explorer: its data are torch's, and the browser shows them."""

from __future__ import annotations

import json
import re

import pytest
import torch

from helpers.explorers.stride import WALKS, X, stride_explorer, walk

DATA = json.loads(stride_explorer().data)
KINDS = {
    "en": {"itself": "y is x itself", "view": "a view", "copy": "a copy"},
    "zh": {"itself": "y 就是 x 本身", "view": "视图", "copy": "复制"},
}


def result(code: str) -> torch.Tensor:
    return eval(code, {"x": X})


@pytest.mark.parametrize("row", DATA["walks"], ids=lambda row: row["code"])
def test_every_number_is_what_torch_gives(row):
    y = result(row["code"])  # the code shown, not the function beside it
    assert row["shape"] == list(y.shape) and row["stride"] == list(y.stride())
    assert row["offset"] == y.storage_offset() and row["contiguous"] == y.is_contiguous()
    shared = y.untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
    assert row["kind"] == ("itself" if y is X else "view" if shared else "copy")
    assert ("storage" in row) == (not shared)
    assert DATA["storage"] == X.flatten().tolist()
    cells = row.get("storage", DATA["storage"])
    assert [cells[n] for n in row["at"]] == y.flatten().tolist()
    for index, n in zip(torch.ones(y.shape).nonzero().tolist(), row["at"], strict=True):
        steps = zip(index, y.stride(), strict=True)
        assert n == y.storage_offset() + sum(i * s for i, s in steps)


def test_the_examples_cover_what_the_chapter_says():
    rows = {row["code"]: row for row in DATA["walks"]}
    assert list(rows) == list(WALKS)
    assert {(r["kind"], r["contiguous"]) for r in rows.values()} == {
        ("itself", True), ("view", True), ("view", False), ("copy", True)
    }  # fmt: skip
    assert any(0 in r["stride"] for r in rows.values())
    assert {len(r["shape"]) for r in rows.values()} == {1, 2, 3}
    assert any(r["offset"] for r in rows.values())


def test_a_walk_over_another_tensor():
    row = walk(lambda x: x[1::2].t(), torch.arange(8.0).reshape(4, 2))
    assert row["at"] == [2, 6, 3, 7] and row["stride"] == [1, 4] and row["offset"] == 2


# ---------------------------------------------------------------- in a browser


@pytest.fixture
def show(show):
    def open_page(copies=1, lang="en", width=375):
        return show(*[stride_explorer()] * copies, lang=lang, width=width)

    return open_page


STATE = """(e) => { const r = e.shadowRoot, all = (s) => [...r.querySelectorAll(s)];
  const on = all(".strip span").filter((c) => c.className === "on");
  return { said: r.querySelector("[aria-live]").textContent,
    facts: r.querySelector(".facts").innerText,
    grid: all("button").map((b) => +b.textContent), focus: r.activeElement?.ariaLabel,
    chosen: all("button").findIndex((b) => b.className === "on"),
    current: all("[aria-current=true]").length, stops: all("button[tabindex='0']").length,
    alias: all("button").flatMap((b, i) => b.className === "alias" ? [i] : []),
    cell: on.map((c) => [+c.textContent, +c.nextElementSibling.textContent]),
    idle: [...all(".strip")[0].querySelectorAll("span")]
      .flatMap((c, n) => c.className === "idle" ? [n] : []),
    strips: all(".strip").filter((s) => s.getClientRects().length)
      .map((s) => [...s.querySelectorAll("span")].map((c) => +c.textContent)) }; }"""


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_each_element_of_each_operation_by_keyboard(show, lang):
    page = show(lang=lang)
    element = page.locator("stride-explorer")
    for number, row in enumerate(DATA["walks"]):
        y = result(row["code"])
        element.locator("select").select_option(str(number))
        element.locator("select").focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Home")
        for k, index in enumerate(torch.ones(y.shape).nonzero().tolist()):
            if k:
                page.keyboard.press("ArrowRight")
            now, value, cell = element.evaluate(STATE), y[tuple(index)].item(), row["at"][k]
            assert now["chosen"] == k and now["focus"] == f"y{index} = {value}"
            assert now["current"] == now["stops"] == 1
            assert now["cell"] == [[value, cell]]
            same = [i for i, n in enumerate(row["at"]) if n == cell and i != k]
            assert now["alias"] == same
            products = [n for pair in zip(index, y.stride(), strict=True) for n in pair]
            want = [*index, value, cell, y.storage_offset(), *products, cell]
            assert numbers(now["said"]) == want + [len(same)] * bool(same)
        assert now["grid"] == y.flatten().tolist()
        facts = now["facts"]
        assert KINDS[lang][row["kind"]] in facts
        assert ("not contiguous" in facts or "内存不连续" in facts) != row["contiguous"]
        assert numbers(facts) == [*y.shape, *y.stride(), y.storage_offset()]
        own = [row["storage"]] if "storage" in row else []
        assert now["strips"] == [DATA["storage"], *own]
        read = [] if own else row["at"]
        assert now["idle"] == [n for n in range(X.numel()) if n not in read]
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_arrows_hover_and_edges(show):
    page = show(width=900)
    element = page.locator("stride-explorer")

    def chosen():
        return element.evaluate(STATE)["chosen"]

    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    moves = {"ArrowDown": 11, "ArrowRight": 11, "ArrowUp": 7, "ArrowLeft": 6, "Home": 0}
    for key, want in [*moves.items(), ("ArrowUp", 0), ("ArrowLeft", 0), ("ArrowDown", 4)]:
        page.keyboard.press(key)
        assert chosen() == want, key
    page.set_viewport_size({"width": 900, "height": 300})
    page.keyboard.press("End")
    top = page.evaluate("scrollY")
    for _ in range(5):  # at the edge: the arrows do not scroll the page either
        page.keyboard.press("ArrowDown")
    page.wait_for_timeout(200)
    assert chosen() == 11 and page.evaluate("scrollY") == top
    assert page.evaluate("document.documentElement.scrollHeight") > top + 300
    element.locator("button").nth(9).hover()
    assert chosen() == 9
    element.locator("select").select_option(label="x.diagonal()")
    element.locator("button").first.focus()
    page.keyboard.press("ArrowDown")  # one dimension has no row below
    assert chosen() == 0


def test_two_on_a_page_do_not_disturb_each_other(show):
    page = show(copies=2)
    first, second = page.locator("stride-explorer").all()
    second.get_by_label("Operation").select_option(label="x.flip(1)")
    assert "y is x itself" in first.evaluate(STATE)["facts"]
    assert "a copy" in second.evaluate(STATE)["facts"]
