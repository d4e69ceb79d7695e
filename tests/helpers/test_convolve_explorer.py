"""Test the weights of the graph convolution explorer, and their product in a browser."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import graphs
from helpers.explorers import convolve

DATA = json.loads(convolve.convolve_explorer().data)
N = len(convolve.FEATURES)
X = torch.tensor(convolve.FEATURES)
PAIRS = list(itertools.combinations(range(N), 2))


def adjacency(pairs, loops: bool) -> torch.Tensor:
    A = torch.eye(N) * loops
    for i, j in pairs:
        A[i, j] = A[j, i] = 1
    return A


@given(st.sets(st.sampled_from(PAIRS)), st.booleans(), st.sampled_from(range(3)))
@settings(deadline=None, max_examples=100)
def test_weight_table_matches_the_matrix(pairs, loops, norm):
    A = adjacency(pairs, loops)
    degree = A.sum(1).long().tolist()
    want = convolve.weights(A, convolve.NORMS[norm])
    table = DATA["tables"][norm]
    for i, j in itertools.product(range(N), range(N)):
        entry = table[int(A[i, j])][degree[i]][degree[j]]
        found = torch.tensor(math.nan if entry is None else entry)
        torch.testing.assert_close(found, want[i, j], rtol=0, atol=1e-6, equal_nan=True)


@given(st.sets(st.sampled_from(PAIRS)))
@settings(deadline=None, max_examples=50)
def test_matrix_with_self_loops_matches_the_chapter(pairs):
    A = adjacency(pairs, loops=False)
    edges, weight = graphs.gcn_norm(A.nonzero().T.flip(0), N)
    dense = torch.zeros(N, N).index_put((edges[1], edges[0]), weight)
    torch.testing.assert_close(convolve.weights(adjacency(pairs, loops=True), "GCN"), dense)


def test_fallback_text_is_correct():
    start = convolve.weights(adjacency(convolve.EDGES, loops=False), "GCN")
    assert (start @ X).isnan().all()
    looped = convolve.weights(adjacency(convolve.EDGES, loops=True), "GCN")
    assert (looped @ X)[4] == 5


# ---------------------------------------------------------------- in a browser


def shown(number: float) -> str:
    return "nan" if math.isnan(number) else f"{round(number + 1e-9, 2):g}"


def bits(pairs) -> int:
    return sum(1 << (i * N + j) for i, j in pairs)


GRAPHS = [(), convolve.EDGES, PAIRS, [(0, 4), (1, 4)], [(2, 3)], PAIRS[:6]]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_explorer_shows_matrix_and_features_per_normalization(show, cover, lang):
    page = show(convolve.convolve_explorer(lang), lang=lang, width=375)
    element = page.locator("convolve-explorer")
    for g, norm, loops in cover(itertools.product(range(len(GRAPHS)), range(3), (0, 1)), lang):
        pairs = [tuple(pair) for pair in GRAPHS[g]]
        element.evaluate("(e, state) => e.set(state)", {"bits": bits(pairs)})
        element.get_by_role("radio").nth(norm).check()
        element.get_by_role("checkbox").set_checked(bool(loops))
        P = convolve.weights(adjacency(pairs, bool(loops)), convolve.NORMS[norm])
        out = P.double() @ X.double()
        cells = element.locator(".matrix button").all_inner_texts()
        assert cells == [shown(w) for w in P.flatten().tolist()]
        values = element.locator("svg text").all_text_contents()[1::2]
        for text, want in zip(values, out.tolist(), strict=True):
            assert (text == "nan") == math.isnan(want)
            assert text == "nan" or float(text) == pytest.approx(want, abs=0.0051)
        assert element.locator("line").count() == len(pairs)
        alone = all(4 not in pair for pair in pairs)
        done = "done" in element.locator(".task").get_attribute("class")
        assert done == (alone and shown(out[4].item()) == "5")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_keyboard_changes_edges_and_self_loops(show):
    page = show(convolve.convolve_explorer("en"), width=375)
    element = page.locator("convolve-explorer")
    text, task = element.locator(".said"), element.locator(".task")
    assert "= nan. Degree 0: node 4. Its row and its column are nan" in text.inner_text()
    cells = element.locator(".matrix button")
    cells.nth(4 * N + 3).focus()
    page.keyboard.press("Enter")  # an edge between 3 and 4
    assert "Next feature of node 4: 0.71 · 4 = 2.83." in text.inner_text()
    assert element.locator("line").count() == len(convolve.EDGES) + 1
    page.keyboard.press("Enter")
    assert task.inner_text().startswith("Task")
    cells.nth(0).click()  # the diagonal: self-loops
    assert element.get_by_role("checkbox").is_checked()
    assert task.inner_text().startswith("✓ Done")
    cells.nth(6).click()
    assert not element.get_by_role("checkbox").is_checked()
