"""Helpers of the chapter on reproducibility: environment, seeds, determinism, TF32, processes.

Source: "Reproducibility", https://pytorch.org/docs/stable/notes/randomness.html
"""

from __future__ import annotations

import os
import platform
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from helpers import checks


def environment() -> dict[str, object]:
    """Return settings that two machines must share to get the same numbers from the same seed.

    They are versions, the device, the number of threads, and the switches and environment variables
    that change results: plain values, for JSON and for checkpoints. The device is the GPU, or
    without one the machine and the vector instructions of its CPU.
    """
    gpu, backends = torch.cuda.is_available(), torch.backends
    cpu = f"{platform.machine()} {backends.cpu.get_cpu_capability()}"
    matmul, cudnn = backends.cuda.matmul, backends.cudnn
    precision = getattr(matmul, "fp32_precision", None)  # 2.9
    convolutions = getattr(getattr(cudnn, "conv", None), "fp32_precision", None)
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # a TorchVersion is not loaded with weights_only=True
        "numpy": np.__version__,
        "cuda": torch.version.cuda,
        "cudnn": cudnn.version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name() if gpu else cpu,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "matmul precision": matmul.allow_tf32 if precision is None else precision,
        "cudnn precision": cudnn.allow_tf32 if convolutions is None else convolutions,
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def seed_everything(seed: int) -> dict[str, str]:
    """Seed every global random stream of a PyTorch program, and return which ones.

    `numpy.random.Generator` and `torch.Generator` objects have their own state: seed them where
    they are created.

    Args:
        seed: from 0 to 2**32 - 1, the range of NumPy.

    Raises:
        TypeError: `seed` is not an int.
        ValueError: `seed` is out of range; nothing is seeded then.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int, got {type(seed).__name__}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, got {seed}")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return {
        "random": "the module's stream",
        "numpy.random": "the legacy stream, no Generator",
        "torch": "the CPU and every accelerator",
    }


def draws() -> dict[str, float]:
    """Draw one number between 0 and 1 from each global random stream, and return them."""
    return {
        "random": random.random(),
        "numpy.random": float(np.random.rand()),
        "torch": torch.rand(()).item(),
    }


@contextmanager
def deterministic(warn_only: bool = False) -> Iterator[None]:
    """Enable `torch.use_deterministic_algorithms` in the block; restore the setting after it."""
    before = torch.are_deterministic_algorithms_enabled()
    before_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=before_warn)


def to_tf32(x: Tensor) -> Tensor:
    """Round to TF32: 10 bits of mantissa instead of the 23 of float32, the same range.

    The result is detached.

    Source: https://pytorch.org/docs/stable/notes/cuda.html

    Raises:
        TypeError: `x` is not a tensor.
        ValueError: `x` is not float32.
    """
    if checks.tensor("x", x).dtype != torch.float32:
        raise ValueError(f"x must be float32, got {x.dtype}")
    x = x.detach()
    bits = x.contiguous().view(torch.int32)
    odd = (bits >> 13) & 1
    rounded = ((bits + 0xFFF + odd) & ~0x1FFF).view(torch.float32)
    return torch.where(torch.isfinite(x), rounded, x)


def process_info(pid: int) -> dict[str, object]:
    """Return whether a process belongs to your user, and its command line. Linux only.

    Returns:
        `mine` (bool: it belongs to your user) and `command`, its program and arguments.

    Raises:
        TypeError: `pid` is not an int.
        ProcessLookupError: there is no process of this number, or the system has no /proc.
    """
    folder = Path(f"/proc/{checks.integer('pid', pid)}")
    try:
        mine = folder.stat().st_uid == os.getuid()
        command = (folder / "cmdline").read_text().rstrip("\0").split("\0")
    except FileNotFoundError:
        raise ProcessLookupError(f"no process {pid}") from None
    return {"mine": mine, "command": command}
