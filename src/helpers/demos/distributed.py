"""Figures and demonstrations of the chapter on distributed training."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from helpers import child
from helpers.figures import COLORS, Figure, figure, title

_CHINESE = {
    "one process, one thread per GPU": "一个进程，每块 GPU 一个线程",
    "process {}, GPU {}": "进程 {}，GPU {}",
    "GPU {}: model, optimizer": "GPU {}：模型、优化器",
    "GPU {}: replica, shard": "GPU {}：副本、一份数据",
    "model, optimizer": "模型、优化器",
    "its own shard": "自己的一份数据",
    "every step: weights and shards out,": "每一步：发出权重和数据，",
    "outputs and gradients back": "收回输出和梯度",
    "every step: the gradients are averaged,": "每一步：对梯度取平均，",
    "the buffers of rank {} are copied": "复制进程 {} 的 buffer",
}


def draw_processes() -> Figure:
    """Draw DataParallel and DistributedDataParallel side by side: what each stores and sends."""
    drawing, (left, right) = figure(2, size=(3.5, 2.9), chinese=_CHINESE)
    for axis, name in ((left, "DataParallel"), (right, "DistributedDataParallel")):
        title(axis, name, code=True)
        axis.axis("off")
        axis.set(xlim=(0, 10), ylim=(0, 10))
    _area(left, 0.1, 9.8, "one process, one thread per GPU")
    _box(left, 5, 7.2, "GPU 0: model, optimizer")
    for x, gpu in ((2.6, 0), (7.4, 1)):
        _box(left, x, 3.6, f"GPU {gpu}: replica, shard")
        _arrow(left, (0.5 * x + 2.5, 6.4), (x, 4.4), "<->")
    _note(left, "every step: weights and shards out,\noutputs and gradients back")
    for x, rank in ((2.5, 0), (7.5, 1)):
        _area(right, x - 2.35, 4.7, f"process {rank}, GPU {rank}")
        _box(right, x, 7.2, "its own shard")
        _arrow(right, (x, 6.4), (x, 4.4), "->")
        _box(right, x, 3.6, "model, optimizer")
    _arrow(right, (4.25, 3.6), (5.75, 3.6), "<->")
    _note(right, "every step: the gradients are averaged,\nthe buffers of rank 0 are copied")
    return drawing


def _area(axis: Any, x: float, width: float, title: str) -> None:
    from matplotlib.patches import Rectangle

    style = {
        "facecolor": COLORS["pale grey"],
        "alpha": 0.4,
        "edgecolor": COLORS["grey"],
        "linestyle": "--",
    }
    axis.add_patch(Rectangle((x, 2.2), width, 7.6, **style))
    axis.text(
        x + width / 2, 9.1, title, ha="center", va="center", fontsize=9, color=COLORS["black"]
    )


def _box(axis: Any, x: float, y: float, text: str) -> None:
    style = {
        "boxstyle": "round,pad=0.35",
        "facecolor": COLORS["pale blue"],
        "edgecolor": COLORS["grey"],
    }
    axis.text(x, y, text, ha="center", va="center", fontsize=8.5, color=COLORS["black"], bbox=style)


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], style: str) -> None:
    arrow = {"arrowstyle": style, "color": COLORS["orange"], "linewidth": 1.5}
    axis.annotate("", xy=end, xytext=start, arrowprops=arrow)


def _note(axis: Any, text: str) -> None:
    for row, line in enumerate(text.split("\n")):
        axis.text(5, 1.3 - 0.9 * row, line, ha="center", va="center", fontsize=9)


def launch(timeout: float = 200) -> list[dict[str, Any]]:
    """Run `helpers.ddp_worker` in two processes on the CPU; return their results by rank.

    Args:
        timeout: seconds until both are ended and the run counts as failed.

    Raises:
        RuntimeError: a process failed or timed out; the message ends with their output.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        worker = ["-m", "helpers.ddp_worker", folder]
        _torchrun([["--standalone", "--nproc-per-node=2", *worker]], folder, timeout)
        return [torch.load(Path(folder, f"rank{rank}.pt")) for rank in range(2)]


_NAMES = ("GROUP_RANK", "RANK", "LOCAL_RANK", "WORLD_SIZE")


_REPORT = (
    "import json, os, sys; "
    "open(os.path.join(sys.argv[1], os.environ['RANK'] + '.json'), 'w')"
    ".write(json.dumps({name: int(os.environ[name]) for name in sys.argv[2:]}))"
)


