"""Helper of the chapter on losses: the target distribution of a cross-entropy.

Source: "Loss functions" of `torch.nn`, https://pytorch.org/docs/stable/nn.html#loss-functions
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from helpers import checks


def target_distribution(loss: Callable[[Tensor], Tensor], classes: int) -> Tensor:
    """Return the target distribution of a cross-entropy over the classes, read from its gradient.

    The gradient of a cross-entropy in the logits is softmax(logits) - target, so the target is
    softmax(logits) - gradient.

    Args:
        loss: maps logits of shape (1, classes) to the loss of this sample, for example
            `lambda z: F.cross_entropy(z, torch.tensor([0]), label_smoothing=0.1)`. If the loss is
            scaled, as by the default `reduction` of `kl_div`, the result is wrong.
        classes: the number of classes.

    Returns:
        The default dtype, shape (classes,).

    Raises:
        TypeError: `loss` cannot be called, or `classes` is not an int.
        ValueError: `classes` is less than 1.
    """
    checks.function("loss", loss)
    classes = checks.integer("classes", classes, 1)
    with torch.inference_mode(False), torch.enable_grad():
        logits = torch.zeros(1, classes, requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(logits), logits)
    return (logits.softmax(1) - gradient)[0].detach()
