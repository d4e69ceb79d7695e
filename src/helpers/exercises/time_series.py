"""Checkers of the exercises of the chapter on time series."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, between, close, in_dtypes, leaves, tensors

# ---------------------------------------------------------------- training windows


def _pairs(series: Tensor, length: int, horizon: int, split: int) -> tuple[Tensor, Tensor]:
    """Return the windows that end before `split`, one by one."""
    starts = range(split - length - horizon + 1)
    inputs = torch.stack([series[i : i + length] for i in starts])
    targets = torch.stack([series[i + length : i + length + horizon] for i in starts])
    return inputs, targets


def _pairs_sizes() -> tuple[int, int, int, int]:
    length, horizon = between(3, 6), between(3, 5)
    split = length + horizon + between(5, 9)  # more windows than `horizon`
    return split + between(4, 9), length, horizon, split


def _pairs_value(f, features: int | None):
    steps, length, horizon, split = _pairs_sizes()
    numbers = torch.arange(float(steps))
    series = numbers if features is None else numbers[:, None] + 1000 * torch.arange(features)
    right = _pairs(series, length, horizon, split)
    got = tensors(f(series, length, horizon, split), 2, "expected two tensors: inputs and targets")
    for part, want, name in zip(got, right, ("inputs", "targets"), strict=True):
        a_tensor(part, None, series.dtype, name)
        assert part.dim() == want.dim(), (
            f"{name}: expected {want.dim()} dimensions, got shape {tuple(part.shape)}"
        )
        swapped = part.dim() == 3 and part.shape[1:] == want.shape[1:][::-1] != want.shape[1:]
        assert not swapped, f"{name}: time is the last dimension: expected (N, steps, F)"
    counts = {len(part) for part in got}
    assert len(counts) == 1, f"expected as many targets as inputs, got {[len(p) for p in got]}"
    if counts != {0}:
        _pairs_counts(got, right, split)
        same = torch.equal(got[1][:, :1], got[0][:, -1:])
        assert not same, "the first target is the last input"
    for part, want, name in zip(got, right, ("inputs", "targets"), strict=True):
        close(part, want, name=name)


def _pairs_counts(got, right, split: int) -> None:
    n, most, horizon = len(right[0]), len(got[0]), right[1].shape[1]
    late = (got[1][-1:] % 1000 >= split).any()
    assert most <= n or not late, (
        "the last targets are steps of the test part: a window must end before the split"
    )
    if torch.equal(got[0], right[0][:most]):
        assert most != n - 1, "the newest training window is missing: range() excludes its end"
        assert most != n - horizon, "windows are missing at the end of the training part"


def _pairs_one(f):
    for _ in range(3):
        _pairs_value(f, None)


def _pairs_features(f):
    for features in (1, 2, 3):
        _pairs_value(f, features)


def _pairs_edges(f):
    series = torch.randn(12)
    for horizon in (1, 2):
        got = f(series, 4, horizon, 4 + horizon)
        tensors(got, 2, "expected two tensors: inputs and targets")
        close(got[0], series[None, :4], "wrong if the training part has exactly one window")
        close(got[1], series[None, 4 : 4 + horizon], "wrong targets if there is only one window")
    got = f(series, 4, 1, len(series))
    for part, want in zip(got, _pairs(series, 4, 1, 12), strict=True):
        close(part, want, "wrong if the split is at the end of the series")


def _pairs_dtypes(f):
    series = torch.randn(15, 2)
    in_dtypes(lambda s: f(s, 4, 3, 11), lambda s: _pairs(s, 4, 3, 11), series)


def check_training_windows(answer: Callable[..., tuple[Tensor, Tensor]]) -> Verdict:
    """Check `answer(series, length, horizon, split)`: all windows that end before step `split`.

    The series has the shape (T,) or (T, F). The result is the inputs, (N, length) or
    (N, length, F), and the targets, (N, horizon) or (N, horizon, F), oldest first; N is at least 1.
    """
    f = leaves(answer, "series")
    return verdict(f, [_pairs_one, _pairs_features, _pairs_edges, _pairs_dtypes])


# ---------------------------------------------------------------- a mean over series


def _series(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean over the series that have an observed target, one by one."""
    each = []
    for mine, true in zip(prediction, target, strict=True):
        observed = ~true.isnan()
        if observed.any():
            each.append((mine[observed] - true[observed]).square().mean())
    return torch.stack(each).mean() if each else 0 * prediction.sum()


