"""Checkers of the exercises of the chapter on language models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import nan_remains
from helpers.exercises.tools import a_float, a_tensor, leaves, unchanged
from helpers.language_models import IGNORED


def _next_token_loss_right(logits: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
    rows = [
        (scores[: n - 1], tokens[1:n])
        for scores, tokens, n in zip(logits, ids, lengths.tolist(), strict=True)
    ]
    scores, labels = (torch.cat(parts) for parts in zip(*rows, strict=True))
    return F.cross_entropy(scores, labels)


def _next_token_loss_compare(
    f: Callable, lengths: list[int], width: int, complaint: str, **how: Any
) -> None:
    vocab = how.get("vocab") or int(torch.randint(width + 1, width + 5, ()))
    ids = torch.randint(0, vocab, (len(lengths), width))
    if how.get("end"):
        for row, n in zip(ids, lengths, strict=True):
            row[n - 1 :] = vocab - 1
    logits = torch.randn(len(lengths), width, vocab, dtype=how.get("dtype")) * how.get("scale", 1)
    real = torch.tensor(lengths)
    got = leaves(f, "logits", "ids", "lengths")(logits.requires_grad_(), ids, real)
    a_tensor(got)
    assert got.shape == (), f"expected a scalar loss, got shape {tuple(got.shape)}"
    expected = _next_token_loss_right(logits, ids, real)
    assert got.dtype == logits.dtype, f"{logits.dtype} logits give a loss of {got.dtype}"
    assert not got.isnan(), "the loss is nan: check the row that has a single token"
    assert torch.allclose(got, expected, rtol=1e-5, atol=1e-5), complaint
    single = got.dtype == torch.float32
    assert single or torch.allclose(got, expected, rtol=1e-10, atol=1e-10), (
        f"{complaint}: the result has only float32 precision"
    )
    assert got.requires_grad, "the loss has no graph, so the logits get no gradient"
    mine, theirs = (
        torch.autograd.grad(loss, logits, allow_unused=True)[0] for loss in (got, expected)
    )
    assert mine is not None and torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4), (
        "the loss is right, but not all logits that it depends on get their gradient"
    )


def _next_token_loss_full(f: Callable) -> None:
    complaint = (
        "wrong even without padding: compare the logits at position t with the token at t + 1 "
        "of the same row; the last position has no label"
    )
    _next_token_loss_compare(f, [6, 6, 6], 6, complaint)


def _next_token_loss_square(f: Callable) -> None:
    for vocab in (4, 5):  # as many as labels, and as positions
        complaint = "wrong if the vocabulary has as many tokens as the text"
        _next_token_loss_compare(f, [5, 5], 5, complaint, vocab=vocab)


def _next_token_loss_unequal(f: Callable) -> None:
    complaint = (
        "wrong with padding: average over the pairs of real tokens of all rows, without padding"
    )
    _next_token_loss_compare(f, [7, 3, 5], 7, complaint)
    _next_token_loss_compare(f, [2, 7], 9, complaint)


def _next_token_loss_ends(f: Callable) -> None:
    complaint = "wrong if padding and EOS are one token: the first EOS token of each row is a label"
    _next_token_loss_compare(f, [6, 3, 4], 6, complaint, end=True)


def _next_token_loss_inside(f: Callable) -> None:
    complaint = "wrong if tokens repeat: find padding by position, not by token ID"
    _next_token_loss_compare(f, [8, 5], 8, complaint, vocab=2)


def _next_token_loss_single(f: Callable) -> None:
    complaint = "a row with one token has no label: it adds nothing to the sum and the count"
    _next_token_loss_compare(f, [1, 4], 5, complaint)
    _next_token_loss_compare(f, [3], 4, "wrong for a single row")


def _next_token_loss_large(f: Callable) -> None:
    complaint = "wrong for large logits: the softmax of most tokens is 0, use log_softmax"
    _next_token_loss_compare(f, [4, 3], 4, complaint, scale=200)
    nan_remains(f, torch.randn(2, 4, 5), torch.randint(0, 5, (2, 4)), torch.tensor([4, 3]))


def _next_token_loss_double(f: Callable) -> None:
    _next_token_loss_compare(f, [4, 2], 4, "wrong in float64", dtype=torch.float64)


def check_next_token_loss(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(logits, ids, lengths)`: the mean loss per token that has a next one.

    `logits` has shape (N, T, V), `ids` (N, T) and `lengths` (N,): the number of real tokens in each
    row, EOS included. Later tokens are padding, whatever they are. Expected is the mean
    cross-entropy over all pairs of a real token and the real token after it.
    """
    return verdict(
        answer,
        [
            _next_token_loss_full,
            _next_token_loss_square,
            _next_token_loss_unequal,
            _next_token_loss_ends,
            _next_token_loss_inside,
            _next_token_loss_single,
            _next_token_loss_double,
            _next_token_loss_large,
        ],
    )


