"""Figures and demonstrations of the chapter on GPU memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from helpers import child
from helpers.allocator import MIB
from helpers.figures import COLORS, Figure, figure, legend
from helpers.memory_caching import TrainingMemory

_CHINESE = {
    "weights": "权重",
    "gradients": "梯度",
    "optimizer": "优化器",
    "activations": "激活值",
    "batch {}": "批量 {}",
    "{}, SGD": "{}，SGD",
    "{}, bfloat16": "{}，bfloat16",
    "{}, checkpoints": "{}，检查点",
}


FRAGMENTATION_CAPACITY = 40 * MIB
"""Bytes of the device on which `fragmentation_trace` ends in an out-of-memory error."""


def fragmentation_trace() -> list[tuple[Any, ...]]:
    """Return a trace in which half of the memory is free, and a smaller request fails.

    Eight blocks of 5 MiB fill two segments of 20 MiB; every second one is freed. With
    `FRAGMENTATION_CAPACITY` bytes there is no room for 12 MiB although 20 MiB are free, because no
    free block is larger than 5 MiB, and no segment is completely free and could be released. When
    the rest of the first segment is freed, its blocks merge, and the same request succeeds.
    """
    names = [f"t{i}" for i in range(8)]
    return [
        *(("malloc", name, 5 * MIB) for name in names),
        *(("free", name) for name in names[::2]),
        ("empty_cache",),
        ("malloc", "big", 12 * MIB),
        *(("free", name) for name in names[1:4:2]),
        ("malloc", "big again", 12 * MIB),
    ]


def without_gpu() -> dict[str, Any]:
    """Return the results of memory calls if no GPU is visible: the value, or `"raises"`.

    A new process hides every GPU before the calls, so the result is the same on every machine.

    Raises:
        RuntimeError: that process fails.
    """
    return child.call(_call_without_gpu, env={"CUDA_VISIBLE_DEVICES": ""})


def _call_without_gpu() -> dict[str, Any]:
    functions = {
        "cuda": """memory_allocated memory_reserved max_memory_allocated empty_cache
            reset_peak_memory_stats memory_summary mem_get_info synchronize""",
        "accelerator": "memory_allocated memory_reserved empty_cache",
    }
    result = {}
    for module, names in functions.items():
        for name in names.split():
            try:
                answer = getattr(getattr(torch, module), name)()
            except Exception:  # its type depends on the build and on the driver
                answer = "raises"
            result[f"torch.{module}.{name}()"] = answer
    return result


def draw_memory(counted: Mapping[str, TrainingMemory]) -> Figure:
    """Draw stacked bars of the memory of a training step, one bar per configuration.

    Args:
        counted: label of a bar -> result of `training_memory`.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not counted:
        raise ValueError("draw_memory needs at least one bar, got none")
    drawing, axis = figure(size=(3.6, 0.9 + 0.3 * len(counted)), chinese=_CHINESE)
    colors = ("teal", "orange", "violet", "pale grey")
    left = [0.0] * len(counted)
    for part, color in zip(
        ("weights", "gradients", "optimizer", "activations"), colors, strict=True
    ):
        sizes = [getattr(memory, part) / MIB for memory in counted.values()]
        style = {"color": COLORS[color], "label": part, "height": 0.7}
        if color == "pale grey":
            style |= {"edgecolor": COLORS["grey"], "linewidth": 0.6}
        axis.barh(list(counted), sizes, left=left, **style)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    axis.invert_yaxis()
    axis.set(xlabel="MiB")
    legend(axis, columns=2, handlelength=1)
    return drawing
