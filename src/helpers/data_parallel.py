"""Helpers of the chapter on `nn.DataParallel`: its four steps, on the CPU.

`StandIn` runs the real `forward` of `nn.DataParallel` with these steps.

Source: `torch.nn.DataParallel`,
https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.parallel import scatter_gather

from helpers import checks


def scatter(inputs: Any, replicas: int, dim: int = 0) -> list[Any]:
    """Split every tensor in `inputs` into at most `replicas` chunks along `dim`.

    Tuples (also named ones), lists and dicts are split member by member; any other value goes to
    every replica. `torch.nn.parallel.scatter` also moves the chunks to their devices.

    Returns:
        One item per chunk, of the same structure as `inputs`. `torch.chunk` may return fewer chunks
        than requested.

    Raises:
        ValueError: `replicas` is smaller than 1, or a tensor has no dimensions.
        TypeError: `replicas` or `dim` is not an integer, or a dict cannot be built from pairs, such
            as a `defaultdict`, as in PyTorch.
    """
    _require_count(replicas), checks.integer("dim", dim)
    if isinstance(inputs, Tensor):
        if inputs.dim() == 0:
            raise ValueError("expected tensors with a batch dimension, got one of shape ()")
        return list(inputs.chunk(replicas, dim))
    if isinstance(inputs, dict) and inputs:
        columns = [scatter(value, replicas, dim) for value in inputs.values()]
        rows = zip(*columns, strict=False)
        return [_dict_like(inputs, zip(inputs, row, strict=True)) for row in rows]
    if isinstance(inputs, (tuple, list)) and inputs:
        columns = [scatter(value, replicas, dim) for value in inputs]
        return [_like(inputs, row) for row in zip(*columns, strict=False)]
    return [inputs] * replicas


def _require_count(replicas: Any) -> None:
    if isinstance(replicas, bool) or not isinstance(replicas, Integral):
        raise TypeError(f"replicas must be an integer, got {replicas!r}")
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1, got {replicas}")


def _require_module(module: Any) -> None:
    checks.module("module", module)


def _like(sequence: Any, members: Iterable[Any]) -> Any:
    """Return `members` in the type of `sequence`; a named tuple takes them one by one."""
    return getattr(type(sequence), "_make", type(sequence))(members)


def _dict_like(mapping: dict, pairs: Iterable[tuple[Any, Any]]) -> dict:
    """Return `pairs` in the type of `mapping`, which PyTorch also calls with pairs alone."""
    try:
        return type(mapping)(pairs)
    except TypeError as error:
        name = type(mapping).__name__
        raise TypeError(f"a {name} cannot be built from pairs alone: pass a dict") from error


def replicate(module: nn.Module, replicas: int) -> list[nn.Module]:
    """Copy a module `replicas` times, so that gradients of the copies add up in the original.

    The weights of a copy are not leaves: each is computed from the original's parameter, and a
    backward pass reaches that parameter. Replica 0 shares the original's memory, as
    `torch.nn.DataParallel` guarantees for `device_ids[0]`; the others have copies.

    Raises:
        ValueError: `replicas` is smaller than 1.
        TypeError: `module` is not a module, `replicas` is not an integer, or a module is compiled:
            PyTorch's copy would remove the weights of the original.
    """
    _require_module(module)
    _require_count(replicas)
    if any("_orig_mod" in inner._modules for inner in module.modules()):
        raise TypeError("a compiled module cannot be replicated: compile the wrapper instead")
    modules = list(module.modules())
    return [_replica(modules, first=number == 0) for number in range(replicas)]


def _replica(modules: list[nn.Module], first: bool) -> nn.Module:
    copies = {original: _shallow_copy(original) for original in modules}
    copied: dict[Tensor, Tensor] = {}  # tied weights stay tied

    def copy(tensor: Tensor) -> Tensor:
        if tensor not in copied:
            copied[tensor] = tensor.view_as(tensor) if first else tensor.clone()
        return copied[tensor]

    for original, replica in copies.items():
        for name, inner in original._modules.items():
            replica._modules[name] = None if inner is None else copies[inner]
        for name, parameter in original._parameters.items():
            # A plain attribute: nn.Module registers leaves only.
            setattr(replica, name, None if parameter is None else copy(parameter))
        for name, buffer in original._buffers.items():
            replica._buffers[name] = None if buffer is None else copy(buffer)
    return copies[modules[0]]


def _shallow_copy(module: nn.Module) -> nn.Module:
    """Call PyTorch's private shallow copy of a module, without its parameters and children."""
    return module._replicate_for_data_parallel()


