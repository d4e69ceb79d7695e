"""Chinese typography and terms that a machine can check; the list of terms is here."""

from __future__ import annotations

import re

BANNED = {
    "您": "你",
    "反卷积": "转置卷积",
    "体重衰减": "权重衰减",
    "调度程序": "调度器",
    "剪裁": "裁剪",
    "批标准化": "批归一化",
    "批规范化": "批归一化",
    "自动求导": "自动微分",
    "对数几率": "logits",
    "正向传播": "前向传播",
    "GPU 内存": "显存",
    "内核函数": "核函数",
    "就地": "原地",
    "迭代周期": "轮",
    "固定内存": "锁页内存",
}
# Given once as a synonym, so that a search finds it.
ALLOWED = re.compile(r"（(?:又称|又译|也叫|也译作|d2l：)[^）]*）")

HAN = "\u3400-\u4dbf\u4e00-\u9fff"  # Chinese characters, for a class of a regular expression
_STRIP = re.compile(
    r"^(`{3,}|~{3,}).*?^\1`*\s*$"  # fenced blocks
    r"|`[^`\n]+`|\$\$.*?\$\$|\$[^$\n]+\$"  # code and maths
    r"|\]\([^)\s]*\)|<[^>\n]+>|https?://\S+"  # link targets, tags, addresses
    r"|\{[\w:-]+\}"  # roles and directive names
    r"|^:{3,}.*$|^:[\w-]+:.*$|^\([\w-]+\)=$",  # directive lines, options, labels
    re.S | re.M,
)
_RULES = [
    (re.compile(rf"[{HAN}][,;:!?]|[,;:!?][{HAN}]"), "half-width punctuation beside Chinese"),
    (re.compile(rf"[{HAN}]\.(?:\s|$)"), "half-width full stop after Chinese"),
    (re.compile(rf"[{HAN}]\([^)\n]*[{HAN}]|\([{HAN}]"), "half-width brackets around Chinese"),
    (
        re.compile(rf"[{HAN}][A-Za-z0-9]|[A-Za-z0-9%][{HAN}]"),
        "no space between Chinese and Latin",
    ),
    (re.compile(rf"[{HAN}] +[{HAN}]"), "space inside Chinese"),
    (
        re.compile(r" [，。；：！？、（）]|[，。；：！？、（）] (?=\S)"),
        "space beside full-width punctuation",
    ),
]


def lint(text: str) -> list[str]:
    """Return what is wrong with the typography or the terms of a Chinese Markdown text.

    Code, maths, links and directives are left out; in their place stands a mark that takes the
    part of a Latin word, so that the space around inline code is checked too.
    """
    plain = re.sub(r"^(`{3,}|~{3,}|:{3,})\{[\w-]+\} ?(.*)$", r"\2", text, flags=re.M)
    plain = _STRIP.sub(lambda m: "\n" if "\n" in m[0] else _stand_in(m[0]), plain)
    plain = re.sub(r"[*_]{1,2}", "", plain)
    problems = [
        f"{what}: …{_around(plain, m)}…" for rule, what in _RULES for m in rule.finditer(plain)
    ]
    terms = ALLOWED.sub("", plain)
    problems += [f"write {good}, not {bad}" for bad, good in BANNED.items() if bad in terms]
    return problems


def _stand_in(piece: str) -> str:
    return "x" if piece[0] in "`$" else "]" if piece.startswith("](") else ""


def _around(text: str, match: re.Match) -> str:
    return text[max(0, match.start() - 6) : match.end() + 6].replace("\n", " ").strip()
