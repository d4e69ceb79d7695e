"""Test that an error message has the same answer in each form in which it is pasted."""

from __future__ import annotations

import re
import time
from functools import cache

import pytest
from forms import CHAINS, FORMS, cut
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain_measured import rows

from helpers import explain
from helpers.explain.logs import own_line
from helpers.explain.text import printed

LARGEST = 0.02  # share of messages whose answer may differ
TYPED = re.compile(r"(?:^|\n)(?:\w+\.)*\w*(?:Error|Exception): [^\n]+\s*$")


def answer(pasted):
    """Return the id of the first sure answer, or an empty text."""
    return next((a.id for a in explain.messages().find(pasted) if a.sure), "")


@cache
def answered():
    """Return every eighth pasted message with its answer and its line of the reader's code."""
    texts = [row["message"] for row in rows()[::8]]
    return [(text, answer(text), own_line(text)) for text in texts]


@pytest.mark.parametrize("form", FORMS)
def test_answer_is_the_same_in_every_form(form):
    texts = [(FORMS[form](text), *expected) for text, *expected in answered()]
    answers = [text for text, right, _ in texts if answer(text) != right]
    lines = [text for text, _, line in texts if own_line(text) != line]
    assert len(answers) <= LARGEST * len(texts), answers[0]
    assert len(lines) <= LARGEST * len(texts), lines[0]


@pytest.mark.parametrize("chain", CHAINS)
def test_first_error_of_a_chain_or_launcher_is_explained(chain):
    texts = [(text, right) for text, right, _ in answered() if right and TYPED.search(text)]
    others = [text for text, right in texts if answer(CHAINS[chain](text)) != right]
    assert len(others) <= LARGEST * len(texts), others[0]


WORDS = st.sampled_from(
    [
        "the",
        "size",
        "of",
        "tensor",
        "a",
        "must",
        "match",
        "(3x4),",
        "[2]",
        "File",
        "'a/b.py',",
        "line",
    ]
)


@given(st.lists(WORDS, min_size=60).map(" ".join), st.integers(60, 120))
@settings(deadline=None)
def test_cut_words_are_joined(text, width):
    assert printed(cut(width)(text)).split() == text.split()


LONG = {
    "spaces": " " * 10**6 + "x",
    "bars": "│ " * 500_000 + "x",
    "quotes": "> " * 500_000,
    "entities": "&" + "amp;" * 250_000,
    "colours": "\x1b[" + "1;" * 500_000,
    "links": "\x1b]8;;" * 200_000,
    "escapes": "\\_" * 500_000,
    "drives": "C:\\" * 330_000,
    "rows": ("word/" * 16 + "\n") * 12_000,
    "halves": ("a" * 79 + "\n") * 12_000,
    "chain": "During handling of the above exception, " * 25_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_million_characters_are_searched_within_bounds(text):
    answer("")
    begun = time.process_time()
    answer(text)
    own_line(text)
    assert time.process_time() - begun < 1.5  # seconds; linear work takes at most 0.3
