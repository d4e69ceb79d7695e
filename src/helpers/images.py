"""Helpers of the chapter "Feed a model the images it expects".

Source: "Transforming images, videos, boxes and more",
https://docs.pytorch.org/vision/stable/transforms.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PHOTOS = ("china", "flower")
# Class: photo, left, top, right, bottom in pixels; every box shows one thing only.
_BOXES = {
    "petals": ("flower", 232, 136, 392, 296),
    "leaves": ("flower", 456, 24, 616, 184),
    "sky": ("china", 400, 16, 560, 176),
    "trees": ("china", 384, 320, 592, 424),
}


class Patches(NamedTuple):
    """Small images with labels: `images` uint8 (N, 3, size, size), RGB; `labels` int64 (N,)."""

    images: Tensor
    labels: Tensor
    names: tuple[str, ...]


class VideoInfo(NamedTuple):
    """What the header of a video file says; `frames` is a claim, not a count."""

    height: int
    width: int
    frames: int
    fps: float


def photo(name: str) -> Tensor:
    """One of the two photos that ship with scikit-learn: uint8, (3, 427, 640), RGB.

    Raises:
        ValueError: `name` is neither "china" nor "flower".

    Source: `sklearn.datasets.load_sample_image`; both photos are CC BY 2.0, china.jpg by
    danielbuechele, flower.jpg by vultilion.
    """
    if name not in PHOTOS:
        raise ValueError(f"name must be one of {', '.join(PHOTOS)}, got {name!r}")
    from sklearn.datasets import load_sample_image

    return torch.tensor(load_sample_image(f"{name}.jpg")).permute(2, 0, 1).contiguous()


def patches(size: int = 16) -> Patches:
    """Squares cut from the two photos, without overlap, in four classes.

    Args:
        size: side of a square in pixels, from 1 to 104.

    Raises:
        ValueError: `size` is out of that range.
    """
    if not 1 <= size <= 104:
        raise ValueError(f"size must be from 1 to 104, got {size}")
    images, labels = [], []
    for label, (name, left, top, right, bottom) in enumerate(_BOXES.values()):
        box = photo(name)[:, top:bottom, left:right]
        squares = box.unfold(1, size, size).unfold(2, size, size)  # (3, rows, columns, size, size)
        squares = squares.permute(1, 2, 0, 3, 4).reshape(-1, 3, size, size)
        images.append(squares)
        labels.append(torch.full((len(squares),), label))
    return Patches(torch.cat(images), torch.cat(labels), tuple(_BOXES))


def draw_images(
    shown: Mapping[str, Tensor], columns: int | None = None, width: float = 7.8
) -> Figure:
    """Show images side by side, each under its title.

    Args:
        shown: title to image (3, H, W) or (1, H, W), uint8, or floats that are clamped to [0, 1].
        columns: images per row; all in one row if not given.
        width: of the figure, in inches.

    Raises:
        ValueError: nothing to show, an image of another shape, or `columns` below 1.
    """
    if not shown:
        raise ValueError("expected at least one image, got none")
    for title, image in shown.items():
        if image.ndim != 3 or image.shape[0] not in (1, 3):
            raise ValueError(f"{title!r} must be (3, H, W) or (1, H, W), got {tuple(image.shape)}")
    columns = len(shown) if columns is None else columns
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    import matplotlib.pyplot as plt

    rows = -(-len(shown) // columns)
    _, h, w = next(iter(shown.values())).shape
    size = (width, min(rows * (width / columns * h / w + 0.3), 4.2))
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    grid = list(grid.flat)
    for axes in grid:
        axes.set_axis_off()
    for axes, (title, image) in zip(grid, shown.items(), strict=False):
        pixels = image if image.dtype == torch.uint8 else image.float().clamp(0, 1)
        axes.imshow(
            pixels.cpu().permute(1, 2, 0).squeeze(-1).numpy(),
            interpolation="antialiased",
            cmap="gray",
            vmin=0,
            vmax=255 if pixels.dtype == torch.uint8 else 1,
        )
        axes.set_title(title, fontsize=9)
    return figure


# ---------------------------------------------------------------- region confusion


def region_confusion(
    x: Tensor, blocks: int, neighbour: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Cut images into a grid of blocks and shuffle the blocks among their neighbours.

    Each column of blocks is sorted by `row + u` with u uniform in [-neighbour, neighbour), then
    each row by `column + u`. So every block moves by less than `2 * neighbour` in each direction.
    Every image of a batch gets a shuffle of its own, the same for all of its channels.

    Args:
        x: images (N, C, H, W) or one image (C, H, W), any dtype, on any device.
        blocks: blocks per side; must divide H and W.
        neighbour: how far the noise reaches, in blocks, from 1 to `blocks - 1`.
        generator: for the noise; a CPU generator, the default one if not given.

    Returns:
        The shuffled images, and `source`, int64 of shape (N, blocks, blocks) or (blocks, blocks):
        the number of the block, counted by rows, that now stands at each place.

    Raises:
        ValueError: another number of dimensions, sides that `blocks` does not divide, or
            `neighbour` out of range.

    Source: the region confusion mechanism of Chen et al. 2019, "Destruction and Construction
    Learning for Fine-grained Image Recognition" (CVPR), here one direction after the other.
    """
    if x.ndim not in (3, 4):
        raise ValueError(f"expected (C, H, W) or (N, C, H, W), got shape {tuple(x.shape)}")
    if blocks < 2:
        raise ValueError(f"blocks must be at least 2, got {blocks}")
    if not 1 <= neighbour < blocks:
        raise ValueError(f"neighbour must be from 1 to {blocks - 1}, got {neighbour}")
    if x.shape[-2] % blocks or x.shape[-1] % blocks:
        raise ValueError(
            f"height and width must be multiples of {blocks}, got {tuple(x.shape[-2:])}; "
            "resize or crop first"
        )
    batch = x if x.ndim == 4 else x[None]
    n, c, height, width = batch.shape
    h, w = height // blocks, width // blocks

    def order(dim: int) -> Tensor:
        place = torch.arange(blocks, dtype=torch.float64)
        place = place[:, None] if dim == 1 else place
        noise = torch.rand(n, blocks, blocks, generator=generator, dtype=torch.float64)
        return (place + neighbour * (2 * noise - 1)).argsort(dim)

    source = torch.arange(blocks * blocks).view(1, blocks, blocks).expand(n, -1, -1)
    source = source.gather(1, order(1)).gather(2, order(2)).to(x.device)
    tiles = batch.reshape(n, c, blocks, h, blocks, w).permute(0, 2, 4, 1, 3, 5)
    tiles = tiles.reshape(n, blocks * blocks, c, h, w)
    tiles = tiles[torch.arange(n, device=x.device)[:, None], source.reshape(n, blocks * blocks)]
    tiles = tiles.view(n, blocks, blocks, c, h, w).permute(0, 3, 1, 4, 2, 5)
    shuffled = tiles.reshape(n, c, height, width)
    return (shuffled, source) if x.ndim == 4 else (shuffled[0], source[0])


