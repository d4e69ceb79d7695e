"""Helpers of the chapter on attention: weights, reachable positions, RoPE, kernels.

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

from helpers import checks


def attention_weights(query: Tensor, key: Tensor, **options: Any) -> Tensor:
    """Return the attention weights, which `F.scaled_dot_product_attention` does not return.

    The values are set to the identity matrix, so the output equals the weights.

    Args:
        query: floating point, shape (..., Lq, E).
        key: shape (..., Lk, E).
        options: `attn_mask`, `is_causal`, `dropout_p`, `scale`.

    Returns:
        Shape (..., Lq, Lk). Without dropout, each row sums to 1; with all keys masked it is 0.

    Raises:
        TypeError: `query` or `key` is not a tensor.
        ValueError: one has fewer than two dimensions.
    """
    for name, value in (("query", query), ("key", key)):
        if checks.tensor(name, value).dim() < 2:
            raise ValueError(f"{name} must be (..., L, E), got {tuple(value.shape)}")
    length = key.shape[-2]
    values = torch.eye(length, dtype=key.dtype, device=key.device)
    return F.scaled_dot_product_attention(
        query, key, values.expand(*key.shape[:-1], length), **options
    )


def reach(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return which input positions (columns) influence which output positions (rows), by gradients.

    A position counts if its gradient is not 0; nan counts, too. Call it in eval mode, because
    dropout sets gradients to 0, and on a short sequence, whose weights do not underflow to 0.
    Gradients are recorded also under `torch.no_grad()`, so an encoder does not use its fast path. A
    dependence without a gradient (a top-k choice over tokens, an argmax, a `forward` with its own
    `no_grad`) is not detected: there, change a later token and compare the outputs.

    Args:
        function: maps (N, L, E) to (N, L', E'), real: a model, or attention with its masks.
        x: floating point, shape (N, L, E).

    Returns:
        bool, shape (L', L), on the CPU. For a causal model it is lower triangular.

    Raises:
        TypeError: `function` cannot be called, `x` is not a floating-point tensor, or the output is
            not a tensor (`nn.MultiheadAttention` returns a pair).
        ValueError: `x` or the output does not have three dimensions.
    """
    checks.function("function", function)
    if not checks.tensor("x", x).is_floating_point():
        raise TypeError(f"expected a floating-point input, got {x.dtype}: pass token embeddings")
    if x.dim() != 3:
        raise ValueError(f"expected an input (N, L, E), got shape {tuple(x.shape)}")
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        out = function(x.clone())  # a forward may change its input in place
        if not isinstance(out, Tensor):
            raise TypeError(f"expected a tensor as output, got {type(out).__name__}")
        if out.dim() != 3:
            raise ValueError(f"expected an output (N, L, E), got shape {tuple(out.shape)}")
        # random weights: the gradient of a plain sum through LayerNorm is 0
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
    """Rotate queries or keys by their positions (RoPE); features `i` and `i + E/2` form a pair.

    This is the layout of GPT-NeoX and of Hugging Face's Llama. Meta's Llama pairs neighbouring
    features, so its weights have to be reordered first. Angles are computed in float32 or wider.

    Args:
        x: floating point, shape (..., L, E), E even.
        positions: integers, shape (L,), or one that broadcasts with (..., L), such as (N, 1, L).
        base: the longest wavelength is close to 2π times this.

    Returns:
        The rotated tensor, with the shape and dtype of `x`.

    Raises:
        TypeError: `x` is not a floating-point tensor, `positions` is not a tensor, or `base` is not
            a number.
        ValueError: E is odd, `base` is not above 0, or `positions` does not broadcast with (...,
            L).

    Source: RoFormer, https://arxiv.org/abs/2104.09864
    """
    if not checks.tensor("x", x).is_floating_point():
        raise TypeError(f"expected floating-point features, got {x.dtype}")
    if not isinstance(positions, Tensor):
        raise TypeError(f"expected positions as a tensor, got {type(positions).__name__}")
    if not x.dim():
        raise ValueError("expected features of shape (..., L, E), got shape ()")
    checks.positive("base", base)
    *sizes, width = x.shape
    if width % 2:
        raise ValueError(f"rotary needs an even number of features, got {width}")
    given = tuple(positions.shape)
    last = zip(given[::-1], sizes[::-1], strict=False)
    if len(given) > len(sizes) or any(p not in (1, n) for p, n in last):
        raise ValueError(f"expected positions for {tuple(sizes)}, got shape {given}")
    dtype = torch.promote_types(x.dtype, torch.float32)
    powers = torch.arange(0, width, 2, device=x.device, dtype=dtype) / width
    angles = positions[..., None].to(x.device, dtype) * base**-powers
    cos, sin = angles.cos(), angles.sin()
    a, b = x.to(dtype).chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)


def sinusoids(length: int, width: int, base: float = 10000.0) -> Tensor:
    """Return the position encodings of "Attention Is All You Need": interleaved sines and cosines.

    Returns:
        float32, shape (length, width); `width` may be odd. Column 2i is the sine and column
        2i + 1 the cosine of position / base^(2i / width).

    Raises:
        TypeError: `length` or `width` is not an int, or `base` not a number.
        ValueError: `length` or `width` is below 1, or `base` not above 0.

    Source: https://arxiv.org/abs/1706.03762
    """
    length, width = checks.integer("length", length), checks.integer("width", width)
    checks.positive("base", base)
    if length < 1 or width < 1:
        raise ValueError(f"expected a length and a width of 1 or more, got {length} and {width}")
    powers = torch.arange(0, width, 2, dtype=torch.float32) / width
    angles = torch.arange(length)[:, None] * base**-powers
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]


def backends(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> dict[str, str]:
    """Return for each kernel of `F.scaled_dot_product_attention` whether it runs on these inputs.

    Each kernel is enabled alone, on the device of the inputs. The state of the random number
    generators is restored.

    Args:
        query: shape (..., Lq, E).
        key: shape (..., Lk, E).
        value: shape (..., Lk, Ev).
        options: further arguments of the call, such as `attn_mask` or `is_causal`.

    Returns:
        For flash, efficient, cudnn and math: `"runs"`, or PyTorch's reason for not running it.

    Raises:
        TypeError: `query`, `key` or `value` is not a tensor.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH,
    }
    for name, given in (("query", query), ("key", key), ("value", value)):
        checks.tensor(name, given)
    results = {}
    devices = [query.device] if query.is_cuda else []
    for name, kind in kinds.items():
        with (
            warnings.catch_warnings(record=True) as caught,
            torch.random.fork_rng(devices),
            sdpa_kernel(kind),
        ):
            warnings.simplefilter("always")
            try:
                F.scaled_dot_product_attention(query, key, value, **options)
                results[name] = "runs"
            except RuntimeError as error:
                messages = [str(warning.message) for warning in caught]
                results[name] = _reason(messages, name) or _first(str(error))
    return results


def _reason(messages: list[str], name: str) -> str:
    """Return the warning for kernel `name`; PyTorch also warns about the disabled kernels."""
    matches, reasons = False, []
    for message in messages:
        if "kernel not used because" in message:
            matches = message.lower().startswith({"efficient": "mem"}.get(name, name))
        elif matches:
            reasons.append(_first(message))
    return "; ".join(reasons)


def _first(text: str) -> str:
    return text.split(" (Triggered internally")[0].split(". ")[0].strip().rstrip(".")
