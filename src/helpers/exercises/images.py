"""Checkers of the exercises of the chapter "Feed a model the images it expects"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict


def check_prepare(answer: Callable[[Any, Sequence[float], Sequence[float]], Tensor]) -> Verdict:
    """Check `answer(image, mean, std)`: a PIL image of any mode as a model's input.

    The result is float32 (3, H, W), RGB in [0, 1], minus `mean`, divided by `std`, per channel.
    """
    import numpy as np
    import PIL.Image

    def case(mode):
        height, width = (int(i) for i in torch.randperm(8)[:2] + 2)
        pixels = torch.randint(256, (height, width, 3), dtype=torch.uint8).numpy()
        image = PIL.Image.fromarray(pixels).convert(mode)
        mean = torch.tensor([0.2, 0.5, 0.8]) + 0.05 * torch.rand(3)
        std = torch.tensor([0.9, 0.2, 0.4]) + 0.05 * torch.rand(3)
        rgb = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
        right = (rgb / 255 - mean[:, None, None]) / std[:, None, None]
        return image, mean.tolist(), std.tolist(), right

    def shape(f):
        image, mean, std, right = case("RGB")
        got = f(image, mean, std)
        assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
        assert got.shape == right.shape, (
            f"expected shape {tuple(right.shape)}, got {tuple(got.shape)}"
        )
        assert got.dtype == torch.float32, f"expected float32, got {got.dtype}"

    def values(f):
        image, mean, std, right = case("RGB")
        got = f(image, mean, std)
        m, s = (torch.tensor(v)[:, None, None] for v in (mean, std))
        rgb = right * s + m

        def close(other):
            return torch.allclose(got, other, atol=1e-3, rtol=1e-3)

        assert not close(rgb), "the values are scaled, but mean and std are not used"
        assert not close((rgb * 255 - m) / s), "the values were not scaled to [0, 1] first"
        assert not close((rgb.flip(0) - m) / s), "the channels are in the order BGR"
        assert close(right), "the values are not (rgb / 255 - mean) / std"

    def modes(f):
        for mode in ("L", "RGBA", "P"):
            image, mean, std, right = case(mode)
            try:
                got = f(image, mean, std)
            except Exception as error:
                raise AssertionError(
                    f"an image of mode {mode} raises {type(error).__name__}"
                ) from error
            assert got.shape == right.shape, (
                f"an image of mode {mode} gives shape {tuple(got.shape)}, "
                f"expected {tuple(right.shape)}"
            )
            assert torch.allclose(got, right, atol=1e-3, rtol=1e-3), (
                f"an image of mode {mode} gives wrong values"
            )

    return verdict(answer, [shape, values, modes])


def check_restore(answer: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(shuffled, source)`: undo a shuffle of blocks.

    `shuffled` is (C, H, W); `source` is int64 (blocks, blocks), the block that stands at each
    place, counted by rows, as `region_confusion` returns it.
    """

    def case():
        blocks = int(torch.randint(3, 6, ()))
        while True:  # applied twice, the shuffle must not undo itself
            perm = torch.randperm(blocks * blocks)
            if not torch.equal(perm[perm], torch.arange(len(perm))):
                break
        h, w = (int(i) for i in torch.randperm(4)[:2] + 1)
        x = torch.rand(int(torch.randint(1, 4, ())), blocks * h, blocks * w)
        return x, _shuffle_blocks(x, perm.view(blocks, blocks)), perm.view(blocks, blocks)

    def test(f):
        x, shuffled, source = case()
        kept = shuffled.clone()
        got = f(shuffled, source)
        assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
        assert got.shape == x.shape, f"expected shape {tuple(x.shape)}, got {tuple(got.shape)}"
        assert torch.equal(shuffled, kept), "the shuffled image itself was changed"
        assert not torch.equal(got, shuffled), "the blocks are still where they were"
        twice = _shuffle_blocks(shuffled, source)
        assert not torch.equal(got, twice), (
            "the shuffle was applied a second time: source says where a block came from, "
            "so it has to go back there"
        )
        assert torch.equal(got, x), "the original image does not come back"

    return verdict(answer, [test] * 3)


def _shuffle_blocks(x: Tensor, source: Tensor) -> Tensor:
    """Put block `source[i, j]` of a (C, H, W) image at place (i, j)."""
    blocks = len(source)
    h, w = x.shape[1] // blocks, x.shape[2] // blocks
    out = torch.empty_like(x)
    for place, origin in enumerate(source.flatten().tolist()):
        (i, j), (k, m) = divmod(place, blocks), divmod(origin, blocks)
        out[:, i * h : (i + 1) * h, j * w : (j + 1) * w] = x[
            :, k * h : (k + 1) * h, m * w : (m + 1) * w
        ]
    return out


def check_middle_frames(answer: Callable[[int, int], Tensor]) -> Verdict:
    """Check `answer(num_frames, segments)`: the middle frame of each of the equal parts.

    The result is an int64 tensor (segments,), sorted and in range, also for clips with fewer
    frames than segments. Either of two middle frames counts.
    """

    def call(f, n, k):
        got = f(n, k)
        assert isinstance(got, Tensor), f"expected a tensor, got {type(got).__name__}"
        assert got.shape == (k,), f"expected shape ({k},), got {tuple(got.shape)}"
        assert got.dtype == torch.int64, f"frame numbers must be int64, got {got.dtype}"
        assert got.min() >= 0 and got.max() < n, (
            f"{n} frames, {k} segments: frame {got.max().item()} does not exist"
            if got.max() >= n
            else f"{n} frames, {k} segments: a frame number is negative"
        )
        assert (got.diff() >= 0).all(), f"{n} frames, {k} segments: the frames are not in order"
        off = (got + 0.5 - (torch.arange(k) + 0.5) * n / k).abs().max().item()
        assert off <= 1.01, (
            f"{n} frames, {k} segments: a frame lies {off:.1f} frames from its segment's middle"
        )

    def long_clip(f):
        k = int(torch.randint(2, 9, ()))
        call(f, k * int(torch.randint(5, 20, ())) * 2, k)

    def uneven(f):
        call(f, 15, 8)
        k = int(torch.randint(6, 12, ()))
        call(f, 2 * k - 1, k)

    def short_clip(f):
        n = int(torch.randint(1, 5, ()))
        call(f, n, 3 * n + int(torch.randint(0, 4, ())))

    return verdict(answer, [long_clip, uneven, short_clip])
