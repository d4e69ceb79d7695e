"""Test the parser of chapters: valid texts, and the messages for invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookbuild.notebooks.conversion import notebook
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.outline import queries
from bookbuild.source.texts import (
    TAGS,
    Cell,
    Words,
    comment_words,
    comments,
    dump,
    load,
    parse,
    segments,
    with_comments,
)

REAL = Book.find(Path(__file__))
TEXT = """\
%%% summary
About.
%%% zh
关于。

%%% md a-title
# One

Two.
%%% zh
# 一

二。

%%% code setup tags=setup,remove-cell

%%% code a-code tags=right,hide-cell claims=A-1,A-2
```python
x = 1  # one

# two
y = "# no"
```
%%% zh
一
二
%%% alt
A line.
%%% zh
一条线。
%%% cause
Why.
"""


def test_parse_returns_every_kind_of_block():
    text = parse("a", TEXT)
    assert (text.summary.en, text.summary.zh, text.summary.line) == ("About.", "关于。", 1)
    title, setup, code = text.cells
    assert (title.type, title.words) == ("markdown", Words("# One\n\nTwo.", 6, "# 一\n\n二。", 10))
    assert (setup.source, setup.metadata) == ("", {"tags": ["setup", "remove-cell"]})
    assert code.source == 'x = 1  # one\n\n# two\ny = "# no"'
    assert code.metadata == {"tags": ["right", "hide-cell"], "claims": ["A-1", "A-2"]}
    assert (code.words.en, code.words.zh, code.words.zh_line) == ("one\ntwo", "一\n二", 24)
    assert (code.alt.en, code.alt.zh, code.cause.en, code.cause.zh) == (
        *("A line.", "一条线。"),
        *("Why.", None),
    )
    assert [name for name, _ in text.pieces()] == [
        *("summary", "a-title", "setup/comments", "a-code/comments", "a-code/alt", "a-code/cause"),
    ]


HEAD = "%%% summary\nx\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "t:1: no `%%% summary`"),
        ("words\n" + HEAD, "t:1: expected `%%% summary`, got text before the first block"),
        ("%%% md a\nx", "t:1: no `%%% summary`"),
        (HEAD, "t:1: no cells"),
        (HEAD + "%%% summary\ny", "t:3: a second summary"),
        (HEAD + "%%% zh\ny\n%%% zh\nz", "t:5: a second `%%% zh` for the same block"),
        ("%%% zh\ny", "t:1: `%%% zh` follows nothing that could be translated"),
        (HEAD + "%%% md a b\nx", "t:3: an id has 1-64 letters, digits, - or _, got 'a b'"),
        (HEAD + "%%% md\nx", "t:3: an id has 1-64 letters, digits, - or _, got ''"),
        (HEAD + f"%%% md {'x' * 65}\nx", "t:3: an id has 1-64"),
        (HEAD + "%%% md a.b\nx", "t:3: an id has 1-64"),
        (HEAD + "%%% code\n```python\nx\n```", "t:3: an id has 1-64"),
        (HEAD + "%%% md a\n", "t:3: a is empty"),
        (HEAD + "%%% md a\nx\n%%% code a\n```python\nx\n```", "t:5: the id a is taken"),
        (HEAD + "%%% md summary\nx", "t:3: the id summary is taken"),
        (HEAD + "%%% code a color=red\n```python\nx\n```", "t:3: expected tags=a,b or claims=a,b"),
        (HEAD + "%%% code a tags=\n```python\nx\n```", "t:3: expected tags=a,b or claims=a,b"),
        (HEAD + "%%% code a tags=b,\n```python\nx\n```", "t:3: expected tags=a,b or claims=a,b"),
        (
            HEAD + "%%% code a tags=wrong tags=right\n```python\nx\n```",
            "t:3: expected tags=a,b or claims",
        ),
        (
            HEAD + "%%% code a tags=rihgt\n```python\nx\n```",
            "t:3: a: unknown tag 'rihgt': did you mean right?",
        ),
        (
            HEAD + "%%% code a tags=slow\n```python\nx\n```",
            f"t:3: a: unknown tag 'slow': expected {', '.join(TAGS)}",
        ),
        (
            HEAD + "%%% code a tags=wrong,right\n```python\nx\n```",
            "t:3: a: the tags right and wrong contradict each other",
        ),
        (
            HEAD + "%%% code a tags=wrong,wrong\n```python\nx\n```",
            "t:3: a: the tag wrong is given twice",
        ),
        ("\ufeff" + HEAD, "t:1: begins with a byte order mark"),
        (HEAD + "%%% md a\nx\n%%%zh\ny", "t:5: expected a mark such as `%%% zh`, got '%%%zh'"),
        (HEAD + "%%% md a\nx\n%% zh\ny", "t:5: expected a mark such as `%%% zh`, got '%% zh'"),
        (HEAD + "%%% md a\nx\n %%% zh\ny", "t:5: expected a mark such as"),
        (HEAD + "%%% md a\nx\n\u3000%%% zh\ny", "t:5: expected a mark such as"),
        (HEAD + "%%%\u3000md a\nx", "t:3: expected a mark such as"),
        (HEAD + "%%%% md a\nx", "t:3: expected a mark such as"),
        (HEAD + "％％％ md a\nx", "t:3: expected a mark such as"),
        (
            HEAD + "%%% code a\n```python\nx\n```\n%%% pitfall\nx\n\n  %%% md b\ny",
            "t:10: expected a mark such as `%%% zh`, got '  %%% md b'",
        ),
        (HEAD + "%%% md a\n<<<<<<< HEAD\nx", "t:4: a mark of a merge conflict"),
        (HEAD + "%%% md a\nx\n=======\ny", "t:5: a mark of a merge conflict"),
        (HEAD + "%%% md a\nx\n>>>>>>> theirs", "t:5: a mark of a merge conflict"),
        (HEAD + "%%% md a\nx\0", "t:4: control character U+0000"),
        (HEAD + "%%% md a\nx\x1b[1m", "t:4: control character U+001B"),
        (HEAD + "%%% md a\nx\x08", "t:4: control character U+0008"),
        (HEAD + "%%% md a\n" + 5001 * "x", "t:4: line of 5001 characters, at most 5000"),
        (
            HEAD + "%%% md a\nx\n{{ newest_pytorch }}",
            "t:5: unknown placeholder {{ newest_pytorch }}: expected {{ oldest_pytorch }}",
        ),
        (
            HEAD + "%%% md a\nx\n%%% zh\n\u4e00\n{{ oldest }}",
            "t:7: unknown placeholder {{ oldest }}: expected {{ oldest_pytorch }}",
        ),
        ("%%% summary\n{{ oldest_pytorch }}\n%%% md a\nx", "t:2: unknown placeholder"),
        (HEAD + "%%% caues\ny", "t:3: unknown block `%%% caues`: did you mean cause?"),
        (HEAD + "%%% code a\nx = 1", "t:3: the code of a must be between ```python and ```"),
        (HEAD + "%%% code a\n```python\n```", "t:3: the code of a must be between"),
        (HEAD + "%%% code a\n```python\nx\n```\nmore", "t:3: the code of a must be between"),
        (HEAD + "%%% code a\n```python\nx = (  # y\n```", "t:3: a: Python cannot read the code"),
        (HEAD + "%%% code setup\n```python\nx\n```", "t:3: the setup cell has no body"),
        (HEAD + "%%% md a\nx\n%%% alt\ny", "t:5: `%%% alt` belongs to a code cell"),
        (HEAD + "%%% cause\ny", "t:3: `%%% cause` belongs to a code cell"),
        (HEAD + "%%% code setup\n%%% alt\n", "t:4: `%%% alt` is empty"),
        (HEAD + "%%% code setup\n%%% alt\nx\n%%% alt\ny", "t:6: a second `%%% alt` for setup"),
        (HEAD + "%%% fr\ny", "t:3: unknown block `%%% fr`"),
        (HEAD + "%%%\ny", "t:3: unknown block `%%% `"),
        (HEAD + "%%% zh now\ny", "t:3: `%%% zh` takes no words, got 'now'"),
        ("%%% summary x\ny", "t:1: `%%% summary` takes no words, got 'x'"),
    ],
)
def test_invalid_text_raises_with_its_line(text, what):
    with pytest.raises(BookError) as caught:
        parse("a", text, "t")
    assert str(caught.value).startswith(what)


@pytest.mark.parametrize("name", REAL.texts)
def test_real_texts_round_trip_through_dump(name):
    text = load(REAL, name)
    source = REAL.text(name).read_text("utf8")
    parts = segments(source, text)
    assert source.endswith("".join(parts))
    for cell, part in zip(text.cells, parts, strict=True):
        (again,) = parse("x", HEAD + dump(cell)).cells
        (before,) = parse("x", HEAD + part).cells
        assert dump(again) == dump(before) == dump(cell)


LINES = st.text(
    st.characters(codec="utf8", exclude_categories=["Cc"], exclude_characters="%％`#<=>|{\ufeff"),
    min_size=1,
)
BODY = st.lists(LINES, min_size=1, max_size=3).map("\n".join).filter(str.strip)
WORDS = st.builds(Words, en=BODY, line=st.just(0), zh=st.none() | BODY)
IDS = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True).filter(
    lambda name: name not in ("setup", "summary")
)


@given(IDS, WORDS, st.none() | WORDS, st.none() | WORDS, st.booleans())
def test_parse_inverts_dump(name, words, alt, cause, prose):
    if prose:
        cell = Cell(name, "markdown", 3, words)
    else:
        code = "x = 1  # one\n# two"
        cell = Cell(
            name, "code", 3, Words("one\ntwo", 3, words.zh), code, {"tags": ["wrong"]}, alt, cause
        )
    (again,) = parse("a", HEAD + dump(cell)).cells

    def plain(cell):
        return [cell.id, cell.type, cell.source, cell.metadata] + [
            w and (w.en.strip("\n"), w.zh and w.zh.strip("\n"))
            for w in (cell.words, cell.alt, cell.cause)
        ]

    assert plain(again) == plain(cell)


@given(st.text(st.sampled_from("%%% \n```pythonzhmdcodeaxtags=# 一"), max_size=200))
def test_any_text_parses_or_raises_one_line_error(text):
    try:
        parse("a", text, "t")
    except BookError as error:
        assert str(error).startswith("t:") and "\n" not in str(error)


def test_marks_inside_code_and_maths_are_ignored():
    code = "%%time\nx = 7 %% 2\nf'{{ x }}'"
    text = HEAD + f"%%% code a\n```python\n{code}\n```\n%%% md b\n$x_{{{{i}}}}$\n\nTitle\n==\n"
    code_cell, prose = parse("a", text).cells
    assert code_cell.source == code and prose.words.en.startswith("$x_{{i}}$")


def test_comments_are_found_and_replaced():
    code = "# one\nx = '#'  # two\nf'''\n# no {x}'''\n#three"
    assert comment_words(code) == "one\ntwo\nthree"
    assert comments(code)[1] == (1, 9, "# two")
    assert with_comments(code, ["一", "二", "三"]) == "# 一\nx = '#'  # 二\nf'''\n# no {x}'''\n# 三"
    assert with_comments(code, ["一", "", "三"]).split("\n")[1] == "x = '#'  # two"
    assert with_comments(code, ["一"]) == code
    assert comments("x = (") == []


# ---------------------------------------------------------------- queries

ASKED = (
    "%%% summary\nx\n\n%%% md a\n# One\n%%% zh\n# 一\n"
    "%%% queries\nhow many\nworkers 几个\ntorch.cat\n"
)


def test_queries_belong_to_a_section_and_a_language():
    text = parse("a", ASKED + "\n%%% md b\n## Two\n\n## Three\n%%% queries\nlast\n")
    assert queries(text, "en") == {"one": ["how many", "torch.cat"], "two": ["last"]}
    assert queries(text, "zh") == {"one": ["workers 几个", "torch.cat"], "two": ["last"]}
    assert "queries" in notebook(text, "zh").metadata
    again = parse("a", f"%%% summary\nx\n\n{dump(text.cells[0])}\n")
    assert again.cells[0].queries == ["how many", "workers 几个", "torch.cat"]
    assert again.cells[0].words.zh


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("%%% queries\nmore", "a second"),
        ("%%% zh\nmore", "follows nothing"),
        ("%%% md b\nno heading\n%%% queries\nx", "with a heading"),
        ("%%% code c\n```python\nx\n```\n%%% queries\nx", "with a heading"),
        ("%%% md b\n## B\n%%% queries", "1-60 characters"),
        ("%%% md b\n## B\n%%% queries\n" + "x" * 61, "1-60 characters"),
        ("%%% md b\n## B\n%%% queries\nx\n\ny", "1-60 characters"),
        ("%%% md b\n## B\n%%% queries z\nx", "takes no words"),
    ],
)
def test_invalid_queries_raise_with_their_line(block, says):
    with pytest.raises(BookError, match=r"text:\d+: .*" + says):
        parse("a", f"{ASKED}\n{block}\n")
