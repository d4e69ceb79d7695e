"""Figures and demonstrations of the chapter on binary and segmentation losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.figures import COLORS, Figure, figure, legend

_CHINESE = {
    "gradient": "梯度",
    "logit of a sample with label {}": "标签为 {} 的样本的 logit",
}


def saturation(logits: Tensor) -> dict[str, dict[str, Tensor]]:
    """Return loss and gradient of both binary cross-entropies for a sample with the label 0.

    Args:
        logits: shape (n,), one sample each.

    Returns:
        Under `"sigmoid, BCELoss"` and `"BCEWithLogitsLoss"` the tensors `loss` and `gradient`
        (in the logit), each of shape (n,).
    """
    forms = {
        "sigmoid, BCELoss": lambda z, t: F.binary_cross_entropy(z.sigmoid(), t, reduction="none"),
        "BCEWithLogitsLoss": lambda z, t: F.binary_cross_entropy_with_logits(
            z, t, reduction="none"
        ),
    }
    curves = {}
    for name, form in forms.items():
        z = logits.detach().clone().requires_grad_()
        loss = form(z, torch.zeros_like(z))
        (gradient,) = torch.autograd.grad(loss.sum(), z)
        curves[name] = {"loss": loss.detach(), "gradient": gradient}
    return curves


def draw_saturation(last: float = 30.0) -> Figure:
    """Draw `saturation` for logits from 0 to `last`: losses left, gradients right."""
    logits = torch.linspace(0, last, 301)
    drawing, axes = figure(2, chinese=_CHINESE)
    styles = {
        "sigmoid, BCELoss": (COLORS["orange"], "-"),
        "BCEWithLogitsLoss": (COLORS["teal"], "--"),
    }
    for name, curve in saturation(logits).items():
        color, line = styles[name]
        for axis, what in zip(axes, ("loss", "gradient"), strict=True):
            axis.plot(logits, curve[what], line, color=color, label=name, linewidth=2)
            axis.set(ylabel=what, xlabel="logit of a sample with label 0")
    for axis in axes:
        legend(axis)
    return drawing
