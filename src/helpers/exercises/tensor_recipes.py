"""Checkers of the exercises of the chapter "Indexing, gather, einsum"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, leaves, on_one_device
from helpers.performance import operators, waits
from helpers.tensor_recipes import EXACT


def _shaped(got: object, shape: tuple[int, ...]) -> Tensor:
    a_tensor(got, shape)
    return got


def _windows_compare(f, x: Tensor, start: Tensor, length: int) -> None:
    want = torch.stack([row[s : s + length] for row, s in zip(x, start.tolist(), strict=True)])
    got = a_tensor(leaves(f, "x", "start")(x, start, length), want.shape)
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


def _windows_draw(n: int, length: int) -> tuple[Tensor, Tensor, int]:
    t = n + length + 3
    return torch.rand(n, t), 1 + torch.randperm(n), length  # no two rows begin alike


def _windows_value(f):
    _windows_compare(f, *_windows_draw(6, 4))


def _windows_sizes(f):
    for n, length in ((2, 1), (1, 5), (3, 3), (5, 2)):
        _windows_compare(f, *_windows_draw(n, length))
    x, start, length = _windows_draw(5, 3)
    _windows_compare(f, x.t().contiguous().t(), start, length)  # transposed in memory


def _windows_to_the_end(f):
    x = torch.rand(3, 7)
    _windows_compare(f, x, torch.tensor([4, 0, 2]), 3)


def _windows_dtypes(f):
    x, start, length = _windows_draw(4, 3)
    ids = (x * 1e9).long() + 2**30  # float32 cannot represent most of these
    for values in (x.double() / 3, x.half(), ids):
        got = a_tensor(f(values, start, length))
        name = str(values.dtype).removeprefix("torch.")
        assert got.dtype == values.dtype, f"with {name} values the result is {got.dtype}"
        _windows_compare(f, values, start, length)


def _windows_gradient(f):
    x, start, length = _windows_draw(4, 3)
    x.requires_grad_()
    got = f(x, start, length)
    assert got.requires_grad, "the result has no graph"
    (g,) = torch.autograd.grad(got.sum(), x)
    assert (g.sum(1) == length).all(), "the gradient is not that of the selected entries"


def _windows_device(f):
    reads = waits(partial(f, *_windows_draw(4, 3)))
    # indexing with a mask is not a loop; slicing row by row is detected below
    reads = [read for read in reads if read.call not in ("__getitem__", "masked_select")]
    assert not reads, (
        f"{reads[0].call} in the line `{reads[0].line}` reads numbers into Python, which "
        "synchronizes with a GPU"
    )
    few, many = (sum(operators(partial(f, *_windows_draw(n, 3))).values()) for n in (4, 40))
    assert many <= few + 5, f"{few} operators ran for 4 rows and {many} for 40: use no Python loop"
    on_one_device(f, *_windows_draw(4, 3))


def check_windows(answer: Callable[[Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(x, start, length)`: from each row the `length` entries that begin at `start`.

    `x` has the shape (N, T), `start` is int64 of shape (N,) with start + length <= T; the
    result has the shape (N, length) and the dtype of `x`.
    """
    return verdict(
        answer,
        [
            _windows_value,
            _windows_sizes,
            _windows_to_the_end,
            _windows_dtypes,
            _windows_gradient,
            _windows_device,
        ],
    )


def _class_means_draw() -> tuple[Tensor, Tensor, int]:
    c = int(torch.randint(3, 6, ()))
    labels = torch.cat([torch.arange(c), torch.arange(c), torch.randint(0, c, (3,))])
    return torch.randn(len(labels), 4), labels[torch.randperm(len(labels))], c


def _class_means_means(values: Tensor, labels: Tensor, c: int) -> Tensor:
    rows = [values[labels == k] for k in range(c)]
    return torch.stack([r.mean(0) if len(r) else values.new_zeros(4) for r in rows])


def _class_means_value(f):
    values, labels, c = _class_means_draw()
    want = _class_means_means(values, labels, c)
    got = a_tensor(leaves(f, "values", "labels")(values, labels, c), (c, 4), values.dtype)
    if torch.allclose(got, want, atol=1e-5):
        return
    counts = labels.bincount(minlength=c)[:, None]
    assert not torch.allclose(got, want * counts, atol=1e-5), "these are sums, not means"
    for divisor in (torch.ones_like(counts), counts):
        one = (torch.cdist(got * divisor, values, compute_mode=EXACT) < 1e-4).any(1)
        assert not one.all(), (
            "only one sample of each class is used: equal indices overwrite each other"
        )
    raise AssertionError("these are not the means of the classes")


def _class_means_empty(f):
    values, labels, c = _class_means_draw()
    alone = labels.eq(1).cumsum(0).ne(1) & labels.eq(1)  # class 1 keeps one sample
    values, labels = values[~alone], labels[~alone]
    got = _shaped(f(values, labels, c + 2), (c + 2, 4))
    assert not got.isnan().any(), "a class without samples gives nan: 0 / 0"
    assert torch.allclose(got, _class_means_means(values, labels, c + 2), atol=1e-5), (
        "a class without samples must give 0, and must not change the other means"
    )
    values[labels == 0] = torch.nan
    assert f(values, labels, c + 2)[0].isnan().all(), (
        "a nan in the values is hidden: only a class without samples gives 0"
    )


def _class_means_gradient(f):
    values, labels, c = _class_means_draw()
    values.requires_grad_()
    got = f(values, labels, c)
    assert got.requires_grad, "the result has no graph"
    (g,) = torch.autograd.grad(got.sum(), values)
    share = 1 / labels.bincount(minlength=c)[labels][:, None].expand(-1, 4)
    assert torch.allclose(g, share), "the gradient of a sample is not 1 / size of its class"


