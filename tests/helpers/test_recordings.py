"""What a GPU is asked: fresh processes, repeats, and every chapter's measurements run on a CPU."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import child, measure, recorded, timing
from helpers.measure import cuda_semantics, data_parallel, reproducibility, training_loop
from helpers.recorded import MISSING, RECORDINGS, Recording
from helpers.reproducibility import to_tf32

TEXTS = Path(__file__).parents[2] / "book/text"
MEASURES = {
    name: getattr(importlib.import_module(f"helpers.measure.{chapter}"), f"record_{name}")
    for chapter, names in RECORDINGS.items()
    for name in names
}

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")

# ---------------------------------------------------------------- a fresh process


def test_a_child_answers_through_json():
    values = child.call(json.loads, '{"a": [1, null]}')
    assert values == {"a": [1, None]}
    assert child.call(os.getenv, "BOOK_ANSWER", env={"BOOK_ANSWER": "42"}) == "42"
    assert child.call(os.getpid) != os.getpid()
    assert "BOOK_ANSWER" not in os.environ


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (json.loads, ("no json",), "loads failed in a child process: .*JSONDecodeError"),
        (os.abort, (), "abort failed in a child process"),
    ],
)
def test_a_child_that_fails_says_why(function, arguments, words):
    with pytest.raises(RuntimeError, match=words):
        child.call(function, *arguments)


def test_only_the_last_words_of_a_child_are_told():
    with pytest.raises(RuntimeError, match="exec failed in a child process: ValueError: last$"):
        child.call(exec, "raise ValueError('last')")


def test_a_child_that_answered_does_not_fail_while_it_ends():
    assert child.call(exec, "import atexit, os; atexit.register(os._exit, 3)") is None


def test_a_child_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(child, "SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="sleep was not done after 0.1 s in a child process"):
        child.call(time.sleep, 60)


def test_a_child_that_cannot_start_says_so():
    with pytest.raises(RuntimeError, match="getpid failed in a child process"):
        child.call(os.getpid, env={"PYTHONHOME": "/nowhere"})


# ---------------------------------------------------------------- repeats


values = st.one_of(
    st.integers(-100, 100), st.floats(-100, 100), st.booleans(), st.text(max_size=3), st.none()
)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=5))
def test_repeated_keeps_every_number_and_names_agreement_once(runs):
    left = iter(runs)
    found = recorded.repeated(lambda: dict(zip("ab", next(left), strict=True)), len(runs))
    for key, each in zip("ab", map(list, zip(*runs, strict=True)), strict=True):
        number = isinstance(each[0], (int, float)) and not isinstance(each[0], bool)
        alone = not number and all(value == each[0] for value in each)
        assert found[key] == (each[0] if alone else each)


def test_repeated_needs_a_run():
    with pytest.raises(ValueError, match="times must be at least 1, got 0"):
        recorded.repeated(dict, 0)


@given(st.lists(st.floats(0.1, 900), min_size=1, max_size=9))
def test_a_report_shows_the_median_and_the_range(numbers):
    low, middle, high = min(numbers), statistics.median(numbers), max(numbers)
    assert recorded._readable(numbers) == (
        f"{middle:.3g} ({low:.3g} to {high:.3g} in {len(numbers)} runs)"
    )


def test_a_report_says_where_its_values_come_from(capsys):
    recorded.report(None)
    assert capsys.readouterr().out == f"{MISSING}\n"
    said = {"ratio": 1.23456, "same": True, "mixed": [True, False], "message": "words", "none": []}
    recorded.report(Recording("n", "GPU", "2.14.1", "13.0", "3.11", "2030-01-01", said))
    assert capsys.readouterr().out.splitlines() == [
        "ratio: 1.23",
        "same: True",
        "mixed: [True, False]",
        "message: words",
        "none: []",
        "device: recorded on 2030-01-01: GPU, PyTorch 2.14.1, CUDA 13.0",
    ]


def test_error_line():
    assert recorded.error_line(lambda: 1) == "no error"
    assert recorded.error_line(lambda: [].index("x\ny")).startswith("ValueError: ")
    assert recorded.error_line(lambda: torch.ones(2) + torch.ones(3)).startswith("RuntimeError: ")


def test_device_times_wait_before_and_after(monkeypatch):
    events, clock = [], iter(range(100))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append("wait"))
    monkeypatch.setattr("time.perf_counter", lambda: events.append("clock") or next(clock))
    timing.device_seconds(lambda: events.append("run"), "cuda")
    assert events == ["wait", "clock", "run", "wait", "clock"]
    timing.device_seconds(lambda: events.append("run"), "cpu")
    assert events[5:] == ["clock", "run", "clock"]


def test_one_round_is_enough():
    assert timing.time_ratio(float, float, rounds=1) > 0


def test_device_ratios_take_turns_after_warming_up(monkeypatch):
    calls = []
    # slow takes 6 and 9 seconds, fast 2 and 4.5
    ticks = iter([0, 6, 10, 12, 20, 29, 30, 34.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    ratios = timing.device_ratios(lambda: calls.append("s"), lambda: calls.append("f"), "cpu", 2)
    assert ratios == [3, 2] and calls == ["s", "f"] * 3
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        timing.device_ratios(calls.clear, calls.clear, "cpu", 0)


# ---------------------------------------------------------------- the chapters' measurements


def test_every_measurement_has_one_name_and_one_owner():
    assert len(MEASURES) == sum(map(len, RECORDINGS.values()))
    rooms = {module.name for module in pkgutil.iter_modules(measure.__path__)}
    assert rooms == set(RECORDINGS)
    offered = {
        name.removeprefix("record_")
        for chapter in rooms
        for name in vars(importlib.import_module(f"helpers.measure.{chapter}"))
        if name.startswith("record_")
    }
    assert offered == set(MEASURES)


def test_the_names_of_recordings_are_read_without_torch():
    code = "import sys, helpers.recorded; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=child.environment(), check=True)


@pytest.mark.parametrize("name", MEASURES)
def test_a_measurement_needs_a_gpu_and_says_so(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="needs a CUDA device"):
        MEASURES[name]()


@without_gpu
def test_a_measurement_that_fails_over_there_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="_streams failed in a child process: .+"):
        MEASURES["device_streams"]()


def test_each_measurement_asks_for_the_gpu(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        child, "call", lambda f, *a, env=None: asked.append((f.__name__, a, env)) or {"x": 1.0}
    )
    assert cuda_semantics.record_device_clock() == {"x": [1.0] * 3}
    assert cuda_semantics.record_device_copies() == {"x": 1}
    assert training_loop.record_device_mixed_precision() == {"x": 1}
    assert data_parallel.record_device_data_parallel() == {"x": 1}
    reproducibility.record_device_streams()
    reproducibility.record_device_repeats()
    reproducibility.record_device_tf32()
    names = ["_clock"] * 3 + ["_copies", "_mixed_precision", "_one_device"]
    assert [name for name, _, _ in asked] == [*names, "_streams", "_repeats", "_tf32"]
    assert {arguments for _, arguments, _ in asked} == {("cuda",)}
    assert [env for _, _, env in asked if env] == [{"CUBLAS_WORKSPACE_CONFIG": ""}]


def ratios(found, times):
    """The lists of ratios in a measurement, taken out of it."""
    lists = {key: found.pop(key) for key in list(found) if isinstance(found[key], list)}
    assert all(len(each) == times and min(each) > 0 for each in lists.values())
    return list(lists)


def test_streams_on_a_cpu_are_one_stream():
    torch.manual_seed(0)
    expected = " ".join(f"{x:.4f}" for x in torch.randn(4).tolist())
    assert reproducibility._streams("cpu") == {
        "CPU, seed 0": expected,
        "device, seed 0": expected,
        "manual_seed repeats the device": True,
        "the CPU's draw moves the device": True,
        "the device's draw moves the CPU": True,
        "a state put back draws the same": True,
        "15 numbers begin like 16": False,
    }


def test_repeats_are_counted_and_switches_put_back(monkeypatch):
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    found = reproducibility._repeats("cpu", runs=3, times=2, size=6)
    assert len(ratios(found, 2)) == 6
    assert found.pop("runs") == 3
    assert found.pop("cuBLAS without its variable") == "no error"
    assert len(found) == 6 and set(found.values()) == {1}  # a CPU repeats itself
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == before
    assert not torch.are_deterministic_algorithms_enabled()

    plain = torch.Tensor.index_add_  # results that differ are told apart, the switch is on
    monkeypatch.setattr(
        torch.Tensor,
        "index_add_",
        lambda self, *a: plain(self, *a).add_(
            0 if torch.are_deterministic_algorithms_enabled() else torch.rand(1)
        ),
    )
    found = reproducibility._repeats("cpu", runs=3, times=1, size=6)
    assert found["index_add_: different results"] == 3
    assert found["index_add_, deterministic algorithms: different results"] == 1


def test_the_switches_of_cudnn_are_those_in_the_name(monkeypatch):
    seen, plain = set(), torch.nn.functional.conv2d
    cudnn = torch.backends.cudnn

    def conv2d(*arguments, **named):
        seen.add((cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32))
        return plain(*arguments, **named)

    monkeypatch.setattr(torch.nn.functional, "conv2d", conv2d)
    reproducibility._repeats("cpu", runs=1, times=1, size=4)
    both = (False, True)
    assert seen == {(True, benchmark, fixed, False) for benchmark in both for fixed in both}


def test_tf32_compares_with_float64():
    allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        found = reproducibility._tf32("cpu", size=48, channels=3, times=2)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed
    assert len(ratios(found, 2)) == 2
    assert found.pop("compute capability") is None
    assert len(found) == 4
    assert all(1e-9 < error < 1e-6 for error in found.values())  # float32, on a CPU always


def test_tf32_is_off_and_on(monkeypatch):
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    allowed, plain = (cuda.allow_tf32, cudnn.allow_tf32), torch.matmul

    def matmul(x, y):
        rounded = cuda.allow_tf32 and cudnn.allow_tf32 and x.dtype == torch.float32
        return plain(*map(to_tf32, (x, y))) if rounded else plain(x, y)

    monkeypatch.setattr(torch, "matmul", matmul)
    try:
        found = reproducibility._tf32("cpu", size=48, channels=3, times=1)
    finally:
        cuda.allow_tf32, cudnn.allow_tf32 = allowed
    exact, rounded = (found[f"matrix product: error of {name}"] for name in ("float32", "TF32"))
    assert exact < 1e-6 < 1e-4 < rounded < 2**-10


def test_mixed_precision_on_a_cpu():
    found = training_loop._mixed_precision("cpu", width=32, batch=64, layers=3, times=2)
    assert len(ratios(found, 2)) == 2
    for name in ("bfloat16", "float16"):
        assert found.pop(f"{name}: weights, scores, gradients") == f"float32 {name} float32"
    assert found.pop("float16: steps skipped from 2**16") == 0
    assert 5 < found.pop("float16: steps skipped from 2**40") < 40
    assert found == {}  # memory is counted on a GPU only


def test_mixed_precision_counts_memory_beyond_what_is_kept(monkeypatch):
    """With a pretended allocator: 100 bytes are kept, the peaks are 400 and 700."""
    peaks = iter([400, 700] * 2)
    asked = []
    fake = {
        "reset_peak_memory_stats": lambda: asked.append("reset"),
        "memory_allocated": lambda: 100,
        "max_memory_allocated": lambda: next(peaks),
        "synchronize": lambda device=None: None,
    }
    for name, function in fake.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(training_loop, "wait", lambda device: None)
    # the work stays on the CPU
    real = {"randn": torch.randn, "randint": torch.randint}
    for name, function in real.items():
        monkeypatch.setattr(
            torch, name, lambda *a, device=None, function=function, **k: function(*a, **k)
        )
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)
    scaler, autocast = torch.amp.GradScaler, torch.autocast
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, **k: scaler("cpu", **k))
    monkeypatch.setattr(torch, "autocast", lambda device, **k: autocast("cpu", **k))
    found = training_loop._mixed_precision("cuda", width=8, batch=8, layers=2, times=1)
    for name in ("bfloat16", "float16"):
        assert found[f"{name}: peak memory / that of float32"] == 300 / 600
    assert asked == ["reset"] * 4


def test_one_device_on_a_cpu_is_the_model_itself():
    found = data_parallel._one_device("cpu", times=2)
    assert len(ratios(found, 2)) == 1
    assert found == {
        "wrapping moved the model": True,
        "calling moved the input": True,
        "the same output": True,
        "the same gradients": True,
        "first name in the state_dict": "module.0.weight",
        "target on the CPU": "no error",
    }


# ---------------------------------------------------------------- what the chapters make of them


@pytest.fixture(scope="module")
def on_cpu():
    """What the measurements write on a CPU, by name: the keys, and values that are not a GPU's."""
    allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    found = {
        "device_messages": {
            **cuda_semantics._messages("cpu"),
            **dict.fromkeys(["blamed", "blamed with CUDA_LAUNCH_BLOCKING=1"], "none"),
            **{f"GPUs counted, hidden {when} CUDA starts": 0 for when in ("before", "after")},
        },
        "device_clock": recorded.repeated(lambda: cuda_semantics._clock("cpu", 8, 2), 3),
        "device_copies": cuda_semantics._copies("cpu", mib=1),
        "device_mixed_precision": training_loop._mixed_precision("cpu", 8, 8, 2, 1),
        "device_data_parallel": data_parallel._one_device("cpu", times=1),
    }
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed
    return json.loads(json.dumps(found))


