"""Helpers of the chapter "Watch a training run".

Source: `torch.utils.tensorboard`, https://pytorch.org/docs/stable/tensorboard.html,
`torch.profiler`, https://pytorch.org/docs/stable/profiler.html, and visdom,
https://github.com/fossasia/visdom
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sink = Callable[[str, int, float], None]
Curves = dict[str, list[tuple[int, float]]]

PAGE_PICTURE = Path(__file__).parent / "pictures" / "visdom-page.png"
"""Visdom's page with the chapter's run, as Chromium showed it; by tests/helpers/visdom_page.py."""

_INSTALL = (
    "visdom is not installed: pip install visdom==0.2.4 'tornado<6.6' "
    "(to build it, pip needs setuptools<81 in PIP_CONSTRAINT and PIP_BUILD_CONSTRAINT), "
    "or take it from conda-forge"
)

# The package's own entry point downloads scripts before it calls main(), and dies offline.
# The thread ends the server, and its folder, when its parent is gone, however that ended.
_SERVE = """
import os, shutil, sys, threading
def follow():
    sys.stdin.buffer.read()
    shutil.rmtree(sys.argv[sys.argv.index("-env_path") + 1], ignore_errors=True)
    os._exit(0)
threading.Thread(target=follow, daemon=True).start()
sys.modules["torch"] = None  # visdom would import it, and a server has no tensors
from visdom.server.run_server import main
main()
"""


# ---------------------------------------------------------------- visdom


class VisdomServer:
    """A running visdom server; made by `visdom_server`."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def kill(self) -> None:
        """Stop the server at once, as a crash would."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def visdom_server(seconds: float = 60) -> Iterator[VisdomServer]:
    """A visdom server of your own: loopback only, a free port, nothing kept, no network.

    Its environments live in a temporary directory. It is stopped when the block ends, also after
    an error, and it stops by itself when this process dies.

    Args:
        seconds: how long to wait until it listens.

    Raises:
        ModuleNotFoundError: visdom is not installed; the message says what to install.
        RuntimeError: the server did not start; the message ends with the last lines it wrote.
    """
    if importlib.util.find_spec("visdom") is None:
        raise ModuleNotFoundError(_INSTALL)
    with tempfile.TemporaryDirectory(prefix="visdom-", ignore_cleanup_errors=True) as folder:
        port = _free_port()
        with open(Path(folder) / "stderr", "w+b") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, "-port", str(port), "-bind_local"]
                + ["-env_path", folder, "-logging_level", "WARNING"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "HOME": folder, "USERPROFILE": folder},
            )
            try:
                _wait_for(process, port, seconds, errors)
                yield VisdomServer(process, port)
            finally:
                process.kill()
                process.wait()
                process.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(process: subprocess.Popen, port: int, seconds: float, errors: Any) -> None:
    end = time.monotonic() + seconds
    why = f"did not listen within {seconds:g} seconds"
    while time.monotonic() < end:
        if process.poll() is not None:
            why = "ended before it listened"
            break
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=0.2),
        ):
            return
        time.sleep(0.05)
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip().splitlines()[-5:]
    raise RuntimeError(f"the visdom server {why}; it wrote:\n" + "\n".join(said or ["nothing"]))


class VisdomSink:
    """Draws numbers in visdom: `Loss/train` becomes the line `train` of the window `Loss`.

    Infinite numbers leave a gap, as NaN does: sent as they are, they freeze the window for good.

    Args:
        port: where a server listens on this machine.
        env: the environment to draw in.
        seconds: how long to wait for an answer. The client itself would wait without end.

    Raises:
        ModuleNotFoundError: visdom is not installed; the message says what to install.
        ConnectionError: no server answers there; so do calls once the server is gone.
    """

    def __init__(self, port: int = 8097, env: str = "main", seconds: float = 5) -> None:
        if importlib.util.find_spec("visdom") is None:
            raise ModuleNotFoundError(_INSTALL)
        import logging

        import visdom

        class Client(visdom.Visdom):
            def _handle_post(self, url: str, data: Any = None) -> str:
                self.session.trust_env = False  # loopback, whatever http_proxy says
                answer = self.session.post(url, data=data or {}, timeout=seconds)
                answer.raise_for_status()
                return answer.text

            def win_exists(self, win: str, env: str | None = None) -> bool:
                return self._win_exists_wrap(win, env) == "true"  # visdom's own prints errors

        logging.getLogger("visdom").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.vis = Client(
                server="http://127.0.0.1",
                port=port,
                env=env,
                use_incoming_socket=False,
                raise_exceptions=True,
            )

    def __call__(self, tag: str, step: int, value: float) -> None:
        """Append one point."""
        import numpy as np

        window, _, line = tag.rpartition("/")
        window = window or line
        self.vis.line(
            X=np.array([step]),
            Y=np.array([value if math.isfinite(value) else math.nan]),
            win=window,
            name=line,
            update="append",
            opts={"title": window, "xlabel": "Epoch", "showlegend": True},
        )


def read_window(vis: Any, window: str) -> Curves:
    """The lines of a visdom window, as the server holds them: (x, y) by name.

    Args:
        vis: a `visdom.Visdom` that is connected.
        window: the window's name. If there is no such window, the answer is empty.

    Raises:
        ConnectionError: no server answers.
    """
    exists = vis.win_exists(window)
    if exists is None:
        raise ConnectionError("no visdom server answers")
    if not exists:
        return {}
    lines = json.loads(vis.get_window_data(window))["content"]["data"]
    return {
        line["name"]: [
            (int(x), math.nan if y is None else y)
            for x, y in zip(line["x"], line["y"], strict=True)
        ]
        for line in lines
    }


# ---------------------------------------------------------------- TensorBoard


class TensorBoardSink:
    """Writes numbers to an event file in `folder`, for TensorBoard.

    Raises:
        OSError: the file could not be written, for example because the disk is full. TensorBoard
            writes in a thread of its own, so that a call reports what happened to an earlier one.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def __call__(self, tag: str, step: int, value: float) -> None:
        """Append one point."""
        self.writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Write what waits and close the file."""
        self.writer.close()


def read_scalars(folder: str | os.PathLike) -> Curves:
    """All scalars of the event files in `folder`, in the order of writing: (step, value) by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # 0: keep them all
    events.Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


