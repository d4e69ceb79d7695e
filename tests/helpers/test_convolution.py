"""Test sizes, windows and receptive fields against PyTorch, and the checkers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import convolution as c
from helpers.demos import convolution as demos
from helpers.exercises import convolution as exercises

pytestmark = pytest.mark.filterwarnings(
    "ignore:TF32 acceleration on top of oneDNN", "ignore:Using padding='same' with even"
)

few = settings(deadline=None, max_examples=50)
many = settings(deadline=None, max_examples=200)


def outcome(function, *errors):
    """Return the function's value, or None if it raises one of `errors`."""
    try:
        return function()
    except errors:
        return None


def torch_size(function):
    return outcome(lambda: function().shape[-1], RuntimeError)


def ours(function):
    return outcome(function, ValueError)


# ---------------------------------------------------------------- sizes


# most drawn values are valid; the smallest are not
small = {
    "n": st.integers(0, 20),
    "k": st.integers(0, 6),
    "s": st.integers(0, 4),
    "p": st.integers(-1, 4),
    "d": st.integers(0, 4),
}


@many
@given(**small)
def test_conv_output_size_matches_torch_or_both_raise(n, k, s, p, d):
    found = torch_size(lambda: F.conv1d(torch.zeros(1, 1, n), torch.zeros(1, 1, k), None, s, p, d))
    assert ours(lambda: c.conv_output_size(n, k, s, p, d)) == found


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (1.0, TypeError)])
def test_conv_transpose_output_size_requires_a_positive_int(size, error):
    with pytest.raises(error, match="^size must be"):
        c.conv_transpose_output_size(size, 3)


def test_default_settings_match_torch():
    x, weight = torch.zeros(1, 1, 9), torch.zeros(1, 1, 3)
    assert c.conv_output_size(9, 3) == F.conv1d(x, weight).numel()
    assert c.conv_transpose_output_size(9, 3) == F.conv_transpose1d(x, weight).numel()


@many
@given(**small, extra=st.integers(-1, 4))
def test_conv_transpose_output_size_matches_torch_or_both_raise(n, k, s, p, d, extra):
    x, w = torch.zeros(1, 1, n), torch.zeros(1, 1, k)
    with torch.backends.mkldnn.flags(enabled=False):  # oneDNN accepts a size of 0, see below
        found = torch_size(lambda: F.conv_transpose1d(x, w, None, s, p, extra, 1, d))
    assert ours(lambda: c.conv_transpose_output_size(n, k, s, p, extra, d)) == found


def test_output_size_of_0_raises():
    x, w = torch.zeros(2, 1, 2), torch.zeros(1, 1, 1)  # oneDNN is used for batches of 2 or more
    found = torch_size(lambda: F.conv_transpose1d(x, w, padding=1))
    assert found in (None, 0)  # depends on the backend
    with pytest.raises(ValueError, match="leaves a size of 0"):
        c.conv_transpose_output_size(2, 1, padding=1)


@few
@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
def test_same_and_valid_padding_match_torch(n, k, s, d):
    x, w = torch.zeros(1, 1, n), torch.zeros(1, 1, k)
    for word in ("same", "valid"):
        found = torch_size(lambda word=word: F.conv1d(x, w, None, s, word, d))
        assert ours(lambda word=word: c.conv_output_size(n, k, s, word, d)) == found


@few
@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.integers(3, 9))
def test_same_keeps_the_size_in_every_dimension(dims, k, d, n):
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    out = layer(1, 1, k, dilation=d, padding="same")(torch.zeros(1, 1, *[n] * dims))
    assert out.shape == (1, 1, *[n] * dims)
    with pytest.raises(ValueError, match="strided"):
        layer(1, 1, k, stride=2, padding="same")


@pytest.mark.parametrize("mode", ["reflect", "circular"])
def test_same_padding_rejects_inputs_smaller_than_a_copied_padding(mode):
    layer = nn.Conv1d(1, 1, 9, padding="same", padding_mode=mode)
    assert layer(torch.zeros(1, 1, 5)).shape == (1, 1, 5)
    with pytest.raises(RuntimeError, match="[Pp]adding"):
        layer(torch.zeros(1, 1, 3))


def test_pooling_and_transposed_convolutions_reject_same_padding():
    x = torch.zeros(1, 1, 9)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        nn.MaxPool1d(3, padding="same")(x)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        nn.ConvTranspose1d(1, 1, 3, padding="same")(x)


