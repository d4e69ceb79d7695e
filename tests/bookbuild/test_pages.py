"""The pages made from the chapters, on a tiny book; and the search for errors, on the real one."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from docutils import nodes
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_output

from bookbuild import headings as headings_
from bookbuild import pages
from bookbuild.book import Book, BookError
from bookbuild.check import check
from bookbuild.cli import main
from bookbuild.headings import Heading, anchors, headings
from bookbuild.pages import errors, status, words
from bookbuild.pages.chapters import chapters
from bookbuild.text import load
from bookbuild.typography import lint
from bookbuild.update import update
from helpers import recorded

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["errors.md", "then_and_now.md"]

ODD_HEADINGS = {
    "Writing through `.data` is not caught": "通过 `.data` 写入不会被发现",
    "Why? Because: it's (nearly) free!": "为什么？因为几乎免费",
    "`torch.nn.functional.cross_entropy` & co.": "`cross_entropy` 等",
    "中文标题": "中文标题二",
    "Recap": "小结",
    "  Recap  ": "再次小结",
    "1. Train *only* **B**": "1. 只训练 **B**",
    "A [link](https://example.org/a_b) inside": "里面有[链接](https://example.org/a_b)",
    "data_ptr and __init__": "`data_ptr` 与 `__init__`",
    "C++ / CUDA <= 12.4": "C++ 与 CUDA 12.4",
    "Recap 2": "小结之二",
    "Größe café": "大小",
    "$x^2$ at 2": "$x^2$ 在 2 处",
    "Recap ##": "末尾带井号",
}


def code(cell_id, source, *outputs, **metadata):
    return new_code_cell(source, id=cell_id, outputs=list(outputs), metadata=metadata)


def result(text):
    return new_output("execute_result", {"text/plain": text}, execution_count=1)


def error(name, message):
    return new_output("error", ename=name, evalue=message, traceback=[f"{name}: {message}"])


MORE = """
%%% code adding-start
```python
import math
one = 1
```

%%% md adding-pi-what
## Use `math.pi`

It is a number.
%%% zh
## 使用 `math.pi`

它是一个数。

%%% code adding-pi claims=A-1
```python
round(math.pi) + one
```

%%% code adding-error tags=raises-exception
```python
0 / 0
```
%%% cause
Nothing divided by nothing.
%%% zh
零除以零。

%%% md adding-recap
"""
SILENT = """
%%% md failing-silent
## Fail in silence

Nothing is said.
%%% zh
## 悄悄失败

什么也不说。

%%% code failing-two
```python
two = 2  # a number
two
```

