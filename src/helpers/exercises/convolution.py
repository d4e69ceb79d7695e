"""Checkers of the exercises of the chapter on convolution."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.convolution import adaptive_windows, conv_output_size
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, an_int, between, in_dtypes, leaves, unchanged


def _output_padding_draw(stride: int, dilated: bool) -> tuple[int, int, int]:
    while True:
        k, p, d = (int(torch.randint(low, 5, ())) for low in (2, 0, 2))
        d = d if dilated else 1
        span = d * (k - 1) + 1
        # each term of the formula must count, or an answer without it would pass by chance
        terms = [1, 2 * p - span, 2 * p, (d - 1) * (k - 1) if dilated else 1]
        if p < k and (stride == 1 or all(term % stride for term in terms)):
            return k, p, d


def _output_padding_test(stride: int, dilated: bool):
    def back(f):
        k, p, d = _output_padding_draw(stride, dilated)
        first = d * (k - 1) + 1 + int(torch.randint(0, 5, ()))
        for size in range(first, first + stride):  # these need `stride` different answers
            out = conv_output_size(size, k, stride, p, d)
            padding = an_int(f(size, k, stride, p, d))
            assert 0 <= padding < stride, (
                f"{padding} is not allowed for stride {stride}: "
                f"it must be between 0 and {stride - 1}"
            )
            layer = nn.ConvTranspose1d(1, 1, k, stride, p, padding, dilation=d, device="meta")
            got = layer(torch.empty(1, 1, out, device="meta")).shape[-1]
            assert got == size, (
                f"size {size}, kernel {k}, stride {stride}, padding {p}, dilation {d}: "
                f"output_padding {padding} gives size {got}"
            )

    return back


def _output_padding_spread(f):  # a dilation above the stride
    for size in (11, 12):
        padding = f(size, 3, 2, 0, 4)
        assert padding == (size - 9) % 2, (
            f"size {size}, kernel 3, stride 2, padding 0, dilation 4: {padding} is not right"
        )


def check_output_padding(answer: Callable[[int, int, int, int, int], int]) -> Verdict:
    """Check `answer(size, kernel_size, stride, padding, dilation)`: the right `output_padding`.

    With it, the transposed convolution must bring the output of the convolution back to `size`.
    """

    tests = [
        _output_padding_test(1, False),
        _output_padding_test(3, False),
        _output_padding_test(4, True),
        _output_padding_test(5, True),
        _output_padding_spread,
    ]
    return verdict(answer, tests)


class _NoAdaptive(TorchDispatchMode):
    """Raise if the answer calls an adaptive pooling of torch, under any name."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert "adaptive" not in str(func), f"{func} is an adaptive function: write it yourself"
        return func(*args, **(kwargs or {}))


def _adaptive_test(
    what: str, draw: Callable[[], tuple[int, int]], dtype: torch.dtype = torch.float32
):
    def same(f):
        n, o = draw()
        x = torch.randn(*((2, 3) if n > 1 else (1, 1)), n, dtype=dtype)
        x[..., 0] *= 1e4
        with _NoAdaptive():
            got = leaves(f, "x")(x, o)
        want = F.adaptive_avg_pool1d(x, o)
        a_tensor(got)
        assert got.shape == want.shape, (
            f"from size {n} to {o}: expected shape {tuple(want.shape)}, got {tuple(got.shape)}"
        )
        assert got.dtype == dtype, f"from {dtype} it returned {got.dtype}: keep the dtype of x"
        near = 1e-5 if dtype == torch.float32 else 1e-12
        close = torch.isclose(got, want, rtol=near, atol=near)
        wrong = (~close).any(0).any(0).nonzero().flatten()
        assert not len(wrong), (
            f"from size {n} to {o} ({what}): output position {int(wrong[0])} is not the mean "
            f"of the input positions {list(range(*adaptive_windows(n, o)[wrong[0]]))}"
        )

    return same


def _adaptive_gradient(f):
    n, o = _adaptive_smaller()
    x, upstream = torch.randn(2, 3, n, requires_grad=True), torch.randn(2, 3, o)
    got = f(x, o)
    assert got.requires_grad, "the result has no graph, so no gradient flows to x"
    (gradient,) = torch.autograd.grad(got, x, upstream)
    (right,) = torch.autograd.grad(F.adaptive_avg_pool1d(x, o), x, upstream)
    assert torch.allclose(gradient, right, atol=1e-5), "the gradient is not that of the means"


