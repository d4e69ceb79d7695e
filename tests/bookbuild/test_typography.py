"""What the Chinese lint finds, and what it must leave alone."""

from __future__ import annotations

import pytest

from bookbuild.typography import BANNED, lint

GOOD = [
    "形状为 (N, C) 的张量，用 `x.detach()` 分离。",
    "在 GPU 上，损失是 $-\\log p$；见[下一章](losses.ipynb#why)。",
    "```python\nx = 1 # 中文,注释\n```\n这里没有问题。",
    "自动微分（d2l：自动求导）是核心。",
    "**注意：**`item()` 返回 Python 数值。",
    "- 第 1 步：复制。\n- 第 2 步：写入！",
    "比例是 50% 左右，共 3 个。",
    "<details><summary>提示</summary>\n\n看看 `clone`。\n\n</details>",
    "“引号”里的词，与 3×3 卷积。",
]
BAD = [
    ("张量,形状", "half-width punctuation"),
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
def test_good_text_passes(text):
    assert lint(text) == []


@pytest.mark.parametrize(("text", "what"), BAD)
def test_faults_are_found(text, what):
    assert any(what in problem for problem in lint(text)), lint(text)


@pytest.mark.parametrize("term", BANNED)
def test_banned_terms(term):
    assert any(BANNED[term] in problem for problem in lint(f"这里说{term}。"))