def two_machines(timeout: float = 100) -> list[dict[str, int]]:
    """Return the variables that torchrun sets when two machines start two processes each.

    Both machines are simulated by this one: two torchruns that meet at a port of the loopback.

    Returns:
        GROUP_RANK (the machine), RANK, LOCAL_RANK and WORLD_SIZE of each process, by RANK.

    Raises:
        RuntimeError: a process failed or timed out; the message ends with their output.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [
            *("--nnodes=2", "--nproc-per-node=2"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"),
            *("--no-python", sys.executable, "-c", _REPORT, folder, *_NAMES),
        ]
        _torchrun([command, command], folder, timeout)
        files = sorted(Path(folder).glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in files]


def _torchrun(commands: list[list[str]], folder: str, timeout: float) -> None:
    """Run torchrun once per command, all at the same time, and wait until all have succeeded."""
    logs = [Path(folder, f"torchrun{number}.log") for number in range(len(commands))]
    runs: list[subprocess.Popen] = []
    begun = time.monotonic()
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("w") as out:
                runs.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "torch.distributed.run"]
                        + ["--local-addr=127.0.0.1", *command],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        env=_environment(folder),
                    )
                )
        try:
            failed = any(
                run.wait(max(0.1, timeout - (time.monotonic() - begun))) != 0 for run in runs
            )
            what = "a process failed"
        except subprocess.TimeoutExpired:
            failed, what = True, f"not done after {timeout:g} s"
    finally:
        for run in runs:
            _end(run)
    if failed:
        output = "\n".join(log.read_text(errors="replace").strip()[-8000:] for log in logs)
        raise RuntimeError(f"torchrun: {what}\n{output}")


def _environment(folder: str) -> dict[str, str]:
    """Return this process's environment for a torchrun on the CPU that stays on this machine.

    Temporary files of torchrun go to `folder`.
    """
    own = ("PET_", "TORCHELASTIC_", "MASTER_")
    inherited = child.environment().items()
    env = {k: v for k, v in inherited if not k.startswith(own) and k not in _NAMES}
    env |= {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": folder,
        "TEMP": folder,
    }
    from helpers.ddp_worker import child_environment

    return env | child_environment()


def _end(run: subprocess.Popen) -> None:
    """Terminate a torchrun, which also ends its processes; a kill would orphan them."""
    if run.poll() is None:
        run.terminate()
        try:
            run.wait(15)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()


def start_errors() -> dict[str, str]:
    """Return the errors of three failing ways to start, in a few words of each message."""
    import torch.distributed as dist

    from helpers import distributed

    ours = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    bare = {key: value for key, value in os.environ.items() if key not in ours}

    def plain() -> None:
        with mock.patch.dict(os.environ, bare, clear=True):
            dist.init_process_group("gloo")

    def taken() -> None:
        with socket.socket() as other:
            other.bind(("", 0))
            other.listen()
            port = other.getsockname()[1]
            dist.TCPStore("127.0.0.1", port, 2, True, wait_for_workers=False)

    def twice() -> None:
        with distributed.alone():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    parts = {
        "python train.py": (plain, r"environment variable RANK expected, but not set"),
        "a taken port": (taken, r"(?i)EADDRINUSE|address already in use"),
        "called again": (twice, r"trying to initialize the default process group twice"),
    }
    errors = {}
    for name, (begin, words) in parts.items():
        try:
            begin()
            errors[name] = "nothing"
        except Exception as error:
            match = re.search(words, str(error))
            errors[name] = match[0] if match else str(error)
    return errors


def reported(main: Callable[[], object]) -> str:
    """Return the line `traceback` of torchrun's report when `main` fails in one of its processes.

    torchrun's own classes write the report; `main` runs in this process, as a child would.

    Raises:
        ValueError: `main` does not fail.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = str(Path(folder, "error.json"))
        with mock.patch.dict(os.environ, {"TORCHELASTIC_ERROR_FILE": file}):
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    main()
            except Exception:
                pass
            else:
                raise ValueError("main does not fail, so there is nothing to report")
        failure = ProcessFailure(local_rank=1, pid=1, exitcode=1, error_file=file)
        report = str(ChildFailedError("train.py", {1: failure}))
    lines = report[report.index("Root Cause") :].splitlines()
    begin = next(n for n, line in enumerate(lines) if line.strip().startswith("traceback"))
    texts = [line.strip() for line in lines[begin:] if line.strip(" =-_")]
    return texts[0] if len(texts) == 1 else f"{texts[0]} … {texts[-1]}"


def spawn(function: Callable[..., None], *arguments: Any, processes: int = 1) -> str:
    """Run `torch.multiprocessing.spawn`, and return its error and the last output as one line.

    Returns:
        `"done"`, or the error's type and message and the last line that the children wrote.
    """
    import torch.multiprocessing as mp

    with tempfile.TemporaryFile("w+") as output:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            mp.spawn(function, args=arguments, nprocs=processes)
            return "done"
        except Exception as error:
            output.seek(0)
            last = (output.read().strip().splitlines() or [""])[-1]
            return f"{type(error).__name__}: {error}\n{last.partition(' on <module')[0]}"
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def global_batches(epochs: int = 2) -> list[list[int]]:
    """Return the samples that the two processes of `ddp_train.train` use together, step by step."""
    from torch.utils.data import DistributedSampler

    from helpers.ddp_train import data

    steps = []
    for epoch in range(epochs):
        orders = []
        for rank in range(2):
            sampler = DistributedSampler(data(), num_replicas=2, rank=rank)
            sampler.set_epoch(epoch)
            orders.append(list(sampler))
        steps += [[*a, *b] for a, b in zip(*(_batches(order, 4) for order in orders), strict=True)]
    return steps


def _batches(order: list[int], size: int) -> list[list[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]
