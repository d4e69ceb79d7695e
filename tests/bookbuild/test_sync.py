"""Code and outputs go to Chinese, translations stay, and what waits for a translator is named."""

from __future__ import annotations

from bookbuild.notebooks import clean, digest, read
from bookbuild.sync import needs_translation, state, sync


def silent(book, **kwargs):
    return sync(book, echo=lambda line: None, **kwargs)


def find(nb, cell_id):
    return next(c for c in nb.cells if c.id == cell_id)


def test_nothing_to_do_changes_nothing(book):
    before = {p: p.read_bytes() for p in (book.root / "book").rglob("*.ipynb")}
    said = []
    assert sync(book, echo=said.append) == []
    assert {p: p.read_bytes() for p in before} == before
    assert said == ["adding: unchanged", "failing: unchanged"]


def test_code_outputs_tags_and_order_follow_english(book, edit):
    def change(nb):
        cell = find(nb, "adding-numbers")
        cell.source, cell.metadata["tags"] = "a = 3\nassert a\na", ["cheat"]
        cell.outputs[0].data["text/plain"] = "3"
        nb.cells = [nb.cells[0], nb.cells[1], nb.cells[3], nb.cells[2]]
        clean(nb)

    edit("en", "adding", change)
    assert silent(book) == []
    en, zh = read(book.path("en", "adding")), read(book.path("zh", "adding"))
    assert [c.id for c in zh.cells] == [c.id for c in en.cells]
    assert find(zh, "adding-numbers") == find(en, "adding-numbers")
    assert find(zh, "adding-recap").source.startswith("## 小结")
    assert zh.metadata.ran == en.metadata.ran and zh.metadata.summary == "关于 adding。"


def test_english_change_then_translation_is_stamped(book, edit):
    edit("en", "adding", lambda nb: nb.cells[0].update(source="# Add numbers\n\n$a + b$"))
    assert silent(book) == ["adding::adding-title: stale"]
    edit("zh", "adding", lambda nb: nb.cells[0].update(source="# 数的加法\n\n$a + b$"))
    assert silent(book) == []
    stamp = read(book.path("zh", "adding")).cells[0].metadata.translation
    assert stamp == {
        "en": digest("# Add numbers\n\n$a + b$"),
        "zh": digest("# 数的加法\n\n$a + b$"),
    }


def test_a_translation_that_still_holds_is_kept(book, edit):
    edit("en", "adding", lambda nb: nb.cells[0].update(source="# Add 2 numbers\n\n$a + b$"))
    assert silent(book, keep=["failing::adding-title"]) == ["adding::adding-title: stale"]
    assert silent(book, keep=["adding::adding-title"]) == []
    assert silent(book) == []


def test_keep_does_not_accept_what_was_never_translated(book, edit):
    english = read(book.path("en", "adding")).cells[0].source
    edit("zh", "adding", lambda nb: nb.cells[0].update(source=english))
    assert silent(book, keep=["adding::adding-title"]) == ["adding::adding-title: missing"]


def test_translated_comments_go_with_changed_code_and_that_is_said(book, edit):
    edit(
        "zh", "adding", lambda nb: nb.cells[2].update(source="# 相加\na = 1 + 1\nassert a == 2\na")
    )
    assert silent(book) == []

    def change(nb):
        nb.cells[2].source = "# add\na = 2\nassert a == 2\na"
        clean(nb)

    edit("en", "adding", change)
    assert silent(book) == ["adding::adding-numbers: code changed, translate its comments again"]
    assert silent(book) == []


def test_a_chapter_without_chinese_begins_untranslated(book):
    book.path("zh", "adding").unlink()
    assert silent(book) == ["adding::adding-title: missing", "adding::adding-recap: missing"]
    en, zh = read(book.path("en", "adding")), read(book.path("zh", "adding"))
    assert zh.cells == en.cells


def test_dropped_cells_are_named(book, edit):
    edit("en", "adding", lambda nb: nb.cells.pop())
    said = []
    sync(book, echo=said.append)
    assert "  dropped adding::adding-recap: no longer in English" in said


def test_states(book):
    en, zh = read(book.path("en", "adding")), read(book.path("zh", "adding"))
    assert state(en.cells[0], zh.cells[0]) == "current"
    assert state(en.cells[0], en.cells[0]) == "missing"
    zh.cells[0].source += "又"
    assert state(en.cells[0], zh.cells[0]) == "unstamped"
    del zh.cells[0].metadata["translation"]
    assert state(en.cells[0], zh.cells[0]) == "unstamped"


def test_a_formula_needs_no_translation():
    assert not needs_translation("$$\\operatorname{softmax}(x)$$")
    assert not needs_translation("`torch.cat`")
    assert needs_translation("# Recap")
