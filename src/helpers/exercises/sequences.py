"""Checkers of the exercises of the chapter on sequences."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import nan_remains
from helpers.exercises.modes import called_in_its_modes
from helpers.exercises.tools import a_tensor, close, in_dtypes, leaves


def _vectors_case(layers: int, both: bool, lengths: list[int], padding: float) -> tuple:
    gru = nn.GRU(3, 4, num_layers=layers, bidirectional=both, batch_first=True)
    x = torch.randn(len(lengths), max(lengths) + 1, 3)
    for row, length in zip(x, lengths, strict=True):
        row[length:] = padding
    return gru, x, torch.tensor(lengths)


def _vectors_compare(f: Callable, gru: nn.GRU, x: Tensor, lengths: Tensor, complaint: str) -> None:
    directions = 1 + gru.bidirectional
    x = x.clone().requires_grad_()
    right = []
    for row, length in zip(x, lengths.tolist(), strict=True):
        h = gru(row[None, :length])[1]
        right.append(torch.cat(list(h[-directions:, 0])))
    expected = torch.stack(right)
    with called_in_its_modes(gru):
        got = leaves(f, "the GRU", "x", "lengths")(gru, x.clone(), lengths)
    a_tensor(got, expected.shape, expected.dtype)
    close(got, expected, complaint)
    learns = [gru.weight_ih_l0, x]
    assert got.requires_grad and None not in torch.autograd.grad(
        got.sum(), learns, allow_unused=True
    ), "the result gives no gradient to the GRU or to x"


def _vectors_full(f: Callable) -> None:
    gru, x, lengths = _vectors_case(1, False, [6, 6, 6], 0)
    _vectors_compare(f, gru, x[:, :6], lengths, "wrong even if no sentence has padding")


def _vectors_short(f: Callable) -> None:
    complaint = "the result of short sentences depends on their padding"
    _vectors_compare(f, *_vectors_case(1, False, [2, 5, 1, 4], 0), complaint)


def _vectors_layers(f: Callable) -> None:
    for count in (2, 3):
        complaint = f"with {count} layers, the result is not the state of the last layer"
        _vectors_compare(f, *_vectors_case(count, False, [3, 5, 2], 0), complaint)


def _vectors_both(f: Callable) -> None:
    complaint = (
        "with two directions: the backward half must depend on the whole sentence, "
        "and each row on one sentence only"
    )
    _vectors_compare(f, *_vectors_case(1, True, [2, 5, 1, 4], 0), complaint)
    _vectors_compare(f, *_vectors_case(2, True, [3, 3, 6, 1, 2], 0), complaint)


def _vectors_filled(f: Callable) -> None:
    complaint = "the result depends on the values in the padding"
    for directions in (False, True):
        _vectors_compare(f, *_vectors_case(1, directions, [4, 1, 3], 9.0), complaint)
        _vectors_compare(
            f,
            *_vectors_case(1, directions, [4, 1, 3], math.nan),
            f"{complaint}, here nan",
        )


def _vectors_single(f: Callable) -> None:
    gru, x, lengths = _vectors_case(2, True, [3], 0)
    _vectors_compare(f, gru, x, lengths, "wrong for a batch of one sentence")
    _vectors_compare(f, gru.eval(), x, lengths, "wrong for a GRU in eval mode")
    _vectors_compare(f, gru.double(), x.double() / 3, lengths, "wrong in float64")
    nan_remains(partial(f, gru), x.double(), lengths)


def check_vectors(answer: Callable[[nn.GRU, Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(gru, x, lengths)`: the last layer's state after each sentence.

    `gru` is an `nn.GRU` with `batch_first`, `x` of shape (N, L, F) in its dtype and `lengths` int64
    of shape (N,), unsorted, from 1 to L. Expected is shape (N, H), with two directions (N, 2H),
    forward first, equal to the GRU's result for each sentence alone, without its padding. The GRU
    must keep its mode and its weights.
    """
    return verdict(
        answer,
        [
            _vectors_full,
            _vectors_short,
            _vectors_layers,
            _vectors_both,
            _vectors_filled,
            _vectors_single,
        ],
    )