SAME = "RuntimeError: Expected all tensors to be on the same device"
# What a GPU would say otherwise, and changes to it that the chapter must refuse.
GPU = {
    "device_messages": (
        {
            "nn.Linear": SAME,
            "DataLoader(shuffle=True)": "RuntimeError: Expected a 'cuda' device type for generator",
            "Adam after a late move": SAME,
            "blamed with CUDA_LAUNCH_BLOCKING=1": "x[index]",
            "GPUs counted, hidden after CUDA starts": 1,
        },
        [
            {"nn.Linear": "no error"},
            {"DataLoader(shuffle=True)": "no error"},
            {"the move kept the parameter": False},
            {"Adam after a late move": "no error"},
            {"blamed with CUDA_LAUNCH_BLOCKING=1": "synchronize()"},
            {"GPUs counted, hidden before CUDA starts": 1},
            {"GPUs counted, hidden after CUDA starts": 0},
        ],
    ),
    "device_clock": (
        {"with / without": [9, 8, 7], "first product / later product": [3, 2, 2]},
        [{"with / without": [9, 1, 9]}, {"first product / later product": [0.9, 2, 2]}],
    ),
    "device_copies": (
        {
            "pageable / pinned": [2, 0.5, 2, 0.6, 2],
            "non_blocking call returns / copy ends": [0.1] * 5,
        },
        [
            {"pageable / pinned": [0.5, 0.5, 2, 0.6, 2]},
            {"non_blocking call returns / copy ends": [0.1, 1.1, 0.1, 0.1, 0.1]},
            {"copy to the CPU complete after synchronize": False},
            {"copy to the CPU complete after synchronize": [True, True, False, True, True]},
        ],
    ),
    "device_data_parallel": (
        {"target on the CPU": SAME},
        [
            {"wrapping moved the model": False},
            {"calling moved the input": False},
            {"the same output": False},
            {"the same gradients": False},
            {"first name in the state_dict": "0.weight"},
            {"target on the CPU": "no error"},
        ],
    ),
}


