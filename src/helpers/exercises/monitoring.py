"""Checkers of the exercises of the chapter "TensorBoard and profiler"."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import torch
from torch import nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import an_int, instance, kind
from helpers.monitoring import Sink, quiet


class _OutOfOrderError(Exception):
    """Exception class of a library."""


def _never_fatal_wrap(f: Callable[[Sink], Sink], send: Sink) -> Sink:
    safe = f(send)
    assert callable(safe), f"expected a function, got {kind(safe)}"
    return safe


def _never_fatal_passes(f: Callable[[Sink], Sink]) -> None:
    points = [("loss", step, random.random()) for step in range(random.randint(2, 9))]
    got: list[tuple] = []
    safe = _never_fatal_wrap(f, lambda *point: got.append(point))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for point in points:
            safe(*point)
    sent = f"expected {len(points)} points sent on unchanged, got {len(got)}: {got[:1]}"
    assert got == points, sent
    assert not warned, "the function warns although send did not fail"


def _never_fatal_survives(f: Callable[[Sink], Sink]) -> None:
    _never_fatal_survives_one(f, random.choice([ConnectionError, OSError, ValueError]))


def _never_fatal_survives_any(f: Callable[[Sink], Sink]) -> None:
    for error in (ConnectionError, OSError, ValueError, RuntimeError, _OutOfOrderError):
        _never_fatal_survives_one(f, error)


def _never_fatal_survives_one(f: Callable[[Sink], Sink], error: type[Exception]) -> None:
    dies, after = random.randint(0, 4), random.randint(2, 5)
    calls = []

    def send(tag: str, step: int, value: float) -> None:
        calls.append(step)
        if step >= dies:
            raise error("the server has stopped")

    safe = _never_fatal_wrap(f, send)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for step in range(dies + after):
            try:
                safe(("loss", "accuracy")[step % 2], step, 0.0)
            except Exception:
                raise AssertionError("a send that fails still stops the training") from None
    assert warned, "send failed, and there was no warning"
    assert len(calls) == dies + 1, "send is called again after it has failed"
    assert len(warned) == 1, f"one failure, and {len(warned)} warnings"


def _never_fatal_named(f: Callable[[Sink], Sink]) -> None:
    got: list[tuple] = []

    def send(tag: str, step: int, value: float) -> None:
        got.append((tag, step, value))

    try:
        _never_fatal_wrap(f, send)(value=0.5, step=3, tag="loss")
    except TypeError as error:
        raise AssertionError(f"called with keyword arguments it fails: {error}") from None
    assert got == [("loss", 3, 0.5)], "keyword arguments are not passed on to send"


def _never_fatal_apart(f: Callable[[Sink], Sink]) -> None:
    def dead(*_: object) -> None:
        raise ConnectionError("the server has stopped")

    got: list[tuple] = []
    first, second = (
        _never_fatal_wrap(f, dead),
        _never_fatal_wrap(f, lambda *point: got.append(point)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first("loss", 0, 0.0)
    second("loss", 0, 0.0)
    assert got, "one send failed, and another one is not called either"


def _never_fatal_interrupts(f: Callable[[Sink], Sink]) -> None:
    def send(*_: object) -> None:
        raise KeyboardInterrupt

    safe = _never_fatal_wrap(f, send)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            safe("loss", 0, 0.0)
    except KeyboardInterrupt:
        return
    raise AssertionError("Ctrl-C does not stop the training: catch only Exception")


def check_never_fatal(answer: Callable[[Sink], Sink]) -> Verdict:
    """Check `answer(send)`: calls `send`, warns once when it fails, and does not call it again.

    `send` takes a tag, a step and a value. Each wrapped sink fails for itself alone.
    `KeyboardInterrupt` must pass.
    """
    return verdict(
        answer,
        [
            _never_fatal_passes,
            _never_fatal_survives,
            _never_fatal_apart,
            _never_fatal_survives_any,
            _never_fatal_interrupts,
            _never_fatal_named,
        ],
    )


def check_smooth(answer: Callable[[list[float], float], Sequence[float]]) -> Verdict:
    """Check `answer(values, weight)`: the moving average that TensorBoard's slider draws.

    The average starts at 0 and moves by `a = weight * a + (1 - weight) * value`; what is shown
    after `n` values is `a / (1 - weight**n)`. `weight` is in [0, 1).
    """

    def draw() -> tuple[list[float], float]:
        count = random.randint(3, 12)
        return [random.uniform(1, 3) for _ in range(count)], random.uniform(0.5, 0.95)

    def shown(f: Callable, values: list[float], weight: float) -> list[float]:
        before = list(values)
        got = f(values, weight)
        instance("a list", got, Sequence)
        assert values == before, "the input list was changed"
        assert len(got) == len(values), f"expected {len(values)} values, got {len(got)}"
        for value in got:
            assert isinstance(value, Real), f"expected numbers in the list, got {kind(value)}"
        return list(got)

    def near(a: float, b: float) -> bool:
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)

    def constant(f: Callable) -> None:
        values, weight = draw()
        flat = [values[0]] * len(values)
        got = shown(f, flat, weight)
        assert all(map(near, got, flat)), "a flat curve does not stay flat: divide by 1 - weight**n"

    def formula(f: Callable) -> None:
        compare(f, *draw())
        compare(f, [random.randint(0, 9) for _ in range(9)], 0.6)

    def compare(f: Callable, values: list[float], weight: float) -> None:
        average, right = 0.0, []
        for n, value in enumerate(values, 1):
            average = weight * average + (1 - weight) * value
            right.append(average / (1 - weight**n))
        got = shown(f, values, weight)
        wrong = [n for n, (a, b) in enumerate(zip(got, right, strict=True), 1) if not near(a, b)]
        assert not wrong, (
            f"value {wrong[0]} is {got[wrong[0] - 1]:.4f} and not {right[wrong[0] - 1]:.4f}"
        )

    def nothing(f: Callable) -> None:
        values, _ = draw()
        assert all(map(near, shown(f, values, 0.0), values)), "weight 0 must change nothing"
        shown(f, [], 0.5)

    return verdict(answer, [constant, formula, nothing])


def check_count_calls(answer: Callable[[Callable[[], Any], str], int]) -> Verdict:
    """Check `answer(function, operator)`: how often `operator` runs while `function()` does.

    `operator` is the name that the profiler gives it, such as `"aten::linear"`.
    """

    def task() -> tuple[Callable[[], Any], int, int]:
        layers, times = random.randint(2, 4), random.randint(2, 4)
        wide = [3] * layers + [2]  # the last layer has another shape
        net = nn.Sequential(
            *(nn.Sequential(nn.Linear(*wide[i : i + 2]), nn.ReLU()) for i in range(layers))
        )
        x = torch.randn(2, 3)

        def work() -> None:
            for _ in range(times):
                net(x)

        return work, layers, times

    def count(f: Callable, work: Callable[[], Any], operator: str) -> int:
        ran = []

        def function() -> None:
            ran.append(1)
            assert torch.is_grad_enabled(), "gradients are switched off while the function runs"
            work()

        with quiet():
            got = f(function, operator)
        assert ran, "the function was never called"
        assert len(ran) == 1, f"the function was called {len(ran)} times"
        return an_int(got)

    def linears(f: Callable) -> None:
        work, layers, times = task()
        for operator in ("aten::linear", "aten::relu", "aten::addmm"):  # linear calls addmm
            got = count(f, work, operator)
            assert got == layers * times, (
                f"{layers} layers called {times} times make {layers * times} {operator}, not {got}"
            )

    def absent(f: Callable) -> None:
        work, _, _ = task()
        got = count(f, work, "aten::conv2d")
        assert got == 0, f"nothing is convolved, expected 0, got {got}"
        got = count(f, work, "aten::add")
        assert got == 0, f"aten::addmm is not aten::add, expected 0, got {got}"

    return verdict(answer, [linears, absent])