@many
@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_same_padding_returns_the_size_divided_by_the_stride(n, k, s, d):
    left, right = c.same_padding(n, k, s, d)
    assert 0 <= left <= right <= left + 1
    x, w = torch.randn(1, 1, n, dtype=torch.float64), torch.randn(1, 1, k, dtype=torch.float64)
    out = F.conv1d(F.pad(x, (left, right)), w, stride=s, dilation=d)
    assert out.shape[-1] == math.ceil(n / s)
    if left + right:  # no smaller padding suffices
        assert n + left + right == (out.shape[-1] - 1) * s + d * (k - 1) + 1
    if s == 1:
        assert torch.allclose(out, F.conv1d(x, w, padding="same", dilation=d))


@many
@given(st.integers(1, 40), st.integers(0, 40))
def test_adaptive_windows_match_torch(n, o):
    windows = c.adaptive_windows(n, o)
    seen = F.adaptive_max_pool1d(torch.eye(n)[:, None], o)[:, 0]  # (cell, output)
    assert [(int(w.nonzero()[0]), int(w.nonzero()[-1]) + 1) for w in seen.T] == windows
    assert len(windows) == o
    assert seen.sum(0).tolist() == [b - a for a, b in windows]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: c.conv_output_size(5, 7),
            ValueError,
            "spans 7 cells, the padded .* only 5",
        ),
        (lambda: c.conv_output_size(6, 3, dilation=3), ValueError, "spans 7 cells"),
        (lambda: c.conv_output_size(5, 3, 0), ValueError, "stride must be at least 1, got 0"),
        (lambda: c.conv_output_size(5, 3, 2, "same"), ValueError, "needs stride 1, got stride 2"),
        (lambda: c.conv_output_size(5, 3, 1, "SAME"), ValueError, "'same' or 'valid', got 'SAME'"),
        (lambda: c.conv_output_size(5, 3.0), TypeError, r"kernel_size must be an int, got 3.0"),
        (lambda: c.conv_output_size(True, 1), TypeError, r"size must be an int, got True \(bool"),
        (lambda: c.conv_output_size((5, 5), 1), TypeError, "size must be an int"),
        (lambda: c.conv_transpose_output_size(4, 3, 2, 0, 2), ValueError, "got 2 with stride 2"),
        (lambda: c.conv_transpose_output_size(1, 1, 1, 1), ValueError, "leaves a size of -1"),
        (lambda: c.conv_output_size(8, 3, padding=-1), ValueError, "padding must be at least 0"),
        (lambda: c.adaptive_windows(0, 2), ValueError, "size must be at least 1, got 0"),
        (lambda: c.adaptive_windows(2, -1), ValueError, "output_size must be at least 0, got -1"),
        (lambda: c.same_padding(8, 0), ValueError, "kernel_size must be at least 1, got 0"),
    ],
)
def test_impossible_settings_raise(call, error, words):
    with pytest.raises(error, match=words):
        call()


# ---------------------------------------------------------------- receptive field

layers = st.one_of(
    st.builds(
        lambda k, s, p, d: nn.Conv1d(1, 1, k, s, p, d),
        *(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3)),
    ),
    st.builds(lambda k, s: nn.AvgPool1d(k, s, k // 2), st.integers(1, 4), st.integers(1, 3)),
    st.builds(
        lambda k, d: nn.Conv1d(1, 1, k, padding="same", dilation=d), *[st.integers(1, 4)] * 2
    ),
    st.sampled_from([nn.ReLU(), nn.Identity(), nn.BatchNorm1d(1)]),
)


@few
@given(st.lists(layers, max_size=4), st.booleans())
def test_receptive_field_matches_the_gradient(stack, nested):
    net = nn.Sequential(*stack[:1], nn.Sequential(*stack[1:])) if nested else nn.Sequential(*stack)
    field = c.receptive_field(net)
    assert field == c.receptive_field(*stack)
    size = 2 * (field.size + 4 * field.jump) + 60
    outputs = net(torch.zeros(2, 1, size)).shape[-1]
    for at in (outputs // 2, outputs // 2 + 1):
        read = demos.paths(net, (1, size), at).nonzero().flatten()
        cells = field.cells(at)
        assert (int(read[0]), int(read[-1])) == (cells[0], cells[-1])
        assert len(cells) == field.size
    assert field.cells(1)[0] - field.cells(0)[0] == field.jump


def test_receptive_field_of_known_networks_is_correct():
    vgg = nn.Sequential()
    for count in (2, 2, 3, 3, 3):
        for _ in range(count):
            vgg += nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU())
        vgg.append(nn.MaxPool2d(2))
    assert c.receptive_field(vgg).size == 212  # VGG-16 up to its last pooling
    assert c.receptive_field(vgg).jump == 32
    assert c.receptive_field() == c.ReceptiveField(1, 1, 0)
    cellwise = nn.ReLU6(), nn.Hardswish(), nn.LogSigmoid(), nn.RReLU(), nn.Threshold(0, 0)
    mobile = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LazyBatchNorm2d(), *cellwise)
    assert c.receptive_field(mobile) == c.ReceptiveField(3, 2, -1)
    assert c.receptive_field(nn.MaxPool1d(3, 2, 1, dilation=2)) == c.ReceptiveField(5, 2, -1)
    assert c.receptive_field(nn.MaxPool2d([2, 2])) == c.ReceptiveField(2, 2, 0)