def read(name, values, monkeypatch):
    """Run the cells that show a recording and check it, with these values in a file's place."""
    monkeypatch.setattr(
        recorded,
        "gpu",
        lambda asked, measure: Recording(asked, "GPU", "2", "13", "3", "2030-01-01", values),
    )
    names = {"recorded": recorded}
    for source in CELLS[name]:
        exec(source, names)


def recording_cells():
    """Name of a recording -> its chapter's imports of helpers, the cell that asks for it, and the
    next code cell that checks it."""
    found = {}
    for chapter in RECORDINGS:
        text = (TEXTS / f"{chapter}.md").read_text("utf8")
        sources = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        imports = "".join(re.findall(r"^from helpers.*\n", "".join(sources), re.MULTILINE))
        for asks, checks in pairwise(sources):
            for name in re.findall(r'recorded\.gpu\(\s*"(\w+)"', asks):
                found[name] = imports, asks, checks
    return found


CELLS = recording_cells()


def test_every_measurement_that_is_shown_is_checked_in_its_chapter():
    assert set(CELLS) <= set(MEASURES)
    for name, (_, asks, checks) in CELLS.items():
        assert f"measure.record_{name}" in asks
        assert "is not None" in checks and "assert" in checks


@pytest.mark.parametrize("name", [name for name in GPU if name in CELLS])
def test_a_chapter_accepts_what_a_gpu_would_say(name, on_cpu, monkeypatch, capsys):
    read(name, {**on_cpu[name], **GPU[name][0]}, monkeypatch)
    assert "device: recorded on 2030-01-01: GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, change) for name, (_, bad) in GPU.items() if name in CELLS for change in bad],
)
def test_a_chapter_refuses_what_it_does_not_say(name, change, on_cpu, monkeypatch):
    assert set(change) <= set(on_cpu[name])
    with pytest.raises(AssertionError):
        read(name, {**on_cpu[name], **GPU[name][0], **change}, monkeypatch)


@needs_gpu
@pytest.mark.parametrize("name", MEASURES)
def test_measurements_on_a_gpu(name):
    found = recorded.gpu(name, MEASURES[name]).values
    assert found
    if name == "device_repeats":
        for work in ("benchmark=False, deterministic=True", "index_add_, deterministic algorithms"):
            assert found[f"{work}: different results"] == 1
        assert "CUBLAS_WORKSPACE_CONFIG" in found["cuBLAS without its variable"]
    if name == "device_streams":
        assert found["CPU, seed 0"] != found["device, seed 0"]
        assert found["manual_seed repeats the device"]
        assert not found["the CPU's draw moves the device"]
        assert not found["the device's draw moves the CPU"]
        assert found["a state put back draws the same"]
    if name == "device_tf32" and found["compute capability"] >= [8, 0]:
        for work in ("matrix product", "convolution"):
            exact, rounded = (found[f"{work}: error of {kind}"] for kind in ("float32", "TF32"))
            assert exact < 1e-5 < 1e-4 < rounded < 1e-3
    if name == "device_mixed_precision":
        assert 0 < found["bfloat16: peak memory / that of float32"] < 2
    if name == "device_data_parallel":
        assert found["target on the CPU"].startswith("RuntimeError")
