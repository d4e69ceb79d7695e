"""Checkers of the exercises of the chapter on attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.attention import rotary
from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import nan_remains
from helpers.exercises.tools import a_tensor, in_dtypes, kind, learns, leaves


def _between(low: int, high: int) -> int:
    """Return a random int, both ends included."""
    return int(torch.randint(low, high + 1, ()))


def _compare(got: Any, right: Tensor, wrong: str) -> None:
    a_tensor(got, right.shape)
    assert not got.isnan().any(), "the result has nan: all keys of some query are masked"
    assert torch.allclose(got, right, atol=1e-5), wrong


def _attend_draw(lq, lk, fewest=1):
    n, h, width = _between(fewest, 3), _between(1, 3), _between(3, 8)
    q, k, v = (torch.randn(n, h, length, width) for length in (lq, lk, lk))
    return q, k, v, torch.ones(n, lk, dtype=torch.bool)


def _attend_by_hand(q, k, v, keep):
    lq, lk = q.shape[-2], k.shape[-2]
    here = torch.arange(lk - lq, lk)[:, None]
    hidden = (torch.arange(lk) > here) | ~keep[:, None, None]
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def _attend_compare(f, batch, wrong):
    inputs = [1 * t.requires_grad_() for t in batch[:3]] + [batch[3].clone()]
    got = leaves(f, "q", "k", "v", "keep")(*inputs)
    _compare(got, _attend_by_hand(*batch), wrong)
    learns(got, inputs[:3], "the result gives no gradient to q, k or v")


def _attend_square(f):
    length = _between(2, 5)
    _attend_compare(
        f, _attend_draw(length, length), "with as many queries as keys, the result is not causal"
    )


def _attend_cache(f):
    lq = _between(1, 3)
    batch = _attend_draw(lq, lq + _between(1, 3))
    _attend_compare(
        f, batch, "with more keys than queries, the last query must attend to every key"
    )


def _attend_padding(f):
    _attend_behind(f, 1)  # as in generation
    _attend_behind(f, _between(2, 3))


def _attend_behind(f, lq):
    batch = _attend_draw(lq, lq + _between(2, 4), fewest=2)
    batch[-1][torch.rand(batch[-1].shape) < 0.3] = False
    batch[-1][:, 0], batch[-1][0, 1], batch[-1][1:, 1] = True, False, True
    _attend_compare(f, batch, "with padding, the queries do not attend to exactly the real keys")
    q, k, v, keep = batch
    best = q.mean(2, keepdim=True) * ~keep[:, None, :, None]  # what is hidden fits best
    complaint = "a masked key with a large score gets weight: its score must be -inf"
    _attend_compare(f, (q * 1e7, k + best * 1e7, v, keep), complaint)
    first = torch.arange(k.shape[-2]) == 0  # the only real key, with a low score
    low = torch.where(first[:, None], -1e12, 0.0).expand_as(k)
    _attend_compare(f, (torch.ones_like(q), low, v, first.expand_as(keep)), complaint)


def _attend_dtypes(f):
    q, k, v, keep = _attend_draw(2, 5)
    in_dtypes(f, _attend_by_hand, 0.3 * q, k, v, keep)
    nan_remains(f, q, k, v, keep)


def check_attend(answer: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(q, k, v, keep)`: causal attention of the last queries, without the padding.

    `q` is (N, H, Lq, E), `k` and `v` are (N, H, Lk, E) with Lq <= Lk, of one floating dtype; the
    queries are the last Lq positions. `keep` is bool of shape (N, Lk), True for a real token;
    position 0 is always one.
    """

    return verdict(answer, [_attend_square, _attend_cache, _attend_padding, _attend_dtypes])


