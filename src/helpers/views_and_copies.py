"""Helpers of the chapter "Tell views from copies".

Source: "Tensor Views", https://pytorch.org/docs/stable/tensor_view.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Operation = Callable[[Tensor], Tensor]

TABLE: dict[str, Operation] = {
    "t[0]": lambda t: t[0],
    "t[:, ::2]": lambda t: t[:, ::2],
    "t.transpose(0, 1)": lambda t: t.transpose(0, 1),
    "t.permute(1, 0)": lambda t: t.permute(1, 0),
    "t.unsqueeze(0)": lambda t: t.unsqueeze(0),
    "t.expand(2, -1, -1)": lambda t: t.expand(2, -1, -1),
    "t.diagonal()": lambda t: t.diagonal(),
    "t.unfold(1, 2, 1)": lambda t: t.unfold(1, 2, 1),
    "t.chunk(2)[0]": lambda t: t.chunk(2)[0],
    "t.detach()": lambda t: t.detach(),
    "t.reshape(-1)": lambda t: t.reshape(-1),
    "t.flatten()": lambda t: t.flatten(),
    "t.contiguous()": lambda t: t.contiguous(),
    "t.to(t.dtype)": lambda t: t.to(t.dtype),
    "t.to(torch.float64)": lambda t: t.to(torch.float64),
    "t[[0, 1]]": lambda t: t[[0, 1]],
    "t[t > 0]": lambda t: t[t > 0],
    "t.flip(0)": lambda t: t.flip(0),
    "t.roll(1)": lambda t: t.roll(1),
    "t.repeat(2, 1)": lambda t: t.repeat(2, 1),
    "torch.cat([t, t])": lambda t: torch.cat([t, t]),
    "t + 0": lambda t: t + 0,
    "t.clone()": lambda t: t.clone(),
}


def same_storage(a: Tensor, b: Tensor) -> bool:
    """Whether `a` and `b` lie in the same storage, so that writing into one can change the other.

    Two slices of one tensor share its storage even where they have no element in common. An empty
    tensor has no memory to share.
    """
    storages = a.untyped_storage(), b.untyped_storage()
    return bool(storages[0].nbytes()) and storages[0].data_ptr() == storages[1].data_ptr()


def view_or_copy(operation: Operation, t: Tensor) -> str:
    """What `operation(t)` returns: `"itself"` (the object `t`), `"view"` or `"copy"`.

    "view" means that the result shares the storage of `t`, as `t.detach()` also does.
    """
    y = operation(t)
    return "itself" if y is t else "view" if same_storage(y, t) else "copy"


def copy_table(*tensors: Tensor) -> dict[str, list[str]]:
    """Run every operation of `TABLE` on each of `tensors` and say what it returned.

    Args:
        tensors: two-dimensional, floating point, at least 2 by 2.

    Returns:
        For each operation the verdicts of `view_or_copy`, in the order of `tensors`.

    Raises:
        ValueError: a tensor has another form.
    """
    for t in tensors:
        if t.ndim != 2 or min(t.shape) < 2 or not t.is_floating_point():
            raise ValueError(
                "expected floating point tensors of at least 2 by 2, got "
                f"{t.dtype} of shape {tuple(t.shape)}"
            )
    return {
        code: [view_or_copy(operation, t) for t in tensors] for code, operation in TABLE.items()
    }


def storage_cells(t: Tensor) -> Tensor:
    """The number of the storage cell that each element of `t` reads, counted from 0.

    Element `t[i, j]` reads cell `offset + i * stride[0] + j * stride[1]`. The numbers are found by
    reading a storage that holds 0, 1, 2, … through the shape, strides and offset of `t`.

    Returns:
        int64, of the shape of `t`.
    """
    count = t.untyped_storage().nbytes() // t.element_size()
    return torch.arange(count).as_strided(t.shape, t.stride(), t.storage_offset())


def draw_storage(tensors: Mapping[str, Tensor]) -> Figure:
    """Draw the storage of each image tensor as a strip of cells, labelled by channel and pixel.

    Args:
        tensors: by title; each of shape (1, C, H, W), with at most 4 channels, filling its
            storage.

    Raises:
        ValueError: a tensor has another shape or does not fill its storage, or there is none.
    """
    import matplotlib.pyplot as plt

    if not tensors:
        raise ValueError("draw_storage needs at least one tensor, got none")
    for title, t in tensors.items():
        if t.ndim != 4 or len(t) != 1 or t.shape[1] > 4:
            raise ValueError(
                f"expected shape (1, C, H, W) with C up to 4, got {tuple(t.shape)} for {title!r}"
            )
        if sorted(storage_cells(t).flatten().tolist()) != list(
            range(t.untyped_storage().nbytes() // t.element_size())
        ):
            raise ValueError(f"{title!r} does not read every cell of its storage once")
    faces = ["#bfe3ea", "#fbd5b5", "#e2e2e2", "#ffffff"]
    figure, axes = plt.subplots(len(tensors), 1, figsize=(8, 1.4 * len(tensors)), squeeze=False)
    for axis, (title, t) in zip(axes[:, 0], tensors.items(), strict=True):
        for index, cell in zip(_indices(t.shape), storage_cells(t).flatten().tolist(), strict=True):
            _, c, row, column = index
            axis.add_patch(
                plt.Rectangle((cell, 0), 1, 1, facecolor=faces[c], edgecolor="#555", linewidth=1)
            )
            axis.text(cell + 0.5, 0.64, f"c{c}", ha="center", va="center", fontsize=13)
            axis.text(cell + 0.5, 0.26, f"{row},{column}", ha="center", va="center", fontsize=11)
        axis.set(xlim=(0, t.numel()), ylim=(0, 1))
        axis.set_title(title, loc="left", fontsize=12)
        axis.axis("off")
    figure.tight_layout()
    return figure


def _indices(shape: Sequence[int]) -> list[list[int]]:
    return torch.cartesian_prod(*map(torch.arange, shape)).reshape(-1, len(shape)).tolist()


def gradient_after(write: Callable[[Tensor], object]) -> float | str:
    """What becomes of the gradient of `x` when `write(s)` meddles with `s = sigmoid(x)`.

    `x` is `[0., 0.]`, so the right gradient of `s.sum()` is 0.25.

    Returns:
        The first element of the gradient, or `"caught"` where the backward pass raised.
    """
    x = torch.zeros(2, requires_grad=True)
    s = torch.sigmoid(x)
    write(s)
    try:
        s.sum().backward()
    except RuntimeError:
        return "caught"
    return round(x.grad[0].item(), 2)


# ---------------------------------------------------------------- exercises


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
        got = f(t, index)
        assert isinstance(got, int), f"expected an int, got {type(got).__name__}"
        if got == want:
            return
        where = f"shape {tuple(t.shape)}, stride {t.stride()}, offset {offset}, index {index}"
        assert offset == 0 or got != want - offset, f"the offset is missing: {where}"
        assert got not in (packed(index, t.shape), packed(index, t.shape) + offset), (
            f"that is the cell in a contiguous tensor; take the strides as they are: {where}"
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

    return verdict(answer, [fresh, sliced, turned, expanded])


def check_split_heads(answer: Callable[[Tensor, int], Tensor]) -> Verdict:
    """Check `answer(x, heads)`: (B, T, heads * D) as (B, heads, T, D), without copying.

    Head h of token t is `x[:, t, h * D : (h + 1) * D]`. `x` is float32; it may be a slice of a
    larger tensor.
    """

    def draw() -> tuple[Tensor, int]:
        b, t, h, d = (int(torch.randint(2, 5, ())) for _ in range(4))
        return torch.rand(b, t, h * d), h

    def compare(f, x: Tensor, heads: int) -> None:
        b, t, width = x.shape
        got = f(x, heads)
        assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
        shape = (b, heads, t, width // heads)
        assert got.shape == shape, f"expected shape {shape}, got {tuple(got.shape)}"
        want = torch.stack(x.chunk(heads, dim=2), dim=1)
        assert torch.equal(got, want), (
            "the shape is right, but the numbers are scrambled: view and reshape do not swap axes"
        )
        assert same_storage(got, x), "the numbers are right, but they were copied"

    def values(f):
        compare(f, *draw())

    def slices(f):
        x, heads = draw()
        compare(f, torch.cat([x, x + 1, x + 2], dim=2).chunk(3, dim=2)[1], heads)

    return verdict(answer, [values, slices])


def check_compact(answer: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Verdict:
    """Check `answer(state)`: the same tensors, none of which drags along a larger storage.

    A tensor that is not smaller than its storage stays as it is, an expanded one too.
    """

    def run(f, state: dict[str, Tensor]) -> dict[str, Tensor]:
        got = f(state)
        assert isinstance(got, dict), f"expected a dict, got {type(got).__name__}"
        assert sorted(got) == sorted(state), f"expected the keys {list(state)}, got {list(got)}"
        for name, t in state.items():
            same = isinstance(got[name], Tensor) and got[name].dtype == t.dtype
            assert same and torch.equal(got[name], t), f"{name} has changed"
        return got

    def slices(f):
        big = torch.rand(100, 10)
        state = {"row": big[3], "column": big[:, 3], "part": torch.arange(50)[::7]}
        for name, t in run(f, state).items():
            stored = t.untyped_storage().nbytes()
            assert stored <= t.nbytes, f"{name} holds {t.nbytes} bytes in a storage of {stored}"

    def whole(f):
        state = {"weight": torch.rand(4, 5), "turned": torch.rand(4, 5).t()}
        for name, t in run(f, state).items():
            assert same_storage(t, state[name]), f"{name} filled its storage, but it was copied"

    def expanded(f):
        state = {"expanded": torch.rand(3, 1).expand(3, 100)}
        stored = run(f, state)["expanded"].untyped_storage().nbytes()
        assert stored <= 12, f"an expanded tensor in a storage of 12 bytes now takes {stored}"

    return verdict(answer, [slices, whole, expanded])
