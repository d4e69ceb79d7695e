"""On phones: the header fits whatever the fonts, and a finger hits what it aims at."""

from __future__ import annotations

import os

import pytest
from axe_playwright_python.sync_playwright import Axe
from book_pages import LANGUAGES, LETTERS, PHONES

# What of the header is not on the screen, or lies under something else.
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
def test_the_header_fits_phones_whatever_the_fonts_and_the_repository(
    request, with_fonts, fonts, where
):
    """All of it can be seen and pressed, and what its menu holds."""
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


def test_what_is_touched_is_24_px_high_or_stands_apart(with_fonts, url):
    """WCAG 2.5.8, on a page of each kind; axe leaves it out if it is not asked."""
    launched, wrong = with_fonts("wide", "--enable-begin-frame-control"), {}
    screen = {"viewport": {"width": 412, "height": 823}, "has_touch": True, "is_mobile": True}
    opened = launched.new_context(**screen).new_page()
    for address in (f"{lang}/{name}.html" for lang in LANGUAGES for name in TOUCHED[lang]):
        opened.goto(f"{url}/{address}")
        opened.evaluate(Axe().axe_script)
        options = {"runOnly": ["target-size"], "resultTypes": ["violations"], "preload": False}
        found = opened.evaluate("o => axe.run(o).then(r => r.violations)", options)
        if found:
            wrong[address] = [node["html"][:120] for node in found[0]["nodes"]]
    launched.close()
    assert not wrong


def test_the_narrow_and_the_wide_fonts_differ(with_fonts):
    """Else the tests above would prove less than they say."""
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