def _mask_run(f, keep, heads):
    mask = leaves(f, "keep")(keep.clone(), heads)
    a_tensor(mask)
    (n, length), shape = keep.shape, tuple(mask.shape)
    right = (n * heads, length, length)
    assert shape == right or (n == 1 and shape == right[1:]), (
        f"expected shape {right}, (N * heads, L, L), got {shape}"
    )
    module = nn.MultiheadAttention(4 * heads, heads, batch_first=True)
    x = torch.randn(n, length, 4 * heads)
    out, weights = module(x, x, x, attn_mask=mask, average_attn_weights=False)
    return module, x, out, weights


def _mask_hides(f, keep, heads):
    module, x, out, weights = _mask_run(f, keep, heads)
    real = weights.transpose(1, 2)[keep]  # of each real query: heads, keys
    where = keep.nonzero()
    future = torch.arange(keep.shape[1]) > where[:, 1:]
    assert not (real.nan_to_num() > 0)[future[:, None].expand_as(real)].any(), (
        "a real token attends to a later one (in attn_mask True means ignore)"
    )
    padding = ~keep[where[:, 0]][:, None].expand_as(real)
    assert not (real.nan_to_num() > 0)[padding].any(), "a real token attends to padding"
    assert not out.isnan().any(), "an output is nan: all keys of a query are masked"
    for n, kept in enumerate(keep):
        if not kept.any():
            continue
        alone = x[n : n + 1, kept]
        later = torch.ones(len(alone[0]), len(alone[0]), dtype=torch.bool).triu(1)
        right = module(alone, alone, alone, attn_mask=later)[0]
        assert torch.allclose(out[n, kept], right[0], atol=1e-5), (
            "a real token does not attend to all real tokens up to itself"
        )
    mask = f(keep.clone(), heads)
    low = mask[mask != 0] if mask.is_floating_point() else mask.new_zeros(0)
    assert mask.dtype == torch.bool or (low < torch.finfo(torch.float32).min / 2).all(), (
        "a float mask must be -inf at a masked key: larger scores exceed any other number"
    )
    out[keep].square().mean().backward()
    assert module.in_proj_weight.grad.isfinite().all(), "a gradient is not finite"


def _mask_causal(f):
    _mask_hides(f, torch.ones(_between(2, 3), _between(3, 5), dtype=torch.bool), 1)


def _mask_behind(f):
    length = _between(4, 6)
    keep = torch.arange(length) < torch.tensor([[length], [length - 2], [1]])
    _mask_hides(f, keep, _between(2, 3))


def _mask_single(f):
    _mask_hides(f, torch.ones(1, 1, dtype=torch.bool), 1)
    _mask_hides(f, torch.ones(2, 1, dtype=torch.bool), 2)
    _mask_hides(f, torch.tensor([[True, False]]), 1)


def _mask_front(f):
    length = _between(4, 6)
    keep = torch.arange(length) >= torch.tensor([[0], [length - 1], [2]])
    _mask_hides(f, keep, _between(2, 3))


def _mask_anywhere(f):
    keep = torch.rand(_between(2, 4), 6) < 0.5
    keep[:, _between(0, 5)] = True
    keep[0] = False  # a sample without a real token
    keep[1, 0], keep[1, -1] = True, False  # its flip is another
    heads = _between(1, 3)
    _mask_hides(f, keep, heads)
    _mask_hides(f, keep.flip(1), heads)  # the same shape, another padding


def check_mask(answer: Callable[[Tensor, int], Tensor]) -> Verdict:
    """Check `answer(keep, heads)`: an `attn_mask` for `nn.MultiheadAttention` without nan.

    `keep` is bool of shape (N, L), True for a real token; a sample may have none. Through the
    module the mask must hide the padding and all later tokens from the real ones, and leave every
    output and every gradient finite.
    """
    return verdict(answer, [_mask_causal, _mask_behind, _mask_front, _mask_anywhere, _mask_single])


def _window_draw(length):
    return torch.randn(3, _between(1, 2), _between(1, 3), length, 8)


