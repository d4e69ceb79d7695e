"""What a GPU tells the chapter "Train on several GPUs".

Each `record_…` runs its worker in a fresh process on the GPU.
A worker takes any device, so that tests run it on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import child
from helpers.recorded import error_line
from helpers.timing import device_ratios


def record_device_data_parallel() -> dict[str, Any]:
    """What `DataParallel` does on a machine with one GPU; see `_one_device`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return child.on_gpu(_one_device)


def _one_device(device: str, times: int = 5) -> dict[str, Any]:
    """Wrap a model for one device and compare it with the bare model.

    Args:
        device: "cuda", or "cpu" to test this function.
        times: how often the ratio of times is measured.

    Returns:
        Whether wrapping moved the model and calling it moved the input; whether outputs and
        gradients are those of the model, bit for bit; the first name in the `state_dict`; what a
        target left on the CPU raises; how many times longer a wrapped step takes.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    wrapped = nn.DataParallel(model, device_ids=[0])
    moved = model[0].weight.device.type == device
    x, y = torch.randn(64, 256), torch.randn(64, 10)
    there, target = x.to(device), y.to(device)

    def gradients(called: nn.Module, inputs: Tensor) -> tuple[Tensor, ...]:
        loss = F.mse_loss(called(inputs), target)
        return torch.autograd.grad(loss, tuple(model.parameters()))

    pairs = zip(gradients(wrapped, x), gradients(model, there), strict=True)
    return {
        "wrapping moved the model": moved,
        "calling moved the input": wrapped(x).device.type == device,
        "the same output": torch.equal(wrapped(x), model(there)),
        "the same gradients": all(torch.equal(a, b) for a, b in pairs),
        "first name in the state_dict": next(iter(wrapped.state_dict())),
        "target on the CPU": error_line(lambda: F.mse_loss(wrapped(x), y)),
        "time wrapped / bare": device_ratios(
            lambda: gradients(wrapped, there), lambda: gradients(model, there), device, times
        ),
    }
