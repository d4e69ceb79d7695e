"""Test the helpers of `monitoring` with a real visdom server and failing sinks; the checkers."""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts import expect

from helpers import monitoring
from helpers.demos import monitoring as demos
from helpers.exercises import monitoring as exercises

_spec = importlib.util.spec_from_file_location(
    "visdom_page", Path(__file__).with_name("visdom_page.py")
)
visdom_page = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(visdom_page)


@pytest.fixture(scope="module")
def server():
    with monitoring.visdom_server() as running:
        yield running


needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def gone(pid, seconds=10):
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


def close_to(curve):
    """Return a curve equal to this one within float32 precision."""
    return [(step, pytest.approx(value, rel=1e-6)) for step, value in curve]


# ---------------------------------------------------------------- the server


@needs_proc
def test_server_listens_only_on_loopback(server):
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    addresses = {row[1] for row in listening if row[1].endswith(f":{server.port:04X}")}
    assert addresses >= {f"0100007F:{server.port:04X}"}
    assert f"00000000:{server.port:04X}" not in addresses
    v6 = Path("/proc/net/tcp6")
    assert not v6.exists() or f":{server.port:04X} 0000" not in v6.read_text()


def test_server_stops_after_an_error_and_removes_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(monitoring.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyError), monitoring.visdom_server() as running:
        folder = next(tmp_path.iterdir())
        assert folder.name.startswith("visdom-")
        raise KeyError
    assert running.process.returncode is not None and not list(tmp_path.iterdir())