def _window_by_hand(q, k, v, window):
    here = torch.arange(q.shape[-2])
    q, k = rotary(q, here), rotary(k, here)
    back = here[:, None] - here
    mask = (back >= 0) & (back < window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _window_call(f, q, k, v, cache, window):
    got = leaves(f, "q", "k", "v")(q.clone(), k.clone(), v.clone(), cache, window)
    pair = isinstance(got, tuple | list) and len(got) == 2
    assert pair, f"expected (out, cache), got {kind(got)}"
    return got


def _window_parts(f, batch, lengths, window, cache=None):
    outs = []
    for q, k, v in zip(*(t.split(lengths, -2) for t in batch), strict=True):
        out, cache = _window_call(f, q, k, v, cache, window)
        outs.append(out)
    return torch.cat(outs, -2), cache


def _window_prompt(f):
    length = _between(4, 6)
    batch = _window_draw(length)
    got, _ = _window_call(f, *batch, None, length)
    _compare(
        got,
        _window_by_hand(*batch, length),
        "without a cache, the result is not causal attention with rotary",
    )


def _window_learns(f):
    old, new = ([t.clone().requires_grad_() for t in part] for part in _window_draw(4).split(2, -2))
    out, cache = _window_call(f, *old, None, 4)
    learns(out, old, "the result gives no gradient to q, k or v")
    out, _ = _window_call(f, *new, cache, 4)
    learns(out, [*new, *old[1:]], "the result gives no gradient to the keys and values before it")


def _window_dtypes(f):
    q, k, v = _window_draw(5)
    in_dtypes(
        lambda *batch: _window_call(f, *batch, None, 3)[0],
        lambda *batch: _window_by_hand(*batch, 3),
        *(0.3 * q, k, v),
    )


def _window_large(f):
    q, k, v = _window_draw(6)
    got, _ = _window_call(f, 1e6 * q, k, v, None, 3)
    wrong = "a masked key with a large score gets weight: its score must be -inf"
    _compare(got, _window_by_hand(1e6 * q, k, v, 3), wrong)


def _window_window(f):
    batch, size = _window_draw(7), _between(1, 4)
    got, _ = _window_call(f, *batch, None, size)
    _compare(
        got, _window_by_hand(*batch, size), f"a query does not attend to exactly {size} positions"
    )


def _window_one_by_one(f):
    batch = _window_draw(8)
    got, _ = _window_parts(f, batch, [3, 1, 1, 1, 1, 1], 8)
    _compare(
        got, _window_by_hand(*batch, 8), "token by token, the result differs from that of one call"
    )


def _window_chunks(f):
    batch, size = _window_draw(9), _between(2, 4)
    got, _ = _window_parts(f, batch, [2, 3, 1, 3], size)
    _compare(
        got, _window_by_hand(*batch, size), "in chunks, the result differs from that of one call"
    )


def _window_long(f):
    batch, size = _window_draw(150), _between(2, 4)
    got, _ = _window_parts(f, batch, [145, 2, 1, 2], size)
    wrong = (
        "wrong at positions above 64: a position increases by 1 with each token, without a limit"
    )
    _compare(got, _window_by_hand(*batch, size), wrong)


def _window_branches(f):
    start, size = _window_draw(4), 6
    _, cache = _window_call(f, *start, None, size)
    for _ in range(2):
        more = torch.randn(*start.shape[:3], 3, 8)
        got, _ = _window_parts(f, more, [2, 1], size, cache)
        right = _window_by_hand(*torch.cat((start, more), -2), size)[:, :, 4:]
        _compare(got, right, "continuing the same cache twice gives other results")


def check_window(answer: Callable[..., tuple[Tensor, Any]]) -> Verdict:
    """Check `answer(q, k, v, cache, window)`: rotary attention to a window, with a cache.

    `q`, `k` and `v` are the new tokens, floating point of shape (N, H, L, E); `cache` is what the
    last call returned, or None. The outputs of all calls together must be those of one call.
    """
    return verdict(
        answer,
        [
            _window_prompt,
            _window_window,
            _window_one_by_one,
            _window_chunks,
            _window_long,
            _window_branches,
            _window_large,
            _window_learns,
            _window_dtypes,
        ],
    )
