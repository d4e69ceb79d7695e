"""Find the size of the images in the batches of a loader."""

from __future__ import annotations

import ast
import re

from helpers.review.code import Code
from helpers.review.constants import number
from helpers.review.sizes import ANY, Shape
from helpers.review.syntax import argument, const
from helpers.review.tracing import construction, dataset_of

_IMAGES = {
    "MNIST": (1, 28, 28),
    "FashionMNIST": (1, 28, 28),
    "KMNIST": (1, 28, 28),
    "EMNIST": (1, 28, 28),
    "QMNIST": (1, 28, 28),
    "CIFAR10": (3, 32, 32),
    "CIFAR100": (3, 32, 32),
    "SVHN": (3, 32, 32),
    "STL10": (3, 96, 96),
    "ImageFolder": (3, ANY, ANY),
}
_SIZED = re.compile(r"transforms\.(Resize|CenterCrop|RandomCrop|RandomResizedCrop)$")
_KEPT = re.compile(
    r"transforms\.(ToTensor|Normalize|Random(Horizontal|Vertical)Flip|RandomRotation|ColorJitter|"
    r"RandomAffine|RandomErasing|ToPILImage|RandomPerspective|GaussianBlur|ToImage|ToDtype)$"
)


def image_batch(code: Code, loader: ast.AST) -> Shape | None:
    """Return the shape of a batch of images from a dataset of torchvision."""
    dataset = construction(code, dataset_of(code, loader))
    name = code.called(dataset)
    sizes = _IMAGES.get(name.rpartition(".")[2]) if name.startswith("torchvision.") else None
    if sizes is None:
        return None
    sizes = _transformed(code, argument(dataset, "transform"), sizes)
    return sizes and Shape((ANY, *sizes), True, image=True)


def _transformed(code: Code, transform: ast.AST | None, sizes: tuple) -> tuple | None:
    constructor = construction(code, transform)
    if code.called(constructor) != "transforms.Compose":
        return sizes if code.called(constructor) == "transforms.ToTensor" else None
    operand = constructor.args[0] if constructor.args else None
    for step in getattr(code.resolved(operand) if operand is not None else None, "elts", ()):
        name = code.called(step)
        if _SIZED.match(name):
            sizes = _resized(code, step, name, sizes)
        elif name == "transforms.Grayscale":
            sizes = (const(argument(step, "num_output_channels", 0)) or 1, *sizes[1:])
        elif not _KEPT.match(name):
            return None
    return sizes


def _resized(code: Code, step: ast.Call, name: str, sizes: tuple) -> tuple:
    size = argument(step, "size", 0)
    if isinstance(size, ast.Tuple | ast.List) and len(size.elts) == 2:
        height, width = (number(code, element, None) or ANY for element in size.elts)
        return sizes[0], height, width
    length = number(code, size, None) or ANY
    square = sizes[1] == sizes[2] != ANY
    if name.endswith("Resize") and not square:  # Resize(n) keeps the aspect ratio
        return sizes[0], ANY, ANY
    return sizes[0], length, length


_CLASSES = {
    "MNIST": 10,
    "FashionMNIST": 10,
    "KMNIST": 10,
    "CIFAR10": 10,
    "CIFAR100": 100,
    "SVHN": 10,
    "STL10": 10,
    "Food101": 101,
    "Flowers102": 102,
    "OxfordIIITPet": 37,
    "GTSRB": 43,
}


def classes(code: Code, loader: ast.AST) -> int | None:
    """Return the number of classes of a dataset of torchvision with only its own labels."""
    dataset = construction(code, dataset_of(code, loader))
    name = code.called(dataset)
    if not name.startswith("torchvision.") or argument(dataset, "target_transform"):
        return None
    return _CLASSES.get(name.rpartition(".")[2])
