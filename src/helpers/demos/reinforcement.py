"""Environment of the chapter on reinforcement learning: a corridor with a reward at its end."""

from __future__ import annotations

import torch
from torch import Tensor


class Corridor:
    """Corridor whose last cell gives the reward 1 and terminates the episode.

    An episode starts in cell 0. Action 1 moves to the right and action 0 to the left; at cell 0
    a move to the left has no effect. As some environments do, it returns the same tensor after
    each step and changes it in place.

    Args:
        length: number of cells, at least 2.
        limit: number of steps after which the episode is truncated.
        slip: probability that a move goes in the other direction.

    Raises:
        ValueError: `length` is below 2, `limit` below 1, or `slip` outside [0, 1].
    """

    def __init__(self, length: int = 5, limit: int = 20, slip: float = 0.0) -> None:
        if length < 2:
            raise ValueError(f"length must be at least 2, got {length}")
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        if not 0 <= slip <= 1:
            raise ValueError(f"slip must be from 0 to 1, got {slip}")
        self.length, self.limit, self.slip = length, limit, slip
        self.state = torch.zeros(length)
        self.generator, self.ended = torch.Generator(), True

    def reset(self, seed: int | None = None) -> Tensor:
        """Return the first state, one-hot of shape (length,); `seed` seeds the slips."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self.cell = self.steps = 0
        self.ended = False
        return self._observe()

    def step(self, action: int) -> tuple[Tensor, float, bool, bool]:
        """Return the next state, the reward, and whether the episode is terminated, truncated.

        Raises:
            ValueError: `action` is neither 0 nor 1.
            RuntimeError: the episode has ended or was not started.
        """
        if action not in (0, 1):
            raise ValueError(f"expected the action 0 or 1, got {action}")
        if self.ended:
            raise RuntimeError("the episode has ended or was not started: call reset() first")
        slips = torch.rand((), generator=self.generator).item() < self.slip
        move = 1 if bool(action) != slips else -1
        self.cell, self.steps = max(self.cell + move, 0), self.steps + 1
        terminated = self.cell == self.length - 1
        truncated = self.steps == self.limit and not terminated
        self.ended = terminated or truncated
        return self._observe(), float(terminated), terminated, truncated

    def _observe(self) -> Tensor:
        self.state.zero_()[self.cell] = 1
        return self.state