def _tag_loss_case(lengths: list[int], classes: int, padding: int, width: int) -> tuple:
    size = (len(lengths), width)
    ids = torch.randint(0, 9, size)
    ids[ids == padding] = 9
    tags = torch.randint(0, classes, size)
    tags[0, 0] = 0  # also a class of a word
    for row, length in enumerate(lengths):
        ids[row, length:], tags[row, length:] = padding, 0
    return torch.randn(*size, classes, requires_grad=True), tags, ids, padding


def _tag_loss_compare(
    f: Callable,
    lengths: list[int],
    classes: int,
    padding: int,
    why: str,
    extra: int = 0,
    before: bool = False,
) -> None:
    logits, tags, ids, _ = _tag_loss_case(lengths, classes, padding, max(lengths) + extra)
    if before:
        logits, tags, ids = logits.detach().flip(1).requires_grad_(), tags.flip(1), ids.flip(1)
    words = ids != padding
    right = F.cross_entropy(logits[words], tags[words])
    got = f(logits, tags, ids, padding)
    assert isinstance(got, Tensor) and got.dim() == 0, "return a tensor without dimensions"
    assert math.isclose(got.item(), right.item(), rel_tol=1e-4), why
    assert got.requires_grad, "the loss gives no gradient to the logits"
    (gradient,) = torch.autograd.grad(got, logits)
    assert not gradient[~words].any(), "the padding has a gradient"
    (expected,) = torch.autograd.grad(right, logits)
    assert torch.allclose(gradient, expected, atol=1e-5), (
        "the loss is right, but its gradient is not: use logits without detach"
    )


def _tag_loss_full(f: Callable) -> None:
    _tag_loss_compare(
        f,
        [5, 5, 5],
        4,
        0,
        "wrong even without padding: compare each word with its own label",
    )


def _tag_loss_padded(f: Callable) -> None:
    why = "the padding is included: leave it out of the sum and of the count"
    _tag_loss_compare(f, [4, 4, 4], 3, 0, why, extra=3)


def _tag_loss_words(f: Callable) -> None:
    why = "average over words, not over the means of the sentences"
    _tag_loss_compare(f, [7, 1, 1, 2], 3, 0, why)
    _tag_loss_compare(f, [4], 3, 0, "wrong for a batch of one sentence", extra=2)


def _tag_loss_other(f: Callable) -> None:
    _tag_loss_compare(f, [4, 2, 3], 4, 7, "wrong if the ID of the padding is not 0")
    _tag_loss_compare(f, [3, 1, 3], 3, -1, "wrong if the ID of the padding is not 0")
    why = "wrong if the padding comes before the words"
    _tag_loss_compare(f, [4, 2, 3], 4, 7, why, before=True)


def _tag_loss_first(f: Callable) -> None:
    _tag_loss_compare(f, [6, 3], 2, 0, "words whose tag is 0 are left out")
    logits, tags, ids, padding = _tag_loss_case([4, 2], 3, 0, 5)
    spoiled = logits.detach().masked_fill((ids == padding)[..., None], math.nan).requires_grad_()
    got = f(spoiled, tags, ids, padding)
    same = torch.allclose(got, f(logits, tags, ids, padding))
    assert same, "logits of nan at the padding make the loss nan: 0 * nan is nan"
    (gradient,) = torch.autograd.grad(got, spoiled)
    assert gradient.isfinite().all(), (
        "logits of nan at the padding make the gradient nan: select the words before the loss"
    )


def _tag_loss_dtypes(f: Callable) -> None:
    logits, tags, ids, padding = _tag_loss_case([4, 2], 3, 0, 5)
    words = ids != padding

    def right(logits, *_):
        return F.cross_entropy(logits[words], tags[words])

    in_dtypes(f, right, logits, tags, ids, padding, wider=True)
    nan_remains(f, logits, tags, ids, padding)


def check_tag_loss(answer: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(logits, tags, ids, padding)`: the mean cross-entropy over all words.

    `logits` is floating point of shape (N, L, C), `tags` int64 of shape (N, L) from 0 to C - 1,
    `ids` int64 of shape (N, L); a word is where `ids` is not `padding`. `tags` are 0 at the
    padding.
    """
    return verdict(
        leaves(answer, "logits", "tags", "ids"),
        [
            _tag_loss_full,
            _tag_loss_padded,
            _tag_loss_words,
            _tag_loss_other,
            _tag_loss_first,
            _tag_loss_dtypes,
        ],
    )
