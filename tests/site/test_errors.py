"""The page of errors: what is pasted there, and the addresses that lead to it."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from book_pages import LANGUAGES, ROOT

ENTRIES = json.loads((ROOT / "src/helpers/messages.json").read_text("utf8"))
SHAPES = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 10x5)"
GROUND = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
# what stands on top after each text: ids, and what is said about them
PASTE = """texts => texts.map(text => {
  const field = document.getElementById("error-search");
  field.value = text;
  field.dispatchEvent(new Event("input"));
  return [[...document.querySelectorAll("#error-found > li[data-id]")].map(e => e.dataset.id),
          document.getElementById("error-count").textContent];
})"""


def filled(entry):
    """An entry's wording with something in its variable parts."""
    return re.sub(r"\{\w+\}", "7", entry["says"][0])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_entry_stands_there_and_finds_itself(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    ids = page.locator("#error-list li[data-says]").evaluate_all("all => all.map(e => e.id)")
    assert sorted(ids) == sorted(entry["id"] for entry in ENTRIES)
    pasted = [f'Traceback (most recent call last):\n  File "a"\n{filled(e)}' for e in ENTRIES]
    lost = []
    for entry, (found, told) in zip(ENTRIES, page.evaluate(PASTE, pasted), strict=True):
        own = {entry["id"], *(case["id"] for case in entry.get("cases", ()))}
        if not own & set(found) or not told:
            lost.append(entry["id"])
    assert not lost


@pytest.mark.parametrize("lang", LANGUAGES)
def test_values_are_filled_in_and_the_whole_list_comes_back(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    field, found = page.locator("#error-search"), page.locator("#error-found > li").first
    field.fill(SHAPES)
    assert (
        "10" in found.locator(".cause").first.inner_text()
        and found.locator(".cure").first.is_visible()
    )
    assert not found.locator(".cause var").count()
    assert not page.locator("#error-list").is_visible()
    assert found.locator("p > a[href*='convolution.html#']").count()
    field.fill("zymurgy")
    assert page.locator("#error-count").inner_text().strip()
    assert not page.locator("#error-found > li").count()
    field.fill("")
    assert page.locator("#error-list").is_visible()
    assert page.locator("#error-count").inner_text() == ""


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_is_only_near_is_called_related(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    page.fill("#error-search", "something about the backward graph a second call")
    told = page.locator("#error-count").inner_text()
    assert told == page.locator("#error-count").get_attribute("data-related")


@pytest.mark.parametrize("screen", ["page", "phone"])
def test_a_message_in_the_address_is_answered_above_the_fold(request, url, screen):
    opened = request.getfixturevalue(screen)
    opened.goto(f"{url}/en/errors.html?q={quote(GROUND)}")
    answer = opened.locator("#error-found > li").first
    assert answer.get_attribute("data-id") == "no-grad-fn"
    assert opened.input_value("#error-search") == GROUND
    assert answer.bounding_box()["y"] < opened.viewport_size["height"]


def test_each_entry_and_each_case_has_its_address(page, url):
    case = next(c["id"] for e in ENTRIES for c in e.get("cases", ()))
    for name in (ENTRIES[-1]["id"], case):
        page.goto("about:blank")
        page.goto(f"{url}/en/errors.html#{name}")
        target = page.locator(f"[id='{name}']")
        assert target.count() == 1 and target.is_visible()
        page.wait_for_function(
            "name => Math.abs(document.getElementById(name).getBoundingClientRect().top) < 400",
            arg=name,
        )


def test_the_page_works_from_disk(page, site):
    page.goto(f"{(site / 'en/errors.html').as_uri()}?q={quote(SHAPES)}")
    assert page.locator("#error-found > li").first.get_attribute("data-id") == "mat1-mat2-shapes"


def test_without_scripts_the_list_is_complete(browser, url):
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(f"{url}/en/errors.html")
    assert opened.locator("#error-list li[data-says]").count() == len(ENTRIES)
    context.close()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_cure_is_copied(browser, url, lang):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.goto(f"{url}/{lang}/errors.html?q={quote(SHAPES)}")
    cure = opened.locator("#error-found .cure").first
    cure.locator("button").click()
    opened.wait_for_function("document.querySelector('#error-found .copy').textContent === '✓'")
    copied = opened.evaluate("navigator.clipboard.readText()")
    expected = next(e for e in ENTRIES if e["id"] == "mat1-mat2-shapes")
    assert copied == (lang == "zh" and expected.get("cure_zh") or expected["cure"])
    context.close()
