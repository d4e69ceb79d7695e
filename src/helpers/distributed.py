"""Helpers of the chapter on training in many processes: what a script of yours may copy.

All but `alone` are collective calls: every process of the group has to make them, in one order.

Sources: torch.distributed, https://pytorch.org/docs/stable/distributed.html and torchrun,
https://pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

T = TypeVar("T")


@contextmanager
def alone() -> Iterator[None]:
    """Inside, this process is a group of one, so that DistributedDataParallel works in a notebook.

    Raises:
        ValueError: the process belongs to a group already.
    """
    import torch.distributed as dist

    hook = sys.excepthook  # which init_process_group replaces for good
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook


@contextmanager
def rank_zero_first() -> Iterator[None]:
    """Rank 0 runs the block, then all others at a time: for downloads and caches on one disk.

    If rank 0 fails, its exception is raised there, and the others run the block all the same.

    Raises:
        ValueError: there is no process group.
    """
    import torch.distributed as dist

    _grouped()
    if dist.get_rank():
        dist.barrier()
    try:
        yield
    finally:
        if dist.get_rank() == 0:
            dist.barrier()


def from_rank_zero(make: Callable[[], T]) -> T:
    """What `make()` returns on rank 0, in every process; the others do not call it.

    The result travels with `pickle`, as an object of its own in each process.

    Raises:
        ValueError: there is no process group.
        RuntimeError: `make` failed on rank 0, or what it made cannot be pickled; rank 0 raises
            that exception itself.
    """
    import torch.distributed as dist

    _grouped()
    found: list = [None, None]
    failed = None
    if dist.get_rank() == 0:
        try:
            made = make()
            pickle.dumps(made)  # what cannot travel must fail here, while the others still listen
            found[0] = made
        except Exception as error:
            failed, found[1] = error, f"{type(error).__name__}: {error}"
    dist.broadcast_object_list(found, src=0)
    if failed is not None:
        raise failed
    if found[1] is not None:
        raise RuntimeError(f"rank 0 failed: {found[1]}")
    return found[0]


def mean_over_ranks(total: float, count: float, device: torch.device | str = "cpu") -> float:
    """The mean of a quantity over all samples of all processes.

    Args:
        total: the sum over the samples of this process.
        count: how many they are; it may be 0.
        device: where the two numbers travel: the GPU of this process under `nccl`.

    Raises:
        ValueError: there is no process group, or no process had a sample.
    """
    import torch.distributed as dist

    _grouped()
    both = torch.tensor([total, count], dtype=torch.float64, device=device)
    dist.all_reduce(both)
    if both[1] == 0:
        raise ValueError("no process had a sample, so there is no mean")
    return (both[0] / both[1]).item()


def parted(model: nn.Module) -> list[str]:
    """The names in the `state_dict` whose values are not those of rank 0 in every process.

    Empty where all replicas agree, as DDP promises for the parameters that it averages. Names are
    the same list in all processes; a nan agrees with a nan in the same place.

    Raises:
        TypeError: `model` is no module.
        ValueError: there is no process group, the models have other names, shapes or dtypes, or a
            value is sparse or a DTensor, as under `fully_shard`.
    """
    import torch.distributed as dist

    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a module, got {type(model).__name__}")
    _grouped()
    state = {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}
    kinds = {k: _kind(v) for k, v in state.items()}
    held: list = [None] * dist.get_world_size()
    dist.all_gather_object(held, kinds)
    for one in held:
        strange = [f"{name} ({kind})" for name, kind in one.items() if isinstance(kind, str)]
        if strange:
            raise ValueError(f"expected dense replicas, got {', '.join(strange)}")
    if any(list(one.items()) != list(held[0].items()) for one in held):
        raise ValueError("the processes hold models of other names, shapes or dtypes")
    differs = []
    for value in state.values():
        # As bytes, because not every dtype travels.
        sent = value.detach().resolve_conj().resolve_neg().reshape(-1).clone().view(torch.uint8)
        dist.broadcast(sent, src=0)
        first, mine = sent.view(value.dtype), value.detach().reshape(-1)
        if value.is_floating_point() and value.element_size() == 1:  # not compared by itself
            first, mine = first.float(), mine.float()
        same = (first == mine) | ((first != first) & (mine != mine))
        differs.append(not bool(same.all()))
    found = torch.tensor(differs, dtype=torch.int64)
    if state:
        found = found.to(next(iter(state.values())).device)
        dist.all_reduce(found)
    return [name for name, count in zip(state, found.tolist(), strict=True) if count]


def _kind(value: torch.Tensor) -> tuple | str:
    """Shape and dtype, or what keeps a tensor from being compared."""
    from torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        return "DTensor"
    return (tuple(value.shape), value.dtype) if value.layout == torch.strided else "sparse"


def _grouped() -> None:
    import torch.distributed as dist

    if not dist.is_initialized():
        raise ValueError("there is no process group: call init_process_group first")
