"""Figures and demonstrations of the chapter on images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from helpers import checks
from helpers.figures import Figure, figure, title

PHOTOS = ("china", "flower")


# Class: photo, left, top, right, bottom in pixels; every box contains one class only.
_BOXES = {
    "petals": ("flower", 232, 136, 392, 296),
    "leaves": ("flower", 456, 24, 616, 184),
    "sky": ("china", 400, 16, 560, 176),
    "trees": ("china", 384, 320, 592, 424),
}


_KINDS = {"petals": "花瓣", "leaves": "叶子", "sky": "天空", "trees": "树"}
_CHINESE = {"difference": "差别"} | {
    f"{order}: {one} → {other}": f"{order}：{_KINDS[one]} → {_KINDS[other]}"
    for order in ("RGB", "BGR")
    for one in _KINDS
    for other in _KINDS
}


class Patches(NamedTuple):
    """Small images with labels: `images` uint8 (N, 3, size, size), RGB; `labels` int64 (N,)."""

    images: Tensor
    labels: Tensor
    names: tuple[str, ...]


def photo(name: str) -> Tensor:
    """Return one of the two photos of scikit-learn: uint8, (3, 427, 640), RGB.

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
    """Return squares cut from the two photos, without overlap, in four classes.

    Args:
        size: side of a square in pixels, from 1 to 104.

    Raises:
        TypeError: `size` is not an int.
        ValueError: `size` is out of that range.
    """
    size = checks.integer("size", size)
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


def draw_images(shown: Mapping[str, Tensor], columns: int | None = None) -> Figure:
    """Draw images side by side, each under its title.

    Args:
        shown: title to image (3, H, W) or (1, H, W), uint8, or floats that are clamped to [0, 1].
        columns: images per row where there is room; all in one row if not given.

    Raises:
        ValueError: nothing to show, an image of another shape, or `columns` below 1.
    """
    if not shown:
        raise ValueError("expected at least one image, got none")
    for name, image in shown.items():
        if image.ndim != 3 or image.shape[0] not in (1, 3):
            raise ValueError(f"{name!r} must be (3, H, W) or (1, H, W), got {tuple(image.shape)}")
    columns = len(shown) if columns is None else columns
    if columns < 1:
        raise ValueError(f"columns must be at least 1, got {columns}")
    width = min(7.2 / columns, 3.5)
    sizes = [(width, width * image.shape[1] / image.shape[2] + 0.3) for image in shown.values()]
    drawing, grid = figure(len(shown), size=sizes, chinese=_CHINESE)
    for axes, (name, image) in zip(grid, shown.items(), strict=True):
        axes.set_axis_off()
        pixels = image if image.dtype == torch.uint8 else image.float().clamp(0, 1)
        axes.imshow(
            pixels.cpu().permute(1, 2, 0).squeeze(-1).numpy(),
            interpolation="none",
            cmap="gray",
            vmin=0,
            vmax=255 if pixels.dtype == torch.uint8 else 1,
        )
        title(axes, name)
    return drawing
