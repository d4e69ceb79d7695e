"""Test the search by titles, answers, names and queries of sections."""

from __future__ import annotations

import pytest

from helpers.explain.questions import Questions

WORDS = {
    "small": "how to",
    "small_han": "怎么",
    "particles_han": "是在",
    "weak": "",
    "same": [["worker", "工作进程"]],
}


def place(title: str, answer: str = "", **more: str) -> dict:
    both = {"en": title, "zh": title}
    return {
        "kind": "section",
        "href": title,
        "title": both,
        "also": dict.fromkeys(both, answer),
    } | more


QUESTIONS = Questions(
    [
        place("Workers", "Measure them.", queries="num_workers too high · 开几个 worker 合适"),
        place("Memory", "Workers copy it, never high. 它是副本"),
        place("Speed", names="num_workers"),
    ],
    WORDS,
)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("too high", "Workers"),  # only in `queries`
        ("开几个合适", "Workers"),
        ("how to measure", "Workers"),
        ("copy", "Memory"),
        ("工作进程", "Workers"),
        ("副本", "Memory"),
        ("它是", None),  # a particle
        ("cooks", None),
    ],
)
def test_find_matches_queries_and_answers_of_a_section(question, first):
    found = QUESTIONS.find(question)
    assert (found[0].href if found else None) == first
