"""Show which builds of PyTorch run on a GPU with a driver version."""

from __future__ import annotations

from typing import Any

from helpers.explorers import Explorer
from helpers.installation import OLDEST_DRIVER, driver_suffices, runs

# Architectures in PyTorch 2.9 for x86-64: https://github.com/Comfy-Org/ComfyUI/pull/16438
WHEELS = {
    "cu126": ("12.6", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"),
    "cu128": ("12.8", "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"),
    "cu130": ("13.0", "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"),
}
# Compute capabilities: https://developer.nvidia.com/cuda-gpus and its page of legacy GPUs
GPUS = {
    "GTX 1080": (6, 1),
    "V100": (7, 0),
    "RTX 2080": (7, 5),
    "A100": (8, 0),
    "RTX 4090": (8, 9),
    "H100": (9, 0),
    "RTX 5090": (12, 0),
}
# 570 is the first branch for the RTX 5090, 580 the last for the GTX 1080 and the V100.
DRIVERS = ("470.256", "570.86", "580.65")


def outcome(wheel: str, gpu: str, driver: str) -> dict[str, Any]:
    """Return the kernel of `wheel` for the GPU (or None), and True if the driver is new enough."""
    cuda, archs = WHEELS[wheel]
    kernel = runs(GPUS[gpu], archs.split())
    return {"kernel": kernel, "driver": driver_suffices(driver, cuda)}


def wheels_explorer(lang: str | None = None) -> Explorer:
    """Choose a GPU and a driver; see which of three builds run, and with which kernel."""
    rows = [
        [[outcome(wheel, gpu, driver) for wheel in WHEELS] for driver in DRIVERS] for gpu in GPUS
    ]
    wheels = [
        {"name": name, "cuda": cuda, "needs": OLDEST_DRIVER[int(cuda[:2])], "archs": archs.split()}
        for name, (cuda, archs) in WHEELS.items()
    ]
    gpus = [f"{name} (sm_{a}{b})" for name, (a, b) in GPUS.items()]
    return Explorer(
        "wheels",
        {"wheels": wheels, "gpus": gpus, "drivers": DRIVERS, "rows": rows},
        {
            "en": (
                "Of three builds of PyTorch 2.9, an RTX 5090 runs cu128 and cu130, and a GTX "
                "1080 only cu126: a build needs a kernel for the GPU, and a driver that is new "
                "enough for its CUDA."
            ),
            "zh": (
                "在 PyTorch 2.9 的三个安装包中，RTX 5090 能运行 cu128 和 cu130，GTX 1080 只能运"
                "行 cu126：安装包里要有适合这块 GPU 的核函数，驱动也要足够新，支持它的 CUDA。"
            ),
        },
        lang,
    )