def _nucleus_right(logits: Tensor, p: float) -> Tensor:
    flat = logits.reshape(-1, logits.shape[-1]).softmax(-1)
    out = torch.zeros_like(flat)
    for row, kept in zip(flat, out, strict=True):
        total = 0.0
        for i in row.argsort(descending=True).tolist():
            kept[i] = row[i]
            total += row[i].item()
            if total >= p:
                break
    return (out / out.sum(-1, keepdim=True)).reshape(logits.shape)


def _nucleus_safe(shape: tuple[int, ...], p: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return logits whose cumulative sums are far enough from `p` for rounding not to matter."""
    while True:
        logits = 2 * torch.randn(shape, dtype=dtype)
        sums = logits.softmax(-1).sort(-1, descending=True).values.cumsum(-1)
        if p == 1 or ((sums - p).abs() > 1e-3).all():
            return logits


def _nucleus_compare(f: Callable, logits: Tensor, p: float, complaint: str) -> None:
    got = leaves(f, "logits")(logits, p)
    a_tensor(got, logits.shape)
    assert got.is_floating_point(), f"return probabilities, got {got.dtype}"
    assert not got.isnan().any(), f"nan with p = {p}: keep at least one token"
    expected = _nucleus_right(logits, p)
    if torch.allclose(got.double(), expected.double(), atol=1e-5):
        return
    mine, theirs = got > 0, expected > 0
    n, m = int(mine.sum()), int(theirs.sum())
    assert n == m, f"{complaint}: the number of kept tokens is {n}, not {m} (p = {p})"
    assert torch.equal(mine, theirs), f"{complaint}: the kept tokens are not the most likely ones"
    raise AssertionError("the right tokens are kept, but a row does not sum to 1")


def _nucleus_one(f: Callable) -> None:
    for p in (0.3, 0.6, 0.9):
        _nucleus_compare(f, _nucleus_safe((12,), p), p, "wrong for one row")
    even = torch.linspace(0, 0.5, 12)[torch.randperm(12)]
    _nucleus_compare(f, even, 0.24, "wrong if many tokens have nearly the same probability")


def _nucleus_exact(f: Callable) -> None:
    got = f(torch.zeros(4), 0.5)
    n = int((got > 0).sum())
    assert n == 2, f"two of four equally likely tokens sum to p = 0.5 exactly, and {n} are kept"


def _nucleus_small(f: Callable) -> None:
    _nucleus_compare(
        f, torch.tensor([0.1, 3.0, 0.2]), 0.2, "keep the most likely token for every p"
    )


def _nucleus_everything(f: Callable) -> None:
    _nucleus_compare(f, _nucleus_safe((130,), 1.0), 1.0, "with p = 1 keep all tokens")


def _nucleus_rows(f: Callable) -> None:
    _nucleus_compare(f, _nucleus_safe((4, 9), 0.7), 0.7, "filter each row separately")
    _nucleus_compare(
        f, _nucleus_safe((2, 3, 5), 0.5), 0.5, "logits may have any number of leading dimensions"
    )
    _nucleus_compare(f, _nucleus_safe((1, 6), 0.7), 0.7, "wrong for a batch of one")


def _nucleus_cut(f: Callable) -> None:
    logits = torch.tensor([-torch.inf, 1.0, 0.0, -torch.inf, 0.5])
    _nucleus_compare(f, logits, 0.8, "tokens with logits of -inf must keep the probability 0")


def _nucleus_double(f: Callable) -> None:
    _nucleus_compare(f, _nucleus_safe((7,), 0.8, torch.float64), 0.8, "wrong in float64")


def check_nucleus(answer: Callable[[Tensor, float], Tensor]) -> Verdict:
    """Check `answer(logits, p)`: the probabilities that top-p sampling draws from.

    `logits` has shape (..., V) and must not change. Tokens are kept, the most likely first, until
    their probabilities sum to `p`; the others get 0, and each row sums to 1.
    """
    return verdict(
        answer,
        [
            _nucleus_one,
            _nucleus_exact,
            _nucleus_small,
            _nucleus_everything,
            _nucleus_rows,
            _nucleus_cut,
            _nucleus_double,
        ],
    )


class _Log(list):
    """A list that a copy of a model shares with the model."""

    def __deepcopy__(self, memo: dict) -> _Log:
        return self


class _Watched(nn.Module):
    """Logits from an embedding, followed by dropout; records the mode of each call."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.table, self.drop = nn.Embedding(vocab, vocab), nn.Sequential(nn.Dropout(0.5))
        self.modes, self.graphs = _Log(), _Log()

    def forward(self, ids: Tensor) -> Tensor:
        out = self.drop(self.table(ids))
        self.modes.append(self.training)
        self.graphs.append(out.requires_grad)
        return out


def _perplexity_case(
    sizes: list[tuple[int, int, int]],
) -> tuple[_Watched, list[tuple[Tensor, Tensor]]]:
    model, batches = _Watched(6), []
    for n, t, ignored in sizes:
        labels = torch.randint(0, 6, (n, t))
        labels.view(-1)[torch.randperm(n * t)[:ignored]] = IGNORED
        batches.append((torch.randint(0, 6, (n, t)), labels))
    return model, batches


def _perplexity_right(model: _Watched, batches: list[tuple[Tensor, Tensor]]) -> float:
    with torch.no_grad():
        scores = torch.cat([model.table(ids).flatten(0, 1) for ids, _ in batches])
    return F.cross_entropy(scores, torch.cat([y.flatten() for _, y in batches])).exp().item()


def _perplexity_asked(f: Callable, model: _Watched, batches: list[tuple[Tensor, Tensor]]) -> Any:
    with unchanged("modes", model=model, batches=batches):
        return f(model, iter(batches))


def _perplexity_compare(f: Callable, sizes: list[tuple[int, int, int]], complaint: str) -> None:
    model, batches = _perplexity_case(sizes)
    got = a_float(_perplexity_asked(f, model, batches))
    assert not math.isnan(got), "nan: a batch without labels must add nothing"
    assert math.isclose(got, _perplexity_right(model, batches), rel_tol=1e-3), complaint


def _perplexity_certain(f: Callable) -> None:
    ids = torch.randperm(12).view(3, 4) % 6
    model = _Watched(6)
    with torch.no_grad():
        model.table.weight.copy_(200 * torch.eye(6)).select(0, 0).zero_()
    got = a_float(_perplexity_asked(f, model, [(ids, ids.clone())]))
    assert math.isclose(got, 6 ** (1 / 6), rel_tol=1e-3), (
        "wrong if the loss of some labels is exactly 0: they count, too"
    )
    nn.init.constant_(model.table.weight, math.nan)
    got = a_float(_perplexity_asked(f, model, [(ids, ids.clone())]))
    assert math.isnan(got), "logits of nan are hidden: the perplexity must be nan"


def _perplexity_mode(f: Callable) -> None:
    for before in (True, False):
        model, batches = _perplexity_case([(3, 4, 0)])
        model.train(before)
        _perplexity_asked(f, model, batches)
        assert model.modes and not any(model.modes), "dropout was active: call eval() first"
        assert not any(model.graphs), "graphs were recorded: use torch.no_grad()"
        assert all(m.training == before for m in model.modules()), (
            f"the model was in {'training' if before else 'evaluation'} mode and is now in the "
            "other: restore the mode of each module"
        )
    model, batches = _perplexity_case([(3, 4, 0)])
    model.train().table.eval()
    _perplexity_asked(f, model, batches)
    assert model.training and model.drop.training and not model.table.training, (
        "a layer in evaluation mode inside a model in training mode has changed its mode: "
        "restore the mode of each module"
    )
    model.train().drop[0].eval()
    _perplexity_asked(f, model, batches)
    assert model.drop.training and not model.drop[0].training, (
        "a layer in evaluation mode inside a model in training mode has changed its mode: "
        "restore the mode of each module"
    )
    model.eval().drop.train()
    _perplexity_asked(f, model, batches)
    assert model.drop.training and not model.training, (
        "a layer in training mode inside a model in evaluation mode has changed its mode: "
        "restore the mode of each module"
    )


def _perplexity_single(f: Callable) -> None:
    _perplexity_compare(f, [(3, 5, 0)], "wrong even for one batch: exp of the mean loss per token")


def _perplexity_unequal(f: Callable) -> None:
    complaint = "wrong for batches of unequal size: sum over all tokens, and take exp at the end"
    for _ in range(2):  # by chance, the mean of two perplexities is near that of all tokens
        _perplexity_compare(f, [(1, 2, 0), (6, 7, 0)], complaint)


def _perplexity_padded(f: Callable) -> None:
    complaint = "wrong with labels of -100: leave them out of the sum and of the count"
    _perplexity_compare(f, [(4, 6, 20), (4, 6, 1)], complaint)


def _perplexity_empty(f: Callable) -> None:
    _perplexity_compare(f, [(2, 2, 4), (3, 4, 2)], "wrong if a batch has no label at all")


def check_perplexity(
    answer: Callable[[nn.Module, Iterable[tuple[Tensor, Tensor]]], float],
) -> Verdict:
    """Check `answer(model, batches)`: the perplexity over all labels that are not -100, a float.

    `batches` is an iterator over `(ids, labels)`, each of shape (N, T); N and T differ between
    batches. `model(ids)` returns logits of shape (N, T, V). It must run in evaluation mode, without
    graphs, and each module's mode must be restored.
    """
    return verdict(
        answer,
        [
            _perplexity_single,
            _perplexity_unequal,
            _perplexity_padded,
            _perplexity_empty,
            _perplexity_certain,
            _perplexity_mode,
        ],
    )
