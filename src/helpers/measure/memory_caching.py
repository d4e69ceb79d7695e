"""What a GPU tells the chapter on GPU memory.

The allocator's counters after each step of a trace, in a fresh process, and what the device says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from helpers import child
from helpers.allocator import (
    MIB,
    ROUND_LARGE,
    STATS,
    CachingAllocator,
    Operation,
    Step,
    check_trace,
    format_size,
    random_trace,
    replay,
)
from helpers.demos.memory_caching import (
    FRAGMENTATION_CAPACITY,
    fragmentation_trace,
    notes_trace,
)
from helpers.recorded import MISSING, Recording


class _Device:
    """A fresh Python process that performs operations on the GPU, one line of JSON each.

    A process of its own starts with empty caches, whatever the notebook around it holds, and is
    the only one whose allocator can still be configured.
    """

    def __init__(self, max_split_size_mb: int | None = None):
        if not torch.cuda.is_available():
            raise RuntimeError(
                "a live trace needs a CUDA device and this machine has none; "
                "replay(trace) runs the model instead"
            )
        # PYTORCH_NO_CUDA_MEMORY_CACHING and the reader's own settings would change the numbers
        env = {k: v for k, v in child.environment().items() if "ALLOC_CONF" not in k}
        env.pop("PYTORCH_NO_CUDA_MEMORY_CACHING", None)
        if max_split_size_mb is not None:
            env["PYTORCH_CUDA_ALLOC_CONF"] = f"max_split_size_mb:{max_split_size_mb}"
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from helpers.measure.memory_caching import _serve; _serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env,
            text=True,
        )

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._errors.close()

    def do(self, *operation: Any) -> dict[str, Any]:
        """Perform one operation; counters after it, the address of a malloc, an error's message."""
        try:
            self._process.stdin.write(json.dumps(operation) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait(60)
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"the process on the GPU ended at {operation!r}: {last}")
        return json.loads(answer)


def _serve() -> None:
    """The other end of `_Device`: perform the operations that arrive on standard input."""
    held: dict[str, torch.Tensor] = {}
    for line in sys.stdin:
        print(json.dumps(_perform(json.loads(line), held)), flush=True)


