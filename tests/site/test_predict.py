"""Test questions on pages: keyboard, touch, right and wrong answers, storage."""

from __future__ import annotations

import json
from functools import cache

import pytest
from book_pages import ROOT

from bookbuild.source.checkout import Book
from bookbuild.source.texts import load
from bookbuild.source.words import table

BOOK = Book(ROOT)


@cache
def asked(name):
    """Return the questions of a chapter."""
    return [cell for cell in load(BOOK, name).cells if cell.predict]


STORED = "name => JSON.parse(localStorage.getItem(`predict:${name}`))"
# `HIDDEN`: the cells of `ids` with a hidden part; `WHOLLY`: those with all parts hidden.
PARTS = """const parts = id => {
  const cell = document.getElementById(id), next = cell?.nextElementSibling;
  return [cell?.querySelector('.cell_output'), next?.matches('.why') ? next : null].filter(Boolean);
};"""
HIDDEN = f"ids => {{ {PARTS} return ids.filter(id => parts(id).some(part => part.hidden)) }}"
WHOLLY = f"""ids => {{ {PARTS} return ids.filter(
  id => parts(id).length && parts(id).every(part => part.getAttribute('hidden') === 'until-found'))
}}"""
LEAKS = """ids => ids.filter(id => document.getElementById(id).nextElementSibling?.matches(
  'p, ul, ol, blockquote, table, div.math, .pst-scrollable-table-container, .highlight-python'))"""
# Remove all other content: otherwise each unfolding lays out the whole chapter again.
ALONE = """ids => {
  const kept = [".predict", ".why", ...ids.map(id => "#" + CSS.escape(id))].join(", ");
  for (const part of document.querySelectorAll("article section > :not(section)"))
    if (!part.matches(kept) && !part.querySelector(kept)) part.remove();
}"""
FLOWING = """() => [...document.querySelectorAll('.predict summary')]
    .every(choice => getComputedStyle(choice).display === 'block')"""  # not in columns


@pytest.fixture
def fresh(browser):
    """Yield a function that opens a page in a new context; it takes the options of the context."""
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


# Click the first choice of each kind in `kinds`, in this order, for every question.
ANSWER = """kinds => [...document.querySelectorAll(".predict")].map(card => kinds.map(kind => {
  const choice = card.querySelector(`details.${kind}`);
  choice.querySelector("summary").click();
  const told = choice.querySelector("p");
  return told.checkVisibility() && told.innerText.includes("✓") === (kind === "yes");
}))"""