# ---------------------------------------------------------------- video


def segment_indices(
    num_frames: int, segments: int, train: bool, generator: torch.Generator | None = None
) -> Tensor:
    """One frame of each of `segments` equal parts of a clip: random to train, middle to test.

    The parts tile the whole clip; with fewer frames than segments, frames are repeated and none
    is left out.

    Args:
        num_frames: length of the clip in frames, at least 1.
        segments: how many frames to take, at least 1.
        train: True draws a random frame of each part, False takes the middle one.
        generator: for the random frames; the default one if not given.

    Returns:
        int64 (segments,), sorted, each from 0 to `num_frames - 1`.

    Raises:
        ValueError: `num_frames` or `segments` is below 1 (a video that cannot be read reports
            0 or -1 frames).

    Source: Wang et al. 2016, "Temporal Segment Networks" (ECCV), https://arxiv.org/abs/1608.00859
    """
    if num_frames < 1:
        raise ValueError(f"num_frames must be at least 1, got {num_frames}: was the file read?")
    if segments < 1:
        raise ValueError(f"segments must be at least 1, got {segments}")
    if not train:
        return (2 * torch.arange(segments) + 1) * num_frames // (2 * segments)
    if num_frames < segments:
        extra = torch.randint(num_frames, (segments - num_frames,), generator=generator)
        return torch.cat([torch.arange(num_frames), extra]).sort().values
    edges = torch.arange(segments + 1) * num_frames // segments
    noise = torch.rand(segments, generator=generator, dtype=torch.float64)
    return edges[:-1] + (noise * edges.diff()).long()


