"""Checkers of the exercises of the chapter on images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_tensor, between, leaves, random_state_kept

RANDOM = "the state of {} was changed: this needs no random numbers"


def _prepare_case(mode):
    import PIL.Image

    height, width = (int(i) for i in torch.randperm(8)[:2] + 2)
    pixels = torch.randint(256, (height, width, 3), dtype=torch.uint8).numpy()
    image = PIL.Image.fromarray(pixels).convert(mode)
    if mode.endswith("A"):
        alpha = torch.randint(256, (height, width), dtype=torch.uint8)
        image.putalpha(PIL.Image.fromarray(alpha.numpy()))
    mean = torch.tensor([0.2, 0.5, 0.8]) + 0.05 * torch.rand(3)
    std = torch.tensor([0.9, 0.2, 0.4]) + 0.05 * torch.rand(3)
    rgb = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    right = (rgb / 255 - mean[:, None, None]) / std[:, None, None]
    return image, mean.tolist(), std.tolist(), right


def _ask(f, image, mean, std):
    before = (image.mode, image.size, image.tobytes())
    with random_state_kept(RANDOM):
        got = leaves(f, "", "mean", "std")(image, mean, std)
    after = (image.mode, image.size, image.tobytes())
    assert after == before, "the image was changed: work on a copy"
    return got


def _prepare_shape(f):
    image, mean, std, right = _prepare_case("RGB")
    got = _ask(f, image, mean, std)
    a_tensor(got, right.shape, torch.float32)


def _prepare_values(f):
    image, mean, std, right = _prepare_case("RGB")
    got = _ask(f, image, mean, std)
    m, s = (torch.tensor(v)[:, None, None] for v in (mean, std))
    rgb = right * s + m

    def close(other):
        return torch.allclose(got, other, atol=1e-4, rtol=1e-4)

    assert not close(rgb), "the values are scaled, but not normalized with mean and std"
    assert not close((rgb * 255 - m) / s), "the values are not scaled to [0, 1]"
    assert not close((rgb.flip(0) - m) / s), "the channels are in the order BGR"
    assert close(right), "the values are not (rgb / 255 - mean) / std"


def _prepare_modes(f):
    for mode in ("L", "RGBA", "P", "LA", "CMYK", "1", "YCbCr", "HSV"):
        image, mean, std, right = _prepare_case(mode)
        try:
            got = _ask(f, image, mean, std)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(
                f"an image of mode {mode} raises {type(error).__name__}"
            ) from error
        assert got.shape == right.shape, (
            f"an image of mode {mode} gives shape {tuple(got.shape)}, expected {tuple(right.shape)}"
        )
        a_tensor(got, right.shape, torch.float32)
        assert torch.allclose(got, right, atol=1e-4, rtol=1e-4), (
            f"an image of mode {mode} gives wrong values"
        )


def check_prepare(answer: Callable[[Any, Sequence[float], Sequence[float]], Tensor]) -> Verdict:
    """Check `answer(image, mean, std)`: a PIL image of any mode as a model's input.

    The result is float32 (3, H, W), RGB without alpha, in [0, 1], minus `mean`, divided by `std`,
    per channel.
    """
    return verdict(answer, [_prepare_shape, _prepare_values, _prepare_modes])


def check_to_classes(answer: Callable[[Tensor, list[tuple[int, ...]]], Tensor]) -> Verdict:
    """Check `answer(mask, palette)`: a mask of colours as class indices.

    `mask` is uint8 (3, H, W), `palette` a list of colours (red, green, blue) in 0..255, one per
    class. The result is int64 (H, W), 255 where the colour is not in the palette.
    """

    def case(others: bool) -> tuple[Tensor, list[tuple[int, ...]], Tensor]:
        # every channel is shared by several classes, and so is the sum of the channels
        low, high = sorted(int(i) for i in torch.randperm(256)[:2])
        palette = [(low, low, high), (low, high, low), (high, low, low), (high, high, low)]
        more = 40 if others else between(0, 20)  # more classes than four
        other = torch.randint(256, (more, 3)).tolist()
        palette += [tuple(c) for c in other if not {low, high} & set(c)]
        palette = list(dict.fromkeys(palette))
        palette = [palette[i] for i in torch.randperm(len(palette))]
        count = len(palette)
        height = between(4, 9)
        width = height if not others else between(4, 9)
        mask = torch.tensor(palette)[torch.randint(count, (height, width))].byte()
        if others:
            some = torch.rand(height, width) < 0.5
            mask[some] = torch.randint(256, (int(some.sum()), 3), dtype=torch.uint8)
            mask[0, 0] = mask[-1, -1] = high
            r, g, b = palette[0]
            mask[0, -1] = torch.tensor((r, g, b - 1 if b else 1))  # one level off is another
        number = {colour: index for index, colour in enumerate(palette)}
        right = [[number.get(tuple(colour), 255) for colour in row] for row in mask.tolist()]
        return mask.permute(2, 0, 1), palette, torch.tensor(right)

    def test(others: bool) -> Callable[[Callable], None]:
        def same(f: Callable) -> None:
            mask, palette, right = case(others)
            with random_state_kept(RANDOM):
                got = leaves(f, "the mask", "palette")(mask, palette)
            a_tensor(got, right.shape)
            assert got.dtype == torch.int64, (
                f"expected class indices of dtype int64, got {got.dtype}"
            )
            known = right < len(palette)
            assert torch.equal(got[known], right[known]), (
                "a colour of the palette has a wrong class index"
            )
            assert torch.equal(got, right), "expected 255 for a colour that is not in the palette"

        return same

    return verdict(answer, [test(False), test(True), test(True)])


def check_middle_frames(answer: Callable[[int, int], Tensor]) -> Verdict:
    """Check `answer(num_frames, segments)`: the middle frame of each of the equal segments.

    The result is an int64 tensor (segments,), sorted and in range, also for clips with fewer
    frames than segments. Either of two middle frames is accepted.
    """

    def call(f, n, k):
        with random_state_kept(RANDOM):
            got = f(n, k)
        a_tensor(got, (k,))
        assert got.dtype == torch.int64, f"expected frame numbers of dtype int64, got {got.dtype}"
        assert got.min() >= 0 and got.max() < n, (
            f"{n} frames, {k} segments: frame {got.max().item()} does not exist"
            if got.max() >= n
            else f"{n} frames, {k} segments: a frame number is negative"
        )
        assert (got.diff() >= 0).all(), f"{n} frames, {k} segments: the frames are not in order"
        off = (got + 0.5 - (torch.arange(k).double() + 0.5) * n / k).abs().max().item()
        assert off < 1.5, (  # the lower middle frame of a segment with integer edges is right, too
            f"{n} frames, {k} segments: a frame is {off:.1f} frames from its segment's middle"
        )

    def long_clip(f):
        k = int(torch.randint(2, 9, ()))
        call(f, k * int(torch.randint(5, 20, ())) * 2, k)

    def hours(f):
        call(f, between(400_000, 800_000), between(50, 100))

    def odd_parts(f):
        k, width = int(torch.randint(2, 9, ())), 2 * int(torch.randint(2, 9, ())) + 1
        call(f, k * width, k)
        off = (f(k * width, k) - width // 2 - width * torch.arange(k)).abs().max().item()
        assert off == 0, (
            f"{k * width} frames, {k} segments: a segment of {width} frames has one "
            f"middle frame, and a frame is {off} away from it"
        )

    def uneven(f):
        call(f, 15, 8)
        k = int(torch.randint(6, 12, ()))
        call(f, 2 * k - 1, k)

    def short_clip(f):
        n = int(torch.randint(1, 5, ()))
        call(f, n, 3 * n + int(torch.randint(0, 4, ())))

    return verdict(answer, [long_clip, odd_parts, uneven, short_clip, hours])
