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
    """Return a chapter of prose cells from tuples of id, English and Chinese."""
    cells = [Cell(i, "markdown", 1, Words(en, 1, zh, 2)) for i, en, zh in pieces]
    return Text("a", Words("About this.", 1, "关于。", 1), cells)


def outdated_pieces(text, stamps, accepted=()):
    return [(w.piece, w.why) for w in compare(text, stamps, accepted)[1]]


CHANGED = "the English changed since it was translated"


def test_new_piece_is_current():
    result, outdated = compare(chapter(("x", "Some words.", "一些。")), {})
    assert list(result) == ["summary", "x"] and outdated == []
    assert compare(chapter(("x", "Some words.", "一些。")), result) == (result, [])


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
def test_text_with_words_requires_chinese(en, zh, why):
    assert outdated_pieces(chapter(("x", en, zh)), {}) == ([("x", why)] if why else [])
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
def test_comment_counts_must_match_in_both_languages(comments, zh, why):
    text = Text("a", Words("a", 1), [Cell("x", "code", 1, Words(comments, 1, zh, 2), "x")])
    assert outdated_pieces(text, {}) == ([("x/comments", why)] if why else [])


WORD = st.sampled_from(["First words.", "Other words.", "More words."])
ZH = st.sampled_from(["一", "二", "三"])


@given(st.lists(st.tuples(WORD, ZH), min_size=1, max_size=8))
def test_piece_is_outdated_until_english_returns_or_is_accepted(states):
    first, stamps = states[0], {}
    for english, chinese in states:
        text = chapter(("x", english, chinese))
        stamps, outdated = compare(text, stamps)
        assert bool(outdated) == (english != first[0])
        assert compare(text, stamps) == (stamps, outdated)
    accepted, outdated = compare(text, stamps, ["x"])
    assert outdated == [] and compare(text, accepted) == (accepted, [])


def test_accepting_one_cell_leaves_others_outdated():
    before, _ = compare(chapter(("x", "Some words.", "一"), ("y", "Any words.", "二")), {})
    text = chapter(("x", "New words.", "一"), ("y", "Next words.", "二"))
    assert outdated_pieces(text, before) == [("x", CHANGED), ("y", CHANGED)]
    assert outdated_pieces(text, before, ["x"]) == [("y", CHANGED)]
    assert outdated_pieces(text, before, ["summary"]) == [("x", CHANGED), ("y", CHANGED)]


def test_accepting_a_cell_accepts_all_its_pieces():
    def code(comment, alt):
        cell = Cell("x", "code", 1, Words(comment, 1, "注释", 2), "x", alt=Words(alt, 1, "图", 2))
        return Text("a", Words("a", 1), [cell])

    before, _ = compare(code("add both", "A line."), {})
    text = code("add all", "Two lines.")
    assert outdated_pieces(text, before) == [("x/comments", CHANGED), ("x/alt", CHANGED)]
    assert outdated_pieces(text, before, ["x"]) == []


def test_new_id_keeps_the_piece_outdated():
    before, _ = compare(chapter(("x", "Some words.", "一")), {})
    waits, _ = compare(chapter(("x", "New words.", "一")), before)
    assert outdated_pieces(chapter(("y", "New words.", "一")), before) == [("y", CHANGED)]
    assert outdated_pieces(chapter(("y", "New words.", "一")), waits) == [("y", CHANGED)]
    changed, _ = compare(chapter(("x", "New words.", "二")), waits)
    assert outdated_pieces(chapter(("y", "New words.", "二")), changed) == [("y", CHANGED)]


def test_chinese_shared_with_a_new_cell_keeps_only_the_old_outdated():
    before, _ = compare(chapter(("x", "Some words.", "一")), {})
    text = chapter(("x", "New words.", "一"), ("y", "Next words.", "一"))
    assert outdated_pieces(text, before) == [("x", CHANGED)]


def test_restored_chinese_stays_outdated():
    before, _ = compare(chapter(("x", "Some words.", "一")), {})
    without, _ = compare(chapter(("x", "New words.", None)), before)
    assert outdated_pieces(chapter(("x", "New words.", "一")), without) == [("x", CHANGED)]
    assert outdated_pieces(chapter(("x", "Some words.", "一")), without) == []


def test_outdated_piece_reports_its_place():
    text = chapter(("x", "Some words.", None))
    (outdated,) = compare(text, {})[1]
    assert str(outdated) == "book/text/a.md:2: a::x: not translated" and outdated.cell == "x"


def test_save_keeps_stamps_in_reading_order(book):
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
def test_damaged_stamps_raise(book, text):
    (book.root / translation.FILE).write_text(text)
    with pytest.raises(BookError, match="book/translated.json(:1)?: damaged, restore it with git"):
        translation.load(book)


def test_missing_stamps_load_as_empty(book):
    stamps = translation.load(book)
    (book.root / translation.FILE).unlink()
    assert translation.load(book) == {}
    (book.root / translation.FILE).write_text(json.dumps(stamps))
    assert translation.load(book) == stamps
