"""Helpers of the chapter on mixed precision: autocast dtypes, float32 regions, scaled steps.

Source: https://pytorch.org/docs/stable/amp.html and
https://pytorch.org/docs/stable/notes/amp_examples.html. That 16-bit gradients need a scaled loss:
Micikevicius et al. 2018, "Mixed Precision Training".
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from helpers import checks
from helpers.fake import fake_tensors

HALVES = (torch.float16, torch.bfloat16)


def _only_halves(dtype: torch.dtype) -> None:
    if dtype not in HALVES:
        raise ValueError(f"dtype must be torch.float16 or torch.bfloat16, got {dtype}")


KINDS = ("cpu", "cuda", "mps", "xpu")


def _only_kinds(device_type: str) -> None:
    if device_type not in KINDS:
        raise ValueError(
            f"device_type must be one of {', '.join(KINDS)}, without a number, got {device_type!r}"
        )


# ---------------------------------------------------------------- what autocast chooses


@contextmanager
def autocast_without_device(device_type: str, dtype: torch.dtype) -> Iterator[None]:
    """Enable autocast for a kind of device, even if this machine has no such device.

    `torch.autocast("cuda")` disables itself on a machine without a GPU, though its lists of
    operations do not need one. Use this with `helpers.fake.fake_tensors`.

    Args:
        device_type: `"cpu"`, `"cuda"`, `"mps"` or `"xpu"`.
        dtype: float16 or bfloat16.

    Raises:
        ValueError: `device_type` or `dtype` is another one.
    """
    _only_kinds(device_type)
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
    """Return the dtype that each operation returns under autocast, or `"refused"` if it raises.

    Each receives one fake tensor of `dtype` and shape (4, 4), without gradients, so the device is
    not needed. If PyTorch is not built for the device, most functions still work; modules,
    convolutions and attention raise a `RuntimeError`.

    Args:
        operations: by name; each takes a tensor and returns one, and creates its own weights.
        device_type: `"cpu"`, `"cuda"`, `"mps"` or `"xpu"`.
        dtype: float16 or bfloat16.

    Raises:
        ValueError: `device_type` or `dtype` is another one.
        TypeError: `operations` is not a mapping, an operation cannot be called or does not return a
            tensor, or has weights from outside.
    """
    _only_kinds(device_type)
    _only_halves(dtype)
    results = {}
    for name, operation in checks.mapping("operations", operations).items():
        checks.function(name, operation)
    for name, operation in operations.items():
        with torch.no_grad(), fake_tensors(), autocast_without_device(device_type, dtype):
            try:
                result = operation(torch.rand(4, 4, device=device_type).to(dtype))
            except RuntimeError as error:
                if "unsafe to autocast" not in str(error):
                    raise
                results[name] = "refused"
                continue
            except AssertionError as error:
                if "FakeTensor" not in str(error):
                    raise
                raise TypeError(f"{name} must create its own weights inside the call") from error
        if not isinstance(result, Tensor):
            raise TypeError(f"{name} must return a tensor, got {type(result).__name__}")
        results[name] = str(result.dtype).removeprefix("torch.")
    return results


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function so that it runs in float32, whatever autocast is active around it.

    16-bit tensors among the arguments, also in lists, tuples and dictionaries, are converted to
    float32, and autocast is disabled for every kind of device. The result is that of `function`,
    usually in float32. Parameters of a module whose method is decorated, and tensors in objects of
    your own or in generators, are not converted.

    Raises:
        TypeError: `function` is not callable, or is a generator or coroutine function, whose body
            would run after autocast is enabled again.
    """
    if not callable(function):
        raise TypeError(f"in_float32 needs a function, got {type(function).__name__}")
    later = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
    if any(is_one(function) for is_one in later):
        raise TypeError("in_float32 needs a function that returns, got a generator or a coroutine")

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        kinds = set(KINDS)

        def widen(x: Tensor) -> Tensor:
            kinds.add(x.device.type)
            return x.float() if x.dtype in HALVES else x

        args, kwargs = tree_map_only(Tensor, widen, (args, kwargs))
        can = filter(torch.amp.is_autocast_available, kinds)
        before = {kind: torch.is_autocast_enabled(kind) for kind in can}
        try:
            for kind in before:
                torch.set_autocast_enabled(kind, False)
            return function(*args, **kwargs)
        finally:
            for kind, enabled in before.items():
                torch.set_autocast_enabled(kind, enabled)

    return wrapped


# ---------------------------------------------------------------- the range of a dtype


def bfloat16_in_hardware(capability: tuple[int, int]) -> bool:
    """Return whether an NVIDIA GPU of this compute capability supports bfloat16: 8.0 and later.

    Older GPUs emulate it. `torch.cuda.get_device_capability()` returns the capability.

    Source: `torch.cuda.is_bf16_supported(including_emulation=False)`, which requires the same.

    Raises:
        ValueError: `capability` is not a pair of integers.
    """
    if isinstance(capability, str | float | int | None) or [*map(type, capability)] != [int, int]:
        raise ValueError(f"capability must be a pair such as (8, 0), got {capability!r}")
    return tuple(capability) >= (8, 0)


# ---------------------------------------------------------------- a step with a scaler


def scaled_step(
    scaler: torch.amp.GradScaler,
    optimizers: Optimizer | Iterable[Optimizer],
    max_norm: float | None = None,
) -> bool:
    """Unscale, clip, step and update, in this order, for one or several optimizers.

    Call it after the backward pass of the scaled loss. With a disabled scaler it only clips and
    steps, so the same loop serves float32, bfloat16 and float16.

    Args:
        scaler: the scaler of the training.
        optimizers: one, or all that step now; their gradients are clipped by one norm.
        max_norm: of all their gradients; None does not clip.

    Returns:
        Whether all optimizers stepped: False if the scaler skipped one, because a gradient was inf
        or nan; a scheduler that steps with every batch should then not step. Reading it
        synchronizes with a GPU.

    Raises:
        ValueError: there is no optimizer or one is repeated, or `max_norm` is not above 0.
        TypeError: an argument is not a scaler, not an optimizer or not a number.
    """
    if not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"scaler must be a torch.amp.GradScaler, got {type(scaler).__name__}")
    if not isinstance(optimizers, Optimizer | Iterable):
        kind = "None" if optimizers is None else type(optimizers).__name__
        raise TypeError(f"optimizers must be an optimizer or several, got {kind}")
    chosen = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    for one in chosen:
        if not isinstance(one, Optimizer):
            raise TypeError(f"optimizers must be an optimizer or several, got {type(one).__name__}")
    if len({id(one) for one in chosen}) < len(chosen):
        raise ValueError("expected each optimizer once, got one of them twice")
    if not chosen:
        raise ValueError("scaled_step needs at least one optimizer, got none")
    if max_norm is not None:
        checks.positive("max_norm", max_norm)
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