@pytest.mark.parametrize(
    ("layer", "error", "words"),
    [
        (nn.Linear(2, 2), TypeError, "got Linear"),
        (nn.ConvTranspose1d(1, 1, 3), TypeError, "got ConvTranspose1d"),
        (nn.Conv2d(1, 1, (1, 3)), ValueError, r"kernel_size must be the same .* got \(1, 3\)"),
        (nn.Conv2d(1, 1, 3, stride=(1, 2)), ValueError, "stride must be the same"),
    ],
)
def test_receptive_field_rejects_other_layers(layer, error, words):
    with pytest.raises(error, match=words):
        c.receptive_field(layer)


def test_paths_counts_paths_and_keeps_the_module():
    net = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 1, 3, padding=1))
    before = [p.clone() for p in net.parameters()]
    ways = demos.paths(net, (3, 9, 9))
    assert ways.shape == (9, 9) and ways.dtype == torch.float64
    row = torch.tensor([1.0, 2, 3, 2, 1], dtype=torch.float64)
    # 3 input channels, each through 2 intermediate channels
    assert torch.equal(ways[2:7, 2:7], 6 * torch.outer(row, row))
    assert ways.sum() == ways[2:7, 2:7].sum()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert net[0].weight.dtype == torch.float32 and net.training
    assert all(p.grad is None for p in net.parameters())
    assert demos.paths(net, (3, 9, 9), at=0)[0, 0] == 6 * 2 * 2  # the corner


def test_paths_rejects_max_pooling_and_tuple_outputs():
    with pytest.raises(TypeError, match="max pooling reaches one cell only"):
        demos.paths(nn.Sequential(nn.MaxPool1d(2)), (1, 8))

    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(TypeError, match="got tuple"):
        demos.paths(Pair(), (1, 8))


# ---------------------------------------------------------------- figures


def test_overlap_is_the_outer_product_of_one_axis():
    layer = nn.ConvTranspose2d(1, 1, 3, 2, 1, 1)
    weight = layer.weight.clone()
    row = torch.tensor([1.0, 2, 1, 2, 1, 1])
    assert torch.equal(demos.overlap(layer, 3), torch.outer(row, row))
    assert torch.equal(layer.weight, weight)


def test_figures_show_the_numbers():
    figure = demos.draw_overlap({"a": nn.ConvTranspose2d(1, 1, 2, 2), "b": nn.Conv2d(1, 1, 3)}, 4)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["a", "b"]
    assert {text.get_text() for text in figure.axes[0].texts} == {"1"}
    assert [text.get_text() for text in figure.axes[1].texts] == ["9"] * 4
    figure = demos.draw_paths({"three": nn.Conv1d(1, 1, 3, padding=1)}, 7)
    assert [bar.get_height() for bar in figure.axes[0].patches] == [0, 0, 1, 1, 1, 0, 0]
    with pytest.raises(ValueError, match="at least one stack"):
        demos.draw_paths({})
    with pytest.raises(ValueError, match="at least one layer"):
        demos.draw_overlap({})


# ---------------------------------------------------------------- exercises


def back(size, k, s, p, d):
    return (size + 2 * p - d * (k - 1) - 1) % s


