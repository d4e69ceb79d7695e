"""Write the explanation of a message, or the answer to a question, as text for a terminal."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import urlencode

from helpers.explain.data import DATA, LIMITS, PATTERNS, VARIABLE
from helpers.explain.logs import frames_of, own_line
from helpers.explain.matching import Answer, messages
from helpers.explain.questions import Questions
from helpers.explain.text import filled, plain, with_values
from helpers.explain.unknown import advised, unknown
from helpers.sentences import wrapped

WORDS = {
    "en": {
        "others": "It also contains:",
        "places": "No message of the book matches. Symptoms and sections that may answer:",
        "also": "Symptoms and sections that may answer:",
        "related": "No message of the book matches. Perhaps related:",
        "perhaps": "Perhaps related:",
        "none": "Nothing in the book matches. Paste the whole traceback with its last line, or ask "
        "in a few words: loss is nan, freeze layers.",
        "report": "Report what is missing:",
        "do": "What to do:",
        "several": "This message has several causes. The usual ones:",
        "alone": "This message has several causes; the whole traceback may decide. The usual ones:",
        "operands": "In `{line}`:",
        "file": "Raised in {file}, line {line}.",
        "cell": "Raised in cell {cell}, line {line}.",
    },
    "zh": {
        "others": "这段文本里还有：",
        "places": "书中没有与之匹配的报错。下面的症状和小节可能有答案：",
        "also": "下面的症状和小节也可能有答案：",
        "related": "书中没有与之匹配的报错。可能相关的有：",
        "perhaps": "可能相关的有：",
        "none": "书中没有匹配的内容。请粘贴完整的 traceback，包括最后一行；或者用几个词提问："
        "损失是 nan、冻结部分层。",
        "report": "反馈书中缺少的内容：",
        "do": "怎么改：",
        "several": "这条报错的原因不止一种，常见的有：",
        "alone": "这条报错的原因不止一种，完整的 traceback 有助于判断。常见的有：",
        "operands": "在 `{line}` 里：",
        "file": "出错的是 {file} 第 {line} 行。",
        "cell": "出错的是第 {cell} 个单元格的第 {line} 行。",
    },
}

_FEW = 3  # words: a part of a message that is no longer may be a question ("early stopping")


def explain(pasted: str, lang: str = "en") -> str:
    """Return cause, fix and section of a message, traceback or log as text for a terminal.

    For a question, return matching symptoms and sections, also if its few words are a part of a
    message.

    Args:
        pasted: the text as printed, or a question.
        lang: `"en"` or `"zh"`.

    Raises:
        TypeError: `pasted` is not a text, but for example an exception.
        ValueError: `lang` is neither `"en"` nor `"zh"`.
    """
    if not isinstance(pasted, str):
        raise TypeError(
            f"explain expects a text, got {type(pasted).__name__}; for an exception, pass "
            "''.join(traceback.format_exception(error))"
        )
    _known(lang)
    labels, matches = WORDS[lang], messages().find(pasted)
    if not matches or not matches[0].sure:
        if error := unknown(pasted):
            related = [labels["perhaps"], *(paragraph(a, lang) for a in matches[:3])]
            return "\n\n".join(
                [advised(error, lang), *(related if matches else ()), *report(pasted, lang)]
            )
        parts = answers(pasted, lang)
        head = labels["places" if parts else "related" if matches else "none"]
        parts += [paragraph(a, lang) for a in matches[: 0 if parts else 3]]
        return "\n\n".join([head, *parts, *([] if parts else report(pasted, lang))])
    parts = [paragraph(matches[0], lang, own_line(pasted), traceback=bool(frames_of(pasted)))]
    if matches[1:]:
        parts += [labels["others"], *(paragraph(a, lang) for a in matches[1:3])]
    if not matches[0].whole and len(pasted.split()) <= _FEW and (places := answers(pasted, lang)):
        parts += [labels["also"], *places]
    return "\n\n".join(parts)


def _known(lang: str) -> None:
    if lang not in WORDS:
        raise ValueError(f"lang must be one of {', '.join(WORDS)}, got {lang!r}")


@cache
def questions() -> Questions:
    """Return the search index of the symptoms and sections in `messages.json`."""
    return Questions(DATA["places"], DATA["search"])


def answers(question: str, lang: str = "en") -> list[str]:
    """Return up to two symptoms and three sections that match a question, best first.

    Each result has title, address and, for a section, its answer (shortened).

    Raises:
        TypeError: `question` is not a text.
        ValueError: `lang` is neither `"en"` nor `"zh"`.
    """
    if not isinstance(question, str):
        raise TypeError(f"answers expects a text, got {type(question).__name__}")
    _known(lang)
    places = questions().find(plain(question))
    symptoms = [place for place in places if place.kind == "symptom"][:2]
    sections = [place for place in places if place.kind == "section"][:3]
    shown = [place for place in places if place in symptoms + sections]
    return [
        "\n".join(
            [
                f"→ {place.title[lang]} ({place.href})",
                *(
                    wrapped(place.also[lang], lang)
                    if place.kind == "section" and place.also[lang]
                    else ()
                ),
            ]
        )
        for place in shown
    ]


def report(pasted: str, lang: str = "en") -> list[str]:
    """Return a link that reports a text without folder paths, if pip installed this from GitHub."""
    try:
        origin = distribution("executable-pytorch-notes").read_text("direct_url.json")
        address = json.loads(origin or "{}").get("url", "")
    except PackageNotFoundError:
        return []
    if not address.startswith("https://github.com/"):
        return []
    text = PATTERNS["folders"].sub("", pasted.strip())[-LIMITS.length :]
    query = urlencode({"title": "helpers.explain: ", "body": f"```text\n{text}\n```"})
    return [f"{WORDS[lang]['report']}\n{address.removesuffix('.git')}/issues/new?{query}"]


def paragraph(
    answer: Answer, lang: str, line: tuple[str, str] | None = None, *, traceback: bool = True
) -> str:
    """Return head, location, cause, cure and section of an answer.

    Args:
        answer: the answer.
        lang: `"en"` or `"zh"`.
        line: file and line number of the user's code, as `own_line` returns them.
        traceback: whether the text has frames, which the conditions of special cases may read.
    """
    labels, shown = WORDS[lang], answer.case or answer.entry
    wording = VARIABLE.sub("…", answer.entry["wordings"][0])
    lines = ["".join(answer.head) or wording]
    if line:
        file, number = line
        cell, _, cell_line = number.partition(":")
        lines.append(
            labels["file"].format(file=file, line=number)
            if file
            else labels["cell"].format(cell=cell, line=cell_line)
        )
    if answer.several:
        alone = not traceback and any("near" in case for case in answer.entry.get("cases", ()))
        lines.append(labels["alone" if alone else "several"])
    lines += wrapped(filled(shown["cause"][lang], answer.values), lang)
    cure = lang == "zh" and shown.get("cure_zh") or shown.get("cure")
    if cure:
        cure = "".join(with_values(PATTERNS["steps"].findall(cure), answer.values))
        lines += [labels["do"], *(f"    {line}".rstrip() for line in cure.splitlines())]
    section = shown.get("section") or answer.entry.get("section")
    if section:
        lines.append(f"→ {section[lang]} ({section['href']})")
    return "\n".join(lines)
