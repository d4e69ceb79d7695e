"""The page of symptoms: bugs without a message, how to tell, and what may be behind them."""

from __future__ import annotations

from itertools import groupby

from bookbuild.pages.listing import block, filtered, inline, link
from bookbuild.pages.markdown import page
from bookbuild.source import symptoms
from bookbuild.source.checkout import Book
from bookbuild.source.outline import section
from bookbuild.source.symptoms import Symptom

_WORDS = {
    "en": {
        "title": "Symptoms without a message",
        "summary": "Bugs without a message, as people say them: how to tell, and what to look at.",
        "lead": (
            "{n} symptoms that come without a message.\n"
            "Each has code that tells whether you have it, and its causes, the likeliest first.\n"
            "In the code `model`, `loader`, `criterion`, `optimizer`, `x` and `y` are yours: the "
            "model, the data, the loss function, and one batch of inputs and labels; `step(x, y)` "
            "is one step of your training, `predict(x)` your prediction.\n"
            "If none of them is yours, begin at the top of "
            "[Debug training](debugging.ipynb): one question leads to the next."
        ),
        "placeholder": "loss nan, slow, memory …",
        "also": "Also: ",
        "sep": ", ",
        "families": {
            "training": "Training",
            "autograd": "Gradients",
            "modules": "Modules",
            "data": "Data loading",
            "evaluation": "Validation and metrics",
            "memory": "Memory",
            "speed": "Speed",
            "devices": "Devices",
            "checkpoints": "Checkpoints",
            "reproducibility": "Reproducibility",
            "distributed": "Several GPUs",
            "images": "Images",
            "sequences": "Sequences and attention",
            "tensors": "Tensors",
            "monitoring": "Curves",
            "export": "Export and serving",
        },
    },
    "zh": {
        "title": "没有报错的症状",
        "summary": "没有报错信息的问题，按大家平常的说法列出：怎么判断，去哪里找原因。",
        "lead": (
            "{n} 种不报错的症状。\n"
            "每一种都有一段判断代码，原因按可能性从大到小排列。\n"
            "代码里的 `model`、`loader`、`criterion`、`optimizer`、`x` 和 `y` 是你自己的："
            "模型、数据、损失函数，以及一个小批量的输入和标签；`step(x, y)` 是训练的一步，"
            "`predict(x)` 是你的预测。\n"
            "没有符合的症状，就从[调试训练](debugging.ipynb)的开头一步步查起。"
        ),
        "placeholder": "loss 是 nan、太慢、显存……",
        "also": "也有人说：",
        "sep": "；",
        "families": {
            "training": "训练",
            "autograd": "梯度",
            "modules": "模块",
            "data": "数据加载",
            "evaluation": "验证与指标",
            "memory": "内存与显存",
            "speed": "速度",
            "devices": "设备",
            "checkpoints": "检查点",
            "reproducibility": "可复现性",
            "distributed": "多卡",
            "images": "图像",
            "sequences": "序列与注意力",
            "tensors": "张量",
            "monitoring": "曲线",
            "export": "导出与部署",
        },
    },
}


def render(book: Book, lang: str) -> str:
    """The page as Markdown.

    Raises:
        BookError: `symptoms.yml` has another form, or names a section that does not exist.
    """
    w = _WORDS[lang]
    found = symptoms.load(book).symptoms
    parts = [
        f'## {w["families"].get(family, family)}\n\n<ul class="symptoms">\n'
        + "\n".join(_item(book, lang, one, w) for one in group)
        + "\n</ul>"
        for family, group in groupby(found, lambda one: one.family)
    ]
    body = f"# {w['title']}\n\n{w['lead'].format(n=len(found))}\n\n" + filtered(
        "symptom", lang, w["placeholder"], "\n\n".join(parts)
    )
    return page("book/symptoms.yml", w["summary"], body)


def _item(book: Book, lang: str, one: Symptom, w: dict) -> str:
    """A symptom as HTML without empty lines, so that Markdown leaves it alone."""
    lines = [
        f'<li id="{one.id}"><details>',
        f"<summary>{inline(one.says[lang])}</summary>",
        f'<p class="also">{w["also"]}{inline(w["sep"].join(one.also[lang]))}</p>',
        block(one.tell),
        f"<p>{inline(one.sign[lang])}</p>",
        "<ol>",
    ]
    for cause in one.causes:
        where = ""
        if cause.section:
            href, titles = section(book, cause)
            where = f"<br>→ {link(href, titles[lang])}"
        lines.append(f"<li>{inline(cause.says[lang])}{where}</li>")
    lines.append("</ol>")
    lines.append(f'<p><a class="here" href="#{one.id}">#{one.id}</a></p>')
    return "\n".join([*lines, "</details></li>"])
