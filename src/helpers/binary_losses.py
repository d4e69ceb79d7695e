"""Helper of the chapter on binary and segmentation losses: a soft IoU loss.

Source: "Loss functions" of `torch.nn`, https://pytorch.org/docs/stable/nn.html#loss-functions
"""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor

from helpers import checks


def soft_iou_loss(
    probability: Tensor, target: Tensor, spatial_dims: int = 2, eps: float = 1e-6
) -> Tensor:
    """Return one minus the soft intersection over union of predicted and true masks, averaged.

    With p the prediction and t the target of one image and class, summed over its pixels,

        loss = 1 - (sum(p t) + eps) / (sum(p²) + sum(t²) - sum(p t) + eps).

    For masks of zeros and ones this is 1 - IoU, and two masks that are exactly 0 give 0. It is
    differentiable in `probability`. Sums are computed in float32 or wider, so half precision does
    not overflow.

    Args:
        probability: floating point in [0, 1], shape (N, *spatial) or (N, C, *spatial). Apply a
            sigmoid or softmax first; logits raise an error.
        target: the same shape, any dtype, values in [0, 1]: a mask, or soft labels.
        spatial_dims: number of the last dimensions that make up one mask: 2 for images, 3 for
            volumes, 1 for flattened masks (N, pixels) or (N, C, pixels). The shape alone does not
            tell (N, C, pixels) from (N, H, W): with the default, its classes become rows of one
            mask.
        eps: keeps the ratio defined if both masks are empty. A sigmoid rarely gives exactly 0, so
            an image without an object usually costs nearly 1 with the default; leave such images
            out.

    Returns:
        A scalar from 0 to 1, float64 for float64 input and float32 otherwise; nan if a value is nan
            or the batch is empty.

    Raises:
        TypeError: `probability` or `target` is not a real tensor with values,
            `probability` is not floating point, or `spatial_dims` is not an integer.
        ValueError: shapes differ, `spatial_dims` is below 1, `eps` is not positive and finite in
            float32, there is no batch dimension, or a value is outside [0, 1] by more than rounding
            (on a GPU this check synchronizes).

    Source: the Tanimoto loss of Diakogiannis et al. 2020, "ResUNet-a",
    https://arxiv.org/abs/1904.00592
    """
    for name, given in (("probability", probability), ("target", target)):
        if checks.filled(name, given).is_complex():
            raise TypeError(f"{name} must be real, got {given.dtype}")
    if not isinstance(spatial_dims, int) or isinstance(spatial_dims, bool):
        raise TypeError(f"spatial_dims must be an integer, got {spatial_dims!r}")
    if not isinstance(eps, Real) or not torch.finfo(torch.float32).tiny <= eps < math.inf:
        raise ValueError(f"eps must be a positive number in float32, got {eps!r}")
    if not probability.is_floating_point():
        raise TypeError(f"probability must be floating point, got {probability.dtype}")
    if probability.shape != target.shape:
        raise ValueError(
            "probability and target must have the same shape, got "
            f"{tuple(probability.shape)} and {tuple(target.shape)}"
        )
    if spatial_dims < 1:
        raise ValueError(f"spatial_dims must be at least 1, got {spatial_dims}")
    if probability.ndim < spatial_dims + 1:
        raise ValueError(
            f"expected a batch dimension before {spatial_dims} spatial ones, got shape "
            f"{tuple(probability.shape)}; pass spatial_dims=1 for flattened masks (N, pixels)"
        )
    _in_unit_interval("probability", probability, "apply sigmoid or softmax to logits first")
    _in_unit_interval("target", target, "divide a mask of 0 and 255 by 255")
    dtype = torch.float64 if probability.dtype == torch.float64 else torch.float32
    p, t = probability.to(dtype), target.to(dtype)
    dims = tuple(range(-spatial_dims, 0))
    both = (p * t).sum(dims)
    either = (p * p + t * t - p * t).sum(dims)
    return (1 - (both + eps) / (either + eps)).mean()


def _in_unit_interval(name: str, tensor: Tensor, advice: str) -> None:
    # a sum of probabilities may exceed 1 by rounding
    near = 8 * torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0
    # uint16, uint32, uint64 and float8 have no min, MPS has no float64
    values = tensor if tensor.dtype == torch.float64 else tensor.float()
    if values.numel() and (values.min() < -near or values.max() > 1 + near):
        raise ValueError(
            f"{name} must lie between 0 and 1, got values from {values.min().item():.3g} "
            f"to {values.max().item():.3g}; {advice}"
        )
