"""Test phones: the header fits with any font, and touch targets are large enough."""

from __future__ import annotations

import os

import pytest
from axe_playwright_python.sync_playwright import Axe
from book_pages import LANGUAGES, LETTERS, PHONES

# Controls of the header that are off screen, too small or covered.
HIDDEN = """() => {
  const hidden = (e) => {
    const box = e.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    return box.left < 0 || box.right > innerWidth || box.width < 24 || box.height < 24
      || !e.contains(document.elementFromPoint(x, y));
  };
  const controls = document.querySelectorAll(
    ".bd-header-article :is(.btn, .language-switch), details.menu[open] :is(li > *)");
  return [...controls].filter(hidden).map((e) => e.outerHTML.slice(0, 120));
}"""
CONTROLS = ".primary-toggle, .language-switch, .theme-switch-button, .search-button"


@pytest.mark.parametrize("where", ["url", "repository_url"])
@pytest.mark.parametrize("fonts", ["narrow", "wide"])
def test_header_fits_phones_for_all_fonts_and_repositories(request, with_fonts, fonts, where):
    """Check that no control or menu item is off screen, covered or too small."""
    address, launched, wrong = request.getfixturevalue(where), with_fonts(fonts), {}
    opened = launched.new_page(viewport={"width": PHONES[0], "height": 720})
    for lang in LANGUAGES:
        opened.goto(f"{address}/{lang}/detach.html")
        menu = opened.locator("details.menu")
        assert menu.locator("ul").count() == 3 or where == "url"
        assert opened.locator(f".bd-header-article :is({CONTROLS}, .secondary-toggle)").count() == 5
        for letters in ("as installed", "spaced"):
            opened.add_style_tag(content=LETTERS[letters] or "/* none */")
            for phone in PHONES:
                opened.set_viewport_size({"width": phone, "height": 720})
                menu.locator("summary").click()
                hidden = opened.evaluate(HIDDEN)
                width = opened.evaluate("document.documentElement.scrollWidth")
                if hidden or width > phone:
                    wrong[lang, letters, phone] = width, hidden
                menu.locator("summary").click()
    launched.close()
    assert not wrong


TOUCHED = {
    "en": ("by_name", "detach", "errors", "errors_data", "index", "pitfalls"),
    "zh": ("by_name", "cheat_sheet", "errors", "errors_tensors", "symptoms"),
}


# Shorten long lists, because axe compares each target with all others.
SHORTEN = """() => {
  for (const list of document.querySelectorAll("article :is(ul, ol, dl, tbody, p)"))
    for (const item of [...list.children].slice(10)) item.remove();
}"""


def test_touch_targets_meet_wcag_2_5_8(with_fonts, url):
    """Run the axe rule `target-size`, which is off by default, on a page of each kind."""
    launched, wrong = with_fonts("wide", "--enable-begin-frame-control"), {}
    screen = {"viewport": {"width": 412, "height": 823}, "has_touch": True, "is_mobile": True}
    opened = launched.new_context(**screen).new_page()
    for address in (f"{lang}/{name}.html" for lang in LANGUAGES for name in TOUCHED[lang]):
        opened.goto(f"{url}/{address}")
        opened.evaluate(SHORTEN)
        opened.evaluate(Axe().axe_script)
        options = {"runOnly": ["target-size"], "resultTypes": ["violations"], "preload": False}
        found = opened.evaluate("o => axe.run(o).then(r => r.violations)", options)
        if found:
            wrong[address] = [node["html"][:120] for node in found[0]["nodes"]]
    launched.close()
    assert not wrong


def test_narrow_and_wide_fonts_have_different_widths(with_fonts):
    """Check that the two sets of fonts differ: the tests above depend on it."""
    lengths = []
    for fonts in ("narrow", "wide"):
        launched = with_fonts(fonts)
        opened = launched.new_page()
        opened.set_content("<span style='font: 20px sans-serif'>Executable PyTorch Notes</span>")
        lengths.append(opened.locator("span").bounding_box()["width"])
        launched.close()
    if lengths[1] < 1.05 * lengths[0] and os.environ.get("REQUIRE_BROWSER") != "1":
        pytest.skip("the fonts of tests/site/fonts are not installed")
    assert lengths[1] >= 1.05 * lengths[0]


