"""Checkers of the exercises of the chapter "Tensors and dtypes"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_float, a_tensor, instance, leaves, unchanged

if TYPE_CHECKING:
    import numpy as np


def _to_uint8_draw() -> tuple[int, int, int]:
    height = int(torch.randint(4, 8, ()))
    return 3, height, height + int(torch.randint(1, 4, ()))


def _to_uint8_layout(f):
    shape = _to_uint8_draw()
    out = f(torch.rand(shape))
    instance("a NumPy array", out, np.ndarray)
    assert out.dtype == np.uint8, f"expected uint8, got {out.dtype}"
    assert out.shape != shape, "the shape is still (C, H, W), and PIL requires (H, W, C)"
    assert out.shape == (*shape[1:], 3), "the shape is not (H, W, C)"
    grey = f(torch.rand(1, *shape[1:]))
    assert grey.shape == (*shape[1:], 1), "a grey image (1, H, W) must become (H, W, 1)"


def _to_uint8_rounding(f):
    level = torch.randint(1, 255, _to_uint8_draw())
    level[0, 0, :2] = torch.tensor([7, 200])
    offset = 0.1 + 0.3 * torch.rand(level.shape)
    offset[:, ::2] *= -1
    out = torch.tensor(np.array(f((level + offset) / 255)))
    levels = level.permute(1, 2, 0)
    far = (out - levels).abs() > 1
    assert not (out <= 1).all(), "nearly everything is 0 or 1: scale by 255 before the cast"
    assert not far.any(), "some values inside [0, 1] are wrong by more than one level"
    assert torch.equal(out.long(), levels), (
        "a value is one level off: the cast truncates, it does not round"
    )


def _to_uint8_outside(f):
    x = torch.rand(_to_uint8_draw())
    x[:, 0] = 1.1 + 0.8 * x[:, 0]
    x[:, 1] = -0.1 - 0.8 * x[:, 1]
    x[:, :2, -2:] *= torch.tensor([1e3, torch.inf])
    out = f(x)
    assert (out[0] == 255).all(), "a value above 1 did not become 255: it wrapped around"
    assert (out[1] == 0).all(), "a value below 0 did not become 0: it wrapped around"


def _to_uint8_half(f):
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = torch.rand(16, 17, 3).permute(2, 0, 1).to(dtype)  # as images usually come
        out = torch.tensor(np.array(f(x))).double()
        away = (out - (x.double() * 255).permute(1, 2, 0)).abs().max()
        assert away <= 0.501, (
            f"with {str(dtype).removeprefix('torch.')} a value is off: scale in float32"
        )


def _to_uint8_gradient(f):
    x = torch.rand(_to_uint8_draw(), requires_grad=True)
    try:
        f(x)
    except RuntimeError as error:
        assert "numpy()" not in str(error), "it fails if x requires a gradient"
        raise


def check_to_uint8(answer: Callable[[Tensor], np.ndarray]) -> Verdict:
    """Check `answer(x)`: an image of floats (C, H, W) as a uint8 array (H, W, C).

    Values are scaled by 255 and rounded to the nearest level; those outside [0, 1] become 0 and
    255; `x` must not change. It may be in half precision or require a gradient.
    """
    return verdict(
        leaves(answer, "x"),
        [
            _to_uint8_layout,
            _to_uint8_rounding,
            _to_uint8_outside,
            _to_uint8_half,
            _to_uint8_gradient,
        ],
    )


def _own_tensor_arrays() -> list[np.ndarray]:
    values = [torch.randint(-9, 10, (int(torch.randint(3, 7, ())),)).numpy() for _ in range(3)]
    for v in values:  # never sorted, never a palindrome, never without a negative number
        v[[0, 1, -1]] = 5, -5, 0
    arrays = [v.astype(d) for v, d in zip(values, ("float64", "int64", "float32"), strict=True)]
    for array in arrays[::2]:
        array += 2**-20  # more digits than float16, bfloat16 or an integer has
    return arrays


def _own_tensor_content(f):
    for array in _own_tensor_arrays():
        with unchanged(array=array):
            out = f(array)
        a_tensor(out, dtype=torch.float32)
        assert out.tolist() == array.tolist(), "the values are not those of the array"


def _own_tensor_own(f):
    for array in _own_tensor_arrays():
        out = f(array)
        before = out.clone()
        array += 1
        assert torch.equal(out, before), (
            f"writing into the {array.dtype} array changed the tensor: they share memory"
        )


def _own_tensor_reversed_(f):
    for array in _own_tensor_arrays():
        try:
            out = f(array[::-1])
        except ValueError as error:
            assert "negative" not in str(error), "it fails on a negative stride: copy first"
            raise
        assert out.tolist() == array[::-1].tolist(), "a reversed array came out wrong"


def _own_tensor_shapes(f):
    grid = torch.randint(1, 10, (3, 4)).numpy().astype("float32")
    for array in (grid.T, grid[::-1, ::2], grid[0, 0:1].reshape(()), grid[:0]):
        _own_tensor_assert_values(f(array), array, f"an array of shape {array.shape}")


def _own_tensor_foreign(f):
    fixed = torch.randint(1, 10, (4,)).numpy().astype("float32")
    fixed.flags.writeable = False
    kinds = {
        "a read-only array": fixed,
        "a big-endian array": fixed.astype(">f8"),
        "a longdouble array": fixed.astype(np.longdouble),
        "a bool array": fixed > 5,
        "an array of large ints": fixed.astype("int64") << 40,
    }
    for name, array in kinds.items():
        try:
            out = f(array)
        except (TypeError, ValueError):
            raise AssertionError(f"it fails for {name}: let NumPy convert first") from None
        _own_tensor_assert_values(out, array, name)


def _own_tensor_assert_values(out: Tensor, array: np.ndarray, name: str) -> None:
    expected = torch.from_numpy(array.astype(np.float32))
    same = isinstance(out, Tensor) and out.dtype == torch.float32 and torch.equal(out, expected)
    assert same, f"{name} came out wrong"
    assert not np.shares_memory(out.numpy(), array), f"{name} shares its memory"


def check_own_tensor(answer: Callable[[np.ndarray], Tensor]) -> Verdict:
    """Check `answer(array)`: a float32 tensor with the array's values and separate memory.

    The arrays are float64, float32 and int64, some of them with a negative stride, without
    dimensions, read-only, big-endian, or of a type that PyTorch does not have.
    """
    return verdict(
        answer,
        [
            _own_tensor_content,
            _own_tensor_own,
            _own_tensor_reversed_,
            _own_tensor_shapes,
            _own_tensor_foreign,
        ],
    )


def _mean_of_draw(dtype: torch.dtype) -> tuple[list[Tensor], float]:
    sizes = [2 * int(n) for n in torch.randint(150, 250, (3,))] + [60]
    levels = [200, 220, 240, 420]
    pairs = zip(sizes, levels, strict=True)
    batches = [(level + 30 * torch.rand(n)).to(dtype) for n, level in pairs]
    mean = torch.cat(batches).double().mean().item()
    batches[1] = batches[1].reshape(-1, 2)
    return batches, mean


def _mean_of_run(f, batches: list[Tensor]) -> object:
    try:
        with unchanged(batches=batches):
            return f(b for b in batches)
    except (TypeError, ZeroDivisionError) as error:
        try:
            f(batches)
        except Exception:
            raise error from None
        raise AssertionError(
            "it works for a list, but the iterator can be read only once, as with a loader"
        ) from None


def _mean_of_kind(f):
    batches, _ = _mean_of_draw(torch.bfloat16)
    out = _mean_of_run(f, batches)
    assert not isinstance(out, Tensor), "expected a Python number, got a tensor"
    a_float(out)


def _mean_of_value(f):
    for dtype in (torch.float16, torch.bfloat16, torch.float16, torch.bfloat16):
        batches, mean = _mean_of_draw(dtype)
        out = _mean_of_run(f, batches)
        means = sum(b.double().mean().item() for b in batches) / len(batches)
        rows = sum(b.double().sum().item() for b in batches) / sum(map(len, batches))
        name = str(dtype).removeprefix("torch.")
        assert out != float("inf"), f"the sum overflowed in {name}"
        assert abs(out / means - 1) > 5e-3 or abs(out / mean - 1) < 1e-5, (
            "this is the mean of the means, but the batches differ in length"
        )
        assert abs(out / rows - 1) > 1e-2, "len() counts rows, not elements"
        assert abs(out / mean - 1) < 1e-2, "the value is far from the mean"
        assert abs(out / mean - 1) < 1e-5, f"digits are lost: something was kept in {name}"
    out = _mean_of_run(f, [torch.full((3,), 1e5, dtype=torch.bfloat16)])  # above float16's limit
    assert out != float("inf"), f"the sum overflowed in {name}"


def _mean_of_odd(f):
    for batches in (
        [torch.ones(0, 2), torch.ones(3)],
        [torch.tensor(1.0)],
        [torch.ones(3, 2).t()],
        [torch.ones(2, 3, 4)],
    ):
        out = _mean_of_run(f, [b.half() for b in batches])
        assert out == 1, (
            f"the mean of ones came out as {out}: a batch was empty, 0-dim, 3-dim or not contiguous"
        )


def check_mean_of(answer: Callable[[Iterable[Tensor]], float]) -> Verdict:
    """Check `answer(batches)`: the mean of all elements of half-precision tensors, as a float.

    The batches come from an iterator that can be read once. They differ in shape and level, one may
    be empty or without dimensions; their sum is above the limit of float16.
    """
    return verdict(answer, [_mean_of_kind, _mean_of_value, _mean_of_odd])
