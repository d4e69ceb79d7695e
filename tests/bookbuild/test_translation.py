"""Test which translations are outdated, and that only an edit or `--accept` changes that."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookbuild.source import translation
from bookbuild.source.checkout import BookError
from bookbuild.source.texts import Cell, Text, Words
from bookbuild.source.translation import compare, needs_translation


def chapter(*pieces):
    """A chapter of prose cells from their ids, English and Chinese."""
    cells = [Cell(i, "markdown", 1, Words(en, 1, zh, 2)) for i, en, zh in pieces]
    return Text("a", Words("About this.", 1, "关于。", 1), cells)


def late(text, stamps, accepted=()):
    return [(w.piece, w.why) for w in compare(text, stamps, accepted)[1]]


CHANGED = "the English changed since it was translated"


def test_a_piece_seen_for_the_first_time_is_current():
    made, outdated = compare(chapter(("x", "Some words.", "一些。")), {})
    assert list(made) == ["summary", "x"] and outdated == []
    assert compare(chapter(("x", "Some words.", "一些。")), made) == (made, [])


@pytest.mark.parametrize(
    ("en", "zh", "why"),
    [
        ("Some words.", None, "not translated"),
        ("Some words.", "", "not translated"),
        ("Some words.", "Some words.", "not translated"),
        ("$abcd$", None, None),
        ("`abcdef`", "`abcdef`", None),
        ("---", None, None),
        ("## [](words.ipynb)", "## [](words.ipynb)", None),
        ("## [words](x.ipynb)", "## [words](x.ipynb)", "not translated"),
        ("```python\nwords = 1\n```", None, None),
        ("x `abcd` words", None, "not translated"),
    ],
)
def test_what_has_words_needs_chinese(en, zh, why):
    assert late(chapter(("x", en, zh)), {}) == ([("x", why)] if why else [])
    assert needs_translation(en) == bool(why)


@pytest.mark.parametrize(
    ("comments", "zh", "why"),
    [
        ("add both", None, "comments not translated"),
        ("add", None, None),
        ("(3, 4)", None, None),
        ("one\ntwo", "一", "2 comments in the code, 1 in Chinese"),
        ("", "一", "0 comments in the code, 1 in Chinese"),
        ("one", "一\n二", "1 comments in the code, 2 in Chinese"),
        ("add both", "两者相加", None),
        ("one\ntwo", "一\n", None),
    ],
)
def test_comments_are_as_many_in_both_languages(comments, zh, why):
    text = Text("a", Words("a", 1), [Cell("x", "code", 1, Words(comments, 1, zh, 2), "x")])
    assert late(text, {}) == ([("x/comments", why)] if why else [])


WORD = st.sampled_from(["First words.", "Other words.", "More words."])
ZH = st.sampled_from(["一", "二", "三"])


@given(st.lists(st.tuples(WORD, ZH), min_size=1, max_size=8))
def test_it_waits_until_english_is_back_or_somebody_says_so(states):
    first, stamps = states[0], {}
    for english, chinese in states:
        text = chapter(("x", english, chinese))
        stamps, outdated = compare(text, stamps)
        assert bool(outdated) == (english != first[0])
        assert compare(text, stamps) == (stamps, outdated)
    accepted, outdated = compare(text, stamps, ["x"])
    assert outdated == [] and compare(text, accepted) == (accepted, [])


def test_acceptance_of_one_cell_is_not_that_of_another():
    before, _ = compare(chapter(("x", "Some words.", "一"), ("y", "Any words.", "二")), {})
    text = chapter(("x", "New words.", "一"), ("y", "Next words.", "二"))
    assert late(text, before) == [("x", CHANGED), ("y", CHANGED)]
    assert late(text, before, ["x"]) == [("y", CHANGED)]
    assert late(text, before, ["summary"]) == [("x", CHANGED), ("y", CHANGED)]


def test_a_cell_is_accepted_with_all_that_belongs_to_it():
    def code(comment, alt):
        cell = Cell("x", "code", 1, Words(comment, 1, "注释", 2), "x", alt=Words(alt, 1, "图", 2))
        return Text("a", Words("a", 1), [cell])

    before, _ = compare(code("add both", "A line."), {})
    text = code("add all", "Two lines.")
    assert late(text, before) == [("x/comments", CHANGED), ("x/alt", CHANGED)]
    assert late(text, before, ["x"]) == []


def test_a_new_id_does_not_end_the_waiting():
    before, _ = compare(chapter(("x", "Some words.", "一")), {})
    waits, _ = compare(chapter(("x", "New words.", "一")), before)
    assert late(chapter(("y", "New words.", "一")), before) == [("y", CHANGED)]
    assert late(chapter(("y", "New words.", "一")), waits) == [("y", CHANGED)]
    changed, _ = compare(chapter(("x", "New words.", "二")), waits)
    assert late(chapter(("y", "New words.", "二")), changed) == [("y", CHANGED)]


def test_chinese_that_another_cell_has_too_is_its_own():
    before, _ = compare(chapter(("x", "Some words.", "一")), {})
    text = chapter(("x", "New words.", "一"), ("y", "Next words.", "一"))
    assert late(text, before) == [("x", CHANGED)]


def test_chinese_taken_out_and_put_back_still_waits():
    before, _ = compare(chapter(("x", "Some words.", "一")), {})
    without, _ = compare(chapter(("x", "New words.", None)), before)
    assert late(chapter(("x", "New words.", "一")), without) == [("x", CHANGED)]
    assert late(chapter(("x", "Some words.", "一")), without) == []


def test_a_piece_says_where_it_waits():
    text = chapter(("x", "Some words.", None))
    (outdated,) = compare(text, {})[1]
    assert str(outdated) == "book/text/a.md:2: a::x: not translated" and outdated.cell == "x"


def test_stamps_are_kept_in_reading_order(book):
    stamps = translation.load(book)
    path = book.root / translation.FILE
    before = path.read_text()
    assert translation.save(book, dict(reversed(stamps.items()))) is False
    assert path.read_text() == before
    assert translation.save(book, stamps | {"adding": {}}) is True


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"adding": 3}', '{"adding": {"x": 1}}', '{"adding": null}', "[" * 9**5],
)
def test_damaged_stamps_are_named(book, text):
    (book.root / translation.FILE).write_text(text)
    with pytest.raises(BookError, match="book/translated.json(:1)?: damaged, restore it with git"):
        translation.load(book)


def test_no_stamps_at_all(book):
    stamps = translation.load(book)
    (book.root / translation.FILE).unlink()
    assert translation.load(book) == {}
    (book.root / translation.FILE).write_text(json.dumps(stamps))
    assert translation.load(book) == stamps
