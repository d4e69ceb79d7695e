"""What a GPU tells the chapter "Move models and tensors between devices".

Each `record_…` runs its worker in a fresh process on the GPU.
A worker takes any device, so that tests run it on a CPU.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from helpers import child
from helpers.demos.cuda_semantics import devices_seen
from helpers.recorded import error_line, repeated
from helpers.timing import device_ratios, wait


def record_device_messages() -> dict[str, Any]:
    """What CUDA says where the chapter's cells use a stand-in.

    Returns:
        Messages of a mismatch, of a shuffling `DataLoader` under a default device and of Adam
        after a late move; whether a move keeps the parameter objects; the statement blamed for an
        index out of range with and without `CUDA_LAUNCH_BLOCKING=1`; how many GPUs a process
        counts that hides them before or after CUDA starts.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    late, blocking = (
        child.on_gpu(_blame, env={"CUDA_LAUNCH_BLOCKING": flag}) for flag in ("0", "1")
    )
    return {
        **child.on_gpu(_messages),
        "blamed": late["statement"],
        "blamed with CUDA_LAUNCH_BLOCKING=1": blocking["statement"],
        "index out of range": late["message"],
        "GPUs counted, hidden before CUDA starts": devices_seen("before CUDA starts"),
        "GPUs counted, hidden after CUDA starts": devices_seen("after CUDA starts"),
    }


def record_device_clock() -> dict[str, list[float]]:
    """How wrong a clock is without `synchronize`, and how slow the first call; see `_clock`.

    Each of the runs has a process of its own, because a process has one first call.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return repeated(lambda: child.on_gpu(_clock), times=3)


def record_device_copies() -> dict[str, Any]:
    """What pinned memory and `non_blocking` change; see `_copies`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return child.on_gpu(_copies)


def _messages(device: str) -> dict[str, Any]:
    from torch.utils.data import DataLoader

    layer, x = nn.Linear(2, 2), torch.zeros(1, 2)
    weight = layer.weight
    layer.to(device)

    def shuffle() -> None:
        with torch.device(device):
            list(DataLoader(list(range(4)), shuffle=True))

    model = nn.Linear(2, 2)
    adam = torch.optim.Adam(model.parameters())
    model(x).sum().backward()
    adam.step()
    model.to(device)
    adam.zero_grad()
    model(x.to(device)).sum().backward()
    return {
        "nn.Linear": error_line(lambda: layer(x)),
        "x + y": error_line(lambda: torch.zeros(2) + torch.zeros(2, device=device)),
        "DataLoader(shuffle=True)": error_line(shuffle),
        "Adam after a late move": error_line(adam.step),
        "the move kept the parameter": layer.weight is weight,
    }


def _blame(device: str) -> dict[str, str]:
    """Read a tensor out of range; which statement is blamed, and the first line of the message."""
    x, index = torch.zeros(3, device=device), torch.tensor([0, 7], device=device)
    statement = "x[index]"
    try:
        y = x[index]
        statement = "torch.ones(3).to(device)"
        torch.ones(3).to(device)
        statement = "synchronize()"
        wait(device)
        statement = "y.tolist()"
        y.tolist()
    except Exception as error:
        return {"statement": statement, "message": str(error).splitlines()[0]}
    return {"statement": "none", "message": ""}


def _clock(device: str, size: int = 4096, products: int = 20) -> dict[str, float]:
    """Time products of `size` x `size` float32 matrices, in seconds.

    Returns:
        The time after launching all of them, the time after waiting for them, and two ratios:
        waiting against not waiting, and the first product against a later one.
    """
    a = torch.randn(size, size, device=device)
    wait(device)
    marks = [time.perf_counter()]
    for _ in range(4):
        a @ a
        wait(device)
        marks.append(time.perf_counter())
    first, *later = (after - before for before, after in zip(marks, marks[1:], strict=False))
    begin = time.perf_counter()
    for _ in range(products):
        a @ a
    launched = time.perf_counter() - begin
    wait(device)
    done = time.perf_counter() - begin
    return {
        "seconds without synchronize": launched,
        "seconds with synchronize": done,
        "with / without": done / launched,
        "first product / later product": first / sorted(later)[1],
    }


def _copies(device: str, mib: int = 64, times: int = 5) -> dict[str, Any]:
    """Time copies of `mib` MiB to `device`, and read a copy from it too early, `times` times over.

    Returns:
        Ratios of times: pageable against pinned memory; pinning for one copy against the plain
        copy; the return of a `non_blocking` call against the end of its copy. And whether a
        `non_blocking` copy to the CPU was complete before and after `synchronize`.
    """
    pin = device == "cuda"
    pageable = torch.ones(mib * 2**18)
    pinned = torch.ones(mib * 2**18, pin_memory=pin)

    def plain() -> Tensor:
        return pageable.to(device, copy=True)

    def fast() -> Tensor:
        return pinned.to(device, copy=True)

    def pin_first() -> Tensor:
        return (pageable.pin_memory() if pin else pageable).to(device, copy=True)

    return {
        "pageable / pinned": device_ratios(plain, fast, device, times),
        "pin for one copy / plain copy": device_ratios(pin_first, plain, device, times),
        **repeated(lambda: _too_early(device, pinned), times),
    }


def _too_early(device: str, pinned: Tensor) -> dict[str, Any]:
    wait(device)
    begin = time.perf_counter()
    pinned.to(device, non_blocking=True, copy=True)
    returned = time.perf_counter() - begin
    wait(device)
    ended = time.perf_counter() - begin

    a = torch.randn(2048, 2048, device=device) / 2048**0.5
    ones = torch.ones(1 << 20, device=device)
    target = torch.zeros(1 << 20, pin_memory=device == "cuda")
    wait(device)
    for _ in range(100 if device == "cuda" else 1):
        a = a @ a
    target.copy_(ones, non_blocking=True)
    early = bool(target.all())
    wait(device)
    return {
        "non_blocking call returns / copy ends": returned / ended,
        "copy to the CPU complete before synchronize": early,
        "copy to the CPU complete after synchronize": bool(target.all()),
    }
