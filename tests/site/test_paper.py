"""Test printed chapters: title, address and page numbers, unbroken questions, solutions last."""

from __future__ import annotations

import re
import zlib

import pytest
from book_pages import LANGUAGES

from bookbuild.source.words import words

PRINT = "dispatchEvent(new Event('beforeprint'))"
AFTER = "dispatchEvent(new Event('afterprint'))"
# The declarations of each margin box in the rules for all sheets.
BOXES = """() => {
  const found = {};
  const read = (rules) => {
    for (const rule of rules) {
      if (rule instanceof CSSPageRule && !rule.selectorText)
        for (const [, box, body] of rule.cssText.matchAll(/@((?:top|bottom)-\\w+) \\{([^}]*)\\}/g))
          found[box] = (found[box] ?? "") + body;
      else if (rule.cssRules) read(rule.cssRules);
    }
  };
  for (const sheet of document.styleSheets)
    if (!sheet.href?.startsWith("file:")) read(sheet.cssRules); // a page may not read those
  return found;
}"""


def test_printed_sheet_has_title_address_and_page_number(page, url):
    for lang in LANGUAGES:
        page.goto(f"{url}/{lang}/detach.html")
        boxes = page.evaluate(BOXES)
        assert page.title() in boxes["top-left"]
        assert f"{url}/{lang}/detach.html" in boxes["bottom-left"]
        assert (
            "counter(page)" in boxes["bottom-right"] and "counter(pages)" in boxes["bottom-right"]
        )


def test_page_from_disk_does_not_print_its_path(page, site):
    page.goto(f"{site.as_uri()}/en/detach.html")
    boxes = page.evaluate(BOXES)
    assert page.title() in boxes["top-left"] and "file:" not in boxes["bottom-left"]


def drawn(pdf: bytes) -> list[int]:
    """Return the number of text objects on each sheet of a PDF."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    unpacked = []
    for stream in streams:
        try:  # the pattern cuts off the last byte of a stream that ends with "\r"
            unpacked.append(zlib.decompressobj().decompress(stream))
        except zlib.error:
            continue
    return [len(re.findall(rb"\bBT\b", text)) for text in unpacked if b"BT" in text]


def test_printed_margins_are_not_empty(page, url):
    """Compare the text objects of each sheet with and without the three boxes."""
    page.goto(f"{url}/en/detach.html")
    sheets = drawn(page.pdf(prefer_css_page_size=True))
    page.add_style_tag(
        content="""@page { @top-left { content: none !important }
      @bottom-left { content: none !important } @bottom-right { content: none !important } }"""
    )
    bare = drawn(page.pdf(prefer_css_page_size=True))
    assert len(sheets) == len(bare) > 5
    more = [full - less for full, less in zip(sheets, bare, strict=True)]
    assert more[0] >= 2 and min(more[1:]) >= 3, more


@pytest.mark.parametrize("lang", LANGUAGES)
def test_hints_and_solutions_are_printed_after_the_answer_key(page, url, lang):
    page.goto(f"{url}/{lang}/detach.html")
    before = page.locator("article").inner_html()
    exercises = page.locator(".tag_exercise").count()
    titles = page.locator("section:has(> .tag_exercise) > h3").all_inner_texts()
    hints = page.locator("section:has(> .tag_exercise) > details").count()
    assert exercises == len(titles) and hints
    page.locator("section:has(> .tag_exercise) > details > summary").first.click()
    page.evaluate(PRINT)
    page.emulate_media(media="print")
    sheet = page.locator(".solutions")
    assert sheet.locator("h2").inner_text() == words(lang, "script_paper")["title"]
    assert sheet.locator("h3").all_inner_texts() == [title.rstrip("#") for title in titles]
    assert sheet.locator(".tag_solution pre").first.is_visible()
    assert sheet.locator(".tag_solution").count() == exercises
    assert sheet.locator("details:not(.hide) > p").count() >= hints
    assert all(p.is_visible() for p in sheet.locator("details:not(.hide) > p").all())
    assert not sheet.locator(".hide > summary").first.is_visible()
    assert page.locator("section:has(> .tag_exercise) > :is(details, .tag_solution)").count() == 0
    assert page.evaluate("""() => {
      const [key, last] = [".key", ".solutions"].map(s => document.querySelector(s));
      return Boolean(key.compareDocumentPosition(last) & Node.DOCUMENT_POSITION_FOLLOWING)
        && getComputedStyle(key).breakBefore === "page"; // what stands before is a handout
    }""")
    page.evaluate(AFTER)
    page.emulate_media(media="screen")
    opened = page.locator("section:has(> .tag_exercise) > details[open]")
    assert opened.count() == 1  # open, as before printing
    opened.locator("summary").click()
    page.evaluate("document.querySelectorAll('[data-x]').forEach(e => e.remove())")
    assert page.locator("article").inner_html() == before


def test_question_is_not_split_across_sheets(page, url):
    page.goto(f"{url}/en/sequences.html")
    page.emulate_media(media="print")
    breaks = page.locator(".predict").evaluate_all(
        "all => all.map(e => getComputedStyle(e).breakInside)"
    )
    assert len(breaks) > 3 and set(breaks) == {"avoid"}
