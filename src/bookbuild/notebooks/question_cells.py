"""The cell that asks a question before a code cell, as HTML for Jupyter, Colab and the site."""

from __future__ import annotations

from bookbuild.source.questions import parse

_WORDS = {
    "en": ("Predict.", "Yes.", "No."),
    "zh": ("先猜一猜。", "对。", "不对。"),
}


def html(words: str, name: str, lang: str) -> str:
    """A question as one block of HTML: it unfolds in Jupyter, in Colab and on the page.

    `name` is the id of the cell that it is asked about.
    """
    from markdown_it import MarkdownIt

    question, inline = parse(words), MarkdownIt("commonmark", {"html": False}).renderInline
    title, yes, no = _WORDS[lang]
    lines = [
        f'<div class="predict" role="group" data-cell="{name}">',
        f"<p><strong>{title}</strong> {inline(question.asks)}</p>",
    ]
    for choice in question.choices:
        kind, sign, verdict = ("yes", "✓", yes) if choice.right else ("no", "✗", no)
        lines += [
            f'<details class="{kind}"><summary>{inline(choice.says)}</summary>',
            f"<p><strong>{sign} {verdict}</strong> {inline(choice.why)}</p></details>",
        ]
    return "\n".join([*lines, "</div>"])
