"""Provide the assertion on a checker's verdict, and a wrong answer that all checkers reject."""

import torch


def expect(result, says):
    """Assert that a verdict passes if `says` is None, else that it fails with this message."""
    assert result.passed == (says is None), result
    assert says is None or says in result.message, result


def seeding(answer):
    """Return an answer that calls `torch.manual_seed` first."""

    def seeded(*arguments):
        torch.manual_seed(torch.initial_seed() + 1)
        return answer(*arguments)

    return seeded