def back_by_the_sizes(size, k, s, p, d):
    small = c.conv_output_size(size, k, s, p, d)
    return size - c.conv_transpose_output_size(small, k, s, p, 0, d)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (back, None),
        (back_by_the_sizes, None),
        (lambda size, k, s, p, d: back(size, k, max(s, d), p, d), "dilation 4: 2 is not right"),
        (lambda size, k, s, p, d: s - 1, "gives size"),
        (lambda size, k, s, p, d: 0, "gives size"),
        (lambda size, k, s, p, d: size % s, "gives size"),
        (lambda size, k, s, p, d: (size - d * (k - 1) - 1) % s, "gives size"),
        (lambda size, k, s, p, d: (size + 2 * p - k) % s, "gives size"),
        (lambda size, k, s, p, d: 1, "1 is not allowed for stride 1"),
        (lambda size, k, s, p, d: -1, "-1 is not allowed"),
        (lambda size, k, s, p, d: 0.0, "expected an int, got float"),
        (lambda *_: None, "expected an int, got None"),
    ],
)
def test_check_output_padding_accepts_right_and_rejects_wrong_answers(answer, says):
    for _ in range(10):
        expect(exercises.check_output_padding(answer), says)


def adaptive(x, o, start=lambda i, n, o: i * n // o, end=lambda i, n, o: -(-(i + 1) * n // o)):
    n = x.shape[-1]
    return torch.stack([x[..., start(i, n, o) : end(i, n, o)].mean(-1) for i in range(o)], -1)


def by_matrix(x, o):
    cells = torch.arange(x.shape[-1])
    rows = [(a <= cells) & (cells < b) for a, b in c.adaptive_windows(x.shape[-1], o)]
    weight = torch.stack(rows).to(x.dtype)
    return x @ (weight / weight.sum(1, keepdim=True)).T


def in_floats(x, o):
    return adaptive(x, o, end=lambda i, n, o: math.ceil((i + 1) * (n / o)))


def adaptive_in_place(x, o):
    out = adaptive(x, o)
    with torch.no_grad():
        x.zero_()
    return out


def fixed(x, o):
    n = x.shape[-1]
    stride = max(n // o, 1)
    return F.avg_pool1d(x, max(n - (o - 1) * stride, 1), stride)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (adaptive, None),
        (F.adaptive_avg_pool1d, "write it yourself"),
        (lambda x, o: nn.AdaptiveAvgPool1d(o)(x), "write it yourself"),
        (lambda x, o: F.interpolate(x, size=o, mode="area"), "write it yourself"),
        (by_matrix, None),
        (in_floats, "(many positions): output position"),
        (fixed, "they do not divide"),
        (lambda x, o: adaptive(x, o, end=lambda i, n, o: (i + 1) * n // o), "do not divide"),
        (lambda x, o: adaptive(x, o, start=lambda i, n, o: -(-i * n // o)), "do not divide"),
        (F.adaptive_max_pool1d, "write it yourself"),
        (
            lambda x, o: adaptive(x, o) if o <= x.shape[-1] else F.interpolate(x, size=o),
            "more positions than the input",
        ),
        (lambda x, o: F.interpolate(x, size=o, mode="nearest"), "is not the mean of the input"),
        (lambda x, o: adaptive(x.detach(), o), "no gradient flows to x"),
        (lambda x, o: adaptive(x.float(), o).to(x.dtype), "(float64): output position"),
        (adaptive_in_place, "x was changed"),
        (lambda x, o: adaptive(x, o + 1), "expected shape"),
        (lambda x, o: adaptive(x, o).float(), "keep the dtype of x"),
        (lambda x, o: None, "expected a tensor, got None"),
    ],
)
def test_check_adaptive_accepts_right_and_rejects_wrong_answers(answer, says):
    for _ in range(10):
        expect(exercises.check_adaptive(answer), says)


def straight_through(x):
    return (x.sign() * x.abs().sqrt()).detach() + (x - x.detach())  # the value is exact


def piecewise(x, eps=1e-5):
    root = x.sign() * x.abs().clamp(min=eps).sqrt()
    return torch.where(x.abs() > eps, root, x / eps**0.5)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: x / torch.sqrt(x.abs() + 1e-5), None),
        (lambda x: x.sign() * (torch.sqrt(x.abs() + 1e-5) - 1e-5**0.5), None),
        (piecewise, None),
        (lambda x: x.sign() * x.abs().sqrt(), "the gradient at 0 is not finite"),
        (lambda x: x.sign() * torch.sqrt(x.abs() + 1e-5), "there is a jump at 0"),
        (lambda x: x.sign() * torch.sqrt(x.abs() + 1e-8), "there is a jump at 0"),
        (lambda x: x.sign() * x.abs().clamp(min=1e-12).sqrt(), "there is a jump at 0"),
        (lambda x: torch.where(x == 0, 0, x.sign() * x.abs().sqrt()), "not finite"),
        (lambda x: torch.sqrt(x.abs() + 1e-5), "more than 0.01 away"),
        (lambda x: x / torch.sqrt(x.abs() + 1), "more than 0.01 away"),
        (lambda x: x / torch.sqrt(x.abs() + 0.002), "more than 0.01 away"),
        (lambda x: (x / torch.sqrt(x.abs() + 1e-5)).detach(), "the result has no graph"),
        (lambda x: x.sign() * x.abs().sqrt().detach() + 0 * x, "is not positive"),
        (straight_through, "the gradient is not that of the root"),
        (lambda x: x * torch.rsqrt(x.abs() + 1e-6), "in float16 the gradient is not finite"),
        (lambda x: x / (x * x + 1e-10) ** 0.25, "in float16 the value is wrong"),
        (lambda x: x * torch.rsqrt(x.abs() + 1e-3), None),
        (lambda x: x / x.abs().clamp(min=1e-8).sqrt(), "in float16 the value is wrong"),
        (lambda x: x / torch.sqrt(x.double().abs() + 1e-5), "expected torch.float32"),
        (lambda x: x.float() / torch.sqrt(x.float().abs() + 1e-5), "expected torch.float64"),
        (lambda x: None, "expected a tensor, got None"),
    ],
)
def test_check_signed_sqrt_accepts_right_and_rejects_wrong_answers(answer, says):
    for _ in range(10):
        expect(exercises.check_signed_sqrt(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


def unread(n, k, s, p):
    x = torch.ones(1, 1, n, requires_grad=True)
    F.conv1d(x, torch.ones(1, 1, k), stride=s, padding=p).sum().backward()
    return (x.grad[0, 0] == 0).nonzero().flatten().tolist()


def test_too_little_padding_leaves_cells_unread():
    assert unread(5, 5, 3, 1) == [4] and unread(8, 3, 2, 0) == [7]
    assert unread(5, 5, 3, 2) == unread(8, 3, 2, 1) == []


def test_ceil_mode_reads_every_cell_if_the_stride_is_at_most_the_kernel():
    lost = set()
    for n, k, s in itertools.product(range(1, 12), range(1, 6), range(1, 6)):
        for p in range(k // 2 + 1):
            if n + 2 * p >= k:
                x = torch.ones(1, 1, n, requires_grad=True)
                F.avg_pool1d(x, k, s, p, ceil_mode=True).sum().backward()
                if (x.grad == 0).any():
                    lost.add(s > k)
    assert lost == {True}


def test_adaptive_pooling_equals_fixed_pooling_if_the_sizes_divide():
    same = {}
    for n, o in itertools.product(range(1, 14), range(1, 14)):
        if o <= n:
            x, stride = torch.randn(1, 1, n, dtype=torch.double), n // o
            fixed_pool = F.avg_pool1d(x, n - (o - 1) * stride, stride)
            same[n, o] = torch.allclose(fixed_pool, F.adaptive_avg_pool1d(x, o))
    assert all(same[n, o] for n, o in same if n % o == 0)
    others = [fits for (n, o), fits in same.items() if n % o]
    assert same[3, 2] and not same[10, 4] and 0 < sum(others) < len(others) / 2


@pytest.mark.parametrize(("crop", "more"), [(0, 1), (1, 1), (1, 2), (2, 2), (0, 2)])
def test_output_padding_adds_only_cells_beyond_the_crop(crop, more):
    up = nn.ConvTranspose1d(1, 1, 3, stride=3, padding=crop, output_padding=more)
    only_bias = (up(torch.ones(1, 1, 3))[0, 0] == up.bias).sum().item()
    assert only_bias == max(more - crop, 0)


@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("layers", [2, 3])
def test_equal_dilations_above_1_leave_gaps(d, layers):
    stack = nn.Sequential(*[nn.Conv1d(1, 1, 3, dilation=d, padding=d) for _ in range(layers)])
    read = int((demos.paths(stack, (1, 41)) > 0).sum())
    assert read == 2 * layers + 1 < c.receptive_field(stack).size


@pytest.mark.parametrize("k", range(1, 12, 2))
@pytest.mark.parametrize("d", [1, 2, 3])
def test_size_keeping_padding_halves_the_size_rounded_up_at_stride_2(k, d):
    for n in range(1, 12):
        for s in (1, 2):
            out = nn.Conv1d(1, 1, k, s, d * (k - 1) // 2, d)(torch.zeros(1, 1, n))
            assert out.shape[-1] == -(-n // s)
