"""What importing the helpers costs beside `import torch`: milliseconds and ratio.

Each figure is the median of several rounds. In a round, one fresh process imports torch and then
forks for each module, so that none finds what another one loaded.
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
import time; start = time.perf_counter()
import torch; print(time.perf_counter() - start, flush=True)
import importlib, os, sys
for names in sys.argv[1:]:
    if os.fork() == 0:
        start = time.perf_counter()
        for name in names.split(): importlib.import_module(name)
        print(time.perf_counter() - start, flush=True)
        os._exit(0)
    os.wait()
"""


def measure(groups: list[str]) -> list[float]:
    """Median seconds of `import torch`, and of importing each group of modules after it."""
    runs = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", SCRIPT, *groups]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append([float(x) for x in done.stdout.split()])
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def main() -> int:
    """Print a line per module; 1 if one is over the limit."""
    modules = [m.name for m in pkgutil.walk_packages(helpers.__path__, "helpers.")]
    labels = ["helpers", *sorted(modules), "all modules"]
    torch_s, *found = measure([*labels[:-1], " ".join(modules)])
    over = 0
    for label, seconds in zip(labels, found, strict=True):
        late = seconds * 1000 > LIMIT_MS and label != "all modules"
        over += late
        print(
            f"{label:36} {seconds * 1000:6.1f} ms, {seconds / torch_s:6.3f} of import torch"
            f"{'  OVER THE LIMIT' if late else ''}"
        )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
