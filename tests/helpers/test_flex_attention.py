"""Test the helpers of `flex_attention` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import math
import shutil
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from torch._inductor import config as inductor
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention
from verdicts import expect

from helpers import flex_attention as flex
from helpers.demos import flex_attention as demos
from helpers.exercises import flex_attention as exercises
from helpers.figures import COLORS


def causal(b, h, i, j):
    return i >= j


# ---------------------------------------------------------------- documents and windows


def test_document_index_numbers_the_documents_of_each_row():
    assert flex.document_index([[2, 1], [4]]).tolist() == [[0, 0, 1, -1], [0, 0, 0, 0]]
    assert flex.document_index([[1]], 3).tolist() == [[0, -1, -1]]
    assert flex.document_index([], 2).shape == (0, 2)
    assert flex.document_index([[]], 2).tolist() == [[-1, -1]]
    with pytest.raises(ValueError, match="at least one token"):
        flex.document_index([[2, 0]])
    with pytest.raises(ValueError, match="4 tokens, and the length is 3"):
        flex.document_index([[2, 2]], 3)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=3), st.integers(12, 14)
)
def test_document_rule_equals_a_mask_by_hand(lengths, length):
    doc = flex.document_index(lengths, length)
    mask = create_mask(flex.document_rule(doc), len(doc), None, length, length, device="cpu")
    for b, row in enumerate(doc.tolist()):
        for i, mine in enumerate(row):
            expected = [i == j or (mine == row[j] >= 0 and j < i) for j in range(length)]
            assert mask[b, 0, i].tolist() == expected


@pytest.mark.parametrize(("size", "past"), [(1, 0), (3, 0), (2, 4), (9, 2)])
def test_window_rule_counts_from_the_cache(size, past):
    mask = create_mask(flex.window_rule(size, past), None, None, 3, 3 + past, device="cpu")[0, 0]
    for i, row in enumerate(mask.tolist()):
        assert row == [0 <= i + past - j < size for j in range(3 + past)]


def test_window_rule_rejects_invalid_size_and_past():
    for size, past in ((0, 0), (2, -1)):
        with pytest.raises(ValueError, match="size must be at least 1"):
            flex.window_rule(size, past)


@pytest.mark.parametrize("lengths", ["ab", None, [1, 2], [[2.5]], [["a"]], [None]])
def test_document_index_rejects_invalid_lengths(lengths):
    with pytest.raises(TypeError, match="lengths must be|a length must be an integer|NoneType"):
        flex.document_index(lengths)
    with pytest.raises(TypeError, match="a length must be an integer, got 2.5"):
        flex.document_index([[1]], 2.5)
    assert flex.document_index(torch.tensor([[1, 2]])).tolist() == [[0, 1, 1]]


@pytest.mark.parametrize(
    ("doc", "error", "words"),
    [
        (None, TypeError, "doc must be a tensor, got NoneType"),
        ([[0, 1]], TypeError, "doc must be a tensor, got list"),
        (torch.zeros(2, 3), TypeError, "must contain integers, got torch.float32"),
        (torch.zeros(2, 3) > 0, TypeError, "must contain integers, got torch.bool"),
        (torch.zeros(3, dtype=torch.int64), ValueError, r"shape \(N, L\), got \(3,\)"),
        (torch.zeros(1, 2, 3, dtype=torch.int64), ValueError, r"got \(1, 2, 3\)"),
    ],
)
def test_document_rule_rejects_an_invalid_index(doc, error, words):
    with pytest.raises(error, match=words):
        flex.document_rule(doc)


@pytest.mark.parametrize("arguments", [(1.5,), ("a",), (None,), (2, 2.5), (2, None)])
def test_window_rule_requires_integers(arguments):
    with pytest.raises(TypeError, match="(size|past) must be an int, got"):
        flex.window_rule(*arguments)


@pytest.mark.parametrize("given_", [None, torch.ones(2, 2), "a", causal])
def test_block_kinds_requires_a_block_mask(given_):
    with pytest.raises(TypeError, match="expected a block mask from create_block_mask, got"):
        flex.block_kinds(given_)


@pytest.mark.parametrize("length", [200, 256, 512])
def test_block_kinds_match_the_mask(length):
    doc = flex.document_index([[128, length - 128], [length]])
    for rule, n in ((causal, 1), (flex.document_rule(doc), 2), (flex.window_rule(100), 1)):
        kinds = flex.block_kinds(create_block_mask(rule, n, None, length, length, device="cpu"))
        count = math.ceil(length / 128)
        assert kinds.shape == (n, 1, count, count)
        mask = create_mask(rule, n, None, length, length, device="cpu")
        for b in range(n):
            for q in range(count):
                for k in range(count):
                    part = mask[b, 0, 128 * q : 128 * (q + 1), 128 * k : 128 * (k + 1)]
                    whole = part.shape == (128, 128) and part.all()
                    expected = 2 if whole else int(part.any())
                    assert kinds[b, 0, q, k] == expected


def test_draw_blocks_marks_computed_blocks():
    drawing = demos.draw_blocks({"causal": torch.tensor([[1, 0], [2, 1]])})
    assert drawing.labels() == ["1", "2", "block of keys", "block of queries", "causal"]
    colors = [to_hex(patch.get_facecolor()) for patch in drawing.axes[0].patches]
    assert colors == [COLORS[c] for c in ("pale orange", "pale grey", "pale blue", "pale orange")]
    assert [t.get_text() for t in drawing.axes[0].texts] == ["1", "", "2", "1"]
    assert "键的块" in drawing._repr_html_()


# ---------------------------------------------------------------- sentences of the chapter


def test_flex_attention_warns_once_about_full_scores(monkeypatch):
    monkeypatch.setattr("torch.nn.attention.flex_attention._WARNINGS_SHOWN", set())
    q = torch.randn(1, 1, 4, 8)
    with pytest.warns(UserWarning, match="materializes the full scores matrix"):
        flex_attention(q, q, q)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flex_attention(q, q, q)


@pytest.mark.filterwarnings("ignore:flex_attention called")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_flex_attention_on_cpu_rejects_inputs_that_require_grad(which):
    inputs = [torch.randn(1, 1, 4, 8) for _ in range(3)]
    inputs[which].requires_grad_()
    with torch.no_grad():
        with pytest.raises(NotImplementedError, match="backward on CPU"):
            flex_attention(*inputs)
        inputs[which] = inputs[which] * 2
        assert flex_attention(*inputs).shape == (1, 1, 4, 8)


@pytest.mark.filterwarnings("ignore:flex_attention called")
def test_flex_attention_rejects_backward_control_flow_and_other_lengths():
    q = torch.randn(1, 1, 4, 8, requires_grad=True)
    with torch.no_grad(), pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(q, q, q)
    numbers = [0, 0, 1, 1]
    for rule, message in (
        (lambda b, h, i, j: numbers[i] == numbers[j], r"calling \.item\(\)"),
        (lambda b, h, i, j: not i < j, "data-dependent control flow"),
        (lambda b, h, i, j: causal(b, h, i, j) if i < 2 else i > j, "data-dependent"),
        (lambda b, h, i, j: 0 <= i - j < 2, "data-dependent control flow"),
        (lambda b, h, i, j: i >= j and i < 3, "data-dependent control flow"),
    ):
        with pytest.raises(RuntimeError, match=message):
            create_mask(rule, None, None, 4, 4, device="cpu")
    array = np.array(numbers)
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        create_mask(lambda b, h, i, j: array[i] == array[j], None, None, 4, 4, device="cpu")
    mask = create_mask(lambda b, h, i, j: torch.where(i < 2, i >= j, i > j), 1, 1, 4, 4, "cpu")
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    block_mask = create_block_mask(causal, None, None, 4, 5, device="cpu")
    for lk, size in ((4, "larger"), (6, "smaller")):
        k = torch.randn(1, 1, lk, 8)
        with pytest.raises(RuntimeError, match=f"created for a {size} length"):
            flex_attention(q.detach(), k, k, block_mask=block_mask)


@pytest.mark.filterwarnings("ignore:flex_attention called")
def test_captured_bias_gets_its_gradient_on_the_cpu():
    q = torch.randn(1, 1, 6, 8)
    bias, other = (torch.zeros(6, requires_grad=True) for _ in range(2))
    out = flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + bias[j])
    out.square().sum().backward()
    ((q @ q.mT / 8**0.5 + other).softmax(-1) @ q).square().sum().backward()
    torch.testing.assert_close(bias.grad, other.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called")
def test_masking_by_a_product_favours_the_masked_key():
    q = torch.ones(1, 1, 2, 4)
    weights = flex_attention(
        q, -q, torch.eye(2)[None, None], score_mod=lambda score, b, h, i, j: score * (i >= j)
    )
    assert weights[0, 0, 0, 1] > weights[0, 0, 0, 0]


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore")
def test_compiled_kernel_follows_the_block_table():
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a compiler on a CPU")
    doc = torch.arange(256) // torch.tensor([[128], [256]])

    def same_doc(b, h, i, j):
        return doc[b, i] == doc[b, j]

    q = torch.randn(2, 1, 256, 16)
    k, v = q.clone(), q.clone()
    seen = create_mask(same_doc, 2, None, 256, 256, device="cpu")
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    block_mask = create_block_mask(same_doc, None, None, 256, 256, device="cpu")
    once = inductor.patch(cpp_cache_precompile_headers=False, compile_threads=1)  # one kernel only
    for function, right in (
        (flex_attention, [True, True]),
        (torch.compile(flex_attention), [True, False]),
    ):
        try:
            with once:
                out = function(q, k, v, block_mask=block_mask)
        except Exception as error:
            if "InductorError" not in type(error).__name__:
                raise
            pytest.skip("flex_attention cannot be compiled here")
        assert [
            torch.allclose(*pair, atol=1e-4) for pair in zip(out, expected, strict=True)
        ] == right


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore")
def test_compiled_kernel_computes_full_blocks_without_the_rule():
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a compiler on a CPU")
    flag = torch.tensor(True)
    block_mask = create_block_mask(
        lambda b, h, i, j: (i >= j) & flag, None, None, 256, 256, device="cpu"
    )
    assert flex.block_kinds(block_mask)[0, 0].tolist() == [[1, 0], [2, 1]]
    flag.fill_(False)  # the rule now masks everything
    q, k, v = torch.randn(3, 1, 1, 256, 16)
    try:
        with inductor.patch(cpp_cache_precompile_headers=False, compile_threads=1):
            out = torch.compile(flex_attention)(q, k, v, block_mask=block_mask)
    except Exception as error:
        if "InductorError" not in type(error).__name__:
            raise
        pytest.skip("flex_attention cannot be compiled here")
    assert not out[:, :, :128].any()
    full = F.scaled_dot_product_attention(q[:, :, 128:], k[:, :, :128], v[:, :, :128])
    torch.testing.assert_close(out[:, :, 128:], full, atol=1e-4, rtol=1e-4)


# ---------------------------------------------------------------- exercises


def rule_of(allowed):
    """Return an answer whose rule is `allowed(doc_i, doc_j, i, j)`."""

    def answer(doc):
        return lambda b, h, i, j: allowed(doc[b, i], doc[b, j], i, j)

    return answer


def documents_by_table(doc):
    past = torch.ones(doc.shape[1], doc.shape[1]).tril().bool()
    table = (doc[:, :, None] == doc[:, None]) & (doc >= 0)[:, :, None] & past
    table = table | torch.eye(doc.shape[1]).bool()
    return lambda b, h, i, j: table[b, i, j]


def documents_by_start(doc):
    new = torch.ones_like(doc).bool()
    new[:, 1:] = doc[:, 1:] != doc[:, :-1]
    start = torch.where(new, torch.arange(doc.shape[1]), 0).cummax(1).values
    return lambda b, h, i, j: (j >= start[b, i]) & (i > j) & (doc[b, i] >= 0) | (i == j)


def documents_in_place(doc):
    rule = flex.document_rule(doc.clone())
    doc[doc < 0] = 99
    return rule


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (flex.document_rule, None),
        (documents_by_table, None),
        (
            rule_of(lambda a, b, i, j: torch.where(a < 0, i == j, (a == b) & (i >= j))),
            None,
        ),
        (rule_of(lambda a, b, i, j: a == b), "attends to a later one"),
        (rule_of(lambda a, b, i, j: i >= j), "attends to another document"),
        (rule_of(lambda a, b, i, j: (a == b) & (i >= j)), "a padding token attends to another"),
        (rule_of(lambda a, b, i, j: (a == b) & (i >= j) & (a >= 0)), "does not attend to itself"),
        (rule_of(lambda a, b, i, j: (a == b) & (i > j) & (a >= 0)), "does not attend to itself"),
        (
            rule_of(lambda a, b, i, j: ((a == b) | (b < 0)) & (i >= j) & (a >= 0) | (i == j)),
            "attends to padding",
        ),
        (
            rule_of(lambda a, b, i, j: (a == b) & (a >= 0) & (i >= j) & (i < j + 2) | (i == j)),
            "does not attend to all earlier tokens",
        ),
        (
            rule_of(lambda a, b, i, j: (a == b) & (a >= 0) & (i >= j) & (i < j + 20) | (i == j)),
            "does not attend to all earlier tokens",
        ),
        (
            rule_of(lambda a, b, i, j: (a.abs() == b.abs()) & (a >= 0) & (i >= j) | (i == j)),
            "attends to padding",
        ),
        (
            rule_of(
                lambda a, b, i, j: (a % 8 == b % 8) & (a >= 0) & (b >= 0) & (i >= j) | (i == j)
            ),
            "attends to another document",
        ),
        (lambda doc: flex.document_rule(doc[:1]), "your code raised"),
        (lambda doc: documents_by_table(doc)(0, 0, 0, 0), "expected a mask_mod, a function"),
        (lambda doc: lambda b, h, i, j: doc[b, i] == doc[b, j] and i >= j, "your code raised"),
        (documents_in_place, "doc was changed"),
        (documents_by_start, "does not attend to all earlier tokens"),
        (
            rule_of(lambda a, b, i, j: torch.where(a < 0, i == j, (a <= b) & (b >= 0) & (i >= j))),
            "attends to another document",
        ),
        (
            lambda doc: (
                lambda b, h, i, j: (flex.document_rule(doc)(b, h, i, j) & (h < 1)) | (i == j)
            ),
            "does not attend to all earlier",
        ),
        (
            lambda doc: lambda score, *at: score.where(flex.document_rule(doc)(*at), -math.inf),
            "your code raised TypeError",
        ),
    ],
)
def test_check_document_rule_accepts_right_and_rejects_wrong_answers(answer, says):
    for _ in range(3):
        expect(exercises.check_document_rule(answer), says)


def alibi(slopes):
    return lambda score, b, h, i, j: torch.where(i >= j, score - slopes[h] * (i - j), -math.inf)


def alibi_low(slopes):
    return lambda score, b, h, i, j: torch.where(i >= j, score - slopes[h] * (i - j), -1e4)


def alibi_very_low(slopes):
    return lambda score, b, h, i, j: torch.where(i >= j, score - slopes[h] * (i - j), -1e9)


def alibi_times_inf(slopes):
    return lambda score, b, h, i, j: score - slopes[h] * (i - j) + (i < j) * -math.inf


def alibi_added(slopes):
    def change(score, b, h, i, j):
        return score + torch.where(i < j, -math.inf, slopes[h] * (j - i))

    return change


def alibi_in_place(slopes):
    change = alibi(slopes.clone())
    slopes.neg_()
    return change


def alibi_plus(slopes):
    return lambda score, b, h, i, j: torch.where(i >= j, score + slopes[h] * (i - j), -math.inf)


def alibi_capped(slopes, limit=8):
    def change(score, b, h, i, j):
        return torch.where(i >= j, score - slopes[h] * (i - j).clamp(max=limit), -math.inf)

    return change


def alibi_by_key(slopes):
    """Add the bias by key position alone: right, since softmax ignores a constant per query."""
    return lambda score, b, h, i, j: torch.where(i >= j, score + slopes[h] * j, -math.inf)


def alibi_product(slopes):
    return lambda score, b, h, i, j: (score - slopes[h] * (i - j)) * (i >= j)


def alibi_lowered(slopes):
    return lambda score, b, h, i, j: score - slopes[h] * (i - j) - 1e4 * (i < j)


def alibi_distance(slopes):
    return lambda score, b, h, i, j: score - slopes[h] * (i - j).abs()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (alibi, None),
        (alibi_added, None),
        (alibi_by_key, None),
        (alibi_capped, "the distance has no limit"),
        (lambda s: alibi_capped(s, 64), "the distance has no limit"),
        (alibi_product, "only a score of -inf masks a key"),
        (alibi_distance, "only a score of -inf masks a key"),
        (alibi_low, "its score must be -inf"),
        (alibi_very_low, "its score must be -inf"),
        (alibi_times_inf, "0 times -inf is nan"),
        (alibi_lowered, "its score must be -inf"),
        (lambda s: alibi(s[:1].expand(len(s))), "head h has the slope"),
        (alibi_plus, "subtract slopes[h]"),
        (alibi_in_place, "slopes was changed"),
        (lambda s: alibi(s)(torch.tensor(1.0), 0, 0, torch.tensor(1), 0), "expected a score_mod"),
        (lambda s: lambda score, b, h, i, j: score * math.nan, "the result has nan"),
    ],
)
def test_check_alibi_accepts_right_and_rejects_wrong_answers(answer, says):
    for _ in range(2):
        expect(exercises.check_alibi(answer), says)


def test_document_index_rejects_a_bool_length():
    with pytest.raises(TypeError, match="must be an integer, got True"):
        flex.document_index([[True, 2]])


def test_draw_kept_draws_both_curves():
    drawing = demos.draw_kept([64, 128], {"by hand": [10, 40], "SDPA": [10, 20]})
    lines = [line.get_ydata().tolist() for line in drawing.axes[0].lines]
    assert lines == [[10, 40], [10, 20]]
    with pytest.raises(ValueError):
        demos.draw_kept([64], {"by hand": [10]})
