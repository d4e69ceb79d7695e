"""Checkers of the exercises of the chapter on installing."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from helpers.exercises import Verdict, verdict
from helpers.installation import driver_suffices, runs

Builds = dict[str, tuple[str, list[str]]]

CAPABILITIES = [(5, 2), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
DRIVERS = ["450.80.02", "470.256.02", "525.60.13", "535.104.05", "580.65.06"]


def _archs(kinds: tuple[str, ...] = ("sm", "compute")) -> list[str]:
    drawn = random.sample(CAPABILITIES, random.randint(1, 5))
    return [f"{random.choice(kinds)}_{major}{minor}" for major, minor in drawn]


def _will_run_ask(f, capability, archs):
    given = list(archs)
    got = f(capability, given)
    call = f"will_run({capability}, {archs})"
    assert isinstance(got, bool | np.bool_), f"{call} is {got!r}, expected True or False"
    assert given == archs, f"{call} changed its argument"
    expected = runs(capability, archs) is not None
    assert got == expected, f"{call} is {got}, expected {expected}"


def _will_run_binary(f):
    for capability, archs in [
        ((8, 6), ["sm_86"]),
        ((8, 9), ["sm_80", "sm_86"]),  # later minor version
        ((8, 0), ["sm_86"]),  # earlier one
        ((9, 0), ["sm_80", "sm_86"]),  # another major version
        ((12, 0), ["sm_100", "sm_120"]),  # two digits
        ((12, 0), ["sm_100"]),
        ((12, 1), ["sm_120"]),
        ((1, 2), ["sm_120"]),
    ]:
        _will_run_ask(f, capability, archs)


def _will_run_intermediate(f):
    for capability, archs in [
        ((9, 0), ["compute_80"]),
        ((8, 6), ["compute_90"]),
        ((12, 0), ["sm_90", "compute_90"]),
        ((8, 0), ["compute_86"]),
        ((10, 0), ["compute_86"]),
        ((8, 6), []),
        ((9, 0), ["sm_90a"]),  # for this architecture alone
        ((10, 3), ["sm_100a"]),
        ((10, 3), ["compute_100a"]),
        ((9, 0), ["compute_90a"]),
        ((10, 0), ["sm_90a", "compute_90a"]),
        ((10, 3), ["compute_100f"]),
        ((12, 0), ["sm_120f"]),
        ((10, 0), ["sm_103f"]),  # a family has no earlier minor versions
        ((10, 0), ["compute_103f"]),
        ((12, 1), ["sm_120f", "sm_120a"]),
        ((12, 1), ["sm_120a", "compute_120a"]),
        ((12, 0), ["compute_100f"]),  # another major version
    ]:
        _will_run_ask(f, capability, archs)


def _will_run_any_machine(f):
    for _ in range(200):
        _will_run_ask(f, random.choice(CAPABILITIES), _archs())


def check_will_run(answer: Callable[[tuple[int, int], list[str]], bool]) -> Verdict:
    """Check `answer(capability, archs)`: whether a build has code that the GPU can run."""

    return verdict(answer, [_will_run_binary, _will_run_intermediate, _will_run_any_machine])


def _choose_newest(builds: Builds, driver: str, capability: tuple[int, int]) -> str | None:
    ways = [
        ([int(part) for part in cuda.split(".")], name)
        for name, (cuda, archs) in builds.items()
        if driver_suffices(driver, cuda) and runs(capability, archs)
    ]
    return max(ways)[1] if ways else None


def _choose_ask(f, builds, driver, capability):
    before = {name: (cuda, list(archs)) for name, (cuda, archs) in builds.items()}
    got, expected = f(builds, driver, capability), _choose_newest(before, driver, capability)
    call = f"choose({before}, {driver!r}, {capability})"
    assert builds == before, f"{call} changed its argument"
    assert got == expected, f"{call} is {got!r}, expected {expected!r}"


def _choose_a_card(f):
    builds = {
        "cu126": ("12.6", ["sm_60", "sm_80"]),
        "cu128": ("12.8", ["sm_80", "sm_120"]),
        "cu130": ("13.0", ["sm_80", "sm_120"]),
    }
    for capability in [(6, 1), (8, 9), (12, 0), (7, 0)]:
        for driver in DRIVERS:
            _choose_ask(f, builds, driver, capability)


def _choose_named(f):
    """Check that versions are compared as numbers, and that names of builds are not used."""
    builds = {"old": ("12.6", ["sm_80"]), "new": ("12.10", ["sm_80"])}
    for order in (builds, dict(reversed(builds.items()))):
        _choose_ask(f, order, "580.65.06", (8, 0))
    _choose_ask(f, {"z": ("11.8", ["sm_80"]), "a": ("12.1", ["sm_80"])}, "525.60.13", (8, 0))


def _choose_nothing(f):
    _choose_ask(f, {}, "580.65.06", (8, 0))
    _choose_ask(f, {"cu118": ("11.8", ["sm_90"])}, "580.65.06", (8, 0))


def _choose_any_machine(f):
    for _ in range(100):
        versions = random.sample(["11.8", "12.1", "12.4", "12.6", "12.10", "13.0"], 3)
        names = random.sample(["a", "b", "c", "d"], 3)
        builds = {n: (v, _archs()) for n, v in zip(names, versions, strict=True)}
        _choose_ask(f, builds, random.choice(DRIVERS), random.choice(CAPABILITIES))


def check_choose(answer: Callable[[Builds, str, tuple[int, int]], str | None]) -> Verdict:
    """Check `answer(builds, driver, capability)`: the newest build that runs there, or None."""

    return verdict(answer, [_choose_a_card, _choose_named, _choose_nothing, _choose_any_machine])
