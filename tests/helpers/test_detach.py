"""Test the helpers of `detach`, and its checkers with solutions, starters and wrong answers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from verdicts import expect

from helpers import detach, distributed
from helpers.exercises import detach as exercises


def test_gradients_reports_which_parameters_have_one():
    model = nn.Linear(2, 1)
    assert detach.gradients(model) == {"weight": False, "bias": False}
    model(torch.ones(1, 2)).sum().backward()
    assert detach.gradients(model) == {"weight": True, "bias": True}


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, upstream):
        return upstream


def no_graph_of_a(a, b, x):
    with torch.no_grad():
        h = a(x)
    return b(h).mean()


@torch.no_grad()
def no_graph_at_all(a, b, x):
    return b(a(x)).mean()


def frozen_for_a_while(a, b, x):
    a.requires_grad_(False)
    try:
        return b(a(x)).mean()
    finally:
        a.requires_grad_(True)


def zeroed(a, b, x):
    h = no_graph_of_a(a, b, x)
    with torch.no_grad():
        for p in a.parameters():
            p.zero_()
    return h


def only_the_weight_of_b(a, b, x):
    with torch.no_grad():
        h = a(x)
    return nn.functional.linear(h, b.weight, b.bias.detach()).mean()


def no_gradient_for_b(a, b, x):
    return b(a(x)).mean().detach() + 0 * sum(p.sum() for p in b.parameters())


def switched_off(a, b, x):
    torch.set_grad_enabled(False)
    h = a(x)
    with torch.enable_grad():
        return b(h).mean()


@pytest.fixture(autouse=True)
def gradients_on():
    yield
    torch.set_grad_enabled(True)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (no_graph_of_a, None),
        (frozen_for_a_while, "a gradient still reaches x"),
        (lambda a, b, x: b(torch.no_grad()(a)(x)).flatten().mean(), None),
        (lambda a, b, x: b(torch.no_grad()(a)(x)).sum() / len(x), "not the mean of B(A(x))"),
        (lambda a, b, x: b(a.requires_grad_(False)(x)).mean(), "still reaches x"),
        (zeroed, "0.weight of A was changed"),
        (lambda a, b, x: b(torch.no_grad()(a.eval())(x)).mean(), "not the mean of B(A(x))"),
        (switched_off, "gradients stay switched off"),
        (only_the_weight_of_b, "B got no gradient"),
        (no_gradient_for_b, "B got a wrong gradient"),
        (lambda a, b, x: b(torch.inference_mode()(a)(x)).mean(), "raised RuntimeError"),
        (lambda a, b, x: b(torch.no_grad()(a)(x)), "expected shape ()"),
        (lambda a, b, x: ..., "expected a tensor, got ellipsis"),
        (lambda a, b, x: b(a(x)).mean(), "a gradient still reaches A"),
        (lambda a, b, x: b(a(x).detach()).mean(), "A's graph is still built"),
        (lambda a, b, x: b(a(x).detach()).sum(), "not the mean of B(A(x))"),
        (lambda a, b, x: b(a(x)).mean().detach(), "the loss has no graph"),
        (no_graph_at_all, "the loss has no graph"),
    ],
)
def test_check_train_only_b_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_train_only_b(answer), says)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: x + (x.round() - x).detach(), None),
        (lambda x: x.round() + x - x.detach(), None),
        (Straight.apply, None),
        (lambda x: x + ((x + 0.5).floor() - x).detach(), "the value is not x.round()"),
        (lambda x: x + (x.round().int() - x).detach(), "the value is not x.round()"),
        (lambda x: Straight.apply(x) + 0 * x.sum().detach(), "the value is not x.round()"),
        (lambda x: x.data.round_() * 0 + x, "x itself was changed"),
        (lambda x: (x + (x.round() - x).detach()).float(), "expected torch.float64"),
        (lambda x: x.round(), "not the gradient of the output"),
        (lambda x: x, "the value is not x.round()"),
        (lambda x: x.round().detach(), "the result has no graph"),
        (lambda x: x.round().detach().requires_grad_(), "no gradient arrives at x"),
        (lambda x: (x + (x.round() - x).detach())[None], "expected shape (3, 4)"),
        (lambda x: x - (x.round() - x).detach(), "the value is not x.round()"),
        (lambda x: x.round() + 2 * (x - x.detach()), "not the gradient of the output"),
        (lambda x: None, "expected a tensor, got None"),
    ],
)
def test_check_straight_through_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_straight_through(answer), says)


KEPT = {}


def into_one_dictionary(model):
    KEPT.update((name, p.detach().clone()) for name, p in model.named_parameters())
    return KEPT


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda m: {n: p.detach().clone() for n, p in m.named_parameters()}, None),
        (lambda m: {n: p.clone().detach() for n, p in m.named_parameters()}, None),
        (lambda m: copy.deepcopy(m.state_dict()), "expected the keys"),
        (lambda m: {n: p.data.clone() for n, p in m.named_parameters()}, None),
        (
            lambda m: {n: p.clone() for n, p in m.requires_grad_(False).named_parameters()},
            "requires_grad of 0.weight of the model was changed",
        ),
        (
            lambda m: {n: torch.tensor(p.tolist()) for n, p in m.named_parameters()},
            "expected torch.float64",
        ),
        (
            lambda m: {n: p.data.clone() for n, p in m.named_parameters() if p.requires_grad},
            "expected the keys",
        ),
        (lambda m: {n: p.tolist() for n, p in m.named_parameters()}, "is no tensor but list"),
        (lambda m: {n: p.detach() for n, p in m.named_parameters()}, "changed when the model"),
        (lambda m: m.state_dict(), "expected the keys"),
        (lambda m: {n: p.clone() for n, p in m.named_parameters()}, "still requires grad"),
        (lambda m: {}, "expected the keys"),
        (into_one_dictionary, "a second call changed"),
        (
            lambda m: {n: torch.zeros_like(p).detach() for n, p in m.named_parameters()},
            "does not hold the parameter's values",
        ),
        (lambda m: None, "expected a dict, got None"),
    ],
)
def test_check_snapshot_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_snapshot(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize(
    ("f", "needs_its_output"),
    [(torch.sigmoid, True), (torch.exp, True), (lambda x: x * 2, False), (lambda x: x**2, False)],
)
def test_write_to_a_detached_output_raises_if_backward_requires_it(f, needs_its_output):
    x = torch.full((2,), 0.5, requires_grad=True)
    (right,) = torch.autograd.grad(f(x).sum(), x)
    s = f(x)
    s.data.zero_()
    (through_data,) = torch.autograd.grad(s.sum(), x)
    assert torch.equal(through_data, right) != needs_its_output
    s = f(x)
    s.detach().zero_()
    if needs_its_output:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            s.sum().backward()
    else:
        s.sum().backward()


def test_views_and_detached_aliases_share_the_version_but_data_does_not():
    x = torch.ones(4)
    view, detached, data = x[:2], x.detach(), x.data
    x.add_(1)
    assert [t._version for t in (x, view, detached, data)] == [1, 1, 1, 0]


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_collective_keeps_the_version_counter(collective):
    with distributed.alone():
        s = torch.sigmoid(torch.zeros(2, requires_grad=True))
        arguments = (0,) if collective == "broadcast" else ()
        getattr(torch.distributed, collective)(s, *arguments)
    assert s._version == 0