def _series_batch(empty: int = 1) -> tuple[Tensor, Tensor]:
    """Return series of different lengths, with a gap and a target of 0; `empty` are all missing."""
    n, steps = between(4, 6), between(6, 9)
    prediction, target = torch.randn(2, n, steps)
    target += torch.arange(n)[:, None]
    target[0, 1] = 0
    counts = (torch.arange(n) + 2).flip(0).clamp(max=steps)
    counts[n - empty :] = 0
    missing = torch.arange(steps) >= counts[:, None]
    missing[0, 0] = True
    order = torch.randperm(n)
    return prediction[order], target.masked_fill(missing, torch.nan)[order]


def _series_value(f):
    for empty in (1, 2, 1, 2):
        prediction, target = _series_batch(empty)
        got, right = f(prediction, target), _series(prediction, target)
        a_tensor(got, (), right.dtype)
        assert not got.isnan(), "the result is nan: nan * 0 and 0 / 0 are nan"
        observed = ~target.isnan()
        error = (prediction - target.nan_to_num()).square()
        rows = (error * observed).sum(1)
        for wrong, why in (
            (error.mean(), "missing targets count as 0"),
            (rows.sum() / target.numel(), "the sum is divided by all targets"),
            (rows.sum() / observed.sum(), "each step has the same weight, not each series"),
            (
                (rows / observed.sum(1).clamp(min=1)).mean(),
                "a series without an observed target counts as one with an error of 0",
            ),
            ((rows / target.shape[1]).mean(), "each sum is divided by all steps of the series"),
        ):
            assert torch.isclose(got, right) or not torch.isclose(got, wrong), why
        close(got, right)


def _series_gradient(f):
    prediction, target = _series_batch()
    prediction.requires_grad_()
    got = f(prediction, target)
    assert got.requires_grad, "the result has no graph"
    mine, theirs = (
        torch.autograd.grad(loss, prediction)[0] for loss in (got, _series(prediction, target))
    )
    assert not mine.isnan().any(), (
        "the loss is right, its gradient is nan: replace the nan before the subtraction"
    )
    close(mine, theirs, "the loss is right, its gradient is not")


def _series_edges(f):
    prediction, target = torch.randn(2, 3, requires_grad=True), torch.full((2, 3), torch.nan)
    got = a_tensor(f(prediction, target), ())
    assert got == 0, f"without an observed target it is {got.item()}, not 0"
    assert got.requires_grad, "without an observed target the result has no graph: backward fails"
    (grad,) = torch.autograd.grad(got, prediction, allow_unused=True)
    assert grad is not None, "without an observed target the result is not computed from prediction"
    assert (grad == 0).all(), "without an observed target the gradient is not 0"
    for broken in (torch.nan, torch.inf):
        got = f(torch.full((2, 3), broken, requires_grad=True), target)
        assert got == 0, f"without an observed target it is {got.item()}, not 0"
    whole = torch.randn(2, 3)
    close(f(whole, whole + 2), torch.tensor(4.0), "wrong if no target is missing")
    first = torch.tensor([[torch.nan, torch.nan], [1.0, 3.0]])
    close(f(torch.ones(2, 2), first), torch.tensor(2.0), "wrong if the first series is missing")
    one = torch.tensor([[1.0]])
    close(f(one, one + 3), torch.tensor(9.0), "wrong for a single target")


