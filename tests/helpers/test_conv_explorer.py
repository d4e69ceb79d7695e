"""Test that the convolution explorer's sizes equal PyTorch's for every setting."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from helpers.explorers.conv import RANGES, conv_explorer

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")

SCRIPT = conv_explorer().script
KEYS = {kind: list(ranges) for kind, ranges in RANGES.items()}
REASONS = {
    "kernel": "Kernel size can't be greater than actual input size",
    "extra": "output padding must be smaller than either stride or dilation",
    "half": "at most half of kernel size",
}


def reachable(kind: str) -> list[dict[str, int]]:
    spans = [range(low, high + 1) for low, high in RANGES[kind].values()]
    return [dict(zip(KEYS[kind], values, strict=True)) for values in itertools.product(*spans)]


def by_torch(kind: str, n: int, k=1, s=1, p=0, d=1, op=0, ceil=0, o=1) -> torch.Tensor:
    """Count the reads of input cell i by output position j, shape (n, outputs), one image per i."""
    x, w = torch.eye(n)[:, None], torch.ones(1, 1, k)
    if kind == "conv":
        out = F.conv1d(x, w, None, s, p, d)
    elif kind == "transposed":
        with torch.backends.mkldnn.flags(enabled=False):  # oneDNN accepts a size of 0
            out = F.conv_transpose1d(x, w, None, s, p, op, 1, d)
    elif kind == "max":
        out = F.max_pool1d(x, k, s, p, d, bool(ceil)).clamp(min=0)  # -inf: no input in it
    else:
        out = F.adaptive_max_pool1d(x, o)
    return out[:, 0]


@pytest.fixture(scope="module")
def plan() -> Any:
    mini_racer = pytest.importorskip("py_mini_racer")
    context = mini_racer.MiniRacer()
    context.eval(
        "class HTMLElement {}; const defined = {};"
        "const customElements = { get: (n) => defined[n],"
        " define: (n, e) => { if (defined[n]) throw Error(n); defined[n] = e; } };"
    )
    for _ in range(2):
        context.eval(SCRIPT)
    return lambda kind, grid: json.loads(
        context.eval(
            f"JSON.stringify({json.dumps(grid)}.map((s) =>"
            f" defined['conv-explorer'].plan({{kind: '{kind}', ...s}})))"
        )
    )


@pytest.mark.parametrize(("kind", "some"), [("conv", 1500), ("transposed", 3000), ("max", 3000)])
def test_every_setting_matches_torch(plan, kind, some):
    grid = reachable(kind)
    assert len(grid) > some
    allowed = 0
    for setting, found in zip(grid, plan(kind, grid), strict=True):
        try:
            want = by_torch(kind, **setting)
        except RuntimeError as error:
            known = REASONS.get(found["why"])
            if found["why"] == "small":
                assert "Output size is too small" in str(error) or (
                    f"Invalid computed output size: {found['size']}" in str(error)
                ), (setting, error)
            else:
                assert known and known in str(error), (setting, found, error)
            continue
        allowed += 1
        assert found["why"] == "" and found["size"] == want.shape[1], (setting, found)
        reads = [column.nonzero().flatten().tolist() for column in want.T]
        assert found["reads"] == reads, setting
        assert found["unread"] == [i for i, row in enumerate(want) if not row.any()], setting
        assert eval_formula(found["text"]) - found["cut"] == found["size"], (setting, found)
        if kind != "transposed":
            assert all(len(taps) == setting["k"] for taps in found["taps"])
    assert 0 < allowed < len(grid)


def test_every_adaptive_setting_matches_torch(plan):
    grid = reachable("adaptive")
    assert len(grid) == 100
    for setting, found in zip(grid, plan("adaptive", grid), strict=True):
        want = by_torch("adaptive", **setting)
        assert found["why"] == "" and found["size"] == setting["o"] == want.shape[1]
        assert found["reads"] == found["taps"]
        assert found["reads"] == [column.nonzero().flatten().tolist() for column in want.T]
        assert found["unread"] == []


def eval_formula(text: str) -> int:
    """Evaluate a formula in the explorer's notation."""
    assert re.fullmatch(r"(floor|ceil)?[\d ()·+−/]+", text), text
    found = re.fullmatch(r"(floor|ceil)\(\((.*)\) / (\d+)\) \+ 1", text)
    python = str.maketrans({"·": "*", "−": "-"})
    if not found:
        return eval(text.translate(python))
    above, below = eval(found[2].translate(python)), int(found[3])
    return (above // below if found[1] == "floor" else -(-above // below)) + 1


# ---------------------------------------------------------------- in a browser


def set_all(page: Any, kind: str, setting: dict[str, int], j: int = 0) -> None:
    page.locator("select").select_option(kind)
    for key, value in setting.items():
        field = page.locator(f"[data-key={key}]")
        field.set_checked(bool(value)) if key == "ceil" else field.fill(str(value))
    if page.locator("[data-point]").count():
        page.locator(f"[data-point='j={j}']").focus()


def said(page: Any) -> str:
    return page.locator("[aria-live]").inner_text().split("✓")[0].strip()


@pytest.mark.parametrize(
    ("kind", "setting", "j"),
    [
        ("conv", {"n": 8, "k": 3, "s": 2, "p": 0, "d": 1}, 2),
        ("conv", {"n": 7, "k": 3, "s": 1, "p": 2, "d": 2}, 0),
        ("conv", {"n": 10, "k": 1, "s": 3, "p": 3, "d": 1}, 0),
        ("transposed", {"n": 4, "k": 3, "s": 2, "p": 1, "d": 1, "op": 1}, 3),
        ("transposed", {"n": 3, "k": 1, "s": 3, "p": 0, "d": 1, "op": 2}, 8),
        ("max", {"n": 5, "k": 2, "s": 2, "p": 1, "d": 1, "ceil": 1}, 2),
        ("max", {"n": 10, "k": 3, "s": 3, "p": 0, "d": 1, "ceil": 0}, 1),
        ("adaptive", {"n": 10, "o": 4}, 3),
        ("adaptive", {"n": 3, "o": 8}, 5),
    ],
)
def test_page_matches_torch(show, kind, setting, j):
    page = show(conv_explorer())
    set_all(page, kind, setting, j)
    want = by_torch(kind, **setting)
    reads = want.T[j].nonzero().flatten().tolist()
    cells = f"input {', '.join(map(str, reads))}" if reads else "no input"
    text = said(page)
    assert text.startswith(f"Output position {j} reads {cells}")
    padded = setting["k"] - len(reads) if kind in ("conv", "max") else 0
    assert (f"; padding: {padded}." in text) == bool(padded)
    never = [str(i) for i, row in enumerate(want) if not row.any()]
    assert (f"Never read: input {', '.join(never)}." in text) == bool(never)
    formula = page.locator(".formula").inner_text()
    assert formula.startswith("window: " if kind == "adaptive" else "output size: ")
    assert formula.endswith("− 1" if kind == "adaptive" else f" {want.shape[1]}")
    # the picture: lines to the cells read, and every cell of both rows once
    drawn = page.evaluate(
        """() => { const e = document.querySelector("conv-explorer").shadowRoot, top = (r) =>
          +r.getAttribute("y") === 0, all = [...e.querySelectorAll("rect")]; return {
          lines: e.querySelectorAll("line").length,
          input: all.filter((r) => top(r) && !r.classList.contains("pad")).length,
          output: all.filter((r) => !top(r) && !r.classList.contains("pad")).length,
          on: all.filter((r) => r.classList.contains("hold")).length,
          lost: all.filter((r) => r.classList.contains("lost")).length }; }"""
    )
    lines = setting["k"] if kind in ("conv", "max") else len(reads)
    assert drawn == {
        "lines": lines,
        "input": setting["n"],
        "output": want.shape[1],
        "on": lines + 1,
        "lost": len(never),
    }


@pytest.mark.parametrize(
    ("kind", "setting", "says"),
    [
        ("conv", {"n": 5, "k": 4, "d": 2, "p": 0}, "spans 7 positions, the padded input has 5."),
        ("transposed", {"n": 5, "s": 2, "d": 1, "op": 2}, "output_padding must be smaller than"),
        ("transposed", {"n": 1, "k": 1, "s": 1, "p": 1, "op": 0}, "output size would be -1."),
        ("max", {"n": 9, "k": 3, "p": 2}, "padding may be at most half of kernel_size"),
        ("max", {"n": 2, "k": 5, "p": 0, "s": 1}, "the output size would be -2."),
    ],
)
def test_impossible_setting_shows_the_reason(show, kind, setting, says):
    page = show(conv_explorer())
    set_all(page, kind, setting)
    assert says in said(page)
    assert page.locator("svg").count() == 0
    page.locator("select").select_option("adaptive")  # a valid setting restores it
    assert page.locator("svg").is_visible()


def test_ceil_mode_shows_a_dropped_window(show):
    page = show(conv_explorer())
    set_all(page, "max", {"n": 5, "k": 2, "s": 2, "p": 1, "d": 1, "ceil": 1})
    assert page.locator(".formula code").inner_text() == (
        "ceil((5 + 2·1 − 1·(2 − 1) − 1) / 2) + 1 = 4; less 1, as the last window would start "
        "beyond the input: 3"
    )


def test_controls_fit_the_layer_and_stay_in_range(show):
    page = show(conv_explorer())
    for kind, ranges in RANGES.items():
        page.locator("select").select_option(kind)
        keys = [one.get_attribute("data-key") for one in page.locator("[data-key]").all()]
        assert sorted(keys) == sorted(["kind", *ranges])
    set_all(page, "conv", {"n": 10})
    page.locator("select").select_option("transposed")
    assert page.get_by_text("input size").locator("b").inner_text() == "6"


def test_explorer_opens_with_an_unread_cell_and_task_completes(show):
    page = show(conv_explorer(), width=375)
    task = page.locator(".task")
    assert "Never read: input 7." in said(page)
    for key, value, done in (("s", 1, False), ("s", 2, False), ("k", 2, True)):
        page.locator(f"[data-key={key}]").fill(str(value))
        assert task.inner_text().startswith("✓ Done" if done else "Task"), (key, value)
    page.get_by_role("button", name="Reset").click()
    page.locator("[data-key=p]").fill("1")
    assert task.inner_text().startswith("✓ Done")


def test_keyboard_reaches_every_control(show):
    page = show(conv_explorer())
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert said(page).startswith("Output position 2 reads input 4, 5, 6.")
    page.keyboard.press("ArrowLeft")
    assert said(page).startswith("Output position 1 reads input 2, 3, 4.")
    page.keyboard.press("Home")
    assert said(page).startswith("Output position 0 reads input 0, 1, 2.")
    names = ("input size", "kernel_size", "stride", "padding", "dilation")
    for name in names:  # each control has a label and responds to the keyboard
        control = page.get_by_role("slider", name=re.compile(f"^{name} "))
        before = control.input_value()
        control.press("ArrowLeft" if name != "padding" and before != "1" else "ArrowRight")
        assert control.input_value() != before
    page.locator("select").press("ArrowDown")
    assert page.locator("select").input_value() == "transposed"
    page.locator("select").select_option("max")
    page.get_by_role("checkbox", name="ceil_mode").press("Space")
    assert page.locator(".formula code").inner_text().startswith("ceil(")


def test_pointing_highlights_cells_and_words(show):
    page = show(conv_explorer(), width=800)
    page.locator("[data-point='j=0']").hover()
    assert said(page).startswith("Output position 0 reads input 0, 1, 2.")
    page.locator(".said [data-part=lost]").hover()
    lit = page.evaluate(
        """() => { const root = document.querySelector("conv-explorer").shadowRoot;
          return [...root.querySelectorAll("rect")].flatMap((r) =>
            getComputedStyle(r).strokeWidth === "4px" ? [r.dataset.part] : []); }"""
    )
    assert lit == ["i7 lost"]


def test_two_explorers_on_a_page_are_independent_in_both_languages(show):
    page = show(conv_explorer(), conv_explorer("zh"))
    first, second = page.locator("conv-explorer").all()
    second.locator("[data-point='j=1']").focus()
    assert first.locator(".said").inner_text().startswith("Output position 2 reads input 4, 5, 6.")
    assert second.locator(".said").inner_text().startswith("输出位置 1 读取输入 2、3、4。")
    second.locator("[data-key=k]").fill("5")
    second.locator("[data-key=n]").fill("2")
    assert second.locator(".said").inner_text().startswith("不可能：卷积核横跨 5 个位置")
    chinese = show(conv_explorer(), lang="zh-CN")
    assert chinese.locator("option").all_inner_texts() == [
        *("卷积", "转置卷积", "最大池化", "自适应池化")
    ]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("lang", ["en", "zh-CN"])
def test_narrow_screen_requires_no_sideways_scroll(show, lang, dark):
    page = show(conv_explorer(), lang=lang, width=375, dark=dark)
    assert page.locator("text").first.is_visible()
    for kind, ranges in RANGES.items():
        largest = {key: high for key, (_, high) in ranges.items()}
        set_all(page, kind, {**largest, **({"p": 2, "k": 5} if kind == "max" else {})})
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        assert page.locator("svg").is_visible()
    set_all(page, "transposed", {"n": 6, "k": 5, "s": 3, "p": 0, "d": 3, "op": 2})
    assert page.locator("text").count() == 0  # too small to read


def test_fallback_without_scripts_is_a_sentence():
    html = conv_explorer()._repr_html_()
    assert ">A row of 8 input positions and the 3 output positions of a convolution with" in html
    assert json.loads(conv_explorer().data)["ranges"] == RANGES
    assert by_torch("conv", n=8, k=3, s=2).shape[1] == 3
