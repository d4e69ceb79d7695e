"""Test the messages: schema, pages, proofs, and equal answers in Python and JavaScript."""

from __future__ import annotations

import csv
import json
import re
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup
from click.testing import CliRunner
from forms import CHAINS, FORMS
from hypothesis import given, settings
from hypothesis import strategies as st

from bookbuild import pages
from bookbuild.cli import main
from bookbuild.commands.check import check
from bookbuild.commands.update import update
from bookbuild.notebooks import message_proofs
from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.files import read
from bookbuild.pages import error_list, message_data
from bookbuild.pages.chapters import chapters
from bookbuild.pages.message_data import PRODUCT
from bookbuild.site.extensions.languages import source
from bookbuild.source import messages, outline
from bookbuild.source.checkout import Book, BookError
from helpers import explain
from helpers.explain.conditions import RELATIONS, related
from helpers.explain.data import PATTERNS
from helpers.explain.logs import own_line
from helpers.explain.text import filled, plain, with_values
from helpers.explain.unknown import advised, unknown

ROOT = Path(__file__).resolve().parents[2]
FAMILY = {
    "title": {"en": "Your own code", "zh": "自己的代码"},
    "heading": {"en": "Python", "zh": "Python 代码"},
    "description": {"en": "Errors of Python.", "zh": "Python 的报错。"},
}
DIVISION = {
    "id": "division-by-zero",
    "wordings": ["ZeroDivisionError: division by zero"],
    "cause": {"en": "The divisor is 0, not `{object}`.", "zh": "除数是 0。"},
    "cure": "if n:\n\n    x / n  # <only> then",
    "section": "failing",
}
OTHER = {
    "id": "unexpected-keyword",
    "wordings": ["TypeError: {function}() got an unexpected keyword argument '{name}'"],
    "run": "def f(): pass\nf(end_=1)",
    "cause": {"en": "No such keyword.", "zh": "没有这个参数。"},
    "cases": [
        {
            "id": "unexpected-end",
            "when": {"name": "end_"},
            "cause": {"en": "It is end.", "zh": "应当是 end。"},
        },
        {
            "id": "unexpected-near",
            "near": "flask",
            "cause": {"en": "Flask.", "zh": "与 Flask 有关。"},
        },
    ],
}
TAKEN = OTHER["wordings"][0].lower()


@pytest.fixture
def book(template, tmp_path):
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    toc = tmp_path / "_toc.yml"
    toc.write_text(f"{toc.read_text()}        sections:\n          - file: errors_python\n")
    write(tmp_path, [DIVISION, OTHER])
    pages.write_messages(Book(tmp_path))
    pages.write(Book(tmp_path))
    return Book(tmp_path)


def write(root, rows):
    path = root / "book/messages/python.yml"
    path.parent.mkdir(exist_ok=True)
    data = {"family": FAMILY, "messages": rows}
    path.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), "utf8")


# ---------------------------------------------------------------- schema


