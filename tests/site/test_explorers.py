"""Test explorers on an empty page as in a Colab output: two of a kind, both languages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from traces import notes_trace

from bookbuild.source.words import words
from helpers.explorers.accumulate import accumulate_explorer
from helpers.explorers.allocator import allocator_explorer
from helpers.explorers.batch import batch_explorer
from helpers.explorers.broadcast import broadcast_explorer
from helpers.explorers.clip import clip_explorer
from helpers.explorers.conv import conv_explorer
from helpers.explorers.convolve import convolve_explorer
from helpers.explorers.copy import copy_explorer
from helpers.explorers.diagnose import diagnose_explorer
from helpers.explorers.freeze import freeze_explorer
from helpers.explorers.gather import gather_explorer
from helpers.explorers.graph import graph_explorer
from helpers.explorers.halves import halves_explorer
from helpers.explorers.keys import keys_explorer
from helpers.explorers.leak import leak_explorer
from helpers.explorers.loader import loader_explorer
from helpers.explorers.masks import masks_explorer
from helpers.explorers.mean import mean_explorer
from helpers.explorers.memory import memory_explorer
from helpers.explorers.modes import modes_explorer
from helpers.explorers.move import move_explorer
from helpers.explorers.noise import noise_explorer
from helpers.explorers.norm import norm_explorer
from helpers.explorers.pixels import pixels_explorer
from helpers.explorers.ppo import ppo_explorer
from helpers.explorers.reads import reads_explorer
from helpers.explorers.recompile import recompile_explorer
from helpers.explorers.sampling import sampling_explorer
from helpers.explorers.schedule import schedule_explorer
from helpers.explorers.smooth import smooth_explorer
from helpers.explorers.streams import streams_explorer
from helpers.explorers.stride import stride_explorer
from helpers.explorers.threshold import threshold_explorer
from helpers.explorers.trace import trace_explorer
from helpers.explorers.wheels import wheels_explorer

pytestmark = pytest.mark.rest


def allocator(lang):
    return allocator_explorer(notes_trace(), lang=lang)


EXPLORERS = [
    allocator,
    accumulate_explorer,
    batch_explorer,
    broadcast_explorer,
    clip_explorer,
    conv_explorer,
    convolve_explorer,
    copy_explorer,
    diagnose_explorer,
    freeze_explorer,
    gather_explorer,
    graph_explorer,
    halves_explorer,
    keys_explorer,
    leak_explorer,
    loader_explorer,
    masks_explorer,
    mean_explorer,
    memory_explorer,
    modes_explorer,
    move_explorer,
    noise_explorer,
    norm_explorer,
    pixels_explorer,
    ppo_explorer,
    reads_explorer,
    recompile_explorer,
    sampling_explorer,
    schedule_explorer,
    smooth_explorer,
    streams_explorer,
    stride_explorer,
    threshold_explorer,
    trace_explorer,
    wheels_explorer,
]

HAN = re.compile("[\u4e00-\u9fff]")
AXE = Axe()
PAGE_SCRIPT = Path(__file__).parents[2] / "book" / "_static" / "predict.js"


def test_completed_explorer_state_is_kept_until_reset(browser):
    """Store the state by cell id, for both languages of the page."""
    page = browser.new_context(locale="en-US").new_page()  # its clock is paused below

    def serve(route):
        lang = "zh" if "/zh/" in route.request.url else "en"
        html = copy_explorer(lang=lang)._repr_html_()
        page_words = json.dumps({"questions": words(lang, "script_questions")})
        cell = f'<div class="cell" id="toy-cell"><div class="cell_output">{html}</div></div>'
        body = (
            f'<!doctype html><meta charset="utf-8"><body>{cell}'
            f"<script>bookWords = {page_words}</script>"
            f"<script>{PAGE_SCRIPT.read_text('utf8')}</script>"
        )
        route.fulfill(body=body, content_type="text/html")

    page.route("http://book.example/**", serve)
    page.goto("http://book.example/en/detach.html")
    page.clock.install(time="2026-01-01T00:00:00")
    page.clock.pause_at("2026-01-01T01:00:00")
    task = page.locator("copy-explorer .task")
    for row in page.locator("copy-explorer .ways button").all():
        row.click()  # clicking through all five is not an answer
    page.locator("copy-explorer .ways button").first.click()
    page.clock.run_for(3000)
    assert task.inner_text().startswith("Task: ")
    wrong = page.locator("copy-explorer .ways button:has(.bad)")
    wrong.click()
    assert task.inner_text().startswith("✓ Done: ")
    page.clock.run_for(1500)
    page.goto("http://book.example/zh/detach.html")
    assert task.inner_text().startswith("✓ 任务：")
    stored = "JSON.parse(localStorage.getItem('explored:detach'))"
    assert page.evaluate(stored) == {"toy-cell": 1}
    page.get_by_role("button", name="重置").click()
    assert page.evaluate(stored) == {} and task.inner_text().startswith("任务：")
    page.context.close()


def shown(page, *explorers, dark=False, width=375) -> None:
    """Show explorers on an otherwise empty page, as wide as a phone."""
    page.set_viewport_size({"width": width, "height": 667})
    page.set_content(
        f'<!doctype html><html lang="en"><title>explorers</title><style>:root {{ color-scheme: '
        f"{'dark' if dark else 'light'} }} body {{ margin: 0; font: 16px sans-serif }}</style>"
        f"<main><h1>explorers</h1>{''.join(one._repr_html_() for one in explorers)}</main>"
    )


def test_every_explorer_of_the_book_is_tested(site, pages):
    tag = "<([a-z]+)-explorer[ >]"
    found = {t for name in pages for t in re.findall(tag, (site / name).read_text("utf8"))}
    assert found == {make.__name__.removesuffix("_explorer") for make in EXPLORERS}


@pytest.fixture(scope="module", params=EXPLORERS)
def made(request):
    """Return an explorer in English and in Chinese."""
    return request.param(lang="en"), request.param(lang="zh")


@pytest.fixture(scope="module")
def both(contexts, made):
    """Yield a page with an explorer in English and in Chinese, and both elements."""
    page = contexts["desktop"].new_page()
    shown(page, *made, width=320)
    yield page, page.locator(made[0].name)
    page.close()


def test_two_explorers_on_one_page_keep_their_languages(both):
    _, elements = both
    assert elements.count() == 2
    texts = []
    for element, task in zip(elements.all(), ("Task: ", "任务："), strict=True):
        control = element.locator("button, input, select").first
        assert control.is_visible()
        # the sentence for readers without scripts is a child that the shadow tree hides
        assert element.evaluate("e => e.shadowRoot !== null")
        assert element.locator(".task").inner_text().startswith(task)
        assert element.locator("[aria-live]").inner_text().strip()
        words = element.evaluate("e => [e.words.because, e.words.fits, e.words.whole]")
        assert any(words) and all(not w or w[-1] in ".。" for w in words), "no full stop"
        texts.append(element.evaluate("e => e.shadowRoot.querySelector('section').textContent"))
    assert HAN.search(texts[1]) and not HAN.search(texts[0])


def test_axe_reports_no_violations_and_no_overflow(both, made):
    page, _ = both
    for dark in (True, False):
        shown(page, *made, dark=dark, width=320)
        page.evaluate(AXE.axe_script)
        rules = {"runOnly": ["color-contrast"]} if dark else {}  # the theme changes only contrast
        options = {"resultTypes": ["violations"], "preload": False} | rules
        found = page.evaluate("o => axe.run(document, o).then((r) => r.violations)", options)
        assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") == 320


SMALL = """e => {
  const found = [], texts = document.createTreeWalker(e.shadowRoot, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data, parentElement: parent } = texts.currentNode;
    if (!data.trim() || parent.closest("style, .unseen, option")) continue;
    const m = parent.closest("svg") && parent.getScreenCTM();
    const scale = m ? Math.min(Math.hypot(m.a, m.b), Math.hypot(m.c, m.d)) : 1;
    if (parseFloat(getComputedStyle(parent).fontSize) * scale < 11.9) found.push(data.trim());
  }
  return found;
}"""
# Explorers with bars thinner than 24 pixels, which arrow keys or a slider also move.
THIN = {"halves-explorer", "loader-explorer", "smooth-explorer", "threshold-explorer"}
TIGHT = """e => [...e.shadowRoot.querySelectorAll("button, select, input, [role=button]")]
  .filter(c => !c.closest(".said")).map(c => [c, (c.closest("label") ?? c).getBoundingClientRect()])
  .filter(([, box]) => Math.min(box.width, box.height) < 24)
  .map(([c]) => c.getAttribute("aria-label") ?? c.textContent)"""


def test_phone_text_and_touch_targets_are_large_enough(both):
    page, elements = both
    page.set_viewport_size({"width": 375, "height": 667})
    assert elements.first.evaluate(SMALL) == []
    name = elements.first.evaluate("e => e.localName")
    assert name in THIN or elements.first.evaluate(TIGHT) == []


KEYS = {
    "range": ["ArrowRight", "ArrowLeft"],
    "number": ["ArrowUp", "ArrowDown"],
    "select-one": ["ArrowDown", "ArrowUp"],
    "radio": ["ArrowDown"],
    "checkbox": ["Space"],
}


def operate(page, element, how: str) -> bool:
    """Use the controls of an explorer until its text changes; return whether it did."""
    says = "e => e.shadowRoot.querySelector('section').textContent"
    before = element.evaluate(says)
    for control in element.locator("button, input, select").all():
        for act in actions(page, control, how):
            if not control.is_enabled():
                break
            act()
            for wait in (0, 30):
                page.wait_for_timeout(wait)
                if element.evaluate(says) != before:
                    return True
    return False


def actions(page, control, how: str) -> list:
    """Return functions that operate a control by mouse or keyboard."""
    kind = control.evaluate("e => e.localName === 'input' ? e.type : e.type || e.localName")
    if how == "keyboard":
        return [lambda key=key: control.press(key) for key in KEYS.get(kind, ["Enter"])]
    if kind == "range":
        sides = (0.95, 0.05)
        box = control.bounding_box()
        height = box["height"] / 2
        spots = [{"x": box["width"] * side, "y": height} for side in sides]
        return [lambda spot=spot: control.click(position=spot) for spot in spots]
    if kind == "select-one":
        values = control.locator("option").evaluate_all("all => all.map(o => o.value)")
        return [lambda value=value: control.select_option(value) for value in values]
    return [control.click]


def test_controls_respond_to_mouse_and_keyboard(both):
    page, elements = both
    for element, lang, how in zip(elements.all(), ("en", "zh"), ("mouse", "keyboard"), strict=True):
        assert operate(page, element, how), f"the explorer ignores the {how}"
        text = element.locator("[aria-live]").first.inner_text()
        assert bool(HAN.search(text)) == (lang == "zh"), text


@pytest.fixture(scope="module")
def narrow_page(with_fonts):
    browser = with_fonts("narrow")
    yield browser.new_page()
    browser.close()


@pytest.mark.parametrize("make", EXPLORERS)
def test_explorer_fits_on_a_phone_screen(narrow_page, make):
    for lang in ("en", "zh"):
        shown(narrow_page, make(lang=lang))
        section = narrow_page.locator("section").bounding_box()
        assert section["height"] <= 667 and section["width"] <= 375


@pytest.mark.parametrize("make", EXPLORERS)
def test_tab_reaches_every_control_and_reset_restores_the_start(page, make):
    shown(page, make(lang="en"), width=800)
    element = page.locator("main > [data]")
    start = element.evaluate("e => e.shadowRoot.querySelector('section').innerHTML")
    expected = element.evaluate(
        """(e) => new Set([...e.shadowRoot.querySelectorAll("button, input, select, [role=button]")]
          .filter((c) => c.tabIndex >= 0)
          .map((c) => c.type === "radio" ? c.name : c)).size"""
    )
    reached = 0
    while element.evaluate("(e, n) => !n || e.shadowRoot.activeElement !== null", reached):
        page.keyboard.press("Tab")
        reached += element.evaluate(
            "e => Boolean(e.shadowRoot.activeElement?.matches('button, input, select, g'))"
        )
        assert reached <= expected
    assert reached == expected
    for control in element.locator("button, input, select").all()[1:3]:
        control.press("ArrowRight")
        control.press("Enter")
    element.get_by_role("button", name="Reset").click()
    page.mouse.move(799, 1)
    assert element.evaluate("e => e.shadowRoot.querySelector('section').innerHTML") == start
