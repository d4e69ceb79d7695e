"""Test the helper of `embeddings`, sentences of its chapter, and its checkers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn
from verdicts import expect

from helpers import embeddings
from helpers.exercises import embeddings as exercises

# ---------------------------------------------------------------- IDs without a row


@given(st.integers(1, 6), st.lists(st.integers(-3, 9), max_size=12))
@settings(deadline=None, max_examples=60)
def test_out_of_range_returns_the_ids_for_which_the_lookup_raises(rows, values):
    table = nn.Embedding(rows, 2)
    found = embeddings.out_of_range(torch.tensor(values, dtype=torch.int64), table)
    assert found == {(i,): v for i, v in enumerate(values) if not 0 <= v < rows}
    for value in values:
        if value in found.values():
            with pytest.raises(IndexError, match="index out of range in self"):
                table(torch.tensor(value))
        else:
            table(torch.tensor(value))


def test_out_of_range_accepts_any_shape_and_integer_dtype_and_a_bag():
    bag = nn.EmbeddingBag(3, 2)
    assert embeddings.out_of_range(torch.tensor(5, dtype=torch.int32), bag) == {(): 5}
    ids = torch.tensor([[[0, 3]], [[2, 200]]], dtype=torch.uint8)
    assert embeddings.out_of_range(ids, bag) == {(0, 0, 1): 3, (1, 0, 1): 200}
    assert embeddings.out_of_range(torch.zeros(0, 4, dtype=torch.int64), bag) == {}


@pytest.mark.parametrize(
    ("ids", "got"),
    [
        (torch.zeros(2), "torch.float32"),
        (torch.zeros(2, dtype=torch.bool), "torch.bool"),
        (torch.zeros(2, dtype=torch.complex64), "torch.complex64"),
        ([1, 2], "list"),
    ],
)
def test_out_of_range_rejects_other_types(ids, got):
    with pytest.raises(TypeError, match=f"tensor of integers, got {got}"):
        embeddings.out_of_range(ids, nn.Embedding(3, 2))


# ---------------------------------------------------------------- the mean of the words


def by_mask(table, ids):
    real = (ids != table.padding_idx)[..., None]
    return (table(ids) * real).sum(1) / real.sum(1).clamp(min=1)


def by_bag(table, ids):
    return F.embedding_bag(ids, table.weight, mode="mean", padding_idx=table.padding_idx)


def by_loop(table, ids):
    rows = []
    for row in ids:
        words = row[row != table.padding_idx]
        zeros = table.weight.new_zeros(table.embedding_dim)
        rows.append(table(words).mean(0) if len(words) else zeros)
    return torch.stack(rows)


@pytest.mark.parametrize("right", [by_mask, by_bag, by_loop])
def test_right_mean_vectors_pass_for_every_draw(right):
    for _ in range(10):
        expect(exercises.check_mean_vectors(right), None)


def by_zero(table, ids):
    """Treat 0 as the padding."""
    real = (ids != 0)[..., None]
    return (table(ids) * real).sum(1) / real.sum(1).clamp(min=1)


def first_words(table, ids):
    """Take as many leading positions as there are words."""
    count = (ids != table.padding_idx).sum(1)
    real = (torch.arange(ids.shape[1]) < count[:, None])[..., None]
    return (table(ids) * real).sum(1) / count.clamp(min=1)[:, None]


def nonzero_only(table, ids):
    vectors = table(ids) * (ids != table.padding_idx)[..., None]
    return vectors.sum(1) / vectors.any(-1).sum(1, keepdim=True).clamp(min=1)


def without_a_limit(table, ids):
    real = (ids != table.padding_idx)[..., None]
    return (table(ids) * real).sum(1) / real.sum(1)


def clearing(table, ids):
    with torch.no_grad():
        table.weight[table.padding_idx] = 0
    return by_mask(table, ids)


def a_copy(table, ids):
    """Return the right mean of another parameter with the same memory."""
    return nn.EmbeddingBag.from_pretrained(table.weight, False, padding_idx=table.padding_idx)(ids)


def without_padding_idx(table, ids):
    """Count the padding in the divisor."""
    real = (ids != table.padding_idx)[..., None]
    return (table(ids) * real).mean(1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda table, ids: table(ids).mean(1), "the mean includes the padding"),
        (without_padding_idx, "the mean includes the padding"),
        (nonzero_only, "not yet"),
        (by_zero, "another ID than 0"),
        (first_words, "the padding is not at the end"),
        (without_a_limit, "expected zeros for a row"),
        (clearing, "was changed"),
        (lambda table, ids: by_mask(table, ids.clamp_(min=1)), "was changed"),
        (lambda table, ids: by_mask(table, ids).detach(), "no gradient"),
        (a_copy, "no gradient"),
        (lambda table, ids: by_mask(table, ids).float(), "torch.float64"),
        (lambda table, ids: by_mask(table, ids).tolist(), "expected a tensor, got list"),
        (lambda table, ids: by_mask(table, ids).sum(1), "expected shape"),
        (lambda table, ids: by_mask(table, ids) * 2, "wrong even without padding"),
    ],
)
def test_wrong_mean_vectors_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_mean_vectors(wrong), says)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize("limit", [1e-3, 1e9])
def test_max_norm_lookup_counts_as_an_in_place_write(limit):
    table, head = nn.Embedding(5, 3, max_norm=limit), nn.Linear(3, 2)
    for weight in (table.weight, table.weight.clone()):
        total = head(weight).sum() + table(torch.tensor([1, 2])).sum()
        if weight is table.weight:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                total.backward()
        else:
            total.backward()


@pytest.mark.parametrize("frozen", [False, True])
def test_max_norm_rescales_only_the_looked_up_rows(frozen):
    table = nn.Embedding(5, 3, max_norm=1.0).requires_grad_(not frozen)
    with torch.no_grad():
        before = table.weight.fill_(2).clone()
        table.eval()(torch.tensor([1, 3]))
    assert (table.weight != before).any(1).tolist() == [False, True, False, True, False]
    if not frozen:
        table(torch.tensor([1])).sum().backward()
        torch.optim.SGD(table.parameters(), 5.0).step()
        assert table.weight[1].norm() > 1.001


def test_gradient_passes_through_scaling_but_not_max_norm():
    start, ids, along = torch.full((2, 3), 2.0), torch.tensor([1]), torch.ones(3)
    table = nn.Embedding.from_pretrained(start.clone(), freeze=False, max_norm=1.0)
    (table(ids) @ along).sum().backward()
    plain = nn.Embedding.from_pretrained(start, freeze=False)
    vectors = plain(ids)
    ((vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1.0)) @ along).sum().backward()
    assert torch.equal(table.weight.grad[1], along)
    torch.testing.assert_close(plain.weight.grad[1], torch.zeros(3))


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["sum", "mean", "max"]),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
)
def test_embedding_bag_offsets_match_padding_and_empty_bags_are_zero(seed, mode, lengths):
    torch.manual_seed(seed)
    weight, sizes = torch.randn(9, 3), torch.tensor(lengths)
    ids = torch.randint(1, 9, (sum(lengths),))
    begins = sizes.cumsum(0) - sizes
    bags = F.embedding_bag(ids, weight, begins, mode=mode)
    rows = ids.split(lengths)
    expected = {
        "sum": lambda row: weight[row].sum(0),
        "mean": lambda row: weight[row].mean(0),
        "max": lambda row: weight[row].amax(0),
    }[mode]
    for row, bag in zip(rows, bags, strict=True):
        torch.testing.assert_close(bag, expected(row) if len(row) else torch.zeros(3))
    ended = torch.cat([begins, torch.tensor([len(ids)])])
    assert torch.equal(
        F.embedding_bag(ids, weight, ended, mode=mode, include_last_offset=True), bags
    )
    padded = F.pad(rnn.pad_sequence(rows, batch_first=True), (0, 1))
    found = F.embedding_bag(padded, weight, mode=mode, padding_idx=0)
    torch.testing.assert_close(found, bags)


def test_descending_offsets_return_wrong_bags_without_an_error():
    weight = torch.arange(1.0, 6)[:, None]
    bags = F.embedding_bag(torch.arange(5), weight, torch.tensor([0, 3, 1]), mode="sum")
    assert bags.shape == (3, 1) and bags.sum() != weight.sum()  # some words are in no bag


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_include_last_offset_drops_words_after_the_last_offset(mode):
    weight = torch.arange(1.0, 6)[:, None]
    offsets = torch.tensor([0, 1, 3])
    bags = F.embedding_bag(torch.arange(5), weight, offsets, mode=mode, include_last_offset=True)
    assert bags.flatten().tolist() == {"sum": [1, 5], "mean": [1, 5 / 4], "max": [1, 5]}[mode]


def test_per_sample_weights_include_padding_and_zero_sums_give_nan():
    bag = nn.EmbeddingBag(5, 2, mode="sum", padding_idx=0)
    ids = torch.tensor([[1, 2, 0], [3, 4, 0], [0, 0, 0]])
    weights = torch.tensor([[1.0, 1.0, 2.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    out = bag(ids, per_sample_weights=weights / weights.sum(1, keepdim=True))
    torch.testing.assert_close(out[0], bag.weight[1:3].mean(0) / 2)
    assert out[1].isnan().all() and not out[2].any()


@pytest.mark.parametrize("limit", [0.5, 1.0, 2.5])
def test_max_norm_scales_rows_by_limit_over_norm(limit):
    start = torch.randn(9, 4) * torch.linspace(0, 3, 9)[:, None]
    norm = start.norm(dim=-1, keepdim=True)
    found = F.embedding(torch.arange(9), start.clone(), max_norm=limit)
    torch.testing.assert_close(found, start * (limit / norm.clamp(min=limit)))


def test_from_pretrained_keeps_the_padding_row():
    table = nn.Embedding.from_pretrained(torch.ones(3, 2), padding_idx=0)
    assert table.weight[0].all() and not table.weight.requires_grad
    assert not nn.Embedding(3, 2, padding_idx=0).weight[0].any()


def test_tied_output_layer_trains_the_padding_row():
    table = nn.Embedding(3, 2, padding_idx=0)
    (table(torch.tensor([1, 0])) @ table.weight.T).sum().backward()
    assert table.weight.grad[0].all()


@pytest.mark.parametrize("word", [-1, -100, 3])
def test_embedding_ids_out_of_range_raise(word):
    with pytest.raises(IndexError, match="index out of range in self"):
        nn.Embedding(3, 2)(torch.tensor([word]))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: torch.optim.SGD(p, 0.1), None),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), None),
        (lambda p: torch.optim.Adagrad(p), None),
        (lambda p: torch.optim.SparseAdam(p), None),
        (lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1), "sparse"),
        (lambda p: torch.optim.SGD(p, 0.1, fused=True), "does not support sparse gradients"),
        (lambda p: torch.optim.Adagrad(p, fused=True), "does not support sparse grad"),
        (lambda p: torch.optim.Adagrad(p, weight_decay=0.1), "sparse gradients"),
        (lambda p: torch.optim.Adam(p), "does not support sparse gradients"),
        (lambda p: torch.optim.AdamW(p), "does not support sparse gradients"),
        (lambda p: torch.optim.RMSprop(p), "does not support sparse gradients"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_optimizers_support_or_reject_sparse_gradients(make, says):
    table = nn.Embedding(5, 2, sparse=True)
    optimizer = make(table.parameters())
    table(torch.tensor([1])).sum().backward()
    before = table.weight.clone()
    if says:
        with pytest.raises(RuntimeError, match=says):
            optimizer.step()
        return
    optimizer.step()
    assert (table.weight != before).any(1).tolist() == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("sparse", "optimizer", "options", "rows"),
    [
        (True, torch.optim.SGD, {}, [2]),
        (True, torch.optim.SGD, {"momentum": 0.9}, [1, 2]),
        (False, torch.optim.SGD, {}, [2]),
        (False, torch.optim.Adam, {}, [1, 2]),
        (False, torch.optim.AdamW, {}, [0, 1, 2, 3, 4]),
    ],
)
def test_step_also_updates_rows_of_earlier_batches(sparse, optimizer, options, rows):
    table = nn.Embedding(5, 2, sparse=sparse)
    optimizer = optimizer(table.parameters(), lr=0.1, **options)
    for word in (1, 2):
        before = table.weight.clone()
        optimizer.zero_grad()
        table(torch.tensor([word])).sum().backward()
        optimizer.step()
    assert (table.weight != before).any(1).nonzero().flatten().tolist() == rows


def by_copy(vocab, vectors, dim):
    table = nn.Embedding(len(vocab), dim, padding_idx=vocab["<pad>"])
    with torch.no_grad():
        for word, i in vocab.items():
            if word in vectors and word != "<pad>":
                table.weight[i] = vectors[word]
    return table


def by_stack(vocab, vectors, dim, freeze=False, pad=True, zero=True, draw=torch.randn):
    rows = [None] * len(vocab)
    for word, i in vocab.items():
        rows[i] = vectors.get(word, draw(dim))
    if zero:
        rows[vocab["<pad>"]] = torch.zeros(dim)
    return nn.Embedding.from_pretrained(
        torch.stack(rows), freeze=freeze, padding_idx=vocab["<pad>"] if pad else None
    )


def by_order(vocab, vectors, dim):
    rows = [vectors.get(word, torch.randn(dim)) for word in vocab]
    table = nn.Embedding.from_pretrained(torch.stack(rows), False, vocab["<pad>"])
    with torch.no_grad():
        table.weight[vocab["<pad>"]] = 0
    return table


def sharing(vocab, vectors, dim):
    table = by_copy(vocab, vectors, dim)
    for word, vector in vectors.items():
        if word in vocab and word != "<pad>":
            vector.data = table.weight.data[vocab[word]]
    return table


def filling_in(vocab, vectors, dim):
    table = by_copy(vocab, vectors, dim)
    for word in vocab:
        vectors.setdefault(word, torch.randn(dim))
    return table


def limited(table):
    table.max_norm = 0.5
    return table


def by_truth(vocab, vectors, dim):
    """Treat a padding id of 0 as None."""
    table = by_copy(vocab, vectors, dim)
    table.padding_idx = table.padding_idx or None
    return table


def without_zeros(vocab, vectors, dim):
    return by_copy(vocab, {word: vector for word, vector in vectors.items() if vector.any()}, dim)


def in_small_letters(vocab, vectors, dim):
    small = {word: vectors[word.lower()] for word in vocab if word.lower() in vectors}
    return by_copy(vocab, {**small, **vectors}, dim)


def zeroing(vocab, vectors, dim):
    vectors["<pad>"].zero_()
    return by_copy(vocab, vectors, dim)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (by_copy, None),
        (by_stack, None),
        (lambda v, w, d: by_copy(v, {k.lower(): t for k, t in w.items()}, d), "row i must be"),
        (without_zeros, "row i must be the vector"),
        (in_small_letters, "they are different words"),
        (by_order, "row i must be the vector of the word with ID i"),
        (lambda *a: by_stack(*a, freeze=True), "the embedding is frozen"),
        (lambda *a: by_stack(*a, pad=False), "the padding gets a gradient"),
        (lambda *a: by_stack(*a, zero=False), "the padding vector is not zero"),
        (lambda *a: by_stack(*a, draw=torch.zeros), "need different random vectors"),
        (lambda *a: by_stack(*a, draw=torch.ones), "need different random vectors"),
        (lambda v, w, d: nn.Embedding(len(v), d, padding_idx=v["<pad>"]), "row i must be"),
        (lambda v, w, d: by_copy(v, w, d).weight, "expected an nn.Embedding, got Parameter"),
        (
            lambda v, w, d: nn.Embedding(len(v) + 1, d, padding_idx=v["<pad>"]),
            "expected a table of shape (8, 5), got (9, 5)",
        ),
        (sharing, "training the embedding changed `vectors`"),
        (filling_in, "vectors was changed"),
        (lambda *a: by_copy(*a).double(), "expected float32 like the vectors, got torch.float64"),
        (lambda *a: limited(by_copy(*a)), "row i must be"),
        (by_truth, "the padding gets a gradient"),
        (zeroing, "was changed: work on a copy"),
        (lambda *a: None, "expected an nn.Embedding, got None"),
    ],
)
def test_check_table_returns_the_expected_verdict(answer, says):
    expect(exercises.check_table(answer), says)


def test_check_table_rejects_constant_vectors():
    def answer(vocab, vectors, dim):
        missing = {word: torch.full((dim,), float(len(word))) for word in vocab}
        return by_copy(vocab, missing | dict(vectors), dim)

    expect(exercises.check_table(answer), "the same vector in each call")
