"""Test the pages generated from the chapters of a small book."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from docutils import nodes
from nbformat.v4 import new_code_cell, new_output

from bookbuild import pages
from bookbuild.cli import main
from bookbuild.commands.check import check
from bookbuild.commands.update import update
from bookbuild.pages import status
from bookbuild.pages.chapters import chapters
from bookbuild.source import words
from bookbuild.source.checkout import Book, BookError
from bookbuild.source.headings import Heading, anchors, headings
from bookbuild.source.outline import outline
from bookbuild.source.texts import load
from bookbuild.source.typography import lint

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["errors.md", "then_and_now.md", "status.md"]

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
    """Build a small book with an error that occurs in two chapters and a claim with a proof."""
    root = tmp_path_factory.mktemp("larger")
    shutil.copytree(template, root, dirs_exist_ok=True)
    for name, more in (("adding", MORE), ("failing", SILENT)):
        path = root / f"book/text/{name}.md"
        text = path.read_text("utf8").replace(" claims=A-1", "")
        path.write_text(text.replace(f"%%% md {name}-recap\n", more.strip("\n") + "\n"), "utf8")
    with pytest.MonkeyPatch.context() as patch:
        in_process(patch)
        assert update(Book(root), echo=lambda line: None) == {}
    pages.write(Book(root))
    return root


@pytest.fixture
def book(larger, tmp_path):
    shutil.copytree(larger, tmp_path, dirs_exist_ok=True)
    return Book(tmp_path)


def text_of(book, lang, name):
    return (book.root / "book" / lang / name).read_text("utf8")


def built_headings(tmp_path, lang):
    """Return the anchors that Sphinx generates for a page with odd headings."""
    from sphinx.application import Sphinx

    from bookbuild.site.extensions.languages import SameAnchors

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
def test_anchors_match_those_of_the_site(tmp_path, lang):
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


def test_headings_ignores_lookalikes():
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


def test_cell_belongs_to_the_last_heading_before_it(book):
    path = book.text("adding")
    text = path.read_text("utf8")
    path.write_text(text.replace("Addition needs $a + b$.", "## One\n\n## Two"), "utf8")
    sections = outline(Book(book.root), "adding")
    assert sections.of_cell["adding-title"].href == "adding.ipynb"
    assert sections.of_cell["adding-numbers"].href == "adding.ipynb#two"
    assert sections.of_cell["adding-numbers"].titles["zh"].plain == "Two"  # no Chinese heading
    path.unlink()
    with pytest.raises(BookError, match="book/text/adding.md: there is no such file"):
        outline(Book(book.root), "adding")


def test_sections_use_the_english_headings(book):
    for lang, title in (("en", "Use `math.pi`"), ("zh", "使用 `math.pi`")):
        adding = chapters(book)[lang][0]
        assert adding.sections["adding-pi"].title == title
        assert adding.sections["adding-pi"].href == "adding.ipynb#use-math-pi"
        assert adding.sections["adding-numbers"].href == "adding.ipynb"
    assert [c.title for c in chapters(book)["zh"]] == ["两数相加", "除以零"]


# ---------------------------------------------------------------- pages that a build generates


def test_write_is_idempotent_and_check_writes_nothing(book):
    assert pages.write(book) == []
    for name in PAGES:
        (book.root / "book/en" / name).unlink()
    assert check(book) == []
    assert not (book.root / "book/en" / PAGES[0]).exists()
    assert [path.name for path in pages.write(book)] == PAGES


def test_update_writes_no_page(book, quick):
    before = text_of(book, "en", "then_and_now.md")
    path = book.root / "book/claims.yml"
    path.write_text(path.read_text("utf8").replace("verdict: holds", "verdict: wrong"), "utf8")
    assert update(book, echo=lambda line: None) == {}
    assert text_of(book, "en", "then_and_now.md") == before
    pages.write(book)
    assert text_of(book, "en", "then_and_now.md") != before


def test_git_ignores_every_built_page():
    files = [path for path, _ in pages._pages(Book(ROOT), chapters(Book(ROOT), ["detach"]))]
    names = [path.name for path in files if path.suffix == ".md"]
    command = ["git", "check-ignore", "--no-index", *(f"book/en/{name}" for name in names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == command[3:] and len(names) > 20


def test_unreadable_chapter_is_reported(book):
    book.notebook("zh", "adding").write_text("{}")
    assert list(pages.problems(book)) == [
        "zh/adding.ipynb: not a notebook: lacks nbformat, nbformat_minor, metadata, cells"
    ]
    with pytest.raises(BookError, match="zh/adding"):
        pages.write(book)


def test_damaged_claims_are_reported_once(book):
    path = book.root / "book/claims.yml"
    path.write_text("adding: [3]", "utf8")
    (line,) = [line for line in check(book) if "claims.yml" in line]
    assert list(pages.problems(book)) == [line]


def test_half_edited_chapter_causes_no_problem(book, edit):
    def rename(nb):
        for cell in nb.cells[3:]:
            cell.id += "-new"

    for lang in ("en", "zh"):
        edit(lang, "adding", rename)
        assert list(pages.problems(book)) == []


def test_every_page_states_its_generator(book):
    for lang in ("en", "zh"):
        for name in PAGES:
            lines = text_of(book, lang, name).splitlines()
            assert lines[:1] == ["---"] and lines[1].startswith("# Generated by `book build`")
            assert yaml.safe_load(text_of(book, lang, name).split("---")[1])["summary"]


# ---------------------------------------------------------------- then and now


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_then_and_now_shows_each_claim_with_verdict_and_proof(book, lang):
    text = text_of(book, lang, "then_and_now.md")
    w = words.words(lang, "then_and_now")
    claim = text[text.index('<div class="claim-card" id="A-1"') :]
    assert 'data-verdict="holds"' in claim
    assert f'<span class="verdict holds">{w["holds"]}</span>' in claim
    assert {"en": "One and one make two.", "zh": "一加一等于二。"}[lang] in claim
    assert {"en": "note 000, line 1 ", "zh": "笔记 000，第 1 行"}[lang] in claim
    title = {"en": "Use `math.pi`", "zh": "使用 `math.pi`"}[lang]
    assert f"[{title}](adding.ipynb#use-math-pi)" in claim
    assert f'value="holds"> {w["holds"]} <b>1</b>' in text
    assert f'value="all" checked> {w["all"]} <b>1</b>' in text


def test_then_and_now_shows_versions_reasons_and_claim_links(book):
    rows = yaml.safe_load((book.root / "book/claims.yml").read_text("utf8"))
    says = {"en": "Two.", "zh": "二。"}
    today = {"en": "See A-1, not A-9.", "zh": "见 A-1。"}
    reason = {"en": "A slip of the text.", "zh": "文字笔误。"}
    row = {"note": "link", "verdict": "wrong", "says": says, "today": today, "proof": reason}
    rows["adding"] += [row | {"id": "A-2", "since": "1.10"}]
    rows["gone"] = [row | {"id": "G-1"}]
    path = book.root / "book/claims.yml"
    path.write_text(yaml.safe_dump(rows, allow_unicode=True), "utf8")
    pages.write(book)
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


def versions(book, differs=("adding-error",)):
    runs = {
        version: {
            "chapters": {"adding": "2026-01-02"} | ({"gone": "2026-02-03"} if cells else {}),
            "differs": {"adding": dict.fromkeys(cells, "OldError: divided")},
        }
        for version, cells in (("2.11.0", differs), ("2.9.1", differs), ("2.15.0", ()))
    }
    (book.root / "book/versions.json").write_text(json.dumps(runs))


def test_status_shows_the_last_run(book):
    run = {"cpu": {"date": "2026-01-02", "torch": "2.14.1", "seconds": 7}}
    validated = book.root / "book/validated.json"
    validated.write_text(json.dumps({"zh/adding": run, "en/failing": {}}))
    pages.write(book)
    for lang, message in (("en", "not yet"), ("zh", "尚未")):
        lines = [line for line in text_of(book, lang, "status.md").splitlines() if "| [" in line]
        assert ["2.14.1" in line for line in lines] == [False, True, False, False]
        assert [message in line for line in lines] == [True, False, True, True]
    assert "PyTorch 2.14.1, CPU, 2026-01-02, 7 s" in pages.status_table(book)
    validated.write_text("{")
    with pytest.raises(BookError, match="validated.json"):
        pages.write(book)


def test_status_shows_differences_under_other_versions(book):
    found = chapters(book)
    assert "Other versions" not in status.render(book, "en", found)
    versions(book)
    text = status.render(book, "en", found)
    dates = "2026-01-02 … 2026-02-03"
    assert f"| Chapter | 2.9.1 ({dates}) | 2.11.0 ({dates}) | 2.15.0 (2026-01-02) |" in text
    differs = "differs in [Use `math.pi`](adding.ipynb#use-math-pi)"
    assert f"| [Add two numbers](adding.ipynb) | {differs} | {differs} | the same |" in text
    assert "| [Divide by zero](failing.ipynb) | not run | not run | not run |" in text
    assert "不同之处：[使用 `math.pi`]" in status.render(book, "zh", found)
    (book.root / "book/versions.json").write_text("{")
    with pytest.raises(BookError, match=r"versions\.json:1: damaged"):
        status.render(book, "en", found)


def test_status_shows_the_device_of_each_proof(book):
    def shown(validated, lang="en"):
        (book.root / "book/validated.json").write_text(json.dumps(validated))
        return status.render(book, lang, chapters(book))

    run = {"date": "2026-11-22", "torch": "2.15.0", "seconds": 3}
    card = {"date": "2026-11-24", "torch": "2.15.0", "seconds": 2, "card": "NVIDIA H100"}
    assert "Proved on a CPU: not yet.\nProved on a GPU: not yet.\n" in shown({})
    text = shown({"en/adding": {"cpu": run}, "zh/adding": {"cpu": run | {"date": "2026-11-23"}}})
    assert "CPU: 2 of 4 notebooks, PyTorch 2.15.0, 2026-11-22 … 2026-11-23.\n" in text
    assert "GPU: not yet.\n" in text
    text = shown({"en/adding": {"cpu": run, "gpu": card}})
    assert "GPU: 1 of 4 notebooks, NVIDIA H100, PyTorch 2.15.0, 2026-11-24.\n" in text
    text = shown({"en/adding": {"gpu": card}}, "zh")
    assert (
        "GPU 上的验证：4 个 notebook 中的 1 个，NVIDIA H100、PyTorch 2.15.0、2026-11-24。" in text
    )
    for damaged in ({"gpu": run}, {"cpu": {"date": "2026-11-22"}}, {"cpu": 1}):
        with pytest.raises(BookError, match=r"validated\.json"):
            shown({"en/adding": damaged})


def test_status_shows_the_translation_state(book, mend, quick):
    pieces = len(list(load(book, "adding").pieces()))
    mend("adding", "The sum is printed.", "The sum is shown.")
    mend("adding", "%%% zh\n零除以零。\n", "")
    assert update(book, echo=lambda line: None) == {}
    state = status.collect(book, chapters(book))[0].translation
    assert state["waiting"] == 2 and state["current"] > 2 and state.total() <= pieces
    current, total = state["current"], state.total()
    assert f"{current} of {total} current; 2 waiting" in pages.status_table(book)
    text = status.render(book, "zh", chapters(book))
    assert f"{total} 段中 {current} 段最新；2 段待更新" in text


def test_status_counts_cells_and_claims(book, monkeypatch):
    adding, failing = status.collect(book, chapters(book))
    assert (adding.cells, adding.claims) == (7, (1, 1))
    assert (failing.cells, failing.claims) == (5, (0, 0))
    monkeypatch.chdir(book.root)
    done = CliRunner().invoke(main, ["status"])
    assert done.exit_code == 0
    assert re.search(r"adding +中文 +not yet +(\d+) of \1 current", done.output)


# ---------------------------------------------------------------- words


def test_page_texts_are_translated():
    for group, texts in words.table().items():
        for name, both in texts.items():
            assert set(both) == {"en", "zh"}, (group, name)
            english, chinese = both["en"], both["zh"]
            filled = (re.sub(r"{\w*}", value, chinese) for value in ("7", "数"))
            assert [] in map(lint, filled), (group, name)  # a value is a number or a clause
            assert set(re.findall(r"{\w*}", chinese)) <= set(re.findall(r"{\w*}", english))
            assert chinese != english or not re.search("[A-Za-z]", chinese)


def test_words_include_the_punctuation():
    w = words.words("zh", "filter")
    assert set(w) == {"colon", "comma", "and", "label", "none"} and w["label"] == "筛选"
    with pytest.raises(KeyError):
        words.words("zh", "nothing")
