"""Helpers of the chapter on time series: windows, splits, scaling, baselines, masks, forecasts.

Source: Hyndman and Athanasopoulos, "Forecasting: Principles and Practice", 3rd edition,
https://otexts.com/fpp3/
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real

import torch
from torch import Tensor

from helpers import checks

# ---------------------------------------------------------------- windows and splits


def windows(
    series: Tensor, length: int, horizon: int = 1, stride: int = 1
) -> tuple[Tensor, Tensor]:
    """Return all pairs of `length` inputs and the `horizon` values after them, as views.

    Args:
        series: shape (T,) or (T, F), with time in the first dimension, any dtype.
        length: number of input steps, at least 1.
        horizon: number of target steps, at least 1.
        stride: steps between the starts of two neighbouring windows, at least 1.

    Returns:
        Inputs of shape (N, length) or (N, length, F) and targets of shape (N, horizon) or
        (N, horizon, F), with N = (T - length - horizon) // stride + 1. Both share the storage of
        `series`: an in-place operation on them changes the series, and raises no error.

    Raises:
        TypeError: `series` is not a tensor.
        ValueError: `series` has another number of dimensions, a size is not an int of at least 1,
            or the series is shorter than one window and its targets.
    """
    _tensors(series)
    for name, value in (("length", length), ("horizon", horizon), ("stride", stride)):
        _count(name, value)
    _one_or_two(series)
    if len(series) < length + horizon:
        raise ValueError(
            f"a window of {length} inputs and {horizon} targets needs {length + horizon} steps, "
            f"the series has {len(series)}"
        )
    pairs = series.unfold(0, length + horizon, stride)  # (N, L + H) or (N, F, L + H)
    if series.dim() == 2:
        pairs = pairs.transpose(1, 2)
    return pairs[:, :length], pairs[:, length:]


def split_windows(steps: int, length: int, horizon: int, split: int) -> tuple[range, range]:
    """Return the starts of training and test windows, so that no training window leaves its part.

    A training window ends, with its targets, before step `split`. The targets of a test window are
    at `split` or later; its inputs may reach back into the training part, as they do in use. The
    `horizon - 1` windows between them are in neither.

    Args:
        steps: length T of the series.
        length: number of input steps.
        horizon: number of target steps.
        split: first step of the test part, at least `length`.

    Returns:
        Two ranges; they index what `windows(series, length, horizon)` returns with a stride of 1.

    Raises:
        ValueError: a size is not an int of at least 1, `split` is before the end of the first
            window, or one of the parts has no window.
    """
    sizes = {"steps": steps, "length": length, "horizon": horizon, "split": split}
    for name, value in sizes.items():
        _count(name, value)
    if not length <= split <= steps:
        raise ValueError(f"split must be from length, {length}, to steps, {steps}, got {split}")
    train = range(max(split - length - horizon + 1, 0))
    test = range(split - length, max(steps - length - horizon + 1, split - length))
    for name, part in (("training", train), ("test", test)):
        if not part:
            raise ValueError(
                f"no {name} window of {length} + {horizon} steps fits: {steps} steps, split {split}"
            )
    return train, test


# ---------------------------------------------------------------- scaling


class Standardizer:
    """Standardize features with the mean and standard deviation of the training part.

    Args:
        train: training part, shape (T, F) or (T,), floating point; nan counts as missing.

    Raises:
        TypeError: `train` is not a tensor with values.
        ValueError: `train` has another number of dimensions, is not floating point, contains inf,
            or a feature has fewer than two observed values.

    Attributes:
        mean: shape (F,) or (), computed in float64, the dtype of `train`.
        std: unbiased, the same; 1 for a constant feature.
    """

    def __init__(self, train: Tensor) -> None:
        _tensors(train), checks.filled("train", train)
        if train.dim() not in (1, 2) or not train.is_floating_point():
            raise ValueError(
                f"expected a floating-point tensor of shape (T,) or (T, F), got {train.dtype} of "
                f"shape {tuple(train.shape)}"
            )
        count = (~train.isnan()).sum(0)
        if bool((count < 2).any()):
            raise ValueError(f"each feature needs 2 observed values, got {count.tolist()}")
        if bool(train.isinf().any()):
            raise ValueError("train must be finite or nan, got inf")
        wide = train.double()
        low = wide.nan_to_num(torch.inf).amin(0)
        constant = ((wide == low) | wide.isnan()).all(0)
        mean = torch.where(constant, low, wide.nanmean(0))  # a rounded mean has a deviation
        std = ((wide - mean).square().nansum(0) / (count - 1)).sqrt().to(train.dtype)
        self.mean = mean.to(train.dtype)
        self.std = torch.where(std > 0, std, 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        """Return `x` of shape (..., F), or any shape for a single series, standardized.

        Raises:
            TypeError: `x` is not a tensor.
            ValueError: `x` does not have the shape (..., F).
        """
        self._fits(x)
        return (x - self.mean) / self.std

    def undo(self, x: Tensor, feature: int | None = None) -> Tensor:
        """Return `x` in the original units: all features, or only the one with this index.

        With `feature`, `x` may have any shape: it contains values of this feature only.

        Raises:
            IndexError: there is no such feature.
            TypeError: `x` is not a tensor.
            ValueError: `x` does not have the shape (..., F), or `feature` is not an int, or it is
                given for a single series.
        """
        _tensors(x)
        if feature is None:
            self._fits(x)
            return x * self.std + self.mean
        whole = isinstance(feature, Integral) and not isinstance(feature, bool)
        if not (whole and self.mean.dim()):
            raise ValueError(
                f"feature must be the index of one of several features, got {feature!r} for "
                f"statistics of shape {tuple(self.mean.shape)}"
            )
        return x * self.std[feature] + self.mean[feature]

    def _fits(self, x: Tensor) -> None:
        _tensors(x)
        if self.mean.dim() and x.shape[-1:] != self.mean.shape:
            raise ValueError(f"expected shape (..., {len(self.mean)}), got {tuple(x.shape)}")


# ---------------------------------------------------------------- baselines and metrics


def persistence(x: Tensor, horizon: int = 1, season: int = 1) -> Tensor:
    """Repeat the last `season` values of each window: the naive, or seasonal naive, forecast.

    Args:
        x: inputs, shape (N, L, ...).
        horizon: number of steps to forecast, at least 1.
        season: length of the repeated part, in steps, from 1 to L.

    Returns:
        Shape (N, horizon, ...).

    Raises:
        ValueError: `horizon` is below 1, or `season` is not an int or longer than the window.
    """
    _tensors(x)
    _count("horizon", horizon)
    whole = isinstance(season, Integral) and not isinstance(season, bool)
    if x.dim() < 2 or not whole or not 1 <= season <= x.shape[1]:
        raise ValueError(
            f"season must be from 1 to the window's length, got {season} for {tuple(x.shape)}"
        )
    steps = torch.arange(horizon, device=x.device) % season
    return x[:, x.shape[1] - season + steps]


def skill(prediction: Tensor, target: Tensor, baseline: Tensor) -> float:
    """Return 1 - MSE / MSE of the baseline: 1 is perfect, 0 is no better, below 0 is worse.

    Args:
        prediction, target, baseline: the same shape, any real dtype, in the same units.

    Raises:
        ValueError: the shapes differ or are empty, or the error of the baseline is 0.
    """
    _same(prediction, target, baseline)
    truth = target.double()
    naive = (baseline.double() - truth).square().mean()
    if not naive > 0:
        raise ValueError(f"the MSE of the baseline must be above 0, got {naive.item()}")
    return 1 - ((prediction.double() - truth).square().mean() / naive).item()


def mase(prediction: Tensor, target: Tensor, train: Tensor, season: int = 1) -> float:
    """Return the mean absolute error, divided by that of the naive forecast on the training part.

    Args:
        prediction: any shape, in the units of `train`.
        target: the same shape.
        train: training part of the series, shape (T,), not standardized differently.
        season: of the naive forecast, in steps: each value is compared with that `season` before.

    Raises:
        ValueError: the shapes differ, or `train` is not longer than `season`, repeats exactly or
            contains nan.

    Source: Hyndman and Koehler 2006, "Another look at measures of forecast accuracy".
    """
    _tensors(train)
    _same(prediction, target)
    _count("season", season)
    if train.dim() != 1 or len(train) <= season:
        raise ValueError(f"train must have shape (T,), T above {season}, got {tuple(train.shape)}")
    train = train.double()
    scale = (train[season:] - train[:-season]).abs().mean()
    if not scale > 0:
        raise ValueError(f"the naive error on train must be above 0, got {scale.item()}")
    return ((prediction - target.double()).abs().mean() / scale).item()


def best_lag(prediction: Tensor, target: Tensor, most: int = 5) -> int:
    """Return the lag, in steps, at which the prediction fits the past of the target best.

    0: it fits the step that it was made for. 1: it is nearest to the value one step before.

    Args:
        prediction, target: consecutive steps, shape (T,).
        most: largest lag to try, at least 1 and below T.

    Raises:
        ValueError: the shapes differ, are not (T,), T is not above `most`, or a value is nan.
    """
    _same(prediction, target)
    _count("most", most)
    if target.dim() != 1 or len(target) <= most:
        raise ValueError(f"expected shape (T,) with T above {most}, got {tuple(target.shape)}")
    n = len(target) - most
    truth = target.double()
    errors = torch.stack(
        [
            (prediction[most:] - truth[most - lag : most - lag + n]).square().mean()
            for lag in range(most + 1)
        ]
    )
    if bool(errors.isnan().any()):
        raise ValueError("prediction and target must not contain nan")
    return int(errors.argmin())


# ---------------------------------------------------------------- missing values


def masked_mse(prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error over the targets that are not nan; 0 if there are none.

    Gradients of missing targets are 0, not nan, because the nan is replaced before the subtraction.
    With a nan or inf in `prediction` the result is not finite, also where the target is missing.

    Args:
        prediction: any shape, floating point.
        target: the same shape; nan where a value is missing.

    Raises:
        ValueError: the shapes differ or are empty, or `prediction` is not floating point.
    """
    _same(prediction, target)
    if not prediction.is_floating_point():
        raise ValueError(f"prediction must be floating point, got {prediction.dtype}")
    observed = ~target.isnan()
    error = prediction - torch.where(observed, target, prediction.detach())
    wide = torch.promote_types(error.dtype, torch.float32)  # a sum in float16 overflows
    total = error.square().sum(dtype=wide)
    return (total / observed.sum().clamp(min=1)).to(error.dtype)