def _class_means_dtypes(f):
    for dtype in (torch.float64, torch.float16):
        values, labels, c = _class_means_draw()
        name = str(dtype).removeprefix("torch.")
        try:
            got = f(values.to(dtype), labels, c)
        except RuntimeError as error:
            assert "dtype" not in str(error) and "type" not in str(error), (
                f"it fails if values is {name}: create new tensors in the dtype of values"
            )
            raise
        assert got.dtype == dtype, f"with {name} values the result is {got.dtype}"
        atol = 1e-2 if dtype == torch.float16 else 1e-12
        want = _class_means_means(values.to(dtype), labels, c)
        assert torch.allclose(got, want, rtol=0, atol=atol), f"with {name} values digits are lost"
    values, labels, c = _class_means_draw()
    wide = torch.cat([values, values], dim=1)
    got = _shaped(f(wide, labels, c), (c, 8))
    assert torch.allclose(got, _class_means_means(wide, labels, c), atol=1e-5), (
        f"{wide.shape[1]} features come out wrong"
    )
    want = _class_means_means(values, labels, c)
    for few in (1, 2):  # columns of a larger tensor, not contiguous
        got = _shaped(f(values[:, :few], labels, c), (c, few))
        assert torch.allclose(got, want[:, :few], atol=1e-5), f"{few} features come out wrong"


def _class_means_device(f):
    on_one_device(f, *_class_means_draw())
    many = torch.full((1000, 4), 100.0, dtype=torch.float16)
    got = f(many, torch.zeros(1000, dtype=torch.long), 1)
    assert got.isfinite().all(), "a sum of 1000 float16 values overflowed: sum in float32"


def check_class_means(answer: Callable[[Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(values, labels, num_classes)`: the mean of each class, 0 for an empty one.

    `values` is floating point of shape (N, D), `labels` int64 of shape (N,); the result has the
    shape (num_classes, D), the dtype and the device of `values`.
    """
    return verdict(
        answer,
        [
            _class_means_value,
            _class_means_empty,
            _class_means_gradient,
            _class_means_dtypes,
            _class_means_device,
        ],
    )


_ITSELF = "the distance of a point to itself is not 0"


def _distances_exact(x: Tensor) -> Tensor:
    return torch.cdist(x.double(), x.double(), compute_mode=EXACT)


def _distances_value(f):
    x = torch.randn(int(torch.randint(5, 9, ())), 3)
    got = a_tensor(leaves(f, "x")(x), (len(x), len(x)), x.dtype)
    want = _distances_exact(x).float()
    assert not torch.allclose(got, want**2, atol=1e-4), "these are the squares"
    assert not got.isnan().any(), "there is a nan among the distances"
    assert not got.diagonal().any(), _ITSELF
    assert torch.allclose(got, want, atol=1e-4), "the distances are wrong"


def _distances_edges(f):
    for x in (torch.randn(1, 3), torch.randn(4, 1), torch.randn(3, 4).t()):
        got = a_tensor(f(x), (len(x), len(x)))
        assert not got.diagonal().any(), _ITSELF
        assert torch.allclose(got, _distances_exact(x).float(), atol=1e-4), (
            f"wrong for {len(x)} points of {x.shape[1]} coordinates"
        )


def _distances_far(f):
    # squares of float32 values are exact in float64, those of float64 values are not
    for dtype, atol in ((torch.float32, 1e-3), (torch.float64, 1e-8)):
        x = torch.randn(60, 3, dtype=dtype) + 1000
        x[::2] -= 2000  # two clusters, so that subtracting the mean is not enough
        x[30:] = x[:30]  # equal points, not only on the diagonal
        got = _shaped(f(x), (60, 60))
        want = _distances_exact(x).to(dtype)
        right = torch.allclose(got, want, rtol=1e-6, atol=atol)
        assert right and not got.diagonal().any(), (
            "for 60 points far from the origin the distances are wrong, some even of a point to "
            "itself: squares cancel"
        )
        assert not got[want == 0].any(), "the distance of two equal points is not exactly 0"


def _distances_gradient(f):
    x = torch.randn(6, 3)
    x[1] = x[0]
    weight = torch.rand(6, 6) + 0.5
    x.requires_grad_()
    got = f(x)
    assert got.requires_grad, "the result has no graph"
    (mine,) = torch.autograd.grad((got * weight).sum(), x)
    assert not mine.isnan().any(), "the gradient is nan where two points coincide"
    (theirs,) = torch.autograd.grad((_distances_exact(x) * weight).sum(), x)
    assert torch.allclose(mine, theirs, atol=1e-3), "the gradient is wrong"


def _distances_double(f):
    x = torch.randn(5, 3, dtype=torch.float64)
    got = f(x)
    assert got.dtype == x.dtype, f"with float64 points the result is {got.dtype}"
    assert torch.allclose(got, _distances_exact(x), rtol=1e-10), (
        "with float64 points digits are lost"
    )


def check_distances(answer: Callable[[Tensor], Tensor]) -> Verdict:
    """Check `answer(x)`: the distances between all rows of `x`, fit for training.

    `x` is floating point of shape (N, D); the result has the shape (N, N) and the dtype of `x`, is
    exactly 0 where two points coincide, is right far from the origin, and its gradient is finite.
    """

    return verdict(
        answer,
        [
            _distances_value,
            _distances_edges,
            _distances_double,
            _distances_far,
            _distances_gradient,
        ],
    )