def test_load_returns_wordings_section_and_cases(book):
    first, second = messages.load(book)
    assert (first.id, first.wordings, first.proofs) == (DIVISION["id"], DIVISION["wordings"], [""])
    assert outline.locate_section(book, first.section, first.where) == (
        "failing.ipynb",
        {"en": "Divide by zero", "zh": "除以零"},
    )
    assert [c.id for c in second.cases] == ["unexpected-end", "unexpected-near"]
    assert second.cases[0].when == {"name": "end_"} and second.cases[1].near == "flask"
    assert check(book) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("- a", "expected `family` and `messages`, got ['a']"),
        ("family: [", "messages/python.yml:2: did not find expected node content"),
        (
            "family: 1\nmessages: 1",
            "python.yml:1: family: expected keys and values, got 1",
        ),
        ([], "messages: expected a list of messages, got []"),
        ([{"wordings": ["x"]}], "messages: lacks id, cause"),
        ([DIVISION | {"id": "Not Good"}], "expected an id of small letters"),
        ([DIVISION | {"cause": {"en": "x"}}], "division-by-zero: cause: lacks zh"),
        ([DIVISION | {"wordings": []}], "wordings: expected a list of wordings, got []"),
        ([DIVISION | {"wordings": "one"}], "wordings: expected a list of wordings, got 'one'"),
        (
            [DIVISION | {"wordings": [3]}],
            "expected a wording: a text, or",
        ),
        ([DIVISION | {"wordings": ["{all} {open}"]}], "a wording without a constant part"),
        ([DIVISION | {"cure": 3}], "cure: expected a text, got 3"),
        ([DIVISION | {"x": 3}], "unknown key 'x': expected id, cause"),
        ([OTHER | {"cases": [OTHER["cases"][0] | {"when": {}}]}], "a case needs a condition"),
        ([OTHER | {"cases": [OTHER["cases"][0] | {"when": {"n": "1"}}]}], "no wording has {n}"),
        ([DIVISION | {"cure": 'print(f"{epoch}")'}], "no wording has {epoch}"),
        ([OTHER | {"cases": [OTHER["cases"][1] | {"near": "("}]}], "is not a regular expression"),
        *(
            ([OTHER | {"cases": [OTHER["cases"][1] | {"numbers": [relation]}]}], message)
            for relation, message in {
                "k > 3": "no wording has {k}",
                "product(k) == 2 * j": "no wording has {j}, {k}",
                "k": "'k': expected two terms with a relation between them",
                "k > ": "expected two terms",
                "k like 3": "expected two terms",
            }.items()
        ),
    ],
)
def test_invalid_message_raises_one_line_error(book, rows, message):
    if isinstance(rows, str):
        (book.root / "book/messages/python.yml").write_text(rows, "utf8")
    else:
        write(book.root, rows)
    with pytest.raises(BookError, match=re.escape(message)) as raised:
        messages.load(book)
    assert "\n" not in str(raised.value)
    done = [line for line in check(book) if message in line]
    assert done and all("messages/python.yml" in line for line in done)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"id": "unexpected-end"},
            "yml:12: unexpected-end: the id 'unexpected-end' is also that of "
            "book/messages/python.yml:30: unexpected-end",
        ),
        (
            {"wordings": OTHER["wordings"]},
            f"yml:12: division-by-zero: the wording {TAKEN!r} is also that of "
            "book/messages/python.yml:20: unexpected-keyword",
        ),
        ({"section": "nowhere"}, "no chapter 'nowhere'"),
        ({"section": "failing#nowhere"}, "failing has no cell 'nowhere'"),
        ({"cause": {"en": "x", "zh": "中文,中文"}}, "half-width"),
    ],
)
def test_conflicting_message_is_reported(book, change, message):
    write(book.root, [DIVISION | change, OTHER])
    assert any(message in line for line in check(book))


def test_duplicate_key_raises_with_both_lines(book):
    path = book.root / "book/messages/python.yml"
    text = path.read_text("utf8")
    path.write_text(
        text.replace("  section: failing", "  section: gone\n  section: failing"), "utf8"
    )
    with pytest.raises(BookError, match="python.yml:20: the key 'section' is given twice.*line 19"):
        messages.load(book)


def test_misspelt_wording_field_raises_with_a_suggestion(book):
    wording = {"text": OTHER["wordings"][0], "foudn": "torch"}
    write(book.root, [DIVISION, OTHER | {"wordings": [wording]}])
    with pytest.raises(BookError, match="unknown key 'foudn': did you mean found"):
        messages.load(book)


def test_family_without_a_page_is_reported(book):
    toc = book.root / "_toc.yml"
    toc.write_text(toc.read_text().replace("errors_python", "errors_of_python"))
    message = "book/messages/python.yml: _toc.yml does not list errors_python"
    assert message in check(Book(book.root))


