"""Show the effect of image conventions that raise no error on a model's predictions."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from helpers.demos.images import patches
from helpers.explorers import Explorer

SIZE, SHOWN = 16, 12  # side length in pixels; index of the test image shown of each class
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as read": lambda x: x,
    "permute": lambda x: x.permute(0, 3, 1, 2),
    "reshape": lambda x: x.reshape(len(x), 3, SIZE, SIZE),
}
SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "uint8": lambda x: x,
    "float": lambda x: x.float(),
    "divided": lambda x: x / 255,
    "twice": lambda x: x / 255 / 255,
}
NORMALIZED = ("none", "ImageNet", "own")


class Trained(NamedTuple):
    """Classifier of images by mean colour, with statistics and test data.

    `mean`, `std`: statistics of the training images, RGB in [0, 1]. `pictures`: test images, not in
    training, uint8 RGB of shape (189, 16, 16, 3); `label`: their class indices, int64 (189,);
    `names`: the names of the classes.
    """

    model: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pictures: Tensor
    label: Tensor
    names: tuple[str, ...]


@cache
def trained() -> Trained:
    """Fit a linear discriminant with shared covariance to half of the images."""
    squares, label, names = patches(SIZE)
    train = torch.arange(len(label)) % 2 == 0
    x = squares.double() / 255
    mean, std = x[train].mean((0, 2, 3)), x[train].std((0, 2, 3))
    colours = (x.mean((2, 3)) - mean) / std
    centres = torch.stack([colours[train & (label == c)].mean(0) for c in range(len(names))])
    rest = colours[train] - centres[label[train]]
    covariance = rest.T @ rest / len(rest) + 0.01 * torch.eye(3, dtype=torch.float64)
    weight = torch.linalg.solve(covariance, centres.T).T
    bias = -(weight * centres).sum(1) / 2
    layer = nn.Conv2d(3, len(names), 1)
    with torch.no_grad():
        layer.weight.copy_(weight[:, :, None, None])
        layer.bias.copy_(bias)
    model = nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    pictures = squares[~train].permute(0, 2, 3, 1).contiguous()
    return Trained(model, tuple(mean.tolist()), tuple(std.tolist()), pictures, label[~train], names)


def prepared(rgb: bool, layout: str, scale: str, normalized: str) -> Tensor:
    """Convert test images, read by OpenCV, to the model's input.

    Args:
        rgb: convert BGR to RGB.
        layout: a key of `LAYOUTS`.
        scale: a key of `SCALES`.
        normalized: statistics for normalization, one of `NORMALIZED`.

    Raises:
        RuntimeError, TypeError or ValueError: the error of torchvision's `normalize`.
    """
    from torchvision.transforms.v2 import functional

    _, mean, std, pictures, *_ = trained()
    x = pictures if rgb else pictures.flip(-1)
    x = SCALES[scale](LAYOUTS[layout](x))
    if normalized == "none":
        return x
    mean, std = IMAGENET if normalized == "ImageNet" else (mean, std)
    return functional.normalize(x, list(mean), list(std))


def answered(x: Tensor) -> Tensor:
    """Return the model's probabilities, float32 of shape (n, 4).

    Raises:
        RuntimeError: `x` does not fit the model.
    """
    with torch.no_grad():
        return trained().model(x).softmax(1)


def shown() -> list[int]:
    """Return the indices of the displayed test images, one of each class."""
    label = trained().label
    return [(label == c).nonzero()[SHOWN].item() for c in range(len(trained().names))]


def _rows() -> tuple[list[int | list], list[str]]:
    """Return the result of each setting and a list of errors; an int result is an error's index."""
    label, chosen = trained().label, shown()
    errors: list[str] = []
    rows: list[int | list] = []
    for setting in product((False, True), LAYOUTS, SCALES, NORMALIZED):
        try:
            x = prepared(*setting)
            chances, predicted = answered(x).max(1)
        except (RuntimeError, TypeError) as error:
            text = f"{type(error).__name__}: {error}".replace(f"[{len(label)}, ", "[4, ")
            errors += [text] * (text not in errors)
            rows.append(errors.index(text))
            continue
        ends = [round(v.item(), 2) for v in (x[chosen].min(), x[chosen].max())]
        percents = [round(100 * v) for v in chances[chosen].tolist()]
        right = int((predicted == label).sum())
        rows.append([*ends, right, predicted[chosen].tolist(), percents])
    return rows, errors


def pixels_explorer(lang: str | None = None) -> Explorer:
    """Switch each convention between a file and a model, and see the predicted class."""
    label, chosen = trained().label, shown()
    rows, errors = _rows()
    pixels = trained().pictures[chosen].numpy().tobytes()
    data = {
        "pixels": b64encode(pixels).decode(),
        "own": [list(trained().mean), list(trained().std)],
        "imagenet": IMAGENET,
        "rows": rows,
        "errors": errors,
        "all": len(label),
    }
    return Explorer(
        "pixels",
        data,
        {
            "en": (
                "Four small images, read by OpenCV and normalized with ImageNet's statistics: "
                "no error is raised, and three of them are classified wrongly. Only with RGB, "
                "permute, one division by 255 and the statistics of its own training does the "
                "model classify all test images correctly."
            ),
            "zh": (
                "四张小图像，用 OpenCV 读取，并按 ImageNet 的统计量标准化：没有报错，但三张分类"
                "错误。只有转成 RGB、用 permute、只除以一次 255，并使用模型自己训练时的统计量，"
                "模型才能把所有测试图像分类正确。"
            ),
        },
        lang,
    )
