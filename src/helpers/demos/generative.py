"""Figures and demonstrations of the chapter on generative models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import checks
from helpers.figures import COLORS, Figure, figure, legend, title

_CHINESE = {
    "D's logit for a generated sample": "D 对生成样本的 logit",
    "gradient of the generator's loss": "生成器损失的梯度",
    "minimax": "极小极大损失",
    "non-saturating": "非饱和损失",
    "equal learning rates": "学习率相同",
    "D three times as fast": "D 的学习率为三倍",
    "images": "图像",
    "mean over pixels": "对像素取平均",
    "sum over pixels": "对像素求和",
    "without the KL": "不加 KL",
}


# ---------------------------------------------------------------- data and models


def blobs(n: int, size: int = 8, generator: torch.Generator | None = None) -> Tensor:
    """Return images of one bright spot at a random position: (n, 1, size, size), from 0 to 1.

    Raises:
        TypeError, ValueError: `n` or `size` is not an int, or too small.
    """
    n, size = checks.integer("n", n, 0), checks.integer("size", size, 3)
    centre = 1 + torch.rand(n, 2, 1, generator=generator) * (size - 3)
    rows, columns = (torch.arange(size) - centre).square().unbind(1)
    return torch.exp(-(rows[:, :, None] + columns[:, None]) / 2)[:, None]


def _mlp(sizes: Sequence[int], activation: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation]
    return nn.Sequential(*layers[:-1])


def new_gan(
    lr_G: float = 1e-3, lr_D: float = 1e-3, latent: int = 16
) -> tuple[nn.Module, nn.Module, torch.optim.Optimizer, torch.optim.Optimizer]:
    """Return a generator of points (N, 2), a discriminator, and an Adam optimizer for each.

    Both networks have two hidden layers of 64 units. `G` maps noise (N, latent) to points, and `D`
    points to logits (N, 1).

    Raises:
        TypeError, ValueError: `latent` is not an int, or below 1.
    """
    latent = checks.integer("latent", latent, 1)
    G = _mlp([latent, 64, 64, 2], nn.ReLU())
    D = _mlp([2, 64, 64, 1], nn.LeakyReLU(0.2))
    optimizers = [
        torch.optim.Adam(model.parameters(), lr=lr, betas=(0.5, 0.9))
        for model, lr in ((G, lr_G), (D, lr_D))
    ]
    return G, D, *optimizers


class VAE(nn.Module):
    """Small VAE for images (N, 1, 8, 8): the encoder returns mu and logvar, the decoder logits."""

    def __init__(self, latent: int = 2, width: int = 64) -> None:
        super().__init__()
        latent = checks.integer("latent", latent, 1)
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 2 * latent)
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 64), nn.Unflatten(1, (1, 8, 8)),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (N, 1, 8, 8), and mu and logvar (N, latent)."""
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
        return self.decoder(z), mu, logvar


# ---------------------------------------------------------------- figures


def generator_gradients(logits: Tensor) -> dict[str, Tensor]:
    """Return the gradient of both losses of the generator in D's logit, each of shape (n,)."""
    losses = {
        "minimax": lambda z: -F.softplus(z),  # log(1 - sigmoid(z))
        "non-saturating": lambda z: F.softplus(-z),  # -log sigmoid(z)
    }
    gradients = {}
    for name, loss in losses.items():
        z = logits.detach().clone().requires_grad_()
        (gradients[name],) = torch.autograd.grad(loss(z).sum(), z)
    return gradients


def draw_generator_gradients() -> Figure:
    """Draw `generator_gradients` for logits from -10 to 5."""
    logits = torch.linspace(-10, 5, 151)
    drawing, axis = figure(chinese=_CHINESE)
    styles = {"minimax": (COLORS["orange"], "-"), "non-saturating": (COLORS["teal"], "--")}
    for name, gradient in generator_gradients(logits).items():
        color, line = styles[name]
        axis.plot(logits.numpy(), gradient.numpy(), line, color=color, label=name, linewidth=2)
    axis.set(xlabel="D's logit for a generated sample", ylabel="gradient of the generator's loss")
    legend(axis)
    return drawing


def draw_samples(samples: Mapping[str, Tensor], centres: Tensor) -> Figure:
    """Draw two-dimensional samples, shape (N, 2), a panel for each name, and the centres."""
    drawing, axes = figure(len(samples), size=(3.0, 3.0), chinese=_CHINESE)
    for axis, (name, points) in zip(axes, samples.items(), strict=True):
        axis.plot(*centres.T.numpy(), "o", color=COLORS["orange"], fillstyle="none", markersize=14)
        axis.plot(*points.T.numpy(), ".", color=COLORS["teal"], markersize=3)
        axis.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal", xticks=(), yticks=())
        title(axis, name)
    return drawing


def draw_rows(rows: Mapping[str, Tensor]) -> Figure:
    """Draw images of shape (N, 1, H, W), from 0 to 1, a row for each name."""
    drawing, axis = figure(size=(3.5, 0.35 * len(rows) + 0.1), chinese=_CHINESE)
    for y, (name, images) in enumerate(rows.items()):
        axis.text(-0.2, y, name, ha="right", va="center")
        for x, image in enumerate(images[:, 0]):
            box = (x + 0.04, x + 0.96, y + 0.46, y - 0.46)
            axis.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1, extent=box, aspect="auto")
    count = max(len(images) for images in rows.values())
    axis.set(xlim=(-4.2, count), ylim=(len(rows) - 0.5, -0.5))
    axis.axis("off")
    return drawing
