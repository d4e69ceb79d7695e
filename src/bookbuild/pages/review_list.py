"""Render the page on `helpers.review`: usage, a sample report, and all rules."""

from __future__ import annotations

import difflib
import re
from itertools import groupby

from markupsafe import Markup, escape

from bookbuild.pages.markdown import fill, page
from bookbuild.source import reviews
from bookbuild.source.checkout import Book, BookError, read_text
from bookbuild.source.reviews import Case
from bookbuild.source.words import words
from helpers.review.reading import Source
from helpers.review.registry import RULES
from helpers.review.report import WORDS, shown, total
from helpers.review.review import review

WRONG, RIGHT = "book/review/train.py", "book/review/train_corrected.py"
COMMAND = "train.py"  # name of the sample script on the page
_LEADS = re.compile(r"\((\w+\.html(?:#[\w-]+)?)\)$")  # address of the section, ends a finding


def render(book: Book, lang: str) -> str:
    """Return the page as Markdown.

    Raises:
        BookError: `review.yml` is malformed, a rule has no code or case, or a file is missing.
    """
    everything, cases = reviews.load(book), reviews.cases(book)
    for rule in everything:
        if rule.id not in RULES or rule.id not in cases:
            raise BookError(f"{rule.where}: expected a rule in helpers.review and a case")
    groups = [(name, [*group]) for name, group in groupby(everything, lambda rule: rule.family)]
    wrong, right = (read_text(book.root / name, name) for name in (WRONG, RIGHT))
    w = words(lang, "review")
    body = fill(
        "review.md",
        w=w,
        lang=lang,
        field=words(lang, "filter"),
        families=words(lang, "review_families"),
        kinds={name: WORDS[lang][rule.severity] for name, rule in RULES.items()},
        cases=cases,
        marked=marked,
        groups=groups,
        count=len(everything),
        script=wrong,
        report=printed(report(wrong, lang)),
        difference=difference(wrong, right),
    )
    return page(f"{reviews.FILE}, {reviews.CASES} and {WRONG}", w["summary"], body)


def report(script: str, lang: str) -> str:
    """Return the output of `python -m helpers.review train.py` for a script, in one language."""
    source, findings = Source(COMMAND, script), review(script)
    blocks = [shown(source, one, lang) for one in findings]
    return "\n\n".join([*blocks, total(len(findings), 1, lang)])


def difference(wrong: str, right: str) -> str:
    """Return the unified diff of two scripts with one line of context."""
    lines = difflib.unified_diff(wrong.splitlines(), right.splitlines(), lineterm="", n=1)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def printed(text: str) -> Markup:
    """Return a report as HTML: one element per line, with indentation and links."""
    return Markup("").join(
        Markup('<span style="--in:{}ch">{}\n</span>').format(
            len(line) - len(line.lstrip()),
            Markup(_LEADS.sub(r'(<a href="\1">\1</a>)', str(escape(line)))),
        )
        for line in text.split("\n")
    )


def marked(case: Case) -> Markup:
    """Return a rule's wrong code as HTML, with the reported lines marked."""
    lines = []
    for number, line in enumerate(case.wrong.split("\n"), 1):
        code = line.lstrip()
        html = Markup("<mark>{}</mark>").format(code) if number in case.lines else escape(code)
        # an empty line would end a Markdown HTML block
        lines.append(line[: len(line) - len(code)] + html or Markup("<span></span>"))
    return Markup("\n").join(lines)
