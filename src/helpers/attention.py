"""Helpers of the chapter on attention.

Source: `F.scaled_dot_product_attention`,
https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_weights(query: Tensor, key: Tensor, **options: Any) -> Tensor:
    """The weights that `F.scaled_dot_product_attention` uses and does not return.

    The values are the identity matrix, so the output is the weights themselves.

    Args:
        query: floating point, shape (..., Lq, E).
        key: shape (..., Lk, E).
        options: `attn_mask`, `is_causal`, `dropout_p`, `scale`.

    Returns:
        Shape (..., Lq, Lk). Each row adds up to 1; a row that sees no key is 0.
    """
    length = key.shape[-2]
    values = torch.eye(length, dtype=key.dtype, device=key.device)
    return F.scaled_dot_product_attention(
        query, key, values.expand(*key.shape[:-1], length), **options
    )


def reach(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Which positions of the input reach which positions of the output.

    A position reaches another if its gradient there is not 0; nan counts as reaching. Call it in
    eval mode, so that dropout hides nothing, and on a short sequence, whose weights do not
    underflow to 0. It runs with gradients, also under `torch.no_grad()`, so an encoder does not
    take its fast path.

    Args:
        function: maps (N, L, E) to (N, L', E'): a model, or attention with its masks.
        x: floating point, shape (N, L, E).

    Returns:
        bool, shape (L', L), on the CPU. For a causal model it is lower triangular.

    Raises:
        TypeError: the output is no tensor, such as the pair of `nn.MultiheadAttention`.
        ValueError: `x` or the output does not have three dimensions.
    """
    if x.dim() != 3:
        raise ValueError(f"expected an input (N, L, E), got shape {tuple(x.shape)}")
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        out = function(x)
        if not isinstance(out, Tensor):
            raise TypeError(f"expected a tensor as output, got {type(out).__name__}")
        if out.dim() != 3:
            raise ValueError(f"expected an output (N, L, E), got shape {tuple(out.shape)}")
        # a plain sum would vanish behind a LayerNorm
        generator = torch.Generator().manual_seed(0)
        sizes = out.shape[0], out.shape[2]
        probe = torch.randn(sizes, generator=generator, device="cpu").to(out)
        totals = (out * probe[:, None]).sum((0, 2))
        rows = [
            torch.autograd.grad(total, x, retain_graph=True, materialize_grads=True)[0]
            if total.requires_grad
            else torch.zeros_like(x)
            for total in totals
        ]
    return torch.stack([(row != 0).any(2).any(0) for row in rows]).cpu()


def rotary(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Rotate queries or keys by their positions (RoPE), in the layout of two halves.

    Feature `i` and feature `i + E/2` form a pair, as in GPT-NeoX and in the models of Hugging
    Face; Meta's own Llama pairs neighbours, so its weights have to be reordered first. Angles are
    computed in float32 at least.

    Args:
        x: floating point, shape (..., L, E), E even.
        positions: integers, shape (L,), or one that broadcasts with (..., L), such as (N, 1, L).
        base: the longest wavelength is close to 2π times this.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: E is odd, or there are more positions than `x` has places for.

    Source: RoFormer, https://arxiv.org/abs/2104.09864
    """
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"rotary needs an even number of features, got {width}")
    dtype = torch.promote_types(x.dtype, torch.float32)
    powers = torch.arange(0, width, 2, device=x.device, dtype=dtype) / width
    angles = positions[..., None].to(x.device, dtype) * base**-powers
    cos, sin = angles.cos(), angles.sin()
    a, b = x.to(dtype).chunk(2, dim=-1)
    turned = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)
    if turned.shape != x.shape:
        raise ValueError(
            f"expected positions for {tuple(x.shape[:-1])}, got shape {tuple(positions.shape)}"
        )
    return turned


def sinusoids(length: int, width: int, base: float = 10000.0) -> Tensor:
    """The table of positions of "Attention Is All You Need": sines and cosines side by side.

    Returns:
        float32, shape (length, width); `width` may be odd. Column 2i is the sine and column
        2i + 1 the cosine of position / base^(2i / width).

    Raises:
        ValueError: `length` or `width` is below 1.

    Source: https://arxiv.org/abs/1706.03762
    """
    if length < 1 or width < 1:
        raise ValueError(f"expected a length and a width of 1 or more, got {length} and {width}")
    powers = torch.arange(0, width, 2) / width
    angles = torch.arange(length)[:, None] * base**-powers
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]


def backends(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> dict[str, str]:
    """Which kernels of `F.scaled_dot_product_attention` take these inputs, and if not, why.

    Each is tried alone, on the device where the inputs are; the state of the random numbers stays
    as it was.

    Args:
        query: shape (..., Lq, E).
        key: shape (..., Lk, E).
        value: shape (..., Lk, Ev).
        options: what else the call has, such as `attn_mask` or `is_causal`.

    Returns:
        For flash, efficient, cudnn and math `"runs"`, or PyTorch's own reason.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH,
    }
    found = {}
    devices = [query.device] if query.is_cuda else []
    for name, kind in kinds.items():
        with (
            warnings.catch_warnings(record=True) as told,
            torch.random.fork_rng(devices),
            sdpa_kernel(kind),
        ):
            warnings.simplefilter("always")
            try:
                F.scaled_dot_product_attention(query, key, value, **options)
                found[name] = "runs"
            except RuntimeError as error:
                found[name] = _reason([str(w.message) for w in told], name) or _first(str(error))
    return found


def _reason(told: list[str], name: str) -> str:
    """The warning about kernel `name`; the others are told about, too, but were switched off."""
    own, reasons = False, []
    for text in told:
        if "kernel not used because" in text:
            own = text.lower().startswith({"efficient": "mem"}.get(name, name))
        elif own:
            reasons.append(_first(text))
    return "; ".join(reasons)


def _first(text: str) -> str:
    return text.split(" (Triggered internally")[0].split(". ")[0].strip().rstrip(".")
