"""Test the checks of Chinese typography and of terms in both languages."""

from __future__ import annotations

import re

import pytest
import yaml

from bookbuild.source.typography import HAN, TERMS, lint, lint_english

ROWS = yaml.safe_load(TERMS.read_text("utf8"))
SENTENCE = {"en": "The layer {} it.", "zh": "这里说{}。"}

GOOD = [
    "形状为 (N, C) 的张量，用 `x.detach()` 分离。",
    "在 GPU 上，损失是 $-\\log p$；见[下一章](losses.ipynb#why)。",
    "```python\nx = 1 # 中文,注释\n```\n这里没有问题。",
    "自动微分（d2l：自动求导）是核心。",
    "**注意**：`item()` 返回 Python 数值。**返回**：张量。",
    "**整句加粗。**\n下一句。",
    "- 第 1 步：复制。\n- 第 2 步：写入！",
    "比例是 50% 左右，共 3 个。",
    "<details><summary>提示</summary>\n\n看看 `clone`。\n\n</details>",
    "“引号”里的词，与 3×3 卷积。",
]
BAD = [
    ("张量,形状", "half-width punctuation"),
    ("**输入：**张量。", "punctuation inside bold"),
    ("**输入**：张量。**返回：**`x` 的形状。", "punctuation inside bold"),
    ("张量: 形状", "half-width punctuation"),
    ("这是张量.", "half-width full stop"),
    ("张量(tensor 张量)", "half-width brackets"),
    ("张量tensor", "no space between"),
    ("tensor张量", "no space between"),
    ("共3个", "no space between"),
    ("用`detach`分离", "no space between"),
    ("损失$x$很大", "no space between"),
    ("张量 形状", "space inside Chinese"),
    ("张量 ，形状", "space beside full-width"),
    ("张量， 形状", "space beside full-width"),
]


@pytest.mark.parametrize("text", GOOD)
def test_lint_accepts_good_text(text):
    assert lint(text) == []


@pytest.mark.parametrize(("text", "what"), BAD)
def test_lint_reports_faults(text, what):
    assert any(what in problem for problem in lint(text)), lint(text)


def terms():
    return [(lang, row, w) for lang, rows in ROWS.items() for row in rows for w in row["avoid"]]


@pytest.mark.parametrize(("lang", "row", "word"), terms())
def test_avoided_term_is_reported_with_replacement_and_reason(lang, row, word):
    check = {"en": lint_english, "zh": lint}[lang]
    expected = f"{word}: write {row['write']} ({row['why']})"
    assert expected in check(SENTENCE[lang].format(word))
    assert not any(word in problem for problem in check(SENTENCE[lang].format(f"`{word}`")))


def test_terms_are_unique_and_replacements_are_not_avoided_terms():
    for lang, check in (("en", lint_english), ("zh", lint)):
        words = [word for of, _, word in terms() if of == lang]
        assert len(words) == len(set(words))
        assert not any(check(row["write"]) for row in ROWS[lang] if lang == "en")


@pytest.mark.parametrize(
    "text",
    ["*nobody said so*", "“Nobody knows”", "## Connection refused: nobody", "`wants`", "knowable"],
)
def test_lint_english_ignores_quotations_headings_and_word_parts(text):
    assert lint_english(text) == []


@pytest.mark.parametrize("text", ["Nobody", "in\nsilence", "**Nobody clears it.**", "- it wants\n"])
def test_lint_english_finds_any_case_across_lines_and_in_bold(text):
    assert len(lint_english(text)) == 1


def test_lint_allows_a_synonym_in_brackets():
    assert lint("自动微分（d2l：体重衰减）。") == []


@pytest.mark.parametrize(
    ("character", "han"),
    [("一", True), ("鿿", True), ("㐀", True), ("，", False), ("あ", False), ("䷀", False)],
)
def test_han_pattern_matches_only_chinese_characters(character, han):
    assert bool(re.match(f"[{HAN}]", character)) == han
