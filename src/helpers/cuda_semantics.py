"""Helpers of the chapter on devices: dry-run a step for a GPU, find tensors that are not moved.

Sources: CUDA semantics, https://pytorch.org/docs/stable/notes/cuda.html, and `Module._apply` in
`torch/nn/modules/module.py`.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers import checks
from helpers.fake import fake_copy, fake_tensors


def where(tensor: Tensor) -> str:
    """Return dtype and kind of device in words, such as `"float32, cpu"`.

    Raises:
        TypeError: `tensor` is not a tensor.
    """
    checks.tensor("tensor", tensor)
    return f"{str(tensor.dtype).removeprefix('torch.')}, {tensor.device.type}"


def unregistered(module: nn.Module) -> list[str]:
    """Return the names of the tensors and modules in `module` that `to()` does not move.

    They are plain attributes of an instance or of its class, or are stored in lists, tuples, sets,
    dicts, deques, dataclasses, distributions and `functools.partial`, at any depth, instead of
    being parameters, buffers or submodules. Containers of registered ones, such as a list of layers
    that are also attributes, are not listed.

    Raises:
        TypeError: `module` is not a module.
    """
    checks.module("module", module)
    registry = ("_parameters", "_buffers", "_modules")
    registered = (*module.modules(), *module.parameters(), *module.buffers())
    seen = {id(value) for value in registered}
    names = []
    for path, part in module.named_modules():
        attributes: dict[str, Any] = {}
        for kind in reversed(type(part).__mro__):
            attributes |= vars(kind) if issubclass(kind, nn.Module) else {}
        for name, value in (attributes | vars(part)).items():
            if name not in registry and not name.startswith("__"):
                full = f"{path}.{name}" if path else name
                names += [full + place for place in _places(value, seen, ())]
    return names


def _places(value: Any, seen: set[int], above: tuple[int, ...]) -> Iterator[str]:
    """Yield the path of each tensor and module in nested containers that is not in `seen`."""
    if isinstance(value, (Tensor, nn.Module)):
        if id(value) not in seen:
            yield ""
        return
    if id(value) in above:  # a container that contains itself
        return
    entries: dict[str, Any] = {}
    if isinstance(value, Mapping):
        entries = {f"[{key!r}]": item for key, item in value.items()}
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        entries = {f"[{number}]": item for number, item in enumerate(value)}
    elif is_dataclass(value) and not isinstance(value, type):
        entries = {f".{one.name}": getattr(value, one.name, None) for one in fields(value)}
    elif isinstance(value, Distribution):
        entries = {f".{name}": item for name, item in vars(value).items()}
    elif isinstance(value, partial):
        entries = {".func": value.func, ".args": value.args, ".keywords": value.keywords}
    for place, item in entries.items():
        yield from (place + rest for rest in _places(item, seen, (*above, id(value))))


def visible_devices(value: str, installed: int) -> dict[str, int]:
    """Return the GPU that each device name selects under `CUDA_VISIBLE_DEVICES=value`.

    PyTorch's own parser of the variable is used. Names count from 0 in the order of the list, and
    the list ends at the first number without a GPU
    (https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html).

    Args:
        value: numbers separated by commas; UUIDs are not supported.
        installed: number of GPUs in the machine.

    Returns:
        Names such as `"cuda:0"`, each with the number of its GPU in the machine.

    Raises:
        TypeError: `value` is not a text, or `installed` not an int.
        ValueError: `installed` is negative, or `value` names devices by UUID.
    """
    if not isinstance(value, str) or type(installed) is not int:
        raise TypeError(f"expected a text and an int, got {value!r} and {installed!r}")
    if installed < 0:
        raise ValueError(f"installed must not be negative, got {installed}")
    numbers = _parse_visible_devices(value)
    if any(isinstance(number, str) for number in numbers):
        raise ValueError(f"value must be numbers separated by commas, got {value!r}")
    devices: dict[str, int] = {}
    for position, number in enumerate(numbers):
        if number >= installed:
            break
        devices[f"cuda:{position}"] = int(number)
    return devices


def _parse_visible_devices(value: str) -> list[int] | list[str]:
    """Call PyTorch's private parser of `CUDA_VISIBLE_DEVICES`: numbers of GPUs, or UUIDs."""
    with (
        patch.dict(os.environ, CUDA_VISIBLE_DEVICES=value),
        patch.object(torch.version, "hip", None),
    ):
        return torch.cuda._parse_visible_devices()


@dataclass(frozen=True)
class Rehearsal:
    """Result of a dry run: whether a step would run on a GPU, and if not, where it would fail.

    Attributes:
        line: the line of code that would fail; None if the step would run.
        number: its line number in the file or cell.
        error: the name of the exception and PyTorch's message.
    """

    line: str | None = None
    number: int | None = None
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the step would run."""
        return self.error is None

    def __repr__(self) -> str:
        if self.passed:
            return "✓ the step would run"
        return f"✗ line {self.number}: {self.line}\n  {self.error}"


def rehearse(step: Callable[..., Any], *arguments: Any) -> Rehearsal:
    """Run `step(*arguments)` on fake tensors and return whether it would run on a GPU.

    No GPU is needed, no values are computed, and the caller's models and batches are not changed;
    `helpers.fake.fake_tensors` lists what fake tensors do not cover. The step names its device
    itself, as `"cuda"`. Everything it uses is created inside it or passed as an argument: models,
    optimizers and batches, alone or in lists and dicts. Take a batch from a DataLoader before the
    call; a loader needs random numbers. Pinned memory is ignored.

    Args:
        step: your training step.
        arguments: the arguments of the step. It receives fake copies, in which an optimizer still
            refers to the parameters of its model.

    Raises:
        TypeError: `step` cannot be called, or an argument cannot be copied, such as a lock, a
            generator or the iterator of a DataLoader.
        RuntimeError: this PyTorch is not built for the device that the step names.
    """
    checks.function("step", step)
    copies = None
    quiet = patch.object(torch.cuda, "synchronize", lambda *_: None)
    pageable = patch.object(Tensor, "pin_memory", lambda tensor, *_: tensor)
    try:
        with quiet, pageable, fake_tensors(), _SameDeviceIndices():
            copies = fake_copy(arguments)
            step(*copies)
    except Exception as error:
        if copies is None and isinstance(error, TypeError | SystemError | NotImplementedError):
            raise TypeError(f"expected arguments that can be copied, got: {error}") from error
        message = str(error)
        if "not linked with support" in message:
            raise
        if "convert all Tensors to FakeTensors" in message:
            message = (
                "the step uses a real tensor from outside: pass it, or the model that contains "
                "it, as an argument"
            )
        place = _own_line(error)
        return Rehearsal(place.line, place.lineno, f"{type(error).__name__}: {message}")
    return Rehearsal()


class _SameDeviceIndices(TorchDispatchMode):
    """Raise as a GPU does if a CPU tensor is indexed with GPU tensors; fake tensors do not."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(op, "_opname", "")
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            device = args[0].device
            indices = [x for x in tree_leaves(args[1]) if isinstance(x, Tensor)]
            if any(x.device not in (device, torch.device("cpu")) for x in indices):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor "
                    f"({device})"
                )
        return op(*args, **(kwargs or {}))


def _own_line(error: BaseException) -> traceback.FrameSummary:
    """Return the innermost traceback line that belongs neither to a library nor to this module."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (
        *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
        str(Path(torch.__file__).parent),  # beside another environment's packages
    )
    here = {__file__, str(Path(__file__).with_name("fake.py"))}
    own = [f for f in frames if f.filename not in here and not f.filename.startswith(libraries)]
    return (own or frames)[-1]
