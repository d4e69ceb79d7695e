"""A chapter as one text file, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookbuild.notebooks import BookError, read
from bookbuild.text import _blocks, pack, unpack


def test_there_and_back_changes_nothing(book):
    for name in book.chapters:
        before = {lang: read(book.path(lang, name)).cells for lang in ("en", "zh")}
        assert pack(book, unpack(book, name)) == name
        for lang, cells in before.items():
            after = read(book.path(lang, name)).cells
            assert [(c.id, c.source, c.get("outputs")) for c in after] == [
                (c.id, c.source, c.get("outputs")) for c in cells
            ]
            assert [c.metadata.get("cause") for c in after] == [
                c.metadata.get("cause") for c in cells
            ]


def test_changed_code_loses_its_output(book):
    text = unpack(book, "adding").replace("a = 1 + 1", "a = 2")
    pack(book, text)
    cell = read(book.path("en", "adding")).cells[2]
    assert cell.outputs == [] and cell.execution_count is None


def test_a_new_chapter(book):
    pack(
        book,
        "%%% chapter failing\nsummary: New.\nsummary-zh: 新的。\n%%% md a\n# One\n%%% zh\n# 一\n"
        "%%% code b tags=cheat,gpu claims=A-1\nx = 1  # one\n%%% zh\nx = 1  # 一\n"
        "%%% alt\nA line.\n%%% alt-zh\n一条线。\n",
    )
    en, zh = read(book.path("en", "failing")), read(book.path("zh", "failing"))
    assert en.cells[1].metadata["tags"] == ["cheat", "gpu"]
    assert (en.cells[1].source, zh.cells[1].source) == ("x = 1  # one", "x = 1  # 一")
    assert zh.cells[1].metadata.mystnb.image.alt == "一条线。"
    assert (en.metadata.summary, zh.metadata.summary) == ("New.", "新的。")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("# no mark", "must begin with"),
        ("%%% chapter adding\n%%% zh\n一", "line 2: `%%% zh` belongs to no cell"),
        ("%%% chapter adding\n%%% md a b\nx\n%%% md a\ny", "two cells are called a"),
        ("%%% chapter adding\n%%% md bad.id\nx", "line 2: a cell's id has 1-64 letters"),
        ("%%% chapter adding\n%%% code a color=red\nx", "line 2: expected tags=… or claims=…"),
        (
            "%%% chapter adding\n%%% code a\nx = 1\n%%% zh\nx = 2",
            "line 4: the Chinese code of a differs",
        ),
        ("%%% chapter adding\n%%% md a\nx\n%%% fr\ny", "line 4: unknown block `%%% fr`"),
    ],
)
def test_a_text_of_another_form_is_refused_and_nothing_written(book, text, what):
    before = book.path("en", "adding").read_bytes()
    with pytest.raises(BookError, match=what):
        pack(book, text)
    assert book.path("en", "adding").read_bytes() == before


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\r%\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")),
        max_size=5,
    )
)
def test_blocks_keep_their_text(bodies):
    text = "".join(f"%%% md c{n}\n{body}\n" for n, body in enumerate(bodies))
    assert [body for _, _, body in _blocks(text)] == [body.strip("\n") for body in bodies]
