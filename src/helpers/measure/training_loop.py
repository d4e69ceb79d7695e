"""What a GPU tells the chapter "Write a training loop that is right".

Each `record_…` runs its worker in a fresh process on the GPU.
A worker takes any device, so that tests run it on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import child
from helpers.timing import device_ratios, wait


def record_device_mixed_precision() -> dict[str, Any]:
    """What 16 bits change in a training step on a GPU; see `_mixed_precision`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return child.on_gpu(_mixed_precision)


def _mixed_precision(
    device: str, width: int = 2048, batch: int = 8192, layers: int = 6, times: int = 5
) -> dict[str, Any]:
    """Train the same perceptron in float32 and under autocast, and compare.

    Args:
        device: "cuda", or "cpu" to test this function.
        width: of the input and of each layer.
        batch: samples in a step.
        layers: how many linear layers there are.
        times: how often each ratio of times is measured.

    Returns:
        For bfloat16 and float16: the dtypes of weights, scores and gradients; how many times longer
        a float32 step takes; on a GPU, the peak memory of a step beyond what is kept between steps,
        as a share of the float32 step's. For float16, how many steps GradScaler skips before the
        first that it takes, from its usual scale of 2**16 and from 2**40.
    """
    x = torch.randn(batch, width, device=device)
    y = torch.randint(0, 10, (batch,), device=device)

    def trainer(dtype: torch.dtype, scale: float = 2.0**16) -> tuple[nn.Module, Callable[[], Any]]:
        torch.manual_seed(0)
        body = [part for _ in range(layers - 1) for part in (nn.Linear(width, width), nn.ReLU())]
        model = nn.Sequential(*body, nn.Linear(width, 10)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        half = dtype is torch.float16
        scaler = torch.amp.GradScaler(device, init_scale=scale, enabled=half)

        def step() -> tuple[Tensor, bool]:
            with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
                scores = model(x)
                loss = F.cross_entropy(scores, y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            return scores, scaler.get_scale() < before

        return model, step

    def peak(step: Callable[[], Any]) -> int:
        step()
        wait(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        wait(device)
        return torch.cuda.max_memory_allocated() - before

    _, plain = trainer(torch.float32)
    values: dict[str, Any] = {}
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        model, step = trainer(dtype)
        scores, _ = step()
        kinds = (model[0].weight, scores, model[0].weight.grad)
        values[f"{name}: weights, scores, gradients"] = " ".join(
            str(tensor.dtype).removeprefix("torch.") for tensor in kinds
        )
        values[f"{name}: time of float32 / its own"] = device_ratios(plain, step, device, times)
        if device == "cuda":
            values[f"{name}: peak memory / that of float32"] = peak(step) / peak(plain)
    for power in (16, 40):
        _, step = trainer(torch.float16, 2.0**power)
        skips = 0
        while skips < power and step()[1]:
            skips += 1
        values[f"float16: steps skipped from 2**{power}"] = skips
    return values
