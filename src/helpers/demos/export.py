"""Demonstrations of the chapter on export."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn

from helpers import child, digits


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


def run(program: str, folder: str | os.PathLike[str]) -> str:
    """Run Python code in a new process; return the last line of its output, or of its error.

    Args:
        program: the code.
        folder: the working directory.

    Raises:
        subprocess.TimeoutExpired: the program is not done after two minutes.
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, env=child.environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return (done.stderr if done.returncode else done.stdout).strip().splitlines()[-1].strip()
