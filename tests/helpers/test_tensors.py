"""Test the helpers of `tensors`, and its checkers with solutions, starters and wrong answers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import tensors
from helpers.demos import tensors as demos
from helpers.exercises import tensors as exercises
from helpers.timing import time_ratio

FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]

# ---------------------------------------------------------------- describe


@pytest.mark.parametrize(
    ("x", "line"),
    [
        (torch.tensor([[1.0, -2.5]]), "(1, 2) float32 on cpu, from -2.5 to 1"),
        (torch.tensor(3), "() int64 on cpu, from 3 to 3"),
        (torch.tensor([True, False]), "(2,) bool on cpu, from 0 to 1"),
        (torch.zeros(0, 3), "(0, 3) float32 on cpu, empty"),
        (torch.zeros(2, device="meta"), "(2,) float32 on meta"),
        (torch.eye(2).to_sparse(), "(2, 2) float32 on cpu, sparse_coo, from 0 to 1"),
        (torch.ones(1, requires_grad=True), "(1,) float32 on cpu, requires grad, from 1 to 1"),
        (torch.tensor([1.0, float("nan")]), "(2,) float32 on cpu, from 1 to 1, 1 nan"),
        (torch.full((2,), float("nan")), "(2,) float32 on cpu, 2 nan"),
        (torch.zeros(1, dtype=torch.complex64), "(1,) complex64 on cpu"),
        (torch.tensor([70000.0]).half(), "(1,) float16 on cpu, from inf to inf"),
        (torch.tensor([1_700_000_001, 7]), "(2,) int64 on cpu, from 7 to 1700000001"),
        (torch.tensor([2**63 - 1]), f"(1,) int64 on cpu, from {2**63 - 1} to {2**63 - 1}"),
        (torch.tensor([5], dtype=torch.uint16), "(1,) uint16 on cpu, from 5 to 5"),
        (
            torch.tensor([1.7e9, 1.7e9 + 128]),
            "(2,) float32 on cpu, from 1.7e+09 to 1.70000013e+09",
        ),
        (torch.ones(2).to(torch.float8_e4m3fn), "(2,) float8_e4m3fn on cpu, from 1 to 1"),
    ],
)
def test_describe_returns_shape_dtype_device_and_range(x, line):
    assert tensors.describe(x) == line


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_describe_accepts_nested_tensors(layout):
    parts = [torch.ones(2), torch.zeros(3)]
    line = tensors.describe(torch.nested.nested_tensor(parts, layout=layout))
    assert line.startswith("nested, 2 parts, float32 on cpu") and line.endswith("from 0 to 1")


@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=4))
def test_describe_distinguishes_two_different_bounds(values):
    low, high = min(values), max(values)
    words = tensors.describe(torch.tensor(values)).split("from ")[1]
    assert (low == high) == (words.split(" to ")[0] == words.split(" to ")[1])


def test_describe_requires_a_tensor():
    with pytest.raises(TypeError, match="expected a tensor, got ndarray"):
        tensors.describe(np.zeros(2))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_bsr])
def test_describe_reads_only_stored_values_of_sparse_tensors(layout):
    block = (2, 2) if layout is torch.sparse_bsr else None
    x = torch.eye(4).to_sparse(layout=layout, blocksize=block)
    assert tensors.describe(x).endswith("from 0 to 1")
    assert tensors.describe(torch.full((2, 2), 3.0).to_sparse()).endswith("from 3 to 3")
    assert tensors.describe(torch.zeros(2, 2).to_sparse()).endswith("from 0 to 0")
    large = torch.sparse_coo_tensor([[5, 5], [7, 7]], [1.0, 2.0], (10**9, 10**9))
    assert tensors.describe(large).endswith("sparse_coo, from 0 to 3")


# ---------------------------------------------------------------- warnings


def test_warning_of_returns_once_only_warnings_every_time():
    array = np.zeros(2)
    array.flags.writeable = False
    before = torch.is_warn_always_enabled()
    for _ in range(2):
        assert "not writable" in tensors.warning_of(lambda: torch.from_numpy(array))
    assert torch.is_warn_always_enabled() == before


def test_warning_of_returns_the_first_warning_without_location():
    def two():
        warnings.warn("first (Triggered internally at a.cpp:1.)", stacklevel=1)
        warnings.warn("second", stacklevel=1)

    assert tensors.warning_of(two) == "first"
    assert tensors.warning_of(lambda: None) is None


def test_warning_of_propagates_errors_and_restores_the_setting():
    before = torch.is_warn_always_enabled()
    with pytest.raises(ZeroDivisionError):
        tensors.warning_of(lambda: 1 / 0)
    assert torch.is_warn_always_enabled() == before


# ---------------------------------------------------------------- gaps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.floats(0, 1e30), max_size=5))
def test_gap_equals_the_distance_to_nextafter(dtype, values):
    x = torch.tensor(values, dtype=dtype)
    following = torch.nextafter(x, torch.tensor(float("inf"), dtype=dtype))
    assert torch.equal(tensors.gap(x), following.double() - x.double())


@pytest.mark.parametrize("dtype", FLOATS)
def test_gap_matches_finfo(dtype):
    info = torch.finfo(dtype)
    assert tensors.gap(torch.tensor(1, dtype=dtype)) == info.eps
    assert tensors.gap(torch.tensor(info.max, dtype=dtype)) == float("inf")
    smallest = info.smallest_normal * info.eps
    assert tensors.gap(torch.tensor([0.0, -0.0], dtype=dtype)).tolist() == [smallest] * 2


@pytest.mark.parametrize("dtype", FLOATS[:3])
def test_counting_by_one_stops_at_two_over_eps(dtype):
    stop = torch.tensor(2 / torch.finfo(dtype).eps, dtype=dtype)
    assert stop + 1 == stop and (stop - 1) + 1 == stop
    assert tensors.gap(stop) == 2 and tensors.gap(stop - 1) == 1


def test_gap_accepts_any_shape_and_strides():
    x = torch.arange(6.0).reshape(2, 3)
    assert tensors.gap(x.T).shape == (3, 2)
    assert torch.equal(tensors.gap(x.T), tensors.gap(x).T)
    assert tensors.gap(torch.zeros(0)).shape == (0,)


def test_gap_rejects_unsupported_dtypes_and_values():
    for narrow in (torch.tensor(1), torch.ones(1).to(torch.float8_e4m3fn)):
        with pytest.raises(TypeError, match=f"16 bits, got {narrow.dtype}"):
            tensors.gap(narrow)
    with pytest.raises(TypeError, match="expected a tensor, got float"):
        tensors.gap(256.0)
    for bad in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="finite and not negative"):
            tensors.gap(torch.tensor([1.0, bad]))


# ---------------------------------------------------------------- figures


def test_draw_gaps_shows_gaps_and_counting_limits():
    figure = demos.draw_gaps()
    (axis,) = figure.axes
    curves = {line.get_label(): line for line in axis.lines}
    for name in ("bfloat16", "float16", "float32"):
        x, y = (torch.tensor(v) for v in curves[name].get_data())
        assert torch.equal(tensors.gap(x.to(getattr(torch, name))), y)
    texts = [text.get_text() for text in axis.texts]
    assert {"256", "2,048", "16,777,216", "65,504, then inf"} <= set(texts)


def test_draw_promotion_matches_promote_types():
    (axis,) = demos.draw_promotion().axes
    boxes = (t for t in axis.texts if t.get_bbox_patch())
    place = {t.get_text(): t.get_position() for t in boxes}
    arrows = [(t.xyann, t.xy) for t in axis.texts if getattr(t, "arrow_patch", None)]
    name = {v: k for k, v in place.items()}
    edges = {(name[start], name[end]) for start, end in arrows}
    assert len(place) == 12 and len(edges) == len(arrows) == 14
    assert all(place[start][1] < place[end][1] for start, end in edges)

    def up(dtype):  # dtypes that the arrows lead to
        return {dtype}.union(*(up(end) for start, end in edges if start == dtype))

    for one in place:
        for other in place:
            both = up(one) & up(other)
            first = next(dtype for dtype in both if both == up(dtype))
            promoted = torch.promote_types(getattr(torch, one), getattr(torch, other))
            assert promoted == getattr(torch, first)


# ---------------------------------------------------------------- exercises


def in_place(x):
    return x.clamp_(0, 1).mul(255).round().byte().permute(1, 2, 0).numpy()


def by_numpy(x):
    return np.rint(np.clip(x.float().numpy(), 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def by_torch(x):
    return x.float().clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).numpy(force=True)


def by_numpy_in_float32(x):
    array = np.clip(x.detach().float().numpy(), 0, 1) * 255
    return np.rint(array).astype(np.uint8).transpose(1, 2, 0)


def by_short_integers(x):
    levels = x.detach().float().mul(255).round().to(torch.int16)
    return levels.clamp(0, 255).byte().permute(1, 2, 0).numpy()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: (x.float() * 255 + 0.5).clamp(0, 255).byte().permute(1, 2, 0).numpy(), None),
        (lambda x: (x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy(), "is off"),
        (by_numpy, "requires a gradient"),
        (by_torch, None),
        (lambda x: by_torch(x).squeeze(), "a grey image"),
        (lambda x: by_torch(x.detach().double().half()), "float64"),
        (by_numpy_in_float32, None),
        (lambda x: (x * 255).clamp(0, 255).round().byte().permute(1, 2, 0).numpy(), "float16"),
        (lambda x: (x * 255).byte().permute(1, 2, 0).numpy(), "one level off"),
        (lambda x: (x.clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy(), "one level off"),
        (lambda x: (x * 255).round().byte().permute(1, 2, 0).numpy(), "it wrapped around"),
        (lambda x: (x.clamp(min=0) * 255).round().byte().permute(1, 2, 0).numpy(), "above 1"),
        (lambda x: (x.clamp(max=1) * 255).round().byte().permute(1, 2, 0).numpy(), "below 0"),
        (lambda x: x.abs().clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).numpy(), "below 0"),
        (lambda x: x.clamp(0, 1).round().byte().permute(1, 2, 0).numpy(), "scale by 255"),
        (lambda x: x.clamp(0, 1).mul(256).byte().permute(1, 2, 0).numpy(), "one level off"),
        (lambda x: x.clamp(0, 1).mul(100).byte().permute(1, 2, 0).numpy(), "more than one level"),
        (lambda x: (x.clamp(0, 1) * 255).round().byte().numpy(), "still (C, H, W)"),
        (lambda x: (x.clamp(0, 1) * 255).round().byte().permute(2, 1, 0).numpy(), "not (H, W, C)"),
        (lambda x: (x.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy(), "expected uint8"),
        (lambda x: (x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0), "expected a NumPy array"),
        (in_place, "x was changed"),
        (lambda x: by_torch(x.requires_grad_(False)), "your code raised RuntimeError"),
        (lambda x: by_torch(x.detach_()), "your code raised RuntimeError"),
        (by_short_integers, "it wrapped around"),
        (lambda x: ..., "expected a NumPy array, got ellipsis"),
    ],
)
def test_check_to_uint8_returns_the_expected_verdict(answer, says):
    expect(exercises.check_to_uint8(answer), says)


def array_in_place(array):
    array += 0.5 if array.dtype.kind == "f" else 1
    return torch.from_numpy(array.astype(np.float32))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda a: torch.from_numpy(a.astype(np.float32)), None),
        (lambda a: torch.from_numpy(np.array(a, dtype=np.float32, order="C")), None),
        (lambda a: torch.tensor(np.array(a, dtype=np.float32)), None),
        (lambda a: torch.tensor(a.copy(), dtype=torch.float32), "big-endian"),
        (lambda a: torch.from_numpy(a.copy()).float(), "big-endian"),
        (lambda a: torch.from_numpy(a.astype(np.float32, copy=False)), "they share memory"),
        (lambda a: torch.from_numpy(a.astype(np.float32).ravel()), "came out wrong"),
        (
            lambda a: torch.from_numpy(a.astype(np.float32, copy=a.flags.writeable)),
            "a read-only array shares its memory",
        ),
        (lambda a: torch.from_numpy(np.array(a, np.float32, order="F")), None),
        (lambda a: torch.from_numpy(np.array(a, np.float16)).float(), "values are not those"),
        (lambda a: torch.from_numpy(np.array(a, np.int64)).float(), "values are not those"),
        (lambda a: torch.from_numpy(np.abs(a.astype(np.float32))), "values are not those"),
        (lambda a: torch.from_numpy(a).float(), "float32 array changed the tensor"),
        (lambda a: torch.as_tensor(a, dtype=torch.float32), "float32 array changed the tensor"),
        (lambda a: torch.tensor(a, dtype=torch.float32), "negative stride: copy first"),
        (lambda a: torch.tensor(a.copy()), "expected torch.float32, got torch.float64"),
        (lambda a: torch.tensor(np.abs(a), dtype=torch.float32), "values are not those"),
        (lambda a: torch.tensor(np.sort(a), dtype=torch.float32), "values are not those"),
        (lambda a: a, "expected a tensor, got ndarray"),
        (array_in_place, "array was changed"),
    ],
)
def test_check_own_tensor_returns_the_expected_verdict(answer, says):
    torch.manual_seed(0)
    expect(exercises.check_own_tensor(answer), says)


def test_check_own_tensor_rejects_an_undone_reversal():
    def undone(a):
        a = a[::-1] if a.strides[0] < 0 else a
        return torch.tensor(a.copy(), dtype=torch.float32)

    assert "a reversed array came out wrong" in exercises.check_own_tensor(undone).message


def running_half(batches):
    total, count = 0, 0
    for batch in batches:
        total, count = total + batch.sum(), count + batch.numel()
    return (total / count).item()


def running(batches):
    total, count = 0.0, 0
    for batch in batches:
        total, count = total + batch.double().sum().item(), count + batch.numel()
    return total / count


def rows(batches):
    batches = list(batches)
    return sum(b.float().sum().item() for b in batches) / sum(map(len, batches))


def joined(batches):
    return torch.cat([b.flatten() for b in batches])


def mean_of_means(batches):
    batches = list(batches)
    return sum(b.float().mean().item() for b in batches) / len(batches)


def weighted(batches):
    total, count = 0.0, 0
    for batch in batches:
        total += batch.double().mean().item() * batch.numel()
        count += batch.numel()
    return total / count


def of_two_dimensions(batches):
    total, count = 0.0, 0
    for b in batches:
        total += b.float().sum().item()
        count += b.shape[0] * (b.shape[-1] if b.dim() > 1 else 1) if b.dim() else 1
    return total / count


def clearing(batches):
    total, count = 0.0, 0
    for batch in batches:
        total, count = total + batch.double().sum().item(), count + batch.numel()
        batch.zero_()
    return total / count


def twice(batches):
    return sum(b.float().sum().item() for b in batches) / sum(b.numel() for b in batches)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (running, None),
        (lambda bs: joined(bs).float().mean().item(), None),
        (lambda bs: float(np.mean(joined(bs).double().numpy())), None),
        (running_half, "the sum overflowed in float16"),
        (lambda bs: joined(b.half() for b in bs).double().mean().item(), "overflowed in bfloat16"),
        (mean_of_means, "mean of the means"),
        (twice, "can be read only once"),
        (lambda bs: mean_of_means(bs[:]), "can be read only once"),
        (rows, "counts rows"),
        (weighted, "came out as nan"),
        (of_two_dimensions, "came out as 3.0"),
        (clearing, "batches[0] was changed"),
        (lambda bs: joined(bs).mean().item(), "digits are lost"),
        (lambda bs: next(iter(bs)).float().mean().item(), "far from the mean"),
        (lambda bs: joined(bs).float().mean(), "expected a Python number, got a tensor"),
        (lambda bs: ..., "expected a float, got ellipsis"),
    ],
)
def test_check_mean_of_returns_the_expected_verdict(answer, says):
    expect(exercises.check_mean_of(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


@settings(deadline=None, max_examples=30)
@given(scores=st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_argmax_returns_the_first_of_equal_scores(scores):
    x, first = torch.tensor([scores]), scores.index(max(scores))
    assert x.argmax(1).item() == x.max(1).indices.item() == first


def test_zero_dimensional_operand_keeps_the_tensor_dtype():
    for small, wide in ((torch.float16, torch.float64), (torch.uint8, torch.int64)):
        x = torch.ones(2, dtype=small)
        assert (x + torch.ones((), dtype=wide)).dtype == (x + 1).dtype == small
        assert (x + torch.ones(1, dtype=wide)).dtype == wide


def test_tensor_times_array_raises_for_gradients():
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(2, requires_grad=True) * np.ones(2)
    with pytest.raises(TypeError, match="unsupported operand"):
        np.ones(2) * torch.ones(2)


@pytest.mark.parametrize(
    ("x", "way"),
    [
        (torch.ones(1, requires_grad=True), "detach"),
        (torch.eye(2).to_sparse(), "to_dense"),
        (torch.tensor([1j]).conj(), "resolve_conj"),
        (torch.tensor([1j]).conj().imag, "resolve_neg"),
    ],
)
def test_numpy_conversion_error_names_the_required_call(x, way):
    with pytest.raises((RuntimeError, TypeError), match=way):
        x.numpy()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(2, 1), (3, 2)),
        (nn.Conv2d(1, 1, 1), (1, 1, 2, 2)),
        (nn.BatchNorm1d(2), (3, 2)),
        (nn.LayerNorm(2), (3, 2)),
        (nn.PReLU(), (3, 2)),
        (nn.GRU(2, 2), (3, 2)),
    ],
)
def test_layers_with_weights_reject_another_dtype(layer, shape):
    for mode in (layer.train(), layer.eval()):
        with pytest.raises((RuntimeError, ValueError)):
            mode(torch.ones(shape, dtype=torch.float64))


def test_product_order_changes_the_last_bits():
    generator = torch.Generator().manual_seed(0)
    a, b, c = torch.rand(3, 10_000, generator=generator)
    assert 0.2 < ((a * b) * c != a * (b * c)).double().mean() < 0.5
    torch.testing.assert_close((a * b) * c, a * (b * c))


def test_float32_is_faster_than_float64():
    single = torch.rand(256, 256)
    double = single.double()
    assert time_ratio(lambda: double @ double, lambda: single @ single) > 1.1


def test_in_place_arithmetic_raises_where_assignment_truncates():
    for low, high in ((torch.tensor([True]), 1), (torch.tensor([1]), 0.5), (torch.ones(1), 1j)):
        with pytest.raises(RuntimeError, match="can't be cast"):
            low += high
    x = torch.tensor([1, 2])
    x[0], x[1:] = 2.9, torch.tensor([-2.9])
    assert x.tolist() == [2, -2]
    assert x.masked_fill_(x > 0, 3.9).tolist() == [3, -2]


@pytest.mark.parametrize("own", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2])
def test_unsigned_and_8_bit_float_dtypes_are_not_promoted(own):
    other = torch.int64 if not own.is_floating_point else torch.float32
    with pytest.raises(RuntimeError, match="Promotion for .* is not supported"):
        torch.ones(2).to(own) + torch.ones(2, dtype=other)
    with pytest.raises(NotImplementedError, match="add"):
        torch.ones(2).to(own) + 1


def test_sum_of_halves_in_float32_does_not_overflow():
    before = torch.get_num_threads()
    x = torch.tensor([60000.0, -60000.0]).repeat_interleave(100_000).half()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert x.sum(dtype=torch.float32) == 0
    finally:
        torch.set_num_threads(before)


def test_default_device_is_per_thread_and_default_dtype_global():
    def elsewhere():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: torch.ones(1)).result()

    torch.set_default_device("meta")
    try:
        assert torch.ones(1).is_meta and not elsewhere().is_meta
    finally:
        torch.set_default_device(None)
    torch.set_default_dtype(torch.float64)
    try:
        assert elsewhere().dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_pil_accepts_chw_arrays_of_width_2_to_4():
    for width in range(1, 8):
        pixels = np.zeros((3, 6, width), np.uint8)
        if width in (2, 3, 4):
            assert PIL.Image.fromarray(pixels).size == (6, 3)
        else:
            with pytest.raises(TypeError, match="Cannot handle this data type"):
                PIL.Image.fromarray(pixels)


@pytest.mark.parametrize(
    ("mean", "std"), [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225), (0.5, 0.5), (0.1307, 0.3081)]
)
def test_denormalized_image_requires_rounding(mean, std):
    levels = torch.arange(256, dtype=torch.uint8)
    back = ((levels / 255 - mean) / std) * std + mean
    assert not torch.equal((back * 255).byte(), levels)
    assert torch.equal((back * 255).round().byte(), levels)


def test_read_only_arrays_are_detected_and_a_mapped_write_crashes(tmp_path):
    assert not np.asarray(PIL.Image.new("RGB", (2, 2))).flags.writeable
    assert not np.broadcast_to(np.zeros(1), (3,)).flags.writeable
    np.save(tmp_path / "x.npy", np.zeros(4))
    for mode, writeable in (("r", False), ("r+", True), ("c", True)):
        assert np.load(tmp_path / "x.npy", mmap_mode=mode).flags.writeable == writeable
    write = "import numpy, torch; torch.from_numpy(numpy.load('x.npy', mmap_mode='r'))[0] = 7"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", write], cwd=tmp_path).returncode


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32])
@pytest.mark.filterwarnings("ignore")
def test_describe_accepts_quantized_tensors(dtype):
    x = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, dtype)
    name = str(dtype).removeprefix("torch.")
    assert tensors.describe(x) == f"(2,) {name} on cpu, from 0.5 to 1"


def test_warning_of_takes_functions_and_classes():
    class Old:
        def __init__(self):
            warnings.warn("Old is deprecated", stacklevel=2)

    assert tensors.warning_of(Old) == "Old is deprecated"
    with pytest.raises(TypeError, match="function must be a function or a module, got str"):
        tensors.warning_of("Old")