def write_clip(path: str | Path, frames: Tensor, fps: float = 25.0) -> None:
    """Write frames as Motion JPEG in an AVI file, which every build of OpenCV reads and writes.

    Args:
        path: where to write; ends in `.avi`.
        frames: uint8 (T, 3, H, W), RGB.
        fps: frames per second.

    Raises:
        ValueError: `frames` has another shape, no frame, or `path` another ending.
        TypeError: `frames` is not uint8.
        OSError: OpenCV could not open the file for writing.
    """
    if frames.ndim != 4 or frames.shape[1] != 3 or not len(frames):
        raise ValueError(f"frames must be (T, 3, H, W) with T > 0, got {tuple(frames.shape)}")
    if frames.dtype != torch.uint8:
        raise TypeError(f"frames must be uint8, got {frames.dtype}")
    if Path(path).suffix != ".avi":
        raise ValueError(f"path must end in .avi, got {Path(path).name!r}")
    cv2 = _cv2()
    size = (frames.shape[3], frames.shape[2])
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), fps, size)
    try:
        if not writer.isOpened():
            raise OSError(f"OpenCV cannot write {path}: does the folder exist?")
        for frame in frames.permute(0, 2, 3, 1).cpu().numpy():
            writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    finally:
        writer.release()


def video_info(path: str | Path) -> VideoInfo:
    """Height, width, claimed number of frames and frames per second of a video file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: OpenCV cannot read it as a video.
    """
    with _opened(path) as (cv2, video):
        return VideoInfo(
            int(video.get(cv2.CAP_PROP_FRAME_HEIGHT)),
            int(video.get(cv2.CAP_PROP_FRAME_WIDTH)),
            int(video.get(cv2.CAP_PROP_FRAME_COUNT)),
            video.get(cv2.CAP_PROP_FPS),
        )


def count_frames(path: str | Path) -> int:
    """How many frames of a video file really decode.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: OpenCV cannot read it as a video.
    """
    with _opened(path) as (_, video):
        count = 0
        while video.read()[0]:
            count += 1
        return count


def read_frames(path: str | Path, indices: Sequence[int] | Tensor) -> Tensor:
    """Read some frames of a video file, decoding it once from the start.

    Seeking would be faster and is not exact for every codec.

    Args:
        path: a video file that OpenCV can read.
        indices: numbers of frames, in any order, repeats allowed; a list, or an int64 tensor (T,).

    Returns:
        uint8 (T, 3, H, W), RGB, in the order of `indices`.

    Raises:
        TypeError: `indices` holds floats.
        ValueError: no index, a negative one, or one past the last frame that decodes; or OpenCV
            cannot read the file as a video.
        FileNotFoundError: there is no such file.
    """
    wanted = torch.as_tensor(indices)
    if wanted.ndim != 1 or not len(wanted):
        raise ValueError(f"expected a list of frame numbers, got shape {tuple(wanted.shape)}")
    if wanted.is_floating_point() or wanted.is_complex() or wanted.dtype == torch.bool:
        raise TypeError(f"frame numbers must be integers, got {wanted.dtype}")
    if wanted.min() < 0:
        raise ValueError(f"frame numbers must not be negative, got {wanted.min().item()}")
    numbers, found = set(wanted.tolist()), {}
    with _opened(path) as (cv2, video):
        for number in range(max(numbers) + 1):
            more, frame = video.read()
            if not more:
                raise ValueError(
                    f"{Path(path).name} ends after {number} frames, frame {max(numbers)} is missing"
                )
            if number in numbers:
                found[number] = torch.from_numpy(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    return torch.stack([found[i] for i in wanted.tolist()]).permute(0, 3, 1, 2).contiguous()


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[Any, Any]]:
    """OpenCV and an opened video, released at the end."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {Path(path).name}")
    cv2 = _cv2()
    video = cv2.VideoCapture(str(path))
    try:
        if not video.isOpened():
            raise ValueError(f"OpenCV cannot read {Path(path).name} as a video")
        yield cv2, video
    finally:
        video.release()


def _cv2() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ImportError("video needs OpenCV: pip install opencv-python-headless") from error
    return cv2


# ---------------------------------------------------------------- exercises


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
