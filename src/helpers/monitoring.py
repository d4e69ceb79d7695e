"""Helpers of the chapter on monitoring: visdom, TensorBoard, a logger, a quiet profiler.

Source: `torch.utils.tensorboard`, https://pytorch.org/docs/stable/tensorboard.html,
`torch.profiler`, https://pytorch.org/docs/stable/profiler.html, and visdom,
https://github.com/fossasia/visdom
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from helpers import checks

Sink = Callable[[str, int, float], None]
Curves = dict[str, list[tuple[int, float]]]


_INSTALL = (
    "visdom is not installed: pip install visdom==0.2.4 'tornado<6.6' "
    "(to build it, pip needs setuptools<81 in PIP_CONSTRAINT and PIP_BUILD_CONSTRAINT), "
    "or take it from conda-forge"
)

# The package's own entry point downloads scripts before it calls main(), and fails offline.
# The thread ends the server and removes its folder when the parent process has ended.
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
    """Running visdom server, created by `visdom_server`."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def kill(self) -> None:
        """Stop the server immediately, as a crash would."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def visdom_server(seconds: float = 60) -> Iterator[VisdomServer]:
    """Start a visdom server for the block: loopback only, a free port, no network.

    Its environments are stored in a temporary directory. It is stopped after the block, also after
    an error, and ends by itself if this process is killed.

    Args:
        seconds: how long to wait until it listens.

    Raises:
        ModuleNotFoundError: visdom is not installed; the message names the package.
        RuntimeError: the server did not start; the message ends with its last lines of output.
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
    reason = f"did not listen within {seconds:g} seconds"
    while time.monotonic() < end:
        if process.poll() is not None:
            reason = "ended before it listened"
            break
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=0.2),
        ):
            return
        time.sleep(0.05)
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()[-5:]
    raise RuntimeError(f"the visdom server {reason}; it wrote:\n" + "\n".join(lines or ["nothing"]))


class VisdomSink:
    """Sink that draws numbers in visdom: `Loss/train` is the line `train` of the window `Loss`.

    Infinite numbers leave a gap, like nan: sent as they are, they freeze the window permanently.

    Args:
        port: port of a server on this machine.
        env: the environment to draw in.
        seconds: how long to wait for a response. The client itself has no timeout.

    Raises:
        ModuleNotFoundError: visdom is not installed; the message names the package.
        ConnectionError: no server responds. Calls raise it, too, once the server has ended.
    """

    def __init__(self, port: int = 8097, env: str = "main", seconds: float = 5) -> None:
        if importlib.util.find_spec("visdom") is None:
            raise ModuleNotFoundError(_INSTALL)
        import logging

        import requests
        import visdom

        class Session(requests.Session):
            def request(self, method: str, url: str, **options: Any) -> requests.Response:
                self.trust_env = False  # ignore http_proxy: the server is on this machine
                answer = super().request(method, url, **options | {"timeout": seconds})
                answer.raise_for_status()
                return answer

        class Client(visdom.Visdom):
            session = Session()

            def win_exists(self, win: str, env: str | None = None) -> bool:
                with contextlib.redirect_stdout(io.StringIO()):  # visdom prints errors
                    exists = super().win_exists(win, env)
                if exists is None:
                    raise ConnectionError("Error connecting to Visdom server")
                return exists

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
    """Return the lines of a visdom window, as stored by the server: (x, y) by name.

    Args:
        vis: a `visdom.Visdom` that is connected.
        window: the window's name. The result is empty if there is no such window.

    Raises:
        ConnectionError: no server responds.
    """
    exists = vis.win_exists(window)
    if exists is None:
        raise ConnectionError("no visdom server responds")
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
    """Sink that writes numbers to an event file in `folder`, for TensorBoard.

    Raises:
        TypeError: `folder` is not a path.
        OSError: the file could not be written, for example because the disk is full. TensorBoard
            writes in a separate thread, so a call may report the error of an earlier one.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        folder = os.fspath(folder)
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder)

    def __call__(self, tag: str, step: int, value: float) -> None:
        """Append one point."""
        self.writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Write pending points and close the file."""
        self.writer.close()


def read_scalars(folder: str | os.PathLike) -> Curves:
    """Return all scalars of the event files in `folder`: (step, value) by tag, in writing order.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    if not Path(folder).exists():
        raise FileNotFoundError(f"no folder {folder}")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), {"scalars": 0, "tensors": 0})  # 0: keep them all
    events.Reload()
    curves = {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    for tag in events.Tags()["tensors"]:  # `add_scalar(…, new_style=True)` and TensorFlow
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            points = events.Tensors(tag)
            curves[tag] = [(e.step, make_ndarray(e.tensor_proto).item()) for e in points]
    return curves


# ---------------------------------------------------------------- a logger that survives


class Logger:
    """Logger that stores a run's numbers and sends them to sinks; a failing sink is only dropped.

    Every number is stored in `curves` first. A sink that raises is reported by one warning and then
    dropped, so that a stopped server costs one timeout and not one per step. `KeyboardInterrupt` is
    raised. Under `-W error` the warning becomes an error, as requested.

    Args:
        sinks: called with tag, step and value; closed by `close` if they have such a method.

    Raises:
        TypeError: a sink cannot be called, or is a class instead of an object.
    """

    def __init__(self, *sinks: Sink) -> None:
        self.sinks: list[Sink] = [_sink(sink) for sink in sinks]
        self.curves: Curves = {}

    def log(self, step: int, values: Mapping[str, float | Tensor]) -> None:
        """Store `values` by tag and send them to the sinks.

        A tensor or array of one element is read, which synchronizes with the GPU that computes it.
        A value that is not a single number is left out with a warning.

        Raises:
            TypeError: `step` is not a number, or `values` is not a mapping.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"expected log(step, values), got {type(values).__name__} as values")
        checks.number("step", step)
        for tag, value in values.items():
            try:
                if isinstance(value, str | bytes):
                    raise TypeError
                number = float(value.item() if hasattr(value, "item") else value)
            except (TypeError, ValueError, RuntimeError, OverflowError):
                shaped = isinstance(value, Tensor) and value.dim()
                what = tuple(value.shape) if shaped else repr(value)
                self._warn(f"{tag} is not one number but {what}; it was not logged")
                continue
            self.curves.setdefault(tag, []).append((step, number))
            for sink in list(self.sinks):
                self._send(sink, tag, step, number)

    def replay(self, sink: Sink) -> None:
        """Send all numbers so far to `sink`, and register it once for later ones.

        Raises:
            TypeError: `sink` cannot be called, or is a class instead of an object.
        """
        if _sink(sink) not in self.sinks:
            self.sinks.append(sink)
        for tag, points in self.curves.items():
            for step, number in points:
                if sink in self.sinks:
                    self._send(sink, tag, step, number)

    def close(self) -> None:
        """Close the sinks; a sink that cannot be closed is reported by a warning."""
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
            "It gets no more values; the training continues, and `curves` contains all values."
        )

    def _warn(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _sink(sink: Any) -> Sink:
    if isinstance(sink, type) or not callable(sink):
        got = f"the class {sink.__name__}" if isinstance(sink, type) else type(sink).__name__
        raise TypeError(f"a sink must be a function or an object to call, got {got}")
    return sink


# ---------------------------------------------------------------- profiler


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard the output to file descriptor 2 (stderr) inside the block.

    The profiler's native library writes there on some builds, below Python's level. In a script,
    Python's own stderr is discarded, too, as is the warning of older versions that events are
    cleared after each cycle.
    """
    sys.stderr.flush()
    original = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
            yield
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)
        os.close(nothing)