def gather(outputs: Sequence[Any], dim: int = 0) -> Any:
    """Join the replicas' outputs along `dim`; scalars become a vector with one entry each.

    Tuples, lists and dicts are joined member by member. `torch.nn.parallel.gather` also moves the
    results to the output device, and warns about scalars.

    Raises:
        ValueError: `outputs` is empty, or the outputs differ in structure.
        TypeError: `outputs` is not a list or tuple, `dim` is not an integer, or an output is not a
            tensor, None, or a tuple, list or dict of them.
    """
    checks.integer("dim", dim)
    if not isinstance(outputs, list | tuple):
        raise TypeError(f"gather expects a list of outputs, got {type(outputs).__name__}")
    if not outputs:
        raise ValueError("gather needs at least one output, got none")
    first = outputs[0]
    _check_structure(outputs)
    if isinstance(first, Tensor):
        return torch.stack(list(outputs)) if first.dim() == 0 else torch.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, dict):
        pairs = [(key, gather([out[key] for out in outputs], dim)) for key in first]
        return _dict_like(first, pairs)
    if not isinstance(first, (tuple, list)):
        raise TypeError(
            f"expected tensors, or tuples, lists and dicts of them, got {type(first).__name__}"
        )
    return _like(first, (gather(row, dim) for row in zip(*outputs, strict=True)))


def _check_structure(outputs: Sequence[Any]) -> None:
    """Raise `ValueError` unless all outputs have the structure of the first."""
    first = outputs[0]
    if len({type(out) for out in outputs}) > 1 and any(out is None for out in outputs):
        raise ValueError("expected None from all replicas or from none")
    for kind in (dict, tuple | list):
        if isinstance(first, kind) and not all(isinstance(out, kind) for out in outputs):
            names = ", ".join(type(out).__name__ for out in outputs)
            raise ValueError(f"expected one structure from all replicas, got {names}")
    if isinstance(first, Tensor):
        if not all(isinstance(o, Tensor) and o.dim() == first.dim() for o in outputs):
            raise ValueError("expected tensors of as many dimensions from all replicas")
    elif isinstance(first, dict):
        if any(out.keys() != first.keys() for out in outputs):
            raise ValueError("expected dicts of the same keys")
    elif isinstance(first, tuple | list) and len({len(out) for out in outputs}) > 1:
        raise ValueError("expected as many outputs from all replicas")


class StandIn(nn.DataParallel):
    """`DataParallel` whose GPUs are replaced by another device, so that it runs on any machine.

    `forward` is that of `torch.nn.DataParallel`; its four steps are the functions above.

    Args:
        module: the module to replicate.
        replicas: how many GPUs to simulate.
        device: `"cpu"`, to compare numbers, or `"meta"`, to check which device each tensor needs.
        dim: the batch dimension.

    Raises:
        TypeError: `module` is not a module, or `replicas` or `dim` is not an integer.
        ValueError: `replicas` is smaller than 1.
    """

    def __init__(
        self, module: nn.Module, replicas: int = 2, device: str = "cpu", dim: int = 0
    ) -> None:
        _require_module(module)
        _require_count(replicas)
        checks.integer("dim", dim)
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = list(range(replicas)), 0
        self.src_device_obj = torch.device(device)

    def scatter(self, inputs, kwargs, device_ids):  # noqa: D102
        def move(item: Any) -> Any:
            if isinstance(item, Tensor):
                return item.to(self.src_device_obj)
            if isinstance(item, dict):
                return _dict_like(item, [(key, move(value)) for key, value in item.items()])
            return _like(item, map(move, item)) if isinstance(item, (tuple, list)) else item

        def split(values: Any, device_ids: Sequence[int], dim: int) -> list[Any]:
            return scatter(move(values), len(device_ids), dim)

        with patch.object(scatter_gather, "scatter", split):  # PyTorch pairs the shards
            return scatter_gather.scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module, device_ids):  # noqa: D102
        return replicate(module, len(device_ids))

    def parallel_apply(self, replicas, inputs, kwargs):  # noqa: D102
        if not len(replicas) == len(inputs) == len(kwargs):
            raise ValueError(
                f"expected shards for {len(replicas)} replicas, got {len(inputs)} of the arguments "
                f"and {len(kwargs)} of the keyword arguments: do their batch sizes differ?"
            )
        return [r(*i, **k) for r, i, k in zip(replicas, inputs, kwargs, strict=True)]

    def gather(self, outputs, output_device):  # noqa: D102
        return gather(outputs, self.dim)
