"""What importing the helpers costs beside `import torch`: milliseconds and ratio.

Each figure is the median of fresh processes.
The two are timed in turn, so that a busy machine slows both; the medians are compared.
"""

from __future__ import annotations

import pkgutil
import statistics
import subprocess
import sys

import helpers

ROUNDS = 5
LIMIT_MS = 50
SCRIPT = """
import time, sys
a = time.perf_counter(); import torch; b = time.perf_counter()
import importlib, helpers
for name in sys.argv[1:]: importlib.import_module(f"helpers.{name}")
print(b - a, time.perf_counter() - b)
"""


def measure(names: list[str]) -> tuple[float, float]:
    """Median seconds of `import torch` and of importing `helpers` and its modules after it."""
    runs = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", SCRIPT, *names]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append([float(x) for x in done.stdout.split()])
    torch_s, helpers_s = (statistics.median(column) for column in zip(*runs, strict=True))
    return torch_s, helpers_s


def main() -> int:
    """Print a line per module; 1 if one is over the limit."""
    modules = sorted(m.name for m in pkgutil.iter_modules(helpers.__path__))
    over = 0
    for names in ([], *([m] for m in modules), modules):
        torch_s, helpers_s = measure(names)
        label = "all modules" if names == modules else f"helpers.{names[0]}" if names else "helpers"
        late = helpers_s * 1000 > LIMIT_MS and len(names) <= 1
        over += late
        print(
            f"{label:28} {helpers_s * 1000:6.1f} ms, {helpers_s / torch_s:6.3f} of import torch"
            f"{'  OVER THE LIMIT' if late else ''}"
        )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
