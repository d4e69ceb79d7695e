"""Test the questions before a cell: syntax, proofs, and rendering."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bookbuild.commands.adopt import adopt
from bookbuild.commands.check import check
from bookbuild.commands.update import update
from bookbuild.notebooks import question_cells
from bookbuild.notebooks.files import read
from bookbuild.source import questions
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.texts import dump, load, parse, segments

ROOT = Path(__file__).parents[2]
ASKED = """\
%%% predict
What is `a`?
- `1`, because `a` is one number
  Two were added.
  = output
+ `2`, because both count
  One and one make two.
  = assert a == 2
- `11`, because the digits are put side by side
  That is what texts do.
  = output
%%% zh
`a` 是多少？
- `1`，因为 `a` 是一个数
  加的是两个数。
+ `2`，因为两个数都算
  一加一等于二。
- `11`，因为数字并排写在一起
  文本才会这样。
"""


@pytest.fixture
def asked(book, mend, quick):
    """Return a function that adds a question to `adding-numbers`, with `old` replaced by `new`."""

    def ask(old="", new=""):
        assert old in ASKED
        mend("adding", "把两个数相加\n", f"把两个数相加\n{ASKED.replace(old, new, 1)}\n")
        return update(book, ["adding"], echo=lambda line: None)

    ask.book = book
    return ask


def problems(book):
    return [p for p in check(book, book.chapters) if "predict" in p]


def test_question_precedes_its_cell_in_both_languages(asked):
    assert asked() == {} and check(asked.book) == []
    for lang, title, why in (
        ("en", "Predict.", "Two were added."),
        ("zh", "先猜一猜。", "加的是两个数。"),
    ):
        cells = read(asked.book.notebook(lang, "adding")).cells
        ids = [c.id for c in cells]
        question = cells[ids.index("adding-numbers") - 1]
        assert question.id == "adding-numbers-predict" and question.cell_type == "markdown"
        assert title in question.source and why in question.source
        assert "<code>11</code>" in question.source and "assert" not in question.source
        assert [*re.findall(r'class="(yes|no)"', question.source)] == ["no", "yes", "no"]
        code = cells[ids.index("adding-numbers")].metadata
        assert code.predict == "What is `a`?" and code.jupyter.outputs_hidden


def test_question_is_stamped_for_translation(asked):
    asked()
    path = asked.book.text("adding")
    path.write_text(path.read_text("utf8").replace("Two were added.", "There were two."), "utf8")
    update(asked.book, ["adding"], echo=lambda line: None)
    (late,) = check(asked.book, ["adding"], release=True)
    assert "adding::adding-numbers/predict: the English changed" in late
    chinese = {c.id: c.source for c in read(asked.book.notebook("zh", "adding")).cells}
    assert "译文待更新" in chinese["adding-numbers-predict"]
    # A proof is not translated, so changing it makes nothing outdated.
    path.write_text(path.read_text("utf8").replace("  = assert a == 2", "  = output"), "utf8")
    assert len(check(asked.book, ["adding"], release=True)) == 1


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("= assert a == 2", "= assert a == 3", "no cell has `assert a == 3`"),
        ("= assert a == 2", "= assert a ==", "no cell has"),
        ("= assert a == 2", "= believe me", "expected a proof"),
        ("  = assert a == 2\n", "", "expected a proof"),
        ("`1`, because", "`2`, because", "the cell's output has it"),
        ("+ `2`, because", "+ `3`, because", None),
        ("- `1`, because", "- it is 1, because", "in backticks at the beginning"),
        ("  = output\n+", "  = output of adding-nothing\n+", "there is no cell adding-nothing"),
        ("  = output\n+", "  = output of adding-solution\n+", "adding-solution does not print it"),
    ],
)
def test_each_choice_requires_a_proof(asked, old, new, what):
    asked(old, new)
    found = problems(asked.book)
    assert not found if what is None else len(found) == 1 and what in found[0], found


def test_output_proof_matches_whole_numbers_only(asked, mend):
    asked(
        "`2`, because both count\n  One and one make two.\n  = assert a == 2",
        "`2`, because both count\n  One and one make two.\n  = output",
    )
    for output in ("-2", "[-2]", "12", "2.5", "0.2"):
        mend("adding", "assert a == 2\na\n", f"print({output!r})\n")
        update(asked.book, ["adding"], echo=lambda line: None)
        assert any("`2`, because both count" in p for p in problems(asked.book)), output
        mend("adding", f"print({output!r})\n", "assert a == 2\na\n")


def test_question_about_a_new_cell_is_not_checked_before_its_run(book, mend):
    new = "%%% code adding-new\n```python\n2\n```\n" + ASKED
    mend("adding", "%%% md adding-recap", f"{new}\n%%% md adding-recap")
    found = check(book, ["adding"])
    assert any("cells or their order differ" in problem for problem in found)
    assert not any("predict" in problem for problem in found)


def test_explanation_in_a_section_of_its_own_is_reported(asked, mend):
    asked()
    explains = "%%% md adding-why\nBoth count.\n{}%%% zh\n两个数都算。\n\n"
    mend("adding", "%%% code adding-exercise", explains.format("") + "%%% code adding-exercise")
    assert update(asked.book, ["adding"], echo=lambda line: None) == {}
    assert check(asked.book, ["adding"]) == []
    mend("adding", "Both count.\n", "Both count.\n\n### More\n")
    mend("adding", "两个数都算。\n\n%%% code", "两个数都算。\n\n### 还有\n\n%%% code")
    update(asked.book, ["adding"], echo=lambda line: None)
    found = check(asked.book, ["adding"])
    (problem,) = [p for p in found if "hidden with it" in p] or found
    assert "adding-why: explains the output of adding-numbers" in problem


def test_changed_output_breaks_the_proof(asked, mend):
    """Report a proof that fails because a cell prints a new output, as under a new PyTorch."""
    asked("= assert a == 2", "= output")
    assert problems(asked.book) == []
    mend("adding", "assert a == 2\na\n", "f'{a}{a}'[:1] * 2\n")
    update(asked.book, ["adding"], echo=lambda line: None)
    assert any(
        "'`2`, because both count': the cell's output has no" in p for p in problems(asked.book)
    )


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("What is `a`?\n", "", "no question"),
        ("- `1`, because `a` is one number\n  Two were added.\n  = output\n", "", "3 to 5 choices"),
        ("+ `2`", "- `2`", "one choice is right"),
        ("- `1`", "+ `1`", "one choice is right"),
        ("  Two were added.\n", "", "expected a reason in lines that are indented by two spaces"),
        ("What is `a`?\n", "What is `a`?\n  = output\n", "a proof belongs to one choice"),
        ("  = assert a == 2\n", "  = output\n  = output\n", "a proof belongs to one choice"),
        ("+ `2`，", "- `2`，", "one choice is right"),
        ("- `1`，因为", "+ `1`，因为", "one choice is right"),
        ("  文本才会这样。\n", "", "expected a reason in lines that are indented by two spaces"),
    ],
)  # fmt: skip
def test_invalid_question_raises_with_its_line(old, new, what):
    assert old in ASKED
    chapter = "%%% summary\nA.\n\n%%% code adding-numbers\n```python\na = 2\n```\n" + ASKED.replace(
        old, new, 1
    )
    with pytest.raises(BookError, match=rf"^t:\d+: .*{what}"):
        parse("a", chapter, "t")


def test_different_choices_in_chinese_raise():
    code = "%%% summary\nA.\n\n%%% code adding-numbers\n```python\na = 2\n```\n"
    swapped = ASKED.replace("- `1`，", "+ `1`，").replace("+ `2`，", "- `2`，")
    with pytest.raises(BookError, match="other choices than in English"):
        parse("a", code + swapped, "t")


def test_question_requires_a_code_cell_with_a_short_id():
    with pytest.raises(BookError, match="belongs to a code cell"):
        parse("a", f"%%% summary\nA.\n\n%%% md title\n# A\n{ASKED}", "t")
    name = "x" * 60
    code = f"%%% summary\nA.\n\n%%% code {name}\n```python\na = 2\n```\n{ASKED}"
    with pytest.raises(BookError, match="too long"):
        parse("a", code, "t")


def test_question_edited_in_a_notebook_is_rejected(asked, edit):
    asked()

    def change(nb):
        cell = next(c for c in nb.cells if c.id == "adding-numbers-predict")
        cell.source = cell.source.replace("Two were", "Three were")

    edit("en", "adding", change)
    (problem,) = check(asked.book, ["adding"])
    assert "en/adding::adding-numbers-predict: edited by hand" in problem
    with pytest.raises(BookError, match="edit it in the text"):
        adopt(asked.book, "adding")


LINES = st.text(
    st.characters(codec="utf8", exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029%"),
    min_size=1,
).map(lambda line: "x" + line + "x")
PROOFS = st.sampled_from(["", "output", "assert a == 2"])


@given(LINES, st.lists(st.tuples(LINES, LINES, PROOFS), min_size=3, max_size=5), st.data())
def test_join_inverts_split(asks, choices, data):
    right = data.draw(st.integers(0, len(choices) - 1))
    lines = [asks]
    for number, (says, why, proof) in enumerate(choices):
        lines += [f"{'+' if number == right else '-'} {says}", f"  {why}"]
        lines += [f"  = {proof}"] if proof else []
    body = "\n".join(lines)
    words, proofs = questions.split(body)
    assert questions.join(words, proofs) == body
    assert proofs == [proof for *_, proof in choices]
    question = questions.parse(words)
    assert question.text == asks and [c.right for c in question.choices].index(True) == right


def test_every_question_round_trips_through_dump():
    book = Book(ROOT)
    for name in book.chapters:
        text = load(book, name)
        parts = segments(book.text(name).read_text("utf8"), text)
        for cell, part in zip(text.cells, parts, strict=True):
            if cell.predict:
                assert dump(cell) == part.strip("\n")


class Balance(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@example("<a>")
@given(st.text(st.sampled_from("<>&\"'`*_$[]() ab"), min_size=1, max_size=30))
def test_question_html_is_balanced_for_any_text(said):
    said = f"x{' '.join(said.split())}"
    words = f"{said}\n+ {said}\n  {said}\n- {said}\n  {said}\n- {said}\n  {said}"
    html = question_cells.html(words, "a-cell", "en")
    parser = Balance()
    parser.feed(html)
    parser.close()
    assert parser.open == [] and "\n\n" not in html


def test_every_chapter_has_three_questions_with_varied_answers():
    book = Book(ROOT)
    for name in book.chapters:
        asked = [questions.parse(c.predict.en) for c in load(book, name).cells if c.predict]
        assert len(asked) >= 3, name
        places = {[c.right for c in question.choices].index(True) for question in asked}
        assert len(places) > 1, name
