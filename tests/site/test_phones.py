"""The header on phones, whatever their fonts."""

from __future__ import annotations

import os

import pytest
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
