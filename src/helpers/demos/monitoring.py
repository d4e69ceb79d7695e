"""Figures and demonstrations of the chapter on monitoring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from helpers.figures import COLORS, Figure, figure, legend

PAGE_PICTURE = Path(__file__).parents[1] / "pictures" / "visdom-page.png"
"""Visdom's page with the chapter's run, as Chromium showed it; by tests/helpers/visdom_page.py."""


_CHINESE = {
    "read back from the server": "从服务器读回",
    "in curves only": "只在 curves 里",
    "server killed": "服务器被杀",
}


def train(epochs: int, seed: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
    """Fit a small network to a noisy sine on the CPU, and yield the metrics of each epoch.

    Yields:
        The epoch, counted from 1, and `Loss/train`, `Loss/val` and `lr`.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(256, 1, generator=generator) * 4 - 2
    y = torch.sin(2 * x) + 0.1 * torch.randn(256, 1, generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(192, generator=generator).split(16):
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        lr = scheduler.get_last_lr()[0]
        scheduler.step()
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x[192:]), y[192:]).item()
        yield epoch, {"Loss/train": total / 192, "Loss/val": val, "lr": lr}


def draw_outage(kept: Sequence[tuple[int, float]], shown: Sequence[tuple[int, float]]) -> Figure:
    """Draw a curve, with a filled mark for each point that a server stored before it ended.

    Args:
        kept: all points, (step, value).
        shown: those that were read back from the server.

    Raises:
        ValueError: `kept` is empty, or `shown` has a step that `kept` does not have.
    """
    steps = [step for step, _ in kept]
    if not kept or not {step for step, _ in shown} <= set(steps):
        raise ValueError(f"expected the steps of the server among {steps}, got {list(shown)}")
    lost = [(step, value) for step, value in kept if step not in dict(shown)]
    drawing, axis = figure(chinese=_CHINESE)
    axis.plot(*zip(*kept, strict=True), color=COLORS["grey"], linewidth=1)
    for points, face, label in (
        (shown, COLORS["teal"], "read back from the server"),
        (lost, COLORS["white"], "in curves only"),
    ):
        if points:
            axis.plot(
                *zip(*points, strict=True),
                linestyle="none",
                marker="o",
                color=COLORS["teal"],
                markerfacecolor=face,
                label=label,
            )
    if shown and lost:
        death = (shown[-1][0] + lost[0][0]) / 2
        axis.axvline(
            death, color=COLORS["orange"], linestyle="--", linewidth=1.5, label="server killed"
        )
    axis.set(xlabel="epoch", ylabel="training loss", ylim=(0, None), xticks=steps)
    legend(axis)
    return drawing
