"""Questions on the pages: answered by keyboard and touch, wrong and right, and remembered."""

from __future__ import annotations

import json

import pytest
from book_pages import LANGUAGES, ROOT

from bookbuild.source.checkout import Book
from bookbuild.source.texts import load

BOOK = Book(ROOT)
ASKED = {name: [cell for cell in load(BOOK, name).cells if cell.predict] for name in BOOK.chapters}
CHAPTERS = [name for name, cells in ASKED.items() if cells]
STORED = "name => JSON.parse(localStorage.getItem(`predict:${name}`))"
HIDDEN = (
    "ids => ids.filter(id => document.getElementById(id)?.querySelector('.cell_output')?.hidden)"
)
# What is not asked about goes: each unfolding would lay out the whole chapter anew.
ALONE = """ids => {
  const kept = [".predict", ...ids.map(id => "#" + CSS.escape(id))].join(", ");
  for (const part of document.querySelectorAll("article section > :not(section)"))
    if (!part.matches(kept) && !part.querySelector(kept)) part.remove();
}"""
FLOWING = """() => [...document.querySelectorAll('.predict summary')]
    .every(choice => getComputedStyle(choice).display === 'block')"""  # not in columns


@pytest.fixture
def fresh(browser):
    """Opens a page in a browser that remembers nothing; takes what Playwright's contexts take."""
    contexts = []

    def open_(address, **kind):
        contexts.append(browser.new_context(**kind))
        page = contexts[-1].new_page()
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_question_is_answered_wrong_and_right(fresh, url, lang):
    """Wrong first in one chapter and right first in the next, by keys here and by touch there."""
    touch = lang == "zh"
    page = fresh("about:blank", has_touch=touch, viewport={"width": 375, "height": 667})
    for number, name in enumerate(CHAPTERS):
        page.goto(f"{url}/{lang}/{name}.html")
        cards = page.locator(".predict")
        ids = cards.evaluate_all("cards => cards.map(card => card.dataset.cell)")
        assert ids == [cell.id for cell in ASKED[name]]
        assert page.evaluate(FLOWING)
        printing = page.evaluate(
            "ids => ids.filter(id => document.getElementById(id).querySelector('.cell_output'))",
            ids,
        )
        assert page.evaluate(HIDDEN, ids) == printing
        page.evaluate(ALONE, ids)
        for card in cards.all():
            first, second = ("yes", "no") if number % 2 else ("no", "yes")
            for kind in (first, second):
                choice = card.locator(f"details.{kind} > summary").first
                if touch:
                    choice.tap()
                else:
                    choice.focus()
                    page.keyboard.press("Enter")
                told = card.locator(f"details.{kind} > p").first
                told.wait_for(state="visible")
                assert ("✓" in told.inner_text()) is (kind == "yes")
        page.wait_for_function(  # the browser tells of an unfolding a little later
            f"([name, n]) => Object.keys(({STORED})(name)?.picks ?? {{}}).length === n",
            arg=[name, len(ids)],
        )
        assert page.evaluate(HIDDEN, ids) == []
        kept = page.evaluate(STORED, name)
        assert kept == {"picks": dict.fromkeys(ids, number % 2), "all": len(ids)}
    assert page.errors == []


def test_answers_are_remembered_shown_in_the_lists_and_forgotten(fresh, url):
    page = fresh(f"{url}/en/backward.html", viewport={"width": 1280, "height": 800})
    ids = [cell.id for cell in ASKED["backward"]]
    first, second = page.locator(".predict").nth(0), page.locator(".predict").nth(1)
    first.locator("details.yes > summary").click()
    second.locator("details.no > summary").first.click()
    second.locator("details.yes > summary").click()  # the first answer counts
    wanted = f"1 of {len(ids)}"
    here = page.locator("nav.bd-links li.current .score")
    assert here.inner_text() == wanted
    page.goto(f"{url}/en/detach.html")
    chapter = page.locator("nav.bd-links a[href='backward.html'] .score")
    assert chapter.inner_text() == wanted
    page.goto(f"{url}/en/index.html")
    assert wanted in page.locator("ul.chapters a[href^='backward.html']").first.inner_text()
    page.goto(f"{url}/zh/backward.html")  # the same questions in the other language
    assert page.locator("nav.bd-links li.current .score").inner_text() == f"1 / {len(ids)}"
    assert page.evaluate(HIDDEN, ids[:2]) == []
    again = page.locator(".predict").nth(0).get_by_role("button")
    again.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(STORED, "backward")["picks"] == {ids[1]: 0}
    assert page.evaluate(HIDDEN, ids[:1]) == ids[:1]


def test_a_question_that_is_gone_is_forgotten(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    ids = [cell.id for cell in ASKED["backward"]]
    stored = {"picks": {ids[0]: 1, "backward-of-old": 1}, "all": 99}
    page.evaluate("kept => localStorage.setItem('predict:backward', kept)", json.dumps(stored))
    page.reload()
    assert page.evaluate(STORED, "backward") == {"picks": {ids[0]: 1}, "all": len(ids)}


def test_what_would_give_the_answer_away_is_veiled_and_can_be_shown(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    ids = [cell.id for cell in ASKED["backward"]]
    asserts = page.locator(f"#{ids[0]}.veiled .hll")
    assert asserts.count() and all(t.startswith("assert") for t in asserts.all_text_contents())
    page.locator(f"#{ids[0]} button.veil").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(HIDDEN, ids[:1]) == [] and not asserts.count()
    assert page.evaluate(STORED, "backward") is None
    assert page.evaluate(HIDDEN, ids[1:2]) == ids[1:2]


def test_who_follows_a_link_to_a_place_is_not_asked_first(fresh, url):
    ids = [cell.id for cell in ASKED["backward"]]
    page = fresh(f"{url}/en/backward.html#{ids[1]}")
    assert page.evaluate(HIDDEN, ids) == []


def test_without_scripts_nothing_is_hidden_and_the_choices_unfold(fresh, url):
    page = fresh(f"{url}/en/backward.html", java_script_enabled=False)
    cell = ASKED["backward"][1].id
    assert page.locator(f"#{cell} .cell_output").is_visible()
    choice = page.locator(f".predict[data-cell='{cell}'] details").first
    choice.locator("summary").click()
    assert choice.locator("p").is_visible()


def test_paper_shows_every_output(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    page.emulate_media(media="print")
    cell = ASKED["backward"][1].id
    assert page.locator(f"#{cell} .cell_output").is_visible()
    assert not page.locator("button.veil").first.is_visible()


def test_the_dark_theme_puts_no_light_ground_under_what_a_cell_shows(fresh, url):
    page = fresh(f"{url}/en/views_and_copies.html#x", color_scheme="dark")
    grounds = "all => all.map(e => getComputedStyle(e).backgroundColor)"
    shown = page.locator(".cell_output .output.text_html").evaluate_all(grounds)
    assert shown and set(shown) == {"rgba(0, 0, 0, 0)"}