%%% md failing-recap
"""


@pytest.fixture(scope="session")
def larger(template, in_process, tmp_path_factory):
    """The tiny book with the same error in two chapters, a claim that a cell proves."""
    root = tmp_path_factory.mktemp("larger")
    shutil.copytree(template, root, dirs_exist_ok=True)
    for name, more in (("adding", MORE), ("failing", SILENT)):
        path = root / f"book/text/{name}.md"
        text = path.read_text("utf8").replace(" claims=A-1", "")
        path.write_text(text.replace(f"%%% md {name}-recap\n", more.strip("\n") + "\n"), "utf8")
    with pytest.MonkeyPatch.context() as patch:
        in_process(patch)
        assert update(Book(root), echo=lambda line: None) == []
    pages.write_status(Book(root))
    return root


@pytest.fixture
def book(larger, tmp_path):
    shutil.copytree(larger, tmp_path, dirs_exist_ok=True)
    return Book(tmp_path)


def text_of(book, lang, name):
    return (book.root / "book" / lang / name).read_text("utf8")


def built_headings(tmp_path, lang):
    """The anchors that Sphinx gives to the sections of a page with odd headings."""
    from sphinx.application import Sphinx

    from bookbuild.sphinx.languages import SameAnchors

    for code_, column in (("en", ODD_HEADINGS), ("zh", ODD_HEADINGS.values())):
        folder = tmp_path / "book" / code_
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.md").write_text("\n\n".join(f"## {h}" for h in ["Top", *column]), "utf8")
    app = Sphinx(
        tmp_path / "book" / lang,
        None,
        tmp_path / f"out-{lang}",
        tmp_path / f"trees-{lang}",
        "pseudoxml",
        confoverrides={
            "extensions": ["myst_parser"],
            "myst_heading_anchors": 3,
            "suppress_warnings": ["myst.header"],
        },
        status=None,
        warning=None,
    )
    app.add_transform(SameAnchors)
    app.build()
    tree = app.env.get_doctree("index")
    sections = list(tree.findall(nodes.section))
    every = [anchor for section in sections for anchor in section["ids"]]
    assert len(set(every)) == len(every)
    return [section["ids"][0] for section in sections]


# ---------------------------------------------------------------- anchors


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_anchors_are_those_of_the_site(tmp_path, lang):
    text = "\n\n".join(f"## {h}" for h in ["Top", *ODD_HEADINGS])
    built = built_headings(tmp_path, lang)
    assert anchors([plain for _, plain in headings(text)]) == built
    assert built[:7] == [
        "top",
        "writing-through-data-is-not-caught",
        "why-because-it-s-nearly-free",
        "torch-nn-functional-cross-entropy-co",
        "section",
        "recap",
        "recap-2",
    ]
    assert len(set(built)) == len(built)


def test_what_only_looks_like_a_heading_is_none():
    text = "```python\n# comment\n```\n\n#hashtag\n\n> # quoted\n\n    # indented\n\nTitle\n-----"
    assert headings(text) == (Heading("Title", "Title"),)
    assert headings("# A [link `x`](y.md) and `code`") == (
        Heading("A link `x` and `code`", "A link x and code"),
    )
    for none in (
        "words",
        "- item\n  # inside",
        "::::{note}\n# inside\n::::",
        "---\n# x\n---\n",
        "",
    ):
        assert headings(none) == ()


LINES = st.lists(st.text(st.sampled_from("#- =ab`<>:\\t*[]\\\\1."), max_size=8), max_size=5)


@given(LINES.map("\n".join))
@settings(max_examples=500, deadline=None)
def test_the_quick_way_to_headings_finds_what_the_parser_finds(text):
    quick = headings.__wrapped__(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headings_, "_HARD", re.compile(""))
        assert quick == headings.__wrapped__(text)


def test_sections_are_those_of_the_english_headings(book):
    for lang, title in (("en", "Use `math.pi`"), ("zh", "使用 `math.pi`")):
        adding = chapters(book)[lang][0]
        assert adding.sections["adding-pi"].title == title
        assert adding.sections["adding-pi"].href == "adding.ipynb#use-math-pi"
        assert adding.sections["adding-numbers"].href == "adding.ipynb"
    assert [c.title for c in chapters(book)["zh"]] == ["两数相加", "除以零"]


# ---------------------------------------------------------------- stale or not


def test_fresh_pages_are_not_stale_and_generating_twice_changes_nothing(book):
    assert pages.stale(book) == []
    assert check(book) == []
    assert pages.generate(book) == []


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_edited_by_hand_or_missing_is_stale(book, lang, name):
    path = book.root / "book" / lang / name
    line = f"{lang}/{name}: stale; run `book update`"
    text = path.read_text("utf8")
    path.write_text(text.replace("1", "7", 1), "utf8")
    assert pages.stale(book) == [line]
    path.unlink()
    assert check(book) == [line]
    assert pages.generate(book) == [path]
    assert path.read_text("utf8") == text


def test_a_changed_chapter_makes_its_pages_stale(book, edit):
    def change(nb):
        next(c for c in nb.cells if c.id == "adding-error").outputs[0].evalue = "float division"

    edit("en", "adding", change)
    assert pages.stale(book) == ["en/errors.md: stale; run `book update`"]
    edit("zh", "failing", lambda nb: nb.cells[0].update(source="# 别除以零\n\n总会失败。"))
    assert [line.partition(":")[0] for line in pages.stale(book)] == [
        "en/errors.md",
        "zh/errors.md",
    ]


def test_changed_claims_make_then_and_now_stale(book):
    path = book.root / "book/claims.yml"
    path.write_text(path.read_text("utf8").replace("verdict: holds", "verdict: wrong"), "utf8")
    assert [line.partition(":")[0] for line in pages.stale(book)] == [
        "en/then_and_now.md",
        "zh/then_and_now.md",
    ]


def test_a_chapter_that_cannot_be_read_is_named(book):
    book.notebook("zh", "adding").write_text("{}")
    assert pages.stale(book) == [
        "generated pages not compared: zh/adding.ipynb: not a notebook: no cells in format 4"
    ]
    with pytest.raises(BookError, match="zh/adding"):
        pages.generate(book)


def test_a_chapter_half_edited_is_stale_and_no_crash(book, edit):
    def rename(nb):
        for cell in nb.cells[3:]:
            cell.id += "-new"

    for lang in ("en", "zh"):
        edit(lang, "adding", rename)
        assert all("stale" in line for line in pages.stale(book))


def test_every_page_says_how_it_is_made(book):
    for lang in ("en", "zh"):
        for name in ("errors.md", "then_and_now.md", "status.md"):
            lines = text_of(book, lang, name).splitlines()
            assert lines[:1] == ["---"] and lines[1].startswith("# Generated by `book update`")
            assert yaml.safe_load(text_of(book, lang, name).split("---")[1])["summary"]


def test_the_command_writes_what_is_missing(book, quick, monkeypatch):
    monkeypatch.chdir(book.root)
    (book.root / "book/en/errors.md").unlink()
    done = CliRunner().invoke(main, ["update"])
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "book/en/errors.md: written")


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_same_error_stands_once_with_all_its_places(book, lang):
    found = errors.errors(book, chapters(book)[lang])
    assert [e.text for e in found] == ["ZeroDivisionError: division by zero"]
    assert (
        found[0].causes
        == {
            "en": ["Nothing divided by nothing.", "The divisor is zero."],
            "zh": ["零除以零。", "除数为零。"],
        }[lang]
    )
    assert (
        found[0].links
        == {
            "en": [
                "[Add two numbers › Use `math.pi`](adding.ipynb#use-math-pi)",
                "[Divide by zero](failing.ipynb)",
            ],
            "zh": [
                "[两数相加 › 使用 `math.pi`](adding.ipynb#use-math-pi)",
                "[除以零](failing.ipynb)",
            ],
        }[lang]
    )
    text = text_of(book, lang, "errors.md")
    assert text.count("<li ") == 1
    assert all(piece in text for piece in found[0].causes + found[0].links)
    assert '<label for="error-search">' in text and 'aria-live="polite"' in text


def test_an_error_raised_twice_in_a_section_has_one_link(book, edit):
    def again(nb):
        cell = next(c for c in nb.cells if c.id == "adding-error")
        cell.outputs = cell.outputs * 2

    edit("en", "adding", again)
    found = errors.errors(book, chapters(book)["en"])
    assert [(len(e.causes), len(e.links)) for e in found] == [(2, 2)]


def versions(book, differs=("adding-error",)):
    runs = {
        version: {
            "date": "2026-01-02",
            "chapters": ["adding"],
            "differs": {"adding": {cell: "OldError: divided" for cell in cells}},
        }
        for version, cells in (("2.11.0", differs), ("2.9.1", differs), ("2.15.0", ()))
    }
    (book.root / "book/versions.json").write_text(json.dumps(runs))


def test_the_wording_of_another_version_is_found_too(book):
    versions(book)
    now, old = errors.errors(book, chapters(book)["en"])
    assert (now.text, old.text) == ("ZeroDivisionError: division by zero", "OldError: divided")
    assert now.versions == [] and old.versions == ["2.9.1", "2.11.0"]
    assert old.causes == now.causes[:1] and old.links == now.links[:1]
    for lang, line in (
        ("en", "This is how PyTorch 2.9.1, 2.11.0 says it."),
        ("zh", "这是 PyTorch 2.9.1、2.11.0 的措辞。"),
    ):
        assert line in errors.render(book, lang, chapters(book)[lang])


def test_any_message_survives_the_way_to_the_page(book, edit):
    messages = ["x" * 400 + " end", 'a "b" <c> & `d`\n\n\tnext\'s', "``` - # *not* _markup_", ""]

    def raise_them(nb):
        cell = next(c for c in nb.cells if c.id == "adding-error")
        cell.outputs = [error("ValueError", message) for message in messages]

    edit("en", "adding", raise_them)
    text = errors.render(book, "en", chapters(book)["en"])
    # in one line each: an empty line would end the HTML
    stored = [html.unescape(m) for m in re.findall(r'^<li data-error="([^"\n]*)">$', text, re.M)]
    expected = [f"ValueError: {m}" if m else "ValueError" for m in messages]
    assert stored == [*expected, "ZeroDivisionError: division by zero"]
    shown = re.findall(r'<li data-error="[^"]*">\n\n(`.*`)\n', text)
    assert len(shown) == 5
    assert len(shown[0]) <= errors.SHOWN + 3 and "…" in shown[0]

    from markdown_it import MarkdownIt

    rendered = MarkdownIt().render(shown[1] + "\n\n" + shown[2])
    assert re.findall("<code>(.*?)</code>", rendered) == [
        html.escape('ValueError: a "b" <c> & `d` next\'s', quote=False).replace('"', "&quot;"),
        "ValueError: ``` - # *not* _markup_",
    ]


# ---------------------------------------------------------------- then and now


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_then_and_now_shows_each_claim_with_verdict_and_proof(book, lang):
    text = text_of(book, lang, "then_and_now.md")
    w = words.words(lang)
    claim = text[text.index('<div class="claim-card" id="A-1"') :]
    assert 'data-verdict="holds"' in claim
    assert f'<span class="verdict holds">{w["holds"]}</span>' in claim
    assert {"en": "One and one make two.", "zh": "一加一等于二。"}[lang] in claim
    assert {"en": "note 000, line 1 ", "zh": "笔记 000，第 1 行"}[lang] in claim
    title = {"en": "Use `math.pi`", "zh": "使用 `math.pi`"}[lang]
    assert f"[{title}](adding.ipynb#use-math-pi)" in claim
    assert f'value="holds"> {w["holds"]} <b>1</b>' in text
    assert f'value="all" checked> {w["all"]} <b>1</b>' in text


def test_then_and_now_gives_versions_reasons_and_links_between_claims(book):
    rows = yaml.safe_load((book.root / "book/claims.yml").read_text("utf8"))
    says = {"en": "Two.", "zh": "二。"}
    today = {"en": "See A-1, not A-9.", "zh": "见 A-1。"}
    reason = {"en": "A slip of the text.", "zh": "文字笔误。"}
    row = {"note": "link", "verdict": "wrong", "says": says, "today": today, "proof": reason}
    rows["adding"] += [row | {"id": "A-2", "since": "1.10"}]
    rows["gone"] = [row | {"id": "G-1"}]
    path = book.root / "book/claims.yml"
    path.write_text(yaml.safe_dump(rows, allow_unicode=True), "utf8")
    pages.generate(book)
    for lang, parts in {
        "en": ["since PyTorch 1.10", "No cell: A slip of the text.", "not A-9."],
        "zh": ["自 PyTorch 1.10 起", "没有单元格：文字笔误。"],
    }.items():
        text = text_of(book, lang, "then_and_now.md")
        card = text[text.index('id="A-2"') :]
        assert all(part in card for part in [*parts, '<a href="#A-1">A-1</a>'])
        assert "G-1" not in text and 'value="all" checked>' in text
        assert "<b>2</b>" in text and "<b>3</b>" not in text


# ---------------------------------------------------------------- status


def test_status_is_written_but_never_stale(book):
    path = book.root / "book/en/status.md"
    assert path.exists()
    path.unlink()
    assert pages.stale(book) == []
    assert pages.write_status(book) == [path]
    run = {"cpu": {"date": "2026-01-02", "torch": "2.14.1", "seconds": 7}}
    validated = book.root / "book/validated.json"
    validated.write_text(json.dumps({"zh/adding": run, "en/failing": {}}))
    assert pages.stale(book) == []
    pages.write_status(book)
    for lang, told in (("en", "not yet"), ("zh", "尚未")):
        lines = [line for line in text_of(book, lang, "status.md").splitlines() if "| [" in line]
        assert ["2.14.1" in line for line in lines] == [False, True, False, False]
        assert [told in line for line in lines] == [True, False, True, True]
    assert "PyTorch 2.14.1, CPU, 2026-01-02, 7 s" in pages.status_table(book)
    validated.write_text("{")
    with pytest.raises(BookError, match="validated.json"):
        pages.write_status(book)


def test_status_shows_what_differs_under_other_versions(book):
    found = chapters(book)
    assert "Other versions" not in status.render(book, "en", found)
    versions(book)
    text = status.render(book, "en", found)
    assert "| Chapter | 2.9.1 (2026-01-02) | 2.11.0 (2026-01-02) | 2.15.0 (2026-01-02) |" in text
    differs = "differs in [Use `math.pi`](adding.ipynb#use-math-pi)"
    assert f"| [Add two numbers](adding.ipynb) | {differs} | {differs} | the same |" in text
    assert "| [Divide by zero](failing.ipynb) | not run | not run | not run |" in text
    assert "不同之处：[使用 `math.pi`]" in status.render(book, "zh", found)
    (book.root / "book/versions.json").write_text("{")
    with pytest.raises(BookError, match=r"versions\.json: damaged"):
        status.render(book, "en", found)


def test_status_shows_the_health_of_the_translation(book, mend, quick):
    pieces = len(list(load(book, "adding").pieces()))
    mend("adding", "The sum is printed.", "The sum is shown.")
    mend("adding", "%%% zh\n零除以零。\n", "")
    assert update(book, echo=lambda line: None) == []
    state = status.collect(book, chapters(book))[0].translation
    assert state["waiting"] == 2 and state["current"] > 2 and state.total() <= pieces
    current, total = state["current"], state.total()
    assert f"{current} of {total} current; 2 waiting" in pages.status_table(book)
    text = status.render(book, "zh", chapters(book))
    assert f"{total} 段中 {current} 段最新；2 段待更新" in text


def test_status_counts_cells_claims_and_recordings(book, monkeypatch):
    helpers = book.root / "src/helpers"
    (helpers / "recorded").mkdir(parents=True)
    monkeypatch.setitem(recorded.RECORDINGS, "adding", ("speed", "memory"))
    (helpers / "recorded/speed.json").write_text("{}")
    found = chapters(book)
    adding, failing = status.collect(book, found)
    assert adding.recordings == {"speed": True, "memory": False}
    assert (adding.cells, adding.claims) == (7, (1, 1))
    assert (failing.cells, failing.claims, failing.recordings) == (5, (0, 0), {})
    assert "`speed`: recorded; `memory`: not recorded" in status.render(book, "en", found)
    monkeypatch.chdir(book.root)
    done = CliRunner().invoke(main, ["status"])
    assert done.exit_code == 0
    assert re.search(r"adding +中文 +not yet +(\d+) of \1 current", done.output)


# ---------------------------------------------------------------- words


def test_the_words_of_the_pages_are_chinese_on_chinese_pages():
    english, chinese = words.words("en"), words.words("zh")
    for key, text in chinese.items():
        assert lint(re.sub(r"{\w*}", "7", text)) == [], key
        assert set(re.findall(r"{\w*}", text)) <= set(re.findall(r"{\w*}", english[key]))
        assert text != english[key] or not re.search("[A-Za-z]", text)


# ---------------------------------------------------------------- the search for errors

FRAMES = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 31, in <module>
    main()
  File "/home/me/train.py", line 12, in main
    loss = criterion(model(inputs), targets)
  File "/opt/env/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1773, in _call_impl
    return forward_call(*args, **kwargs)
"""
OTHERS = [
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x3 and 4x5)",
    "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Double",
    "RuntimeError: expected scalar type Long but found Float",
    "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at "
    "non-singleton dimension 1",
    "ValueError: Expected input batch_size (3) to match target batch_size (4).",
    "IndexError: Target 5 is out of bounds.",
    "IndexError: index 5 is out of bounds for dimension 0 with size 3",
    "KeyError: 'params'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'checkpoint.pth.tar'",
    "AttributeError: 'DataParallel' object has no attribute 'fc'",
    "AttributeError: module 'torch.nn' has no attribute 'Tensor'",
    "RuntimeError: CUDA error: device-side assert triggered",
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
    "capacity of 7.75 GiB of which 10.00 MiB is free.",
    'RuntimeError: Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: '
    '"weight", "bias". \n\tUnexpected key(s) in state_dict: "module.weight", "module.bias". ',
    "RuntimeError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most "
    'recent call last):\n  File "torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n'
    "    data = fetcher.fetch(index)\nValueError: bad sample\n",
    "AssertionError",
    "AssertionError: Torch not compiled with CUDA enabled",
]  # fmt: skip


