"""Checkers of the exercises of the chapter on reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
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
    gamma = between(6, 9) / 10  # none is exact in float32
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


# ---------------------------------------------------------------- n-step targets


def _steps(
    rewards: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    values: Tensor,
    gamma: float,
    power: int | None = None,
    at: int | None = None,
) -> Tensor:
    """Return n-step targets; `power` and `at` replace the power and column of the next value."""
    ended = terminated | truncated
    counts = F.pad((~ended).cumprod(1), (1, -1), value=1)
    last = counts.sum(1, keepdim=True) - 1
    powers = torch.tensor(gamma, dtype=rewards.dtype) ** torch.arange(rewards.shape[1] + 1)
    total = (rewards.masked_fill(counts == 0, 0) * powers[:-1]).sum(1)
    column = last if at is None else last * 0 + rewards.shape[1] + at
    value = values.gather(1, column).masked_fill(terminated.gather(1, last), 0).squeeze(1)
    return total + powers[last.squeeze(1) + 1 if power is None else power] * value


def _steps_batch() -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Return rows that continue, end early or late, each by both flags, and may end again."""
    steps = between(3, 5)
    terminated, truncated = torch.zeros(2, 8, steps, dtype=torch.bool)
    for row, flags, column in (
        (1, terminated, between(0, steps - 2)),
        (2, truncated, between(0, steps - 2)),
        (3, terminated, steps - 1),
        (4, truncated, steps - 1),
    ):
        flags[row, column] = True
    terminated[5, 0] = truncated[5, -1] = True  # another episode ends in the same row
    truncated[6, 0] = terminated[6, -1] = True
    terminated[7, 1] = truncated[7, 1] = True
    rewards, values = torch.rand(2, 8, steps) + 0.5
    order = torch.randperm(8)
    batch = [x[order] for x in (rewards, terminated, truncated, 4 * values)]
    return (*batch, between(6, 9) / 10)  # none is exact in float32


def _steps_value(f):
    for _ in range(4):
        rewards, terminated, truncated, values, gamma = batch = _steps_batch()
        got, right = f(*batch), _steps(*batch)
        a_tensor(got, right.shape, right.dtype)
        never, ended = terminated & False, terminated | truncated
        for wrong, why in (
            (_steps(rewards, never, never, values, gamma), "the ends of episodes are ignored"),
            (
                _steps(rewards, ended, truncated, values, gamma),
                "no next value is added to truncated rows",
            ),
            (
                _steps(rewards, never, ended, values, gamma),
                "a next value is added to terminated rows",
            ),
            (
                _steps(rewards, ended & terminated.any(1, True), truncated, values, gamma),
                "a termination after a truncation removes the next value: it belongs to another "
                "episode",
            ),
            (
                _steps(rewards, terminated & ~truncated, truncated, values, gamma),
                "a next value is added if both flags are true at one step: it is terminated",
            ),
            (_steps(*batch, power=1), "the next value is multiplied by gamma, whatever n is"),
            (
                _steps(*batch, power=rewards.shape[1]),
                "in rows that end early the power of gamma is too large: it is the number of "
                "summed rewards",
            ),
            (
                _steps(*batch, at=-1),
                "in rows that end early the next value is that of another episode",
            ),
            (_steps(*batch[:4], 1.0), "the discount is missing"),
        ):
            assert not torch.allclose(got, wrong, atol=1e-5), why
        close(got, right)


def _steps_edges(f):
    rewards, terminated, truncated, values, gamma = _steps_batch()
    right = _steps(rewards, terminated, truncated, values, gamma)
    after = F.pad((terminated | truncated).cumsum(1), (1, -1)) > 0
    dirty = values.masked_fill(terminated | after, torch.nan)
    close(
        f(rewards, terminated, truncated, dirty, gamma),
        right,
        "a value of nan after the end of an episode changes the target",
    )
    for same in (0.0, 1.0):
        close(
            f(rewards, terminated, truncated, values, same),
            _steps(rewards, terminated, truncated, values, same),
            f"wrong if gamma is {same:.0f}",
        )
    row = (~(terminated | truncated).any(1)).nonzero()[0, 0]
    hidden = values.clone()
    hidden[row, -1] = torch.nan
    got = a_tensor(f(rewards, terminated, truncated, hidden, gamma), right.shape)
    assert got[row].isnan(), "a value of nan that counts is hidden"
    one = [x[:, :1] for x in (rewards, terminated, truncated, values)]
    close(f(*one, gamma), _steps(*one, gamma), "wrong for n = 1")
    row = [x[:1] for x in (rewards, terminated, truncated, values)]
    close(f(*row, gamma), _steps(*row, gamma), "wrong for one transition")
    values.requires_grad_()
    got = a_tensor(f(rewards, terminated, truncated, values, gamma))
    assert not got.requires_grad, "the targets have a graph: compute them under no_grad"


def _steps_dtypes(f):
    rewards, terminated, truncated, values, gamma = _steps_batch()
    in_dtypes(
        lambda r, v: f(r, terminated, truncated, v, gamma),
        lambda r, v: _steps(r, terminated, truncated, v, gamma),
        rewards,
        values,
    )


def check_steps_target(answer: Callable[..., Tensor]) -> Verdict:
    """Check `answer(rewards, terminated, truncated, values, gamma)`: n-step targets.

    All four tensors have the shape (N, n); `values` are those of the state after each step. The
    result has the shape (N,) and no graph; values that do not count may be nan.
    """
    f = leaves(answer, "rewards", "terminated", "truncated", "values")
    return verdict(f, [_steps_value, _steps_edges, _steps_dtypes])
