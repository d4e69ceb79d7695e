"""Checkers of the exercises of the chapter on training in many processes."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_float, kind, random_state_kept, unchanged


def _partition_cases() -> Iterator[tuple[int, int, int]]:
    for world in (1, 2, 3, 4):
        yield int(torch.randint(20, 40, ())), world, int(torch.randint(0, 5, ()))
    yield 25, 4, 0  # with shards of ceil(25 / 4), the last process has only 4 samples
    yield 300, 7, 2
    yield 3, 4, 1


def _partition_shares(f: Any, n: int, world: int, epoch: int) -> list[list[int]]:
    shares = []
    for rank in range(world):
        hashes = _hashes_of_another_process()
        with hashes, torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.SystemRandom().getrandbits(32))  # as in another process
            share = list(f(n, rank, world, epoch))
        for index in share:
            whole = isinstance(index, Tensor) and not index.is_floating_point()
            assert whole or hasattr(index, "__index__") and not isinstance(index, Tensor), (
                f"an index is {index!r}, which is no integer"
            )
        shares.append([int(index) for index in share])
    return shares


def _partition_neighbours(shares: list[list[int]]) -> set[tuple[int, int]]:
    return {pair for share in shares for pair in zip(share, share[1:], strict=False)}


def _partition_once(f: Any) -> None:
    for n, world, epoch in _partition_cases():
        got = _partition_shares(f, n, world, epoch)
        every = sorted(index for share in got for index in share)
        where = f"{n} samples on {world} process{'es' * (world > 1)}"
        strangers = [index for index in every if not 0 <= index < n]
        assert not strangers, f"{where}: {strangers[0]} is not an index from 0 to {n - 1}"
        twice = sorted({a for a, b in zip(every, every[1:], strict=False) if a == b})
        assert not twice, f"{where}: sample {twice[0]} is used twice"
        missing = sorted(set(range(n)) - set(every))
        assert not missing, f"{where}: sample {missing[0]} is never used"
        sizes = [len(share) for share in got]
        assert max(sizes) - min(sizes) <= 1, f"{where}: uneven shares {sizes}"


def _partition_agrees(f: Any) -> None:
    assert _partition_shares(f, 30, 2, 3) == _partition_shares(f, 30, 2, 3), (
        "the same epoch gives another order the second time: a restart would not match"
    )


def _partition_fresh(f: Any) -> None:
    epochs = [_partition_shares(f, 30, 2, epoch) for epoch in (*range(13), 16, 20, 32, 100)]
    for shares in epochs:
        steps = {(b - a) % 30 for share in shares for a, b in zip(share, share[1:], strict=False)}
        assert len(steps) > 2, "the order is not shuffled"
    first = epochs[0]
    for number, one in enumerate(epochs):
        for other in epochs[:number]:
            assert one != other, "two epochs have the same order"
            assert len(_partition_neighbours(one) & _partition_neighbours(other)) < 15, (
                "the same samples follow one another in two epochs: draw a new permutation"
            )
    assert set(epochs[1][0]) != set(first[0]), (
        "a process uses the same samples in every epoch; only their order changes"
    )

    places = torch.arange(60.0)
    drawn = [
        torch.tensor(_partition_shares(f, 60, 1, epoch)[0], dtype=torch.float) for epoch in range(6)
    ]
    near = [torch.corrcoef(torch.stack([places, order]))[0, 1].abs() for order in drawn]
    assert sum(near) / len(near) < 0.6, "samples stay near their positions: shuffle all of them"


def _partition_own_state(f: Any) -> None:
    with random_state_kept(
        "the random state of the process changed ({}), so all processes would go on with the "
        "same numbers: use a generator of its own"
    ):
        f(30, 0, 2, 0)


def check_partition(answer: Callable[[int, int, int, int], Sequence[int]]) -> Verdict:
    """Check `answer(n, rank, world, epoch)`: which of `n` samples a process uses in an epoch.

    All processes together must use every sample once, in a new permutation in each epoch,
    and none may get two samples more than another.
    """
    return verdict(
        answer, [_partition_once, _partition_agrees, _partition_fresh, _partition_own_state]
    )


def _hashes_of_another_process() -> Any:
    """Hash strings as another process would: each has its own salt."""
    salt = random.SystemRandom().random()

    def has_text(value: Any) -> bool:
        return isinstance(value, str | bytes) or (
            isinstance(value, tuple) and any(map(has_text, value))
        )

    def hashed(value: Any) -> int:
        return value.__hash__() if not has_text(value) else (salt, value).__hash__()

    return mock.patch("builtins.hash", hashed)


class _Hung(Exception):
    """Raised if a rank waits for a call that the others never make."""


class _Ranks:
    """`all_reduce` between threads that represent processes; a call that not all make ends.

    Each call adds up the tensors of the ranks in place, as `dist.all_reduce` does.
    """

    def __init__(self, world: int, seconds: float = 20) -> None:
        self.world, self.seconds = world, seconds
        self.lock = threading.Condition()
        self.handed: list[Tensor] = []
        self.round, self.done, self.calls = 0, 0, [0] * world
        self.sum: Tensor | None = None
        self.trouble: str | None = None

    def all_reduce(self, rank: int, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"all_reduce takes a tensor, got {kind(tensor)}")
        with self.lock:
            self.calls[rank] += 1
            mine = self.round
            if any(tensor.shape != x.shape or tensor.dtype != x.dtype for x in self.handed):
                self._fail("the ranks hand over tensors of different shapes or dtypes")
            self.handed.append(tensor.detach().clone())
            if len(self.handed) == self.world:
                self.sum = torch.stack(self.handed).sum(0)
                self.handed, self.round = [], mine + 1
                self.lock.notify_all()
            else:
                self._check_for_deserters()
                self.lock.wait_for(lambda: self.round > mine or self.trouble, self.seconds)
            if self.trouble or self.round == mine:
                raise _Hung(self.trouble or "it hangs: a rank waits in all_reduce")
            total = self.sum
        with torch.no_grad():
            tensor.copy_(total)

    def leave(self) -> None:
        """Record that a rank makes no more calls."""
        with self.lock:
            self.done += 1
            self._check_for_deserters()

    def _check_for_deserters(self) -> None:
        if self.handed and not self.trouble and len(self.handed) + self.done >= self.world:
            self.trouble = (
                f"it hangs: {len(self.handed)} of {self.world} ranks wait in all_reduce, "
                "and the others have gone on"
            )
            self.lock.notify_all()

    def _fail(self, trouble: str) -> None:
        self.trouble = trouble
        self.lock.notify_all()
        raise _Hung(trouble)


def _on_ranks(f: Callable, inputs: Sequence[Tensor]) -> list[Any]:
    """Return what `f(values, all_reduce)` returns on each rank; each process is a thread.

    Raises:
        AssertionError: the calls of the ranks do not fit together.
        Exception: the first that `f` raised on a rank.
    """
    ranks = _Ranks(len(inputs))
    results: list[Any] = [None] * len(inputs)
    raised: list[Exception | None] = [None] * len(inputs)

    def play(rank: int) -> None:
        try:
            results[rank] = f(inputs[rank], lambda tensor: ranks.all_reduce(rank, tensor))
        except Exception as error:
            raised[rank] = error
        finally:
            ranks.leave()

    threads = [threading.Thread(target=play, args=(r,), daemon=True) for r in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a rank does not come back"
    for error in raised:
        if error is not None and not isinstance(error, _Hung):
            raise error
    assert not ranks.trouble, ranks.trouble
    for error in raised:
        assert error is None, str(error)
    return results


def check_mean(answer: Callable[[Tensor, Callable[[Tensor], None]], float]) -> Verdict:
    """Check `answer(values, all_reduce)`: the mean over all samples of all ranks, as a float.

    `values`, float32 of shape (n,), are those of one rank; n differs, and may be 0, but not on all
    ranks. `all_reduce(tensor)` adds up a tensor over the ranks, in place, and every rank must call
    it equally often, with tensors of one shape and dtype.
    """

    def broken(f: Any) -> None:
        for got in _on_ranks(f, [torch.tensor([1.0, math.nan]), torch.ones(3)]):
            assert math.isnan(a_float(got)), "a nan among the values is hidden"

    def compare(f: Any, sizes: Sequence[int], what: str, shift: float = 0) -> None:
        inputs = [torch.randn(n) + 3 * rank + shift for rank, n in enumerate(sizes)]
        right = torch.cat(inputs).double().mean().item()
        with unchanged(values=inputs):
            results = _on_ranks(f, inputs)
        for rank, got in enumerate(results):
            got = a_float(got, f"{what}: rank {rank}")
            assert abs(got - right) < 1e-3 * max(1.0, abs(right)), (
                f"{what}: rank {rank} finds {got:.3f} instead of {right:.3f}"
            )

    def equal(f: Any) -> None:
        compare(f, [4, 4], "two ranks of 4 values")

    def uneven(f: Any) -> None:
        for world in (2, 3, 4):
            sizes = torch.randint(1, 9, (world,)).tolist()
            sizes[0] = sizes[-1] + 5
            compare(f, sizes, f"{' + '.join(map(str, sizes))} values")

    def alone(f: Any) -> None:
        compare(f, [int(torch.randint(2, 9, ()))], "one rank")

    def empty(f: Any) -> None:
        compare(f, [0, 5], "a rank without a value")
        compare(f, [3, 0, 4], "a rank without a value")

    def large(f: Any) -> None:
        compare(f, [500, 301], "500 + 301 values of about 1000", shift=1000)

    return verdict(answer, [equal, uneven, alone, empty, large, broken])
