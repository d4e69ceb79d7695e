"""Helpers of the chapter "Get the everyday tensor recipes right".

Source: https://pytorch.org/docs/stable/torch.html and `torch.cdist`,
https://pytorch.org/docs/stable/generated/torch.cdist.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXACT = "donot_use_mm_for_euclid_dist"
_FACES = {"A": "#cfe8ff", "B": "#ffe3cc", "C": "#e3e3e3"}


def pairwise_distances(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """Euclidean distances between the rows of `x1` and of `x2`, by subtraction.

    A point's distance to itself is exactly 0 and has a gradient of 0. On the way stands a tensor
    of shape (..., N, M, D); for many points take `torch.cdist`.

    Args:
        x1: shape (..., N, D), of a floating dtype.
        x2: shape (..., M, D), dtype and device of `x1`; without it, `x1` itself.

    Returns:
        Shape (..., N, M), dtype of `x1`.

    Raises:
        TypeError: an argument is no tensor, is not floating, or the two differ in dtype.
        ValueError: an argument has fewer than two dimensions, the two have another D or device,
            or their leading dimensions do not broadcast.
    """
    x2 = x1 if x2 is None else x2
    for name, x in (("x1", x1), ("x2", x2)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if not x.is_floating_point():
            raise TypeError(f"{name} must be floating, got {x.dtype}")
        if x.dim() < 2:
            raise ValueError(f"{name} must have the shape (..., N, D), got {tuple(x.shape)}")
    if x1.dtype != x2.dtype:
        raise TypeError(f"x1 and x2 must have one dtype, got {x1.dtype} and {x2.dtype}")
    shapes = f"{tuple(x1.shape)} and {tuple(x2.shape)}"
    if x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"x1 and x2 must have the same last dimension, got {shapes}")
    if x1.device != x2.device:
        raise ValueError(f"x1 and x2 must be on one device, got {x1.device} and {x2.device}")
    try:
        torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    except RuntimeError:
        raise ValueError(f"the leading dimensions must broadcast, got {shapes}") from None
    return torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), dim=-1)


def largest_tensor(function: Callable[[], Any]) -> int:
    """Bytes of the largest tensor that an operation returns while `function` runs.

    Operations are seen as PyTorch dispatches them; what one of them allocates and frees inside
    itself is not counted. 0 if no operation runs.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    largest = 0

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for x in tree_leaves(result):
                if isinstance(x, Tensor):
                    largest = max(largest, x.untyped_storage().nbytes())
            return result

    with Count():
        function()
    return largest


def cdist_errors(offsets: Sequence[float], n: int = 200, d: int = 3) -> dict[str, list[float]]:
    """The largest error among the distances of `n` float32 points, for three ways to get them.

    The points are normally distributed around a center that is `offset` away from the origin in
    every coordinate; the distances in float64 count as true.

    Returns:
        One error per offset under `"default"`, `"default, mean subtracted"` and `"exact mode"`.
    """
    generator = torch.Generator().manual_seed(0)
    cloud = torch.randn(n, d, generator=generator)
    errors: dict[str, list[float]] = {}
    for offset in offsets:
        x = cloud + offset
        true = torch.cdist(x.double(), x.double(), compute_mode=EXACT)
        centered = x - x.mean(0)
        found = {
            "default": torch.cdist(x, x),
            "default, mean subtracted": torch.cdist(centered, centered),
            "exact mode": torch.cdist(x, x, compute_mode=EXACT),
        }
        for name, distance in found.items():
            errors.setdefault(name, []).append((distance - true).abs().max().item())
    return errors


# ---------------------------------------------------------------- figures


def draw_cdist_errors() -> Figure:
    """Draw `cdist_errors` for points around 1 to 1000."""
    import matplotlib.pyplot as plt

    offsets = [10 ** (k / 4) for k in range(13)]
    figure, axis = plt.subplots(figsize=(8, 3))
    styles = {
        "default": ("#c2410c", "o-"),
        "default, mean subtracted": ("#555", "s--"),
        "exact mode": ("#0a6b7d", "^-"),
    }
    for name, values in cdist_errors(offsets).items():
        color, line = styles[name]
        axis.loglog(offsets, values, line, color=color, markersize=4, label=name)
    axis.set(
        xlabel="center of the points, in every coordinate",
        ylabel="largest error",
        ylim=(1e-8, 30),
    )
    axis.axhline(1, color="#999", linewidth=1, linestyle=":")
    axis.text(1.1, 1.5, "spread of the points", color="#555", fontsize=9)
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def draw_join() -> Figure:
    """Draw three 2 x 2 tensors A, B, C, joined by `cat` and `stack` along each axis.

    The cells of the results stand where torch put them.
    """
    import matplotlib.pyplot as plt

    names = [f"{letter}{i}" for letter in "ABC" for i in range(4)]
    parts = list(torch.arange(12).reshape(3, 2, 2))
    results = {
        "A, B, C": (torch.stack(parts), [f"{letter}: (2, 2)" for letter in "ABC"]),
        "cat, dim=0": (torch.cat(parts)[None], [""]),
        "cat, dim=1": (torch.cat(parts, 1)[None], [""]),
        "stack, dim=0": (torch.stack(parts), ["[0]", "[1]", "[2]"]),
        "stack, dim=1": (torch.stack(parts, 1), ["[0]", "[1]"]),
    }
    widths = [3.4, 2, 6, 3, 3]
    figure, axes = plt.subplots(1, 5, figsize=(8, 3), width_ratios=widths)
    for axis, (title, (blocks, marks)) in zip(axes, results.items(), strict=True):
        shape = blocks.shape[1:] if title.startswith("cat") else blocks.shape
        head = title if title == "A, B, C" else f"{title}\n{tuple(shape)}"
        axis.set_title(head, fontsize=9)
        top = 0.0
        for block, mark in zip(blocks, marks, strict=True):
            if mark:
                axis.text(0, top + 0.55, mark, fontsize=8, color="#222")
                top += 0.7
            text = [[names[k] for k in row] for row in block.tolist()]
            faces = [[_FACES[t[0]] for t in row] for row in text]
            _grid(axis, 0, top, text, faces)
            top += len(block) + 0.25
        axis.set(xlim=(-0.1, max(blocks.shape[2] + 0.1, 2.6)), ylim=(9.0, -0.1), aspect="equal")
        axis.axis("off")
    figure.tight_layout(w_pad=0.2)
    return figure


