"""Helpers of the chapter "Move models and tensors between devices".

Sources: CUDA semantics, https://pytorch.org/docs/stable/notes/cuda.html, and `Module._apply` in
`torch/nn/modules/module.py`.

A machine without a GPU has two stand-ins for a move. The meta device is a second device, good for
tensors; a dtype conversion goes through the same code of `Module._apply` as a move to a GPU and,
unlike a move to meta, keeps the parameters' identity.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn


def where(tensor: Tensor) -> str:
    """Dtype and kind of device in words, such as `"float32, cpu"`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}, {tensor.device.type}"


def unregistered(module: nn.Module) -> list[str]:
    """Names of the tensors and modules below `module` that its moves do not reach.

    They are plain attributes, or sit in lists, tuples and dicts, instead of being parameters,
    buffers or submodules. Looks into containers one level deep.
    """
    registry = ("_parameters", "_buffers", "_modules")
    found = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in registry:
                continue
            entries = {"": value}
            if isinstance(value, Mapping):
                entries = {f"[{key!r}]": v for key, v in value.items()}
            elif isinstance(value, (list, tuple)):
                entries = {f"[{number}]": v for number, v in enumerate(value)}
            full = f"{path}.{name}" if path else name
            found += [full + k for k, v in entries.items() if isinstance(v, (Tensor, nn.Module))]
    return found


def visible_devices(value: str, installed: int) -> dict[str, int]:
    """Which GPU each name means under `CUDA_VISIBLE_DEVICES=value`.

    PyTorch's own reader of the variable does the work. Names count from 0 in the order of the
    list, and the list ends at the first number that no GPU has
    (https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html).

    Args:
        value: numbers separated by commas; UUIDs are not read here.
        installed: how many GPUs the machine has.

    Returns:
        Names such as `"cuda:0"` -> number of the GPU in the machine.

    Raises:
        ValueError: `installed` is negative, or `value` names devices by UUID.
    """
    if installed < 0:
        raise ValueError(f"installed must not be negative, got {installed}")
    numbers = _parse_visible_devices(value)
    if any(isinstance(number, str) for number in numbers):
        raise ValueError(f"value must be numbers separated by commas, got {value!r}")
    seen: dict[str, int] = {}
    for position, number in enumerate(numbers):
        if number >= installed:
            break
        seen[f"cuda:{position}"] = int(number)
    return seen


def _parse_visible_devices(value: str) -> list[int] | list[str]:
    """PyTorch's private reader of `CUDA_VISIBLE_DEVICES`: numbers of GPUs, or UUIDs."""
    from unittest.mock import patch

    with (
        patch.dict(os.environ, CUDA_VISIBLE_DEVICES=value),
        patch.object(torch.version, "hip", None),
    ):
        return torch.cuda._parse_visible_devices()