def _adaptive_divides() -> tuple[int, int]:
    o = between(1, 4)
    return o * between(2, 3), o


def _adaptive_smaller() -> tuple[int, int]:
    o = between(3, 6)
    return 2 * o - 1, o


def _adaptive_larger() -> tuple[int, int]:
    n = between(3, 6)
    return n, 2 * n - 1


def check_adaptive(answer: Callable[[Tensor, int], Tensor]) -> Verdict:
    """Check `answer(x, o)`: adaptive average pooling of `x` (N, C, n) to `o` cells, by hand."""

    return verdict(
        answer,
        [
            _adaptive_test("the sizes divide", _adaptive_divides),
            _adaptive_test("they do not divide", _adaptive_smaller),
            _adaptive_test("more positions than the input", _adaptive_larger),
            _adaptive_test("float64", _adaptive_smaller, torch.float64),
            _adaptive_test("a single position", lambda: (1, 1)),
            # (i + 1) * (n / o) rounds up too far for these sizes
            _adaptive_test("many positions", lambda: (36, 28)),
            _adaptive_gradient,
        ],
    )


def _signed_sqrt_value(f):
    x = (0.5 + torch.rand(5, 4)) * torch.tensor([1, -1, 1, -1])  # both signs in any case
    # the error is largest near 0; the last row overflows in float16
    x = x * 10 ** torch.tensor([[-4.0], [-3.0], [-2.0], [0.0], [5.0]])
    x = x * (0.5 + torch.rand(5, 1))
    for given in (x, x.double(), x.T, x[0], x[:1, :1], x[1, 1], x[:0]):
        with unchanged(x=given):
            got = f(given)
        want = given.sign() * given.abs().sqrt()
        a_tensor(got, given.shape, given.dtype)
        far = (got - want).abs() >= 0.01
        assert not far.any(), "the value is more than 0.01 away from sign(x) · sqrt(|x|)"


def _signed_sqrt_gradient(f):
    x = torch.cat([torch.zeros(3), torch.randn(3)])[torch.randperm(6)].requires_grad_()
    out = f(x)
    assert out.requires_grad, "the result has no graph, so no gradient flows to x"
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert slope.isfinite().all(), "the gradient at 0 is not finite"
    assert (slope[x != 0] > 0).all(), "the gradient away from 0 is not positive"
    x = (torch.rand(8) + 0.5).requires_grad_()
    (slope,) = torch.autograd.grad(f(x).sum(), x)
    right = 0.5 / x.detach().sqrt()
    assert torch.allclose(slope, right, rtol=0.1), "the gradient is not that of the root"


def _signed_sqrt_jump(f):
    tiny = 10 ** torch.empty(()).uniform_(-36, -34)
    below, above = f(torch.stack([-tiny, tiny])).tolist()
    assert abs(above - below) < 1e-9, "there is a jump at 0: both sides must have the same limit"


def _signed_sqrt_dtypes(f):
    in_dtypes(f, lambda x: x.sign() * x.abs().sqrt(), torch.randn(6), near=0.01)
    x = torch.tensor([0.0, 1e-4, -0.25, 2.0, 300.0]).half().requires_grad_()
    got = f(x)
    a_tensor(got, x.shape, x.dtype)
    near = torch.isclose(got, x.sign() * x.abs().sqrt(), rtol=2e-3, atol=0.01)
    assert near.all(), "in float16 the value is wrong: 1e-8 is 0 and 300² is inf there"
    (slope,) = torch.autograd.grad(got.sum(), x)
    assert slope.isfinite().all(), "in float16 the gradient is not finite"


def check_signed_sqrt(answer: Callable[[Tensor], Tensor]) -> Verdict:
    """Check `answer(x)`: nearly sign(x) · sqrt(|x|), without a jump and with finite gradients."""

    return verdict(
        answer, [_signed_sqrt_value, _signed_sqrt_gradient, _signed_sqrt_jump, _signed_sqrt_dtypes]
    )
