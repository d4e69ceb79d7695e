"""Test that the trace explorer shows the results of torch.jit.trace and torch.export."""

from __future__ import annotations

import json
from functools import cache

import pytest
import torch

from helpers.explorers import trace


@cache
def data():
    return json.loads(trace.trace_explorer().data)


CASES = [(n, s) for n in range(len(trace.LENGTHS)) for s in range(len(trace.SIGNS))]


def x_of(n, s):
    return torch.tensor(data()["inputs"][n][s])


def test_recorded_python_and_trace_results_match():
    for function, rows in zip(trace.FUNCTIONS.values(), data()["rows"], strict=True):
        traced = trace.traced(function)
        for n, s in CASES:
            python, by_trace = rows[n][s][:2]
            assert python == function(x_of(n, s)).tolist()
            if isinstance(by_trace, str):
                with pytest.raises(RuntimeError):
                    traced(x_of(n, s))
            else:
                assert by_trace == traced(x_of(n, s)).tolist()


def test_shown_code_matches_the_function():
    for code, function in trace.FUNCTIONS.items():
        if "for" in code:
            continue
        for n, s in CASES:
            assert torch.equal(eval(code, {"torch": torch, "x": x_of(n, s)}), function(x_of(n, s)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_program_matches_python_or_raises(dynamic):
    """Every displayed result equals Python's or is an error."""
    for rows in data()["rows"]:
        for n, s in CASES:
            answer = rows[n][s][2 + dynamic]
            assert isinstance(answer, str) or answer == rows[n][s][0]


def test_recorded_export_results_match():
    for function, rows in zip(trace.FUNCTIONS.values(), data()["rows"], strict=True):
        for column, dynamic in ((2, False), (3, True)):
            shown = {str(rows[n][s][column]) for n, s in CASES}
            if len(shown) == 1 and shown.pop().startswith(("Guard", "User")):
                with pytest.raises(Exception, match="Could not guard|Constraints violated"):
                    trace.exported(function, dynamic)
                continue
            run = trace.exported(function, dynamic)
            for n, s in CASES:
                want = rows[n][s][column]
                if isinstance(want, str):
                    assert want.startswith("AssertionError: Guard failed")
                    with pytest.raises(AssertionError, match="Guard failed"):
                        run(x_of(n, s))
                else:
                    assert run(x_of(n, s)).tolist() == want


def silent(rows, n, s):
    python, by_trace = rows[n][s][:2]
    return not isinstance(by_trace, str) and by_trace != python


def test_claims_of_chapter_and_task_hold():
    branch = data()["rows"][0]
    assert silent(branch, 1, 1) and isinstance(branch[1][1][2], str)  # the initial setting
    reached = {
        f
        for f, rows in enumerate(data()["rows"])
        for n, s in CASES
        if silent(rows, n, s) and rows[n][s][0] in rows[n][s][2:]
    }
    assert reached == {2}


# ---------------------------------------------------------------- in a browser

STATE = """(e) => { const all = (s) => [...e.shadowRoot.querySelectorAll(s)];
  return { said: e.shadowRoot.querySelector(".said").textContent,
    done: e.shadowRoot.querySelector(".task").className.includes("done"),
    shown: all(".answers code").map((c) => c.textContent),
    looks: all(".answers button").map((b) => b.className) }; }"""


def listed(answer):
    return answer if isinstance(answer, str) else f"[{', '.join(f'{y:g}' for y in answer)}]"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_each_recorded_case(show, lang):
    page = show(trace.trace_explorer(), lang=lang, width=375)
    element = page.locator("trace-explorer")
    for f, rows in enumerate(data()["rows"]):
        element.get_by_role("combobox").select_option(str(f))
        for n, s in ((0, 0), (1, 1), (3, 0)):
            element.get_by_role("slider").fill(str(n + 1))
            element.get_by_role("radio").nth(s).check()
            now, answers = element.evaluate(STATE), rows[n][s]
            assert now["shown"] == [listed(y) for y in answers]
            assert now["looks"] == [
                "free" if isinstance(y, str) else "good" if y == answers[0] else "bad"
                for y in answers
            ]
            assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explorer_opens_with_a_wrong_trace_and_task_requires_other_code(show):
    page = show(trace.trace_explorer("en"), width=375)
    element = page.locator("trace-explorer")
    now = element.evaluate(STATE)
    assert "trace returns [-2, -4] without an error; the correct result is [1, 2]" in now["said"]
    assert not now["done"]
    element.locator(".answers button").nth(2).hover()
    assert "export raises: GuardOnData" in element.evaluate(STATE)["said"]
    element.get_by_role("combobox").select_option("4")
    assert not element.evaluate(STATE)["done"]
    element.get_by_role("combobox").select_option("2")
    now = element.evaluate(STATE)
    assert now["done"] and "export returns [1, 2], as the code does" in now["said"]
