"""Checkers of the exercises of the chapter on flex_attention."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, between, kind, leaves


def _rule(got: object, expected: str) -> Callable:
    assert callable(got), f"expected {expected}, a function, got {kind(got)}"
    return got


def _documents_case(padded: bool, anywhere: bool = False) -> Tensor:
    n, length = between(2, 3), between(6, 9)
    doc = (torch.rand(n, length) < 0.4).long().cumsum(1)
    doc[0, :3] = torch.tensor([0, 0, 1])  # at least a pair, and a border
    doc[0, 3:] = doc[0, 3:].clamp(min=1)
    doc = torch.randperm(length + 1)[doc]  # indices need not be sorted
    if padded:
        doc[:, -2:] = -1
    if anywhere:
        doc[:, 1] = -1
    return doc


def _documents_compare(f: Callable, doc: Tensor) -> None:
    from torch.nn.attention.flex_attention import create_mask

    n, length = doc.shape
    heads = 2
    original = doc.clone()
    rule = _rule(leaves(f, "doc")(doc), "a mask_mod")
    rule(*torch.zeros(4, dtype=torch.int64))  # create_mask accepts a score_mod as well
    mask = a_tensor(create_mask(rule, n, heads, length, length, device="cpu"))
    assert torch.equal(doc, original), "doc was changed"
    assert mask.dtype == torch.bool, f"expected a rule that returns bool, got {mask.dtype}"
    real, here = original >= 0, torch.arange(length)
    own = (original[:, :, None] == original[:, None]) & real[:, :, None] & real[:, None]
    later = here > here[:, None]
    itself = torch.eye(length, dtype=torch.bool)
    for seen in mask.unbind(1):  # each head
        alone = "a token does not attend to itself, so a row can be fully masked"
        assert seen[:, itself].all(), alone
        other = seen & ~itself
        assert not (other & ~real[:, :, None]).any(), "a padding token attends to another token"
        assert not (other & ~real[:, None]).any(), "a token attends to padding"
        assert not (other & later).any(), "a token attends to a later one"
        assert not (other & ~own).any(), "a token attends to another document"
        assert torch.equal(seen, (own & ~later) | itself), (
            "a token does not attend to all earlier tokens of its document"
        )


def _documents_full(f: Callable) -> None:
    _documents_compare(f, _documents_case(padded=False))


def _documents_padded(f: Callable) -> None:
    _documents_compare(f, _documents_case(padded=True))


def _documents_anywhere(f: Callable) -> None:
    _documents_compare(f, _documents_case(padded=True, anywhere=True))


def _documents_one(f: Callable) -> None:
    _documents_compare(f, torch.zeros(1, between(2, 5), dtype=torch.int64))
    _documents_compare(f, torch.full((2, 3), -1))
    _documents_compare(f, torch.zeros(1, 40, dtype=torch.int64))  # far apart
    _documents_compare(f, torch.tensor([[0, 0, 8, 256, -1, 1, 1], [1, 1, 2, 2, 3, 3, -1]]))
    _documents_compare(f, torch.tensor([[0, 1, 0, 1, -1, 0]]))  # a document goes on later


def check_document_rule(answer: Callable[[Tensor], Callable]) -> Verdict:
    """Check `answer(doc)`: a causal `mask_mod` for packed documents with padding.

    `doc` is int64 of shape (N, L), the document index of each token, in any order, -1 for padding.
    A token must attend to itself and to the earlier tokens of its document, a padding token only to
    itself.
    """
    return verdict(
        answer, [_documents_full, _documents_padded, _documents_anywhere, _documents_one]
    )


def _alibi_run(f: Callable, slopes: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    change = _rule(leaves(f, "slopes")(slopes), "a score_mod")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not compiled
        out = flex_attention(q, k, v, score_mod=change)
    out = a_tensor(out, q.shape)
    assert not out.isnan().any(), "the result has nan: 0 times -inf is nan, select with torch.where"
    return out


def _alibi_right(slopes: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    here = torch.arange(q.shape[-2])
    back = here[:, None] - here
    scores = q @ k.mT / q.shape[-1] ** 0.5 - slopes[:, None, None] * back
    return scores.masked_fill(back < 0, -torch.inf).softmax(-1) @ v


def _alibi_draw(heads: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = torch.randn(3, between(1, 2), heads, between(3, 6), 8)
    return torch.rand(heads) + 0.1, q, k, v


def _alibi_first(f: Callable) -> None:
    slopes, q, k, v = _alibi_draw(1)
    got = _alibi_run(f, slopes, q, k, v)
    assert torch.allclose(got[:, :, 0], v[:, :, 0], atol=1e-5), (
        "the first query attends to later keys: only a score of -inf masks a key"
    )


def _alibi_one(f: Callable) -> None:
    case = _alibi_draw(1)
    assert torch.allclose(_alibi_run(f, *case), _alibi_right(*case), atol=1e-4), (
        "wrong for one head: subtract slopes[h] * (i - j) from the score"
    )


def _alibi_heads(f: Callable) -> None:
    case = _alibi_draw(3)
    assert torch.allclose(_alibi_run(f, *case), _alibi_right(*case), atol=1e-4), (
        "wrong for several heads: head h has the slope slopes[h]"
    )


def _alibi_far(f: Callable) -> None:
    q, k, v = torch.zeros(3, 1, 2, 300, 8)
    slopes, v[:, :, ::2] = torch.tensor([0.01, 0.05]), 1.0
    case = slopes, q, k, v
    assert torch.allclose(_alibi_run(f, *case), _alibi_right(*case), atol=1e-4), (
        "wrong for 300 tokens: the distance has no limit"
    )


def _alibi_large(f: Callable) -> None:
    slopes, q, k, v = _alibi_draw(2)
    q, k = torch.ones_like(q), 1e6 * torch.arange(k.shape[-2])[:, None].expand_as(k) + 0.0
    complaint = "a later key gets weight if scores are large: its score must be -inf"
    assert torch.allclose(_alibi_run(f, slopes, q, k, v), v, atol=1e-5), complaint
    got = _alibi_run(f, slopes, q, torch.full_like(k, -1e12), v)
    assert torch.allclose(got[:, :, 0], v[:, :, 0], atol=1e-5), complaint


def check_alibi(answer: Callable[[Tensor], Callable]) -> Verdict:
    """Check `answer(slopes)`: a causal `score_mod` with a linear bias for each head (ALiBi).

    `slopes` is float32 of shape (H,), all positive. The score of key j for query i and head h is
    reduced by slopes[h] * (i - j), and later keys are masked.
    """
    return verdict(answer, [_alibi_first, _alibi_one, _alibi_heads, _alibi_far, _alibi_large])