def test_section_of_a_cell_is_its_last_heading(book):
    entry = messages.load(book)[0]
    entry.section = "failing#failing-recap"
    assert outline.locate_section(book, entry.section, entry.where)[0] == "failing.ipynb#recap"
    entry.section = "failing#failing-error"
    assert outline.locate_section(book, entry.section, entry.where)[0] == "failing.ipynb"


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_family_page_shows_cause_cure_section_and_raising_cells(book, lang):
    text = (book.root / f"book/{lang}/errors_python.md").read_text("utf8")
    item = text[text.index('<li id="division-by-zero"') :].partition("\n</li>\n")[0]
    assert "\n\n" not in item, "an empty line would end the HTML"
    assert "<code>ZeroDivisionError: division by zero</code>" in item
    cause = {"en": "not <code><var>object</var></code>", "zh": "除数是 0"}[lang]
    assert f'<p class="cause">{"The divisor is 0, " if lang == "en" else ""}{cause}' in item
    assert "if n:\n<span></span>\n    x / n  # &lt;only&gt; then" in item
    title = {"en": "Divide by zero", "zh": "除以零"}[lang]
    assert f'→ <a href="failing.html">{title}</a>' in item
    reason = {"en": "The divisor is zero.", "zh": "除数为零。"}[lang]
    assert 'class="seen"' in item and reason in item
    assert '<div class="case" id="unexpected-end">' in text and "data-" not in item


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_error_list_links_messages_and_keeps_case_ids(book, lang):
    text = (book.root / f"book/{lang}/errors.md").read_text("utf8")
    page = BeautifulSoup(text, "html.parser")
    division, keyword = page.select(".error-lines > li")
    assert division["id"] == DIVISION["id"] and text.count("division by zero") == 1
    assert division.a["href"] == f"errors_python.html#{DIVISION['id']}"
    assert [case["id"] for case in keyword.select("span")] == ["unexpected-end", "unexpected-near"]


def script(book, lang, name):
    """Return the value that a script of the pages sets."""
    text = (book.root / pages.SCRIPTS / lang / name).read_text("utf8")
    before = "||{}," if "||{}," in text else "="
    return json.loads(text.partition(before)[2].rstrip(");\n"))


def rows(columns: dict[str, list]) -> list[dict]:
    """Return rows from their columns, in which 0 stands for a missing value."""
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value}
        for values in zip(*columns.values(), strict=True)
    ]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_scripts_match_the_messages_of_the_package(book, lang):
    older = "TypeError: '<{name}>' & \"no\" keyword"
    wordings = [*OTHER["wordings"], {"text": older, "until": "2.1"}]
    write(
        book.root, [DIVISION | {"cure_zh": "# 中文"}, OTHER | {"wordings": wordings, "wraps": True}]
    )
    pages.write_messages(book)
    pages.write(book)
    product = json.loads((book.root / PRODUCT).read_text("utf8"))
    matching, advice = script(book, lang, "messages.js"), script(book, lang, "errors_python.js")
    rules = message_data.matcher()
    assert product["matcher"] == rules
    unknown = matching["matcher"].pop("unknown")
    assert matching["matcher"] == {key: rule for key, rule in rules.items() if key != "unknown"}
    assert unknown["own"] == {lang: rules["unknown"]["own"][lang]}
    assert [kind[lang] for kind in unknown["kinds"]] == [k[lang] for k in rules["unknown"]["kinds"]]
    special = iter(rows(matching["cases"]))
    for whole, part in zip(product["messages"], rows(matching["columns"]), strict=True):
        if "cases" in part:
            part["cases"] = [next(special) for _ in range(part["cases"])]
        part["wordings"] = [whole["wordings"][0], *part.get("wordings", [])]
        assert {"id": whole["id"]} | part == without_advice(whole)
        own = advice[whole["id"]]
        assert own["cause"] == whole["cause"][lang]
        cases = own.get("cases", {}).items()
        assert {id_: case["title"] + case["cause"] for id_, case in cases} == {
            case["id"]: case["cause"][lang] for case in whole.get("cases", ())
        }
    division, keyword = advice[DIVISION["id"]], advice[OTHER["id"]]
    assert division["cure"] == ("# 中文" if lang == "zh" else DIVISION["cure"])
    assert division["section"]["href"] == "failing.html" and keyword["until"] == ["2.1"]
    (place,) = division["seen"]
    assert place["href"] == "failing.html" and place["cause"]


def without_advice(values):
    names = ("id", "wordings", "when", "near", "wraps")
    kept = {name: values[name] for name in names if name in values}
    cases = [without_advice(case) for case in values.get("cases", ())]
    return kept | ({"cases": cases} if cases else {})


def test_every_family_has_a_page_with_an_edit_link():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    (entry,) = (c for p in toc["parts"] for c in p["chapters"] if c["file"] == "errors")
    listed = [section["file"] for section in entry["sections"]]
    assert listed == [family.page for family in messages.families(Book(ROOT))]
    assert all((ROOT / (source(None, page) or "nowhere")).is_file() for page in listed)


