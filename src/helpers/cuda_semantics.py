"""Helpers of the chapter on devices: rehearse a step on a GPU, find what a move leaves behind.

Sources: CUDA semantics, https://pytorch.org/docs/stable/notes/cuda.html, and `Module._apply` in
`torch/nn/modules/module.py`.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from helpers.fake import fake_copy, fake_tensors


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
    with (
        patch.dict(os.environ, CUDA_VISIBLE_DEVICES=value),
        patch.object(torch.version, "hip", None),
    ):
        return torch.cuda._parse_visible_devices()


@dataclass(frozen=True)
class Rehearsal:
    """Whether a step would run, and if not, where it would break.

    Attributes:
        line: the line of code that would fail; None if nothing would.
        number: its number in the file or cell.
        error: what PyTorch would say, with the name of the error.
    """

    line: str | None = None
    number: int | None = None
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing went wrong."""
        return self.error is None

    def __repr__(self) -> str:
        if self.passed:
            return "✓ the step would run"
        return f"✗ line {self.number}: {self.line}\n  {self.error}"


def rehearse(step: Callable[..., Any], *arguments: Any) -> Rehearsal:
    """Would `step(*arguments)` run on a GPU, and if not, on which line would it break?

    The step runs on fake tensors (see `helpers.fake.fake_tensors` for what they do not cover), so
    no GPU is needed, nothing is computed, and models and batches of the caller stay as they are.
    It names its device itself, as `"cuda"`. What it uses is made inside it, or passed as an
    argument: models, optimizers, batches, alone or in lists and dicts. Take a batch from a
    DataLoader before the rehearsal; a loader needs random numbers.

    Args:
        step: a training step of your own.
        arguments: what the step needs; it receives fake copies in which an optimizer still holds
            the parameters of its model.

    Raises:
        RuntimeError: this PyTorch is not built for the device that the step names.
    """
    quiet = patch.object(torch.cuda, "synchronize", lambda *_: None)
    try:
        with quiet, fake_tensors():
            step(*fake_copy(arguments))
    except Exception as error:
        message = str(error)
        if "not linked with support" in message:
            raise
        if "convert all Tensors to FakeTensors" in message:
            message = (
                "the step uses a real tensor from outside: pass it, or the model that holds it, "
                "as an argument"
            )
        place = _own_line(error)
        return Rehearsal(place.line, place.lineno, f"{type(error).__name__}: {message}")
    return Rehearsal()


def _own_line(error: BaseException) -> traceback.FrameSummary:
    """The innermost line of the traceback that is neither a library's nor this book's."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    here = {__file__, str(Path(__file__).with_name("fake.py"))}
    own = [f for f in frames if f.filename not in here and not f.filename.startswith(libraries)]
    return (own or frames)[-1]
