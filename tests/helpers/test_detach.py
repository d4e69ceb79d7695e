"""The detach chapter's helpers, and its exercises: solutions pass, starters and traps fail."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from helpers import detach
from helpers.exercises import detach as exercises


def test_gradients_tells_which_parameters_have_one():
    model = nn.Linear(2, 1)
    assert detach.gradients(model) == {"weight": False, "bias": False}
    model(torch.ones(1, 2)).sum().backward()
    assert detach.gradients(model) == {"weight": True, "bias": True}


def no_graph_of_a(a, b, x):
    with torch.no_grad():
        h = a(x)
    return b(h).mean()


@torch.no_grad()
def no_graph_at_all(a, b, x):
    return b(a(x)).mean()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (no_graph_of_a, None),
        (lambda a, b, x: b(a.requires_grad_(False)(x)).mean(), None),
        (lambda a, b, x: ..., "expected a tensor, got ellipsis"),
        (lambda a, b, x: b(a(x)).mean(), "a gradient still reaches A"),
        (lambda a, b, x: b(a(x).detach()).mean(), "A's graph is still built"),
        (lambda a, b, x: b(a(x).detach()).sum(), "not the mean of B(A(x))"),
        (lambda a, b, x: b(a(x)).mean().detach(), "the loss has no graph"),
        (no_graph_at_all, "the loss has no graph"),
    ],
)
def test_train_only_b(answer, says):
    verdict = exercises.check_train_only_b(answer)
    assert verdict.passed == (says is None), verdict
    assert says is None or says in verdict.message


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: x + (x.round() - x).detach(), None),
        (lambda x: x.round(), "not the gradient of the output"),
        (lambda x: x, "the value is not x.round()"),
        (lambda x: x.round().detach(), "the result has no graph"),
        (lambda x: x - (x.round() - x).detach(), "the value is not x.round()"),
        (lambda x: x.round() + 2 * (x - x.detach()), "not the gradient of the output"),
        (lambda x: None, "expected a tensor, got NoneType"),
    ],
)
def test_straight_through(answer, says):
    verdict = exercises.check_straight_through(answer)
    assert verdict.passed == (says is None), verdict
    assert says is None or says in verdict.message


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda m: {n: p.detach().clone() for n, p in m.named_parameters()}, None),
        (lambda m: {n: p.clone().detach() for n, p in m.named_parameters()}, None),
        (lambda m: copy.deepcopy(m.state_dict()), None),
        (lambda m: {n: p.detach() for n, p in m.named_parameters()}, "changed when the model"),
        (lambda m: m.state_dict(), "changed when the model"),
        (lambda m: {n: p.clone() for n, p in m.named_parameters()}, "still requires grad"),
        (lambda m: {}, "expected the keys"),
        (lambda m: None, "expected a dict, got NoneType"),
    ],
)
def test_snapshot(answer, says):
    verdict = exercises.check_snapshot(answer)
    assert verdict.passed == (says is None), verdict
    assert says is None or says in verdict.message
