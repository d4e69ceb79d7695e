"""Checkers of the exercises of the chapter on losses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, in_dtypes, leaves


def one_number(got: object) -> Tensor:
    """Return `got`, a tensor of shape (), as float32."""
    a_tensor(got)
    assert got.shape == (), "expected one number, a tensor of shape (), got a tensor with axes"
    return got.float()


def same_gradient(got: Tensor, right: Tensor, inputs: Tensor) -> None:
    """Raise if the gradients of two scalars with respect to `inputs` differ."""
    assert got.requires_grad, "the result has no graph: backward() raises"
    (mine,) = torch.autograd.grad(got, inputs, allow_unused=True)
    (theirs,) = torch.autograd.grad(right, inputs)
    assert mine is not None and torch.allclose(mine, theirs, atol=1e-5), (
        "the value is right, the gradient is not"
    )


def nan_remains(f: Callable[..., Any], *inputs: Any) -> None:
    """Raise if `f` hides a nan: set the first element of each floating-point input to nan.

    An answer may also raise a `ValueError`, as `torch.distributions` does.
    """
    for n, x in enumerate(inputs):
        if isinstance(x, Tensor) and x.is_floating_point():
            broken = x.detach().clone()
            broken.view(-1)[0] = torch.nan
            with contextlib.suppress(ValueError):
                got = a_tensor(f(*inputs[:n], broken, *inputs[n + 1 :]))
                assert got.isnan().any(), "a nan in the inputs is hidden: the result must be nan"


def _cross_entropy_batch() -> tuple[Tensor, Tensor, Tensor]:
    c = int(torch.randint(3, 7, ()))
    y = torch.cat([torch.arange(c), torch.randint(0, c, (3,))])
    return torch.randn(len(y), c) * 3, y[torch.randperm(len(y))], torch.rand(c) * 4 + 0.5


def _cross_entropy_same(got: object, want: Tensor) -> bool:
    return torch.allclose(one_number(got), want, rtol=1e-4, atol=1e-5)


def _cross_entropy_plain(f):
    x, y, w = _cross_entropy_batch()
    for rows in (len(y), 1):
        right = F.cross_entropy(x[:rows], y[:rows])
        assert _cross_entropy_same(f(x[:rows], y[:rows], torch.ones_like(w), -100), right), (
            "with equal weights and nothing ignored it is not the mean of -log softmax"
        )


def _cross_entropy_weights(f):
    for scale in (1, 1, 0.01, 1e-8):  # small weights: their sum may be less than 1
        x, y, w = _cross_entropy_batch()
        w = w * scale
        got = f(x, y, w, -100)
        if _cross_entropy_same(got, F.cross_entropy(x, y, weight=w)):
            continue
        each = F.cross_entropy(x, y, weight=w, reduction="none")
        assert not _cross_entropy_same(got, F.cross_entropy(x, y)), (
            "the class weights change nothing"
        )
        assert not _cross_entropy_same(got, each.mean()), (
            "with class weights 'mean' divides by the sum of the weights, not by N"
        )
        raise AssertionError("wrong value with class weights")


def _cross_entropy_ignored(f):
    for marker in (-100, 255, 0):
        x, y, w = _cross_entropy_batch()
        y[:2], y[-1] = marker, 1  # one sample is not ignored
        got = f(x, y, w, marker)
        if _cross_entropy_same(got, F.cross_entropy(x, y, weight=w, ignore_index=marker)):
            continue
        total = F.cross_entropy(x, y, weight=w, ignore_index=marker, reduction="sum")
        full = w[y % len(w)].sum()
        assert not _cross_entropy_same(got, total / full) and not _cross_entropy_same(
            got, total / len(y)
        ), "ignored samples add no loss, but they still count in the divisor"
        raise AssertionError("wrong value with ignored labels")
    x, y, w = _cross_entropy_batch()
    x[0], y[0] = torch.nan, -100
    assert _cross_entropy_same(f(x, y, w, -100), F.cross_entropy(x, y, weight=w)), (
        "logits of nan in an ignored row change the loss: 0 * nan is nan, select the other rows"
    )


def _cross_entropy_stable(f):
    x, y, w = _cross_entropy_batch()
    x = x * 1000
    got = one_number(f(x, y, w, -100))
    assert got.isfinite(), "large logits give inf or nan: take log_softmax, not log(softmax)"
    assert _cross_entropy_same(got, F.cross_entropy(x, y, weight=w)), (
        "wrong value for large logits: take log_softmax, without an epsilon or a limit"
    )
    nan_remains(f, x, y, w, -100)


def _cross_entropy_gradient(f):
    for ignored, marker in ((0, -100), (2, -100), (2, 255)):
        x, y, w = _cross_entropy_batch()
        x.requires_grad_()
        y[:ignored] = marker
        right = F.cross_entropy(x, y, weight=w, ignore_index=marker)
        same_gradient(f(x, y, w, marker), right, x)


def _cross_entropy_dtypes(f):
    x, y, w = _cross_entropy_batch()
    y[0] = -100
    in_dtypes(
        f, lambda x, y, w, i: F.cross_entropy(x, y, w, ignore_index=i), x, y, w, -100, wider=True
    )


def check_cross_entropy(answer: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(logits, target, weight, ignore_index)`: `F.cross_entropy` with 'mean'.

    `logits` is floating point of shape (N, C), `target` int64 of shape (N,) with labels below C or
    `ignore_index`, `weight` of shape (C,) and the dtype of `logits`. At least one sample is not
    ignored.
    """
    return verdict(
        leaves(answer, "logits", "target", "weight"),
        [
            _cross_entropy_plain,
            _cross_entropy_weights,
            _cross_entropy_ignored,
            _cross_entropy_stable,
            _cross_entropy_gradient,
            _cross_entropy_dtypes,
        ],
    )