@pytest.fixture(scope="module")
def messages():
    real = [e.text for e in errors.errors(Book(ROOT), chapters(Book(ROOT))["en"])]
    return list(dict.fromkeys(real + OTHERS))


@pytest.fixture(scope="module")
def engine():
    from py_mini_racer import MiniRacer

    js = MiniRacer()
    js.eval((ROOT / "book/_static/errors.js").read_text("utf8"))
    yield js
    js.close()


@pytest.fixture(scope="module")
def find(engine, messages):
    """The messages that the page would show for a pasted text, best first."""

    def ask(pasted):
        call = f"JSON.stringify(rankErrors({json.dumps(pasted)}, {json.dumps(messages)}))"
        return [messages[n] for n, _ in json.loads(engine.eval(call))]

    return ask


def other_numbers(text, shift=3):
    return re.sub(r"\d+", lambda m: str(int(m[0]) * 7 + shift), text)


MUTATIONS = {
    "as it is": lambda m: m,
    "without its type": lambda m: m.partition(": ")[2] or m,
    "with the module of its type": lambda m: f"torch.cuda.{m}",
    "other numbers": other_numbers,
    "first two thirds": lambda m: m[: max(40, len(m) * 2 // 3)],
    "last two thirds": lambda m: m[-max(40, len(m) * 2 // 3) :],
    "another device": lambda m: re.sub(r"\bcpu\b", "cuda:3", m).replace("cuda:0", "mps:0"),
    "colours of a terminal": lambda m: f"\x1b[31m{m.replace(':', chr(27) + '[39m:', 1)}",
    "in a traceback": lambda m: FRAMES + m,
    "in a traceback, other numbers": lambda m: FRAMES + other_numbers(m),
    "in a traceback of one line": lambda m: (FRAMES + m).replace("\n", ""),
    "after another exception": lambda m: (
        f"{FRAMES}KeyError: 'weights'\n\nDuring handling of the above exception, another "
        f"exception occurred:\n\n{FRAMES}{m}"
    ),
    "with words after it": lambda m: f"{m}\n\nProcess finished with exit code 1",
    "in capitals and more spaces": lambda m: m.upper().replace(" ", "   "),
}


@pytest.mark.parametrize("how", MUTATIONS)
def test_a_message_changed_on_the_way_finds_its_error_first(engine, find, messages, how):
    def kind(text):
        """The book may raise a message twice, with other numbers, types or names."""
        return engine.eval(f"generalError({json.dumps(text)})")

    wrong = {}
    for message in messages:
        pasted = MUTATIONS[how](message)
        found = find(pasted)
        first = found[:1] == [message]
        if how != "as it is" and found:
            first = kind(found[0]) == kind(message) or pasted in found[0]
        if not first or message not in found:
            wrong[message] = found[:2]
    assert not wrong


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("shape [2, 3] and 4x5", "shape [7] and 32 × 784"),
        ("(3,) of torch.Size([])", "(3, 4) of torch.Size([2, 3])"),
        ("-1 at 0x7f12ab", "2.5e-3 at 0x55"),
        ("on cuda:0 and cpu!", "on cpu and mps!"),
        ("torch.FloatTensor", "torch.cuda.HalfTensor"),
        ("Float and torch.int64", "Double and bool"),
        ("20.00 MiB", "3 GB"),
        ("no 'fc' in \"a b\"", "no `layer4` in 'x'"),
        ("torch.cuda.OutOfMemoryError: x", "OutOfMemoryError:  X"),
        ("it doesn't and can't", "it doesn’t and can’t"),
    ],
)
def test_what_differs_between_readers_is_taken_out(engine, one, other):
    general = [engine.eval(f"generalError({json.dumps(text)})") for text in (one, other)]
    assert general[0] == general[1]


@pytest.mark.parametrize("text", ["doesn't", "can't say 'no'", "tensor", "a.b"])
def test_what_means_something_stays(engine, text):
    general = engine.eval(f"generalError({json.dumps(text)})")
    assert general == text.replace("'no'", "§name")


@given(st.lists(st.integers(0, 10**6), min_size=4, max_size=4), st.sampled_from([0, 1, 2]))
@settings(max_examples=30, deadline=None)
def test_shapes_do_not_matter(find, shape, where):
    a, b, c, d = shape
    text = f"mat1 and mat2 shapes cannot be multiplied ({a}x{b} and {c}x{d})"
    pasted = [text, f"RuntimeError: {text}", f"{FRAMES}RuntimeError: {text}"][where]
    found = find(pasted)
    assert found and all("mat1 and mat2 shapes cannot be multiplied (" in m for m in found)


@pytest.mark.parametrize(
    ("pasted", "found"),
    [
        ("KeyError: 'lr'", "KeyError: 'params'"),
        ("AttributeError: 'DataParallel' object has no attribute 'layer4'", "'fc'"),
        ("AttributeError: module 'torch' has no attribute 'foo'", "'torch.nn'"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.2 GiB", "20.00 MiB"),
        ("Missing key(s) in state_dict: \"conv1.weight\"", "Error(s) in loading"),
        ("No such file or directory: 'best.pth'", "directory: 'checkpoint.pth.tar'"),
        (f"{FRAMES}ModuleNotFoundError: No module named 'zymurgy'", "No module named 'my_project'"),
        ("ValueError: bad sample", "Caught ValueError in DataLoader worker"),
        ("AssertionError: Torch not", "Torch not compiled"),
        ("expected scalar type Half but found Float", "expected scalar type Long"),
    ],
)  # fmt: skip
def test_names_and_dtypes_do_not_matter(find, pasted, found):
    assert found in find(pasted)[0]


@pytest.mark.parametrize(
    "pasted",
    [
        "zymurgy qwertyuiop",
        "KeyboardInterrupt: nobody wrote about this zymurgy",
        f"{FRAMES}PickleRick: the lasagne is burning",
        FRAMES,
        f"{FRAMES}ValueError: bad thing in file",
        f"{FRAMES}ValueError: an odd thing on the disk",
        "RuntimeError: the loop of the year is broken",
        "RuntimeError: 'zymurgy' 7 cpu",
        "你好",
        "!!!",
    ],
)
def test_what_the_book_does_not_know_finds_nothing(find, pasted):
    assert find(pasted) == []


@pytest.mark.parametrize(
    "pasted",
    [
        "CUDA error: device-side assert triggered",
        f"{FRAMES}RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might "
        "be asynchronously reported at some other API call.\n",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
    ],
)
def test_words_quoted_in_an_explanation_are_found_where_no_message_is_near(engine, pasted):
    for lang, titles in chapters(Book(ROOT)).items():
        known = errors.errors(Book(ROOT), titles)
        arguments = [
            pasted,
            [e.text for e in known],
            [" ".join([e.text, *e.causes]) for e in known],
        ]
        found = json.loads(engine.eval(f"JSON.stringify(rankErrors(...{json.dumps(arguments)}))"))
        texts = [known[n].text for n, _ in found]
        assert "IndexError: Target 3 is out of bounds." in texts, lang
        assert all("out of" in text for text in texts)
        for other in ("it was on a GPU and then triggered nothing.", "zymurgy: on a GPU"):
            arguments[0] = f"PickleRick: {other}"
            assert engine.eval(f"rankErrors(...{json.dumps(arguments)}).length") == 0


def test_an_empty_field_ranks_nothing_and_a_huge_text_is_quick(find):
    import time

    assert find("  \n ") == []
    begun = time.perf_counter()
    assert find(FRAMES * 2000 + "IndexError: Target 9 is out of bounds.")[:1]
    assert find("A" * 200_000) == []
    assert time.perf_counter() - begun < 5
