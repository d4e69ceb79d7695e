"""Check answers to the exercises; each chapter has a module with its checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from helpers.exercises.tools import global_state_kept, without_draws

Test = Callable[[Any], None]


@dataclass
class Verdict:
    """Result of a checker; its repr is the sentence that the reader sees."""

    passed: bool
    message: str

    def __repr__(self) -> str:
        return f"{'✓' if self.passed else '✗'} {self.message}"


def verdict(answer: Any, tests: Sequence[Test], draws: bool = False) -> Verdict:
    """Run `tests` on `answer` in order and stop at the first that fails.

    A test fails by raising; the message of an `AssertionError` is the sentence for the reader.
    Any other exception is attributed to the answer and reported with its type.
    Each test starts with gradients enabled and its own seed, and fails if `answer` leaves gradients
    disabled, seeds a global generator, or changes a setting of the process, such as the default
    dtype or the number of threads. All are restored. If `answer` is a function, it must not draw
    from the global generators either; with `draws` it may.

    Raises:
        ValueError: `tests` is empty.
    """
    if not tests:
        raise ValueError("verdict needs at least one test, got none")
    if not draws and isinstance(answer, FunctionType):
        answer = without_draws(answer)
    for test in tests:
        try:
            with global_state_kept():
                test(answer)
        except AssertionError as wrong:
            return Verdict(False, f"not yet: {wrong}")
        except Exception as error:
            return Verdict(False, f"not yet: your code raised {type(error).__name__}: {error}")
    return Verdict(True, f"correct: {len(tests)} check{'s' * (len(tests) > 1)} passed")
