"""Test that the stride explorer shows PyTorch's strides in a browser."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch

from helpers.explorers.stride import FIRSTS, THENS, X, stride_explorer, walk

DATA = json.loads(stride_explorer().data)
PAIRS = list(itertools.product(range(len(FIRSTS)), range(len(THENS))))
CODES = [DATA["firsts"][f] + DATA["thens"][t] for f, t in PAIRS]
KINDS = {
    "en": {"itself": "x itself", "view": "a view of x", "copy": "a copy"},
    "zh": {"itself": "x 本身", "view": "x 的视图", "copy": "副本"},
}


def result(code: str) -> torch.Tensor:
    return eval(code, {"x": X})


def by_torch(code: str) -> torch.Tensor | None:
    try:
        return result(code)
    except RuntimeError as error:
        assert "view size is not compatible" in str(error)
        return None


@pytest.mark.parametrize(("first", "then"), PAIRS, ids=CODES)
def test_every_number_matches_torch(first, then):
    code, row = DATA["firsts"][first] + DATA["thens"][then], DATA["walks"][first][then]
    y = by_torch(code)  # the code shown, not the function beside it
    assert DATA["storage"] == X.flatten().tolist()
    if y is None:
        assert row["kind"] == "error" and DATA["thens"][then] == ".view(-1)"
        elements = result(DATA["firsts"][first])
        assert [DATA["storage"][n] for n in row["at"]] == elements.flatten().tolist()
        steps = {b - a for a, b in itertools.pairwise(row["at"])}
        assert len(steps) > 1  # no single stride visits these cells
        return
    assert row["shape"] == list(y.shape) and row["stride"] == list(y.stride())
    assert row["offset"] == y.storage_offset() and row["contiguous"] == y.is_contiguous()
    shared = y.untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
    assert row["kind"] == ("itself" if y is X else "view" if shared else "copy")
    assert ("storage" in row) == (not shared)
    cells = row.get("storage", DATA["storage"])
    assert [cells[n] for n in row["at"]] == y.flatten().tolist()
    for index, n in zip(torch.ones(y.shape).nonzero().tolist(), row["at"], strict=True):
        steps = zip(index, y.stride(), strict=True)
        assert n == y.storage_offset() + sum(i * s for i, s in steps)


def test_examples_cover_the_claims_of_the_chapter():
    assert (DATA["firsts"], DATA["thens"]) == (list(FIRSTS), list(THENS))
    rows = list(itertools.chain(*DATA["walks"]))
    whole = [r for r in rows if r["kind"] != "error"]
    assert {(r["kind"], r["contiguous"]) for r in whole} == {
        ("itself", True), ("view", True), ("view", False), ("copy", True)
    }  # fmt: skip
    assert any(0 in r["stride"] for r in whole) and any(r["offset"] for r in whole)
    assert {len(r["shape"]) for r in whole} == {1, 2}
    assert len(rows) - len(whole) == 5
    opened = DATA["walks"][DATA["start"]["first"]][DATA["start"]["then"]]
    assert opened["kind"] == "copy"


def test_walk_accepts_another_tensor():
    row = walk(lambda x: x[1::2], torch.Tensor.t, torch.arange(8.0).reshape(4, 2))
    assert row["at"] == [2, 6, 3, 7] and row["stride"] == [1, 4] and row["offset"] == 2


# ---------------------------------------------------------------- in a browser


STATE = """(e) => { const r = e.shadowRoot, all = (s) => [...r.querySelectorAll(s)];
  return { said: r.querySelector(".said").textContent,
    facts: r.querySelector(".facts")?.innerText ?? "",
    kind: r.querySelector(".drawing").firstElementChild.innerText,
    grid: all(".y button").map((b) => +b.textContent), focus: r.activeElement?.ariaLabel,
    chosen: all(".y button").findIndex((b) => b.className === "on"),
    same: all(".y button").flatMap((b, i) => b.className === "same" ? [i] : []),
    cell: all(".cells .on").map((c) => [+c.textContent, +c.nextElementSibling.textContent]),
    strips: all(".cells").map((s) => [...s.querySelectorAll("span")].map((c) =>
      [+c.textContent, c.className === "idle"])) }; }"""


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_element_is_reachable_by_keyboard(show, cover, lang):
    page = show(stride_explorer(), lang=lang, width=375)
    element = page.locator("stride-explorer")
    for first, then in cover(PAIRS, lang):
        code, row = DATA["firsts"][first] + DATA["thens"][then], DATA["walks"][first][then]
        element.locator("select").select_option(str(first))
        element.get_by_role("radio").nth(then).check()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        y = by_torch(code)
        if y is None:
            now = element.evaluate(STATE)
            assert now["kind"] == "RuntimeError" and now["grid"] == []
            assert numbers(now["said"].split("✓")[0])[: len(row["at"])] == row["at"]
            continue
        element.locator(".y button").first.focus()
        for k, index in enumerate(torch.ones(y.shape).nonzero().tolist()):
            if k:
                page.keyboard.press("ArrowRight")
            now, value, cell = element.evaluate(STATE), y[tuple(index)].item(), row["at"][k]
            assert now["chosen"] == k and now["focus"] == f"y{index} = {value}"
            assert now["cell"] == [[value, cell]]
            same = [i for i, n in enumerate(row["at"]) if n == cell and i != k]
            assert now["same"] == same
            products = [n for pair in zip(index, y.stride(), strict=True) for n in pair]
            want = [*index, value, cell, y.storage_offset(), *products]
            text = numbers(now["said"].split("✓")[0])
            assert text == want + [len(same)] * bool(same)
        assert now["grid"] == y.flatten().tolist()
        assert KINDS[lang][row["kind"]] in now["kind"]
        assert ("not contiguous" in now["kind"] or "不连续" in now["kind"]) != row["contiguous"]
        assert numbers(now["facts"]) == [*y.stride(), y.storage_offset()]
        own = [row["storage"]] if "storage" in row else []
        assert [[v for v, _ in s] for s in now["strips"]] == [DATA["storage"], *own]
        idle = [n for n, (_, unread) in enumerate(now["strips"][0]) if unread]
        read = [] if own else row["at"]
        assert idle == [n for n in range(X.numel()) if n not in read]


def test_explorer_opens_with_a_copy_and_task_can_be_completed(show):
    page = show(stride_explorer(), width=375)
    element, task = page.locator("stride-explorer"), page.locator("stride-explorer .task")
    assert element.evaluate(STATE)["kind"] == "y = a copy, contiguous"
    for first in DATA["firsts"]:
        element.locator("select").select_option(label=first)
        y = result(first).reshape(-1)
        free = y.untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
        done = task.inner_text().startswith("✓ Done")
        assert done == (free and not result(first).is_contiguous()), first
        if done:
            break
    assert done


def test_hovered_storage_cell_highlights_its_elements(show):
    page = show(stride_explorer(), width=800)
    element = page.locator("stride-explorer")
    element.locator("select").select_option(label="x[:, :1].expand(3, 4)")
    element.get_by_role("radio", name="as it is").check()
    element.locator(".cells [data-part=c4]").hover()
    outlined = element.evaluate(
        """(e) => [...e.shadowRoot.querySelectorAll(".y button")].flatMap((b, i) =>
          getComputedStyle(b).outlineStyle === "solid" ? [i] : [])"""
    )
    assert outlined == [4, 5, 6, 7]