def _series_broken(f):
    prediction, target = torch.zeros(1, 2), torch.tensor([[1.0, torch.inf]])
    assert f(prediction, target) == torch.inf, "an infinite target is hidden: only nan is missing"
    prediction = torch.tensor([[torch.nan, 0.0], [1.0, 1.0]])
    got = f(prediction, torch.tensor([[1.0, torch.nan], [1.0, 2.0]]))
    assert got.isnan(), "a nan in the prediction is hidden: a broken model would get a good loss"
    prediction = torch.tensor([[0.0, torch.nan], [1.0, 1.0]])
    got = f(prediction, torch.tensor([[1.0, torch.nan], [1.0, 1.0]]))
    close(got, torch.tensor(0.5), "a nan in the prediction of a missing target changes the result")


def _series_dtypes(f):
    in_dtypes(f, _series, *_series_batch())


def check_series_mse(answer: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(prediction, target)`: the mean over series of their mean squared errors.

    Both have the shape (N, T), and nan in `target` is missing. Series without an observed target
    are left out; without any the result is 0, with a graph.
    """
    tests = [_series_value, _series_gradient, _series_edges, _series_broken, _series_dtypes]
    return verdict(leaves(answer, "prediction", "target"), tests)


# ---------------------------------------------------------------- recursive forecast


class _Net(nn.Module):
    """One value of each window, shape (N, 1), that depends on the order of its values and the mode.

    The dropout is a child of a child, so that a mode can differ at each depth.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        weight = torch.rand(length) + 0.2
        self.weight = nn.Parameter(weight / weight.sum())
        self.drop = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1:] == self.weight.shape, (
            f"the model got windows of {x.shape[1]} values, not {len(self.weight)}"
        )
        return self.drop((x * self.weight).sum(1, keepdim=True)) + (9 if self.training else 0.1)


def _recursive(model: _Net, window: Tensor, steps: int) -> Tensor:
    weight, values = model.weight.detach(), window
    for _ in range(steps):
        last = values[:, -len(weight) :]
        values = torch.cat([values, (last * weight).sum(1, keepdim=True) + 0.1], dim=1)
    return values[:, window.shape[1] :]


def _recursive_value(f):
    for _ in range(3):
        length, steps = between(3, 5), between(7, 9)
        model, window = _Net(length).eval(), torch.randn(between(2, 4), length)
        got = f(model, window, steps)
        a_tensor(got, (len(window), steps), window.dtype)
        right = _recursive(model, window, steps)
        for wrong, why in (
            (right[:, :1].expand_as(right), "each step is forecast from the same window"),
            (_recursive(model, window.flip(1), steps), "the window is reversed"),
            (right.flip(1), "the steps are in reverse order"),
        ):
            assert torch.allclose(wrong, right) or not torch.allclose(got, wrong), why
        close(got, right)


def _recursive_modes(f):
    model, window = _Net(3).train(), torch.randn(4, 3)
    got = f(model, window, 6)
    close(got, _recursive(model, window, 6), "the model runs in training mode, not in eval mode")
    model.eval().drop[0].train()  # a submodule in another mode
    close(f(model, window, 2), _recursive(model, window, 2), "dropout is active in a submodule")


def _recursive_graph(f):
    model, window = _Net(3).eval(), torch.randn(2, 3, requires_grad=True)
    assert not f(model, window, 4).requires_grad, "the forecast has a graph: use torch.no_grad()"


def _recursive_edges(f):
    for length, steps in ((1, 3), (4, 1)):
        model, window = _Net(length).eval(), torch.randn(1, length)
        right = _recursive(model, window, steps)
        close(f(model, window, steps), right, f"wrong with {length} inputs and {steps} steps")


def _recursive_dtypes(f):
    model, window = _Net(4).double().eval(), torch.randn(3, 4, dtype=torch.float64)
    close(f(model, window, 5), _recursive(model, window, 5))


def check_recursive(answer: Callable[[nn.Module, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(model, window, steps)`: forecasts of shape (N, steps), without a graph.

    `model` maps (N, L) to (N, 1); `window` has the shape (N, L). It must run in eval mode, and each
    module has its old mode afterwards.
    """
    f = leaves(answer, "model", "window")
    tests = [_recursive_value, _recursive_modes, _recursive_graph]
    return verdict(f, [*tests, _recursive_edges, _recursive_dtypes], draws=True)