def forward_fill(series: Tensor) -> Tensor:
    """Replace each nan by the last value before it; a nan without one remains.

    Args:
        series: shape (T,) or (T, F), with time in the first dimension, floating point.

    Returns:
        A new tensor of the same shape. It uses no later value, so it does not leak.

    Raises:
        TypeError: `series` is not a tensor.
        ValueError: `series` has another number of dimensions, such as a batch (N, T, F).
    """
    _tensors(series)
    _one_or_two(series)
    index = torch.arange(len(series), device=series.device)
    index = index.view(-1, *[1] * (series.dim() - 1)).expand_as(series)
    last = torch.where(series.isnan(), -1, index).cummax(0).values
    return series.gather(0, last.clamp(min=0)) if len(series) else series.clone()


# ---------------------------------------------------------------- forecasts and features


@torch.no_grad()
def forecast(model: Callable[[Tensor], Tensor], window: Tensor, steps: int) -> Tensor:
    """Return a recursive forecast: each prediction becomes the last input of the next step.

    Args:
        model: from windows (N, L) to the next values, (N, 1) or (N,). It runs in its current mode,
            so call `eval()` first.
        window: the last known values, shape (N, L).
        steps: number of steps to forecast, at least 1.

    Returns:
        Shape (N, steps), without a graph; `window` is not changed.

    Raises:
        TypeError: `model` cannot be called, or does not return a tensor, as `nn.LSTM` does not.
        ValueError: `steps` is below 1, `window` has another number of dimensions, or the model
            returns another shape.
    """
    checks.function("model", model)
    _tensors(window)
    _count("steps", steps)
    if window.dim() != 2:
        raise ValueError(f"window must have shape (N, L), got {tuple(window.shape)}")
    out = []
    for _ in range(steps):
        following = model(window)
        if not isinstance(following, Tensor):
            raise TypeError(f"the model must return a tensor, got {type(following).__name__}")
        if following.shape not in ((len(window), 1), (len(window),)):
            raise ValueError(
                f"the model must return one value per window, ({len(window)}, 1), got "
                f"{tuple(following.shape)}"
            )
        out.append(following.reshape(-1, 1))
        window = torch.cat([window[:, 1:], out[-1]], dim=1)
    return torch.cat(out, dim=1)


