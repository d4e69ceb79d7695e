"""What the Chinese lint finds, and what it must leave alone."""

from __future__ import annotations

import re

import pytest

from bookbuild.source.typography import BANNED, HAN, lint

TERMS = """
您→你 反卷积→转置卷积 体重衰减→权重衰减 调度程序→调度器 剪裁→裁剪
批标准化→批归一化 批规范化→批归一化
自动求导→自动微分 对数几率→logits 正向传播→前向传播 GPU_内存→显存
内核函数→核函数 就地→原地 迭代周期→轮
固定内存→锁页内存
"""

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


@pytest.mark.parametrize("pair", TERMS.split())
def test_banned_terms(pair):
    bad, good = pair.split("→")
    bad = bad.replace("_", " ")
    assert f"write {good}, not {bad}" in lint(f"这里说{bad}。")
    assert lint(f"自动微分（d2l：{bad}）。".replace("GPU 内存", "体重衰减")) == []


def test_no_other_term_is_banned():
    assert len(BANNED) == len(TERMS.split())


@pytest.mark.parametrize(
    ("character", "han"),
    [("一", True), ("鿿", True), ("㐀", True), ("，", False), ("あ", False), ("䷀", False)],
)
def test_what_is_a_chinese_character(character, han):
    assert bool(re.match(f"[{HAN}]", character)) == han