def draw_gather(x: Tensor, index: Tensor) -> Figure:
    """Draw `x`, `index`, `x.gather(1, index)` and the same scattered back into zeros.

    Args:
        x: shape (N, C), small numbers.
        index: int64 of shape (N, K) with values below C.
    """
    import matplotlib.pyplot as plt

    picked = x.gather(1, index)
    back = torch.zeros_like(x).scatter(1, index, picked)
    hit = torch.zeros_like(x, dtype=torch.bool).scatter(1, index, True)
    all_cells = torch.ones_like(index, dtype=torch.bool)
    panels = [
        ("x", x, hit),
        ("index", index, ~all_cells),
        ("x.gather(1, index)", picked, all_cells),
        ("zeros.scatter(1, index, …)", back, hit),
    ]
    widths = [panel[1].shape[1] + 1.2 for panel in panels]
    figure, axes = plt.subplots(1, 4, figsize=(8, 2.4), width_ratios=widths)
    for axis, (title, values, marked) in zip(axes, panels, strict=True):
        text = [[f"{v:g}" for v in row] for row in values.tolist()]
        faces = [["#ffe3cc" if m else "white" for m in row] for row in marked.tolist()]
        _grid(axis, 0, 0, text, faces, bold=marked.tolist())
        for row in range(len(values)):
            axis.text(-0.15, row + 0.5, f"[{row}]", ha="right", va="center", fontsize=8)
        for column in range(values.shape[1]):
            axis.text(column + 0.5, -0.15, f"{column}", ha="center", va="bottom", fontsize=8)
        axis.set_title(title, fontsize=9, family="monospace", pad=14)
        axis.set(xlim=(-0.9, values.shape[1] + 0.2), ylim=(len(values) + 0.1, -0.4))
        axis.set_aspect("equal")
        axis.axis("off")
    figure.tight_layout(w_pad=0.2)
    return figure


def _grid(
    axis: Any,
    left: float,
    top: float,
    text: list[list[str]],
    faces: list[list[str]],
    bold: list[list[bool]] | None = None,
) -> None:
    from matplotlib.patches import Rectangle

    for i, row in enumerate(text):
        for j, word in enumerate(row):
            strong = bool(bold and bold[i][j])
            box = Rectangle(
                (left + j, top + i),
                1,
                1,
                facecolor=faces[i][j],
                edgecolor="#555",
                linewidth=1.8 if strong else 0.8,
            )
            axis.add_patch(box)
            weight = "bold" if strong else "normal"
            place = (left + j + 0.5, top + i + 0.53)
            axis.text(*place, word, ha="center", va="center", fontsize=8, weight=weight)


# ---------------------------------------------------------------- exercises


def _shaped(got: object, shape: tuple[int, ...]) -> Tensor:
    assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
    assert got.shape == shape, f"expected the shape {shape}, got {tuple(got.shape)}"
    return got


