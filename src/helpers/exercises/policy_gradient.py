"""Checkers of the exercises of the chapter on policy gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Categorical

from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import nan_remains
from helpers.exercises.tools import a_tensor, between, close, in_dtypes, leaves
from helpers.policy_gradient import discounted_returns

# ---------------------------------------------------------------- returns


def _episodes() -> tuple[Tensor, Tensor, float]:
    """Return positive rewards of several episodes, of which the last may be unfinished."""
    steps = between(8, 12)
    ended = torch.zeros(steps, dtype=torch.bool)
    ended[between(1, 2)] = ended[between(4, 6)] = True
    ended[-1] = between(0, 1) == 1
    return torch.rand(steps) + 0.5, ended, between(6, 9) / 10  # none is exact in float32


def _returns_value(f):
    for _ in range(4):
        rewards, ended, gamma = _episodes()
        got, right = f(rewards, ended, gamma), discounted_returns(rewards, ended, gamma)
        a_tensor(got, right.shape, right.dtype)
        before = torch.cat([torch.tensor([False]), ended[:-1]])
        forwards = discounted_returns(rewards.flip(0), before.flip(0), gamma).flip(0)
        for wrong, why in (
            (
                forwards,
                "the rewards before each step are added: go from the last step to the first",
            ),
            (
                discounted_returns(rewards, ended & False, gamma),
                "the sums run on into the next episode",
            ),
            (
                discounted_returns(rewards, before, gamma),
                "an episode is ended one step too late "
                "or too early: ended is true at its last step",
            ),
            (discounted_returns(rewards, ended, 1.0), "gamma is ignored"),
            (
                discounted_returns(rewards, ended & False, 1.0),
                "gamma is ignored, and the sums run on into the next episode",
            ),
        ):
            assert torch.allclose(wrong, right) or not torch.allclose(got, wrong, atol=1e-5), why
        close(got, right)


def _returns_edges(f):
    one, yes = torch.rand(1), torch.tensor([True])
    for ended in (yes, ~yes):
        close(f(one, ended, 0.9), one, "with one step the return is its reward")
    rewards = torch.randn(5).abs() * torch.tensor([-1.0, 1.0, -1.0, 1.0, -1.0])
    every = torch.ones(5, dtype=torch.bool)
    close(f(rewards, every, 0.9), rewards, "if each step ends an episode, returns are the rewards")
    close(f(rewards, ~every, 0.0), rewards, "with gamma 0 the returns are the rewards")
    sums = rewards.flip(0).cumsum(0).flip(0)
    close(f(rewards, ~every, 1.0), sums, "with gamma 1 the returns are plain sums")
    long, never = torch.rand(300), torch.zeros(300, dtype=torch.bool)
    right = discounted_returns(long, never, 0.99)
    close(f(long, never, 0.99), right, "wrong for an episode of 300 steps", rtol=1e-4)
    ended = torch.arange(5) == 2
    parts = discounted_returns(rewards, ended, 1.0)
    close(f(rewards, ended, 1.0), parts, "with gamma 1 the returns are plain sums")


def _returns_dtypes(f):
    rewards, ended, gamma = _episodes()
    in_dtypes(lambda r: f(r, ended, gamma), lambda r: discounted_returns(r, ended, gamma), rewards)


def check_returns(answer: Callable[[Tensor, Tensor, float], Tensor]) -> Verdict:
    """Check `answer(rewards, ended, gamma)`: discounted returns within each episode.

    `rewards` is floating point and `ended` bool, both of shape (T,) with T at least 1.
    """
    f = leaves(answer, "rewards", "ended")
    return verdict(f, [_returns_value, _returns_edges, _returns_dtypes])


# ---------------------------------------------------------------- entropy of legal actions


def _entropy(logits: Tensor, legal: Tensor) -> Tensor:
    """Return the entropy over the legal actions, row by row, computed in float64."""
    rows = zip(logits.double(), legal, strict=True)
    each = [Categorical(logits=row[keep]).entropy() for row, keep in rows]
    return torch.stack(each).to(logits.dtype) + 0.0  # no -0


def _legal_batch() -> tuple[Tensor, Tensor]:
    n, actions = between(4, 6), between(4, 6)
    legal = torch.rand(n, actions) < 0.5
    legal[:, 0], legal[:, -1] = True, False
    legal[0] = torch.arange(actions) == 0  # a single one
    legal[1] = True
    legal[2] = torch.arange(actions) < 2
    order = torch.randperm(n)
    return 2 * torch.randn(n, actions), legal[order]


def _entropy_value(f):
    for _ in range(4):
        logits, legal = _legal_batch()
        got, right = f(logits, legal), _entropy(logits, legal)
        a_tensor(got, right.shape, right.dtype)
        assert not got.isnan().any(), "the entropy is nan: 0 * log 0 is computed"
        for wrong, why in (
            (Categorical(logits=logits).entropy(), "the illegal actions are not masked"),
            (
                Categorical(logits=logits * legal).entropy(),
                "a logit of 0 does not mask an action: its probability is not 0",
            ),
            (-right, "the sign is wrong: an entropy is not negative"),
        ):
            assert torch.allclose(wrong, right) or not torch.allclose(got, wrong, atol=1e-5), why
        close(got, right)


def _entropy_gradient(f):
    logits, legal = _legal_batch()
    logits.requires_grad_()
    got = f(logits, legal)
    assert got.requires_grad, "the result has no graph"
    mine, theirs = (torch.autograd.grad(h.sum(), logits)[0] for h in (got, _entropy(logits, legal)))
    assert mine.isfinite().all(), (
        "the entropy is right, its gradient is nan: replace -inf before the multiplication"
    )
    close(mine, theirs, "the entropy is right, its gradient is not")


def _entropy_extremes(f):
    logits, legal = _legal_batch()
    right = _entropy(logits, legal)
    close(f(logits[:1], legal[:1]), right[:1], "wrong for a single row")
    close(f(logits[:, :1], legal[:, :1]), 0 * right, "wrong for a single action")
    for large in (1e6, -1e6):
        close(
            f(logits.masked_fill(~legal, large), legal),
            right,
            f"a logit of {large:.0e} of an illegal action changes the entropy",
        )
    for shift in (1e3, -1e3, -1e10):  # the last one is far below a mask of -1e9
        moved = logits.double() + shift
        error = 16 * torch.finfo(moved.dtype).eps * abs(shift)
        assert torch.allclose(f(moved, legal), _entropy(moved, legal), rtol=0, atol=error), (
            f"wrong if all logits are near {shift:.0f}: mask with -inf and use log_softmax"
        )
    sure = logits + 1e3 * (torch.arange(logits.shape[1]) == 0)  # column 0 is legal
    sure.requires_grad_()
    got = f(sure, legal)
    improbable = "wrong if the probability of a legal action rounds to 0: use log_softmax"
    close(got, _entropy(sure, legal).detach(), improbable)
    grad = torch.autograd.grad(got.sum(), sure)[0]
    assert grad.isfinite().all(), improbable


def _entropy_dtypes(f):
    logits, legal = _legal_batch()
    in_dtypes(lambda x: f(x, legal), lambda x: _entropy(x, legal), logits)
    nan_remains(f, logits, legal)  # the first action is legal


def check_legal_entropy(answer: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(logits, legal)`: the entropy of each row over its legal actions.

    Both have the shape (N, A), and each row has a legal action. The result has the shape (N,); its
    gradient is finite, and 0 for illegal actions.
    """
    tests = [_entropy_value, _entropy_gradient, _entropy_dtypes, _entropy_extremes]
    return verdict(leaves(answer, "logits", "legal"), tests)
