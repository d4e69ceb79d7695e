"""Checkers of the exercises of the chapter "Cut the graph with detach"."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from helpers.autograd import saved_tensors
from helpers.detach import gradients
from helpers.exercises import Verdict, verdict


def check_train_only_b(answer: Callable[[nn.Module, nn.Module, Tensor], Tensor]) -> Verdict:
    """Check `answer(A, B, x)`: the mean of `B(A(x))` with a graph that begins after A.

    `x` is float32 of shape (n, 3); A maps 3 to 4 features, B maps 4 to 1.
    """

    def models():
        a = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))
        return a, nn.Linear(4, 1), torch.randn(int(torch.randint(2, 9, ())), 3)

    def value(f):
        a, b, x = models()
        loss = f(a, b, x)
        assert isinstance(loss, Tensor), f"expected a tensor, got {type(loss).__name__}"
        assert torch.allclose(loss, b(a(x)).mean()), "the loss is not the mean of B(A(x))"

    def gradient(f):
        a, b, x = models()
        loss = f(a, b, x)
        assert loss.requires_grad, "the loss has no graph, so B cannot learn either"
        loss.backward()
        assert all(gradients(b).values()), "B got no gradient"
        assert not any(gradients(a).values()), "a gradient still reaches A"

    def memory(f):
        a, b, x = models()
        inside = len(saved_tensors(lambda: b(a(x).detach()).mean()))
        saved = len(saved_tensors(lambda: f(a, b, x)))
        assert saved < inside, "A's graph is still built and thrown away: run A without one"

    return verdict(answer, [value, gradient, memory])


def check_straight_through(answer: Callable[[Tensor], Tensor]) -> Verdict:
    """Check `answer(x)`: rounds going forward, passes gradients through unchanged.

    Source: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons".
    """

    def forward(f):
        x = torch.randn(3, 4, requires_grad=True) * 3
        out = f(x)
        assert isinstance(out, Tensor), f"expected a tensor, got {type(out).__name__}"
        assert torch.allclose(out, x.round(), atol=1e-6), "the value is not x.round()"

    def backward(f):
        x, upstream = torch.randn(5, requires_grad=True), torch.randn(5)
        out = f(x)
        assert out.requires_grad, "the result has no graph, so no gradient can pass"
        out.backward(upstream)
        assert x.grad is not None, "no gradient arrives at x"
        assert torch.equal(x.grad, upstream), "the gradient of x is not the gradient of the output"

    return verdict(answer, [forward, backward])


def check_snapshot(answer: Callable[[nn.Module], dict[str, Tensor]]) -> Verdict:
    """Check `answer(model)`: the parameters by name, as they are now, out of the graph."""

    def content(f):
        model = nn.Linear(3, 2)
        got = f(model)
        assert isinstance(got, dict), f"expected a dict, got {type(got).__name__}"
        names = [name for name, _ in model.named_parameters()]
        assert sorted(got) == sorted(names), f"expected the keys {names}, got {list(got)}"
        for name, p in model.named_parameters():
            assert torch.equal(got[name], p), f"{name} does not hold the parameter's values"
            assert not got[name].requires_grad, f"{name} still requires grad"

    def stays(f):
        model = nn.Linear(3, 2)
        got = f(model)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1 + torch.rand(()))
        for name, value in before.items():
            assert torch.equal(got[name], value), f"{name} changed when the model was trained on"

    return verdict(answer, [content, stays])
