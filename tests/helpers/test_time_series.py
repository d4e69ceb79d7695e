"""Test the helpers, demonstrations and checkers of `time_series`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import time_series as ts
from helpers.demos import time_series as demos
from helpers.exercises import time_series as exercises

seeds, sizes = st.integers(0, 10**6), st.integers(1, 6)
quick = settings(deadline=None, max_examples=40)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- windows


@given(sizes, sizes, st.integers(1, 3), st.integers(0, 9), st.sampled_from([None, 1, 2, 3]))
@quick
def test_windows_match_numpy(length, horizon, stride, more, features):
    steps = length + horizon + more
    series = torch.arange(steps * (features or 1)).view(steps, *[features] * bool(features))
    x, y = ts.windows(series, length, horizon, stride)
    view = np.lib.stride_tricks.sliding_window_view(series.numpy(), length + horizon, 0)
    pairs = torch.from_numpy(view.copy())[::stride]
    pairs = pairs if features is None else pairs.transpose(1, 2)
    assert torch.equal(torch.cat([x, y], dim=1), pairs)
    assert len(x) == (steps - length - horizon) // stride + 1
    assert x.data_ptr() == series.data_ptr()  # views
    assert y.untyped_storage().data_ptr() == series.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((torch.zeros(5), 4, 2), "needs 6 steps, the series has 5"),
        ((torch.zeros(5), 0), "length must be an int of at least 1, got 0"),
        ((torch.zeros(5), 2, 1.0), "horizon must be an int of at least 1, got 1.0"),
        ((torch.zeros(5), 2, 1, True), "stride must be an int of at least 1, got True"),
        ((torch.zeros(2, 5, 1), 2), r"\(T,\) or \(T, F\), got \(2, 5, 1\)"),
        ((torch.tensor(1.0), 2), r"\(T,\) or \(T, F\), got \(\)"),
    ],
)
def test_windows_rejects_invalid_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        ts.windows(*arguments)


@given(sizes, sizes, st.integers(0, 9), st.integers(0, 9))
@quick
def test_split_windows_returns_all_training_windows_without_leak(length, horizon, before, after):
    split = length + horizon + before
    steps = split + horizon + after
    train, test = ts.split_windows(steps, length, horizon, split)
    x, y = ts.windows(torch.arange(steps), length, horizon)
    targets = set(y[list(test)].flatten().tolist())
    leaks = [bool(targets & set(x[i].tolist() + y[i].tolist())) for i in range(len(x))]
    assert not any(leaks[i] for i in train) and min(targets) == split
    assert list(test) == [i for i in range(len(x)) if y[i, 0] >= split]
    assert list(train) == [i for i in range(len(x)) if y[i, -1] < split]
    assert test[0] - train[-1] == horizon
    assert len(x[train]) == len(train)  # a range is an index


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((20, 5, 2, 4), "split must be from length, 5, to steps, 20, got 4"),
        ((20, 5, 2, 21), "got 21"),
        ((20, 5, 2, 6), "no training window of 5 \\+ 2 steps fits"),
        ((20, 5, 2, 19), "no test window"),
        ((20, 5, 0, 10), "horizon must be an int"),
        ((20, 5, 2, 10.0), "split must be an int of at least 1, got 10.0"),
    ],
)
def test_split_windows_rejects_splits_without_a_window(arguments, words):
    with pytest.raises(ValueError, match=words):
        ts.split_windows(*arguments)


# ---------------------------------------------------------------- scaling


@given(seeds, st.integers(2, 9), st.sampled_from([(), (1,), (3,)]))
@quick
def test_standardizer_returns_mean_0_and_std_1(seed, steps, features):
    train = 5 + 3 * torch.randn(steps, *features, dtype=torch.float64, generator=seeded(seed))
    scale = ts.Standardizer(train)
    assert torch.allclose(scale.mean, train.mean(0)) and torch.allclose(scale.std, train.std(0))
    z = scale(train)
    assert torch.allclose(z.mean(0), torch.zeros_like(z[0]), atol=1e-9)
    assert torch.allclose(scale.undo(z), train)
    if features:
        assert torch.allclose(scale.undo(z[:, -1], feature=-1), train[:, -1])
        step = torch.ones(4, features[0], dtype=torch.float64)
        assert (scale.undo(step, feature=0) == scale.mean[0] + scale.std[0]).all()


def test_standardizer_ignores_missing_values():
    train = torch.tensor([[1.0, math.nan], [math.nan, 4.0], [3.0, 8.0]])
    scale = ts.Standardizer(train)
    assert torch.allclose(scale.mean, torch.tensor([2.0, 6.0]))
    assert torch.allclose(scale.std, torch.tensor([2.0, 8.0]).sqrt())
    assert scale(train).isnan().equal(train.isnan())


@pytest.mark.parametrize("value", [0.1, 0.3, 7.0, -1e-3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_standardizer_of_a_constant_has_exact_mean_and_std_1(value, dtype):
    train = torch.full((1001, 2), value, dtype=dtype)
    train[3, 1] = torch.nan
    scale = ts.Standardizer(train)
    assert (scale.mean == train[0]).all() and (scale.std == 1).all()


def test_statistics_do_not_overflow_in_float16():
    train = (10 * torch.randn(5000, generator=seeded(0)) + 200).half()
    scale = ts.Standardizer(train)
    assert scale.mean.dtype == scale.std.dtype == torch.float16
    assert abs(scale.mean - train.double().mean()) < 0.2
    assert abs(scale.std - train.double().std()) < 0.02
    error = torch.full((4000,), 10.0).half()
    assert ts.masked_mse(error, 0 * error) == 100
    assert ts.skill(*(torch.tensor([v, 0.0]).half() for v in (60000, -60000, 60000))) == 0


def test_standardizer_rejects_other_feature_counts():
    scale, single = ts.Standardizer(torch.randn(9, 3)), ts.Standardizer(torch.randn(9))
    for call in (scale, scale.undo):
        for shape in ((4, 1), (4, 2), ()):
            with pytest.raises(ValueError, match=r"expected shape \(..., 3\), got"):
                call(torch.zeros(shape))
    for owner, feature in ((single, 0), (scale, True), (scale, "a"), (scale, 1.0)):
        with pytest.raises(ValueError, match="the index of one of several features, got"):
            owner.undo(torch.zeros(4, 3), feature=feature)


def test_constant_feature_is_standardized_to_0():
    scale = ts.Standardizer(torch.full((5, 2), 7.0))
    assert (scale(torch.full((3, 2), 7.0)) == 0).all() and (scale.std == 1).all()


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (torch.zeros(3).long(), "floating-point tensor of shape .* got torch.int64"),
        (torch.zeros(2, 3, 4), r"of shape \(2, 3, 4\)"),
        (torch.tensor([1.0, 2.0, math.inf]), "finite or nan, got inf"),
        (torch.zeros(1, 2), r"needs 2 observed values, got \[1, 1\]"),
        (torch.tensor([[1.0, math.nan], [2.0, 1.0]]), r"got \[2, 1\]"),
    ],
)
def test_standardizer_requires_floats_and_two_values(train, words):
    with pytest.raises(ValueError, match=words):
        ts.Standardizer(train)


# ---------------------------------------------------------------- baselines and metrics


@given(seeds, st.integers(1, 5), st.integers(1, 9), st.integers(0, 3))
@quick
def test_persistence_repeats_the_last_season(seed, season, horizon, more):
    x = torch.randn(3, season + more, 2, generator=seeded(seed))
    got = ts.persistence(x, horizon, season)
    expected = x[:, -season:].repeat(1, horizon, 1)[:, :horizon]
    assert torch.equal(got, expected)


def test_persistence_requires_a_season_in_the_window():
    for x, season in ((torch.zeros(2, 3), 4), (torch.zeros(2, 3), 2.0), (torch.zeros(3), 1)):
        with pytest.raises(ValueError, match=f"season must be from 1 .* got {season}"):
            ts.persistence(x, 1, season)
    with pytest.raises(ValueError, match="horizon must be"):
        ts.persistence(torch.zeros(2, 3), 0)


@given(seeds)
@quick
def test_skill_equals_1_minus_the_ratio_of_mses(seed):
    prediction, target, naive = torch.randn(3, 4, 2, generator=seeded(seed))
    got = ts.skill(prediction, target, naive)
    ratio = F.mse_loss(prediction, target) / F.mse_loss(naive, target)
    assert math.isclose(got, 1 - ratio.item(), rel_tol=1e-4, abs_tol=1e-5)
    assert ts.skill(target, target, naive) == 1 and ts.skill(naive, target, naive) == 0


@given(seeds, st.integers(1, 3))
@quick
def test_mase_of_the_naive_training_forecast_is_1(seed, season):
    train = torch.randn(9, generator=seeded(seed))
    assert math.isclose(ts.mase(train[:-season], train[season:], train, season), 1, rel_tol=1e-6)
    scaled = ts.mase(10 * train[:-season], 10 * train[season:], 10 * train, season)
    assert math.isclose(scaled, 1, rel_tol=1e-5)  # MASE does not depend on the unit
    assert ts.mase(train, train, train) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: ts.skill(x, x[:, None], x), r"one shape, not empty, got \[\(4,\), \(4, 1\)"),
        (lambda x: ts.skill(x, x, x), "MSE of the baseline must be above 0, got 0.0"),
        (lambda x: ts.skill(x[:0], x[:0], x[:0]), "not empty"),
        (lambda x: ts.mase(x, x, x[:, None]), r"shape \(T,\), T above 1, got \(4, 1\)"),
        (lambda x: ts.mase(x, x, x, 4), r"T above 4, got \(4,\)"),
        (lambda x: ts.mase(x, x, 0 * x), "naive error on train must be above 0, got 0.0"),
        (lambda x: ts.best_lag(x, x, 4), r"T above 4, got \(4,\)"),
        (lambda x: ts.best_lag(x, x, -1), "most must be an int of at least 1, got -1"),
        (lambda x: ts.best_lag(x * math.nan, x, 2), "must not contain nan"),
        (lambda x: ts.mase(x, x, x / 0), "above 0, got nan"),
        (lambda x: ts.masked_mse(x, x[None]), "one shape"),
        (lambda x: ts.masked_mse(x.long(), x), "floating point, got torch.int64"),
    ],
)
def test_metrics_reject_invalid_arguments(call, words):
    with pytest.raises(ValueError, match=words):
        call(torch.arange(4.0))


def test_metrics_of_unsigned_integers_do_not_wrap():
    low, target, high = (torch.tensor(v, dtype=torch.uint8) for v in ([1, 2], [2, 3], [0, 1]))
    assert ts.skill(low, target, high) == 0.75
    assert ts.mase(low, target, torch.tensor([9, 8, 7], dtype=torch.uint8)) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ts.windows(x, 2),
        ts.Standardizer,
        ts.persistence,
        ts.forward_fill,
        lambda x: ts.skill(x, x, x),
        lambda x: ts.mase(torch.ones(3), torch.zeros(3), x),
        lambda x: ts.forecast(torch.sum, x, 2),
        lambda x: ts.cyclic(x, 24),
    ],
)
def test_arrays_and_lists_raise(call):
    for value, name in ((np.ones((3, 3)), "ndarray"), ([1.0, 2.0], "list")):
        with pytest.raises(TypeError, match=f"expected a tensor, got {name}"):
            call(value)


@given(seeds, st.integers(0, 4))
@quick
def test_best_lag_of_a_shifted_copy_equals_its_shift(seed, lag):
    series = demos.random_walk(60, generator=seeded(seed))
    assert ts.best_lag(series.roll(lag)[5:], series[5:]) == lag


# ---------------------------------------------------------------- missing values


@given(seeds, st.sampled_from([(1,), (5,), (3, 4), (2, 3, 2)]))
@quick
def test_masked_mse_and_gradient_match_the_observed_targets(seed, shape):
    prediction, target = torch.randn(2, *shape, dtype=torch.float64, generator=seeded(seed))
    missing = torch.rand(shape, generator=seeded(seed)) < 0.4
    prediction.requires_grad_()
    observed = (~missing).nonzero(as_tuple=True)
    right = (prediction[observed] - target[observed]).square().sum() / max(len(observed[0]), 1)
    got = ts.masked_mse(prediction, target.masked_fill(missing, torch.nan))
    assert got.dtype == torch.float64 and torch.allclose(got, right)
    mine, theirs = (torch.autograd.grad(loss, prediction)[0] for loss in (got, right))
    assert torch.allclose(mine, theirs) and (mine[missing] == 0).all()


def test_masked_mse_returns_nan_for_a_nan_prediction():
    prediction = torch.tensor([math.nan, 1.0], requires_grad=True)
    assert ts.masked_mse(prediction, torch.tensor([math.nan, 1.0])).isnan()


@given(seeds, st.integers(0, 9), st.sampled_from([(), (2,)]))
@quick
def test_forward_fill_matches_a_loop(seed, steps, features):
    series = torch.randn(steps, *features, generator=seeded(seed))
    series[torch.rand(series.shape, generator=seeded(seed)) < 0.5] = torch.nan
    expected = series.clone()
    for t in range(1, steps):
        expected[t] = torch.where(series[t].isnan(), expected[t - 1], series[t])
    before = series.clone()
    got = ts.forward_fill(series)
    assert torch.equal(got.nan_to_num(99), expected.nan_to_num(99))
    assert torch.equal(series.nan_to_num(99), before.nan_to_num(99))
    assert got.untyped_storage().data_ptr() != series.untyped_storage().data_ptr() or not steps


def test_forward_fill_rejects_batches():
    for shape in ((2, 3, 1), ()):
        with pytest.raises(ValueError, match=r"\(T,\) or \(T, F\), got"):
            ts.forward_fill(torch.zeros(shape))


# ---------------------------------------------------------------- forecasts and features


@given(seeds, st.integers(1, 4), st.integers(1, 9))
@quick
def test_forecast_matches_recursive_application(seed, length, steps):
    weight = torch.rand(length, 1, generator=seeded(seed))
    window = torch.randn(3, length, generator=seeded(seed))
    before = window.clone()
    for model in (lambda w: w @ weight, lambda w: (w @ weight).squeeze(1)):
        got = ts.forecast(model, window, steps)
        whole = torch.cat([window, got], dim=1)
        for t in range(steps):
            assert torch.allclose(whole[:, t : t + length] @ weight, whole[:, [t + length]])
    assert got.shape == (3, steps) and torch.equal(window, before)


def test_forecast_records_no_graph_and_rejects_wrong_shapes():
    model = nn.Linear(4, 1)
    assert not ts.forecast(model, torch.zeros(2, 4), 3).requires_grad
    with pytest.raises(ValueError, match=r"one value per window, \(2, 1\), got \(2, 3\)"):
        ts.forecast(nn.Linear(4, 3), torch.zeros(2, 4), 3)
    with pytest.raises(ValueError, match=r"shape \(N, L\), got \(4,\)"):
        ts.forecast(model, torch.zeros(4), 3)
    with pytest.raises(TypeError, match="must return a tensor, got tuple"):
        ts.forecast(nn.LSTM(4, 1), torch.zeros(2, 4), 3)
    with pytest.raises(ValueError, match="steps must be"):
        ts.forecast(model, torch.zeros(2, 4), 0)


@given(st.floats(1, 400), st.integers(-50, 50))
@quick
def test_cyclic_is_periodic_with_equal_steps(period, shift):
    t = torch.arange(5, dtype=torch.float64) + shift
    points = ts.cyclic(t, period)
    assert points.shape == (5, 2) and torch.allclose(points.norm(dim=1), torch.ones(5).double())
    assert torch.allclose(points, ts.cyclic(t + period, period), atol=1e-9)
    gaps = points.diff(dim=0).norm(dim=1)
    assert torch.allclose(gaps, gaps[0].expand(4), atol=1e-9)
    assert torch.allclose(points[:, 0], (2 * math.pi * t / period).sin())


def test_cyclic_accepts_integers_and_requires_a_positive_period():
    assert ts.cyclic(torch.arange(24), 24).dtype == torch.float32
    for period in (0, -1, math.nan, math.inf, "24"):
        with pytest.raises(ValueError, match="period must be above 0"):
            ts.cyclic(torch.zeros(1), period)
    with pytest.raises(TypeError, match="t must be real, got torch.complex64"):
        ts.cyclic(torch.zeros(1, dtype=torch.complex64), 24)


@given(st.integers(0, 2**24) | st.integers(0, 2 * 10**9), st.sampled_from([60, 3600, 86400]))
@quick
def test_cyclic_is_accurate_for_seconds_since_1970(seconds, period):
    angle = 2 * math.pi * (seconds % period) / period
    want = torch.tensor([[math.sin(angle), math.cos(angle)]])
    assert torch.allclose(ts.cyclic(torch.tensor([seconds]), period), want, atol=1e-6)
    if seconds < 2**24:
        assert torch.allclose(ts.cyclic(torch.tensor([float(seconds)]), period), want, atol=1e-6)


# ---------------------------------------------------------------- demonstrations


def test_demo_series_have_the_expected_statistics():
    walk = demos.random_walk(5000, generator=seeded(0))
    assert abs(walk.diff().mean()) < 0.05 and abs(walk.diff().std() - 1) < 0.05
    hours = demos.hourly(24 * 200, generator=seeded(0))
    days = hours.view(-1, 24).mean(0)
    wave = 20 + 5 * torch.sin(2 * math.pi * torch.arange(24) / 24)
    assert hours.shape == (4800,) and (days - wave).abs().max() < 0.5
    noise = (hours.view(-1, 24) - wave).flatten()
    fit = (noise[1:] * noise[:-1]).sum() / noise[:-1].square().sum()
    assert abs(fit - 0.9) < 0.03
    rising = demos.hourly(4800, trend=0.5, generator=seeded(0))
    assert torch.allclose(rising - hours, 0.5 * torch.arange(4800), atol=1e-2)


def test_figures_draw_the_given_values():
    lines = demos.draw_forecast(torch.arange(4.0), torch.arange(1.0, 5.0)).axes[0].lines
    assert [line.get_ydata().tolist() for line in lines] == [[1, 2, 3, 4], [0, 1, 2, 3]]
    axis = demos.draw_errors({"recursive": torch.ones(3), "direct": torch.zeros(3)}).axes[0]
    assert [line.get_label() for line in axis.lines] == ["recursive", "direct"]
    assert axis.lines[0].get_xdata().tolist() == [1, 2, 3]


# ---------------------------------------------------------------- exercises


def solve_windows(series, length, horizon, split, shift=0, end=0):
    starts = range(split - length - horizon + 1 + end)
    x = torch.stack([series[i : i + length] for i in starts])
    first = length + shift
    return x, torch.stack([series[i + first : i + first + horizon] for i in starts])


def time_last(series, length, horizon, split):
    pairs = series[:split].unfold(0, length + horizon, 1)
    return pairs[..., :length], pairs[..., length:]


def reshaped(series, length, horizon, split):
    x, y = time_last(series, length, horizon, split)
    if series.dim() == 1:
        return x, y
    return x.reshape(len(x), length, -1), y.reshape(len(y), horizon, -1)


def shuffled(series, length, horizon, split):
    x, y = solve_windows(series, length, horizon, split)
    order = torch.randperm(len(x))
    return x[order], y[order]


def by_list(series, length, horizon, split):
    x, y = ts.windows(series, length, horizon)
    return x[: split - length], y[: split - length]


def as_double(series, length, horizon, split):
    return tuple(part.double() for part in solve_windows(series, length, horizon, split))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (solve_windows, None),
        (lambda *a: list(solve_windows(*a)), None),
        (lambda *a: solve_windows(*a, shift=-1), "the first target is the last input"),
        (lambda *a: solve_windows(*a, end=-1), "range() excludes its end"),
        (by_list, "the last targets are steps of the test part"),
        (lambda *a: solve_windows(a[0], a[1], a[2], a[3] - a[2]), "at the end of the training"),
        (lambda *a: solve_windows(a[0], a[1], a[2], len(a[0])), "steps of the test part"),
        (time_last, "time is the last dimension"),
        (reshaped, "inputs at ["),
        (shuffled, "the random state of torch"),
        (lambda *a: solve_windows(*a)[0], "expected two tensors"),
        (lambda *a: solve_windows(*a)[::-1], "has"),
        (lambda *a: (solve_windows(*a)[0], solve_windows(*a)[1][:-1]), "as many targets as inputs"),
        (as_double, "inputs: expected torch.float32"),
        (
            lambda s, length, *a: [part[1:] for part in solve_windows(s, length, *a)],
            "expected shape",
        ),
        (lambda *a: [part[::2] for part in solve_windows(*a)], "expected shape"),
        (lambda *a: [part[:0] for part in solve_windows(*a)], "got (0, "),
        (lambda *a: (solve_windows(*a)[0], solve_windows(*a)[1][:, :0]), "targets: expected shape"),
        (lambda *a: (torch.tensor(1.0), torch.tensor(2.0)), "expected 2 dimensions, got shape ()"),
        (lambda *a: (torch.zeros(5), torch.ones(5)), "expected 2 dimensions, got shape (5,)"),
        (lambda s, *a: solve_windows(s[:, None] if s.dim() == 1 else s, *a), "shape"),
    ],
)
def test_check_training_windows_returns_the_expected_verdict(answer, says):
    if says == "has":
        result = exercises.check_training_windows(answer)
        assert not result.passed
    else:
        expect(exercises.check_training_windows(answer), says)


def solve_mse(prediction, target, left_out=True, before=True):
    observed = ~target.isnan()
    error = (prediction - (torch.where(observed, target, 0.0) if before else target)).square()
    count = observed.sum(1)
    each = error.where(observed, 0.0).sum(1) / count.clamp(min=1)
    return each.sum() / ((count > 0).sum().clamp(min=1) if left_out else len(each))


def hides_broken(prediction, target):
    return solve_mse(prediction.nan_to_num(), target)


def hides_infinite(prediction, target):
    return solve_mse(prediction, target.masked_fill(target.isinf(), torch.nan))


def over_steps(prediction, target):
    return ts.masked_mse(prediction, target)


def row_means(prediction, target):
    return (prediction - target).square().nanmean(1).nanmean()


def zero_is_missing(prediction, target):
    return solve_mse(prediction, target.masked_fill(target == 0, torch.nan))


def stops_at_an_empty_row(prediction, target):
    empty = target.isnan().all(1).tolist()
    end = empty.index(True) if True in empty else len(empty)
    return solve_mse(prediction[:end], target[:end])


def one_row_is_empty(prediction, target):
    rows = len(target) - bool(target.isnan().all(1).any())
    return solve_mse(prediction, target, left_out=False) * len(target) / max(rows, 1)


def leaves_out_broken_rows(prediction, target):
    whole = ~prediction.isnan().any(1)
    whole = whole if whole.any() else ~whole
    return solve_mse(prediction[whole], target[whole])


def one_by_one(prediction, target):
    each = [F.mse_loss(p[~t.isnan()], t[~t.isnan()])
            for p, t in zip(prediction, target, strict=True) if not t.isnan().all()]  # fmt: skip
    return torch.stack(each).mean() if each else prediction[:0].sum()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (solve_mse, None),
        (one_by_one, None),
        (
            lambda p, t: 0 * p.sum() if t.isnan().all() else solve_mse(p, t),
            "without an observed target it is nan, not 0",
        ),
        (F.mse_loss, "nan * 0 and 0 / 0 are nan"),
        (lambda p, t: (p - t).square().nansum(1).div((~t.isnan()).sum(1)).mean(), "are nan"),
        (lambda p, t: (p - t.nan_to_num()).square().mean(), "missing targets count as 0"),
        (lambda p, t: (p - t).square().nansum() / t.numel(), "divided by all"),
        (over_steps, "not each series"),
        (lambda p, t: solve_mse(p, t, left_out=False), "counts as one with an error of 0"),
        (lambda p, t: solve_mse(p, t, before=False), "its gradient is nan"),
        (row_means, "its gradient is nan"),
        (lambda p, t: solve_mse(p, t).detach(), "no graph"),
        (lambda p, t: solve_mse(p, t).item(), "expected a tensor"),
        (lambda p, t: solve_mse(p, t)[None], "expected shape ()"),
        (
            lambda p, t: solve_mse(p, t) if (~t.isnan()).any() else torch.tensor(0.0),
            "backward fails",
        ),
        (
            lambda p, t: (
                solve_mse(p, t)
                if (~t.isnan()).any()
                else torch.zeros((), dtype=p.dtype, requires_grad=True)
            ),
            "is not computed from prediction",
        ),
        (hides_broken, "a broken model"),
        (leaves_out_broken_rows, "a broken model"),
        (zero_is_missing, "not"),
        (stops_at_an_empty_row, "not"),
        (one_row_is_empty, "not"),
        (hides_infinite, "an infinite target is hidden"),
        (lambda p, t: solve_mse(p, t).sqrt(), "not"),
    ],
)
def test_check_series_mse_returns_the_expected_verdict(answer, says):
    for _ in range(3):
        expect(exercises.check_series_mse(answer), says)


@torch.no_grad()
def one_mode_per_class(model, window, steps):
    modes = {type(module): module.training for module in model.modules()}
    model.eval()
    out = ts.forecast(model, window, steps)
    for module in model.modules():
        module.training = modes[type(module)]
    return out


@torch.no_grad()
def solve_recursive(model, window, steps):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    out = ts.forecast(model, window, steps)
    for module, mode in modes:
        module.training = mode
    return out


def in_place(model, window, steps):
    window = window.clone()
    return solve_recursive(model, window, steps)


def leaves_eval(model, window, steps):
    return ts.forecast(model.eval(), window, steps)


def train_after(model, window, steps):
    was = model.training
    out = ts.forecast(model.eval(), window, steps)
    model.train(was)
    return out


@torch.no_grad()
def modes_of_children(model, window, steps):
    modes = [(module, module.training) for module in (model, *model.children())]
    out = ts.forecast(model.eval(), window, steps)
    for module, mode in modes:
        module.training = mode
    return out


@torch.no_grad()
def modes_from_children(model, window, steps):
    modes = [(module, module.training) for module in (model, *model.children())]
    out = ts.forecast(model.eval(), window, steps)
    for module, mode in modes:
        module.train(mode)
    return out


def without_dropout(model, window, steps):
    drops = [(module, module.p) for module in model.modules() if isinstance(module, nn.Dropout)]
    for drop, _ in drops:
        drop.p = 0.0
    out = ts.forecast(model, window, steps)
    for drop, p in drops:
        drop.p = p
    return out


def overwrites(model, window, steps):
    out = []
    with torch.no_grad():
        for _ in range(steps):
            out.append(model(window))
            window[:] = torch.cat([window[:, 1:], out[-1]], dim=1)
    return torch.cat(out, dim=1)


def grows(model, window, steps):
    out = window
    for _ in range(steps):
        out = torch.cat([out, model(out)], dim=1)
    return out[:, window.shape[1] :]


def with_graph(model, window, steps):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    start = window.shape[1]
    for _ in range(steps):
        window = torch.cat([window, model(window[:, -start:])], dim=1)
    for module, mode in modes:
        module.training = mode
    return window[:, start:]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (solve_recursive, None),
        (one_mode_per_class, "was left in another"),
        (in_place, None),
        (ts.forecast, "runs in training mode"),
        (leaves_eval, "training mode and was left in another"),
        (train_after, "was left in another"),
        (modes_of_children, "drop.0 of model came in training mode and was left in another"),
        (modes_from_children, "drop.0 of model came in training mode and was left in another"),
        (without_dropout, "runs in training mode"),
        (overwrites, "window was changed"),
        (grows, "the model got windows of"),
        (with_graph, "has a graph"),
        (lambda m, w, s: solve_recursive(m, w, s).flip(1), "reverse order"),
        (lambda m, w, s: solve_recursive(m, w.flip(1), s), "the window is reversed"),
        (lambda m, w, s: solve_recursive(m, w, s)[:, None], "expected shape"),
        (lambda m, w, s: solve_recursive(m, w, 1).expand(-1, s), "from the same window"),
        (lambda m, w, s: solve_recursive(m, w, s).float(), "expected torch.float64"),
    ],
)
def test_check_recursive_returns_the_expected_verdict(answer, says):
    expect(exercises.check_recursive(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


def test_gradient_of_a_loss_masked_afterwards_is_nan_for_squares():
    target = torch.tensor([1.0, torch.nan])
    for power, broken in ((2, True), (1, False)):  # the gradient of abs() is a sign, not nan
        prediction = torch.zeros(2, requires_grad=True)
        error = (prediction - target).abs() ** power
        torch.where(target.isnan(), 0.0, error).sum().backward()
        assert prediction.grad[1].isnan() == broken


def test_time_series_split_requires_a_gap_of_horizon_minus_1():
    from sklearn.model_selection import TimeSeriesSplit

    x, y = ts.windows(torch.arange(60), 5, 4)
    for gap, clean in ((3, True), (2, False)):
        folds = TimeSeriesSplit(3, gap=gap).split(x)
        overlap = [bool(set(y[a].flatten().tolist()) & set(y[b].flatten().tolist()))
                   for a, b in folds]  # fmt: skip
        assert overlap == [not clean] * 3


def test_persistence_is_the_best_forecast_of_a_random_walk():
    walk = demos.random_walk(20_000, generator=seeded(0))
    x, y = ts.windows(walk, 4, 3)
    solution = torch.linalg.lstsq(x[:10_000], y[:10_000]).solution
    assert ts.skill(x[10_000:] @ solution, y[10_000:], ts.persistence(x[10_000:], 3)) < 0.01


def test_standard_scaler_inverse_transform_of_one_feature_raises():
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(np.random.default_rng(0).normal(size=(9, 3)))
    with pytest.raises(ValueError, match="non-broadcastable output operand"):
        scaler.inverse_transform(np.ones((4, 1)))
    assert scaler.inverse_transform(np.ones((4, 3))).shape == (4, 3)  # 3 steps, 3 features


def test_mase_below_1_can_be_worse_than_naive():
    walk = demos.random_walk(700, generator=seeded(0))
    train, test = 3 * walk[:500], walk[500:]  # the test part is calmer
    prediction = test[:-1] + torch.randn(199, generator=seeded(1))
    assert ts.mase(prediction, test[1:], train) < 1
    assert ts.skill(prediction, test[1:], test[:-1]) < 0


def test_in_place_change_of_windows_changes_the_series():
    for operation in (torch.Tensor.zero_, lambda x: x.sub_(1), lambda x: x[:, -1].zero_()):
        series = torch.arange(1.0, 10.0)
        x, _ = ts.windows(series, 4)
        operation(x)
        assert not torch.equal(series, torch.arange(1.0, 10.0))


def test_valid_forecasts_of_a_walk_stay_near_the_naive_error():
    ratios = []
    for seed in range(20):
        walk = demos.random_walk(1000, generator=seeded(seed))
        x, y = ts.windows(walk, 24, 8)
        _, test = ts.split_windows(1000, 24, 8, 750)
        naive = ts.persistence(x[test], 8)
        drift = naive + walk[:750].diff().mean() * torch.arange(1, 9)
        ratios.append((F.mse_loss(drift, y[test]) / F.mse_loss(naive, y[test])).sqrt().item())
    assert 0.9 < min(ratios) < 1  # below 1 only by chance


def test_skill_accepts_bools():
    yes, no = torch.tensor([True, True]), torch.tensor([False, True])
    assert ts.skill(yes, yes, no) == 1
