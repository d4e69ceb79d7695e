"""Test the helpers of `reinforcement` against plain loops, and its checkers."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
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


def test_replay_buffer_copies_arrays_that_are_flipped_or_read_only():
    buffer, frame = rl.ReplayBuffer(2), np.arange(4.0)
    buffer.add(frame[::-1])
    frame.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.add(frame)
    assert [field.tolist() for field in buffer.fields] == [[[3, 2, 1, 0], [0, 1, 2, 3]]]


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
    for capacity in (2.5, True):
        with pytest.raises(TypeError, match="capacity must be an int, got (float|bool)"):
            rl.ReplayBuffer(capacity)
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


# ---------------------------------------------------------------- PPO


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
    with pytest.raises(TypeError, match=r"tau must be a number, got a tensor of shape \(2,\)"):
        rl.soft_update(one, copy.deepcopy(one), torch.rand(2))
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


def test_losses_warn_about_broadcasting_unlike_a_formula():
    wide, flat = torch.zeros(4, 1), torch.zeros(4)
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning, match="target size"):
            loss(wide, flat)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (wide - flat).square().shape == (4, 4)


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


def test_small_soft_updates_do_not_change_bfloat16_parameters():
    for dtype, changed in ((torch.bfloat16, False), (torch.float32, True)):
        online, target = (nn.Linear(1, 1, bias=False, dtype=dtype) for _ in range(2))
        nn.init.constant_(online.weight, 1.1)
        nn.init.ones_(target.weight)
        rl.soft_update(target, online, 0.005)
        assert (target.weight.item() != 1) == changed


def test_mean_over_actions_accepts_a_state_without_a_batch():
    one = torch.tensor([0.0, 2.0])
    assert (one - one.mean(-1, keepdim=True)).tolist() == [-1, 1]
    with pytest.raises(IndexError, match="Dimension out of range"):
        one.mean(1, keepdim=True)


def test_load_state_dict_with_assign_shares_memory():
    q = nn.Linear(2, 2)
    copied, assigned = copy.deepcopy(q), copy.deepcopy(q)
    copied.load_state_dict(q.state_dict())
    assigned.load_state_dict(q.state_dict(), assign=True)
    with torch.no_grad():
        q.weight += 1
    assert torch.equal(assigned.weight, q.weight) and not torch.equal(copied.weight, q.weight)


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
        (lambda r, d, q, t, g: double(r, d, q, t, torch.tensor(g).item()), "with float64"),
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
        (lambda r, d, q, t, g: double(r.clamp(-0.1, 0.1), d, q, t, g), "not yet"),
        (
            lambda r, d, q, t, g: torch.where(
                d, r, r + g * (F.one_hot(q.argmax(1), q.shape[1]) * t).sum(1)
            ).detach(),
            None,
        ),
        (lambda r, d, q, t, g: double(r, d, q, t, 0.9), "the result at"),
    ],
)
def test_check_double_target_returns_the_expected_verdict(answer, says):
    for _ in range(4 if says != "the result at" else 0):
        expect(exercises.check_double_target(answer), says)
    if says == "the result at":  # a gamma of its own is right once in a while
        assert not all(exercises.check_double_target(answer).passed for _ in range(3))


def steps(rewards, terminated, truncated, values, gamma, power=None, column=None):
    """Return n-step targets by a loop over each row."""
    targets = []
    for r, t, c, v in zip(rewards, terminated, truncated, values.detach(), strict=True):
        total = 0.0
        for k in range(len(r)):
            total = total + gamma**k * r[k]
            if t[k] or c[k]:
                break
        if not t[k]:
            factor = gamma ** (k + 1 if power is None else power(len(r)))
            total = total + factor * v[k if column is None else column]
        targets.append(total)
    return torch.stack(targets)


def by_columns(rewards, terminated, truncated, values, gamma, ends=None, powers=None):
    """Return n-step targets by the column of the first flag in each row."""
    ended, row = terminated | truncated, torch.arange(len(rewards))
    last = torch.where(ended.any(1), ended.int().argmax(1), ended.shape[1] - 1)
    step = torch.arange(ended.shape[1])
    base = torch.tensor(gamma, dtype=rewards.dtype)
    powers = powers or (lambda k: base**k)
    total = (rewards * powers(step) * (step <= last[:, None])).sum(1)
    value = values.detach()[row, last].masked_fill(terminated[row, last], 0)
    if ends is not None:
        value = value.masked_fill(ends, 0)
    return total + powers(last + 1) * value


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (steps, None),
        (
            lambda r, t, c, v, g: steps(r, t & False, c & False, v, g),
            "ends of episodes are ignored",
        ),
        (lambda r, t, c, v, g: steps(r, t | c, c, v, g), "no next value is added to truncated"),
        (lambda r, t, c, v, g: steps(r, t & False, t | c, v, g), "added to terminated rows"),
        (
            lambda r, t, c, v, g: steps(r, t, c, v, g, power=lambda n: 1),
            "multiplied by gamma, what",
        ),
        (lambda r, t, c, v, g: steps(r, t, c, v, g, power=lambda n: n), "the number of summed rew"),
        (lambda r, t, c, v, g: steps(r, t, c, v, g, column=-1), "that of another episode"),
        (lambda r, t, c, v, g: steps(r, t, c, v, 1.0), "the discount is missing"),
        (by_columns, None),
        (
            lambda r, t, c, v, g: by_columns(r, t, c, v, g, ends=t.any(1)),
            "a termination after a truncation removes the next value",
        ),
        (
            lambda r, t, c, v, g: steps(r, t & ~c, c, v, g),
            "added if both flags are true at one step",
        ),
        (lambda r, t, c, v, g: steps(r, t, c, v.nan_to_num(), g), "a value of nan that counts is"),
        (
            lambda r, t, c, v, g: by_columns(
                r, t, c, v, g, powers=lambda k: (k * torch.tensor(g).to(r).log()).exp()
            ),
            "wrong if gamma is 0",
        ),
        (lambda r, t, c, v, g: steps(r, t, c, v, g)[:, None], "expected shape"),
        (lambda r, t, c, v, g: steps(r, t, c, v.nan_to_num(), g) + 0 * v.sum(), "value of nan"),
        (
            lambda r, t, c, v, g: steps(r, t, c, v, g) + 0 * v.masked_fill(v.isnan(), 0).sum(),
            "the targets have a graph",
        ),
        (lambda r, t, c, v, g: steps(r, t, c, v, g) if r.shape[1] > 1 else r[:, 0], "for n = 1"),
        (
            lambda r, t, c, v, g: steps(r, t, c, v, g) if len(r) > 1 else r.sum(1),
            "wrong for one transition",
        ),
        (lambda r, t, c, v, g: steps(r.float(), t, c, v.float(), g).to(r.dtype), "with float64"),
        (lambda r, t, c, v, g: steps(r, t, c, v, torch.tensor(g).item()), "with float64"),
    ],
)
def test_check_steps_target_returns_the_expected_verdict(answer, says):
    for _ in range(3):
        expect(exercises.check_steps_target(answer), says)


def test_replay_buffer_filled_in_inference_mode_accepts_more():
    memory = rl.ReplayBuffer(2)
    with torch.inference_mode():
        memory.add(torch.zeros(2), 1.0)
    memory.add(torch.ones(2), 2.0)
    states, rewards = memory.sample(9, torch.Generator().manual_seed(0))
    assert rewards.unique().tolist() == [1, 2] and torch.equal(states[:, 0] + 1, rewards)
    assert nn.Linear(2, 1)(states).requires_grad
