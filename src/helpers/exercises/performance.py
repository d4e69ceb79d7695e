"""Checkers of the exercises of the chapter on speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from numbers import Real

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, in_dtypes, leaves, on_one_device
from helpers.performance import operators, waits


class _Machine:
    """A clock that only the loader, the step and the queue move."""

    def __init__(self, loads: list[float], launches: list[float], works: list[float]) -> None:
        self.loads, self.launches, self.works = loads, launches, works
        self.now, self.free, self.steps, self.given = 100, 100, 0, 0

    def clock(self) -> float:
        return float(self.now)

    def wait(self) -> None:
        self.now = max(self.now, self.free)

    def batches(self) -> Iterator[int]:
        for i, load in enumerate(self.loads):
            self.now += load
            self.given += 1
            yield i

    def step(self, batch: int) -> None:
        assert self.given <= self.steps + 1, (
            "run the step of a batch before you ask for the next batch"
        )
        assert batch == self.steps, "call step once for each batch, in order, with that batch"
        self.now += self.launches[batch]
        self.free = max(self.now, self.free) + self.works[batch]
        self.steps += 1


def check_split_time(answer: Callable[..., tuple[float, float]]) -> Verdict:
    """Check `answer(loader, step, clock, wait)`: seconds spent on data, and on steps.

    `loader` gives its batches once. `step(batch)` puts work into a queue and returns; `wait()`
    returns when the queue is empty; `clock()` gives seconds. The time of a step lasts until its
    work is done. Expected is `(data, compute)`, summed over all batches.
    """

    def machine(batches: int) -> _Machine:
        loads, launches, works = (torch.randint(1, 72, (3, batches)) / 8).tolist()  # not whole
        return _Machine(loads, launches, works)

    def compare(f: Callable, machine: _Machine, complaint: str) -> None:
        got = f(machine.batches(), machine.step, machine.clock, machine.wait)
        assert machine.steps == len(machine.loads), (
            f"step ran {machine.steps} times for {len(machine.loads)} batches"
        )
        assert isinstance(got, tuple | list) and len(got) == 2, "return a pair: (data, compute)"
        assert all(isinstance(x, Real | Tensor) for x in got), "return two numbers"
        data, compute = sum(machine.loads), sum(machine.launches) + sum(machine.works)
        assert not (
            math.isclose(got[0], compute) and math.isclose(got[1], data) and data != compute
        ), "the two are swapped: return data first, then compute"
        assert math.isclose(got[0], data), f"{complaint}: data took {data} s, you return {got[0]:g}"
        assert math.isclose(got[1], compute), (
            f"{complaint}: the steps took {compute} s until the queue was empty, "
            f"you return {got[1]:g}"
        )

    def one(f: Callable) -> None:
        compare(f, machine(1), "wrong for one batch")

    def many(f: Callable) -> None:
        for n in (2, 5, 9):
            compare(f, machine(n), f"wrong for {n} batches")

    def long(f: Callable) -> None:
        compare(f, _Machine([3, 3, 3], [1, 1, 1], [50, 50, 50]), "wrong for a slow GPU")

    def empty(f: Callable) -> None:
        compare(f, machine(0), "wrong without a batch")

    return verdict(answer, [one, many, long, empty])


def _nearest_right(points: Tensor, centres: Tensor) -> Tensor:
    off = points.double()[:, None] - centres.double()
    return off.square().sum(-1).argmin(1)


def _nearest_case(
    n: int, k: int, d: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Return points and centres such that each point clearly has one nearest centre."""
    centres = 10.0 * torch.randperm(k)[:, None] + torch.rand(k, d)
    return (centres[torch.randint(k, (n,))] + 0.1 * torch.rand(n, d)).to(dtype), centres.to(dtype)


def _nearest_compare(f: Callable, points: Tensor, centres: Tensor, complaint: str) -> None:
    got = leaves(f, "points", "centres")(points, centres)
    a_tensor(got, (len(points),), torch.int64)
    assert torch.equal(got, _nearest_right(points, centres)), complaint


def _nearest_small(f: Callable) -> None:
    _nearest_compare(f, *_nearest_case(6, 3, 2), "wrong for 6 points and 3 centres")
    points, centres = (t.t().contiguous().t() for t in _nearest_case(6, 3, 2))
    _nearest_compare(f, points, centres, "wrong for tensors that are not contiguous")
    for point, centres in (
        ((0.0, 3.0), ((0.0, 0.0), (2.9, 3.0))),
        ((0.0, 0.0), ((1.0, -1.0), (0.5, 0.5))),
        ((0.0, 0.0), ((2.0, 2.0), (0.0, 3.0))),
        ((0.0, 0.0), ((2.3, 2.3), (0.0, 3.0))),
        ((0.0, 0.0), ((2.0, 2.0), (0.0, 2.843))),
        ((0.0, 0.0), ((2.0, 2.0), (0.0, 2.814))),
        (
            (0.0, 0.0, 0.0, 0.0),
            ((0.0, 0.0, 1.0, 2.0), (1.0, 1.0, 0.0, 1.0)),
        ),  # every coordinate counts
        ((0.0, 0.0, 0.0, 0.0), ((2.0, 1.0, 0.0, 0.0), (1.0, 0.0, 1.0, 1.0))),
        ((0.0, 0.0), ((1.0, 0.0), (0.0, 0.9999))),  # float16 rounds this to 1
    ):
        _nearest_compare(
            f,
            torch.tensor([point]),
            torch.tensor(centres),
            f"wrong for the point {point} and the centres {centres}",
        )


