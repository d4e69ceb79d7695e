"""Test `book/review.yml`, the texts of the rules, and the data made from it."""

import json
from pathlib import Path

import pytest

from bookbuild import pages
from bookbuild.commands.update import update
from bookbuild.pages.review_data import PRODUCT
from bookbuild.source import pitfalls, reviews
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.texts import load

BOOK = Book(Path(__file__).parents[2])
RULE = """family:
  - id: {id}
    effect: {{en: 'It has no effect.', zh: 没有作用。}}
    fix: x = 1
"""


def write(book, text):
    (book.root / reviews.FILE).write_text(text, "utf8")
    (book.root / PRODUCT).parent.mkdir(exist_ok=True, parents=True)


def section(book):
    name = book.texts[0]
    return f"    section: {name}#{load(book, name).cells[0].id}\n"


def test_changed_rule_makes_the_packaged_file_stale(book, quick):
    assert reviews.load(book) == []
    write(book, RULE.format(id="new") + section(book))
    assert list(pages.problems(book)) == [f"{PRODUCT}: stale; run `book update`"]
    assert update(book, echo=lambda line: None) == {}
    assert list(pages.problems(book)) == []
    (row,) = json.loads((book.root / PRODUCT).read_text("utf8"))["rules"]
    assert row["effect"]["zh"] == "没有作用。" and row["section"]["href"].endswith(".html")
    assert row["why"] == {"en": "", "zh": ""}


def test_rule_requires_a_pitfall_or_a_section(book):
    write(book, RULE.format(id="new"))
    with pytest.raises(BookError, match="review.yml:2: new: expected either the id of a pitfall"):
        reviews.load(book)
    write(book, RULE.format(id="new") + "    section: nowhere#x\n")
    with pytest.raises(BookError, match="section: no chapter 'nowhere'"):
        reviews.load(book)


def test_rule_named_after_a_pitfall_uses_its_section_and_answer():
    parts = {one.id: one.part for one in pitfalls.load(BOOK)}
    rules = reviews.load(BOOK)
    shared = [rule for rule in rules if rule.id in parts]
    assert 0 < len(shared) < len(rules)
    for rule in shared:
        assert rule.why == parts[rule.id].answer and all(rule.why.values())
        assert rule.href.startswith(f"{parts[rule.id].name}.html#")


def test_duplicate_ids_and_wordings_are_reported(book):
    rule = (RULE.format(id="new") + section(book)).replace("It has no", "It wants no")
    write(book, rule + rule.partition("\n")[2])
    found = list(reviews.problems(reviews.load(book)))
    assert any("the id 'new' is also that of" in one for one in found)
    assert any("wants" in one for one in found)
