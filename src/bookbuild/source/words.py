"""What the generated pages say around the chapters' words, in both languages."""

from __future__ import annotations

from bookbuild.source.checkout import LANGUAGES

_WORDS: dict[str, tuple] = {
    # errors
    "errors": ("Error messages", "报错信息"),
    "errors_summary": (
        "Paste a PyTorch error message or a whole traceback and find its cause and its cure.",
        "粘贴 PyTorch 的报错信息或整段 traceback，找到原因和改法。",
    ),
    "errors_lead": (
        "{n} messages of PyTorch and of the code around it: what each one means, what to do, and "
        "the section that shows it.\n"
        "Paste what you got, as it is; nothing leaves your browser.",
        "PyTorch 及其周边代码的 {n} 条报错和警告：是什么意思，怎么改，书中哪一节讲它。\n"
        "把得到的文字原样贴进来即可，内容不会离开你的浏览器。",
    ),
    "errors_label": (
        "Paste a message, a warning or a whole traceback",
        "粘贴报错、警告或整段 traceback",
    ),
    "errors_none": (
        "No message of this book matches. Try the last line of the traceback alone.",
        "书中没有与之匹配的报错。只粘贴 traceback 的最后一行再试一次。",
    ),
    "errors_sure": ("This is it:", "就是这一条："),
    "errors_others": ("It also contains:", "其中还有："),
    "errors_related": (
        "Not in this book, as it seems. Perhaps related:",
        "书中似乎没有这一条。可能相关的有：",
    ),
    "errors_family": (
        "{n} messages, each with its cause and its cure.\n"
        "Paste yours into [the field](errors.md): it finds the entry, and fills in your values.",
        "{n} 条报错，各有原因和改法。\n"
        "把你得到的那条粘贴到[报错信息](errors.md)页，就能找到对应条目，并代入你的数值。",
    ),
    "errors_copy": ("Copy", "复制"),
    "errors_cases": ("Special cases", "特殊情况"),
    "errors_seen": ("Raised in this book", "书中的例子"),
    "errors_older": ("Other wordings", "其他措辞"),
    "errors_until": (" (until {})", "（{} 及更早）"),
    "errors_noscript": (
        "Searching needs JavaScript. The list below is complete.",
        "搜索需要 JavaScript。下面的列表是完整的。",
    ),
    # then and now
    "then_and_now": ("Then and now", "今昔对照"),
    "then_and_now_summary": (
        "What the old notes said, what PyTorch does today, and the cell that proves it.",
        "旧笔记说了什么，今天的 PyTorch 怎样，以及证明它的单元格。",
    ),
    "then_and_now_lead": (
        "The notes that this book grew from were written from 2018 to 2020.\n"
        "Here is each claim that a chapter of this book takes up, what holds today, and the proof.",
        "本书源自 2018 到 2020 年写下的一批笔记。\n"
        "这里列出与书中各章有关的每一条说法、今天的实际情况，以及证明所在的小节。",
    ),
    "filter": ("Show", "显示"),
    "all": ("all", "全部"),
    "said": ("The notes", "笔记"),
    "today": ("Today", "今天"),
    "since": ("since", "自"),
    "since_end": ("", " 起"),
    "proof": ("Proof", "证明"),
    "no_cell": ("No cell", "没有单元格"),
    "note": ("note {0}, {1} {2}", "笔记 {0}，第 {2} 行"),
    "colon": (": ", "："),
    "holds": ("still right", "仍然正确"),
    "partial": ("partly right", "部分正确"),
    "outdated": ("outdated", "已经过时"),
    "wrong": ("wrong", "错误"),
    "broken-code": ("code does not run", "代码无法运行"),
    "unsafe": ("unsafe", "不安全"),
    # status
    "status": ("Status", "状态"),
    "status_summary": (
        "When each chapter was last proved, on what, and how complete its translation is.",
        "每一章最近一次在什么环境下通过验证，翻译是否完整。",
    ),
    "status_lead": (
        "Tests run every cell of every chapter and compare what it prints.\n"
        "This is what the last run left behind.",
        "测试会运行每一章的每个单元格，并比较输出。\n下表是最近一次运行的结果。",
    ),
    "devices": (
        "Proved on a CPU: {0}.\nProved on a GPU: {1}.",
        "CPU 上的验证：{0}。\nGPU 上的验证：{1}。",
    ),
    "proved": ("{0} of {1} notebooks, {2}", "{1} 个 notebook 中的 {0} 个，{2}"),
    "versions": ("Other versions of PyTorch", "其他版本的 PyTorch"),
    "versions_lead": (
        "The stored outputs come from the version above.\n"
        "Under the versions below the chapters ran again; where a cell prints something else, its "
        "section is named.\n"
        "A chapter that needs torchvision cannot run where that PyTorch has no build of it.\n"
        "Messages that are worded differently are on the page of [error messages](errors.md), too.",
        "存储的输出来自上表所列的版本。\n"
        "下面是各章在其他版本里重新运行的结果；单元格的输出有出入的，列出它所在的小节。\n"
        "有的版本没有配套的 torchvision，依赖它的章就无法运行。\n"
        "措辞不同的报错，也收在[报错信息](errors.md)一页。",
    ),
    "coverage": ("What the reference covers", "查阅部分收了多少"),
    "coverage_lead": (
        "How many entries the reference pages have, and what is known to be missing.",
        "供查阅的各页收录的条目，以及已知的缺口。",
    ),
    "page": ("Page", "页面"),
    "entries": ("Entries", "条目"),
    "missing": ("Known to be missing", "已知的缺口"),
    "missing_symptoms": (
        "{0} have a cause that no section treats: {1}. {2} need a GPU to tell, and are from "
        "PyTorch's documentation.",
        "{0} 种症状有书中没讲到的原因：{1}。{2} 种要有 GPU 才能判断，依据 PyTorch 文档。",
    ),
    "missing_pitfalls": (
        "{0} have a fix in words, not in code.",
        "{0} 个的改法是文字，不是代码。",
    ),
    "not_run": ("not run", "没有运行"),
    "same": ("the same", "完全一致"),
    "differs": ("differs in {}", "不同之处：{}"),
    "chapter": ("Chapter", "章"),
    "language": ("Language", "语言"),
    "validated": ("Last proved", "最近一次验证"),
    "translation": ("Translation", "翻译"),
    "cells": ("Cells", "单元格"),
    "claims": ("Claims proved", "已证明的说法"),
    "never": ("not yet", "尚未"),
    "ran": ("PyTorch {torch}, {device}, {date}, {seconds} s",
            "PyTorch {torch}，{device}，{date}，{seconds} 秒"),
    "current": ("{0} of {1} current", "{1} 段中 {0} 段最新"),
    "waiting": ("{0} waiting", "{0} 段待更新"),
    "comma": ("; ", "；"),
    "and": (", ", "、"),
}  # fmt: skip


def words(lang: str) -> dict:
    """All of them in one language."""
    column = LANGUAGES.index(lang)
    return {key: texts[column] for key, texts in _WORDS.items()}
