"""Format findings as text for a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from helpers.review.reading import Source
from helpers.review.registry import RULES
from helpers.review.review import Finding, line_of, words
from helpers.sentences import wrapped

WIDTH = 79  # maximum width of an English line, in columns
WORDS = {
    "en": {
        "line": "Line {line}",
        "kind": " [{rule}, {kind}]",
        "write": "Write:",
        "wrong": "wrong result",
        "wasted": "wasted",
        "raises": "will raise",
        "colon": ": ",
        "unread": "{path}: not read: {reason}",
        "total": "{findings} in {files}. ",
        "finding": ("{n} finding", "{n} findings"),
        "file": ("{n} file", "{n} files"),
        "proves": "{n} kinds of mistakes were looked for; "
        "a file without a finding may have others.",
    },
    "zh": {
        "line": "第 {line} 行",
        "kind": "（{rule}，{kind}）",
        "write": "改为：",
        "wrong": "结果错误",
        "wasted": "白费",
        "raises": "会报错",
        "colon": "：",
        "unread": "{path}：未读取：{reason}",
        "total": "{files}，{findings}。",
        "finding": ("{n} 处问题", "{n} 处问题"),
        "file": ("{n} 个文件", "{n} 个文件"),
        "proves": "共检查 {n} 类错误；没有发现问题的文件也可能有其他错误。",
    },
}


def shown(source: Source, finding: Finding, lang: str) -> str:
    """Return a finding as text: location, source line, effect, fix, section."""
    w, row = WORDS[lang], words()[finding.rule]
    where = place(source, finding, lang)
    kind = w["kind"].format(rule=finding.rule, kind=w[RULES[finding.rule].severity])
    effect = f"{row['effect'][lang]}{kind}"
    lines = [
        f"{where}{w['colon']}{line_of(source, finding)}",
        *wrapped(effect, lang, WIDTH, "    "),
    ]
    if row.get("fix"):
        lines += [f"    {w['write']}", *(f"        {line}" for line in row["fix"].splitlines())]
    section = row["section"]
    return "\n".join([*lines, f"    → {section[lang]} ({section['href']})"])


def place(source: Source, finding: Finding, lang: str) -> str:
    """Return file and line of a finding, or only the line for the cell being run."""
    if source.path:
        return source.where(finding.line)
    return WORDS[lang]["line"].format(line=finding.line - source.cells[0][0] + 1)


def total(findings: int, files: int, lang: str) -> str:
    """Return the end of a report: number of findings, and the limits of a clean report."""
    w = WORDS[lang]
    counts = {"findings": _count(w["finding"], findings), "files": _count(w["file"], files)}
    return f"{w['total'].format(**counts)}{w['proves'].format(n=len(RULES))}"


def _count(forms: tuple[str, str], n: int) -> str:
    return forms[n != 1].format(n=n)


def record(source: Source, finding: Finding, lang: str) -> dict[str, Any]:
    """Return a finding as a JSON-serializable dict."""
    row = words()[finding.rule]
    return {
        "file": source.path,
        "where": source.where(finding.line),
        "line": finding.line,
        "column": finding.column,
        "rule": finding.rule,
        "severity": RULES[finding.rule].severity,
        "code": line_of(source, finding),
        "effect": row["effect"][lang],
        "why": row["why"][lang],
        "fix": row.get("fix"),
        "section": {"title": row["section"][lang], "href": row["section"]["href"]},
    }
