"""Provide the functions that `in_fresh_process` calls in a new process with a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from helpers import child
from helpers.allocator import ROUND_LARGE, STATS
from helpers.reproducibility import deterministic


def in_fresh_process(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """Call a function of this module in a new process; return its result, read from JSON.

    Args:
        function: of this module.
        arguments: serializable as JSON.
        variables: environment variables to add, or to replace.

    Raises:
        RuntimeError: the process failed; see `helpers.child.call`.
    """
    path = os.pathsep.join((str(Path(__file__).parent), child.environment()["PYTHONPATH"]))
    return child.call(function, *arguments, env={"PYTHONPATH": path, **variables})


def run_trace(trace: Sequence[Sequence[Any]], capacity: int | None = None) -> list[dict[str, Any]]:
    """Run a trace of the allocator model on the GPU, and read its counters after each step.

    `malloc` is `torch.empty(nbytes, dtype=torch.uint8, device="cuda")`, `free` drops that tensor.

    Args:
        trace: operations, as for `helpers.allocator.replay`.
        capacity: a multiple of 2 MiB in bytes, set by
            `torch.cuda.set_per_process_memory_fraction`.

    Returns:
        For the start and for each operation the fields of `helpers.allocator.Counters`, with
        `address` (of a malloc's block, else None), `error` (the message or None) and `used`
        (bytes in use on the whole device, as `nvidia-smi` counts them).
    """
    torch.cuda.synchronize()  # creates the CUDA context; without it memory_stats() is empty
    if capacity is not None:
        total = torch.cuda.mem_get_info()[1]
        # Segments are multiples of 2 MiB; half of one more absorbs the rounding of the fraction.
        torch.cuda.set_per_process_memory_fraction((capacity + ROUND_LARGE // 2) / total)
    tensors: dict[str, torch.Tensor] = {}
    steps = [_measure()]
    for operation in trace:
        address = error = None
        match operation:
            case ["malloc", name, nbytes]:
                try:
                    tensors[name] = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
                    address = tensors[name].data_ptr() or None
                except torch.OutOfMemoryError as full:
                    error = str(full)
            case ["free", name]:
                tensors.pop(name, None)
            case ["empty_cache"]:
                torch.cuda.empty_cache()
            case ["reset_peak"]:
                torch.cuda.reset_peak_memory_stats()
            case _:
                raise ValueError(f"unknown operation {operation!r}")
        steps.append(_measure() | {"address": address, "error": error})
    return steps


def _measure() -> dict[str, Any]:
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    counters = {name: stats[key] for name, key in STATS.items()}
    return {**counters, "address": None, "error": None, "used": total - free}


def busy(products: int = 30, size: int = 8192) -> None:
    """Queue work on the GPU: products of `size` x `size` float32 matrices."""
    a = torch.ones(size, size, device="cuda")
    for _ in range(products):
        torch.mm(a, a)


def blamed_statement(device: str) -> dict[str, Any]:
    """Index a tensor out of range, and return which statement raises.

    Returns:
        `statement`, `message`, and `afterwards`: the error of the next tensor, or None.
    """
    x, index = torch.zeros(3, device=device), torch.tensor([0, 7], device=device)
    statement = message = afterwards = None
    try:
        if device == "cuda":
            busy()
        statement = "x[index]"
        y = x[index]
        statement = "y + 1"
        y + 1
        statement = "synchronize"
        torch.cuda.synchronize()
    except (RuntimeError, IndexError) as error:
        message = str(error)
    try:
        torch.ones(3, device=device)
    except RuntimeError as error:
        afterwards = str(error)
    return {"statement": statement, "message": message, "afterwards": afterwards}


def _different(function: Callable[[], torch.Tensor], runs: int) -> int:
    return len({function().cpu().numpy().tobytes() for _ in range(runs)})


def convolution_gradients(device: str, runs: int) -> int:
    """Return the number of distinct gradients of a deterministic convolution, without benchmark."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(64, 128, 3, padding=1, device=device)
    images = torch.randn(16, 64, 56 if device == "cuda" else 6, 56, device=device)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        return _different(
            lambda: torch.autograd.grad(conv(images).square().sum(), conv.weight)[0], runs
        )


def index_sums(device: str, runs: int) -> int:
    """Return the number of distinct sums of `index_add_` under deterministic algorithms."""
    torch.manual_seed(0)
    where = torch.randint(0, 10, (100_000,), device=device)
    values = torch.randn(100_000, device=device)
    with deterministic():
        return _different(lambda: torch.zeros(10, device=device).index_add_(0, where, values), runs)


def device_of_a_tensor_when_hidden_late() -> str:
    """Return the device of a tensor created after `CUDA_VISIBLE_DEVICES=""` is set too late."""
    torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return str(torch.ones(1, device="cuda").device)


def cublas_without_variable(device: str) -> str:
    """Return the error of a matrix product under deterministic algorithms, or "no error"."""
    a = torch.ones(8, 8, device=device)
    with deterministic():
        try:
            a @ a
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}"
    return "no error"