def test_changed_message_makes_the_packaged_file_stale(book, quick):
    write(book.root, [DIVISION | {"cure": "x = 1"}, OTHER])
    path = book.root / PRODUCT
    assert list(pages.problems(book)) == [f"{PRODUCT}: stale; run `book update`"]
    assert update(book, echo=lambda line: None) == {}
    assert list(pages.problems(book)) == []
    path.unlink()
    assert len(list(pages.problems(book))) == 1
    pages.write_messages(book)
    assert json.loads((book.root / PRODUCT).read_text("utf8"))["messages"][0]["cure"] == "x = 1"


# ---------------------------------------------------------------- proofs


def test_unproved_wordings_are_reported(book, monkeypatch):
    rows = [
        DIVISION,  # a cell raises it
        OTHER,
        {k: v for k, v in OTHER.items() if k != "cases"}
        | {"id": "other-type", "wordings": ["TypeError: no such words"]},
        {**DIVISION, "id": "by-nobody", "wordings": ["ValueError: never said here"]},
        {**DIVISION, "id": "by-word", "wordings": ["ValueError: and so on"], "found": "I know it"},
        {
            **DIVISION,
            "id": "in-torch",
            "wordings": ["OSError: constant of it {x}"],
            "found": "torch",
        },
        {
            **DIVISION,
            "id": "not-in-torch",
            "wordings": ["OSError: another long one"],
            "found": "torch",
        },
        {**DIVISION, "id": "a-thread", "wordings": ["E: linked"], "found": "https://example.org/1"},
    ]
    write(book.root, rows)
    (book.root / "torch").mkdir()
    (book.root / "torch/lib.so.1").write_bytes(b"\0\1constant of it \0")
    found = [*message_proofs.unproved(book, messages.load(book), [book.root / "torch"])]
    assert [line.split(": ")[1] for line in found] == [
        "other-type",
        "by-nobody",
        "by-word",
        "not-in-torch",
    ]
    monkeypatch.chdir(book.root)
    done = CliRunner().invoke(main, ["messages", "unexpected-keyword"])
    assert done.exit_code == 0, done.output


@pytest.mark.rest
def test_every_wording_of_the_book_is_proved(monkeypatch):
    """Find a proof for each wording: a run, the installed PyTorch, a cell, or a public source.

    All runs are forks of one process, because importing PyTorch takes longer than most runs.
    """
    book = Book(ROOT)
    entries = messages.load(book)
    monkeypatch.setattr(message_proofs, "not_in", lambda wordings, folders: [])  # tested below
    assert [*message_proofs.unproved(book, entries, [])] == []
    assert len(entries) >= 1000


@pytest.mark.rest
def test_installed_packages_contain_the_torch_wordings():
    installed = [Path(find_spec(name).origin).parent for name in ("torch", "torchvision")]
    wordings = [
        text
        for entry in messages.load(Book(ROOT))
        for text, proof in zip(entry.wordings, entry.proofs, strict=True)
        if proof == messages.TORCH
    ]
    assert len(wordings) >= 200
    assert message_proofs.not_in(wordings, installed) == []


def test_every_error_of_the_book_has_an_entry():
    book = Book(ROOT)
    search = explain.Messages([{"wordings": e.wordings} for e in messages.load(book)])
    ours = "".join(p.read_text("utf8") for p in (ROOT / "src/helpers").rglob("*.py"))
    lacking = []
    for name in book.texts:
        for cell in code_cells(read(book.notebook("en", name))):
            for output in cell.outputs:
                if output.output_type == "error" and output.evalue[-20:] not in ours:
                    text = f"{output.ename}: {output.evalue}"
                    if not search.whole(plain(text)):
                        lacking.append((name, cell.id, text))
    assert not lacking


def test_cells_with_message_finds_raising_cells():
    book = Book(ROOT)
    mine, entries = chapters(book)["en"], messages.load(book)
    text = message_proofs.cells_with_message(entries, {c.name: c.notebook for c in mine})
    links = [place["href"] for place in error_list.seen_in(mine, text)["no-grad-fn"]]
    assert any("detach.html" in link for link in links) and len(links) > 2


