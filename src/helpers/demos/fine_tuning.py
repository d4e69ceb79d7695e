"""Figures and demonstrations of the chapter on fine-tuning."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from helpers import digits
from helpers.figures import COLORS, Figure, figure, legend
from helpers.training_loop import accuracy, evaluate, fit

KNOWN = 700  # of the 901 pictures of 0 to 4, those that the pretrained network was trained on


_CHINESE = {
    "new digits, {} to {}": "新数字 {} 到 {}",
    "old digits, {} to {}": "旧数字 {} 到 {}",
    "guessing": "随机猜",
    "head": "头部",
    "learning rate of the body (the head's is {})": "主干的学习率（头部为 {}）",
}


class DigitNet(nn.Module):
    """Convolutional network for images of shape (N, 1, 8, 8); returns logits (N, classes)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = _block(1, 16)
        self.layer1 = _block(16, 32)
        self.layer2 = _block(32, 32)
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of `x`; two of the poolings and the flattening are not modules."""
        x = F.max_pool2d(self.layer1(self.stem(x)), 2)
        return self.head(F.max_pool2d(self.layer2(x), 2).flatten(1))


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def pretrained() -> DigitNet:
    """Return a `DigitNet` trained on the digits 0 to 4, once per process.

    It was trained on the first `KNOWN` images of `digits.load(range(5))`. Each call returns a new
    copy in training mode, with gradients. The global random state is not used.
    """
    return copy.deepcopy(_trained())


@cache
def _trained() -> DigitNet:
    x, y = digits.load(range(5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = DigitNet(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    fit(model, batches(x[:KNOWN], y[:KNOWN], 32), F.cross_entropy, optimizer, epochs=6)
    return model


def unseen() -> tuple[Tensor, Tensor]:
    """Return images and labels of 0 to 4 that the pretrained network was not trained on."""
    x, y = digits.load(range(5))
    return x[KNOWN:], y[KNOWN:]


def batches(x: Tensor, y: Tensor, size: int = 25) -> DataLoader:
    """Return shuffled minibatches of `size` samples of (x, y), the same in every call."""
    generator = torch.Generator().manual_seed(0)
    return DataLoader(TensorDataset(x, y), size, shuffle=True, generator=generator)


def few(per_class: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the digits 5 to 9: the first `per_class` of each for training, 400 for testing.

    Raises:
        ValueError: `per_class` is not from 1 to 80.
    """
    if not 1 <= per_class <= 80:
        raise ValueError(f"per_class must be from 1 to 80, got {per_class}")
    x, y = digits.load(range(5, 10))
    chosen = torch.cat([(y == label).nonzero()[:per_class, 0] for label in range(5)])
    return (x[chosen], y[chosen]), (x[-400:], y[-400:])


class ChildrenExtractor(nn.Module):
    """Old-style feature extractor: run the named children in order and keep some outputs.

    It is shown for comparison. Prefer
    `torchvision.models.feature_extraction.create_feature_extractor`.
    """

    def __init__(self, model: nn.Module, layers: Iterable[str]) -> None:
        super().__init__()
        self.model = model.eval()
        self.layers = set(layers)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the outputs of the requested children, in their order, without a graph."""
        outputs = []
        with torch.no_grad():
            for name, child in self.model.named_children():
                x = child(x)
                if name in self.layers:
                    outputs.append(x)
        return outputs


def body_rate(rate: float, seeds: int = 3) -> dict[str, float]:
    """Fine-tune on five images each of 5 to 9, with learning rate 0.05 for the head.

    `rate` is the learning rate of the backbone. BatchNorm stays in evaluation mode. There are 30
    epochs of one step, momentum 0.9; a run whose loss becomes inf or nan ends there.

    Returns:
        Accuracy on unseen images, averaged over `seeds` new heads: `new` for the digits 5 to 9,
        `old` for 0 to 4, with the old head restored.

    Raises:
        ValueError: `rate` is negative or `seeds` below 1.
    """
    if rate < 0 or seeds < 1:
        raise ValueError(f"expected a rate of 0 or more and a seed, got {rate} and {seeds}")
    (x, y), test = few(5)
    accuracies = {"new": 0.0, "old": 0.0}
    for seed in range(seeds):
        model = pretrained()
        old_head = model.head
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.head = nn.Linear(128, 5)
        body = [p for name, p in model.named_parameters() if not name.startswith("head.")]
        groups = [{"params": body, "lr": rate}, {"params": model.head.parameters()}]
        optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
        still = model.stem, model.layer1, model.layer2
        with suppress(FloatingPointError):
            fit(model, batches(x, y), F.cross_entropy, optimizer, epochs=30, still=still)
        accuracies["new"] += evaluate(model, [test], accuracy=accuracy)["accuracy"] / seeds
        model.head = old_head
        accuracies["old"] += evaluate(model, [unseen()], accuracy=accuracy)["accuracy"] / seeds
    return accuracies


def draw_body_rates(effects: dict[float, dict[str, float]]) -> Figure:
    """Draw the accuracy on new and old digits over the backbone's learning rate.

    Args:
        effects: what `body_rate` returned, by rate; at least two rates above 0.

    Raises:
        ValueError: there are fewer than two rates, or one is not above 0.
    """
    if len(effects) < 2 or min(effects) <= 0:
        raise ValueError(f"expected at least two rates above 0, got {list(effects)}")
    rates = sorted(effects)
    drawing, axis = figure(chinese=_CHINESE)
    for key, style, color, label in (
        ("new", "o-", COLORS["teal"], "new digits, 5 to 9"),
        ("old", "s--", COLORS["orange"], "old digits, 0 to 4"),
    ):
        values = [effects[rate][key] for rate in rates]
        axis.plot(rates, values, style, color=color, markersize=4, label=label)
    small = {"color": COLORS["grey"], "fontsize": 8.5}
    axis.axhline(0.2, color=COLORS["grey"], linewidth=1, linestyle=":")
    axis.text(rates[0], 0.23, "guessing", **small)
    axis.axvline(0.05, color=COLORS["grey"], linewidth=1, linestyle=":")
    axis.text(0.056, 1.01, "head", **small)
    axis.set(xscale="log", ylim=(0, 1.1), ylabel="accuracy")
    axis.set_xlabel("learning rate of the body (the head's is 0.05)")
    legend(axis)
    return drawing
