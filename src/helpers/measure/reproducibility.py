"""What a GPU tells the chapter "Get the same numbers twice".

Each `record_…` runs its worker in a fresh process on the GPU.
A worker takes any device, so that tests run it on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers import child
from helpers.recorded import error_line
from helpers.reproducibility import deterministic
from helpers.timing import device_ratios, device_seconds


def record_device_streams() -> dict[str, Any]:
    """Random streams of the CPU and of a GPU, and whether they touch each other; see `_streams`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return child.on_gpu(_streams)


def record_device_repeats() -> dict[str, Any]:
    """What repeats itself on a GPU, under which switch, and what it costs; see `_repeats`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return child.on_gpu(_repeats, env={"CUBLAS_WORKSPACE_CONFIG": ""})


def record_device_tf32() -> dict[str, Any]:
    """How exact and how fast float32 is with TF32 and without; see `_tf32`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return child.on_gpu(_tf32)


def _streams(device: str) -> dict[str, Any]:
    """Seed, draw and restore on both sides.

    Args:
        device: "cuda", or "cpu" to test this function.

    Returns:
        Four numbers that seed 0 gives on the CPU and on `device`; whether the global seed repeats
        the numbers of `device`; whether drawing on one side moves the stream of the other; whether
        a state put back draws the same; whether 15 normal numbers begin like 16.
    """
    torch.empty(0, device=device)  # CUDA has no generators before it starts
    here = torch.default_generator
    there = torch.cuda.default_generators[0] if device == "cuda" else here

    def seeded(where: str, count: int = 4) -> Tensor:
        torch.manual_seed(0)
        return torch.randn(count, device=where)

    def moves(stream: torch.Generator, where: str) -> bool:
        before = stream.get_state()
        torch.rand(1, device=where)
        return not torch.equal(stream.get_state(), before)

    first = seeded(device)
    state = there.get_state()
    drawn = torch.rand(3, device=device)
    there.set_state(state)
    again = torch.rand(3, device=device)
    return {
        "CPU, seed 0": " ".join(f"{x:.4f}" for x in seeded("cpu").tolist()),
        "device, seed 0": " ".join(f"{x:.4f}" for x in first.tolist()),
        "manual_seed repeats the device": torch.equal(seeded(device), first),
        "the CPU's draw moves the device": moves(there, "cpu"),
        "the device's draw moves the CPU": moves(here, device),
        "a state put back draws the same": torch.equal(again, drawn),
        "15 numbers begin like 16": torch.equal(seeded(device, 15), seeded(device, 16)[:15]),
    }


def _repeats(device: str, runs: int = 20, times: int = 5, size: int = 56) -> dict[str, Any]:
    """Count the different results of `runs` equal runs, and compare times.

    Args:
        device: "cuda", or "cpu" to test this function.
        runs: how often the same work is done.
        times: how often each ratio of times is measured.
        size: height and width of the images.

    Returns:
        For each setting of cuDNN's two switches the number of different weight gradients of a
        convolution, and the ratio of its time to that of the default. The price of the first image
        size with and without `benchmark`. Different sums of `index_add_` with and without
        `use_deterministic_algorithms`, and what cuBLAS says under it without its variable.
    """
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(64, 128, 3, padding=1, device=device)
    images = torch.randn(16, 64, size, size, device=device)

    def gradient(x: Tensor = images) -> Tensor:
        return torch.autograd.grad(conv(x).square().sum(), conv.weight)[0]

    def under(function: Callable[[], Tensor], **switches: bool) -> Callable[[], Tensor]:
        def run() -> Tensor:
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, **switches):
                return function()

        return run

    def different(function: Callable[[], Tensor]) -> int:
        return len({function().cpu().numpy().tobytes() for _ in range(runs)})

    values: dict[str, Any] = {"runs": runs}
    default = under(gradient)
    for benchmark in (False, True):
        for fixed in (False, True):
            name = f"{benchmark=}, deterministic={fixed}"
            run = under(gradient, benchmark=benchmark, deterministic=fixed)
            values[f"{name}: different results"] = different(run)
            values[f"{name}: time / default"] = device_ratios(run, default, device, times)
    for benchmark in (False, True):
        sizes = iter(range(size + 1 + times * benchmark, size + 1 + times * (1 + benchmark)))
        values[f"{benchmark=}: first / second image of a size"] = [
            _first_to_second(
                under(partial(gradient, images.new_ones(16, 64, new, size)), benchmark=benchmark),
                device,
            )
            for new in sizes
        ]

    where = torch.randint(0, 10, (100_000,), device=device)
    what = torch.randn(100_000, device=device)

    def add() -> Tensor:
        return torch.zeros(10, device=device).index_add_(0, where, what)

    values["index_add_: different results"] = different(add)
    with deterministic():
        values["index_add_, deterministic algorithms: different results"] = different(add)
        values["cuBLAS without its variable"] = error_line(
            lambda: what[:64].view(8, 8) @ what[:64].view(8, 8)
        )
    return values


def _first_to_second(function: Callable[[], Any], device: str) -> float:
    first = device_seconds(function, device)
    return first / device_seconds(function, device)


def _tf32(device: str, size: int = 4096, channels: int = 256, times: int = 5) -> dict[str, Any]:
    """Multiply and convolve random float32 numbers, with TF32 allowed and not.

    Args:
        device: "cuda", or "cpu" to test this function.
        size: of the square matrices.
        channels: of the convolution, in and out, on 8 images of 56 by 56.
        times: how often each ratio of times is measured.

    Returns:
        The device's compute capability (None on a CPU). For both kinds of work, the error against
        float64 as a share of the result, without TF32 and with it, and how many times longer it
        takes without.
    """
    torch.manual_seed(0)
    a, b = torch.randn(2, size, size, device=device)
    images = torch.randn(8, channels, 56, 56, device=device)
    kernels = torch.randn(channels, channels, 3, 3, device=device)
    work: dict[str, tuple[Callable[..., Tensor], Tensor, Tensor]] = {
        "matrix product": (torch.matmul, a, b),
        "convolution": (torch.nn.functional.conv2d, images, kernels),
    }
    capability = list(torch.cuda.get_device_capability()) if device == "cuda" else None
    values: dict[str, Any] = {"compute capability": capability}
    for name, (function, x, y) in work.items():
        exact = function(x.double(), y.double())

        def run(tf32: bool, function=function, x=x, y=y) -> Tensor:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            return function(x, y)

        for setting, tf32 in (("float32", False), ("TF32", True)):
            error = ((run(tf32) - exact).norm() / exact.norm()).item()
            values[f"{name}: error of {setting}"] = error
        values[f"{name}: time of float32 / TF32"] = device_ratios(
            partial(run, False), partial(run, True), device, times
        )
    return values
