"""Helpers of the chapter on `nn.DataParallel`.

DataParallel's four steps by hand, on the CPU, and a stand-in that runs its real `forward` with
them.

Source: `torch.nn.DataParallel`, https://pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def scatter(inputs: Any, replicas: int, dim: int = 0) -> list[Any]:
    """Split every tensor in `inputs` into at most `replicas` chunks along `dim`.

    Tuples, named ones too, lists and dicts are split member by member; anything else goes to
    every replica.
    Like `torch.nn.parallel.scatter`, which also moves the chunks to their devices.

    Returns:
        One item per chunk, of the same structure as `inputs`. `torch.chunk` may make fewer
        chunks than asked for.

    Raises:
        ValueError: `replicas` is smaller than 1.
    """
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1, got {replicas}")
    if isinstance(inputs, Tensor):
        return list(inputs.chunk(replicas, dim))
    if isinstance(inputs, dict) and inputs:
        columns = [scatter(value, replicas, dim) for value in inputs.values()]
        rows = zip(*columns, strict=False)
        return [type(inputs)(zip(inputs, row, strict=True)) for row in rows]
    if isinstance(inputs, (tuple, list)) and inputs:
        columns = [scatter(value, replicas, dim) for value in inputs]
        return [_like(inputs, row) for row in zip(*columns, strict=False)]
    return [inputs] * replicas


def _like(sequence: Any, members: Iterable[Any]) -> Any:
    """A named tuple takes its members one by one."""
    return getattr(type(sequence), "_make", type(sequence))(members)


def replicate(module: nn.Module, replicas: int) -> list[nn.Module]:
    """Copy a module `replicas` times, so that gradients of the copies add up in the original.

    The weights of a copy are not leaves: each is made from the original's parameter, and a
    backward pass runs through to it. Replica 0 shares the original's memory, as
    `torch.nn.DataParallel` guarantees for `device_ids[0]`; the others hold copies.

    Raises:
        ValueError: `replicas` is smaller than 1.
    """
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1, got {replicas}")
    modules = list(module.modules())
    return [_replica(modules, first=number == 0) for number in range(replicas)]


def _replica(modules: list[nn.Module], first: bool) -> nn.Module:
    copies = {original: _shallow_copy(original) for original in modules}
    made: dict[Tensor, Tensor] = {}  # tied weights stay tied

    def copy(tensor: Tensor) -> Tensor:
        if tensor not in made:
            made[tensor] = tensor.view_as(tensor) if first else tensor.clone()
        return made[tensor]

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
    """PyTorch's private copy of a module whose parameters and children are yet to be filled in."""
    return module._replicate_for_data_parallel()


def gather(outputs: Sequence[Any], dim: int = 0) -> Any:
    """Join the replicas' outputs along `dim`; scalars become a vector with one entry each.

    Tuples, lists and dicts are joined member by member. Like `torch.nn.parallel.gather`, which
    also moves everything to the output device, and warns about scalars.

    Raises:
        ValueError: `outputs` is empty.
    """
    if not outputs:
        raise ValueError("gather needs at least one output, got none")
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.stack(list(outputs)) if first.dim() == 0 else torch.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([out[key] for out in outputs], dim)) for key in first)
    return _like(first, (gather(row, dim) for row in zip(*outputs, strict=True)))


class StandIn(nn.DataParallel):
    """A `DataParallel` whose GPUs are played by another device, so that it runs anywhere.

    `forward` is that of `torch.nn.DataParallel`; its four steps are the functions above.

    Args:
        module: the module to replicate.
        replicas: how many GPUs to play.
        device: `"cpu"`, to compare numbers, or `"meta"`, to see what has to be where.
        dim: the batch dimension.
    """

    def __init__(
        self, module: nn.Module, replicas: int = 2, device: str = "cpu", dim: int = 0
    ) -> None:
        nn.Module.__init__(self)
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = list(range(replicas)), 0
        self.src_device_obj = torch.device(device)

    def scatter(self, inputs, kwargs, device_ids):  # noqa: D102
        def move(item: Any) -> Any:
            if isinstance(item, Tensor):
                return item.to(self.src_device_obj)
            if isinstance(item, dict):
                return type(item)((key, move(value)) for key, value in item.items())
            return _like(item, map(move, item)) if isinstance(item, (tuple, list)) else item

        shards = scatter((move(inputs), move(kwargs)), len(device_ids), self.dim)
        return tuple(i for i, _ in shards), tuple(k for _, k in shards)

    def replicate(self, module, device_ids):  # noqa: D102
        return replicate(module, len(device_ids))

    def parallel_apply(self, replicas, inputs, kwargs):  # noqa: D102
        return [r(*i, **k) for r, i, k in zip(replicas, inputs, kwargs, strict=True)]

    def gather(self, outputs, output_device):  # noqa: D102
        return gather(outputs, self.dim)
