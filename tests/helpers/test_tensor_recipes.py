"""Test the helpers of `tensor_recipes` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from verdicts import expect

from helpers import tensor_recipes as recipes
from helpers.demos import tensor_recipes as demos
from helpers.exercises import tensor_recipes as exercises
from helpers.timing import time_ratio

seeds = st.integers(0, 10**6)
EXACT = "donot_use_mm_for_euclid_dist"


def points(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# ---------------------------------------------------------------- pairwise_distances


@settings(deadline=None, max_examples=50)
@given(
    seeds,
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 9),
)
def test_pairwise_distances_match_cdist(seed, batch, n, m, d):
    a, b = points(seed, *batch, n, d), points(seed + 1, *batch, m, d)
    got = recipes.pairwise_distances(a, b)
    want = torch.cdist(a, b, compute_mode=EXACT)
    assert got.shape == want.shape == (*batch, n, m) and got.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=25)
@given(seeds, st.integers(1, 8), st.integers(1, 8), st.integers(1, 5))
def test_pairwise_distances_gradients_match_cdist(seed, n, m, d):
    weight = points(seed + 2, n, m, dtype=torch.float64)
    grads = []
    for distance in (recipes.pairwise_distances, lambda a, b: torch.cdist(a, b)):
        a = points(seed, n, d, dtype=torch.float64).requires_grad_()
        b = points(seed + 1, m, d, dtype=torch.float64).requires_grad_()
        grads.append(torch.autograd.grad((distance(a, b) * weight).sum(), (a, b)))
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_self_distances_are_symmetric_with_finite_gradients(offset):
    x = (points(0, 60, 3) + offset).requires_grad_()
    got = recipes.pairwise_distances(x)
    assert torch.equal(got, recipes.pairwise_distances(x, x))
    assert not got.diagonal().any() and torch.equal(got, got.T)
    (grad,) = torch.autograd.grad(got.sum(), x)
    assert grad.isfinite().all()
    far = torch.cdist(x.double(), x.double(), compute_mode=EXACT)
    torch.testing.assert_close(got.double(), far, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=25)
@given(seeds, st.integers(2, 6), st.integers(1, 4))
def test_second_gradient_of_distances_is_finite_and_matches_cdist(seed, n, d):
    x = points(seed, n, d, dtype=torch.float64)
    x[1] = x[0]
    seconds = []
    for distance in (recipes.pairwise_distances, lambda x: torch.cdist(x, x, compute_mode=EXACT)):
        x.requires_grad_()
        (first,) = torch.autograd.grad(distance(x).square().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0])
    assert seconds[0].isfinite().all()
    torch.testing.assert_close(seconds[0], seconds[1])


def test_pairwise_distances_propagate_nan_and_infinity():
    bad = torch.tensor([[torch.nan, 0.0], [torch.inf, 0.0], [0.0, 0.0]])
    got = recipes.pairwise_distances(bad)
    assert got[0].isnan().all() and got[1, 2].isinf() and got[2, 2] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_pairwise_distances_keep_the_dtype(dtype):
    assert recipes.pairwise_distances(torch.ones(2, 3, dtype=dtype)).dtype == dtype


def test_pairwise_distances_broadcast_leading_dimensions():
    a, b = points(0, 4, 1, 5, 3), points(1, 2, 6, 3)
    assert recipes.pairwise_distances(a, b).shape == (4, 2, 5, 6)


@pytest.mark.parametrize(
    ("x1", "x2", "error", "says"),
    [
        ([[1.0]], None, TypeError, "x1 must be a tensor, got list"),
        (torch.ones(2, 3), 1.0, TypeError, "x2 must be a tensor, got float"),
        (torch.ones(2, 3).long(), None, TypeError, "x1 must be floating point, got torch.int64"),
        (torch.ones(3), None, ValueError, r"\(..., N, D\), got \(3,\)"),
        (torch.ones(2, 3), torch.ones(3), ValueError, r"x2 must have the shape"),
        (torch.ones(2, 3), torch.ones(2, 3).double(), TypeError, "float32 and torch.float64"),
        (torch.ones(2, 3), torch.ones(2, 1), ValueError, r"got \(2, 3\) and \(2, 1\)"),
        (torch.ones(2, 3), torch.ones(2, 3, device="meta"), ValueError, "got cpu and meta"),
        (torch.ones(2, 4, 3), torch.ones(3, 4, 3), ValueError, "leading dimensions"),
    ],
)
def test_pairwise_distances_rejects_invalid_arguments(x1, x2, error, says):
    with pytest.raises(error, match=says):
        recipes.pairwise_distances(x1, x2)


# ---------------------------------------------------------------- measurements


def by_hand(a: Tensor, b: Tensor) -> Tensor:
    return ((a[:, None, :] - b) ** 2).sum(dim=2).sqrt()


@settings(deadline=None, max_examples=20)
@given(st.integers(8, 60), st.integers(8, 60), st.integers(1, 8))
def test_formula_allocates_d_times_the_memory_of_cdist(n, m, d):
    a, b = points(0, n, d), points(1, m, d)
    assert recipes.largest_tensor(lambda: by_hand(a, b)) == 4 * n * m * d
    assert recipes.largest_tensor(lambda: torch.cdist(a, b)) == 4 * n * m


def test_largest_tensor_matches_the_profiler_for_cdist():
    from torch.profiler import ProfilerActivity, profile

    a, b = points(0, 200, 64), points(1, 100, 64)
    largest = {}
    for name, f in (("hand", by_hand), ("cdist", torch.cdist)):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            f(a, b)
        largest[name] = max(event.self_cpu_memory_usage for event in prof.events())
    assert largest["hand"] == recipes.largest_tensor(lambda: by_hand(a, b))
    assert largest["cdist"] == recipes.largest_tensor(lambda: torch.cdist(a, b))


def test_largest_tensor_counts_storages_lists_and_empty_results():
    x = torch.ones(10, 10)
    assert recipes.largest_tensor(lambda: None) == 0
    assert recipes.largest_tensor(lambda: x.expand(5, 10, 10)) == 400
    assert recipes.largest_tensor(lambda: torch.eye(10).to_sparse()) == 400
    assert recipes.largest_tensor(lambda: x[0]) == 400  # a view
    assert recipes.largest_tensor(lambda: torch.sort(x)) == 800  # the indices are int64
    with pytest.raises(ZeroDivisionError):
        recipes.largest_tensor(lambda: 1 / 0)


def test_cdist_errors_grow_only_in_the_default_mode():
    errors = demos.cdist_errors([0.0, 30.0, 1000.0])
    default, centered, exact = (
        errors[k] for k in ("default", "default, mean subtracted", "exact mode")
    )
    assert default[0] < default[1] < default[2] and default[2] > 0.1
    assert max(centered) < 0.02 and max(exact) < 1e-5
    few = demos.cdist_errors([1000.0], n=25)  # too few rows for the matrix product
    assert few["default"] == few["exact mode"]
    assert demos.cdist_errors([]) == {}


# ---------------------------------------------------------------- figures


def texts(figure) -> list[list[str]]:
    found = [[t.get_text() for t in axis.texts] for axis in figure.axes]
    return found


def test_draw_join_matches_torch():
    figure = demos.draw_join()
    titles = [axis.texts[0].get_text() for axis in figure.axes]
    assert titles[1:] == [
        "cat, dim=0\n(6, 2)",
        "cat, dim=1\n(2, 6)",
        "stack, dim=0\n(3, 2, 2)",
        "stack, dim=1\n(2, 3, 2)",
    ]
    cells = [[t for t in panel if t[0] in "ABC" and len(t) == 2] for panel in texts(figure)]
    parts = torch.arange(12).reshape(3, 2, 2)
    for drawn, want in zip(
        cells[1:],
        [parts.flatten(0, 1), torch.cat(list(parts), 1), parts, parts.transpose(0, 1)],
        strict=True,
    ):
        assert drawn == ["ABC"[k // 4] + str(k % 4) for k in want.flatten().tolist()]


def test_draw_broadcast_matches_torch():
    row = torch.tensor([3.0, 5.0, 9.0])
    figure = demos.draw_broadcast(row[:, None], row)
    column, line, difference = (panel[:-1] for panel in texts(figure))
    assert [panel[-1] for panel in texts(figure)] == [
        "prediction (3, 1)",
        "target (3,)",
        "prediction - target (3, 3)",
    ]
    assert column == line == ["3", "5", "9"]
    minus = "\N{MINUS SIGN}"
    assert difference == ["0", f"{minus}2", f"{minus}6", "2", "0", f"{minus}4", "6", "4", "0"]
    assert [t.get_weight() == "bold" for t in figure.axes[2].texts[:-1]] == [
        True,
        *[False] * 3,
    ] * 2 + [True]


def test_draw_gather_matches_torch():
    x, index = torch.arange(10, 18).reshape(2, 4), torch.tensor([[3, 0], [1, 2]])
    panels = texts(demos.draw_gather(x, index))
    size = [8, 4, 4, 8]  # cells are drawn before the marks of rows and columns
    drawn = [panel[:n] for panel, n in zip(panels, size, strict=True)]
    assert drawn[0] == [str(k) for k in range(10, 18)]
    assert drawn[1] == ["3", "0", "1", "2"]
    assert drawn[2] == ["13", "10", "15", "16"]
    assert drawn[3] == ["10", "0", "0", "13", "0", "15", "16", "0"]


def test_draw_gather_emphasizes_moved_values_and_shows_all_labels():
    x, index = torch.arange(10, 18).reshape(2, 4), torch.tensor([[3, 0], [1, 2]])
    figure = demos.draw_gather(x, index)
    hit = [True, False, False, True, False, True, True, False]
    for axis, bold in zip(figure.axes, (hit, [False] * 4, [True] * 4, hit), strict=True):
        cells = axis.texts[: len(bold)]
        assert [text.get_weight() == "bold" for text in cells] == bold
        assert [box.get_linewidth() > 1 for box in axis.patches] == bold
        (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
        for text in axis.texts:
            column, row = text.get_position()
            assert left < column < right and top < row < bottom


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.data())
@settings(max_examples=10)
def test_draw_einsum_matches_torch(rows, inner, columns, data):
    left, right = torch.randint(-5, 5, (rows, inner)), torch.randint(-5, 5, (inner, columns))
    i, k = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    figure = demos.draw_einsum(left, right, i, k)
    for axis, values in zip(figure.axes, (left, right, left @ right), strict=True):
        cells = axis.texts[: values.numel()]
        assert [t.get_text() for t in cells] == [str(v) for v in values.flatten().tolist()]
    bold = [[t.get_weight() == "bold" for t in axis.texts] for axis in figure.axes]
    assert [n for n, b in enumerate(bold[0]) if b] == list(range(i * inner, (i + 1) * inner))
    assert [n for n, b in enumerate(bold[1]) if b] == list(range(k, inner * columns, columns))
    assert [n for n, b in enumerate(bold[2]) if b] == [i * columns + k]


def test_draw_cdist_errors_draws_three_lines():
    figure = demos.draw_cdist_errors()
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert labels[:3] == ["default", "default, mean subtracted", "exact mode"]


# ---------------------------------------------------------------- exercises


def solve_windows(x, start, length):
    return x.gather(1, start[:, None] + torch.arange(length, device=start.device))


def windows_by_mask(x, start, length):
    steps = torch.arange(x.shape[1], device=x.device)
    inside = (steps >= start[:, None]) & (steps < start[:, None] + length)
    return x[inside].view(len(x), length)


def windows_by_index(x, start, length):
    rows = torch.arange(len(x), device=x.device)[:, None]
    return x[rows, start[:, None] + torch.arange(length, device=x.device)]


def as_if_contiguous(x, start, length):
    begin = start + torch.arange(len(x), device=start.device) * x.shape[1]
    return x.as_strided((x.numel() - length + 1, length), (1, 1))[begin]


def solve_means(values, labels, c):
    wide = torch.promote_types(values.dtype, torch.float32)  # float16 overflows above 65,504
    sums = values.new_zeros(c, values.shape[1], dtype=wide).index_add(0, labels, values.to(wide))
    return (sums / labels.bincount(minlength=c).clamp(min=1)[:, None]).to(values.dtype)


def means_by_product(values, labels, c):
    member = (torch.arange(c, device=labels.device)[:, None] == labels).to(values.dtype)
    return (member / member.sum(1, keepdim=True).clamp(min=1)) @ values


def means_by_scatter(values, labels, c):
    zeros, index = values.new_zeros(c, values.shape[1]), labels[:, None].expand_as(values)
    return zeros.scatter_reduce(0, index, values, "mean", include_self=False)


def means_by_loop(values, labels, c):
    rows = [values[labels == k] for k in range(c)]
    return torch.stack([r.mean(0) if len(r) else values.new_zeros(4) for r in rows])


def means_in_float32(values, labels, c):
    sums = torch.zeros(c, values.shape[1]).index_add(0, labels, values.float())
    return (sums / labels.bincount(minlength=c).clamp(min=1)[:, None]).to(values.dtype)


def means_on_the_cpu(values, labels, c):
    sums = torch.zeros(c, values.shape[1], dtype=values.dtype).index_add(0, labels, values)
    return sums / labels.bincount(minlength=c).clamp(min=1)[:, None]


def overwritten(values, labels, c):
    sums, counts = torch.zeros(c, values.shape[1]), torch.zeros(c, 1)
    sums[labels] += values
    counts[labels] += 1
    return sums / counts


def half_overwritten(values, labels, c):
    sums = torch.zeros(c, values.shape[1])
    sums[labels] += values
    return sums / labels.bincount(minlength=c)[:, None]


def masked_root(x):
    squared = ((x[:, None] - x) ** 2).sum(-1)
    hit = squared > 0
    return torch.where(hit, torch.where(hit, squared, 1.0).sqrt(), 0.0)


def where_outside_only(x):
    squared = ((x[:, None] - x) ** 2).sum(-1)
    return torch.where(squared > 0, squared.sqrt(), 0.0)


def safe_on_the_diagonal(x):
    same = torch.eye(len(x), dtype=torch.bool)
    squared = ((x[:, None] - x) ** 2).sum(-1)
    return torch.where(same, 0.0, torch.where(same, 1.0, squared).sqrt())


def centered_without_diagonal(x):
    x = x - x.mean(0)
    return torch.cdist(x, x) * (1 - torch.eye(len(x)))


def multiplied_out(x):
    square = (x**2).sum(1)
    return (square[:, None] + square - 2 * x @ x.T).clamp(min=0).sqrt()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (solve_windows, None),
        (windows_by_index, None),
        (windows_by_mask, None),
        (as_if_contiguous, "with start[0] ="),
        (lambda x, s, n: x.unfold(1, n, 1)[torch.arange(len(x), device=x.device), s], None),
        (lambda x, s, n: x.gather(1, s[:, None] + torch.arange(n)), "mixes devices"),
        (lambda x, s, n: solve_windows(x.cpu(), s.cpu(), n), "the result is on the CPU"),
        (
            lambda x, s, n: torch.stack([r[i : i + n] for r, i in zip(x, s, strict=True)]),
            "use no Python loop",
        ),
        (lambda x, s, n: solve_windows(x.float(), s, n), "the result is torch.float32"),
        (lambda x, s, n: x[:, :n], "start is not used"),
        (lambda x, s, n: x[:, s[0] : s[0] + n], "every row begins where row 0 does"),
        (lambda x, s, n: x[:, s[:, None] + torch.arange(n)], "expected shape (6, 4)"),
        (lambda x, s, n: x.gather(1, s[:, None] + 1 + torch.arange(n)), "with start[0] ="),
        (lambda x, s, n: x.gather(1, s[:, None] + torch.arange(n)).detach(), "no graph"),
        (lambda x, s, n: x.gather(1, s + torch.arange(n)), "your code raised RuntimeError"),
        (lambda x, s, n: x.gather(1, s[:, None] + torch.arange(4)), "expected shape (2, 1)"),
        (
            lambda x, s, n: solve_windows(x, s.clamp(max=x.shape[1] - n - 1), n),
            "with start[0] = 4 and length 3",
        ),
        (lambda x, s, n: None, "expected a tensor, got None"),
    ],
)
def test_check_windows_returns_the_expected_verdict(answer, says):
    expect(exercises.check_windows(answer), says)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (solve_means, None),
        (means_by_product, None),
        (means_by_scatter, "a sum of 1000 float16 values overflowed"),
        (means_by_loop, None),
        (lambda v, y, c: solve_means(v, y, c).nan_to_num(), "a nan in the values is hidden"),
        (means_in_float32, "with float64 values digits are lost"),
        (means_on_the_cpu, "mixes devices"),
        (lambda v, y, c: solve_means(v.double(), y, c), "expected torch.float32"),
        (lambda v, y, c: solve_means(v.double(), y, c).float(), "the result is torch.float32"),
        (
            lambda v, y, c: (
                torch.zeros(c, 4).index_add(0, y, v) / y.bincount(minlength=c).clamp(min=1)[:, None]
            ),
            "it fails if values is float64",
        ),
        (
            lambda v, y, c: (
                v.new_zeros(c, 4).index_add(0, y, v) / y.bincount(minlength=c).clamp(min=1)[:, None]
            ),
            "your code raised RuntimeError",
        ),
        (overwritten, "only one sample of each class"),
        (half_overwritten, "only one sample of each class"),
        (lambda v, y, c: torch.zeros(c, 4).index_add(0, y, v), "sums, not means"),
        (
            lambda v, y, c: torch.zeros(c, 4).index_add(0, y, v) / y.bincount(minlength=c)[:, None],
            "0 / 0",
        ),
        (
            lambda v, y, c: (
                torch.zeros(c, 4).index_add(0, y, v) / (y.bincount(minlength=c)[:, None] + 1)
            ),
            "not the means",
        ),
        (lambda v, y, c: solve_means(v, y, int(y.max()) + 1), "expected shape"),
        (lambda v, y, c: solve_means(v.detach(), y, c), "no graph"),
        (lambda v, y, c: solve_means(v, y, c) + v.sum() - v.sum().detach(), "not 1 / size"),
        (lambda v, y, c: solve_means(v, y, c)[:, :1], "expected shape"),
        (lambda v, y, c: None, "expected a tensor, got None"),
    ],
)
def test_check_class_means_returns_the_expected_verdict(answer, says):
    expect(exercises.check_class_means(answer), says)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: torch.linalg.vector_norm(x[:, None] - x, dim=-1), None),
        (lambda x: torch.cdist(x, x, compute_mode=EXACT), None),
        (recipes.pairwise_distances, None),
        (masked_root, None),
        (lambda x: torch.linalg.vector_norm(x.float()[:, None] - x.float(), dim=-1), "float64"),
        (lambda x: by_hand(x, x), "the gradient is nan"),
        (where_outside_only, "the gradient is nan"),
        (torch.cdist, "your code raised TypeError"),
        (lambda x: torch.cdist(x, x), "squares cancel"),
        (lambda x: torch.cdist(x - x.mean(0), x - x.mean(0)), "squares cancel"),
        (multiplied_out, "itself"),
        (lambda x: (((x[:, None] - x) ** 2).sum(-1) + 1e-6).sqrt(), "to itself is not 0"),
        (lambda x: ((x[:, None] - x) ** 2).sum(-1), "these are the squares"),
        (lambda x: (x[:, None] - x).abs().sum(-1), "not yet: the distances are wrong"),
        (lambda x: torch.cdist(x, x) * (1 - torch.eye(len(x))), "squares cancel"),
        (centered_without_diagonal, "squares cancel"),
        (
            lambda x: recipes.pairwise_distances(x) + 1e-4 * (len(x) > 9) * torch.eye(len(x)),
            "itself",
        ),
        (safe_on_the_diagonal, "the gradient is nan"),
        (
            lambda x: recipes.pairwise_distances(x) + 1e-10 * (1 - torch.eye(len(x))),
            "two equal points is not exactly 0",
        ),
        (lambda x: recipes.pairwise_distances(x.detach()), "no graph"),
        (lambda x: recipes.pairwise_distances(x, x.detach()), "the gradient is wrong"),
        (lambda x: x, "expected shape"),
    ],
)
def test_check_distances_returns_the_expected_verdict(answer, says):
    expect(exercises.check_distances(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize(("n", "m"), [(25, 25), (26, 1), (1, 26), (26, 26)])
def test_cdist_uses_matrix_products_above_25_points(n, m):
    x = points(0, 30, 3) + 100
    default, exact = (
        torch.cdist(x[:n], x[:m], compute_mode=mode)
        for mode in ("use_mm_for_euclid_dist_if_necessary", EXACT)
    )
    assert torch.equal(default, exact) == (max(n, m) <= 25)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9)), min_size=1, max_size=12))
def test_scatter_reduce_without_self_reduces_each_group(pairs):
    labels, values = torch.tensor([p[0] for p in pairs]), torch.tensor([float(p[1]) for p in pairs])
    for how, f in {
        "amax": torch.amax,
        "amin": torch.amin,
        "mean": torch.mean,
        "prod": torch.prod,
    }.items():
        got = torch.zeros(4).scatter_reduce(0, labels, values, how, include_self=False)
        for k in range(4):
            group = values[labels == k]
            torch.testing.assert_close(got[k], f(group) if len(group) else torch.tensor(0.0))


@pytest.mark.parametrize(
    "mask",
    [
        lambda x: torch.where(x > 0, x.log(), 0.0),
        lambda x: torch.where(x > 0, 1 / x, 0.0),
        lambda x: x.sqrt() * (x > 0),
        lambda x: x.sqrt().masked_fill(x <= 0, 0.0),
    ],
)
def test_mask_after_the_operation_leaves_a_nan_gradient(mask):
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    out = mask(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert out.isfinite().all() and grad[0].isnan() and grad[1].isfinite()


def test_cross_entropy_losses_reject_integer_one_hot_targets():
    one_hot = torch.nn.functional.one_hot(torch.tensor([0, 2]), 3)
    p = torch.full((2, 3), 0.5)
    for loss in ("cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
        f = getattr(torch.nn.functional, loss)
        assert f(p, one_hot.float()).isfinite()
        with pytest.raises(RuntimeError):
            f(p, one_hot)


def test_broadcasting_formula_is_slower_than_cdist():
    x = points(0, 500, 128)
    assert time_ratio(lambda: by_hand(x, x), lambda: torch.cdist(x, x)) > 2


def test_cdist_loses_more_precision_for_close_points_far_from_0():
    errors = []
    for spread in (0.01, 1.0, 100.0):
        x = points(0, 100, 3) * spread + 100
        exact = torch.cdist(x.double(), x.double(), compute_mode=EXACT)
        off = ~torch.eye(100, dtype=torch.bool)
        errors.append(((torch.cdist(x, x) - exact).abs() / exact)[off].median().item())
    assert errors[0] > 100 * errors[1] > 1000 * errors[2]


def test_equal_returns_false_for_nan_and_true_for_signed_zeros():
    x = torch.tensor([1.0, torch.nan])
    assert not torch.equal(x, x) and not torch.equal(x, x.clone())
    assert torch.equal(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_equal_scores_get_different_ranks():
    rank = torch.tensor([1.0, 1.0, 0.0]).argsort().argsort()
    assert sorted(rank.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32"])
def test_comparison_rejects_uint16_and_uint32(name):
    labels = torch.tensor([0, 2]).to(getattr(torch, name))
    if name in ("uint16", "uint32"):
        with pytest.raises(RuntimeError, match="Promotion for uint16"):
            _ = labels[:, None] == torch.arange(3)
    else:
        same = labels[:, None] == torch.arange(3)
        assert same.tolist() == [[True, False, False], [False, False, True]]


@pytest.mark.filterwarnings("error::UserWarning")
def test_gaussian_nll_loss_broadcasts_without_a_warning():
    prediction, target = torch.rand(4, 1), torch.rand(4)
    loss = torch.nn.functional.gaussian_nll_loss(prediction, target, torch.ones(4))
    assert loss.shape == ()
    with pytest.raises(UserWarning, match="broadcasting"):
        torch.nn.functional.mse_loss(prediction, target)