# The left edges of each wrapped row: of its first line and of the others.
ROWS = """pre => [...pre.querySelectorAll(".line")].map(row => {
  const range = document.createRange();
  range.selectNodeContents(row);
  const lefts = new Map();
  for (const { top, left, width } of range.getClientRects())
    if (width > 1) lefts.set(Math.round(top), Math.min(left, lefts.get(Math.round(top)) ?? 9999));
  return [row.textContent.search(/\\S/), ...[...lefts].sort(([a], [b]) => a - b).map(([, x]) => x)];
}).filter(row => row.length > 2)"""


@pytest.mark.parametrize("lang", LANGUAGES)
def test_code_wraps_on_demand_and_the_choice_is_stored(browser, url, lang):
    context = browser.new_context(viewport={"width": 375, "height": 720}, has_touch=True)
    page = context.new_page()
    page.goto(f"{url}/{lang}/performance.html")
    block = page.locator(".cell_input pre").first
    block.scroll_into_view_if_needed()
    button = page.locator(".cell_input .highlight button.wrap").first
    button.wait_for()
    wide = "pre => pre.scrollWidth > pre.clientWidth"
    text, plain = block.text_content(), block.evaluate("pre => pre.offsetHeight")
    assert block.evaluate(wide) and button.get_attribute("aria-pressed") == "false"
    box = button.bounding_box()
    assert box["width"] >= 24 and box["height"] >= 24
    button.tap()
    assert button.get_attribute("aria-pressed") == "true"
    assert not block.evaluate(wide) and block.evaluate("pre => pre.offsetHeight") > plain
    assert block.text_content() == text  # the copied text does not change
    for indent, first, *others in block.evaluate(ROWS):
        assert indent == 0 and all(left > first + 8 for left in others)  # a hanging indent
    assert block.evaluate(ROWS)
    page.goto(f"{url}/{lang}/detach.html")
    for other in page.locator(".cell_input pre:visible").all()[:6]:
        assert not other.evaluate(wide)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    other = page.locator("button.wrap").first
    other.scroll_into_view_if_needed()
    other.tap()
    page.goto(f"{url}/{lang}/performance.html")
    assert block.evaluate(wide)
    context.close()


def test_wide_screen_has_no_code_wrapping(page, url):
    page.goto(f"{url}/en/performance.html")
    page.evaluate("localStorage.setItem('wrap', '1')")
    page.reload()
    block = page.locator(".cell_input pre").first
    assert block.evaluate("pre => getComputedStyle(pre).whiteSpace") == "pre"
    assert page.locator("button.wrap:visible").count() == 0
    page.evaluate("localStorage.removeItem('wrap')")


def test_traceback_rule_fits_a_phone(phone, url):
    phone.goto(f"{url}/en/detach.html")
    rules = phone.locator(".traceback .gu")
    assert rules.count() > 2
    for rule in rules.all():
        assert set(rule.text_content()) == {"-"}
        high = rule.evaluate("e => e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight)")
        assert high < 1.5  # one line
        assert rule.evaluate("e => e.getBoundingClientRect().right <= innerWidth")


@pytest.mark.parametrize("name", ["zh/review", "zh/attention"])
def test_lines_do_not_break_after_an_option_hyphen_or_minus_sign(phone, url, name):
    phone.goto(f"{url}/{name}.html")
    for width in (320, 340, 360, 390):
        phone.set_viewport_size({"width": width, "height": 720})
        lines = phone.locator("code.signed").evaluate_all(
            "all => all.map(e => e.getClientRects().length)"
        )
        assert len(lines) > 3 and set(lines) <= {0, 1}, width
