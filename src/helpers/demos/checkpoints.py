"""Figures and demonstrations of the chapter on saving checkpoints and resuming from them."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from helpers import child
from helpers.checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from helpers.figures import COLORS, Figure, figure, legend

_CHINESE = {
    "largest difference of a weight": "权重的最大差别",
    "exactly 0": "恰好为 0",
    "left out": "漏存的部分",
}


def save_as_from_gpu(value: Any, path: str | os.PathLike[str], device: str = "cuda:0") -> None:
    """Call `torch.save` on any machine as if every tensor were on the GPU `device`."""
    with mock.patch.object(torch.serialization, "location_tag", lambda storage: device):
        torch.save(value, path)


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Hide every GPU from PyTorch inside the block."""
    with mock.patch.object(torch.cuda, "is_available", lambda: False):
        yield


def import_text(name: str, source: str) -> types.ModuleType:
    """Return a module made from `source`, as if it were imported from a file `<name>.py`."""
    module = types.ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    sys.modules[name] = module
    return module


class Run:
    """Small training run that contains every kind of state a resume must restore.

    16 samples in 4 shuffled batches an epoch; noise from NumPy on the inputs, dropout in the
    model; AdamW, a learning rate halved every second epoch, and a gradient scaler.

    Attributes:
        model, optimizer, scheduler, scaler: as in any training script.
        generator: the generator that shuffles.
        epoch: the next one to train.
        weights: after each step, all weights as one float32 tensor of shape (37,).
    """

    def __init__(self, seed: int = 0) -> None:
        import numpy as np

        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.2), nn.Linear(6, 1), nn.Flatten(0))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
        self.generator = torch.Generator().manual_seed(seed)
        x = torch.randn(16, 3)
        self.loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x, x.sum(1)),
            batch_size=4,
            shuffle=True,
            generator=self.generator,
        )
        self.epoch = 0
        self.weights: list[Tensor] = []

    def train(self, until: int) -> Run:
        """Train from `epoch` on, until `until` epochs are complete; return the run itself."""
        import numpy as np

        while self.epoch < until:
            for x, y in self.loader:
                noise = np.random.standard_normal(x.shape).astype("float32")
                x = x + 0.1 * torch.from_numpy(noise)
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x), y)
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
                flat = nn.utils.parameters_to_vector(self.model.parameters())
                self.weights.append(flat.detach().clone())
            self.scheduler.step()
            self.epoch += 1
        return self


def draw_distances(distances: Mapping[str, list[float]], start: int) -> Figure:
    """Draw, on a log scale, how far each resumed run is from the uninterrupted one.

    Args:
        distances: for each label, the largest difference of a weight after each step from
            `start` on; zeros are drawn on the bottom line.
        start: the step at which the runs were resumed.

    Raises:
        ValueError: `distances` is empty.
    """
    if not distances:
        raise ValueError("draw_distances needs at least one run, got none")
    drawing, axis = figure(size=(3.6, 2.9), chinese=_CHINESE)
    floor = 1e-5
    colors = [COLORS["orange"], COLORS["teal"], COLORS["violet"], COLORS["grey"], COLORS["black"]]
    for number, (label, values) in enumerate(distances.items()):
        steps = range(start + 1, start + 1 + len(values))
        axis.plot(
            steps,
            [max(v, floor) for v in values],
            color=colors[number % len(colors)],
            linestyle=["-", "--", "-.", ":", "-"][number % 5],
            marker="osD^v"[number % 5],
            markersize=3.5,
            label=label,
        )
    axis.set(yscale="log", xlabel="step", ylabel="largest difference of a weight")
    axis.set_yticks([1e-4, 1e-3, 1e-2, 1e-1], ["0.0001", "0.001", "0.01", "0.1"])
    axis.set_ylim(floor * 0.7, 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.text(start + 0.6, floor * 2.2, "exactly 0", fontsize=8.5, color=COLORS["grey"])
    legend(axis, columns=2, title="left out", alignment="left", title_fontsize=8.5)
    return drawing


ACCIDENTS = (
    "torch.save, disk full",
    "torch.save, killed",
    "save_checkpoint, disk full",
    "save_checkpoint, killed",
)


def accidents(folder: str | os.PathLike[str]) -> dict[str, tuple[str, str]]:
    """Overwrite a checkpoint four times, and interrupt each attempt in the middle of the file.

    For each of `torch.save` and `save_checkpoint`, the disk is full once, and the process is killed
    once. The operating system simulates both: a limit on the size of a file (`RLIMIT_FSIZE`) makes
    the write that exceeds it fail, or ends the process with a signal. A child process runs them.

    Returns:
        For each of `ACCIDENTS` how the attempt ended (`"error"`, `"killed"` or `"no error"`), and
        the state of `<folder>/<accident>.pt` after it (`"old"`, `"new"` or `"unreadable"`).

    Raises:
        OSError: the operating system has no such limit (Windows).
        RuntimeError: the child failed.
    """
    if not hasattr(os, "fork"):
        raise OSError("accidents needs a Unix system: it limits the size of a file")
    outcomes = child.call(_accidents, os.fspath(folder))
    return {name: tuple(outcome) for name, outcome in outcomes.items()}


def _accidents(folder: str) -> dict[str, tuple[str, str]]:
    """Run as the child of `accidents`: fork once for each accident, and print its result."""
    outcomes = {}
    for name in ACCIDENTS:
        path = Path(folder) / f"{name}.pt"
        torch.save({"epoch": 1, "weight": torch.zeros(1000)}, path)
        save = torch.save if name.startswith("torch.save") else save_checkpoint
        pid = os.fork()
        if pid == 0:
            _one_accident(save, path, kill=name.endswith("killed"))
        _, status = os.waitpid(pid, 0)
        failed = "error" if os.waitstatus_to_exitcode(status) == 1 else "no error"
        outcomes[name] = ("killed" if os.WIFSIGNALED(status) else failed, _epoch(path))
    return outcomes


def _one_accident(save: Callable[[Any, Path], None], path: Path, kill: bool) -> None:
    """Save 4 MB under a limit of 1 MB, and end this process."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
    code = 3
    try:
        save({"epoch": 2, "weight": torch.zeros(10**6)}, path)
        code = 0
    except (OSError, RuntimeError):
        code = 1
    finally:
        os._exit(code)


def _epoch(path: Path) -> str:
    try:
        return {1: "old", 2: "new"}[load_checkpoint(path)["epoch"]]
    except CheckpointError:
        return "unreadable"