# ---------------------------------------------------------------- Python and browser


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("x = 1  # short", "x = 1  # short"),
        (f"  y = f({'a' * 60})    # why", f"  # why\n  y = f({'a' * 60})"),
        ("x = 1  # " + "中" * 33, "# " + "中" * 33 + "\nx = 1"),
        ("a()      # one\nb(1)" + " " * 70 + "# two", "a()   # one\nb(1)  # two"),
        ("a()  # one\nb(1)  # " + "t" * 70, "# one\na()\n# " + "t" * 70 + "\nb(1)"),
        ("# " + "a" * 90, "# " + "a" * 90),
        ("f(" + "a" * 90 + ")", "f(" + "a" * 90 + ")"),
        ("", ""),
    ],
)
def test_comments_too_wide_for_the_page_move_above_the_code(code, shown):
    assert message_data.comments_above(code) == shown
    assert message_data.comments_above(shown) == shown


@pytest.fixture(scope="module")
def engine():
    from py_mini_racer import MiniRacer

    js = MiniRacer()
    js.eval((ROOT / "book/_static/errors.js").read_text("utf8"))
    shipped = (ROOT / PRODUCT).read_text("utf8")
    js.eval(f"const product = {shipped}; const shipped = product.messages;")
    js.eval("const search = new Messages(shipped, product.matcher);")
    js.eval("const shown = (...parts) => search.rules.shown(...parts);")
    yield js
    js.close()


def in_browser(engine, pasted):
    call = f"""JSON.stringify(search.find({json.dumps(pasted)}).map(a =>
      [(a.case || shipped[a.entry]).id, a.sure, a.score, a.values, a.head || []]))"""
    return json.loads(engine.eval(call))


def in_python(pasted):
    found = explain.messages().find(pasted)
    return [[a.id, a.sure, a.score, a.values, a.head] for a in found]


def same(engine, pasted):
    browser, python = in_browser(engine, pasted), in_python(pasted)
    assert [a[:2] for a in browser] == [a[:2] for a in python], pasted
    assert [a[3:] for a in browser] == [a[3:] for a in python]
    line = own_line(pasted)
    assert json.loads(engine.eval(f"JSON.stringify(search.ownLine({json.dumps(pasted)}))")) == (
        list(line) if line else None
    )
    assert [a[2] for a in browser] == pytest.approx([a[2] for a in python])
    for answer in explain.messages().find(pasted)[:1]:
        text = (answer.case or answer.entry)["cause"]["en"]
        shown = engine.eval(f'shown("sentences", {json.dumps(text)}, {json.dumps(answer.values)})')
        assert shown == filled(text, answer.values)
    known = json.loads(engine.eval(f"JSON.stringify(search.unknown({json.dumps(pasted)}))"))
    assert known == unknown(pasted)
    if known:
        shown = engine.eval(f'search.advised({json.dumps(known)}, "en").join(" ")')
        assert shown.split() == advised(known, "en").split()


def test_python_and_browser_agree_on_pasted_messages(engine):
    with (ROOT / "tests/messages/pasted.tsv").open(encoding="utf8") as file:
        rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    for row in rows:
        same(engine, row["message"].replace("\\n", "\n"))


@pytest.mark.parametrize(
    "name", ['module name can\'t contain "."', "it's", "['a', 'b'] is", " 'x'."]
)
@pytest.mark.parametrize("after", ["", "\n", " 请问", "\n'b' and 'c'"])
def test_python_and_browser_agree_on_quotes_in_values(engine, name, after):
    for wording in ("KeyError: {0}", "ValueError: {0} is not in list", "AttributeError: {0}"):
        same(engine, wording.format(repr(name)) + after)


ALL_FORMS = FORMS | CHAINS


@pytest.mark.parametrize("form", ALL_FORMS)
def test_python_and_browser_agree_on_every_form(engine, form):
    with (ROOT / "tests/messages/pasted.tsv").open(encoding="utf8") as file:
        rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    for row in rows[[*ALL_FORMS].index(form) :: 60]:
        same(engine, ALL_FORMS[form](row["message"].replace("\\n", "\n")))


