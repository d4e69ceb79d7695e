"""Helpers of the chapter on images: shuffled blocks, frames of a clip, video files.

Source: "Transforming images, videos, boxes and more",
https://docs.pytorch.org/vision/stable/transforms.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from helpers import checks


class VideoInfo(NamedTuple):
    """Facts from the header of a video file; `frames` may be wrong, and is 0 if it is missing."""

    height: int
    width: int
    frames: int
    fps: float


def region_confusion(
    x: Tensor, blocks: int, neighbour: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Cut images into a grid of blocks and shuffle the blocks among their neighbours.

    Each column of blocks is sorted by `row + u` with u uniform in [-neighbour, neighbour), then
    each row by `column + u`, so each block moves by less than `2 * neighbour` in each direction.
    Each image of a batch is shuffled differently; its channels are shuffled alike.

    Args:
        x: images (N, C, H, W) or one image (C, H, W), any dtype, on any device.
        blocks: blocks per side; must divide H and W.
        neighbour: range of the noise in blocks, from 1 to `blocks - 1`.
        generator: for the noise; a CPU generator, the default one if not given.

    Returns:
        The shuffled images, and `source`, int64 of shape (N, blocks, blocks) or (blocks, blocks):
        for each position the number of the block that is there now, counted by rows.

    Raises:
        TypeError: `x` is not a tensor, or `blocks` or `neighbour` is not an int.
        ValueError: another number of dimensions, sides that `blocks` does not divide, or
            `neighbour` out of range.

    Source: the region confusion mechanism of Chen et al. 2019, "Destruction and Construction
    Learning for Fine-grained Image Recognition" (CVPR), here one direction after the other.
    """
    blocks, neighbour = checks.integer("blocks", blocks), checks.integer("neighbour", neighbour)
    if checks.tensor("x", x).ndim not in (3, 4):
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


def segment_indices(
    num_frames: int, segments: int, train: bool, generator: torch.Generator | None = None
) -> Tensor:
    """Return one frame of each of `segments` equal parts of a clip: random or, to test, the middle.

    The parts cover the whole clip. If there are fewer frames than segments, every frame is used and
    some are repeated.

    Args:
        num_frames: length of the clip in frames, at least 1.
        segments: how many frames to take, at least 1.
        train: True draws a random frame of each part, False takes the middle one.
        generator: for the random frames; the default one if not given.

    Returns:
        int64 (segments,), sorted, each from 0 to `num_frames - 1`.

    Raises:
        TypeError: `num_frames` or `segments` is not an integer.
        ValueError: `num_frames` or `segments` is below 1 (an unreadable video reports 0 or -1
            frames).

    Source: Wang et al. 2016, "Temporal Segment Networks" (ECCV), https://arxiv.org/abs/1608.00859
    """
    num_frames = checks.integer("num_frames", num_frames)
    segments = checks.integer("segments", segments)
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
        frames: uint8 (T, 3, H, W), RGB; H and W even, because the colours have half of them; W at
            least 8, because OpenCV corrupts memory with less.
        fps: frames per second, from 1 to 1000.

    Raises:
        ValueError: `frames` has another shape, no frame, an odd side or a width below 8, `path`
            another ending, or `fps` is out of range.
        TypeError: `frames` is not a tensor of uint8 with values, or `fps` not a number.
        OSError: OpenCV could not open the file for writing.
    """
    checks.filled("frames", frames), checks.number("fps", fps)
    if frames.ndim != 4 or frames.shape[1] != 3 or not len(frames):
        raise ValueError(f"frames must be (T, 3, H, W) with T > 0, got {tuple(frames.shape)}")
    if frames.dtype != torch.uint8:
        raise TypeError(f"frames must be uint8, got {frames.dtype}")
    if frames.shape[2] % 2 or frames.shape[3] % 2:
        raise ValueError(f"height and width must be even, got {tuple(frames.shape[2:])}")
    if frames.shape[3] < 8:
        raise ValueError(f"width must be at least 8, got {frames.shape[3]}")
    if not 1 <= fps <= 1000:
        raise ValueError(f"fps must be from 1 to 1000, got {fps}")
    if Path(path).suffix != ".avi":
        raise ValueError(f"path must end in .avi, got {Path(path).name!r}")
    cv2 = _cv2()
    size = (frames.shape[3], frames.shape[2])
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), float(fps), size)
    try:
        if not writer.isOpened():
            raise OSError(f"OpenCV cannot write {path}: does the folder exist?")
        for frame in frames.permute(0, 2, 3, 1).cpu().numpy():
            writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    finally:
        writer.release()


def video_info(path: str | Path) -> VideoInfo:
    """Return height, width, stated number of frames and frames per second of a video file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: OpenCV cannot open it; it also opens images, which have 0 frames.
    """
    with _opened(path) as (cv2, video):
        return VideoInfo(
            int(video.get(cv2.CAP_PROP_FRAME_HEIGHT)),
            int(video.get(cv2.CAP_PROP_FRAME_WIDTH)),
            max(int(video.get(cv2.CAP_PROP_FRAME_COUNT)), 0),
            video.get(cv2.CAP_PROP_FPS),
        )


def count_frames(path: str | Path) -> int:
    """Return the number of frames of a video file that can be decoded.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: OpenCV cannot read it as a video.
    """
    with _opened(path) as (_, video):
        count = 0
        while video.read()[0]:
            count += 1
        return count


def read_frames(path: str | Path, indices: Sequence[int] | Tensor) -> Tensor:
    """Read some frames of a video file by decoding it once from the start.

    Seeking is not exact for every codec.

    Args:
        path: a video file that OpenCV can read.
        indices: numbers of frames, in any order, repeats allowed; a list, or a tensor (T,).

    Returns:
        uint8 (T, 3, H, W), RGB, in the order of `indices`.

    Raises:
        TypeError: `indices` are not integers.
        ValueError: no index, a negative one, or one past the last frame that can be decoded; or
            OpenCV cannot read the file as a video.
        FileNotFoundError: the file does not exist.
    """
    if indices is None:
        raise TypeError("frame numbers must be integers, got None")
    try:
        requested = torch.as_tensor(indices)
    except (TypeError, ValueError, RuntimeError):
        kind = type(indices).__name__
        raise TypeError(f"frame numbers must be integers, got a {kind} of others") from None
    if requested.ndim != 1 or not len(requested):
        raise ValueError(f"expected a list of frame numbers, got shape {tuple(requested.shape)}")
    if requested.is_floating_point() or requested.is_complex() or requested.dtype == torch.bool:
        raise TypeError(f"frame numbers must be integers, got {requested.dtype}")
    requested = requested.long()
    if requested.min() < 0:
        raise ValueError(f"frame numbers must not be negative, got {requested.min().item()}")
    numbers, frames = set(requested.tolist()), {}
    with _opened(path) as (cv2, video):
        for number in range(max(numbers) + 1):
            more, frame = video.read()
            if not more:
                raise ValueError(
                    f"{Path(path).name} ends after {number} frames, frame {max(numbers)} is missing"
                )
            if number in numbers:
                frames[number] = torch.from_numpy(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    return torch.stack([frames[i] for i in requested.tolist()]).permute(0, 3, 1, 2).contiguous()


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[Any, Any]]:
    """Open a video with OpenCV, and release it after the block."""
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
