"""Demonstrations of the chapter on export."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from helpers import digits


def train(model: nn.Module, epochs: int = 6) -> nn.Module:
    """Train a classifier of digits for a few epochs; return it in training mode."""
    torch.manual_seed(0)
    images, labels = digits.split()[0].tensors
    optimizer = torch.optim.Adam(model.train().parameters(), lr=5e-3)
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(images[part]), labels[part]).backward()
            optimizer.step()
    return model
