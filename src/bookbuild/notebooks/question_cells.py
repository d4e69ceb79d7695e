"""Render the question before a code cell as HTML for readers and as Markdown for programs."""

from __future__ import annotations

from bookbuild.source.questions import parse
from bookbuild.source.texts import Words
from bookbuild.source.words import words as words_of


def html(words: str, name: str, lang: str) -> str:
    """Return a question as one HTML block whose choices unfold in Jupyter, Colab and on the site.

    `name` is the id of the code cell after the question.
    """
    from markdown_it import MarkdownIt

    question, inline = parse(words), MarkdownIt("commonmark", {"html": False}).renderInline
    labels = words_of(lang, "questions")
    lines = [
        f'<div class="predict" role="group" data-cell="{name}">',
        f"<p><strong>{labels['title']}</strong> {inline(question.text)}</p>",
    ]
    for choice in question.choices:
        kind, sign = ("yes", "✓") if choice.right else ("no", "✗")
        lines += [
            f'<details class="{kind}"><summary>{inline(choice.text)}</summary>',
            f"<p><strong>{sign} {labels[kind]}</strong> {inline(choice.reason)}</p></details>",
        ]
    return "\n".join([*lines, "</div>"])


def markdown(words: Words, lang: str) -> str:
    """Return a question as Markdown: one line per choice, followed by its verdict.

    A question without a translation is returned in English.
    """
    question = parse(words.in_language(lang))
    labels = words_of(lang, "questions")
    lines = [f"**{labels['title']}** {question.text}"]
    for choice in question.choices:
        verdict = f"✓ {labels['yes']}" if choice.right else f"✗ {labels['no']}"
        lines += [f"- {choice.text}", f"  **{verdict}** {choice.reason}"]
    return "\n".join(lines)
