"""Test the pages in a browser with mouse, keyboard and touch, in both languages."""

from __future__ import annotations

import re

import nbformat
import pytest
from book_pages import LANGUAGES, NAMES, ROOT

# ---------------------------------------------------------------- two languages


@pytest.mark.parametrize("lang", LANGUAGES)
def test_home_page_lists_every_chapter_with_its_summary(page, url, lang):
    page.goto(f"{url}/{lang}/index.html")
    items = page.locator("ul.chapters > li")
    assert items.count() == len(NAMES)
    for name, item in zip(NAMES, items.all(), strict=True):
        assert item.locator("a").get_attribute("href") == f"{name}.html"
        assert len(item.locator(".summary").inner_text()) > 4
        notebook = ROOT / f"book/{lang}/{name}.ipynb"
        if notebook.exists():
            cells = nbformat.read(notebook, 4).cells
            title = next(line[2:] for line in cells[0].source.splitlines() if line.startswith("# "))
            assert item.locator("a").inner_text() == title.replace("`", "")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("screen", ["page", "phone"])
def test_home_page_entry_panels_are_above_the_fold(request, url, lang, screen):
    opened = request.getfixturevalue(screen)
    opened.goto(f"{url}/{lang}/index.html")
    doors = opened.locator(".door")
    assert doors.count() == 3
    for door in doors.all():
        box = door.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= opened.viewport_size["height"], box
    links = doors.nth(1).locator("a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    assert len(links) >= 5 and all(link.startswith("symptoms.html") for link in links)
    for path in doors.nth(2).locator("dd").all():
        assert 4 <= path.locator("a").count() <= 6


@pytest.mark.parametrize(("start", "goal"), [("en", "zh"), ("zh", "en")])
def test_language_switch_keeps_page_and_section(page, url, start, goal):
    page.goto(f"{url}/{start}/detach.html")
    sections = page.locator("main section[id]").evaluate_all("all => all.map(s => s.id)")
    chosen = sections[3]
    page.goto(f"{url}/{start}/detach.html#{chosen}")
    page.click("a.language-switch")
    page.wait_for_url(f"{url}/{goal}/detach.html#{chosen}")
    assert page.locator("html").get_attribute("lang") == LANGUAGES[goal]
    # Without an anchor, the switch keeps the section in view.
    page.goto(f"{url}/{start}/detach.html")
    page.evaluate(
        "id => document.getElementById(id).scrollIntoView({behavior: 'instant'})", sections[5]
    )
    page.click("a.language-switch")
    page.wait_for_url(f"{url}/{goal}/detach.html#{sections[5]}")
    top = page.locator(f"[id='{sections[5]}']").bounding_box()["y"]
    assert -5 <= top <= 300


def test_root_redirects_by_browser_language_and_choice(browser, url, site):
    for locale, lang in (("zh-CN", "zh"), ("zh-TW", "zh"), ("fr-FR", "en"), ("en-GB", "en")):
        context = browser.new_context(locale=locale)
        page = context.new_page()
        for address in (url, site.as_uri()):
            page.goto(f"{address}/index.html")
            page.wait_for_url(f"{address}/{lang}/index.html")
        context.close()
    context = browser.new_context(locale="zh-CN")
    page = context.new_page()
    page.goto(f"{url}/index.html")
    page.wait_for_url(f"{url}/zh/index.html")
    page.click("a.language-switch")
    page.wait_for_url(f"{url}/en/index.html")
    page.goto(f"{url}/index.html")
    page.wait_for_url(f"{url}/en/index.html")
    context.close()


def test_the_root_works_without_scripts(browser, url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{url}/index.html")
    page.click("text=阅读中文版")
    page.wait_for_url(f"{url}/zh/index.html")
    context.close()


# ---------------------------------------------------------------- code, themes and menus


def test_only_scrollable_code_is_focusable_by_tab(phone, url):
    """Scroll to each block: the page measures code only in view."""
    phone.goto(f"{url}/en/performance.html")
    scrolls = "e => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight"
    both = {True: 0, False: 0}
    late = "e => getComputedStyle(e).contentVisibility"
    assert phone.locator(".cell_input .highlight").first.evaluate(late) == "auto"
    for block in phone.locator("article pre:visible").all()[:12]:
        block.scroll_into_view_if_needed()
        wide = block.evaluate(scrolls)
        both[wide] += 1
        phone.wait_for_function(
            "([e, wide]) => (e.tabIndex === 0) === wide", arg=[block.element_handle(), wide]
        )
    assert all(both.values()), both
    phone.set_viewport_size({"width": 1280, "height": 720})
    phone.wait_for_function("""() => {
      const block = document.querySelector("article pre[tabindex]");
      block?.scrollIntoView();
      return !block;
    }""")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_solution_unfolds_by_keyboard(page, url, lang):
    page.goto(f"{url}/{lang}/detach.html")
    solution = page.locator(".tag_solution details").first
    code = solution.locator("pre").first
    assert not code.is_visible()
    assert (
        solution.locator("summary").inner_text()
        == {
            "en": "Show a solution",
            "zh": "查看参考答案",
        }[lang]
    )
    solution.locator("summary").focus()
    page.keyboard.press("Enter")
    assert code.is_visible()


def test_theme_follows_the_system_until_a_choice_is_stored(browser, url):
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    theme = "document.documentElement.dataset.theme"
    page.goto(f"{url}/en/index.html")
    assert page.evaluate(theme) == "dark"
    page.click(".theme-switch-button")
    page.wait_for_function(f"{theme} === 'light'")
    page.goto(f"{url}/en/detach.html")
    assert page.evaluate(theme) == "light"
    context.close()


def test_header_menu_opens_and_closes_by_keyboard(page, url):
    page.goto(f"{url}/en/detach.html")
    menu = page.locator("details.menu")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    assert menu.locator("a").first.is_visible()
    page.keyboard.press("Escape")
    assert not menu.locator("a").first.is_visible()


def test_phone_menu_opens_the_chapters(phone, url):
    phone.goto(f"{url}/zh/index.html")
    phone.click(".primary-toggle")
    link = phone.locator("#pst-primary-sidebar-modal a", has_text="detach").first
    link.click()
    phone.wait_for_url("**/zh/detach.html")


def test_sidebar_shows_the_current_page_and_keeps_its_position(page, url):
    in_sight = """() => {
      const bar = document.querySelector(".bd-sidebar-primary"), box = bar.getBoundingClientRect();
      const line = bar.querySelector("li.current").getBoundingClientRect();
      return bar.scrollTop > 0 && line.top >= box.top && line.bottom <= innerHeight;
    }"""
    page.goto(f"{url}/en/glossary.html")
    page.wait_for_function(in_sight)
    page.evaluate("document.querySelector('.bd-sidebar-primary').scrollTop -= 40")
    left = page.evaluate("document.querySelector('.bd-sidebar-primary').scrollTop")
    page.goto(f"{url}/en/then_and_now.html")
    page.wait_for_function(in_sight)
    assert page.evaluate("document.querySelector('.bd-sidebar-primary').scrollTop") == left
    page.goto(f"{url}/en/tensors.html")
    page.wait_for_function(in_sight.replace("bar.scrollTop > 0", "true"))


# ---------------------------------------------------------------- the cheat sheet

# The title and the code of each visible group.
GROUPS = """cells => cells.filter(e => e.offsetParent).map(e =>
  [e.previousElementSibling.textContent, e.querySelector("pre").textContent.trimEnd()])"""


@pytest.mark.parametrize("lang", LANGUAGES)
def test_cheat_sheet_is_filtered_while_typing(page, url, lang):
    page.goto(f"{url}/{lang}/cheat_sheet.html")
    cells = page.locator("#cheat-sheet div.cell")
    everything = cells.evaluate_all(GROUPS)
    field = page.get_by_role("searchbox", name={"en": "Filter", "zh": "筛选"}[lang])
    field.focus()
    page.keyboard.type("picked scores.gather")
    (title, code), *more = cells.evaluate_all(GROUPS)
    assert not more and (title, code) != everything[0]
    assert code.startswith("picked = scores.gather(1, y[:, None])")
    assert all(line.startswith("# ✗") for line in code.splitlines()[1:])  # other lines are hidden
    assert page.locator("#cheat-sheet section:visible").count() == 1
    field.fill("class net(nn")  # a matching statement is shown whole
    ((_, code),) = cells.evaluate_all(GROUPS)
    assert code.startswith("class Net(nn.Module):") and code.endswith("* self.scale")
    field.fill("NAN lOss")  # words of titles and lines, in any order and case
    assert 0 < len(cells.evaluate_all(GROUPS)) < 20
    field.fill("zymurgy")
    assert cells.evaluate_all(GROUPS) == [] and page.locator(".cheat-tools output").inner_text()
    page.keyboard.press("Escape")
    assert cells.evaluate_all(GROUPS) == everything
    page.goto(f"{url}/{lang}/cheat_sheet.html?q=zymurgy")
    assert cells.evaluate_all(GROUPS) == []


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("how", ["keyboard", "touch"])
def test_cheat_sheet_can_be_copied_and_printed(browser, url, lang, how):
    touch = how == "touch"
    screen = {"viewport": {"width": 375, "height": 720}} if touch else {}
    context = browser.new_context(has_touch=touch, is_mobile=touch, **screen)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{url}/{lang}/cheat_sheet.html")
    page.evaluate("() => { window.print = () => { window.printed = true; }; }")
    page.fill("#cheat-filter", "gather(1, y[:, None])")
    copy = page.locator("button.copybtn:visible")
    button = page.get_by_role("button", name={"en": "Print", "zh": "打印"}[lang])
    if touch:
        assert copy.evaluate("e => getComputedStyle(e).opacity") == "1"
        copy.tap()
    else:
        copy.focus()
        page.keyboard.press("Enter")
    page.wait_for_selector("button.copybtn.success")  # shown for less than two seconds
    if touch:
        button.tap()
    else:
        button.focus()
        page.keyboard.press("Enter")
    assert page.evaluate("window.printed")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.rstrip() == page.locator("#cheat-sheet pre:visible").inner_text().rstrip()
    context.close()


@pytest.mark.parametrize("fonts", ["narrow", "wide"])
@pytest.mark.parametrize("lang", LANGUAGES)
def test_cheat_sheet_prints_on_four_pages_in_the_light_theme(with_fonts, url, lang, fonts):
    launched = with_fonts(fonts)
    page = launched.new_context(color_scheme="dark").new_page()
    page.goto(f"{url}/{lang}/cheat_sheet.html")
    ink = """addEventListener("afterprint", () => { window.after = dataset.theme; });
      const dataset = document.documentElement.dataset;
      matchMedia("print").addEventListener("change", (e) => {
        if (e.matches) window.during = dataset.theme;
      });"""
    page.evaluate(ink)
    printed = page.pdf(prefer_css_page_size=True)
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4
    assert page.evaluate("[window.during, window.after]") == ["light", "dark"]
    launched.close()
