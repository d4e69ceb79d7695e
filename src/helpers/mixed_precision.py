"""Helpers of the chapter "Use mixed precision": which types autocast chooses, and what they hold.

Source: https://pytorch.org/docs/stable/amp.html and
https://pytorch.org/docs/stable/notes/amp_examples.html. That 16-bit gradients need a scaled loss:
Micikevicius et al. 2018, "Mixed Precision Training".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from helpers.fake import fake_tensors

HALVES = (torch.float16, torch.bfloat16)


def _only_halves(dtype: torch.dtype) -> None:
    if dtype not in HALVES:
        raise ValueError(f"dtype must be torch.float16 or torch.bfloat16, got {dtype}")


# ---------------------------------------------------------------- what autocast chooses


@contextmanager
def autocast_without_device(device_type: str, dtype: torch.dtype) -> Iterator[None]:
    """Like `torch.autocast(device_type, dtype)`, also where no such device is there.

    `torch.autocast("cuda")` switches itself off on a machine without a GPU; its lists of
    operations do not need one. Use it with `helpers.fake.fake_tensors`.

    Args:
        device_type: `"cpu"` or `"cuda"`.
        dtype: float16 or bfloat16.

    Raises:
        ValueError: `dtype` is another one.
    """
    _only_halves(dtype)
    before = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)
    torch.set_autocast_enabled(device_type, True)
    torch.set_autocast_dtype(device_type, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device_type, before[0])
        torch.set_autocast_dtype(device_type, before[1])


def result_types(
    operations: Mapping[str, Callable[[Tensor], Tensor]], device_type: str, dtype: torch.dtype
) -> dict[str, str]:
    """The dtype that each operation returns under autocast, or `"refused"`.

    Each is given one tensor of `dtype` and shape (4, 4), a fake one, so the device need not be
    there (the build of PyTorch must know it).

    Args:
        operations: by name; each takes a tensor and returns one.
        device_type: `"cpu"` or `"cuda"`.
        dtype: float16 or bfloat16.

    Raises:
        ValueError: `dtype` is another one.
    """
    _only_halves(dtype)
    found = {}
    for name, operation in operations.items():
        with fake_tensors(), autocast_without_device(device_type, dtype):
            try:
                result = operation(torch.rand(4, 4, device=device_type).to(dtype))
                found[name] = str(result.dtype).removeprefix("torch.")
            except RuntimeError as error:
                if "unsafe to autocast" not in str(error):
                    raise
                found[name] = "refused"
    return found


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: run `function` in float32, whatever autocast does around it.

    16-bit tensors among the arguments, in lists and dictionaries too, become float32, and autocast
    is off for the devices of the tensors. The result is what `function` returns, in float32 mostly.
    Parameters of a module that `function` is a method of are left as they are.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        kinds = {"cpu"}

        def widen(x: Tensor) -> Tensor:
            kinds.add(x.device.type)
            return x.float() if x.dtype in HALVES else x

        args, kwargs = tree_map_only(Tensor, widen, (args, kwargs))
        before = {kind: torch.is_autocast_enabled(kind) for kind in kinds - {"meta"}}
        try:
            for kind in before:
                torch.set_autocast_enabled(kind, False)
            return function(*args, **kwargs)
        finally:
            for kind, enabled in before.items():
                torch.set_autocast_enabled(kind, enabled)

    return wrapped


# ---------------------------------------------------------------- what a type holds


def fate(values: Tensor, dtype: torch.dtype, scale: float = 1.0) -> dict[str, int]:
    """What becomes of numbers that are multiplied by `scale` and stored as `dtype`.

    Args:
        values: any shape, float32 or float64.
        dtype: a floating type.
        scale: above 0.

    Returns:
        How many values are not 0 and become 0 (`"lost"`), are finite and become infinite
        (`"infinite"`), and how many are `"kept"`, the rest.

    Raises:
        ValueError: `scale` is not above 0.
    """
    if not scale > 0:
        raise ValueError(f"scale must be above 0, got {scale}")
    stored = (values.double() * scale).to(dtype)
    lost = int(((stored == 0) & (values != 0)).sum())
    infinite = int((stored.isinf() & values.isfinite()).sum())
    return {"lost": lost, "infinite": infinite, "kept": values.numel() - lost - infinite}


def safe_scales(values: Tensor, dtype: torch.dtype, largest: int = 32) -> list[int]:
    """The exponents from 0 to `largest` of all powers of two that lose none of `values`.

    Raises:
        ValueError: `largest` is negative.
    """
    if largest < 0:
        raise ValueError(f"largest must be at least 0, got {largest}")
    return [k for k in range(largest + 1) if fate(values, dtype, 2.0**k)["kept"] == values.numel()]


def bfloat16_in_hardware(capability: tuple[int, int]) -> bool:
    """Whether an NVIDIA GPU of this compute capability multiplies bfloat16 itself: 8.0 and later.

    Older ones emulate it. `torch.cuda.get_device_capability()` gives the number.

    Source: `torch.cuda.is_bf16_supported(including_emulation=False)`, which asks for the same.
    """
    return capability >= (8, 0)


# ---------------------------------------------------------------- a step with a scaler


def scaled_step(
    scaler: torch.amp.GradScaler,
    optimizers: Optimizer | Iterable[Optimizer],
    max_norm: float | None = None,
) -> bool:
    """Unscale, clip, step and update, in this order, for one or several optimizers.

    Call it after the backward pass of the scaled loss. With a scaler that is switched off it only
    clips and steps, so the same loop serves float32, bfloat16 and float16.

    Args:
        scaler: the one scaler of the training.
        optimizers: one, or all that step now; together they are clipped by one norm.
        max_norm: of all their gradients; None does not clip.

    Returns:
        Whether all of them stepped: False if a gradient was inf or nan, so that a scheduler that
        steps with every batch should wait. Reading it waits for a GPU.

    Raises:
        ValueError: there is no optimizer, or `max_norm` is not above 0.
    """
    chosen = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    if not chosen:
        raise ValueError("scaled_step needs at least one optimizer, got none")
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, got {max_norm}")
    for optimizer in chosen:
        scaler.unscale_(optimizer)
    if max_norm is not None:
        groups = [group for optimizer in chosen for group in optimizer.param_groups]
        nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], max_norm)
    for optimizer in chosen:
        scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    return scaler.get_scale() >= before