class _Smoothed(TorchFunctionMode):
    """Mode that records whether `F.cross_entropy` is called with label smoothing."""

    seen = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.seen |= func is F.cross_entropy and bool(kwargs.get("label_smoothing"))
        return func(*args, **kwargs)


def _smoothing_compare(f, c: int, eps: float, n: int = 5) -> None:
    lead = torch.zeros(())
    while lead.abs() < 0.3:  # else the loss hardly depends on how the labels are smoothed
        x, y = torch.randn(n, c) * 2, torch.randint(0, c, (n,))
        true = F.one_hot(y, c)
        lead = (x * true - x * (1 - true) / (c - 1)).sum(1).mean()
    soft = true * (1 - eps) + (1 - true) * eps / (c - 1)
    got = one_number(f(x, y, eps))
    if torch.allclose(got, F.cross_entropy(x, soft), rtol=1e-4, atol=1e-5):
        return
    assert not torch.allclose(got, F.cross_entropy(x, y)), "the labels are not smoothed"
    assert not torch.allclose(got, F.cross_entropy(x, y, label_smoothing=eps)), (
        "this is torch's recipe: it gives a share of eps to the true class as well"
    )
    raise AssertionError(
        f"the loss is not that of the smoothed target for {c} classes and eps = {eps}"
    )


def _smoothing_tenth(f):
    _smoothing_compare(f, 5, 0.1)
    _smoothing_compare(f, 5, 0.1, n=1)


def _smoothing_other(f):
    for c in (2, 3, 30):
        for eps in (0.05, 0.2, 0.4):
            _smoothing_compare(f, c, eps)


def _smoothing_none(f):
    _smoothing_compare(f, 4, 0.0)
    with _Smoothed() as watch:
        _smoothing_compare(f, 4, 0.2)
    assert watch.seen, "the target is smoothed by hand: let label_smoothing do it"


def _smoothing_gradient(f):
    x = torch.randn(5, 4, requires_grad=True)
    y = torch.randint(0, 4, (5,))
    want = F.cross_entropy(x, y, label_smoothing=0.2 * 4 / 3)
    same_gradient(f(x, y, 0.2), want, x)
    nan_remains(f, x, y, 0.2)


def _smoothing_dtypes(f):
    def right(x, y, eps):
        return F.cross_entropy(x, y, label_smoothing=eps * 4 / 3)

    in_dtypes(f, right, torch.randn(5, 4), torch.randint(0, 4, (5,)), 0.2, wider=True)


def check_smoothing(answer: Callable[[Tensor, Tensor, float], Tensor]) -> Verdict:
    """Check `answer(logits, target, eps)`: cross-entropy smoothed onto the other classes.

    The true class gets 1 - eps, each of the C - 1 others eps / (C - 1). `logits` is floating point
    of shape (N, C), `target` int64 of shape (N,), and eps is at most 0.4.
    """

    return verdict(
        leaves(answer, "logits", "target"),
        [
            _smoothing_tenth,
            _smoothing_other,
            _smoothing_none,
            _smoothing_gradient,
            _smoothing_dtypes,
        ],
    )