def _perform(operation: Operation, held: dict[str, torch.Tensor]) -> dict[str, Any]:
    """One operation on the CUDA device of this process, and the counters after it."""
    action, *rest = operation
    address = error = None
    if action == "malloc":
        name, nbytes = rest
        try:
            held[name] = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
            address = held[name].data_ptr() or None
        except torch.OutOfMemoryError as full:
            error = str(full)
    elif action == "free":
        held.pop(rest[0], None)
    elif action == "empty_cache":
        torch.cuda.empty_cache()
    elif action == "reset_peak":
        torch.cuda.reset_peak_memory_stats()
    elif action == "capacity":
        # All segments are multiples of 2 MiB: half of that more absorbs what the fraction rounds
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction((rest[0] + ROUND_LARGE // 2) / total)
    elif action == "counters":
        torch.cuda.synchronize()  # the first call creates the CUDA context
    else:
        raise ValueError(f"unknown operation {operation!r}")
    stats = torch.cuda.memory_stats()
    counters = {name: stats[key] for name, key in STATS.items()}
    return {**counters, "address": address, "error": error}


def live_trace(
    trace: Iterable[Operation],
    capacity: int | None = None,
    *,
    max_split_size_mb: int | None = None,
) -> list[dict[str, Any]]:
    """Perform a trace on a real CUDA device and read PyTorch's counters after each operation.

    `malloc` is `torch.empty(nbytes, dtype=torch.uint8, device="cuda")`, `free` drops that tensor.
    It runs in a fresh process, so that the counters start at 0 and nothing needs subtracting;
    a process that does not start at 0 is an error.

    Args:
        trace: as for `replay`.
        capacity: bytes, a multiple of 2 MiB: the limit set by
            `torch.cuda.set_per_process_memory_fraction`.
        max_split_size_mb: set as `PYTORCH_CUDA_ALLOC_CONF` for that process.

    Returns:
        For each operation the fields of `Counters`, with `address` (of the malloc's block,
        relative to the lowest in the trace; None for anything else) and `error` (message or None).

    Raises:
        RuntimeError: there is no CUDA device, its process fails, or it does not start clean.
        ValueError: a malformed operation, or a capacity that is not a multiple of 2 MiB.
    """
    trace = check_trace(trace)
    CachingAllocator(capacity, max_split_size_mb=max_split_size_mb)  # complains as the model does
    if capacity is not None and capacity % ROUND_LARGE:
        raise ValueError(f"capacity must be a multiple of 2 MiB ({ROUND_LARGE}), got {capacity}")
    with _Device(max_split_size_mb) as device:
        start = device.do("counters")
        if start["allocated"] or start["reserved"]:
            raise RuntimeError(f"the device's process does not start clean: {start}")
        if capacity is not None:
            device.do("capacity", capacity)
        steps = [device.do(*operation) for operation in trace]
    lowest = min((step["address"] for step in steps if step["address"]), default=0)
    for step in steps:
        if step["address"]:
            step["address"] -= lowest
    return steps


def record_allocator_trace() -> list[dict[str, Any]]:
    """Four traces with the real counters after each step, for `compare_recorded`.

    Returns:
        Entries with `name`, `trace`, `capacity`, `max_split_size_mb` and `steps`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    plans = [
        ("notes", notes_trace(repeats=5), None, None),
        ("random", random_trace(seed=0), None, None),
        ("fragmentation", fragmentation_trace(), FRAGMENTATION_CAPACITY, None),
        ("max_split_size", random_trace(seed=1), 640 * MIB, 32),
    ]
    return [
        {
            "name": name,
            "trace": trace,
            "capacity": capacity,
            "max_split_size_mb": split,
            "steps": live_trace(trace, capacity, max_split_size_mb=split),
        }
        for name, trace, capacity, split in plans
    ]


def record_device_memory() -> list[dict[str, Any]]:
    """What the device says against what the counters say, seen from a second process.

    `nvidia-smi` shows the first. One process allocates 256 MiB, frees it and empties its cache;
    this one reads `torch.cuda.mem_get_info` meanwhile. Others on the same GPU would disturb it.

    Returns:
        Entries with `after` (what happened), `device` (bytes in use on the whole device since
        before that process started), `allocated` and `reserved` (of that process).

    Raises:
        RuntimeError: there is no CUDA device.
    """
    steps = [
        ("CUDA context", ("counters",)),
        ("malloc 256 MiB", ("malloc", "x", 256 * MIB)),
        ("free", ("free", "x")),
        ("empty_cache", ("empty_cache",)),
    ]
    result = []
    with _Device() as device:  # it makes its context at the first operation, not before
        used = _used_memory()
        for after, operation in steps:
            counters = device.do(*operation)
            result.append(
                {
                    "after": after,
                    "device": _used_memory() - used,
                    "allocated": counters["allocated"],
                    "reserved": counters["reserved"],
                }
            )
    return result


def _used_memory() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def compare(model_steps: Sequence[Step], recorded: Sequence[dict[str, Any]]) -> list[str]:
    """Every difference between a replay and `live_trace`, one sentence each; empty when equal.

    All counters, whether the operation failed, and the address of each malloc's block where the
    replay was given the recorded ones.
    """
    differences = []
    if len(model_steps) != len(recorded):
        differences.append(f"the model has {len(model_steps)} steps, the device {len(recorded)}")
    for number, (step, real) in enumerate(zip(model_steps, recorded, strict=False)):
        ours = {**asdict(step.counters), "failed": step.error is not None, "address": step.address}
        theirs = {**real, "failed": real["error"] is not None}
        differences += [
            f"step {number} {' '.join(map(str, step.operation))}: {key} is {value} in the model, "
            f"{theirs[key]} on the device"
            for key, value in ours.items()
            if value != theirs[key]
        ]
    return differences


def compare_recorded(values: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Replay every trace of the recording "allocator_trace" and `compare`: differences by name."""
    return {
        entry["name"]: compare(
            replay(
                entry["trace"],
                entry["capacity"],
                max_split_size_mb=entry["max_split_size_mb"],
                addresses=[step["address"] for step in entry["steps"]],
            ),
            entry["steps"],
        )
        for entry in values
    }


def report(recording: Recording | None) -> None:
    """Print the recording "device_memory", a line per step, with where it was measured."""
    if recording is None:
        print(MISSING)
        return
    for row in recording.values:
        sizes = (f"{key} {format_size(row[key])}" for key in ("device", "reserved", "allocated"))
        print(f"{row['after']}: {', '.join(sizes)}")
    print(f"device: {recording.provenance}")