def _nearest_edges(f: Callable) -> None:
    for n, k, d in ((1, 1, 1), (1, 5, 3), (5, 1, 3), (4, 4, 1), (7, 7, 2), (0, 3, 2)):
        _nearest_compare(
            f, *_nearest_case(n, k, d), f"wrong for {n} points and {k} centres of {d} coordinates"
        )


def _nearest_double(f: Callable) -> None:
    # above 25 rows cdist multiplies matrices
    far = [0.1 * t + 1e4 for t in _nearest_case(30, 10, 3)]
    _nearest_compare(
        f, *far, "wrong far from the origin, where squares lose their digits: subtract"
    )
    far = [0.1 * t + 1e9 for t in _nearest_case(7, 4, 3, torch.float64)]
    _nearest_compare(f, *far, "wrong in float64")


def _nearest_free(f: Callable) -> None:
    points, centres = _nearest_case(6, 3, 2)
    reads = waits(lambda: f(points, centres))
    assert not reads, (
        f"{reads[0].call} in the line `{reads[0].line}` reads values into Python: "
        "use a PyTorch function for the search"
    )
    on_one_device(f, points, centres)


def _nearest_count(f: Callable) -> None:
    numbers = []
    for n, k in ((8, 3), (200, 3), (8, 40)):
        points, centres = _nearest_case(n, k, 3)
        numbers.append(sum(operators(lambda p=points, c=centres: f(p, c)).values()))
    assert max(numbers) <= numbers[0] + 5, (
        f"{numbers[0]} operators ran for 8 points and 3 centres, {numbers[1]} for 200 points, "
        f"{numbers[2]} for 40 centres: use operations on whole tensors"
    )


def check_nearest(answer: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(points, centres)`: for each point the number of its nearest centre (Euclid).

    `points` has shape (N, D), `centres` (K, D), both of the same floating dtype, K at least 1.
    Expected is an int64 tensor of shape (N,), from a number of operators that depends neither on
    N nor on K. No number is read into Python, and the result is where the points are.
    """
    return verdict(
        answer, [_nearest_small, _nearest_edges, _nearest_double, _nearest_count, _nearest_free]
    )


def _below_compare(f: Callable, numbers: Iterable[float], limit: float, complaint: str) -> None:
    losses = torch.tensor(list(numbers), requires_grad=True)
    got = leaves(f, "losses")(losses, limit)
    assert isinstance(got, Tensor) and got.shape == (), "return a tensor of shape ()"
    assert got.dtype == losses.dtype, f"{losses.dtype} losses give {got.dtype}"
    counts = (losses < limit).detach()
    want = losses.detach()[counts].mean() if counts.any() else torch.zeros(())
    assert torch.isclose(got, want), f"{complaint}: expected {want:.3f}, got {got.item():.3f}"
    assert got.requires_grad, f"{complaint}: the result has no graph"
    got.backward()
    slope = counts / counts.sum().clamp(min=1)
    assert torch.allclose(losses.grad, slope), f"{complaint}: the gradient is wrong"


def _below_some(f: Callable) -> None:
    _below_compare(
        f,
        torch.rand(9).tolist() + [5.0, 7.0],
        2.0,
        "wrong where two losses are not below the limit",
    )
    _below_compare(f, [0.0, 1.0, 5.0, 7.0], 2.0, "wrong where two losses are not below the limit")
    _below_compare(f, (-torch.rand(5)).tolist() + [3.0], 1.0, "wrong for negative losses")
    _below_compare(f, [2.0, 1.0], 2.0, "wrong: a loss equal to the limit is not below it")


def _below_none(f: Callable) -> None:
    _below_compare(f, [3.0, 4.0], 1.0, "wrong where no loss is below the limit")


def _below_all(f: Callable) -> None:
    for n in (4, 1):
        _below_compare(f, torch.rand(n).tolist(), 2.0, "wrong where all losses are below the limit")


def _below_nonfinite(f: Callable) -> None:
    _below_compare(f, [0.5, math.inf, 1.5], 2.0, "wrong with inf")
    _below_compare(f, [0.5, math.nan, 1.5], 2.0, "wrong with nan")
    _below_compare(f, [0.5, -math.inf, 1.5], 2.0, "wrong with -inf, which is below the limit")


def _below_device(f: Callable) -> None:
    reads = waits(lambda: f(torch.rand(6, requires_grad=True), 0.5))
    assert not reads, f"it synchronizes with the GPU: {reads[0].call} in the line `{reads[0].line}`"
    on_one_device(f, torch.rand(6), 0.5)


def _below_dtypes(f: Callable) -> None:
    f = leaves(f, "losses")
    in_dtypes(f, lambda x, limit: x[x < limit].mean(), torch.rand(6), 2.0)
    half = torch.full((100,), 1000.0, dtype=torch.float16)
    got = f(half, 2000.0)
    assert torch.isclose(got, half[0], rtol=0.01), (
        f"the mean of 100 losses of 1000 in float16 is {got.item():g}: divide before you add up"
    )
    many = f(half[:1].expand(70_000), 2000.0)
    assert torch.isclose(many, half[0], rtol=0.1), (
        f"the mean of 70,000 losses of 1000 in float16 is {many.item():g}: "
        "the count exceeds the range of float16"
    )


def check_mean_below(answer: Callable[[Tensor, float], Tensor]) -> Verdict:
    """Check `answer(losses, limit)`: the mean of the losses below `limit`, and 0 if none is.

    `losses` has shape (N,), N at least 1, and may hold inf and nan, which do not count. Expected
    is a tensor of shape () and of their dtype, made without waiting for a GPU. Its gradient is
    that of the mean: 1/n for each of the n losses that count, 0 for others.
    """

    return verdict(
        answer,
        [_below_some, _below_none, _below_all, _below_nonfinite, _below_device, _below_dtypes],
    )
