"""What the ways to store a model cost: size and time as ratios, no seconds.

Each ratio is to saving or loading the `state_dict` with `torch.save` and `torch.load`.
All ways are timed in turn, so that a busy machine slows all of them; the fastest rounds are
compared. The files lie in the page cache, so this measures work, not a disk.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from helpers.checkpoints import load_checkpoint, save_checkpoint

ROUNDS = 7
WIDTH, LAYERS = 2000, 4  # 64 MB of float32
FASTER = 1.5  # a whole model saved this much faster would contradict the chapter


def measure(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The fastest of `ROUNDS` runs of each way, in seconds; the ways are run in turn."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def table(title: str, values: dict[str, float], base: str) -> dict[str, float]:
    """Print each value as a multiple of `values[base]`, and return the multiples."""
    ratios = {name: value / values[base] for name, value in values.items()}
    print(f"{title}, as a multiple of {base}")
    for name, ratio in ratios.items():
        print(f"  {name:38} {ratio:8.3f}")
    return ratios


def main() -> int:
    """Print the tables; 1 if a `state_dict` is more than `FASTER` times as slow to save."""
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    state = model.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        whole, plain, tensors, safe = (
            Path(folder) / name for name in ("whole.pt", "state.pt", "x.safetensors", "safe.pt")
        )
        base = "state_dict, torch.save"
        saving = measure(
            {
                base: lambda: torch.save(state, plain),
                "whole model, torch.save": lambda: torch.save(model, whole),
                "state_dict, safetensors": lambda: save_file(state, tensors),
                "state_dict, save_checkpoint (fsync)": lambda: save_checkpoint(state, safe),
            }
        )
        ratios = table("time to save", saving, base)
        files = {base: plain, "whole model": whole, "safetensors": tensors}
        table("bytes", {name: path.stat().st_size for name, path in files.items()}, base)
        base = "state_dict, torch.load"
        table(
            "time to load, every number read",
            measure(
                {
                    base: lambda: read(torch.load(plain)),
                    "mmap=True": lambda: read(torch.load(plain, mmap=True)),
                    "whole model, weights_only=False": lambda: read(
                        torch.load(whole, weights_only=False).state_dict()
                    ),
                    "safetensors": lambda: read(load_file(tensors)),
                    "load_checkpoint (checksums)": lambda: read(load_checkpoint(plain)),
                }
            ),
            base,
        )
        table(
            "time to load, one number read",
            measure(
                {
                    base: lambda: torch.load(plain)["0.weight"][0, 0].item(),
                    "mmap=True": lambda: torch.load(plain, mmap=True)["0.weight"][0, 0].item(),
                    "safetensors": lambda: load_file(tensors)["0.weight"][0, 0].item(),
                    "map_location='meta' (none read)": lambda: torch.load(
                        plain, map_location="meta"
                    ),
                }
            ),
            base,
        )
    slow = ratios["whole model, torch.save"] < 1 / FASTER
    if slow:
        print("a whole model was saved much faster: the chapter says that it is not")
    return int(slow)


def read(state: dict[str, torch.Tensor]) -> float:
    """Use every number, so that nothing stays unread."""
    return sum(t.sum().item() for t in state.values())


if __name__ == "__main__":
    sys.exit(main())
