"""Helpers of the chapter on distributed training, for use in your own scripts.

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
from torch.autograd.function import once_differentiable

from helpers import checks

T = TypeVar("T")


class Gather(torch.autograd.Function):
    """Gather the tensor of each rank; the backward pass adds up the gradients of all ranks.

    `Gather.apply(x)` returns a tuple of one tensor per rank, all of the shape of `x`. The backward
    pass is a collective call, too.
    """

    @staticmethod
    def forward(ctx, x):
        """Return the tensors of all ranks."""
        import torch.distributed as dist

        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return tuple(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        """Return the gradient of this rank's tensor, summed over the losses of all ranks."""
        import torch.distributed as dist

        total = torch.stack(grads)
        dist.all_reduce(total)
        return total[dist.get_rank()]


@contextmanager
def alone() -> Iterator[None]:
    """Create a process group of one inside the block, so that DDP works in a notebook.

    Raises:
        ValueError: the process already belongs to a group.
    """
    import torch.distributed as dist

    hook = sys.excepthook  # init_process_group replaces it permanently
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        if dist.is_initialized():  # the block may have closed the group, as a script does
            dist.destroy_process_group()
        sys.excepthook = hook


@contextmanager
def rank_zero_first() -> Iterator[None]:
    """Run the block on rank 0 first, then on all others: for downloads and caches on one disk.

    If rank 0 fails, its exception is raised there, and the other ranks still run the block.

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
    """Call `make()` on rank 0 alone, and return its result in every process.

    The result is sent with `pickle`; each process gets a separate object.

    Raises:
        TypeError: `make` cannot be called.
        ValueError: there is no process group.
        RuntimeError: `make` failed on rank 0, or its result cannot be pickled; rank 0 raises the
            original exception.
    """
    import torch.distributed as dist

    if not callable(make):
        raise TypeError(f"expected a function without arguments, got {type(make).__name__}")
    _grouped()
    message: list = [None, None]
    failed = None
    if dist.get_rank() == 0:
        try:
            result = make()
            pickle.dumps(result)  # fail here, while the other ranks still wait for the broadcast
            message[0] = result
        except Exception as error:
            failed, message[1] = error, f"{type(error).__name__}: {error}"
    dist.broadcast_object_list(message, src=0)
    if failed is not None:
        raise failed
    if message[1] is not None:
        raise RuntimeError(f"rank 0 failed: {message[1]}")
    return message[0]


def mean_over_ranks(total: float, count: float, device: torch.device | str = "cpu") -> float:
    """Return the mean of a quantity over all samples of all processes.

    Args:
        total: the sum over the samples of this process.
        count: the number of these samples; may be 0.
        device: device for the two numbers: the GPU of this process under `nccl`.

    Raises:
        TypeError: `total` or `count` is not one real number.
        ValueError: there is no process group, no process had a sample, or the counts of all
            processes have a sum below 0 or nan.
    """
    import torch.distributed as dist

    _grouped()
    numbers = [_number(name, n) for name, n in (("total", total), ("count", count))]
    both = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(both)
    if both[1] == 0:
        raise ValueError("no process had a sample, so there is no mean")
    if not both[1] > 0:
        raise ValueError(f"the counts must have a sum above 0, got {both[1].item()}")
    return (both[0] / both[1]).item()


def _number(name: str, value: float | torch.Tensor) -> float:
    """Return a Python or NumPy number, or the value of a tensor of one element, as a float."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        shape = tuple(getattr(value, "shape", ()))
        got = f"{type(value).__name__} of shape {shape}" if shape else repr(value)
        raise TypeError(f"{name} must be one real number, got {got}") from None


def differences(model: nn.Module) -> list[str]:
    """Return the names in the `state_dict` whose values differ from those of rank 0 on any rank.

    The result is empty if all replicas agree, as DDP guarantees for the parameters that it
    averages. All processes return the same list; a nan equals a nan at the same position.

    Raises:
        TypeError: `model` is not a module.
        ValueError: there is no process group, the models have different names, shapes or dtypes, or
            a value is sparse, nested, quantized, uninitialized, on the meta device, or a DTensor.
    """
    import torch.distributed as dist

    checks.module("model", model)
    _grouped()
    state = {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}
    kinds = {k: _kind(v) for k, v in state.items()}
    described: list = [None] * dist.get_world_size()
    dist.all_gather_object(described, kinds)
    for one in described:
        unsupported = [f"{name} ({kind})" for name, kind in one.items() if isinstance(kind, str)]
        if unsupported:
            raise ValueError(f"expected dense replicas, got {', '.join(unsupported)}")
    if any(list(one.items()) != list(described[0].items()) for one in described):
        raise ValueError("expected models of the same names, shapes and dtypes on all ranks")
    differs = []
    for value in state.values():
        # as bytes, because a backend does not support every dtype
        received = value.detach().resolve_conj().resolve_neg().reshape(-1).clone().view(torch.uint8)
        dist.broadcast(received, src=0)
        first, mine = received.view(value.dtype), value.detach().reshape(-1)
        if value.is_floating_point() and value.element_size() == 1:  # float8 has no comparison
            first, mine = first.float(), mine.float()
        same = (first == mine) | ((first != first) & (mine != mine))
        differs.append(not bool(same.all()))
    counts = torch.tensor(differs, dtype=torch.int64)
    if state:
        counts = counts.to(next(iter(state.values())).device)
        dist.all_reduce(counts)
    return [name for name, count in zip(state, counts.tolist(), strict=True) if count]


def _kind(value: torch.Tensor) -> tuple | str:
    """Return shape and dtype, or the word for a tensor that cannot be compared."""
    from torch.distributed.tensor import DTensor
    from torch.nn.parameter import UninitializedTensorMixin

    if isinstance(value, UninitializedTensorMixin):  # it has no shape
        return "uninitialized"
    words = {
        "DTensor": isinstance(value, DTensor),
        "nested": value.is_nested,
        "sparse": value.layout != torch.strided,
        "quantized": value.is_quantized,
        "meta": value.is_meta,
    }
    unsupported = [word for word, applies in words.items() if applies]
    return unsupported[0] if unsupported else (tuple(value.shape), value.dtype)


def _grouped() -> None:
    import torch.distributed as dist

    if not dist.is_initialized():
        raise ValueError("there is no process group: call init_process_group first")
