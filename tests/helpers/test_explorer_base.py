"""Test the base element of explorers: state, controls, pointer, words, task, themes."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module

import pytest

from helpers import explorers
from helpers.explorers import Explorer

TOY = """
(() => {
  const { BookExplorer } = globalThis;
  const { check, choice, quote, range, select, steps, times } = BookExplorer;
  class ToyExplorer extends BookExplorer {
    static words = { en: { title: "A <b>toy</b>", task: "choose 4", because: "It is even." },
                     zh: { title: "玩具", task: "选 4", because: "它是偶数。" } };
    static views = 0;
    start({ n }) { return { n, at: 0, on: false, kind: "a", one: 1, step: 2 }; }
    view({ n, at, on, kind, one, step }, data, t) {
      ToyExplorer.views++;
      const cell = (i) => `<button data-point="at=${i}" data-part="p${i}" aria-label="cell ${i}">
        ${i}</button>`;
      return {
        drawing: `<div style="display:grid;grid-template-columns:repeat(3,3rem)">${times(7, cell)}
          </div><svg viewBox="0 0 9 9" style="height:2rem">${on ? "" : '<rect data-part="p1"/>'}
          <text data-part="p2" y="9">t</text></svg><i data-part="p1 p2">both</i>`,
        controls: range("n", "number", n, 0, 9) + check("on", "switch", on) +
          choice("kind", "kind", kind, { a: "A", b: "B" }) + select("one", "one", one, ["x", "y"]) +
          steps("step", step, 3, `step ${step}`, t) +
          `<button data-set="n=7&kind=b">both</button><b>${quote(data.text)}</b>` +
          `<button data-set="n=1" aria-disabled="true">off</button>`,
        say: `n ${n}, at <span data-part="p${at}">${at}</span>, ${on} ${kind} ${one} ${step}`,
        done: n === 4,
      };
    }
  }
  BookExplorer.define("toy-explorer", ToyExplorer);
  globalThis.Toy = ToyExplorer;
})();
"""


class Toy(Explorer):
    def __init__(self, lang: str | None = None) -> None:
        super().__init__("copy", {"n": 3, "text": '<i>"&'}, {"en": "A toy.", "zh": "玩具。"}, lang)
        self.name = "toy-explorer"
        self.script = self.script[: self.script.rindex("(() => {")] + TOY


def said(element) -> str:
    return element.locator("[aria-live]").inner_text().split("✓")[0].strip()


def focus(page) -> str:
    return page.evaluate(
        """() => { const e = document.querySelector("toy-explorer").shadowRoot.activeElement;
          return e && (e.ariaLabel || e.textContent.trim() || e.dataset.key); }"""
    )


def lit(page) -> list[str]:
    """Return tag and text of the highlighted elements, in order."""
    return page.evaluate(
        """() => { const root = document.querySelector("toy-explorer").shadowRoot;
          const { cssRules } = root.querySelectorAll("style")[1].sheet;
          return cssRules.length ? [...root.querySelectorAll(cssRules[0].selectorText)]
            .map((e) => e.localName + e.textContent.trim()) : []; }"""
    )


def test_html_contains_no_comments():
    html = Explorer("stride", {}, {"en": "", "zh": ""})._repr_html_()
    assert "how to write one" not in html and "\n  " not in html and "\n//" not in html


def test_controls_set_and_show_the_state(show):
    element = show(Toy()).locator("toy-explorer")
    assert said(element) == "n 3, at 0, false a 1 2"
    element.get_by_role("slider").first.fill("9")
    element.get_by_role("checkbox").check()
    element.get_by_role("radio", name="B").check()
    element.get_by_role("combobox").select_option("0")
    assert said(element) == "n 9, at 0, true b 0 2"
    assert element.get_by_text("number").locator("b").inner_text() == "9"
    element.get_by_role("button", name="both").click()
    element.get_by_role("button", name="off").click(force=True)
    assert said(element) == "n 7, at 0, true b 0 2"
    assert element.locator("b").last.inner_text() == '<i>"&'
    element.get_by_role("button", name="Reset").click()
    assert said(element) == "n 3, at 0, false a 1 2"
    values = element.evaluate(
        """(e) => [...e.shadowRoot.querySelectorAll("[data-key]")].map((c) =>
          /radio|checkbox/.test(c.type) ? c.checked : c.value)"""
    )
    assert values == ["3", False, True, False, "1", "2"]


def test_steps_stop_at_both_ends_and_keep_the_focus(show):
    page = show(Toy())
    element = page.locator("toy-explorer")
    steps = element.get_by_role("button", name="Next")
    for want in (3, 3):
        steps.click(force=True)
        assert said(element).endswith(f" {want}") and focus(page) == "Next"
    assert steps.get_attribute("aria-disabled") == "true"
    back = element.get_by_role("button", name="Back")
    for want in (2, 1, 0, 0):
        back.press("Enter")
        assert said(element).endswith(f" {want}") and focus(page) == "Back"
    slider = element.get_by_role("slider").last
    assert slider.get_attribute("aria-valuetext") == "step 0"


def test_tab_reaches_one_cell_and_arrows_move_from_it(show):
    page = show(Toy(), width=700)
    element = page.locator("toy-explorer")
    page.keyboard.press("Tab")
    assert focus(page) == "Reset"
    page.keyboard.press("Tab")
    assert focus(page) == "cell 0"
    moves = {"ArrowRight": 1, "ArrowDown": 4, "ArrowLeft": 3, "End": 6, "ArrowUp": 3, "Home": 0}
    for key, want in [*moves.items(), ("ArrowUp", 0), ("ArrowLeft", 0), ("End", 6)]:
        page.keyboard.press(key)
        assert focus(page) == f"cell {want}", key
        assert f"at {want}," in said(element)
        current = element.locator("[aria-current=true]")
        assert current.count() == 1 and current.get_attribute("tabindex") == "0"
        assert element.locator("[data-point][tabindex='0']").count() == 1
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
        assert focus(page) == "cell 6"
    page.keyboard.press("a")
    page.keyboard.press("Shift+Tab")
    assert focus(page) == "Reset"


def test_last_cell_is_current_if_the_state_exceeds_the_cells(show):
    page = show(Toy(), width=700)
    element = page.locator("toy-explorer")
    element.evaluate("e => e.set({ at: 9 })")  # as after a choice that leaves fewer cells
    current = element.locator("[aria-current=true]")
    assert current.count() == 1 and current.get_attribute("aria-label") == "cell 6"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert focus(page) == "cell 6"


def test_arrows_at_the_edge_do_not_scroll_the_page(show):
    page = show(Toy(), width=700)
    page.set_viewport_size({"width": 700, "height": 200})
    page.get_by_role("button", name="cell 6").focus()
    top = page.evaluate("scrollY")
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") == top


def test_words_and_drawing_highlight_each_other(show):
    page = show(Toy(), width=700)
    element = page.locator("toy-explorer")
    element.get_by_role("button", name="cell 1").hover()
    assert lit(page) == ["button1", "rect", "iboth", "span1"] and "at 1," in said(element)
    element.locator(".said span[data-part]").hover()
    assert lit(page) == ["button1", "rect", "iboth", "span1"]
    element.locator("i[data-part]").hover()
    assert lit(page) == ["button1", "button2", "rect", "textt", "iboth", "span1"]
    page.mouse.move(650, 5)
    page.mouse.move(690, 750)
    assert lit(page) == []
    element.get_by_role("button", name="cell 2").focus()
    page.mouse.move(300, 30)  # over no part: the focused part stays highlighted
    assert lit(page) == ["button2", "textt", "iboth", "span2"]
    for _ in range(2):
        page.keyboard.press("Tab")
        if focus(page) == "2":
            break
    assert focus(page) == "2" and lit(page) == ["button2", "textt", "iboth", "span2"]
    page.keyboard.press("Tab")
    assert lit(page) == []


def test_highlight_and_focus_survive_a_redraw(show):
    page = show(Toy(), width=700)
    element = page.locator("toy-explorer")
    element.get_by_role("checkbox").focus()
    element.get_by_role("button", name="cell 1").hover()
    page.keyboard.press("Space")
    assert lit(page) == ["button1", "iboth", "span1"]  # its rectangle is gone
    assert element.evaluate("(e) => e.shadowRoot.activeElement.type") == "checkbox"


def test_touch_highlights_like_a_mouse(browser):
    page = browser.new_page(viewport={"width": 375, "height": 667}, has_touch=True)
    page.set_content(f"<!doctype html><html lang=en><main>{Toy()._repr_html_()}</main>")
    page.get_by_role("button", name="cell 5").tap()
    assert "at 5," in said(page.locator("toy-explorer"))
    assert lit(page) == []  # after a tap, unlike with a mouse, no pointer rests on it
    page.get_by_text("both").first.tap()
    assert "iboth" in lit(page) and "textt" in lit(page)  # and stays highlighted
    page.get_by_role("button", name="cell 5").tap()
    assert lit(page) == []
    page.close()


def test_pointer_without_a_change_does_not_redraw(show):
    page = show(Toy(), width=700)
    cell = page.get_by_role("button", name="cell 3")
    cell.hover()
    before = page.evaluate("Toy.views")
    cell.click()
    cell.click()
    assert page.evaluate("Toy.views") == before


def test_task_is_done_only_in_the_right_state_and_shows_the_reason(show):
    page = show(Toy())
    element = page.locator("toy-explorer")
    page.clock.install(time="2026-01-01T00:00:00")
    page.clock.pause_at("2026-01-01T01:00:00")
    task, live = element.locator(".task"), element.locator("[aria-live]")
    assert task.inner_text() == "Task: choose 4" and "Done" not in live.inner_text()
    element.get_by_role("slider").first.fill("4")
    assert task.inner_text() == "✓ Done: choose 4"
    assert "✓ Done: choose 4 It is even." in live.inner_text()
    why = element.locator(".because")
    assert why.inner_text() == "It is even."
    element.get_by_role("slider").first.fill("5")  # 4 was passed, not chosen
    assert task.inner_text() == "Task: choose 4" and "Done" not in live.inner_text()
    assert not why.is_visible()


def test_state_right_for_a_second_keeps_the_task_done_until_reset(show):
    page = show(Toy())
    element = page.locator("toy-explorer")
    task, slider = element.locator(".task"), element.get_by_role("slider").first
    page.clock.install(time="2026-01-01T00:00:00")
    page.clock.pause_at("2026-01-01T01:00:00")
    slider.fill("4")
    page.clock.run_for(900)
    slider.fill("5")
    page.clock.run_for(2000)
    assert task.inner_text() == "Task: choose 4"
    slider.fill("4")
    page.clock.run_for(1100)
    slider.fill("5")
    assert task.inner_text() == "✓ Task: choose 4"
    element.get_by_role("button", name="Reset").click()
    assert task.inner_text() == "Task: choose 4"


def test_number_and_unit_stay_on_one_line(show):
    page = show(Toy())
    page.locator("toy-explorer").evaluate("e => { e.words.title = '<b>7</b> %, 3 MiB, a % b' }")
    page.locator("toy-explorer").get_by_role("slider").first.fill("5")
    name = page.locator("toy-explorer").locator("#name")
    assert name.inner_text() == "7\u00a0%, 3\u00a0MiB, a % b"


@pytest.mark.parametrize(
    ("page_lang", "lang", "want"),
    [("zh-CN", None, "任务：选 4"), ("en", "zh", "任务：选 4"), ("zh", "en", "Task: choose 4")],
)
def test_language_follows_the_argument_or_the_page(show, page_lang, lang, want):
    element = show(Toy(lang), lang=page_lang).locator("toy-explorer")
    assert element.locator(".task").inner_text() == want
    assert element.get_by_role("button", name="重置" if "选" in want else "Reset").count() == 1


LUMINANCE = """(e) => { const of = (colour) => {
    const c = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => { const x = v / 255;
      return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
  const root = e.shadowRoot, style = (s) => getComputedStyle(root.querySelector(s));
  return { paper: of(style("section").backgroundColor),
    texts: ["section", ".task b", "legend"].map((s) => of(style(s).color)) }; }"""


@pytest.mark.parametrize("text", ["#ddd", "#222", "rgba(255, 255, 255, .87)"])
def test_standalone_explorer_is_dark_on_light_text(browser, text):
    page = browser.new_page()
    page.set_content(f"<!doctype html><main style='color:{text}'>{Toy('en')._repr_html_()}</main>")
    seen = page.locator("toy-explorer").evaluate(LUMINANCE)
    assert (seen["paper"] < 0.1) == (text != "#222")
    for one in seen["texts"]:
        high, low = sorted([one, seen["paper"]])[::-1]
        assert (high + 0.05) / (low + 0.05) >= 4.5
    page.close()


def test_site_colours_take_precedence(browser):
    page = browser.new_page()
    page.set_content(
        "<!doctype html><style>html { color-scheme: dark; --pst-color-primary: rgb(1, 2, 3);"
        f" --pst-color-background: rgb(9, 9, 9) }}</style><main>{Toy('en')._repr_html_()}</main>"
    )
    colours = page.locator("toy-explorer").evaluate(
        """(e) => [getComputedStyle(e.shadowRoot.querySelector("section")).backgroundColor,
          getComputedStyle(e.shadowRoot.querySelector(".task b")).color, e.style.colorScheme]"""
    )
    assert colours == ["rgb(9, 9, 9)", "rgb(1, 2, 3)", ""]
    page.close()


@pytest.mark.parametrize("width", [320, 375])
def test_frame_fits_a_phone_and_controls_are_44_pixels_high(show, width):
    page = show(Toy(), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for control in page.locator("toy-explorer .controls :is(button, select, .check, label)").all():
        assert control.bounding_box()["height"] >= 44


def test_moved_element_is_built_once(show):
    page = show(Toy())
    page.get_by_role("slider").first.fill("6")
    page.evaluate("document.querySelector('main').append(document.querySelector('toy-explorer'))")
    assert said(page.locator("toy-explorer")).startswith("n 6")


def test_pairs_parses_numbers_and_text(show):
    found = show(Toy()).evaluate("BookExplorer.pairs('n=3&m=a%20b&k=-1.5&e=&z=0')")
    assert found == [["n", 3], ["m", "a b"], ["k", -1.5], ["e", ""], ["z", 0]]


@pytest.mark.parametrize(
    ("page_lang", "lang", "text"),
    [
        ("en", None, "A toy."),
        ("zh-CN", None, "玩具。"),
        ("en", "zh", "玩具。"),
        ("zh", "en", "A toy."),
    ],
)
def test_fallback_without_scripts_follows_the_page_language(browser, page_lang, lang, text):
    page = browser.new_page(java_script_enabled=False)
    page.set_content(f"<!doctype html><html lang={page_lang}><main>{Toy(lang)._repr_html_()}")
    assert page.locator("toy-explorer").inner_text() == text
    page.close()


@pytest.mark.parametrize("fallback", [{"en": "A toy."}, {}, {"en": "", "zh": "", "fr": ""}])
def test_fallback_requires_both_languages(fallback):
    with pytest.raises(ValueError, match="fallback must have 'en' and 'zh', got"):
        Explorer("stride", {}, fallback)


NAMES = {m.name for m in pkgutil.iter_modules(explorers.__path__)} - {"allocator"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_fallbacks_have_the_same_numbers_and_code_in_both_languages(name):
    module = import_module(f"helpers.explorers.{name}")
    fallback = getattr(module, f"{name}_explorer")().fallback
    code = {lang: re.findall(r"[\d._]*\d|\w+_\w+", text, re.A) for lang, text in fallback.items()}
    assert set(code["en"]) == set(code["zh"])
    assert re.search("[\u4e00-\u9fff]", fallback["zh"]) and fallback["zh"].endswith("。")