# ---------------------------------------------------------------- a logger that survives


class Logger:
    """Keeps a run's numbers and sends them on; a sink that fails never stops the training.

    Every number goes to `curves` first. A sink that raises gets one warning and nothing more, so
    that a dead server costs one timeout and not one per step. `KeyboardInterrupt` passes.
    Under `-W error` the warning is an error, as asked.

    Args:
        sinks: called with tag, step and value; closed by `close` if they have such a method.
    """

    def __init__(self, *sinks: Sink) -> None:
        self.sinks: list[Sink] = list(sinks)
        self.curves: Curves = {}

    def log(self, step: int, values: Mapping[str, float | Tensor]) -> None:
        """Keep `values` by tag and send them to the sinks.

        A tensor of one element is read, which waits for the GPU that computes it.
        What is not one number is left out with a warning.
        """
        for tag, value in values.items():
            try:
                number = value.item() if isinstance(value, Tensor) else float(value)
            except (TypeError, ValueError, RuntimeError):
                what = tuple(value.shape) if isinstance(value, Tensor) else repr(value)
                self._warn(f"{tag} is not one number but {what}; it was not logged")
                continue
            self.curves.setdefault(tag, []).append((step, number))
            for sink in list(self.sinks):
                self._send(sink, tag, step, number)

    def replay(self, sink: Sink) -> None:
        """Send all numbers so far to `sink`, and the coming ones too."""
        self.sinks.append(sink)
        for tag, points in self.curves.items():
            for step, number in points:
                if sink in self.sinks:
                    self._send(sink, tag, step, number)

    def close(self) -> None:
        """Close the sinks; one that cannot be closed is a warning too."""
        for sink in list(self.sinks):
            try:
                getattr(sink, "close", lambda: None)()
            except Exception as error:
                self._drop(sink, error)

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, sink: Sink, tag: str, step: int, number: float) -> None:
        try:
            sink(tag, step, number)
        except Exception as error:
            self._drop(sink, error)

    def _drop(self, sink: Sink, error: Exception) -> None:
        self.sinks.remove(sink)
        name = getattr(sink, "__name__", type(sink).__name__)
        self._warn(
            f"{name} failed with {type(error).__name__}: {error}. "
            "It gets no more numbers; training goes on, and `curves` keeps them all."
        )

    def _warn(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def train(epochs: int, seed: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
    """Fit a small network to a noisy sine on the CPU and yield after each epoch what to watch.

    Yields:
        The epoch, counted from 1, and `Loss/train`, `Loss/val` and `lr`.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(256, 1, generator=generator) * 4 - 2
    y = torch.sin(2 * x) + 0.1 * torch.randn(256, 1, generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(192, generator=generator).split(16):
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        lr = scheduler.get_last_lr()[0]
        scheduler.step()
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x[192:]), y[192:]).item()
        yield epoch, {"Loss/train": total / 192, "Loss/val": val, "lr": lr}


def draw_outage(kept: Sequence[tuple[int, float]], shown: Sequence[tuple[int, float]]) -> Figure:
    """Draw a curve, with a filled mark for each point that a server held before it died.

    Args:
        kept: all points, (step, value).
        shown: those that were read back from the server.

    Raises:
        ValueError: `kept` is empty, or `shown` has a step that `kept` has not.
    """
    import matplotlib.pyplot as plt

    steps = [step for step, _ in kept]
    if not kept or not {step for step, _ in shown} <= set(steps):
        raise ValueError(f"expected the steps of the server among {steps}, got {list(shown)}")
    lost = [(step, value) for step, value in kept if step not in dict(shown)]
    figure, axis = plt.subplots(figsize=(7, 2.8))
    axis.plot(*zip(*kept, strict=True), color="#555", linewidth=1)
    for points, face, label in (
        (shown, "#0a6b7d", "read back from the server"),
        (lost, "white", "in curves only"),
    ):
        if points:
            axis.plot(
                *zip(*points, strict=True),
                linestyle="none",
                marker="o",
                color="#0a6b7d",
                markerfacecolor=face,
                label=label,
            )
    if shown and lost:
        death = (shown[-1][0] + lost[0][0]) / 2
        axis.axvline(death, color="#c2410c", linestyle="--", linewidth=1.5, label="server killed")
    axis.set(xlabel="epoch", ylabel="training loss", ylim=(0, None), xticks=steps)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- profiler


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave out what is written to file descriptor 2 (stderr) in this block.

    The profiler's native library reports there on some builds, below Python's reach. In a script
    Python's own stderr goes the same way. The warning that older versions give with every profile,
    that events are cleared after each cycle, is left out too.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
            yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


# ---------------------------------------------------------------- exercises


def check_never_fatal(answer: Callable[[Sink], Sink]) -> Verdict:
    """Check `answer(send)`: sends on, warns once when `send` fails, leaves it alone from then on.

    `send` takes a tag, a step and a value. `KeyboardInterrupt` must pass.
    """

    def wrap(f: Callable[[Sink], Sink], send: Sink) -> Sink:
        safe = f(send)
        assert callable(safe), f"expected a function, got {type(safe).__name__}"
        return safe

    def passes(f: Callable[[Sink], Sink]) -> None:
        points = [("loss", step, random.random()) for step in range(random.randint(2, 9))]
        got: list[tuple] = []
        safe = wrap(f, lambda *point: got.append(point))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for point in points:
                safe(*point)
        assert got == points, f"of {len(points)} points, {len(got)} arrived as they were sent"
        assert not warned, "it warns although nothing failed"

    def survives(f: Callable[[Sink], Sink]) -> None:
        dies, after = random.randint(0, 4), random.randint(2, 5)
        calls = []

        def send(tag: str, step: int, value: float) -> None:
            calls.append(step)
            if step >= dies:
                raise random.choice([ConnectionError, OSError, ValueError])("the server is gone")

        safe = wrap(f, send)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for step in range(dies + after):
                try:
                    safe("loss", step, 0.0)
                except Exception:
                    raise AssertionError("a failing sink still stops the training") from None
        assert warned, "the sink failed and nobody was told"
        assert len(calls) == dies + 1, "a sink that has failed is called again, a timeout each time"
        assert len(warned) == 1, f"one failure, and {len(warned)} warnings"

    def interrupts(f: Callable[[Sink], Sink]) -> None:
        def send(*_: object) -> None:
            raise KeyboardInterrupt

        safe = wrap(f, send)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                safe("loss", 0, 0.0)
        except KeyboardInterrupt:
            return
        raise AssertionError("Ctrl-C is swallowed: catch Exception, not everything")

    return verdict(answer, [passes, survives, interrupts])


def check_smooth(answer: Callable[[list[float], float], Sequence[float]]) -> Verdict:
    """Check `answer(values, weight)`: the moving average that TensorBoard's slider draws.

    The average starts at 0 and moves by `a = weight * a + (1 - weight) * value`; what is shown
    after `n` values is `a / (1 - weight**n)`. `weight` is in [0, 1).
    """

    def draw() -> tuple[list[float], float]:
        count = random.randint(3, 12)
        return [random.uniform(1, 3) for _ in range(count)], random.uniform(0.5, 0.95)

    def shown(f: Callable, values: list[float], weight: float) -> list[float]:
        before = list(values)
        got = f(values, weight)
        assert isinstance(got, Sequence), f"expected a list, got {type(got).__name__}"
        assert values == before, "the values that came in were changed"
        assert len(got) == len(values), f"expected {len(values)} values, got {len(got)}"
        return list(got)

    def near(a: float, b: float) -> bool:
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)

    def constant(f: Callable) -> None:
        values, weight = draw()
        flat = [values[0]] * len(values)
        got = shown(f, flat, weight)
        assert all(map(near, got, flat)), "a flat curve does not stay flat: divide by 1 - weight**n"

    def formula(f: Callable) -> None:
        values, weight = draw()
        average, right = 0.0, []
        for n, value in enumerate(values, 1):
            average = weight * average + (1 - weight) * value
            right.append(average / (1 - weight**n))
        got = shown(f, values, weight)
        wrong = [n for n, (a, b) in enumerate(zip(got, right, strict=True), 1) if not near(a, b)]
        assert not wrong, (
            f"value {wrong[0]} is {got[wrong[0] - 1]:.4f} and not {right[wrong[0] - 1]:.4f}"
        )

    def nothing(f: Callable) -> None:
        values, _ = draw()
        assert all(map(near, shown(f, values, 0.0), values)), "weight 0 must change nothing"

    return verdict(answer, [constant, formula, nothing])


def check_count_calls(answer: Callable[[Callable[[], Any], str], int]) -> Verdict:
    """Check `answer(function, operator)`: how often `operator` runs while `function()` does.

    `operator` is the name that the profiler gives it, such as `"aten::linear"`.
    """

    def task() -> tuple[Callable[[], Any], int, int]:
        layers, times = random.randint(2, 4), random.randint(2, 4)
        net = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(layers)))
        x = torch.randn(2, 3)

        def work() -> None:
            for _ in range(times):
                net(x)

        return work, layers, times

    def count(f: Callable, work: Callable[[], Any], operator: str) -> int:
        ran = []

        def function() -> None:
            ran.append(1)
            work()

        with quiet():
            got = f(function, operator)
        assert ran, "the function was never called"
        assert len(ran) == 1, f"the function was called {len(ran)} times"
        assert type(got) is int, f"expected an int, got {type(got).__name__}"
        return got

    def linears(f: Callable) -> None:
        work, layers, times = task()
        for operator in ("aten::linear", "aten::relu"):
            got = count(f, work, operator)
            assert got == layers * times, (
                f"{layers} layers called {times} times make {layers * times} {operator}, not {got}"
            )

    def absent(f: Callable) -> None:
        work, _, _ = task()
        got = count(f, work, "aten::conv2d")
        assert got == 0, f"nothing is convolved, expected 0, got {got}"

    return verdict(answer, [linears, absent])
