"""Checkers of the exercises of the chapter on reproducibility."""

from __future__ import annotations

import math
import random
import subprocess
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from helpers.demos.reproducibility import job
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import leaves, random_state_kept, random_states
from helpers.reproducibility import draws


def check_undisturbed(answer: Callable[[Callable[[], Any], int], Any]) -> Verdict:
    """Check `answer(function, seed)`: `function()` under `seed`, all global streams restored."""

    def shuffle() -> None:
        for _ in range(random.SystemRandom().randint(1, 9)):
            draws()  # the seed alone does not restore this state

    def repeats(f):
        shuffle()
        seed = random.SystemRandom().randrange(2**32)
        first = f(draws, seed)
        assert isinstance(first, dict), "the result of function() is not returned"
        draws()
        second, other = f(draws, seed), f(draws, (seed + 1) % 2**32)
        for name in first:
            assert first[name] == second[name], f"{name} draws other numbers under the same seed"
            assert first[name] != other[name], f"{name} draws the same numbers under another seed"

    def puts_back(f):
        shuffle()
        with random_state_kept():
            f(draws, 3)

    def once(f):
        calls = []
        f(lambda: calls.append(draws()), 3)
        assert len(calls) == 1, f"function() is called {len(calls)} times"

    def after_error(f):
        for error in (ZeroDivisionError, KeyboardInterrupt):

            def fails(error=error):
                draws()
                raise error

            shuffle()
            before = random_states()
            try:
                f(fails, 3)
            except error:
                pass
            else:
                raise AssertionError("the exception of function() is not raised")
            assert random_states() == before, (
                f"after a {error.__name__} the random states are not restored"
            )

    return verdict(answer, [repeats, puts_back, once, after_error], draws=True)


def check_sum(answer: Callable[[Tensor], float]) -> Verdict:
    """Check `answer(x)`: the sum of float32 numbers, to the last bit the same in every order."""

    def numbers() -> Tensor:
        big = torch.rand(100) * 10.0 ** torch.randint(4, 12, (100,))
        x = torch.cat([big, -big, torch.randn(100)])
        return x[torch.randperm(300)]

    def value(f):
        twice = torch.rand(150).repeat(2)
        for x in (numbers(), twice, 1e-6 * torch.rand(300)):  # a 0 hides among big ones
            got = float(f(x))
            exact, size = math.fsum(x.tolist()), x.double().abs().sum().item()
            assert abs(got - exact) <= 1e-5 * size, "the result is not the sum"

    def order(f):
        near = torch.randn(100)  # of one size, and of both signs
        ties = torch.tensor([2.0**20, -(2.0**20), 2.0**-33])  # float64 rounds one order only
        for x in (numbers(), torch.cat([near, -near, torch.rand(101)]), ties):
            sums = {float(f(x[torch.randperm(len(x))])) for _ in range(10)}
            assert len(sums) == 1, "a different order of the same numbers gives a different sum"

    def untouched(f):
        x = numbers()
        with random_state_kept():
            leaves(f, "x")(x)

    return verdict(answer, [value, order, untouched])


def check_stop(answer: Callable[[subprocess.Popen[str]], Any]) -> Verdict:
    """Check `answer(process)`: terminated first, and killed only if it ignores SIGTERM.

    The jobs need up to half a second to clean up; more than 20 s in all is too long.
    """
    import time

    def polite(f):
        with job() as j:
            f(j.process)
            left = j.left_behind()
            assert "process" not in left, "the process is still running"
            assert not left, (
                f"killed before it could clean up: the {' and the '.join(left)} remained"
            )

    def deaf(f):
        with job(deaf=True) as j:
            begin = time.monotonic()
            try:
                f(j.process)
                reaped = j.process.returncode is not None
                j.process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                raise AssertionError("a process that ignores SIGTERM is left running") from None
            assert time.monotonic() - begin < 20, "kill() comes too late"
            assert reaped, "after kill(), wait for the process: until then it has not ended"

    def gone(f):
        with job() as j:
            j.process.terminate()
            j.process.wait()
            f(j.process)  # must not fail on a process that has ended

    return verdict(answer, [polite, deaf, gone])
