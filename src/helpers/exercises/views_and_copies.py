"""Checkers of the exercises of the chapter "Views and copies"."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, an_int, instance, learns, leaves
from helpers.views_and_copies import same_storage, storage_cells


def check_position(answer: Callable[[Tensor, tuple[int, ...]], int]) -> Verdict:
    """Check `answer(t, index)`: the number of the storage cell that `t[index]` reads.

    `index` is a tuple of as many non-negative integers as `t` has dimensions.
    """

    def inside(t: Tensor) -> tuple[int, ...]:
        return tuple(int(torch.randint(0, n, ())) for n in t.shape)

    def packed(index: Sequence[int], shape: Sequence[int]) -> int:
        return sum(i * math.prod(shape[d + 1 :]) for d, i in enumerate(index))

    def compare(f, t: Tensor, index: tuple[int, ...]) -> None:
        want, offset = int(storage_cells(t)[index]), t.storage_offset()
        got = leaves(f, "t", copied=False)(t, index)
        an_int(got)
        if got == want:
            return
        where = f"shape {tuple(t.shape)}, stride {t.stride()}, offset {offset}, index {index}"
        assert offset == 0 or got != want - offset, f"the offset is missing: {where}"
        assert got not in (packed(index, t.shape), packed(index, t.shape) + offset), (
            f"that is the cell in a contiguous tensor; use the strides of t: {where}"
        )
        raise AssertionError(f"got cell {got}: {where}")

    def fresh(f):
        t = torch.rand(3, 4, 5)
        compare(f, t, (2, 3, 4))
        compare(f, t, inside(t))

    def sliced(f):  # its offset is larger than any position inside the slice
        t = torch.rand(12, 9)[8:, 1::2]
        compare(f, t, (3, 2))
        compare(f, t, inside(t))

    def turned(f):
        t = torch.rand(2, 3, 4).permute(2, 0, 1)
        compare(f, t, (3, 1, 1))
        compare(f, t, inside(t))

    def expanded(f):
        t = torch.rand(3, 1).expand(3, 5)
        compare(f, t, (2, 4))
        compare(f, t, inside(t))

    def other(f):
        compare(f, torch.rand(5, 4, 3, 2, 3, dtype=torch.float64)[1:, ::2], (3, 1, 2, 1, 2))
        compare(f, torch.zeros(6, dtype=torch.uint8)[4], ())

    return verdict(answer, [fresh, sliced, turned, expanded, other])


def check_split_heads(answer: Callable[[Tensor, int], Tensor]) -> Verdict:
    """Check `answer(x, heads)`: (B, T, heads * D) as (B, heads, T, D), without copying.

    Head h of token t is `x[:, t, h * D : (h + 1) * D]`. `x` may be a slice of a
    larger tensor, or transposed.
    """

    def draw() -> tuple[Tensor, int]:
        b, t, h, d = (int(torch.randint(2, 5, ())) for _ in range(4))
        return torch.rand(b, t, h * d), h

    def compare(f, x: Tensor, heads: int) -> None:
        b, t, width = x.shape
        got = leaves(f, "x", copied=False)(x, heads)
        a_tensor(got)
        shape = (b, heads, t, width // heads)
        assert got.shape == shape, f"expected shape {shape}, got {tuple(got.shape)}"
        want = torch.stack(x.chunk(heads, dim=2), dim=1)
        assert torch.equal(got, want), (
            "the shape is right, but the values are scrambled: view and reshape do not swap "
            "dimensions"
        )
        assert same_storage(got, x), "the values are right, but they were copied"

    def values(f):
        compare(f, *draw())
        for heads in (1, 3):  # a single head; a single feature for each head
            compare(f, torch.rand(2, 4, 3), heads)

    def slices(f):
        x, heads = draw()
        compare(f, torch.cat([x, x + 1, x + 2], dim=2).chunk(3, dim=2)[1], heads)

    def turned(f):
        x, heads = draw()
        compare(f, x.double().transpose(1, 2).contiguous().transpose(1, 2), heads)

    def gradient(f):
        x, heads = draw()
        x.requires_grad_()
        learns(f(x, heads), x, "the gradient does not flow back to x")

    return verdict(answer, [values, slices, turned, gradient])


def _compact_stored(state: dict[str, Tensor]) -> int:
    storages = [t.untyped_storage() for t in state.values()]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def _compact_run(f, state: dict[str, Tensor]) -> dict[str, Tensor]:
    got = leaves(f, "state")(dict(state))
    instance("a dict", got, dict)
    assert sorted(got) == sorted(state), f"expected the keys {list(state)}, got {list(got)}"
    for name, t in state.items():
        same = isinstance(got[name], Tensor) and got[name].dtype == t.dtype
        assert same and torch.equal(got[name], t), f"{name} has changed"
    return got


def _compact_slices(f):
    big = torch.rand(100, 10)
    state = {"row": big[3], "column": big[:, 3], "part": torch.arange(50)[::7]}
    state["most"] = torch.rand(100)[:80]
    for name, t in _compact_run(f, state).items():
        kept = t.untyped_storage().nbytes()
        assert kept <= t.nbytes, f"{name} has {t.nbytes} bytes in a storage of {kept}"


def _compact_whole(f):
    state = {"weight": torch.rand(4, 5), "turned": torch.rand(4, 5).t()}
    state["half"], state["double"] = torch.rand(4).half(), torch.rand(4).double()
    for name, t in _compact_run(f, state).items():
        assert same_storage(t, state[name]), f"{name} filled its storage, but it was copied"
        assert t is state[name], f"{name} filled its storage, but another tensor is returned"


def _compact_expanded(f):
    state = {"expanded": torch.rand(3, 1).expand(3, 100)}
    now = _compact_stored(_compact_run(f, state))
    assert now <= 12, f"an expanded tensor in a storage of 12 bytes now takes {now}"


def _compact_together(f):
    big = torch.rand(100)
    state = {"first": big[:60], "last": big[40:]}
    got = _compact_run(f, state)
    old, now = _compact_stored(state), _compact_stored(got)
    assert now <= old, f"two tensors that overlap took {old} bytes, and now take {now}"
    assert same_storage(*got.values()), "tensors that filled their storage no longer share it"


def _compact_few(f):
    big = torch.rand(100)
    state = {"first": big[:10], "last": big[90:], "none": big[:0]}
    now = _compact_stored(_compact_run(f, state))
    assert now <= 80, f"two slices of 40 bytes and an empty one now take {now}"


def _compact_bytes(f):
    storage = torch.rand(10)
    state = {"numbers": storage[:2], "bytes": storage.view(torch.uint8)[8:24]}
    now = _compact_stored(_compact_run(f, state))
    assert now <= 24, f"slices of 8 and 16 bytes, in two dtypes, now take {now}: add up bytes"


def check_compact(answer: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Verdict:
    """Check `answer(state)`: the same tensors, without storages that they do not need.

    A storage that is larger than all tensors of the state in it together is not kept; all other
    tensors stay as they are. So the bytes of all storages never grow.
    """
    return verdict(
        answer,
        [
            _compact_slices,
            _compact_whole,
            _compact_expanded,
            _compact_together,
            _compact_few,
            _compact_bytes,
        ],
    )
