"""Checkers of the exercises of the chapter on detach."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from helpers.autograd import saved_tensors
from helpers.detach import gradients
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, close, in_dtypes, in_two_modes, instance, leaves


def _train_only_b_models(dtype=torch.float32):
    a = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(), nn.Linear(16, 4))
    x = torch.randn(3, int(torch.randint(5, 9, ()))).T
    return a.to(dtype), nn.Linear(4, 2).to(dtype), x.to(dtype) / 3


def _train_only_b_value(f):
    for dtype in (torch.float32, torch.float64):
        a, b, x = _train_only_b_models(dtype)
        own = partial(lambda a, b, x: b(a(x)).mean(), a, b, x)
        right, loss = _alike(own, partial(f, a, b, x))
        close(loss, right, "the loss is not the mean of B(A(x))")


def _train_only_b_gradient(f):
    a, b, x = _train_only_b_models()
    x.requires_grad_()
    right, loss = _alike(
        lambda: torch.autograd.grad(b(a(x)).mean(), b.weight)[0], lambda: f(a, b, x)
    )
    assert loss.requires_grad, "the loss has no graph, so B cannot learn either"
    loss.backward()
    assert all(gradients(b).values()), "B got no gradient"
    assert not any(gradients(a).values()), "a gradient still reaches A"
    assert x.grad is None, "a gradient still reaches x: it goes through A"
    assert torch.allclose(b.weight.grad, right, atol=1e-6), "B got a wrong gradient"


def _train_only_b_memory(f):
    a, b, x = _train_only_b_models()
    saved = saved_tensors(lambda: f(a, b, x))
    of_a = [shape for shape in saved if {3, 16} & set(shape)]
    assert not of_a, "A's graph is still built and thrown away: run A without one"


def _train_only_b_untouched(f):
    a, b, x = _train_only_b_models()
    a[1].eval()
    a[0].bias.requires_grad_(False)
    for p in (*a.parameters(), *b.parameters()):
        p.grad = torch.ones_like(p)
    leaves(f, "A", "B", "x")(a, b, x)


def check_train_only_b(answer: Callable[[nn.Module, nn.Module, Tensor], Tensor]) -> Verdict:
    """Check `answer(A, B, x)`: the mean of `B(A(x))` with a graph that begins after A.

    `x` is float32 or float64 of shape (n, 3); A maps 3 to 4 features, B maps 4 to 2. Both must
    be left as they were, and gradients on.
    """

    return verdict(
        answer,
        [
            _train_only_b_value,
            _train_only_b_gradient,
            _train_only_b_memory,
            _train_only_b_untouched,
        ],
        draws=True,
    )


def _alike(*functions: Callable[[], Any]) -> list[Any]:
    """Return the results of the functions, each of which draws the same random numbers."""
    with torch.random.fork_rng(devices=[]):
        seed = torch.seed()
        results = []
        for function in functions:
            torch.manual_seed(seed)
            results.append(function())
    return results


def check_straight_through(answer: Callable[[Tensor], Tensor]) -> Verdict:
    """Check `answer(x)`: rounds going forward, passes gradients through unchanged.

    `x` is floating point of any shape, and stays as it was.

    Source: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons".
    """

    def forward(f):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(3, 4, dtype=dtype) * 3
            x[0] = torch.tensor([0.5, 2.5, -1.5, 3e9])  # ties go to the even number
            x.requires_grad_()
            before = x.tolist()
            out = f(x)
            a_tensor(out)
            assert x.tolist() == before, "x itself was changed"
            assert out.dtype == dtype, f"expected {dtype}, got {out.dtype}"
            assert out.shape == x.shape, f"expected shape (3, 4), got {tuple(out.shape)}"
            assert torch.allclose(out, x.round(), atol=1e-6), "the value is not x.round()"

    def dtypes(f):
        in_dtypes(f, torch.round, torch.linspace(-3e9, 3e9, 8))
        for shape in ((), (1,), (1, 1), (0, 2)):
            close(f(torch.full(shape, 1.7)), torch.full(shape, 2.0), "the value is not x.round()")
        close(f(torch.full((2,), torch.nan)), torch.full((2,), torch.nan), "a nan is hidden")
        mixed = torch.tensor([1.7, torch.nan])
        close(f(mixed), torch.tensor([2.0, torch.nan]), "the value is not x.round()")

    def backward(f):
        x, upstream = torch.linspace(-90, 90, 8, requires_grad=True), 30 * torch.randn(8)
        out = f(x)
        assert out.requires_grad, "the result has no graph, so no gradient can pass"
        out.backward(upstream)
        assert x.grad is not None, "no gradient arrives at x"
        assert torch.allclose(x.grad, upstream), (
            "the gradient of x is not the gradient of the output"
        )

    return verdict(answer, [forward, dtypes, backward])


def _snapshot_build() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2)).double()
    for p in model.parameters():
        nn.init.normal_(p)
        p.grad = torch.randn_like(p)
    model[0].bias.requires_grad_(False)
    return in_two_modes(model)


def _snapshot_content(f):
    model = _snapshot_build()
    got = leaves(f, "the model")(model)
    instance("a dict", got, dict)
    names = [name for name, _ in model.named_parameters()]
    assert sorted(got) == sorted(names), f"expected the keys {names}, got {list(got)}"
    for name, p in model.named_parameters():
        kept = got[name]
        assert isinstance(kept, Tensor), f"{name} is no tensor but {type(kept).__name__}"
        assert kept.dtype == p.dtype, f"{name}: expected {p.dtype}, got {kept.dtype}"
        assert torch.equal(kept, p), f"{name} does not hold the parameter's values"
        assert kept.grad_fn is None, f"{name} still requires grad"


def _snapshot_stays(f):
    model = _snapshot_build()
    got = f(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1 + torch.rand(()))
    for name, value in before.items():
        assert torch.equal(got[name], value), f"{name} changed when the model was trained on"
    f(model)
    for name, value in before.items():
        assert torch.equal(got[name], value), f"a second call changed {name} of the first"


def check_snapshot(answer: Callable[[nn.Module], dict[str, Tensor]]) -> Verdict:
    """Check `answer(model)`: the parameters by name, as they are now, out of the graph.

    The model has submodules, float64 weights and a frozen parameter, and stays as it was.
    """

    return verdict(answer, [_snapshot_content, _snapshot_stays])
