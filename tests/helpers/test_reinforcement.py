"""Test the helpers of `reinforcement` against plain loops, and its checkers."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
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

from helpers import autograd
from helpers import reinforcement as rl
from helpers.demos.reinforcement import Corridor
from helpers.exercises import reinforcement as exercises

seeds = st.integers(0, 10**6)


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- replay


def test_replay_buffer_stores_detached_copies_and_drops_the_oldest():
    buffer, state = rl.ReplayBuffer(3), torch.zeros(2)
    weight = torch.ones((), requires_grad=True)
    for n in range(5):
        state += 1
        buffer.add(state, n, weight * n, n % 2 == 0)
    assert len(buffer) == 3
    states, actions, rewards, ends = buffer.sample(200, torch.Generator().manual_seed(0))
    assert states.shape == (200, 2) and actions.dtype == torch.int64 and ends.dtype == torch.bool
    assert set(actions.tolist()) == {2, 3, 4} and not rewards.requires_grad
    assert torch.equal(states[:, 0], actions + 1.0) and torch.equal(ends, actions % 2 == 0)


def test_replay_buffer_stores_float32_and_samples_by_generator():
    buffer = rl.ReplayBuffer(9)
    for n in range(4):
        buffer.add(torch.tensor(n), 0.5 * n)
    one, two = (buffer.sample(6, torch.Generator().manual_seed(3)) for _ in range(2))
    assert one[1].dtype == torch.float32 and torch.equal(one[1], 0.5 * one[0])
    assert all(map(torch.equal, one, two))


def test_replay_buffer_rejects_invalid_arguments():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        rl.ReplayBuffer(0)
    buffer = rl.ReplayBuffer(2)
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.sample(1)
    buffer.add(torch.zeros(2), 1.0)
    with pytest.raises(ValueError, match="expected 2 fields, got 1"):
        buffer.add(torch.zeros(2))
    with pytest.raises(ValueError, match=r"field 0: expected shape \(2,\), got \(3,\)"):
        buffer.add(torch.zeros(3), 1.0)
    assert len(buffer) == 1
    for size, error in ((-1, ValueError), (2.0, TypeError)):
        with pytest.raises(error, match="size must be"):
            buffer.sample(size)
    with pytest.raises(TypeError, match="capacity must be an int, got float"):
        rl.ReplayBuffer(2.5)
    with pytest.raises(ValueError, match="at least one field, got none"):
        rl.ReplayBuffer(2).add()
    for value in (None, "a", [torch.zeros(2), 1]):
        with pytest.raises(TypeError, match="field 1: expected a tensor or numbers, got"):
            buffer.add(torch.zeros(2), value)


@pytest.mark.parametrize(
    ("first", "second"), [(0, 0.5), (True, 2), (torch.tensor(1, dtype=torch.uint8), 300), (1.0, 1j)]
)
def test_replay_buffer_rejects_values_outside_the_stored_dtype(first, second):
    buffer = rl.ReplayBuffer(2)
    buffer.add(first)
    with pytest.raises(TypeError, match="field 0: expected torch.* got torch"):
        buffer.add(second)
    assert len(buffer) == 1


@pytest.mark.parametrize(
    ("first", "second"), [(0.5, 2), (0.5, torch.tensor(0.25).double()), (3, True)]
)
def test_replay_buffer_converts_values_to_the_stored_dtype(first, second):
    buffer = rl.ReplayBuffer(2)
    buffer.add(first)
    buffer.add(second)
    (got,) = buffer.sample(50, torch.Generator().manual_seed(0))
    assert set(got.tolist()) == {first, float(second)}


# ---------------------------------------------------------------- returns and advantages


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(0, 7), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_discounted_returns_match_a_loop_over_episodes(seed, steps, gamma):
    rewards, ended = drawn(seed, steps, 2).double(), drawn(seed + 1, steps, 2) > 0.5
    got = rl.discounted_returns(rewards, ended, gamma)
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
        assert torch.equal(rl.discounted_returns(rewards[:, n], ended[:, n], gamma), got[:, n])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1000,), (1000, 2)])
def test_discounted_returns_keep_precision_in_half_dtypes(dtype, shape):
    ones = torch.ones(shape, dtype=dtype)
    returns = rl.discounted_returns(ones, torch.zeros(shape, dtype=torch.bool), 1.0)
    left = torch.arange(1000, 0, -1).to(dtype)
    for column in returns.view(1000, -1).T:
        assert torch.equal(column, left)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 7), st.sampled_from([0.0, 0.7, 1.0]), st.sampled_from([0.0, 0.9, 1.0]))
def test_generalized_advantages_match_the_definition(seed, steps, gamma, lam):
    rewards, values, after = drawn(seed, 3, steps).double()
    terminated, truncated = drawn(seed + 1, 2, steps) > 0.6
    got = rl.generalized_advantages(rewards, values, after, terminated, truncated, gamma, lam)
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
    cut = rl.generalized_advantages(one, 0 * one, 5 * one, no, yes, gamma=0.5)
    over = rl.generalized_advantages(one, 0 * one, torch.nan * one, yes, no, gamma=0.5)
    assert cut.tolist() == [3.5] and over.tolist() == [1.0]
    assert not cut.requires_grad


def test_advantages_with_lambda_1_equal_returns_minus_values():
    rewards, values = drawn(0, 2, 6)
    ended = torch.arange(6) == 5
    after = torch.cat([values[1:], torch.zeros(1)])
    got = rl.generalized_advantages(rewards, values, after, ended, ~ended & ended, 0.9, 1.0)
    returns = rl.discounted_returns(rewards, ended, 0.9)
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
        rl.discounted_returns(**(good | change))


def test_generalized_advantages_rejects_invalid_arguments():
    one, no = torch.ones(2), torch.zeros(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="lam must be from 0 to 1, got 2"):
        rl.generalized_advantages(one, one, one, no, no, lam=2)
    with pytest.raises(TypeError, match="expected a bool tensor"):
        rl.generalized_advantages(one, one, one, no, one)
    with pytest.raises(ValueError, match="tensors of one shape"):
        rl.generalized_advantages(one, one[None], one, no, no)


# ---------------------------------------------------------------- PPO


def clipped(r, a, clip):
    """Return the clipped objective by cases, as in figure 1 of the paper."""
    return min(r, 1 + clip) * a if a >= 0 else max(r, 1 - clip) * a


@settings(deadline=None, max_examples=60)
@given(seeds, st.integers(1, 6), st.sampled_from([0.1, 0.2, 0.5]))
def test_ppo_loss_and_gradient_match_each_case(seed, n, clip):
    new, old, advantages = drawn(seed, 3, n).double()
    new.requires_grad_()
    loss = rl.ppo_loss(new, old, advantages, clip)
    ratios = (new - old).exp().tolist()
    pairs = list(zip(ratios, advantages.tolist(), strict=True))
    assert loss.item() == pytest.approx(-sum(clipped(r, a, clip) for r, a in pairs) / n)
    (grad,) = torch.autograd.grad(loss, new)
    for got, (r, a) in zip(grad.tolist(), pairs, strict=True):
        flat = r > 1 + clip if a > 0 else r < 1 - clip
        assert got == pytest.approx(0 if flat else -r * a / n)


def test_ppo_gradient_at_ratio_1_equals_the_policy_gradient():
    logits = drawn(0, 5, 3).requires_grad_()
    action, advantages = torch.tensor([0, 1, 2, 1, 0]), drawn(1, 5)
    log_prob = Categorical(logits=logits).log_prob(action)
    ppo = rl.ppo_loss(log_prob, log_prob.detach(), advantages)
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
        ((torch.ones(0), torch.ones(0), torch.ones(0)), r"at least one sample, got shape \(0,\)"),
        ((torch.ones(2), [1.0, 1.0], torch.ones(2)), "floating-point tensor, got list"),
        ((torch.ones(2), torch.ones(2), torch.ones(2).long()), "floating-point .* torch.int64"),
    ],
)
def test_ppo_loss_rejects_invalid_arguments(arguments, says):
    with pytest.raises((TypeError, ValueError), match=says):
        rl.ppo_loss(*arguments)


# ---------------------------------------------------------------- soft update


@settings(deadline=None, max_examples=20)
@given(seeds, st.sampled_from([0.0, 0.005, 0.3, 1.0]))
def test_soft_update_matches_the_formula(seed, tau):
    torch.manual_seed(seed)
    online = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    target = copy.deepcopy(online)
    online(torch.randn(8, 2))
    for p in online.parameters():
        p.data.normal_()
    before, kept = copy.deepcopy(target), copy.deepcopy(online)
    rl.soft_update(target, online, tau)
    for a, b, c in zip(target.parameters(), before.parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(a, (1 - tau) * b + tau * c)
        assert a.requires_grad and a.grad is None
    for (name, a), (_, b) in zip(target.named_buffers(), online.named_buffers(), strict=True):
        assert torch.equal(a, b), name
    for a, b in zip(online.state_dict().values(), kept.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_soft_update_rejects_invalid_arguments():
    one, other = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="tau must be from 0 to 1, got -1"):
        rl.soft_update(one, copy.deepcopy(one), -1)
    shared = nn.Linear(2, 2)
    shared.load_state_dict(one.state_dict(), assign=True)
    for same in (one, copy.copy(one), shared):
        with pytest.raises(ValueError, match="share the parameter weight: use copy.deepcopy"):
            rl.soft_update(one, same, 0.1)
    with pytest.raises(ValueError, match=r"differ in \['0.bias', '0.weight', 'bias', 'weight'\]"):
        rl.soft_update(one, other, 0.1)


def test_soft_update_requires_modules_of_equal_shapes_and_dtypes():
    wide = nn.Linear(2, 3)
    with pytest.raises(TypeError, match="expected two modules, got OrderedDict"):
        rl.soft_update(wide, wide.state_dict(), 0.1)
    for other in (nn.Linear(2, 1), nn.Linear(2, 3).double()):  # (1, 2) broadcasts to (3, 2)
        with pytest.raises(ValueError, match=r"weight: expected \(\(\d, 2\), torch.float\d\d\)"):
            rl.soft_update(wide, other, 0.1)


def test_failed_soft_update_changes_nothing():
    target = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    online = nn.Sequential(nn.Linear(2, 2), target[1])
    before = target[0].weight.clone()
    with pytest.raises(ValueError, match="share the parameter 1.weight"):
        rl.soft_update(target, online, 0.5)
    assert torch.equal(target[0].weight, before)


# ---------------------------------------------------------------- the environment


def test_corridor_terminates_at_its_end_and_truncates_at_its_limit():
    env = Corridor(4, limit=5)
    state = env.reset()
    assert state.tolist() == [1.0, 0.0, 0.0, 0.0]
    steps = [env.step(1) for _ in range(3)]
    assert [s[1:] for s in steps] == [(0.0, False, False)] * 2 + [(1.0, True, False)]
    assert all(s[0] is state for s in steps) and state.tolist() == [0.0, 0.0, 0.0, 1.0]
    env.reset()
    assert [env.step(0)[1:] for _ in range(5)] == [(0.0, False, False)] * 4 + [(0.0, False, True)]
    assert env.state.argmax() == 0
    with pytest.raises(ValueError, match="length must be at least 2, got 1"):
        Corridor(1)


def test_corridor_rejects_invalid_arguments():
    for arguments, says in (
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"slip": 1.5}, "slip must be from 0 to 1, got 1.5"),
    ):
        with pytest.raises(ValueError, match=says):
            Corridor(**arguments)
    env = Corridor(2)
    for _ in range(2):  # before the first episode, and after it
        with pytest.raises(RuntimeError, match=r"has ended or was not started: call reset\(\)"):
            env.step(1)
        env.reset()
        for action in (2, -1, None):
            with pytest.raises(ValueError, match=f"expected the action 0 or 1, got {action}"):
                env.step(action)
        assert env.step(1)[2]


def test_corridor_end_at_the_limit_counts_as_terminated():
    env = Corridor(3, limit=2)
    env.reset()
    env.step(1)
    assert env.step(1)[1:] == (1.0, True, False)


def test_slips_depend_on_the_seed_and_not_the_global_generator():
    def path(seed):
        env = Corridor(9, slip=0.5)
        env.reset(seed)
        return [env.step(1)[0].argmax().item() for _ in range(8)]

    before = torch.get_rng_state()
    assert path(0) == path(0) != path(1)
    assert torch.equal(torch.get_rng_state(), before)


# ---------------------------------------------------------------- sentences of the chapter


def test_list_or_sum_of_tensors_keeps_all_graphs():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    for collect in (list.append, lambda history, value: history.__iadd__([history.pop() + value])):
        history = [torch.zeros(1)]
        with autograd.watch_saved() as alive:
            for _ in range(20):
                collect(history, net(torch.ones(3)))
        assert alive.count() >= 20


def test_state_changed_in_place_raises_in_backward():
    env, policy = Corridor(), nn.Linear(5, 2)
    log_prob = Categorical(logits=policy(env.reset())).log_prob(torch.tensor(1))
    env.step(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        log_prob.backward()


def test_losses_warn_about_broadcasting_unlike_a_formula():
    wide, flat = torch.zeros(4, 1), torch.zeros(4)
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning, match="target size"):
            loss(wide, flat)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (wide - flat).square().shape == (4, 4)


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


def test_std_of_one_sample_is_nan_and_invert_rejects_floats():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.tensor([3.0]).std().isnan()
        assert eval("~True") == -2
    with pytest.raises(TypeError, match="integer and Boolean"):
        _ = ~torch.zeros(2)


def test_in_place_update_outside_no_grad_raises_or_grows_the_graph():
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used"):
        layer.weight.lerp_(torch.zeros(2, 2), 0.1)
    frozen = copy.deepcopy(layer).requires_grad_(False)
    updates = []
    for _ in range(3):
        frozen.weight.lerp_(layer.weight, 0.1)
        updates.append(frozen.weight.grad_fn)
    assert updates[2].next_functions[0][0] is updates[1]  # the graph grows
    assert updates[1].next_functions[0][0] is updates[0]


def test_load_state_dict_with_assign_shares_memory():
    q = nn.Linear(2, 2)
    copied, assigned = copy.deepcopy(q), copy.deepcopy(q)
    copied.load_state_dict(q.state_dict())
    assigned.load_state_dict(q.state_dict(), assign=True)
    with torch.no_grad():
        q.weight += 1
    assert torch.equal(assigned.weight, q.weight) and not torch.equal(copied.weight, q.weight)


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
    rl.ppo_loss(log_prob, log_prob.detach(), advantage).backward()
    torch.optim.Adam(policy.parameters()).step()
    assert policy.bias.isnan().all()


# ---------------------------------------------------------------- exercises


def double(reward, terminated, online, target, gamma, pick=None):
    best = (online if pick is None else pick).argmax(1)
    value = target[torch.arange(len(target)), best]
    return torch.where(terminated, reward, reward + gamma * value).detach()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (double, None),
        (lambda r, d, q, t, g: double(r, d, q, t, g, pick=t), "largest value of the target"),
        (lambda r, d, q, t, g: double(r, d, q, q, g), "take it from the target network"),
        (lambda r, d, q, t, g: double(r, d, t, q, g), "the two networks are swapped"),
        (lambda r, d, q, t, g: double(r, ~d, q, t, g), "terminated is inverted"),
        (lambda r, d, q, t, g: double(r, d & False, q, t, g), "added to terminated transitions"),
        (lambda r, d, q, t, g: double(r, d, q, t, 1), "gamma is ignored"),
        (lambda r, d, q, t, g: double(r, d, q, t, g)[:, None], "expected shape"),
        (lambda r, d, q, t, g: double(r, d, q, t, g).tolist(), "expected a tensor, got list"),
        (
            lambda r, d, q, t, g: (
                r + g * t.gather(1, q.argmax(1, keepdim=True)).squeeze(1).detach() * ~d
            ),
            "0 * nan is nan",
        ),
        (
            lambda r, d, q, t, g: double(r, d, q.nan_to_num(), t.nan_to_num(), g),
            "a nan in a row that is not terminated is hidden",
        ),
        (
            lambda r, d, q, t, g: (
                r + g * t.gather(1, q.argmax(1, keepdim=True)).squeeze(1).masked_fill(d, 0)
            ),
            "the targets have a graph",
        ),
        (lambda r, d, q, t, g: double(r, d, q, torch.min(q, t), g), "not yet"),
        (lambda r, d, q, t, g: double(r, d, q, torch.max(q, t), g), "not yet"),
        (lambda r, d, q, t, g: double(r, d, q, t, g, pick=q.abs()), "not yet"),
        (lambda r, d, q, t, g: double(r, d, q, t, 0.9), "the result at"),
    ],
)
def test_check_double_target_returns_the_expected_verdict(answer, says):
    for _ in range(4 if says != "the result at" else 0):
        expect(exercises.check_double_target(answer), says)
    if says == "the result at":  # a gamma of its own is right once in a while
        assert not all(exercises.check_double_target(answer).passed for _ in range(3))


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


def test_replay_buffer_filled_in_inference_mode_accepts_more():
    memory = rl.ReplayBuffer(2)
    with torch.inference_mode():
        memory.add(torch.zeros(2), 1.0)
    memory.add(torch.ones(2), 2.0)
    states, rewards = memory.sample(9, torch.Generator().manual_seed(0))
    assert rewards.unique().tolist() == [1, 2] and torch.equal(states[:, 0] + 1, rewards)
    assert nn.Linear(2, 1)(states).requires_grad
