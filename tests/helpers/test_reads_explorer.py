"""Test that the reads explorer shows the steps PyTorch's gradients depend on."""

from __future__ import annotations

import itertools
import json
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers import sequences
from helpers.explorers import reads


@cache
def data():
    return json.loads(reads.reads_explorer().data)


CHOICES = list(itertools.product((False, True), repeat=2))  # both, packed
SIZE = max(reads.LENGTHS)


def own(n: int) -> str:
    return "".join(
        "1" if m == n and step < length else "0"
        for m, length in enumerate(reads.LENGTHS)
        for step in range(SIZE)
    )


@given(st.integers(0, 10**6), st.sampled_from(CHOICES), st.sampled_from(list(reads.WAYS)))
@settings(deadline=None, max_examples=40)
def test_changed_step_changes_the_vectors_that_depend_on_it(seed, choice, way):
    """Check another layer by changing the input instead of computing a gradient."""
    both, packed = choice
    torch.manual_seed(seed)
    lstm = nn.LSTM(3, reads.HIDDEN, bidirectional=both, batch_first=True).double()
    x, lengths = torch.randn(3, SIZE, 3).double(), torch.tensor(reads.LENGTHS)
    table = data()["read"][CHOICES.index(choice)][list(reads.WAYS).index(way)]

    def vectors(x):
        out, (h, _) = sequences.run_packed(lstm, x, lengths) if packed else lstm(x)
        return reads.WAYS[way](out, h, lengths)

    if table is None:
        with pytest.raises(IndexError):
            vectors(x)
        return
    with torch.no_grad():
        before = vectors(x)
        for m, step in itertools.product(range(3), range(SIZE)):
            other = x.clone()
            other[m, step] += 1
            after = vectors(other)
            for n, halves in enumerate(table):
                assert len(halves) * reads.HIDDEN == before.shape[1]
                for i, half in enumerate(halves):
                    part = slice(i * reads.HIDDEN, (i + 1) * reads.HIDDEN)
                    changed = not torch.equal(before[n, part], after[n, part])
                    assert changed == (half[m * SIZE + step] == "1")


def test_data_is_complete_and_the_random_state_is_kept():
    assert data()["ways"] == list(reads.WAYS) and tuple(data()["lengths"]) == reads.LENGTHS
    state = torch.get_rng_state()
    reads.reads_explorer("zh")
    assert torch.equal(state, torch.get_rng_state())
    assert max(reads.LENGTHS) != reads.LENGTHS[0]  # not sorted


def test_only_one_choice_solves_the_task():
    solved = [
        (choice, way)
        for i, choice in enumerate(CHOICES)
        for way, table in zip(data()["ways"], data()["read"][i], strict=True)
        if table and choice[0] and all(halves == [own(n)] * 2 for n, halves in enumerate(table))
    ]
    assert solved == [((True, True), "cat([h[-2], h[-1]], dim=1)")]


# ---------------------------------------------------------------- in a browser


def arrows(both, halves, at) -> str:
    names = "→←"[-len(halves) :] if both else "→"
    return " ".join(name for name, half in zip(names, halves, strict=True) if half[at] == "1")


SHOWN = """element => {
  const all = (selector) => [...element.shadowRoot.querySelectorAll(selector)];
  return {
    arrows: all(".word b").map((b) => b.innerText),
    bad: all(".word").map((w) => w.classList.contains("bad")),
    held: all(".word").map((w) => w.classList.contains("hold")),
    marks: all(".batch button").map((b) => b.innerText.trim().at(-1)),
    width: document.documentElement.scrollWidth,
  };
}"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_shows_the_dependencies_of_each_choice(show, cover, lang):
    page = show(reads.reads_explorer(lang), width=375)
    element = page.locator("reads-explorer")
    own_steps = [own(n) for n in range(3)]
    grid = itertools.product((False, True), (False, True), range(len(data()["ways"])))
    for both, packed, w in cover(grid, lang):
        table, full = data()["read"][CHOICES.index((both, packed))][w], 1 + both
        for n in range(3):
            state = {"both": both, "packed": packed, "way": w, "row": n}
            element.evaluate("(element, state) => element.set(state)", state)
            shown = element.evaluate(SHOWN)
            assert shown["width"] <= 375
            if table is None:
                assert "IndexError" in element.locator(".said").inner_text()
                assert shown["marks"] == ["✗"] * 3
                assert not any(shown["bad"] + shown["held"]) and not any(shown["arrows"])
                continue
            assert shown["marks"] == [
                "✓" if halves == [own_steps[m]] * full else "✗" for m, halves in enumerate(table)
            ]
            steps = range(3 * SIZE)
            assert shown["arrows"] == [arrows(both, table[n], at) for at in steps]
            padded = ["0" * len(steps)] * (full - len(table[n])) + table[n]
            wrong = [any(half[at] != own_steps[n][at] for half in padded) for at in steps]
            assert shown["bad"] == wrong


def test_explorer_opens_with_padding_read_and_counts_words(show):
    page = show(reads.reads_explorer("en"), width=375)
    element = page.locator("reads-explorer")
    text = element.locator(".said")
    assert "→ depends on 3 of 3 words, and 2 of padding" in text.inner_text()
    assert "← depends on 0 of 3 words, and 1 of padding" in text.inner_text()
    element.locator(".batch button").first.focus()
    page.keyboard.press("ArrowDown")
    assert "→ depends on 5 of 5 words; ← depends on 1 of 5 words." in text.inner_text()
    element.locator("select").select_option("4")
    assert (
        "→ depends on 0 of 5 words, and 3 of padding and 2 of the other sentences"
        in text.inner_text()
    )
    element.locator("select").select_option("3")
    assert "→ depends on 0 of 5 words; ← depends on 5 of 5 words." in text.inner_text()


def test_task_requires_both_directions(show):
    page = show(reads.reads_explorer("zh"), width=375)
    element, task = page.locator("reads-explorer"), page.locator("reads-explorer .task")
    both, packed = element.get_by_role("checkbox").all()
    text = "句子 0 的向量：→ 依赖 3 个词中的 3 个，还有 2 步填充；← 依赖"
    assert element.locator(".said").inner_text().startswith(text)
    packed.check()
    element.locator("select").select_option("3")  # the backward state alone
    assert task.inner_text().startswith("任务")
    both.uncheck()  # correct, but with one direction only
    assert task.inner_text().startswith("任务")
    both.check()
    element.locator("select").select_option("5")
    assert task.inner_text().startswith("✓ 完成")
    element.get_by_role("button", name="重置").click()
    assert task.inner_text().startswith("任务")