@needs_proc
def test_server_stops_with_its_parent_process(tmp_path):
    code = """
        import os
        from helpers import monitoring
        with monitoring.visdom_server() as server:
            print(server.process.pid, flush=True)
            os._exit(1)  # no block is left in order
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        timeout=90,
    )
    assert done.returncode == 1 and gone(int(done.stdout))
    assert not list(tmp_path.glob("visdom-*"))


@pytest.mark.parametrize(
    ("code", "seconds", "says"),
    [
        (
            "import sys; print('one'); sys.exit('address already in use')",
            60,
            "ended before it listened; it wrote:\naddress already in use$",
        ),
        ("import no_such_module", 60, "No module named 'no_such_module'$"),
        (
            "import sys, time; print('slow', file=sys.stderr, flush=True); time.sleep(60)",
            2,
            "did not listen within 2 seconds; it wrote:\nslow$",
        ),
        ("raise SystemExit(3)", 60, "it wrote:\nnothing$"),
    ],
)
def test_failed_server_start_raises_with_its_output(monkeypatch, code, seconds, says):
    started = []
    popen = subprocess.Popen

    def remember(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(monitoring, "_SERVE", code)
    monkeypatch.setattr(monitoring.subprocess, "Popen", remember)
    with pytest.raises(RuntimeError, match=says), monitoring.visdom_server(seconds):
        pytest.fail("it started")
    assert started[0].returncode is not None


def test_missing_visdom_error_names_the_packages(monkeypatch):
    monkeypatch.setattr(monitoring.importlib.util, "find_spec", lambda name: None)
    for start in (lambda: monitoring.visdom_server().__enter__(), monitoring.VisdomSink):
        with pytest.raises(
            ModuleNotFoundError, match=r"pip install visdom==0\.2\.4 'tornado<6\.6'"
        ):
            start()


def test_visdom_server_start_requires_network_access(tmp_path):
    """Run the server's first step, the script download, with every proxy set to a closed port."""
    closed = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    code = (
        "import sys; sys.modules['torch'] = None\n"  # as the server does
        "from visdom.server.build import download_scripts\n"
        f"download_scripts(install_dir={str(tmp_path)!r})\nprint('came up')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **closed, "no_proxy": "", "NO_PROXY": ""},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode != 0 and "came up" not in done.stdout
    assert "ProxyError" in done.stderr


# ---------------------------------------------------------------- curves in visdom


def test_logged_run_appears_live_and_can_be_read(server):
    sink = monitoring.VisdomSink(server.port, env="live")
    with monitoring.Logger(sink) as logger:
        for epoch, values in demos.train(epochs=4):
            logger.log(epoch, values)
            seen = monitoring.read_window(sink.vis, "Loss")
            assert [x for x, _ in seen["val"]] == list(range(1, epoch + 1))
    assert seen == {name: close_to(logger.curves[f"Loss/{name}"]) for name in ("train", "val")}
    assert monitoring.read_window(sink.vis, "lr") == {"lr": close_to(logger.curves["lr"])}
    assert monitoring.read_window(sink.vis, "no such window") == {}


def test_infinite_values_become_gaps_and_window_stays_valid(server):
    sink = monitoring.VisdomSink(server.port, env="gap")
    for step, value in enumerate([1.0, math.inf, -math.inf, math.nan, 2.0]):
        sink("a/b/c", step, value)
    text = sink.vis.get_window_data("a/b")
    assert "Infinity" not in text and "NaN" not in text
    points = monitoring.read_window(sink.vis, "a/b")["c"]
    assert [x for x, _ in points] == [0, 1, 2, 3, 4]
    assert np.allclose([y for _, y in points], [1, *[math.nan] * 3, 2], equal_nan=True)


def test_visdom_sink_ignores_proxy_variables(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    sink = monitoring.VisdomSink(server.port, env="proxy")
    sink("loss", 1, 0.5)
    assert monitoring.read_window(sink.vis, "loss") == {"loss": [(1, 0.5)]}


def test_visdom_sends_all_requests_through_its_session(server, monkeypatch):
    import requests

    sink = monitoring.VisdomSink(server.port, env="session", seconds=7)
    asked = []
    request = requests.Session.request

    def listen(self, method, url, **options):
        asked.append((method, url.removeprefix(server.url), options.get("timeout")))
        return request(self, method, url, **options)

    monkeypatch.setattr(requests.Session, "request", listen)
    sink("loss", 1, 0.5)
    assert asked == [("POST", "/win_exists", 7), ("POST", "/events", 7)], (
        "visdom no longer posts through `session`, where VisdomSink sets the timeout, leaves out "
        "proxies and rejects error pages"
    )


def test_server_error_page_raises(server):
    sink = monitoring.VisdomSink(server.port, env="error")
    with pytest.raises(ConnectionError):
        sink.vis._send({}, endpoint="no_such_endpoint")


def run_with(logger, epochs=6, after=None):
    """Train to the end and return the warnings."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        done = 0
        for epoch, values in demos.train(epochs=epochs):
            logger.log(epoch, values)
            if epoch == 3 and after:
                after()
            done = epoch
    assert done == epochs and all(len(c) == epochs for c in logger.curves.values())
    return [str(w.message) for w in caught if w.category is RuntimeWarning]


def test_training_continues_when_the_server_hangs_or_dies(tmp_path, capsys):
    with monitoring.visdom_server() as doomed:
        if hasattr(signal, "SIGSTOP"):  # a hanging server costs one timeout, not one per number
            sink, ended = monitoring.VisdomSink(doomed.port, env="stuck", seconds=1), []
            request = sink.vis.session.request

            def listen(*args, **options):
                ended.append("no answer")
                answer = request(*args, **options)
                ended[-1] = "answer"
                return answer

            sink.vis.session.request = listen
            text = run_with(
                monitoring.Logger(sink), after=lambda: doomed.process.send_signal(signal.SIGSTOP)
            )
            assert ended[-2:] == ["answer", "no answer"] and ended.count("no answer") == 1
            assert len(text) == 1 and "VisdomSink failed" in text[0]
            doomed.process.send_signal(signal.SIGCONT)

        visdom = monitoring.VisdomSink(doomed.port, env="doomed")
        files = monitoring.TensorBoardSink(tmp_path)
        logger = monitoring.Logger(visdom, files)
        text = run_with(logger, after=doomed.kill)
    assert len(text) == 1 and text[0].startswith("VisdomSink failed with ConnectionError")
    assert "training continues" in text[0] and logger.sinks == [files]
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ConnectionError):
        monitoring.read_window(visdom.vis, "Loss")
    logger.close()
    saved = monitoring.read_scalars(tmp_path)  # the other sink got everything
    assert saved == {tag: close_to(c) for tag, c in logger.curves.items()}


def test_read_window_raises_when_the_server_is_down():
    import visdom

    vis = visdom.Visdom(offline=True, log_to_filename=os.devnull)
    vis.win_exists = lambda window: None  # its result when no server responds
    with pytest.raises(ConnectionError, match="no visdom server responds"):
        monitoring.read_window(vis, "Loss")


def test_visdom_sink_without_a_server_raises_immediately():
    with pytest.raises(ConnectionError):
        monitoring.VisdomSink(monitoring._free_port())


# ---------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def browser(chromium):
    """Yield a separate browser, because one of its pages freezes."""
    launched = chromium()
    yield launched
    launched.close()


def test_installed_page_is_blank_but_server_has_the_data(server, browser):
    """The package lacks React, jQuery and Plotly, so nothing is drawn; the server has the curve."""
    sink = monitoring.VisdomSink(server.port, env="bare")
    for step, value in ((1, 0.5), (2, 0.25)):
        sink("Loss/train", step, value)
    page, absent, errors = visdom_page.open_page(browser, server.url, scripts=False)
    answer = page.goto(f"{server.url}/env/bare")
    page.wait_for_load_state("load")
    assert (answer.status, page.title()) == (200, "visdom")
    read = """() => fetch("/win_data", {method: "POST",
        body: JSON.stringify({win: "Loss", eid: "bare"})}).then(r => r.json())"""
    line = page.evaluate(read)["content"]["data"][0]
    assert (line["name"], line["x"], line["y"]) == ("train", [1, 2], [0.5, 0.25])
    if not absent:
        pytest.skip("this visdom has downloaded its scripts, so its page is complete")
    assert {"js/react-react.min.js", "js/plotly-plotly.min.js", "js/jquery.min.js"} <= {*absent}
    assert "$ is not defined" in errors and page.evaluate(visdom_page.LINES) == []
    page.close()


def need_page_scripts():
    if lost := visdom_page.missing():
        reason = (
            f"visdom's page was NOT tested: {lost[0]} is not in {visdom_page.FOLDER}; "
            "run python tests/helpers/visdom_page.py --fetch"
        )
        if os.environ.get("REQUIRE_VISDOM_PAGE") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def test_page_updates_the_curve_during_training(server, browser):
    need_page_scripts()
    sink = monitoring.VisdomSink(server.port, env="page")
    page, absent, errors = visdom_page.open_page(browser, server.url, scripts=True)
    page.goto(f"{server.url}/env/page")
    logger = monitoring.Logger(sink)
    for epoch, values in demos.train(epochs=3):
        logger.log(epoch, values)
        steps = json.dumps(list(range(1, epoch + 1)), separators=(",", ":"))
        page.wait_for_function(f"JSON.stringify({visdom_page.LINES}).split('{steps}').length == 4")
    drawn = {name: list(zip(x, y, strict=True)) for p in page.evaluate(visdom_page.LINES)
             for name, x, y in p}  # fmt: skip
    assert drawn == {
        tag.rpartition("/")[2]: close_to(curve) for tag, curve in logger.curves.items()
    }
    lines = "document.querySelectorAll('.scatterlayer .js-line').length"
    page.wait_for_function(f"{lines} == 3")  # Plotly draws a moment after it has the data
    assert not errors
    assert all("mathjax" in name for name in absent)
    page.close()


def test_infinity_freezes_the_page_unless_the_sink_filters_it(server, browser):
    need_page_scripts()
    sink = monitoring.VisdomSink(server.port, env="frozen")
    sink("raw", 1, 1.0)
    page, _, errors = visdom_page.open_page(browser, server.url, scripts=True)
    page.goto(f"{server.url}/env/frozen")
    page.wait_for_function(f"JSON.stringify({visdom_page.LINES}).includes('raw')")
    sink("good", 1, math.inf)
    sink("good", 2, 2.0)
    page.wait_for_function(f"JSON.stringify({visdom_page.LINES}).includes('[1,2],[null,2]')")
    assert not errors
    point = {"X": np.array([2]), "Y": np.array([math.inf]), "win": "raw", "name": "raw"}
    sink.vis.line(**point, update="append")
    sink("raw", 3, 1.0)
    sink("good", 3, 3.0)  # points are drawn in order: once this one is there, so is the one before
    page.wait_for_function(f"JSON.stringify({visdom_page.LINES}).includes('[1,2,3],[null,2,3]')")
    raw = [line for plot in page.evaluate(visdom_page.LINES) for line in plot if line[0] == "raw"]
    assert raw == [["raw", [1], [1]]]
    assert errors and all("Infinity" in e and "not valid JSON" in e for e in errors)
    page.reload()
    page.wait_for_function(f"JSON.stringify({visdom_page.LINES}).includes('good')")
    assert "raw" not in json.dumps(page.evaluate(visdom_page.LINES))
    page.close()


def test_page_picture_is_small_and_shows_the_curve():
    from PIL import Image

    with Image.open(demos.PAGE_PICTURE) as picture:
        assert picture.format == "PNG" and picture.size == (960, 420)
        colors = {color for _, color in picture.convert("RGB").getcolors()}
    assert demos.PAGE_PICTURE.stat().st_size < 40_000
    blue = min(math.dist(color, (31, 119, 180)) for color in colors)  # Plotly's first line
    assert blue < 20 and len(colors) > 10


# ---------------------------------------------------------------- TensorBoard


def test_read_scalars_returns_all_points_without_sampling(tmp_path):
    sink = monitoring.TensorBoardSink(tmp_path)
    for step in range(10_020):
        sink("a", step, step / 2)
    sink.close()
    assert monitoring.read_scalars(tmp_path) == {"a": [(s, s / 2) for s in range(10_020)]}


@pytest.mark.parametrize(("samples", "shown"), [(0, 0), (5, 5), (100, 12)])
def test_tensorboard_shows_at_most_the_given_number_of_samples(tmp_path, samples, shown):
    from tensorboard import context
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    sink = monitoring.TensorBoardSink(tmp_path)
    for step in range(12):
        sink("a", step, step / 2)
    sink.close()
    events = EventMultiplexer(tensor_size_guidance={"scalars": samples})
    events.AddRunsFromDirectory(str(tmp_path))
    events.Reload()
    points = MultiplexerDataProvider(events, str(tmp_path)).read_scalars(
        context.RequestContext(), experiment_id="", plugin_name="scalars", downsample=samples
    )
    assert [len(curve) for tags in points.values() for curve in tags.values()] == [shown]


def test_read_scalars_of_a_missing_folder_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere"):
        monitoring.read_scalars(tmp_path / "nowhere")


def test_read_scalars_accepts_scalars_written_as_tensors(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for step in range(20):  # the reader keeps 10 tensors of a tag by default
            writer.add_scalar("new", step / 2, step, new_style=True)
        writer.add_scalar("old", 1, 0)
        writer.add_text("text", "no scalar", 0)
        writer.add_hparams({"lr": 0.5}, {"best": 2}, run_name=".")
    curves = monitoring.read_scalars(tmp_path)
    assert curves == {"new": [(s, s / 2) for s in range(20)], "old": [(0, 1)], "best": [(0, 2)]}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_purge_step_drops_points_of_an_interrupted_run(tmp_path, capsys):
    from torch.utils.tensorboard import SummaryWriter

    for start, purge in ((0, None), (3, 3)):
        with SummaryWriter(tmp_path, purge_step=purge) as writer:
            for step in range(start, 6):
                writer.add_scalar("loss", step + 10 * start, step)
    curve = monitoring.read_scalars(tmp_path)["loss"]
    assert curve == [(0, 0), (1, 1), (2, 2), (3, 33), (4, 34), (5, 35)]


@pytest.mark.parametrize(("first", "steps"), [(0, [0, 1, 2, 3]), (None, [0, 1, 2, 3, 3])])
def test_tensorboard_without_data_server_purges_if_both_runs_pass_purge_step(
    tmp_path, first, steps
):
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    for start, purge in ((0, first), (3, 3)):
        with SummaryWriter(tmp_path, purge_step=purge, filename_suffix=str(start)) as writer:
            for step in range(start, 4):
                writer.add_scalar("loss", step, step)
        time.sleep(1)  # the names of the files are in order of the second
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Tensors("loss")] == steps


def test_add_scalar_without_step_and_unnamed_hparams_are_read(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("no step", 1.0)
        writer.add_scalar("swapped", 3, 0.5)
        writer.add_hparams({"lr": 0.1}, {"best": 0.5})
    curves = monitoring.read_scalars(tmp_path)
    assert curves == {"no step": [(0, 1.0)], "swapped": [(0, 3.0)]}
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert monitoring.read_scalars(folder) == {"best": [(0, 0.5)]}


def test_s3_files_are_written_only_on_flush():
    from tensorboard.compat.tensorflow_stub.io import gfile
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    assert hasattr(gfile.LocalFileSystem, "append") and not hasattr(gfile.S3FileSystem, "append")
    assert inspect.signature(EventFileWriter).parameters["flush_secs"].default == 120


def test_training_continues_on_a_full_disk(tmp_path, monkeypatch):
    from tensorboard.compat.tensorflow_stub.io import gfile

    sink = monitoring.TensorBoardSink(tmp_path)
    sink("Loss/train", 0, 1.0)
    sink.writer.flush()

    def full(*_):
        raise OSError(28, "No space left on device")

    logger = monitoring.Logger(sink)

    def fill():
        monkeypatch.setattr(gfile.GFile, "write", full)
        sink("Loss/train", 99, 1.0)
        until = time.monotonic() + 5
        while any("AsyncWriter" in type(t).__name__ for t in threading.enumerate()):
            assert time.monotonic() < until
            time.sleep(0.01)

    text = run_with(logger, after=fill)
    assert len(text) == 1 and "TensorBoardSink failed with OSError" in text[0]
    assert "No space left on device" in text[0] and logger.sinks == []
    logger.close()
    monkeypatch.undo()
    assert monitoring.read_scalars(tmp_path)["Loss/train"][0] == (0, 1.0)  # earlier values are kept


def test_failing_close_of_a_sink_warns():
    class Sink:
        def __call__(self, *_): ...

        def close(self):
            raise OSError("gone")

    with (
        pytest.warns(RuntimeWarning, match="Sink failed with OSError: gone"),
        monitoring.Logger(Sink()) as logger,
    ):
        logger.log(1, {"a": 1})
    assert logger.curves == {"a": [(1, 1.0)]} and logger.sinks == []


# ---------------------------------------------------------------- the logger


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(width=32)), max_size=6),
    st.sets(st.integers(0, 17)),
)
def test_logger_keeps_all_values_when_a_sink_fails(steps, failures):
    calls, good = [], []

    def flaky(tag, step, value):
        calls.append(tag)
        if len(calls) - 1 in failures:
            raise ConnectionError

    logger = monitoring.Logger(flaky, lambda *point: good.append(point))
    with warnings.catch_warnings(record=True, action="always") as caught:
        for step, values in enumerate(steps):
            logger.log(step, values)
    total = sum(map(len, steps))
    failed = [n for n in sorted(failures) if n < total]
    assert len(caught) == bool(failed) and len(calls) == (failed[0] + 1 if failed else total)
    assert len(good) == total == sum(map(len, logger.curves.values()))
    for tag, curve in logger.curves.items():
        sent = [(step, value) for name, step, value in good if name == tag]
        assert np.array_equal(sent, curve, equal_nan=True)


def test_logger_converts_tensors_without_their_graph():
    loss = (torch.ones(1, requires_grad=True) * 0.5).sum()
    logger = monitoring.Logger()
    with warnings.catch_warnings(action="error"):
        logger.log(1, {"loss": loss, "one": torch.tensor([2]), "np": np.float32(0.5), "int": 3})
        logger.log(1, {"array": np.ones(1)})
    assert logger.curves == {
        "loss": [(1, 0.5)], "one": [(1, 2)], "np": [(1, 0.5)], "int": [(1, 3.0)],
        "array": [(1, 1.0)],
    }  # fmt: skip
    assert all(type(v) in (float, int) for c in logger.curves.values() for _, v in c)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.ones(2, 3), r"bad is not one number but \(2, 3\)"),
        (np.ones(2), r"bad is not one number but array\(\[1., 1.\]\)"),
        (torch.ones(0), r"bad is not one number but \(0,\)"),
        (None, "bad is not one number but None"),
        ("x", "bad is not one number but 'x'"),
        ([1.0], r"bad is not one number but \[1.0\]"),
        (torch.tensor(1j), r"bad is not one number but tensor\(0.\+1.j\)"),
        (10**400, "bad is not one number but 1000"),
    ],
)
def test_logger_skips_non_numbers_with_a_warning(value, says):
    logger = monitoring.Logger()
    with pytest.warns(RuntimeWarning, match=says):
        logger.log(1, {"bad": value, "good": 1})
    assert logger.curves == {"good": [(1, 1.0)]}


def test_values_must_be_a_mapping():
    with pytest.raises(TypeError, match=r"expected log\(step, values\), got int as values"):
        monitoring.Logger().log({"loss": 1.0}, 3)


def test_keyboard_interrupt_stops_the_run():
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        monitoring.Logger(interrupted).log(1, {"a": 1})


def test_replay_sends_past_and_later_values():
    logger, got = monitoring.Logger(), []
    logger.log(1, {"a": 1, "b": 2})
    logger.replay(lambda *point: got.append(point))
    logger.log(2, {"a": 3})
    assert got == [("a", 1, 1.0), ("b", 1, 2.0), ("a", 2, 3.0)]

    def broken(*_):
        got.append(None)
        raise OSError("no")

    with pytest.warns(RuntimeWarning, match="broken failed with OSError: no") as warned:
        logger.replay(broken)
    assert len(warned) == 1 and got.count(None) == 1 and broken not in logger.sinks


# ---------------------------------------------------------------- training and figure


def test_training_is_reproducible_and_keeps_the_random_state():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    runs = [list(demos.train(6, seed)) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert runs[0] == runs[1] != runs[2]
    assert [epoch for epoch, _ in runs[0]] == [1, 2, 3, 4, 5, 6]
    assert runs[0][-1][1]["Loss/val"] < 0.8 * runs[0][0][1]["Loss/val"]
    assert runs[0][0][1]["lr"] == 0.02 > runs[0][-1][1]["lr"]


def test_draw_outage_shows_the_values_read_back():
    kept = [(1, 0.5), (2, 0.4), (3, 0.3)]
    axis = demos.draw_outage(kept, kept[:1]).axes[0]
    marks = {line.get_label(): list(line.get_xdata()) for line in axis.lines[1:]}
    assert marks == {
        "read back from the server": [1], "in curves only": [2, 3], "server killed": [1.5, 1.5],
    }  # fmt: skip
    assert len(demos.draw_outage(kept, kept).axes[0].lines) == 2
    assert len(demos.draw_outage(kept, []).axes[0].lines) == 2
    for wrong in (([], []), (kept, [(4, 0.1)])):
        with pytest.raises(ValueError, match="expected the steps of the server among"):
            demos.draw_outage(*wrong)


def test_quiet_hides_and_restores_stderr(capfd):
    os.write(2, b"before\n")
    with pytest.raises(ZeroDivisionError), monitoring.quiet():
        os.write(2, b"inside\n")
        raise ZeroDivisionError
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_quiet_hides_profiler_output(capfd):
    with (
        monitoring.quiet(),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    ):
        torch.ones(2).sum()
    assert capfd.readouterr().err == ""


def test_quiet_suppresses_only_the_profiler_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with monitoring.quiet():
            warnings.warn("Warning: Profiler clears events at the end", stacklevel=1)
            warnings.warn("another", stacklevel=1)
        warnings.warn("Warning: Profiler clears events at the end", stacklevel=1)
    texts = [str(w.message)[:9] for w in caught]
    assert texts == ["another", "Warning: "]


# ---------------------------------------------------------------- exercises


def never_fatal(send, catch=Exception, once=True, warn=True, stop=True, wrap=lambda v: v):
    state = {"failed": False, "warned": False}

    def safe(tag, step, value):
        if state["failed"] and stop:
            return
        try:
            send(tag, step, wrap(value))
        except catch as error:
            state["failed"] = True
            if warn and not (once and state["warned"]):
                state["warned"] = True
                warnings.warn(f"{error!r}", stacklevel=2)

    return safe


def warns_twice(send):
    def warned(*point):
        try:
            send(*point)
        except Exception:
            warnings.warn("first", stacklevel=2)
            raise

    return never_fatal(warned)


def remembers_tags(send):
    failed = set()

    def safe(tag, step, value):
        if tag not in failed:
            try:
                send(tag, step, value)
            except Exception as error:
                failed.add(tag)
                warnings.warn(f"{error!r}", stacklevel=2)

    return safe


def remembers_for_all():
    failed = []

    def answer(send):
        def safe(*point):
            if not failed:
                try:
                    send(*point)
                except Exception as error:
                    failed.append(error)
                    warnings.warn(f"{error!r}", stacklevel=2)

        return safe

    return answer


def positions_only(send):
    safe = never_fatal(send)
    return lambda *point: safe(*point)


def drops_keywords(send):
    safe = never_fatal(send)
    return lambda *point, **_: safe(*point) if point else None


class AsObject:
    def __init__(self, send):
        self.logger = monitoring.Logger(send)

    def __call__(self, tag, step, value):
        self.logger.log(step, {tag: value})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (never_fatal, None),
        (AsObject, None),
        (positions_only, "called with keyword arguments it fails"),
        (drops_keywords, "keyword arguments are not passed on"),
        (lambda send: send, "a send that fails still stops the training"),
        (lambda s: never_fatal(s, catch=ConnectionError), "a send that fails still stops"),
        (
            lambda s: never_fatal(s, catch=(OSError, ValueError)),
            "a send that fails still stops the",
        ),
        (lambda s: never_fatal(s, catch=BaseException), "Ctrl-C does not stop the training"),
        (lambda s: never_fatal(s, warn=False), "there was no warning"),
        (warns_twice, "one failure, and 2 warnings"),
        (lambda s: never_fatal(s, stop=False), "is called again after it has failed"),
        (lambda s: never_fatal(s, wrap=round), "points sent on unchanged"),
        (lambda s: lambda *point: None, "unchanged, got 0"),
        (
            lambda s: lambda *p: (warnings.warn("x", stacklevel=1), s(*p)),
            "although send did not fail",
        ),
        (lambda s: None, "expected a function, got None"),
        (remembers_for_all, "another one is not called either"),
        (remembers_tags, "is called again after it has failed"),
    ],
)
def test_check_never_fatal_returns_the_expected_verdict(answer, says):
    for _ in range(20 if says != "a send that fails still stops" else 60):
        fresh = answer() if answer is remembers_for_all else answer
        verdict = exercises.check_never_fatal(fresh)
        assert verdict.passed == (says is None) or says == "a send that fails still stops", verdict
        if not verdict.passed:
            break
    assert verdict.passed == (says is None) and (says is None or says in verdict.message)


def smooth(values, weight, debias=True, start=0.0, swap=False):
    average, out = start, []
    if swap:
        weight = 1 - weight
    for n, value in enumerate(values, 1):
        average = weight * average + (1 - weight) * value
        out.append(average / (1 - weight**n) if debias else average)
    return out


def weighted_mean(values, weight):
    out = []
    for n in range(1, len(values) + 1):
        powers = [weight ** (n - i) for i in range(1, n + 1)]
        out.append(sum(p * v for p, v in zip(powers, values, strict=False)) / sum(powers))
    return out


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (smooth, None),
        (weighted_mean, None),
        (lambda v, w: tuple(smooth(v, w)), None),
        (lambda v, w: smooth(v, w, debias=False), "a flat curve does not stay flat"),
        (lambda v, w: smooth(v, w, debias=False, start=v[0]), "value 2 is "),
        (lambda v, w: smooth(v, w, swap=True), "value 2 is "),
        (lambda v, w: list(np.cumsum(v) / np.arange(1, len(v) + 1)), "value 2 is "),
        (lambda v, w: list(v), "value 2 is "),
        (lambda v, w: np.array(smooth(v, w)).astype(np.array(v).dtype).tolist(), "is "),
        (lambda v, w: smooth(v, w)[1:], "values, got"),
        (lambda v, w: [v.pop() for _ in list(v)], "the input list was changed"),
        (lambda v, w: None, "expected a list, got None"),
        (lambda v, w: smooth(v, w, start=0 * v[0]), "raised IndexError"),
        (lambda v, w: [torch.tensor(x) for x in smooth(v, w)], "expected numbers in the list"),
    ],
)
def test_check_smooth_returns_the_expected_verdict(answer, says):
    for _ in range(20):
        expect(exercises.check_smooth(answer), says)


def profiled(function, **options):
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, **options) as prof:
        function()
    return prof


def first_shape(function, operator):
    rows = profiled(function, record_shapes=True).key_averages(group_by_input_shape=True)
    return next((row.count for row in rows if row.key == operator), 0)


def count_calls(function, operator):
    return sum(e.count for e in profiled(function).key_averages() if e.key == operator)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (count_calls, None),
        (lambda f, o: sum(e.name == o for e in profiled(f).events()), None),
        (
            lambda f, o: o in {e.key for e in profiled(f).key_averages()},
            "expected an int, got bool",
        ),
        (lambda f, o: [e.key for e in profiled(f).key_averages()].count(o), "not 1"),
        (lambda f, o: len(profiled(f).key_averages()), "layers called"),
        (first_shape, "layers called"),
        (
            lambda f, o: sum(e.name == o for e in profiled(f).events() if not e.cpu_parent),
            "aten::addmm, not 0",
        ),
        (
            lambda f, o: sum(e.count for e in profiled(f).key_averages() if o in e.key),
            "aten::addmm is not aten::add",
        ),
        (lambda f, o: {e.key: e.count for e in profiled(f).key_averages()}[o], "raised KeyError"),
        (lambda f, o: f() or 6, "not 6|expected 0, got 6"),
        (lambda f, o: 6, "the function was never called"),
        (lambda f, o: count_calls(torch.no_grad()(f), o), "gradients are switched off"),
        (lambda f, o: (f(), count_calls(f, o))[1], "the function was called 2 times"),
    ],
)
def test_check_count_calls_returns_the_expected_verdict(answer, says):
    verdict = exercises.check_count_calls(answer)
    assert verdict.passed == (says is None), verdict
    assert says is None or re.search(says, verdict.message)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize(("wait", "found"), [(0, True), (1, False)])
def test_profiler_without_step_stays_at_its_first_step(wait, found):
    plan = torch.profiler.schedule(wait=wait, warmup=0, active=2, repeat=1)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with warnings.catch_warnings(action="ignore"):
        with monitoring.quiet(), torch.profiler.profile(activities=cpu, schedule=plan) as prof:
            torch.ones(2).add(1)
        if not found:
            with pytest.raises((AssertionError, RuntimeError)):
                prof.key_averages()
        else:
            assert "aten::add" in {event.key for event in prof.key_averages()}


def test_runs_resumed_in_one_folder_keep_ordered_steps(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    for steps in ((1, 2), (3, 4)):
        with SummaryWriter(str(tmp_path)) as writer:
            for step in steps:
                writer.add_scalar("Loss", 0.5, step)
    steps = [step for step, _ in monitoring.read_scalars(str(tmp_path))["Loss"]]
    assert sorted(steps) == [1, 2, 3, 4]


def test_the_server_answers_http(server):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(server.url) as answer:
        assert answer.status == 200 and b"<title>visdom</title>" in answer.read()


def test_logger_skips_text_values_with_a_warning():
    logger = monitoring.Logger()
    for text in ("3.5", b"3"):
        with pytest.warns(RuntimeWarning, match="loss is not one number"):
            logger.log(1, {"loss": text})
    assert not logger.curves


def test_replay_to_a_registered_sink_adds_it_once():
    points = []
    logger = monitoring.Logger(sink := lambda *point: points.append(point))
    logger.log(1, {"loss": 1})
    logger.replay(sink)
    logger.log(2, {"loss": 2})
    assert points == [("loss", 1, 1.0), ("loss", 1, 1.0), ("loss", 2, 2.0)]