@given(
    st.sampled_from(list(RELATIONS)),
    st.lists(
        st.sampled_from(["n", "m", "3", "2 * n", "product(n)", "leading(n)", "other"]), min_size=2
    ),
    st.lists(
        st.integers(0, 99).map(str) | st.sampled_from(["[2, 3]", "2.5 GiB", "512 MB", "x"]),
        min_size=2,
    ),
)
def test_python_and_browser_agree_on_number_relations(engine, name, terms, numbers):
    relation, values = f"{terms[0]} {name} {terms[1]}", dict(zip("nm", numbers, strict=False))
    call = f"search.related({json.dumps(relation)}, {json.dumps(values)})"
    assert engine.eval(call) is related(relation, values)


LONG = [  # texts that take seconds in quadratic time
    "a" * 20_000,
    "a." * 10_000,
    "f0" * 9_500 + " UNKNOWN error",
    "\\" * 20_000,
    "tensorflow." * 1_800,
    "xla/" * 5_000,
    "(a pid=1 \n" * 2_000,
]
WORDINGS = [text for e in explain.messages().entries for text in e["wordings"]]
SPACES = ["\r", "\x0b", "\x1f", "\x85", "\u2028", "\u3000", "\ufeff"]  # \s of one language or both
PIECES = [
    "RuntimeError: ",
    *SPACES,
    'File "a.py", line 3',
    "\n",
    "[rank0]: ",
    "(3, 4)",
    "[2]",
    "'",
    "“",
    "，",
    "cuda:0",
    "中",
]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(WORDINGS),
            st.sampled_from(WORDINGS).map(lambda w: w[: len(w) // 2]),
            st.sampled_from(PIECES),
            st.text(max_size=12),
        ),
        max_size=5,
    ).map(" ".join)
)
@settings(max_examples=150, deadline=None)
def test_python_and_browser_agree_on_any_text(engine, pasted):
    same(engine, pasted)


@pytest.mark.parametrize(
    ("part", "values", "left"),
    [
        ("sentences", {}, "Print x.y. End."),
        ("sentences", {"name": "a"}, "It is a. Print x.y. End."),
        ("steps", {}, "\nprint(x)"),
        ("steps", {"name": "a"}, "# which\n  # version?\npip show a\n\nprint(x)"),
    ],
)
def test_sentences_and_steps_without_a_value_are_left_out(engine, part, values, left):
    text = {
        "sentences": "It is {name}. Print x.y. End.",
        "steps": "# which\n  # version?\npip show {name}\n\nprint(x)",
    }[part]
    parts = PATTERNS[part].findall(text)
    assert "".join(with_values(parts, values)) == left
    call = ", ".join(map(json.dumps, (part, text, values)))
    assert engine.eval(f"shown({call})") == left
    assert with_values(["all of {name}"], {}) == ["all of name"]


@pytest.mark.parametrize("space", SPACES)
def test_python_and_browser_agree_on_any_whitespace(engine, space):
    same(engine, f"ImportError: cannot import name 'P {space} RuntimeError: Can't call numpy() on")
    same(engine, f"{space}RuntimeError:{space}CUDA{space}error:{space}invalid{space}")
    same(engine, f'File "a{space}.py", line 3\n{space}ValueError: {space}')
    assert " ".join(plain(f"{space}a{space}{space}b\n{space}").split()) == "a b"


@pytest.mark.parametrize("text", LONG, ids=[text[:12] for text in LONG])
def test_browser_search_is_linear_in_word_length(engine, text):
    begun = time.process_time()
    same(engine, text)
    assert time.process_time() - begun < 5  # seconds; quadratic time would take about 20


@pytest.mark.parametrize(
    ("cause", "title"),
    [
        ("The mask is 1-D. Reshape it.", "The mask is 1-D. "),
        ("The image is None: imread failed.", "The image is None: "),
        ("`x: y. z` is wrong. Use w.", "`x: y. z` is wrong. "),
        ("It crashed (signal 11. or 6): look.", "It crashed (signal 11. or 6): "),
        ("图像是 None：没有读到。", "图像是 None："),
        ("进程崩溃了（信号 11。或 6）。请看日志。", "进程崩溃了（信号 11。或 6）。"),
        ("Only one sentence.", "Only one sentence."),
    ],
)
def test_first_clause_of_a_case_becomes_its_title(cause, title):
    case = message_data.titled({"cause": cause, "cure": "x"})
    assert case["title"] == title and case["title"] + case["cause"] == cause
    assert case["cure"] == "x" and list(case) == ["title", "cause", "cure"]