def cyclic(t: Tensor, period: float) -> Tensor:
    """Return sine and cosine of a periodic feature, such as the hour of the day.

    Args:
        t: any shape and real dtype, such as hours from 0 to 23. Integers are exact, also seconds
            since 1970, which float32 rounds to minutes.
        period: in the unit of `t`, such as 24, above 0.

    Returns:
        Shape (..., 2), float32 or the floating-point dtype of `t`; up to its rounding, equal
        distances in time are equal distances on the circle.

    Raises:
        TypeError: `t` is not a real tensor.
        ValueError: `period` is not a finite number above 0.
    """
    _tensors(t)
    if t.is_complex():
        raise TypeError(f"t must be real, got {t.dtype}")
    if not isinstance(period, Real) or not 0 < period < math.inf:
        raise ValueError(f"period must be above 0 and finite, got {period!r}")
    phase = (t if t.is_floating_point() else t.double()).remainder(period)
    angle = phase * (2 * math.pi / period)
    points = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return points if t.is_floating_point() else points.float()


def _tensors(*values: Tensor) -> None:
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(f"expected a tensor, got {type(value).__name__}")


def _one_or_two(series: Tensor) -> None:
    if series.dim() not in (1, 2):
        raise ValueError(f"series must have shape (T,) or (T, F), got {tuple(series.shape)}")


def _same(*tensors: Tensor) -> None:
    _tensors(*tensors)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if len(set(shapes)) > 1 or not tensors[0].numel():
        raise ValueError(f"expected tensors of one shape, not empty, got {shapes}")


def _count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an int of at least 1, got {value!r}")
