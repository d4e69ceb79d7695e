"""Show the memory of a training step by batch size, optimizer, precision and checkpointing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers.explorers import Explorer
from helpers.memory_caching import TrainingMemory, training_memory

BATCHES = (1, 2, 4, 8, 16)
SETTINGS = list(itertools.product((False, True), repeat=3))  # adam, half, again

# Recorded results of `count` in MiB, a row per setting: weights, gradients, optimizer, activations,
# peak for each batch size. All forty take half a minute to compute; a test checks some.
COUNTED = [
    [[64, 52, 0, 24, 140], [64, 20, 0, 92, 176], [64, 8, 0, 200, 272], [64, 8, 0, 401, 473],
     [64, 8, 0, 801, 873]],
    [[64, 52, 0, 24, 140], [64, 40, 0, 64, 168], [64, 40, 0, 128, 232], [64, 40, 0, 256, 360],
     [64, 40, 0, 513, 617]],
    [[64, 52, 0, 20, 136], [64, 0, 0, 94, 158], [64, 0, 0, 162, 226], [64, 0, 0, 299, 363],
     [64, 0, 0, 571, 635]],
    [[64, 52, 0, 20, 136], [64, 32, 0, 60, 156], [64, 32, 0, 104, 200], [64, 32, 0, 192, 288],
     [64, 32, 0, 369, 465]],
    [[64, 64, 152, 2, 282], [64, 20, 128, 92, 304], [64, 8, 128, 200, 401],
     [64, 8, 128, 401, 601], [64, 8, 128, 801, 1001]],
    [[64, 64, 152, 2, 282], [64, 40, 128, 64, 296], [64, 40, 128, 128, 360],
     [64, 40, 128, 256, 489], [64, 40, 128, 513, 745]],
    [[64, 64, 152, 2, 282], [64, 0, 128, 94, 286], [64, 0, 128, 162, 355],
     [64, 0, 128, 299, 491], [64, 0, 128, 571, 764]],
    [[64, 64, 152, 2, 282], [64, 32, 128, 60, 284], [64, 32, 128, 104, 328],
     [64, 32, 128, 192, 417], [64, 32, 128, 369, 593]],
]  # fmt: skip


def training(
    batch: int = 8,
    kind: Any = torch.optim.Adam,
    half: bool = False,
    again: bool = False,
    device: str = "cpu",
    foreach: bool | None = None,
) -> tuple[nn.Module, Any, Callable[[], None]]:
    """Return two layers of a Transformer, their optimizer and a training step of 512 tokens.

    Args:
        batch: samples per step.
        kind: class of the optimizer.
        half: the forward pass under `autocast` to bfloat16.
        again: activation checkpointing, layer by layer.
        device: device of the weights and of the inputs.
        foreach: the optimizer's `foreach`.
    """
    layers = (
        nn.TransformerEncoderLayer(1024, 16, dropout=0.0, batch_first=True, device=device)
        for _ in range(2)
    )
    net = nn.Sequential(*layers)
    optimizer = kind(net.parameters(), lr=1e-3, foreach=foreach)

    def step() -> None:
        x = torch.randn(batch, 512, 1024, device=device)
        with torch.autocast(device, torch.bfloat16, enabled=half):
            for layer in net:
                x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        x.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return net, optimizer, step


def count(batch: int, adam: bool, half: bool, again: bool) -> TrainingMemory:
    """Return the memory of training two layers of a Transformer, 512 tokens per sample.

    Args:
        batch: samples per step.
        adam: Adam, or else SGD without momentum.
        half: the forward pass under `autocast` to bfloat16.
        again: activation checkpointing, layer by layer.
    """

    kind = torch.optim.Adam if adam else torch.optim.SGD
    return training_memory(lambda: training(batch, kind, half, again))


def memory_explorer(lang: str | None = None) -> Explorer:
    """Choose how to train, and see the parts of the memory for each batch size."""
    return Explorer(
        "memory",
        {"batches": BATCHES, "counted": COUNTED},
        {
            "en": (
                "Stacked bars of weights, gradients, optimizer and activations for batches of 1 "
                "to 16. With Adam and a batch of 2 a step takes 304 MiB, and half the batch "
                "still takes 282, because weights and Adam's state stay; with SGD a batch of 16 "
                "takes 873, half of it 473."
            ),
            "zh": (
                "批量大小从 1 到 16 时，权重、梯度、优化器和激活值的堆叠柱状图。用 Adam、批量大"
                "小为 2 时，一步占用 304 MiB，批量减半仍占用 282 MiB，因为权重和 Adam 的状态不变；"
                "用 SGD、批量大小为 16 时占用 873 MiB，减半占用 473 MiB。"
            ),
        },
        lang,
    )
