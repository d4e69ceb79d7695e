"""Helpers of the chapter "Know what your tensor holds".

Source: "Tensor attributes", https://pytorch.org/docs/stable/tensor_attributes.html
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def describe(x: Tensor) -> str:
    """One line about a tensor: shape, dtype, device, layout where unusual, and range of values.

    Args:
        x: any tensor. Its values are read, which waits for a GPU; on the meta device there are
            none. The range leaves nan out and counts it.

    Raises:
        TypeError: `x` is not a tensor, for example a NumPy array.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    words = [f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')} on {x.device}"]
    if x.layout != torch.strided:
        words.append(str(x.layout).removeprefix("torch."))
        x = x.to_dense()
    if x.requires_grad:
        words.append("requires grad")
    if x.numel() == 0:
        words.append("empty")
    elif not x.is_meta and not x.is_complex():
        values = x.detach().double()
        known = values[~values.isnan()]
        if known.numel():
            words.append(f"from {known.min().item():g} to {known.max().item():g}")
        if known.numel() < values.numel():
            words.append(f"{values.numel() - known.numel()} nan")
    return ", ".join(words)


def warning_of(function: Callable[[], Any]) -> str | None:
    """The first warning that `function` gives, without the place in C++ that gave it, or None.

    PyTorch gives many of its warnings only once per process; here they are given every time.
    """
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
    finally:
        torch.set_warn_always(before)
    return str(caught[0].message).split(" (Triggered internally")[0] if caught else None


def gap(x: Tensor) -> Tensor:
    """The distance from each element to the next larger number of the same dtype.

    Args:
        x: floating point, finite, not negative.

    Returns:
        float64, the shape of `x`; infinite where `x` is the largest number of its dtype.

    Raises:
        TypeError: `x` is not floating point.
        ValueError: an element is negative, infinite or nan.

    Source: IEEE 754 numbers that are not negative are ordered like their bit patterns.
    """
    if not x.is_floating_point():
        raise TypeError(f"x must be floating point, got {x.dtype}")
    if not ((x >= 0) & x.isfinite()).all():
        raise ValueError("x must be finite and not negative")
    bits = _BITS[x.element_size()]
    following = ((x + 0.0).contiguous().view(bits) + 1).view(x.dtype)
    return following.double() - x.double()


def draw_gaps() -> Figure:
    """Draw `gap` over the size of the number, for bfloat16, float16 and float32."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 3))
    axis.axhline(1, color="#555", linewidth=1, linestyle=":")
    axis.text(3e5, 1.5, "a gap of 1", color="#555", fontsize=9)
    styles = {
        torch.bfloat16: ("#c2410c", "-"),
        torch.float16: ("#0a6b7d", "--"),
        torch.float32: ("#333", "-."),
    }
    for dtype, (color, line) in styles.items():
        last = min(torch.finfo(dtype).max, 1e8)
        x = torch.logspace(0, torch.tensor(last).log10().item(), 2000, dtype=torch.float64)
        x = x.clamp(max=last * 0.9999).to(dtype)
        name = str(dtype).removeprefix("torch.")
        axis.plot(x.double(), gap(x), line, color=color, linewidth=2, label=name)
        stop = 2 / torch.finfo(dtype).eps
        axis.plot(stop, 1, "o", color=color)
        place, side = ((-4, 4), "right") if dtype == torch.bfloat16 else ((0, -14), "left")
        label = {"textcoords": "offset points", "color": color, "fontsize": 9, "ha": side}
        axis.annotate(f"{stop:,.0f}", (stop, 1), place, **label)
    limit = torch.finfo(torch.float16).max
    axis.plot(limit, 32, "X", color="#0a6b7d", markersize=9)
    axis.text(limit * 1.3, 40, "65,504, then inf", color="#0a6b7d", fontsize=9)
    axis.set(xscale="log", yscale="log", xlabel="a number x", ylabel="gap to the next number")
    axis.legend(frameon=False, loc="upper left", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def draw_images(images: dict[str, Any]) -> Figure:
    """Draw PIL images one below the other, each with its title.

    Raises:
        ValueError: `images` is empty.
    """
    import matplotlib.pyplot as plt

    if not images:
        raise ValueError("draw_images needs at least one image, got none")
    figure, axes = plt.subplots(len(images), 1, figsize=(7, 1.1 * len(images)), squeeze=False)
    for axis, (title, image) in zip(axes[:, 0], images.items(), strict=True):
        axis.imshow(image, cmap="gray", vmin=0, vmax=255, aspect="auto")
        axis.set_title(title, loc="left", family="monospace", fontsize=10)
        axis.set(xticks=[], yticks=[])
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- exercises


def check_to_uint8(answer: Callable[[Tensor], np.ndarray]) -> Verdict:
    """Check `answer(x)`: an image of floats (C, H, W) as a uint8 array (H, W, C).

    Values are scaled by 255 and rounded to the nearest level; those outside [0, 1] become 0 and
    255; `x` stays as it was.
    """
    import numpy as np

    def draw() -> tuple[int, int, int]:
        height = int(torch.randint(4, 8, ()))
        return 3, height, height + int(torch.randint(1, 4, ()))

    def layout(f):
        shape = draw()
        out = f(torch.rand(shape))
        assert isinstance(out, np.ndarray), f"expected a NumPy array, got {type(out).__name__}"
        assert out.dtype == np.uint8, f"expected uint8, got {out.dtype}"
        assert out.shape != shape, "the shape is still (C, H, W), and PIL wants (H, W, C)"
        assert out.shape == (*shape[1:], 3), "the shape is not (H, W, C)"

    def rounding(f):
        level = torch.randint(1, 255, draw())
        level[0, 0, :2] = torch.tensor([7, 200])
        offset = 0.1 + 0.3 * torch.rand(level.shape)
        offset[:, ::2] *= -1
        out = torch.tensor(np.array(f((level + offset) / 255)))
        wanted = level.permute(1, 2, 0)
        far = (out - wanted).abs() > 1
        assert not (out <= 1).all(), "nearly everything is 0 or 1: scale by 255 before the cast"
        assert not far.any(), "some values inside [0, 1] are wrong by more than one level"
        assert torch.equal(out.long(), wanted), (
            "a value is one level off: the cast cuts off, it does not round"
        )

    def outside(f):
        x = torch.rand(draw())
        x[:, 0] = 1.1 + 0.8 * x[:, 0]
        x[:, 1] = -0.1 - 0.8 * x[:, 1]
        out = f(x)
        assert (out[0] == 255).all(), "a value above 1 did not become 255: it wrapped around"
        assert (out[1] == 0).all(), "a value below 0 did not become 0: it wrapped around"

    def untouched(f):
        x = 3 * torch.rand(draw()) - 1
        before = x.clone()
        f(x)
        assert torch.equal(x, before), "x itself was changed"

    return verdict(answer, [layout, rounding, outside, untouched])


def check_own_tensor(answer: Callable[[np.ndarray], Tensor]) -> Verdict:
    """Check `answer(array)`: a float32 tensor with the array's values and memory of its own.

    The arrays are float64, float32 and int64, some of them with a negative stride.
    """

    def arrays() -> list[np.ndarray]:
        values = [torch.randint(-9, 10, (int(torch.randint(3, 7, ())),)).numpy() for _ in range(3)]
        for v in values:  # never sorted, never a palindrome, never without a negative number
            v[[0, 1, -1]] = 5, -5, 0
        return [v.astype(d) for v, d in zip(values, ("float64", "int64", "float32"), strict=True)]

    def content(f):
        for array in arrays():
            out = f(array)
            assert isinstance(out, Tensor), f"expected a tensor, got {type(out).__name__}"
            assert out.dtype == torch.float32, f"expected float32, got {out.dtype}"
            assert out.tolist() == array.tolist(), "the values are not those of the array"

    def own(f):
        for array in arrays():
            out = f(array)
            before = out.clone()
            array += 1
            assert torch.equal(out, before), (
                f"writing into the {array.dtype} array changed the tensor: they share memory"
            )

    def reversed_(f):
        for array in arrays():
            try:
                out = f(array[::-1])
            except ValueError as error:
                assert "negative" not in str(error), "it fails on a negative stride: copy first"
                raise
            assert out.tolist() == array[::-1].tolist(), "a reversed array came out wrong"

    return verdict(answer, [content, own, reversed_])


def check_mean_of(answer: Callable[[Sequence[Tensor]], float]) -> Verdict:
    """Check `answer(batches)`: the mean of all elements of half-precision tensors, as a float.

    The batches have different lengths and levels; their sum is beyond what float16 can hold.
    """

    def draw(dtype: torch.dtype) -> tuple[list[Tensor], float]:
        sizes = [int(n) for n in torch.randint(300, 500, (3,))] + [60]
        levels = [200, 220, 240, 420]
        pairs = zip(sizes, levels, strict=True)
        batches = [(level + 30 * torch.rand(n)).to(dtype) for n, level in pairs]
        return batches, torch.cat(batches).double().mean().item()

    def kind(f):
        batches, _ = draw(torch.bfloat16)
        out = f(batches)
        assert not isinstance(out, Tensor), "expected a Python number, got a tensor"
        assert isinstance(out, float), f"expected a float, got {type(out).__name__}"

    def value(f):
        for dtype in (torch.float16, torch.bfloat16, torch.float16, torch.bfloat16):
            batches, wanted = draw(dtype)
            out = f(batches)
            means = sum(b.double().mean().item() for b in batches) / len(batches)
            name = str(dtype).removeprefix("torch.")
            assert out not in (float("inf"),), f"the sum overflowed in {name}"
            assert abs(out / means - 1) > 5e-3 or abs(out / wanted - 1) < 1e-5, (
                "this is the mean of the means, but the batches differ in length"
            )
            assert abs(out / wanted - 1) < 1e-2, "the value is far from the mean"
            assert abs(out / wanted - 1) < 1e-5, f"digits are lost: something was kept in {name}"

    return verdict(answer, [kind, value])
