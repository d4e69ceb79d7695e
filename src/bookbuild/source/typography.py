"""Check the typography of Chinese texts and the terms of both languages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

TERMS = Path(__file__).with_name("terms.yml")
# A banned term may be given in brackets as a synonym, for the search.
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
_QUOTED = re.compile(r"^#+ .*$|(?<![\w*])\*[^*\n]+\*(?![\w*])|“[^”\n]*”|\"[^\"\n]*\"", re.M)
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
# Markdown ends no bold text between punctuation and a letter: `**输入：**张量` keeps its marks.
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*(?=(.?))")
_ENDS = "：。，；！？、"


def lint(text: str) -> list[str]:
    """Return the problems of typography and terms in a Chinese Markdown text.

    Code, maths, links and directives are replaced by a placeholder that counts as a Latin word, so
    that the spaces around inline code are checked too.
    """
    plain = re.sub(r"^(`{3,}|~{3,}|:{3,})\{[\w-]+\} ?(.*)$", r"\2", text, flags=re.M)
    plain = _STRIP.sub(lambda m: "\n" if "\n" in m[0] else _stand_in(m[0]), plain)
    problems = [
        f"punctuation inside bold text before a letter: {m[0]}"
        for m in _BOLD.finditer(plain)
        if m[1][-1] in _ENDS and m[2].isalnum()
    ]
    plain = re.sub(r"[*_]{1,2}", "", plain)
    problems += [
        f"{what}: …{_around(plain, m)}…" for rule, what in _RULES for m in rule.finditer(plain)
    ]
    return problems + _banned(ALLOWED.sub("", plain), "zh")


def lint_english(text: str) -> list[str]:
    """Return the banned terms in an English Markdown text.

    Code, maths, links, directives, headings, italics and quotations are ignored.
    """
    plain = _QUOTED.sub("", _STRIP.sub("x", text))
    return _banned(re.sub(r"\s+", " ", plain), "en")


def _banned(text: str, lang: str) -> list[str]:
    pattern, advice = _terms(lang)
    words = dict.fromkeys(m[0].lower() for m in pattern.finditer(text))
    return [advice[word] for word in words]


@cache
def _terms(lang: str) -> tuple[re.Pattern[str], dict[str, str]]:
    """Return a pattern of a language's banned words, and the advice by word."""
    rows = yaml.load(TERMS.read_text("utf8"), yaml.CSafeLoader)[lang]
    advice = {
        word.lower(): f"{word}: write {row['write']} ({row['why']})"
        for row in rows
        for word in row["avoid"]
    }
    words = "|".join(map(re.escape, advice))
    return re.compile(rf"\b(?:{words})\b" if lang == "en" else words, re.I), advice


def _stand_in(piece: str) -> str:
    return "x" if piece[0] in "`$" else "]" if piece.startswith("](") else ""


def _around(text: str, match: re.Match) -> str:
    return text[max(0, match.start() - 6) : match.end() + 6].replace("\n", " ").strip()