def check_windows(answer: Callable[[Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(x, start, length)`: from each row the `length` entries that begin at `start`.

    `x` is float32 of shape (N, T), `start` int64 of shape (N,) with start + length <= T; the
    result has the shape (N, length).
    """

    def compare(f, x: Tensor, start: Tensor, length: int) -> None:
        want = torch.stack([row[s : s + length] for row, s in zip(x, start.tolist(), strict=True)])
        got = _shaped(f(x, start, length), tuple(want.shape))
        if torch.equal(got, want):
            return
        assert not torch.equal(got, x[:, :length]), "every row begins at 0: start is not used"
        s = int(start[0])
        assert not torch.equal(got, x[:, s : s + length]), "every row begins where row 0 does"
        row = int((got != want).any(1).nonzero()[0])
        raise AssertionError(
            f"with start[{row}] = {start[row]} and length {length}, row {row} is not "
            f"x[{row}, {start[row]}:{start[row] + length}]"
        )

    def draw(n: int, length: int) -> tuple[Tensor, Tensor, int]:
        t = n + length + 3
        return torch.rand(n, t), 1 + torch.randperm(n), length  # no two rows begin alike

    def value(f):
        compare(f, *draw(6, 4))

    def sizes(f):
        for n, length in ((2, 1), (1, 5), (3, 3), (5, 2)):
            compare(f, *draw(n, length))

    def to_the_end(f):
        x = torch.rand(3, 7)
        compare(f, x, torch.tensor([4, 0, 2]), 3)

    def gradient(f):
        x, start, length = draw(4, 3)
        x.requires_grad_()
        got = f(x, start, length)
        assert got.requires_grad, "the result has no graph"
        (g,) = torch.autograd.grad(got.sum(), x)
        assert (g.sum(1) == length).all(), "the gradient does not go to the entries taken"

    return verdict(answer, [value, sizes, to_the_end, gradient])


def check_class_means(answer: Callable[[Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(values, labels, num_classes)`: the mean of each class, 0 for an empty one.

    `values` is float32 of shape (N, D), `labels` int64 of shape (N,); the result has the shape
    (num_classes, D).
    """

    def draw() -> tuple[Tensor, Tensor, int]:
        c = int(torch.randint(3, 6, ()))
        labels = torch.cat([torch.arange(c), torch.arange(c), torch.randint(0, c, (3,))])
        return torch.randn(len(labels), 4), labels[torch.randperm(len(labels))], c

    def means(values: Tensor, labels: Tensor, c: int) -> Tensor:
        rows = [values[labels == k] for k in range(c)]
        return torch.stack([r.mean(0) if len(r) else values.new_zeros(4) for r in rows])

    def value(f):
        values, labels, c = draw()
        want = means(values, labels, c)
        got = _shaped(f(values, labels, c), (c, 4))
        if torch.allclose(got, want, atol=1e-5):
            return
        counts = labels.bincount(minlength=c)[:, None]
        assert not torch.allclose(got, want * counts, atol=1e-5), "these are sums, not means"
        for divisor in (torch.ones_like(counts), counts):
            one = (torch.cdist(got * divisor, values, compute_mode=EXACT) < 1e-4).any(1)
            assert not one.all(), (
                "of each class only one sample is left: equal indices overwrite each other"
            )
        raise AssertionError("these are not the means of the classes")

    def empty(f):
        values, labels, c = draw()
        got = _shaped(f(values, labels, c + 2), (c + 2, 4))
        assert not got.isnan().any(), "a class without samples gives nan: 0 / 0"
        assert torch.allclose(got, means(values, labels, c + 2), atol=1e-5), (
            "a class without samples must give 0, and leave the others as they are"
        )

    def gradient(f):
        values, labels, c = draw()
        values.requires_grad_()
        got = f(values, labels, c)
        assert got.requires_grad, "the result has no graph"
        (g,) = torch.autograd.grad(got.sum(), values)
        share = 1 / labels.bincount(minlength=c)[labels][:, None].expand(-1, 4)
        assert torch.allclose(g, share), "the gradient of a sample is not 1 / size of its class"

    return verdict(answer, [value, empty, gradient])


def check_distances(answer: Callable[[Tensor], Tensor]) -> Verdict:
    """Check `answer(x)`: the distances between all rows of `x`, fit for training.

    `x` is float32 of shape (N, D); the result has the shape (N, N), is exactly 0 where two points
    coincide, is right far from the origin, and its gradient is finite.
    """

    def exact(x: Tensor) -> Tensor:
        return torch.cdist(x.double(), x.double(), compute_mode=EXACT)

    def value(f):
        x = torch.randn(int(torch.randint(5, 9, ())), 3)
        got = _shaped(f(x), (len(x), len(x)))
        want = exact(x).float()
        assert not torch.allclose(got, want**2, atol=1e-4), "these are the squares"
        assert not got.isnan().any(), "there is a nan among the distances"
        assert not got.diagonal().any(), "the distance of a point to itself is not 0"
        assert torch.allclose(got, want, atol=1e-4), "the distances are wrong"

    def far(f):
        x = torch.randn(60, 3) + 1000
        x[::2] -= 2000  # two clusters, so that subtracting the mean is no way out
        got = _shaped(f(x), (60, 60))
        right = torch.allclose(got, exact(x).float(), rtol=1e-6, atol=1e-3)
        assert right and not got.diagonal().any(), (
            "for 60 points far from the origin the distances are wrong, some even of a point to "
            "itself: squares cancel"
        )

    def gradient(f):
        x = torch.randn(6, 3)
        x[1] = x[0]
        weight = torch.rand(6, 6) + 0.5
        x.requires_grad_()
        got = f(x)
        assert got.requires_grad, "the result has no graph"
        (mine,) = torch.autograd.grad((got * weight).sum(), x)
        assert not mine.isnan().any(), "the gradient is nan where two points coincide"
        (theirs,) = torch.autograd.grad((exact(x) * weight).sum(), x)
        assert torch.allclose(mine, theirs, atol=1e-3), "the gradient is wrong"

    return verdict(answer, [value, far, gradient])
