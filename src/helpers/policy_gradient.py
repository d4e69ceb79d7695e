"""Helpers of the chapter on policy gradients: returns, advantages, the PPO loss.

Source: Sutton and Barto, "Reinforcement Learning: An Introduction", second edition,
http://incompleteideas.net/book/the-book-2nd.html
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.checks import fraction, number


def discounted_returns(rewards: Tensor, ended: Tensor, gamma: float) -> Tensor:
    """Return the discounted sum of the rewards from each step to the end of its episode.

        returns[t] = rewards[t] + gamma * returns[t + 1], or rewards[t] if the episode ended at t

    Args:
        rewards: floating point, shape (T,) or (T, N) for N environments.
        ended: bool, the same shape: whether step t was the last one of its episode.
        gamma: discount factor from 0 to 1.

    Returns:
        A tensor of the shape, dtype and device of `rewards`. After the last step nothing is added.
        The sums are computed at least in float32.

    Raises:
        TypeError: `rewards` is not a floating-point tensor, or `ended` is not a bool tensor.
        ValueError: the shapes differ, or `gamma` is outside [0, 1].
    """
    _check([rewards], [ended])
    fraction("gamma", gamma)
    wide = torch.promote_types(rewards.dtype, torch.float32)
    returns, total = torch.empty_like(rewards), rewards.new_zeros(rewards.shape[1:], dtype=wide)
    for t in reversed(range(len(rewards))):
        total = rewards[t] + gamma * total.masked_fill(ended[t], 0)
        returns[t] = total
    return returns


@torch.no_grad()
def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> Tensor:
    """Return generalized advantage estimates, without a graph.

        delta[t] = rewards[t] + gamma * next_values[t] * ~terminated[t] - values[t]
        advantages[t] = delta[t] + gamma * lam * ~(terminated | truncated)[t] * advantages[t + 1]

    Args:
        rewards: floating point, shape (T,) or (T, N) for N environments.
        values: the same shape, the critic's value of the state before each step.
        next_values: the same shape, its value of the state after each step; at the end of an
            episode that of the last state, not of the state after the reset.
        terminated: bool, the same shape: the task ended, and there is no next value.
        truncated: bool, the same shape: the episode was cut off, for example by a time limit.
        gamma: discount factor from 0 to 1.
        lam: 0 gives one-step advantages, 1 discounted returns (with the next value where an episode
            is cut off) minus values.

    Returns:
        A tensor of the shape of `rewards`. Add `values` for the targets of the critic.
        The sums are computed at least in float32.

    Raises:
        TypeError: the first three are not floating-point tensors, or the flags not bool tensors.
        ValueError: shapes differ, or `gamma` or `lam` is outside [0, 1].

    Source: Schulman et al. 2016, https://arxiv.org/abs/1506.02438
    """
    _check([rewards, values, next_values], [terminated, truncated])
    fraction("gamma", gamma)
    fraction("lam", lam)
    dtype = functools.reduce(torch.promote_types, (rewards.dtype, values.dtype, next_values.dtype))
    wide = torch.promote_types(dtype, torch.float32)
    delta = rewards.to(wide) + gamma * next_values.to(wide).masked_fill(terminated, 0) - values
    return discounted_returns(delta, terminated | truncated, gamma * lam).to(dtype)


def ppo_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor, clip: float = 0.2
) -> Tensor:
    """Return the clipped policy loss of PPO, to be minimized.

    With the ratio r = exp(log_prob - old_log_prob) of each sample and its advantage A,

        loss = -mean(min(r * A, clamp(r, 1 - clip, 1 + clip) * A)).

    Args:
        log_prob: shape (N,), of the stored actions under the current policy, with a graph.
        old_log_prob: shape (N,), of the same actions when they were sampled, without a graph.
        advantages: shape (N,), without a graph.
        clip: half-width of the interval in which the ratio is not clipped.

    Returns:
        A scalar, which is differentiable in `log_prob`. A clipped sample has the gradient 0, also
        if its ratio overflows.

    Raises:
        TypeError: one of the first three is not a floating-point tensor.
        ValueError: the shapes differ, there is no sample, `clip` is not positive, or `old_log_prob`
            or `advantages` requires a gradient.

    Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347
    """
    _floating(log_prob, old_log_prob, advantages)
    if not log_prob.shape == old_log_prob.shape == advantages.shape:
        shapes = [tuple(t.shape) for t in (log_prob, old_log_prob, advantages)]
        raise ValueError(f"expected three tensors of the same shape, got {shapes}")
    if not log_prob.numel():
        raise ValueError(f"expected at least one sample, got shape {tuple(log_prob.shape)}")
    if not number("clip", clip) > 0:
        raise ValueError(f"clip must be positive, got {clip}")
    for name, tensor in (("old_log_prob", old_log_prob), ("advantages", advantages)):
        if tensor.requires_grad:
            raise ValueError(f"{name} requires a gradient: compute it under no_grad, or detach it")
    log_ratio = log_prob - old_log_prob
    # above this limit the sample is clipped; an infinite ratio would give the gradient 0 * inf
    limited = log_ratio.clamp(max=1 + math.log1p(clip))
    ratio = torch.where(advantages >= 0, limited, log_ratio).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def _check(floats: Sequence[Tensor], flags: Sequence[Tensor]) -> None:
    _floating(*floats)
    for flag in flags:
        if not isinstance(flag, Tensor) or flag.dtype != torch.bool:
            raise TypeError(f"expected a bool tensor for the end of an episode, got {_kind(flag)}")
    shapes = [tuple(tensor.shape) for tensor in (*floats, *flags)]
    if len(set(shapes)) > 1 or not shapes[0]:
        raise ValueError(f"expected tensors of one shape (T,) or (T, N), got {shapes}")


def _floating(*tensors: Tensor) -> None:
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise TypeError(f"expected a floating-point tensor, got {_kind(tensor)}")


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
