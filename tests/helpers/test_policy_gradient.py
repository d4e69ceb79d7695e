"""Test the helpers of `policy_gradient` against plain loops, and its checkers."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import (
    Categorical,
    Distribution,
    Normal,
    TanhTransform,
    TransformedDistribution,
)
from verdicts import expect

from helpers import policy_gradient as pg
from helpers.demos.reinforcement import Corridor
from helpers.exercises import policy_gradient as exercises

seeds = st.integers(0, 10**6)


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- returns and advantages


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(0, 7), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_discounted_returns_match_a_loop_over_episodes(seed, steps, gamma):
    rewards, ended = drawn(seed, steps, 2).double(), drawn(seed + 1, steps, 2) > 0.5
    got = pg.discounted_returns(rewards, ended, gamma)
    for t in range(steps):
        for n in range(2):
            total, factor = 0.0, 1.0
            for k in range(t, steps):
                total += factor * rewards[k, n].item()
                factor *= gamma
                if ended[k, n]:
                    break
            assert got[t, n].item() == pytest.approx(total, abs=1e-9)
    assert got.dtype == torch.float64
    for n in range(2):
        assert torch.equal(pg.discounted_returns(rewards[:, n], ended[:, n], gamma), got[:, n])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1000,), (1000, 2)])
def test_discounted_returns_keep_precision_in_half_dtypes(dtype, shape):
    ones = torch.ones(shape, dtype=dtype)
    returns = pg.discounted_returns(ones, torch.zeros(shape, dtype=torch.bool), 1.0)
    left = torch.arange(1000, 0, -1).to(dtype)
    for column in returns.view(1000, -1).T:
        assert torch.equal(column, left)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 7), st.sampled_from([0.0, 0.7, 1.0]), st.sampled_from([0.0, 0.9, 1.0]))
def test_generalized_advantages_match_the_definition(seed, steps, gamma, lam):
    rewards, values, after = drawn(seed, 3, steps).double()
    terminated, truncated = drawn(seed + 1, 2, steps) > 0.6
    got = pg.generalized_advantages(rewards, values, after, terminated, truncated, gamma, lam)
    delta = [
        (rewards[t] + (0 if terminated[t] else gamma * after[t]) - values[t]).item()
        for t in range(steps)
    ]
    for t in range(steps):
        total = 0.0
        for k in range(t, steps):
            total += (gamma * lam) ** (k - t) * delta[k]
            if terminated[k] or truncated[k]:
                break
        assert got[t].item() == pytest.approx(total, abs=1e-9)


def test_advantages_bootstrap_at_truncation_and_ignore_nan_at_the_end():
    one, yes, no = torch.ones(1, requires_grad=True), torch.tensor([True]), torch.tensor([False])
    cut = pg.generalized_advantages(one, 0 * one, 5 * one, no, yes, gamma=0.5)
    over = pg.generalized_advantages(one, 0 * one, torch.nan * one, yes, no, gamma=0.5)
    assert cut.tolist() == [3.5] and over.tolist() == [1.0]
    assert not cut.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_advantages_keep_precision_in_half_dtypes(dtype):
    rewards, values, after = drawn(0, 3, 64).to(dtype)
    values, after, no = 100 + values, 100 + after, torch.zeros(64, dtype=torch.bool)
    got = pg.generalized_advantages(rewards, values, after, no, no)
    wide = pg.generalized_advantages(rewards.double(), values.double(), after.double(), no, no)
    assert got.dtype == dtype
    torch.testing.assert_close(got, wide.to(dtype), rtol=1e-5 + torch.finfo(dtype).eps, atol=1e-3)


def test_advantages_have_the_widest_dtype_of_the_inputs():
    one, no = torch.ones(2), torch.zeros(2, dtype=torch.bool)
    assert pg.generalized_advantages(one.half(), one.half(), one, no, no).dtype == torch.float32
    assert pg.generalized_advantages(one, one.double(), one, no, no).dtype == torch.float64


def test_advantages_with_lambda_1_equal_returns_minus_values():
    rewards, values = drawn(0, 2, 6)
    ended = torch.arange(6) == 5
    after = torch.cat([values[1:], torch.zeros(1)])
    got = pg.generalized_advantages(rewards, values, after, ended, ~ended & ended, 0.9, 1.0)
    returns = pg.discounted_returns(rewards, ended, 0.9)
    torch.testing.assert_close(got + values, returns)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"rewards": torch.ones(3, dtype=torch.int64)}, TypeError, "floating-point tensor"),
        ({"ended": torch.zeros(3)}, TypeError, "expected a bool tensor for the end of an episode"),
        ({"ended": torch.zeros(2, dtype=torch.bool)}, ValueError, r"got \[\(3,\), \(2,\)\]"),
        ({"gamma": 1.5}, ValueError, "gamma must be from 0 to 1, got 1.5"),
        ({"gamma": math.nan}, ValueError, "gamma must be from 0 to 1, got nan"),
        ({"gamma": "0.9"}, TypeError, "gamma must be a number, got str"),
        ({"gamma": torch.rand(3)}, TypeError, r"number, got a tensor of shape \(3,\)"),
        ({"rewards": [1.0, 2.0, 3.0]}, TypeError, "floating-point tensor, got list"),
        ({"ended": [True] * 3}, TypeError, "bool tensor for the end of an episode, got list"),
        (
            {"rewards": torch.tensor(1.0), "ended": torch.tensor(True)},
            ValueError,
            "tensors of one shape",
        ),
    ],
)
def test_discounted_returns_rejects_invalid_arguments(change, error, says):
    good = {"rewards": torch.ones(3), "ended": torch.zeros(3, dtype=torch.bool), "gamma": 0.9}
    with pytest.raises(error, match=says):
        pg.discounted_returns(**(good | change))


def test_generalized_advantages_rejects_invalid_arguments():
    one, no = torch.ones(2), torch.zeros(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="lam must be from 0 to 1, got 2"):
        pg.generalized_advantages(one, one, one, no, no, lam=2)
    with pytest.raises(TypeError, match="expected a bool tensor"):
        pg.generalized_advantages(one, one, one, no, one)
    with pytest.raises(ValueError, match="tensors of one shape"):
        pg.generalized_advantages(one, one[None], one, no, no)


# ---------------------------------------------------------------- PPO


def clipped(r, a, clip):
    """Return the clipped objective by cases, as in figure 1 of the paper."""
    return min(r, 1 + clip) * a if a >= 0 else max(r, 1 - clip) * a


@settings(deadline=None, max_examples=60)
@given(seeds, st.integers(1, 6), st.sampled_from([0.1, 0.2, 0.5]))
def test_ppo_loss_and_gradient_match_each_case(seed, n, clip):
    new, old, advantages = drawn(seed, 3, n).double()
    new.requires_grad_()
    loss = pg.ppo_loss(new, old, advantages, clip)
    ratios = (new - old).exp().tolist()
    pairs = list(zip(ratios, advantages.tolist(), strict=True))
    assert loss.item() == pytest.approx(-sum(clipped(r, a, clip) for r, a in pairs) / n)
    (grad,) = torch.autograd.grad(loss, new)
    for got, (r, a) in zip(grad.tolist(), pairs, strict=True):
        flat = r > 1 + clip if a > 0 else r < 1 - clip
        assert got == pytest.approx(0 if flat else -r * a / n)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("advantage", [0.0, 2.0])
def test_ppo_gradient_is_0_if_the_clipped_ratio_overflows(dtype, advantage):
    new = torch.full((1,), 2000.0, dtype=dtype, requires_grad=True)
    loss = pg.ppo_loss(new, torch.zeros(1, dtype=dtype), torch.full_like(new.detach(), advantage))
    loss.backward()
    assert loss.item() == pytest.approx(-1.2 * advantage, rel=1e-3) and new.grad.tolist() == [0]


def test_ppo_loss_keeps_nan_and_an_infinite_loss():
    one, large = torch.ones(1), torch.full((1,), 2000.0)
    assert pg.ppo_loss(large, 0 * one, -one).item() == torch.inf
    assert pg.ppo_loss(torch.nan * one, one, one).isnan()
    assert pg.ppo_loss(one, one, torch.nan * one).isnan()


def test_ppo_gradient_at_ratio_1_equals_the_policy_gradient():
    logits = drawn(0, 5, 3).requires_grad_()
    action, advantages = torch.tensor([0, 1, 2, 1, 0]), drawn(1, 5)
    log_prob = Categorical(logits=logits).log_prob(action)
    ppo = pg.ppo_loss(log_prob, log_prob.detach(), advantages)
    plain = -(log_prob * advantages).mean()
    mine, theirs = (
        torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (ppo, plain)
    )
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(ppo, -advantages.mean())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((torch.ones(2, 1), torch.ones(2), torch.ones(2)), r"\[\(2, 1\), \(2,\), \(2,\)\]"),
        ((torch.ones(2), torch.ones(2, requires_grad=True), torch.ones(2)), "old_log_prob requ"),
        ((torch.ones(2), torch.ones(2), torch.ones(2, requires_grad=True)), "advantages requires"),
        ((torch.ones(2), torch.ones(2), torch.ones(2), 0), "clip must be positive, got 0"),
        ((torch.ones(2), torch.ones(2), torch.ones(2), math.nan), "clip must be positive, got nan"),
        ((torch.ones(2), torch.ones(2), torch.ones(2), None), "clip must be a number, got None"),
        ((torch.ones(2), torch.ones(2), torch.ones(2), torch.ones(2)), r"of shape \(2,\)"),
        ((torch.ones(0), torch.ones(0), torch.ones(0)), r"at least one sample, got shape \(0,\)"),
        ((torch.ones(2), [1.0, 1.0], torch.ones(2)), "floating-point tensor, got list"),
        ((torch.ones(2), torch.ones(2), torch.ones(2).long()), "floating-point .* torch.int64"),
    ],
)
def test_ppo_loss_rejects_invalid_arguments(arguments, says):
    with pytest.raises((TypeError, ValueError), match=says):
        pg.ppo_loss(*arguments)


# ---------------------------------------------------------------- sentences of the chapter


def test_entropy_bonus_has_no_gradient_at_a_clamped_log_std():
    log_std = torch.tensor([3.0, 0.0], requires_grad=True)
    entropy = Normal(torch.zeros(2), log_std.clamp(-5, 2).exp()).entropy().sum()
    assert torch.autograd.grad(entropy, log_std)[0].tolist() == [0, 1]


def test_kl_estimate_is_negative_by_rounding_only():
    log_ratio = torch.linspace(-1e-3, 1e-3, 10_001)
    each = log_ratio.exp() - 1 - log_ratio
    assert -1e-7 < each.min() < 0
    assert (log_ratio.double().exp() - 1 - log_ratio.double()).min() > -1e-15


def test_probs_of_only_zeros_raise():
    assert Categorical(torch.tensor([0.0, 2.0]), validate_args=True).probs.tolist() == [0, 1]
    with pytest.raises(ValueError, match="Expected parameter probs .* constraint Simplex"):
        Categorical(torch.zeros(2), validate_args=True)


def test_first_update_of_a_shared_backbone_prevents_the_second_backward():
    shared = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 4))
    hidden = shared(torch.eye(5))
    one, two = hidden.mean(), hidden.square().mean()
    one.backward(retain_graph=True)
    torch.optim.SGD(shared.parameters(), lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        two.backward()


def test_selection_leaves_out_padding_whose_loss_is_nan():
    loss, mask = torch.tensor([1.0, 3.0, torch.nan]), torch.tensor([True, True, False])
    assert loss[mask].mean() == 2 and (loss * mask).sum().isnan()


def test_state_changed_in_place_raises_in_backward():
    env, policy = Corridor(), nn.Linear(5, 2)
    log_prob = Categorical(logits=policy(env.reset())).log_prob(torch.tensor(1))
    env.step(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        log_prob.backward()


@pytest.mark.parametrize(("n", "d", "shape"), [(3, 3, (3, 3)), (4, 1, (4, 4)), (1, 3, (1, 3))])
def test_log_probs_and_advantages_broadcast_to_the_expected_shape(n, d, shape):
    log_prob = Normal(torch.zeros(n, d), 1.0).log_prob(torch.zeros(n, d))
    assert (log_prob * torch.ones(n)).shape == shape
    with pytest.raises(RuntimeError, match="must match"):
        Normal(torch.zeros(4, 3), 1.0).log_prob(torch.zeros(4, 3)) * torch.ones(4)


def test_categorical_rejects_invalid_parameters(monkeypatch):
    monkeypatch.setattr(Distribution, "_validate_args", True)  # torch.compile turns it off
    assert Categorical(torch.tensor([1.0, 3.0])).probs.tolist() == [0.25, 0.75]
    with pytest.raises(ValueError, match="Expected parameter probs .* constraint Simplex"):
        Categorical(torch.tensor([-1.0, 2.0, -3.0]))
    with pytest.raises(NotImplementedError):
        Categorical(logits=torch.zeros(2)).rsample()
    with pytest.raises(ValueError, match="nan"):
        Categorical(logits=torch.full((2,), -torch.inf))


def test_entropy_by_where_or_entr_has_nan_gradient_at_masked_action():
    legal = torch.tensor([True, True, False])
    for entropy in (
        lambda p: torch.special.entr(p).sum(),
        lambda p: -torch.where(legal, p * p.log(), 0).sum(),
    ):
        logits = torch.zeros(3, requires_grad=True)
        h = entropy(logits.masked_fill(~legal, -torch.inf).softmax(0))
        assert h.item() == pytest.approx(math.log(2))
        assert torch.autograd.grad(h, logits)[0].isnan().any()


def test_squashed_normal_at_1_requires_the_cached_sample():
    edge = torch.ones(1)
    plain = TransformedDistribution(Normal(torch.tensor([20.0]), 1.0), TanhTransform())
    cached = TransformedDistribution(Normal(torch.tensor([20.0]), 1.0), TanhTransform(cache_size=1))
    assert not plain.log_prob(edge).isfinite()
    sample = cached.sample()
    assert sample.item() == 1 and cached.log_prob(sample).isfinite()


def test_dropout_changes_the_ratio_before_the_first_step():
    torch.manual_seed(0)
    policy, state = nn.Sequential(nn.Linear(5, 64), nn.Dropout(), nn.Linear(64, 2)), torch.eye(5)
    for active in (True, False):
        old, new = (policy.train(active)(state).log_softmax(1) for _ in range(2))
        assert torch.equal(old, new) != active


def test_nan_advantage_reaches_the_weights():
    policy = nn.Linear(5, 2)
    log_prob = policy(torch.eye(5)).log_softmax(1)[:1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        advantage = (one := torch.ones(1)) / one.std()
    pg.ppo_loss(log_prob, log_prob.detach(), advantage).backward()
    torch.optim.Adam(policy.parameters()).step()
    assert policy.bias.isnan().all()


# ---------------------------------------------------------------- exercises


def backwards(rewards, ended, gamma):
    total, found = 0.0, []
    for r, e in zip(rewards.flip(0), ended.flip(0), strict=True):
        total = r + gamma * total * (not e)
        found.insert(0, total)
    return torch.stack(found)


def by_matrix(rewards, ended, gamma):
    t = torch.arange(len(rewards))
    episode = ended.cumsum(0) - ended.long()
    near = (t >= t[:, None]) & (episode == episode[:, None])
    powers = torch.tensor(gamma, dtype=rewards.dtype) ** (t - t[:, None]).clamp(min=0)
    return (powers * near * rewards).sum(1)


def recursive(rewards, ended, gamma):
    if len(rewards) < 2:
        return rewards.clone()
    rest = recursive(rewards[1:], ended[1:], gamma)
    first = rewards[:1] if ended[0] else rewards[:1] + gamma * rest[:1]
    return torch.cat([first, rest])


def until_last_end(rewards, ended, gamma):
    kept = ended.flip(0).cumsum(0).flip(0) > 0
    return backwards(rewards, ended, gamma) * kept


def forwards(rewards, ended, gamma):
    total, found = 0.0, []
    for r, e in zip(rewards, ended, strict=True):
        total = r + gamma * total
        found.append(total)
        total = total * (not e)
    return torch.stack(found)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (backwards, None),
        (by_matrix, None),
        (recursive, None),
        (until_last_end, "not yet"),
        (forwards, "go from the last step to the first"),
        (lambda r, e, g: backwards(r, e & False, g), "run on into the next episode"),
        (lambda r, e, g: backwards(r, e.roll(1) & (torch.arange(len(e)) > 0), g), "one step too"),
        (lambda r, e, g: backwards(r, e, 1.0), "gamma is ignored"),
        (lambda r, e, g: r.flip(0).cumsum(0).flip(0), "gamma is ignored, and the sums run on"),
        (lambda r, e, g: backwards(r, e, g)[:, None], "expected shape"),
        (lambda r, e, g: backwards(r, e, g).double(), "expected torch.float32"),
        (lambda r, e, g: [float(x) for x in backwards(r, e, g)], "expected a tensor, got list"),
        (lambda r, e, g: backwards(r[1:], e[1:], g), "expected shape"),
        (lambda r, e, g: backwards(r.float(), e, g), "with float64 inputs"),
        (lambda r, e, g: backwards(r, e, torch.tensor(g).item()), "with float64 inputs"),
        (
            lambda r, e, g: backwards(r, e | (torch.arange(len(e)) == len(e) - 1), g).abs(),
            "returns are the rewards",
        ),
        (lambda r, e, g: r.zero_(), "rewards was changed"),
    ],
)
def test_check_returns_returns_the_expected_verdict(answer, says):
    for _ in range(3):
        result = exercises.check_returns(answer)
        if says == "expected shape":
            assert not result.passed
        else:
            expect(result, says)


def entropy(logits, legal):
    return Categorical(logits=logits.masked_fill(~legal, -torch.inf)).entropy()


def row_by_row(logits, legal):
    rows = zip(logits, legal, strict=True)
    return torch.stack([Categorical(logits=x[k]).entropy() for x, k in rows])


def through_probabilities(logits, legal):
    p = logits.masked_fill(~legal, -torch.inf).softmax(1)
    return -(p * p.clamp(min=1e-30).log()).sum(1)


def by_mean_logit(logits, legal):
    masked = logits.masked_fill(~legal, -torch.inf)
    p = masked.softmax(1)
    return masked.logsumexp(1) - (p * logits.masked_fill(~legal, 0)).sum(1)


def by_smallest_number(logits, legal):
    least = torch.finfo(logits.dtype).min
    return Categorical(logits=torch.where(legal, logits, least)).entropy()


def underflowing(logits, legal):
    p = logits.masked_fill(~legal, -torch.inf).softmax(1)
    return -(p * p.masked_fill(~legal, 1).log()).sum(1)


def by_xlogy(logits, legal):  # only the gradient is nan
    p = logits.masked_fill(~legal, -torch.inf).softmax(1)
    return -torch.special.xlogy(p, p.masked_fill(~legal, 1)).sum(1)


def unstable(logits, legal):
    p = logits.exp().masked_fill(~legal, 0)
    p = p / p.sum(1, keepdim=True)
    return -(p * p.masked_fill(~legal, 1).log()).sum(1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (entropy, None),
        (row_by_row, None),
        (through_probabilities, None),
        (by_mean_logit, None),
        (by_smallest_number, None),
        (underflowing, "probability of a legal action rounds to 0"),
        (by_xlogy, "probability of a legal action rounds to 0"),
        (lambda x, k: Categorical(logits=x).entropy(), "the illegal actions are not masked"),
        (lambda x, k: Categorical(logits=x * k).entropy(), "a logit of 0 does not mask"),
        (lambda x, k: -entropy(x, k), "the sign is wrong"),
        (lambda x, k: entropy(x, k).mean(), "expected shape"),
        (lambda x, k: entropy(x, k).detach(), "the result has no graph"),
        (lambda x, k: entropy(x, k) / math.log(2), "the result"),
        (
            lambda x, k: -((p := x.masked_fill(~k, -torch.inf).softmax(1)) * p.log()).sum(1),
            "the entropy is nan",
        ),
        (
            lambda x, k: torch.special.entr(x.masked_fill(~k, -torch.inf).softmax(1)).sum(1),
            "its gradient is nan",
        ),
        (
            lambda x, k: entropy(x.detach(), k) + 0 * x.sum(1),
            "the entropy is right, its gradient is not",
        ),
        (lambda x, k: entropy(x.where(k, x - 50), k | True), "a logit of 1e+06"),
        (unstable, "wrong if all logits are near"),
        (lambda x, k: entropy(x.masked_fill(~k, -1e9), k | True), "near -10000000000: mask"),
        (lambda x, k: entropy(x.float(), k).to(x.dtype), "with float64 inputs"),
    ],
)
def test_check_legal_entropy_returns_the_expected_verdict(answer, says):
    for _ in range(3):
        expect(exercises.check_legal_entropy(answer), says)