def test_every_question_accepts_wrong_and_right_answers(fresh, url):
    """Choose wrong first in every other chapter, and right first in the rest; change the language
    after every two chapters."""
    page = fresh("about:blank", viewport={"width": 375, "height": 667})
    for number, name in enumerate(filter(asked, BOOK.chapters)):
        lang = ("en", "zh")[number // 2 % 2]
        page.goto(f"{url}/{lang}/{name}.html")
        ids = page.locator(".predict").evaluate_all("all => all.map(card => card.dataset.cell)")
        assert ids == [cell.id for cell in asked(name)]
        assert page.evaluate(FLOWING)
        telling = page.evaluate(
            f"ids => {{ {PARTS} return ids.filter(id => parts(id).length) }}", ids
        )
        assert page.evaluate(WHOLLY, ids) == page.evaluate(HIDDEN, ids) == telling
        assert page.evaluate(LEAKS, ids) == [], "an explanation is not hidden"
        page.evaluate(ALONE, ids)
        kinds = ["yes", "no"] if number % 2 else ["no", "yes"]
        assert page.evaluate(ANSWER, kinds) == [[True, True]] * len(ids)
        answered(page, name, ids, number % 2)
    assert page.errors == []


@pytest.mark.parametrize("touch", [False, True])
def test_questions_can_be_answered_by_keyboard_and_touch(fresh, url, touch):
    page = fresh(f"{url}/zh/detach.html", has_touch=touch, viewport={"width": 375, "height": 667})
    cards, ids = page.locator(".predict"), [cell.id for cell in asked("detach")]
    page.evaluate(ALONE, ids)
    for card in cards.all():
        for kind in ("no", "yes"):
            choice = card.locator(f"details.{kind} > summary").first
            if touch:
                choice.tap()
            else:
                choice.focus()
                page.keyboard.press("Enter")
            card.locator(f"details.{kind} > p").first.wait_for(state="visible")
    answered(page, "detach", ids, 0)
    page.reload()
    chosen = page.locator(".predict details:has(.mine)")
    kinds = chosen.evaluate_all("all => all.map(e => [e.className, e.open])")
    assert kinds == [["no", True]] * len(ids)
    assert page.evaluate(HIDDEN, ids) == []
    assert page.errors == []


def answered(page, name, ids, first):
    """Wait until all questions of a chapter are answered as `first` (1: right) and nothing is
    hidden; the browser reports an unfolding a little later."""
    page.wait_for_function(
        f"([name, n]) => Object.keys(({STORED})(name)?.picks ?? {{}}).length === n",
        arg=[name, len(ids)],
    )
    assert page.evaluate(HIDDEN, ids) == []
    kept = page.evaluate(STORED, name)
    assert kept["picks"] == dict.fromkeys(ids, first) and kept["all"] == len(ids)


def test_answers_are_stored_listed_and_reset(fresh, url):
    page = fresh(f"{url}/en/backward.html", viewport={"width": 1280, "height": 800})
    ids = [cell.id for cell in asked("backward")]
    first, second = page.locator(".predict").nth(0), page.locator(".predict").nth(1)
    first.locator("details.yes > summary").click()
    second.locator("details.no > summary").first.click()
    second.locator("details.yes > summary").click()  # the first answer counts
    expected = f"1 of {len(ids)}"
    here = page.locator("nav.bd-links li.current .score")
    assert here.inner_text() == expected
    page.goto(f"{url}/en/detach.html")
    chapter = page.locator("nav.bd-links a[href='backward.html'] .score")
    assert chapter.inner_text() == expected
    page.goto(f"{url}/en/index.html")
    assert expected in page.locator("ul.chapters a[href^='backward.html']").first.inner_text()
    page.goto(f"{url}/zh/backward.html")  # the same questions in the other language
    assert page.locator("nav.bd-links li.current .score").inner_text() == f"1 / {len(ids)}"
    assert page.evaluate(HIDDEN, ids[:2]) == []
    assert first.locator("details[open] .mine").count() == 1
    assert second.locator("details.no[open] .mine").inner_text() == "你的选择"
    again = first.get_by_role("button")
    again.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(STORED, "backward")["picks"] == {ids[1]: 0}
    assert page.evaluate(HIDDEN, ids[:1]) == ids[:1]


def test_stored_answers_of_removed_questions_are_deleted(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    ids = [cell.id for cell in asked("backward")]
    stored = {
        "picks": {ids[0]: 1, "backward-of-old": 1},
        "chose": {"backward-of-old": 0},
        "all": 99,
    }
    page.evaluate("kept => localStorage.setItem('predict:backward', kept)", json.dumps(stored))
    page.reload()
    known = {"picks": {ids[0]: 1}, "chose": {}, "all": len(ids)}
    assert page.evaluate(STORED, "backward") == known
    assert page.locator(".mine").count() == 0 and page.errors == []


def test_revealing_code_is_hidden_until_shown(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    ids = [cell.id for cell in asked("backward")]
    asserts = page.locator(f"#{ids[0]}.veiled .hll")
    assert asserts.count() and all(t.startswith("assert") for t in asserts.all_text_contents())
    page.locator(f"#{ids[0]} button.veil").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(HIDDEN, ids[:1]) == [] and not asserts.count()
    assert page.evaluate(STORED, "backward") is None
    assert page.evaluate(HIDDEN, ids[1:2]) == ids[1:2]


def test_anchor_link_reveals_only_its_target(fresh, url):
    ids = [cell.id for cell in asked("backward")]
    telling = fresh(f"{url}/en/backward.html").evaluate(WHOLLY, ids)
    page = fresh(f"{url}/en/backward.html#{ids[1]}")
    assert page.evaluate(HIDDEN, ids) == [id for id in telling if id != ids[1]]
    top = page.locator(f"[id='{ids[1]}']").evaluate("e => e.getBoundingClientRect().top")
    assert 0 <= top < 200, "hidden parts moved the target out of view"


def test_anchor_link_into_an_explanation_reveals_it(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    name = page.evaluate(
        "() => { const e = document.querySelector('.why > *'); return e.id = 'in' }"
    )
    assert page.locator(".why").first.get_attribute("hidden") == "until-found"
    page.evaluate("name => { location.hash = name }", name)
    page.wait_for_function("!document.querySelector('.why').hidden")
    assert page.locator(".predict").first.evaluate("e => e.querySelectorAll('[open]').length") == 0


def test_section_link_from_another_page_reveals_its_answers(fresh, url):
    """Reveal them from another page or the search, not from the contents or the other language."""
    ids = [cell.id for cell in asked("backward")]
    page = fresh(f"{url}/en/backward.html")
    telling = page.evaluate(WHOLLY, ids)
    section = page.evaluate("id => document.getElementById(id).closest('section').id", ids[0])
    inside = page.evaluate(
        "([id, ids]) => ids.filter(one => document.getElementById(id).querySelector('#' + one))",
        [section, ids],
    )
    page.locator(f"nav.page-toc a[href='#{section}']").first.click()
    page.wait_for_function("location.hash")
    assert page.evaluate(HIDDEN, ids) == telling
    page.locator("a.language-switch").click()
    page.wait_for_url("**/zh/**")
    assert page.evaluate(HIDDEN, ids) == telling
    page.goto(f"{url}/en/index.html")
    page.evaluate("to => { location.href = to }", f"{url}/en/backward.html#{section}")
    page.wait_for_url("**/backward.html#*")
    assert page.evaluate(HIDDEN, ids) == [id for id in telling if id not in inside]


def test_hidden_text_found_by_the_browser_is_revealed(fresh, url):
    """Dispatch the event of a match in Ctrl+F, which a test cannot press."""
    page = fresh(f"{url}/en/backward.html")
    ids = [cell.id for cell in asked("backward")]
    shown = "e => getComputedStyle(e).display !== 'none' && e.hidden === 'until-found'"
    assert page.locator(".why").first.evaluate(shown), "the browser cannot search it"
    page.locator(".why").first.dispatch_event("beforematch")
    assert page.evaluate(HIDDEN, ids) != page.evaluate(f"ids => ({WHOLLY})(ids).concat('x')", ids)
    assert not page.locator(".why").first.evaluate("e => e.hidden")


def test_chapter_tally_counts_answers_and_offers_a_retry(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    cards, ids = page.locator(".predict"), [cell.id for cell in asked("backward")]
    message, retry = page.locator(".tally [role=status]"), page.locator(".tally button")
    count = len(ids)
    assert f"at the first attempt: 0 of {count}. Not answered yet: {count}." in message.inner_text()
    assert not retry.is_visible()
    for number, card in enumerate(cards.all()):
        card.locator(f"details.{'no' if number < 2 else 'yes'} > summary").first.click()
    page.wait_for_function("!document.querySelector('.tally p').textContent.includes('Not')")
    assert f"at the first attempt: {len(ids) - 2} of {len(ids)}." in message.inner_text()
    assert "(2)" in retry.inner_text()
    retry.click()
    assert sorted(page.evaluate(STORED, "backward")["picks"]) == sorted(ids[2:])
    assert page.evaluate(HIDDEN, ids) == page.evaluate(WHOLLY, ids[:2])
    focused = page.evaluate("document.activeElement.closest('.predict').dataset.cell")
    assert focused == ids[0] and cards.first.locator("[open], .mine").count() == 0
    assert not retry.is_visible() and page.errors == []


def test_reveal_button_sets_aria_expanded(fresh, url):
    page = fresh(f"{url}/zh/backward.html")
    veil = page.locator("button.veil").first
    assert veil.get_attribute("aria-expanded") == "false"
    assert veil.inner_text() == table()["script_questions"]["show"]["zh"]
    assert page.locator(".tally [role=status]").count() == 1


def test_page_without_scripts_hides_nothing_and_unfolds_choices(fresh, url):
    page = fresh(f"{url}/en/backward.html", java_script_enabled=False)
    cell = asked("backward")[1].id
    assert page.locator(f"#{cell} .cell_output").is_visible()
    assert page.locator(".why").count() and page.locator(".why").first.is_visible()
    assert page.locator("[hidden=until-found]").count() == 0
    choice = page.locator(f".predict[data-cell='{cell}'] details").first
    choice.locator("summary").click()
    assert choice.locator("p").is_visible()


def test_print_separates_questions_from_the_answer_key(fresh, url):
    page = fresh(f"{url}/en/backward.html")
    ids = [cell.id for cell in asked("backward")]
    before = page.locator("article").inner_html()
    page.locator(".predict details.no > summary").first.click()  # an answer is not printed either
    page.wait_for_function("document.querySelector('.mine')")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert not page.locator(".predict details > p").first.is_visible()
    assert not page.locator(":is(button.veil, .mine, .tally)").first.is_visible()
    sections = page.locator("article > section > section")
    assert sections.last.get_attribute("class") == "key"
    key = sections.last
    assert key.locator("h2").inner_text() == "Answers"
    numbers = key.locator("p > strong:first-child").all_inner_texts()
    assert [n.partition(".")[0] for n in numbers] == [str(i + 1) for i in range(len(ids))]
    for part in (".cell_output", ".why"):
        assert key.locator(part).count() > 1
    assert page.evaluate(HIDDEN, ids) == []
    assert not page.locator(f"[id='{ids[0]}'] .hll").first.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    page.locator(".predict").first.get_by_role("button").click()
    page.wait_for_function("!document.querySelector('.predict [open]')")
    page.evaluate("document.querySelectorAll('[data-x]').forEach(e => e.remove())")
    assert page.locator("article").inner_html() == before
    assert page.errors == []


def test_dark_theme_keeps_output_backgrounds_transparent(fresh, url):
    page = fresh(f"{url}/en/views_and_copies.html#x", color_scheme="dark")
    grounds = "all => all.map(e => getComputedStyle(e).backgroundColor)"
    shown = page.locator(".cell_output .output.text_html").evaluate_all(grounds)
    assert shown and set(shown) == {"rgba(0, 0, 0, 0)"}
