"""Test the symptoms: schema, page, and that each `tell` detects its bug."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bookbuild import pages
from bookbuild.commands.check import check
from bookbuild.notebooks import symptom_proofs
from bookbuild.pages import status
from bookbuild.source import symptoms
from bookbuild.source.checkout import LANGUAGES, Book, BookError

ROOT = Path(__file__).resolve().parents[2]
REAL = symptoms.load(Book(ROOT))
GOOD = {
    "id": "sum-is-wrong",
    "title": {"en": "The sum is wrong", "zh": "和不对"},
    "also": {"en": ["a wrong sum"], "zh": ["求和出错"]},
    "tell": "print(a)\n\nprint(`b` if False else 0)".replace("`b`", "'b'"),
    "sign": {"en": "3 is `wrong`.", "zh": "3 就是 `wrong`。"},
    "broken": "a = 3",
    "sound": "a = 2",
    "bad": "^3",
    "causes": [
        {"en": "An addition.", "zh": "加法。", "section": "adding#adding-title"},
        {"en": "A <tag>.", "zh": "标签。", "section": "adding"},
        {"en": "Something else.", "zh": "其他。"},
    ],
}


@pytest.fixture
def put(book):
    """Write symptoms and put their page into the table of contents."""
    toc = book.root / "_toc.yml"
    toc.write_text(toc.read_text() + "      - file: symptoms\n")
    path = book.root / symptoms.FILE

    def write(*rows, stand_in="", family="training"):
        data = {"stand_in": stand_in, family: list(rows)}
        path.write_text(yaml.safe_dump(data, allow_unicode=True), "utf8")
        return Book(book.root)

    return write


def test_real_symptoms_have_no_problems():
    assert len(REAL.symptoms) >= 60
    assert list(symptoms.problems(Book(ROOT), REAL)) == []


@pytest.mark.rest
def test_each_symptom_is_absent_from_its_sound_program():
    assert list(symptom_proofs.unproved(REAL)) == []


def test_unproved_symptoms_are_reported(put):
    rows = [
        GOOD,
        GOOD | {"id": "same", "broken": "a = 2"},
        GOOD | {"id": "both", "sound": "a = 3"},
        GOOD | {"id": "raises", "tell": "print(missing)"},
        GOOD | {"id": "no-stand-in", "broken": "a = missing"},
    ]
    found = list(symptom_proofs.unproved(symptoms.load(put(*rows))))
    assert [line.split(": ")[1] for line in found] == ["same", "both", "raises", "no-stand-in"]
    assert "has not" in found[0] and "sound" in found[1] and "does not run" in found[2]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": "A b"}, "small letters"),
        ({"id": 3}, "id: expected an id of small letters, digits and hyphens, got 3"),
        ({"tells": "x"}, "unknown key 'tells': did you mean tell?"),
        ({"tell": ""}, "expected the code that detects the symptom"),
        ({"tell": 3}, "expected the code that detects the symptom, got 3"),
        ({"bad": ""}, "either `broken` and `bad`, or `found`"),
        ({"found": "https://pytorch.org"}, "either `broken` and `bad`, or `found`"),
        ({"broken": "", "found": "somewhere"}, "expected an address"),
        ({"bad": "("}, "not a regular expression"),
        ({"title": "The sum"}, "expected a text for en and one for zh"),
        ({"sign": {"en": "x"}}, "sum-is-wrong: sign: lacks zh"),
        ({"also": {"en": ["x"], "zh": []}}, "other wordings"),
        ({"also": {"en": ["x"], "zh": [3]}}, "also: zh: expected a text, got 3"),
        ({"causes": []}, "causes: expected a list, got []"),
        ({"causes": [{"en": "x"}]}, "causes: lacks zh"),
        ({"causes": [{"en": "x", "zh": "x", "where": "y"}]}, "unknown key 'where'"),
        ({"causes": [{"en": "x", "zh": "x", "section": 3}]}, "expected a text, got 3"),
    ],
)
def test_invalid_symptom_raises(put, change, problem):
    book = put(GOOD | change)
    with pytest.raises(BookError, match="symptoms.yml") as caught:
        symptoms.load(book)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a", "expected families"),
        ("", "expected families"),
        ("training: 3", "expected a list"),
        ("training: []", "expected a list"),
        ("training: [3]", "a symptom: keys and values, got 3"),
        ("stand_in: [1]", "expected code"),
        ("a: [", "symptoms.yml:2: did not find"),
    ],
)
def test_invalid_symptoms_file_raises(book, text, problem):
    (book.root / symptoms.FILE).write_text(text)
    with pytest.raises(BookError, match=problem):
        symptoms.load(book)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([GOOD, GOOD], "sum-is-wrong: the id 'sum-is-wrong' is also that of book/symptoms.yml:"),
        ([GOOD | {"title": {"en": "x", "zh": "损失,不对"}}], "half-width"),
        ([GOOD | {"also": {"en": ["x"], "zh": ["损失是nan"]}}], "no space"),
        ([GOOD | {"causes": [{"en": "x", "zh": "损失是nan"}]}], "no space"),
        ([GOOD | {"causes": [GOOD["causes"][0] | {"section": "adding#no"}]}], "adding has no"),
        ([GOOD | {"causes": [GOOD["causes"][0] | {"section": "no"}]}], "no chapter 'no'"),
        ([GOOD | {"causes": GOOD["causes"][1:]}], "1 of 2 causes have no section"),
    ],
)
def test_check_reports_symptom_problems(put, rows, expected):
    book = put(*rows)
    assert any(expected in problem for problem in symptoms.problems(book, symptoms.load(book)))
    assert any(expected in problem for problem in check(book))


def test_symptoms_page_renders_all_fields_per_language(put):
    book = put(GOOD)
    assert {path.name for path in pages.write(book)} >= {"symptoms.md"}
    assert not [p for p in check(book) if "symptoms" in p]
    english, chinese = (
        (book.root / "book" / lang / "symptoms.md").read_text("utf8") for lang in LANGUAGES
    )
    assert '<li id="sum-is-wrong">' in english and '<li id="sum-is-wrong">' in chinese
    assert "## Training" in english and "## 训练" in chinese
    assert "<summary>The sum is wrong</summary>" in english
    assert "<summary>和不对</summary>" in chinese
    assert "a wrong sum" in english and "求和出错" in chinese
    assert "3 is <code>wrong</code>." in english and "3 就是 <code>wrong</code>。" in chinese
    assert "A &lt;tag&gt;." in english
    assert '<a href="adding.html">Add two numbers</a>' in english
    assert '<a href="adding.html">两数相加</a>' in chinese
    inside = english.split("<details>")[1].split("</details>")[0]
    assert "print(a)\n<span></span>\nprint(" in inside  # an empty line would end the HTML
    assert "\n\n" not in inside


def test_symptoms_page_requires_symptoms(book):
    pages.write(book)
    assert not (book.root / "book/en/symptoms.md").exists()


def test_status_counts_symptoms_and_lists_causes_without_a_section(put):
    (row,) = status.coverage(put(GOOD, GOOD | {"id": "two", "causes": GOOD["causes"][:2]}), "zh")
    assert row[:2] == ["[](symptoms.md)", "2"]
    assert '1 种症状有书中没讲到的原因：<a href="symptoms.html#sum-is-wrong">和不对</a>。' in row[2]
