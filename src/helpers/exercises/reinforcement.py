"""Checkers of the exercises of the chapter on reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, between, close, in_dtypes, leaves

# ---------------------------------------------------------------- double DQN


def _double(
    reward: Tensor, terminated: Tensor, online: Tensor, target: Tensor, gamma: float
) -> Tensor:
    value = target.gather(1, online.argmax(1, keepdim=True)).squeeze(1)
    return reward + gamma * value.masked_fill(terminated, 0)


def _double_batch() -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Return a batch in which the two networks choose different actions, with no equal values."""
    n, actions = between(5, 8), between(3, 5)
    below, above = torch.randint(2, (2, n, 1))
    online = torch.rand(n, actions).argsort(1) + 0.25 - 4 * below  # of both signs
    target = online.roll(1, 1) - 0.75 + 7 * above  # its largest value is at another action
    terminated = torch.arange(n) < between(2, 3)
    gamma = between(3, 9) / 10
    return torch.randn(n), terminated[torch.randperm(n)], online, target, gamma


def _double_value(f):
    for _ in range(4):
        reward, terminated, online, target, gamma = batch = _double_batch()
        got, right = f(*batch), _double(*batch)
        a_tensor(got, right.shape, right.dtype)
        for wrong, why in (
            (
                _double(reward, terminated, target, target, gamma),
                "the action is the one with the "
                "largest value of the target network: select it with the trained network",
            ),
            (
                _double(reward, terminated, online, online, gamma),
                "the value is that of the trained network: take it from the target network",
            ),
            (_double(reward, terminated, target, online, gamma), "the two networks are swapped"),
            (
                _double(reward, ~terminated, online, target, gamma),
                "terminated is inverted: no next value is added where it is true",
            ),
            (
                _double(reward, terminated & False, online, target, gamma),
                "a next value is added to terminated transitions",
            ),
            (_double(reward, terminated, online, target, 1.0), "gamma is ignored"),
        ):
            assert torch.allclose(wrong, right) or not torch.allclose(got, wrong, atol=1e-5), why
        close(got, right)


def _double_nan(f):
    reward, terminated, online, target, gamma = _double_batch()
    right = _double(reward, terminated, online, target, gamma)
    for junk in (torch.nan, torch.inf):
        dirty = [q.masked_fill(terminated[:, None], junk) for q in (online, target)]
        close(
            f(reward, terminated, *dirty, gamma),
            right,
            f"a next value of {junk} in a terminated row changes the target: 0 * {junk} is nan",
        )
    target = target.clone()
    row = (~terminated).nonzero()[0, 0]
    target[row] = torch.nan
    got = f(reward, terminated, online, target, gamma)
    assert got[row].isnan(), "a nan in a row that is not terminated is hidden"


def _double_single(f):
    reward, terminated, online, target, gamma = _double_batch()
    one = [t[:1] for t in (reward, terminated, online, target)]
    close(f(*one, gamma), _double(*one, gamma), "wrong for a single transition")


def _double_graph(f):
    reward, terminated, online, target, gamma = _double_batch()
    for q in (online, target):
        q.requires_grad_()
    got = a_tensor(f(reward, terminated, online, target, gamma))
    assert not got.requires_grad, "the targets have a graph: compute them under no_grad"


def _double_dtypes(f):
    reward, terminated, online, target, gamma = _double_batch()
    in_dtypes(
        lambda r, on, tar: f(r, terminated, on, tar, gamma),
        lambda r, on, tar: _double(r, terminated, on, tar, gamma),
        reward,
        online,
        target,
    )


def check_double_target(answer: Callable[..., Tensor]) -> Verdict:
    """Check `answer(reward, terminated, online, target, gamma)`: targets of double DQN.

    The action comes from `online`, its value from `target`, both of shape (N, A). The result has
    the shape (N,) and no graph; the Q-values of terminated rows may be nan or inf.
    """
    f = leaves(answer, "reward", "terminated", "online", "target")
    return verdict(f, [_double_value, _double_nan, _double_single, _double_graph, _double_dtypes])
