"""Checkers of the exercises of the chapter on embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, between, close, instance, leaves


def _mean_table(padding: int, dtype: torch.dtype = torch.float32) -> nn.Embedding:
    """Return an embedding of 9 words; the padding row is not zero, that of a word is."""
    table = nn.Embedding(9, between(3, 5), padding_idx=padding, dtype=dtype)
    nn.init.normal_(table.weight)
    with torch.no_grad():
        table.weight[3] = 0
    return table


def _mean_ids(lengths: list[int], padding: int, width: int) -> Tensor:
    words = [word for word in range(9) if word != padding]
    ids = torch.full((len(lengths), width), padding)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.tensor(words)[torch.randint(0, len(words), (length,))]
    return ids


def _mean_expected(table: nn.Embedding, ids: Tensor) -> Tensor:
    rows = [table.weight[row[row != table.padding_idx]] for row in ids]
    return torch.stack([row.mean(0) if len(row) else row.sum(0) for row in rows])


def _mean_compare(f: Callable, lengths: list[int], padding: int, why: str, extra: int = 0) -> None:
    table = _mean_table(padding)
    ids = _mean_ids(lengths, padding, max(max(lengths), 1) + extra)
    for order in (slice(None), torch.arange(ids.shape[1]).flip(0), torch.randperm(ids.shape[1])):
        expected = _mean_expected(table, ids[:, order])
        got = f(table, ids[:, order])
        a_tensor(got, expected.shape, expected.dtype)
        close(got, expected, why)
        why = "wrong if the padding is not at the end of the row"


def _mean_full(f: Callable) -> None:
    _mean_compare(f, [4, 4, 4], 0, "wrong even without padding")


def _mean_padded(f: Callable) -> None:
    _mean_compare(f, [2, 5, 1], 0, "the mean includes the padding, whose vector is not zero here")


def _mean_other(f: Callable) -> None:
    _mean_compare(f, [3, 1, 2], 7, "wrong if the padding has another ID than 0", extra=2)


def _mean_empty(f: Callable) -> None:
    why = "expected zeros for a row that contains only padding"
    _mean_compare(f, [0, 3], 0, why)
    _mean_compare(f, [0], 4, why, extra=2)


def _mean_gradient(f: Callable) -> None:
    table = _mean_table(2)
    ids = _mean_ids([3, 0, 2], 2, 4)
    got, factor = f(table, ids), torch.randn(3, table.embedding_dim)
    why = "the result gives no gradient to the embedding"
    assert got.requires_grad, why
    (gradient,) = torch.autograd.grad((got * factor).sum(), table.weight, allow_unused=True)
    assert gradient is not None, why
    weight = table.weight.detach().clone().requires_grad_()
    twin = nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=2)
    (expected,) = torch.autograd.grad((_mean_expected(twin, ids) * factor).sum(), twin.weight)
    close(gradient, expected, "the value is right, but the gradient of the embedding is not")


def _mean_dtypes(f: Callable) -> None:
    table = _mean_table(0, torch.float64).eval()
    ids = _mean_ids([3, 1], 0, 4)
    got = a_tensor(f(table, ids), (2, table.embedding_dim), torch.float64)
    close(got, _mean_expected(table, ids), "wrong in float64", rtol=1e-9, atol=1e-9)
    nn.init.constant_(table.weight, torch.nan)
    shown = f(table, ids).isnan().all()
    assert shown, "vectors of nan are hidden: only a row without words gives zeros"


def check_mean_vectors(answer: Callable[[nn.Embedding, Tensor], Tensor]) -> Verdict:
    """Check `answer(table, ids)`: the mean of the vectors of each row's words, without the padding.

    `table` is an `nn.Embedding` with a `padding_idx` whose row is not zero, `ids` int64 of shape
    (N, L). Expected is shape (N, E) in the dtype of the embedding, zeros for a row that contains
    only padding, with the gradient of the mean.
    """
    return verdict(
        leaves(answer, "table", "ids"),
        [_mean_full, _mean_padded, _mean_other, _mean_empty, _mean_gradient, _mean_dtypes],
    )


def _table_case(pad_first: bool = False) -> tuple[dict[str, int], dict[str, Tensor], int]:
    words = ["<pad>", "<unk>", "film", "good", "bad", "plot", "Good", "Plot"]
    ids = torch.randperm(len(words)).tolist()
    if pad_first != (ids[0] == 0):
        other = ids.index(0) or 1
        ids[0], ids[other] = ids[other], ids[0]
    known = ("plot", "boat", "good", "<pad>", "film", "sea", "Good", "Bad")
    vectors = {w: torch.randn(5) for w in known}
    vectors["film"] = torch.zeros(5)  # a vector like any other
    if pad_first:
        del vectors["<pad>"]
    return dict(zip(words, ids, strict=True)), vectors, 5


def _table_build(
    f: Callable, pad_first: bool = False
) -> tuple[nn.Embedding, dict[str, int], dict[str, Tensor]]:
    vocab, vectors, dim = _table_case(pad_first)
    table = leaves(f, "vocab", "vectors")(vocab, vectors, dim)
    instance("an nn.Embedding", table, nn.Embedding)
    shape = (len(vocab), dim)
    assert table.weight.shape == shape, (
        f"expected a table of shape {shape}, got {tuple(table.weight.shape)}"
    )
    dtype = table.weight.dtype
    assert dtype == torch.float32, f"expected float32 like the vectors, got {dtype}"
    return table, vocab, vectors


def _table_known(f: Callable) -> None:
    table, vocab, vectors = _table_build(f)
    for word in ("film", "good", "plot", "Good"):
        assert torch.equal(table(torch.tensor(vocab[word])), vectors[word]), (
            "row i must be the vector of the word with ID i"
        )


def _table_unknown(f: Callable) -> None:
    table, vocab, vectors = _table_build(f)
    unk, bad = (table.weight[vocab[word]] for word in ("<unk>", "bad"))
    assert min(unk.abs().max(), bad.abs().max()) > 1e-3 and not torch.equal(unk, bad), (
        "words without a vector need different random vectors"
    )
    for word, other in (("bad", "Bad"), ("Plot", "plot")):
        assert not torch.equal(table.weight[vocab[word]], vectors[other]), (
            f"{word} has the vector of {other}: they are different words"
        )
    again, other, _ = _table_build(f)
    assert not torch.equal(bad, again.weight[other["bad"]]), (
        "words without a vector get the same vector in each call: make it random"
    )


def _table_padding(f: Callable) -> None:
    for pad_first in (False, True):
        table, vocab, _ = _table_build(f, pad_first)
        pad = vocab["<pad>"]
        assert not table.weight[pad].any(), "the padding vector is not zero"
        if not table.weight.requires_grad:
            continue
        (gradient,) = torch.autograd.grad(table(torch.arange(len(vocab))).sum(), table.weight)
        assert not gradient.to_dense()[pad].any(), (
            "the padding gets a gradient: pass its ID as padding_idx"
        )


def _table_trained(f: Callable) -> None:
    table, vocab, vectors = _table_build(f)
    before = {word: vector.clone() for word, vector in vectors.items()}
    assert table.max_norm is None, "with max_norm, a lookup writes to the embedding"
    assert not table.scale_grad_by_freq, "scale_grad_by_freq changes the gradients"
    assert table.weight.requires_grad, "the embedding is frozen"
    assert table.weight.is_leaf, "the weight is not a leaf: fill it under no_grad"
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    start = table.weight.detach().clone()
    table(torch.arange(len(vocab))).sum().backward()
    optimizer.step()
    moved = (table.weight != start).any(1).nonzero().flatten().tolist()
    assert moved == sorted(set(vocab.values()) - {vocab["<pad>"]}), (
        "an optimizer step must change every word and not the padding"
    )
    assert all(torch.equal(vectors[w], v) for w, v in before.items()), (
        "training the embedding changed `vectors`: copy them"
    )


def _table_kept(f: Callable) -> None:
    vocab, vectors, dim = _table_case()
    leaves(f, "vocab", "vectors")(vocab, vectors, dim)


def check_table(
    answer: Callable[[Mapping[str, int], Mapping[str, Tensor], int], nn.Embedding],
) -> Verdict:
    """Check `answer(vocab, vectors, dim)`: an `nn.Embedding` with the vectors of the vocabulary.

    `vocab` maps words, among them `"<pad>"`, to 0 … n - 1 in any order; `vectors` maps words to
    float32 of shape (dim,). Words without a vector get a random one, the padding zeros and no
    gradient; everything else is trained, and `vectors` must not change.
    """
    return verdict(
        answer,
        [_table_known, _table_unknown, _table_padding, _table_trained, _table_kept],
        draws=True,
    )
