"""Checkers of the exercises of the chapter on custom functions."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks

from helpers.autograd import storage_id
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import close, in_dtypes, leaves


def _linear_backward_compare(f: Callable, n: int, i: int, o: int) -> None:
    x, weight, bias = torch.randn(n, i), torch.randn(o, i), torch.randn(o)
    upstream = torch.randn(n, o)
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    right = torch.autograd.grad(F.linear(*inputs), inputs, upstream)
    got = leaves(f, "x", "weight", "upstream")(x.detach(), weight.detach(), upstream)
    assert isinstance(got, tuple | list) and len(got) == 3, (
        "return three gradients: of x, of weight and of bias"
    )
    for name, mine, theirs in zip(("x", "weight", "bias"), got, right, strict=True):
        assert isinstance(mine, Tensor), (
            f"the gradient of {name} is not a tensor but {type(mine).__name__}"
        )
        assert mine.shape == theirs.shape, (
            f"the gradient of {name} has shape {tuple(mine.shape)}, "
            f"but {name} has shape {tuple(theirs.shape)}"
        )
        assert mine.dtype == theirs.dtype, (
            f"the gradient of {name} is {mine.dtype}, but {name} is {theirs.dtype}"
        )
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-4), (
            f"the gradient of {name} has the right shape, but wrong values"
        )


def _linear_backward_oblong(f: Callable) -> None:
    n, i, o = (torch.randperm(6)[:3] + 2).tolist()
    _linear_backward_compare(f, n, i, o)


def _linear_backward_square(f: Callable) -> None:
    _linear_backward_compare(f, 4, 4, 4)  # every wrong transpose fits here


def _linear_backward_single(f: Callable) -> None:
    _linear_backward_compare(f, 1, 1, 1)  # no axis may be squeezed away


def _linear_backward_dtypes(f: Callable) -> None:
    x, weight, upstream = torch.randn(3, 2), torch.randn(4, 2), torch.randn(3, 4)
    in_dtypes(f, lambda x, w, up: (up @ w, up.T @ x, up.sum(0)), x, weight, upstream)


def check_linear_backward(
    answer: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
) -> Verdict:
    """Check `answer(x, weight, upstream)`: the three gradients of `F.linear(x, weight, bias)`.

    `x` has shape (n, i), `weight` (o, i) and `upstream`, the gradient of the output, (n, o).
    Expected are the gradients of `x`, `weight` and `bias`, in this order.
    """

    return verdict(
        answer,
        [
            _linear_backward_oblong,
            _linear_backward_square,
            _linear_backward_single,
            _linear_backward_dtypes,
        ],
    )


def _root_draw(n: int, *shape: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, int]:
    return (torch.rand(shape, dtype=dtype) + 0.5).requires_grad_(), n


def _root_is_function(f: Any) -> None:
    assert inspect.isclass(f) and issubclass(f, torch.autograd.Function), (
        "pass the class itself, a subclass of torch.autograd.Function"
    )


def _root_forward(f: Any) -> None:
    for dtype in (torch.float64, torch.float32):
        x, n = _root_draw((3, 5, 6)[int(torch.randint(3, ()))], 3, 2, dtype=dtype)  # 1/4 is exact
        before = x.detach().clone()
        y = f.apply(x.detach(), n)
        assert isinstance(y, Tensor) and y.shape == x.shape and y.dtype == dtype, (
            "apply must return a tensor with the shape and the dtype of x"
        )
        assert torch.equal(x, before), "forward has changed x"
        close(y, before ** (1 / n), "forward is not the n-th root")
        assert f.apply(x, n).requires_grad, (
            "the output requires no gradient: there is no graph from x to it"
        )


def _root_saved(f: Any) -> None:
    x, n = _root_draw(3, 4, 2)
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        y = f.apply(x, n)
    own = [v for v in vars(y.grad_fn).values() if _holds_tensor(v)]
    assert not own, "a tensor is an attribute of ctx: pass it to save_for_backward"
    assert len(kept) == 1, f"{len(kept)} tensors are saved: one, the output, is enough"
    assert storage_id(kept[0]) == storage_id(y), "the saved tensor is not the output"
    x = x * 1
    alive, y = weakref.ref(x), f.apply(x, n)
    del x
    assert alive() is None, "the input is still referenced outside of save_for_backward"


def _root_first(f: Any) -> None:
    for n in (2, 3, 5):
        x, _ = _root_draw(n, 3, 2)
        upstream = torch.randn(3, 2, dtype=x.dtype)
        right = upstream * x.detach() ** (1 / n - 1) / n
        ones = torch.autograd.grad(f.apply(x, n), x, torch.ones_like(x))[0]
        if not torch.allclose(ones * upstream, right):
            raise AssertionError("the derivative is wrong")
        got = torch.autograd.grad(f.apply(x, n), x, upstream)[0]
        assert torch.allclose(got, right), (
            "the derivative is right only if upstream is 1: multiply by upstream"
        )
    x, _ = _root_draw(2, 3, 2)
    square_root, cube_root = f.apply(x, 2), f.apply(x, 3)
    for y, n in ((square_root, 2), (cube_root, 3)):
        upstream = torch.randn(3, 2, dtype=x.dtype)
        before = upstream.clone()
        got = torch.autograd.grad(y, x, upstream)[0]
        assert torch.allclose(got, before * x.detach() ** (1 / n - 1) / n), (
            "wrong if apply is called with another n before the backward pass: store n in ctx"
        )
        assert torch.equal(upstream, before), "backward has changed the gradient that it received"
    assert gradcheck(f.apply, _root_draw(4, 3, 2), raise_exception=False), "gradcheck fails"


def _root_second(f: Any) -> None:
    for n in (2, 3):
        assert gradgradcheck(f.apply, _root_draw(n, 3, 2), raise_exception=False), (
            "the second derivative is wrong: use only torch operations on the saved output in "
            "backward"
        )


def _root_shapes(f: Any) -> None:
    for shape in ((), (1,), (2, 1, 3)):
        x, n = _root_draw(3, *shape, dtype=torch.float32)
        f.apply(x, n).sum().backward()
        right = x.detach() ** (1 / n - 1) / n
        assert torch.allclose(x.grad, right, rtol=1e-4), f"wrong for an x of shape {shape}"
    x = (10.0 ** torch.arange(-200, 201, 20).double()).requires_grad_()
    y = f.apply(x, 3)
    (slope,) = torch.autograd.grad(y.sum(), x)
    right = x.detach() ** (1 / 3)
    for number, good, bad in zip(
        x, right.isclose(y, atol=0), ~slope.isclose(right / x / 3, atol=0), strict=True
    ):
        assert good and not bad, f"wrong for an x of {number:g}: no epsilon or clamp is needed"
    x, n = _root_draw(3, 3, 2)
    upstream = torch.randn(2, 3, dtype=x.dtype)
    f.apply(x, n).T.backward(upstream)
    right = upstream.T * x.detach() ** (1 / n - 1) / n
    assert torch.allclose(x.grad, right), "wrong for a gradient that is not contiguous"


def check_root(answer: type[torch.autograd.Function]) -> Verdict:
    """Check the Function `answer`: `answer.apply(x, n)` is the n-th root of `x`.

    `x` is a tensor of positive numbers of any shape, float32 or float64, and `n` an int. One
    tensor may be saved for the backward pass, the output, and the second derivative must hold.
    """
    return verdict(
        answer,
        [_root_is_function, _root_forward, _root_saved, _root_first, _root_second, _root_shapes],
    )


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(map(_holds_tensor, value))
    return isinstance(value, Tensor)
