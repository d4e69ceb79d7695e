"""Checkers of the exercises, a module per chapter: they say what is wrong with an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.exercises.tools import global_state_kept

Test = Callable[[Any], None]


@dataclass
class Verdict:
    """What a checker found; its repr is the sentence shown to the reader."""

    passed: bool
    message: str

    def __repr__(self) -> str:
        return f"{'✓' if self.passed else '✗'} {self.message}"


def verdict(answer: Any, tests: Sequence[Test]) -> Verdict:
    """Run `tests` on `answer` in order and stop at the first that fails.

    A test fails by raising; an `AssertionError` carries the sentence for the reader.
    Any other exception comes from the answer itself and is named with its type.
    Each test begins with gradients on and a seed of its own, and fails if `answer` leaves gradients
    off, seeds PyTorch's global generator or changes the default dtype. All three are restored.

    Raises:
        ValueError: `tests` is empty, so that nothing would be checked.
    """
    if not tests:
        raise ValueError("verdict needs at least one test, got none")
    for test in tests:
        try:
            with global_state_kept():
                test(answer)
        except AssertionError as wrong:
            return Verdict(False, f"not yet: {wrong}")
        except Exception as error:
            return Verdict(False, f"not yet: your code raised {type(error).__name__}: {error}")
    return Verdict(True, f"correct: {len(tests)} check{'s' * (len(tests) > 1)} passed")
