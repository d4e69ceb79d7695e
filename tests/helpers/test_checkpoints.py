"""Test the helpers of `checkpoints`: atomic writes, exact resuming, clear errors."""

from __future__ import annotations

import argparse
import builtins
import collections
import copy
import errno
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import checkpoints
from helpers.checkpoints import CheckpointError, load_checkpoint, load_weights, save_checkpoint
from helpers.demos import checkpoints as demos
from helpers.demos.checkpoints import Run
from helpers.exercises import checkpoints as exercises

OLD = {"epoch": 1, "weight": torch.arange(5.0)}


@pytest.fixture
def path(tmp_path):
    """Save a checkpoint of epoch 1 and return its path."""
    path = tmp_path / "run.pt"
    save_checkpoint(OLD, path)
    return path


def is_old(path):
    return checkpoints.differences(load_checkpoint(path), OLD) == []


def state_of(run):
    return {p: getattr(run, p).state_dict() for p in PARTS} | {
        "sampler": run.generator.get_state(),
        "rng": checkpoints.rng_state(),
        "epoch": run.epoch,
    }


PARTS = ("model", "optimizer", "scheduler", "scaler")


def restore(run, saved):
    for part in PARTS:
        getattr(run, part).load_state_dict(saved[part])
    run.generator.set_state(saved["sampler"])
    run.epoch = saved["epoch"]
    checkpoints.set_rng_state(saved["rng"])
    return run


# ---------------------------------------------------------------- saving


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(plain, st.lists(st.integers(0, 3), max_size=3))
def test_saved_state_loads_unchanged(tmp_path_factory, value, shape):
    path = tmp_path_factory.mktemp("saved") / "x.pt"
    state = {"value": value, "weight": torch.randn(shape)}
    save_checkpoint(state, path)
    assert checkpoints.differences(load_checkpoint(path), state) == []
    assert os.listdir(path.parent) == ["x.pt"]


def test_save_creates_the_folder_and_accepts_a_string(tmp_path):
    path = tmp_path / "a" / "b" / "run.pt"
    save_checkpoint(OLD, str(path))
    assert is_old(path)


def test_save_keeps_symlinks_and_the_umask(tmp_path, path):
    link = tmp_path / "latest.pt"
    link.symlink_to(path)
    save_checkpoint({"epoch": 2}, link)
    assert link.is_symlink() and load_checkpoint(path) == {"epoch": 2}
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_mapped_old_file_stays_readable_after_a_save(path):
    mapped = torch.load(path, mmap=True)
    save_checkpoint({"epoch": 2, "weight": torch.zeros(5)}, path)
    assert mapped["weight"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "bad", [lambda t: t, threading.Lock(), (i for i in ())], ids=["lambda", "lock", "generator"]
)
def test_unpicklable_value_raises_and_keeps_the_old_file(path, bad):
    with pytest.raises(CheckpointError, match="not saved: .*pickle.*; store tensors and plain"):
        save_checkpoint({"epoch": 2, "bad": bad}, path)
    assert is_old(path) and os.listdir(path.parent) == ["run.pt"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.float64(1), "numpy"),
        (argparse.Namespace(a=1), "argparse.Namespace"),
        (Path("a"), "pathlib"),
        (collections.defaultdict(int), "collections.defaultdict"),
        (nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
    ],
)
def test_save_and_load_reject_the_same_types(path, value, says):
    with pytest.raises(CheckpointError, match=says):
        save_checkpoint({"value": value}, path)
    assert is_old(path) and os.listdir(path.parent) == ["run.pt"]
    torch.save({"value": value}, path)
    with pytest.raises(CheckpointError, match=says):
        load_checkpoint(path)


def test_save_accepts_an_allowed_type(path):
    with torch.serialization.safe_globals([argparse.Namespace]):
        save_checkpoint({"args": argparse.Namespace(a=1)}, path)
        assert load_checkpoint(path)["args"].a == 1


# ---------------------------------------------------------------- faults


class Full:
    """Simulate a file on a disk with `room` free bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()


@pytest.mark.parametrize("room", [0, 1, 100, 1000, 4500])
def test_full_disk_keeps_the_old_file(path, monkeypatch, room):
    def full_open(name, mode="r", *args, **kwargs):
        file = builtins.open(name, mode, *args, **kwargs)  # noqa: SIM115
        return Full(file, room) if "w" in mode else file

    monkeypatch.setattr(checkpoints, "open", full_open, raising=False)
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_checkpoint({"epoch": 2, "weight": torch.randn(1000)}, path)
    assert caught.value.errno == errno.ENOSPC
    assert is_old(path) and os.listdir(path.parent) == ["run.pt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_at_the_flush_keeps_the_old_file(path, monkeypatch):
    def full_open(*args):
        return builtins.open("/dev/full", "wb")

    monkeypatch.setattr(checkpoints, "open", full_open, raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        save_checkpoint({"epoch": 2}, path)
    assert is_old(path)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_failure_after_writing_keeps_the_old_file(path, monkeypatch, name):
    def fail(*args):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="broken disk"):
        save_checkpoint({"epoch": 2}, path)
    monkeypatch.undo()
    assert is_old(path) and os.listdir(path.parent) == ["run.pt"]


def test_keyboard_interrupt_keeps_the_old_file(path, monkeypatch):
    def interrupt(state, file):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint({"epoch": 2}, path)
    monkeypatch.undo()
    assert is_old(path) and os.listdir(path.parent) == ["run.pt"]


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="Windows cannot sync a folder")
def test_save_syncs_the_data_before_the_rename(path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def spy(*args, name=name, real=real):
            calls.append(name)
            return real(*args)

        monkeypatch.setattr(os, name, spy)
    save_checkpoint({"epoch": 2}, path)
    assert calls == ["fsync", "replace", "fsync"]  # the last one syncs the folder's new entry


def test_accidents_match_the_chapter(tmp_path):
    assert demos.accidents(tmp_path) == {
        "torch.save, disk full": ("error", "unreadable"),
        "torch.save, killed": ("killed", "unreadable"),
        "save_checkpoint, disk full": ("error", "old"),
        "save_checkpoint, killed": ("killed", "old"),
    }
    left = {p.name for p in tmp_path.iterdir()} - {f"{n}.pt" for n in demos.ACCIDENTS}
    assert left == {"save_checkpoint, killed.pt.tmp"}  # the killed process could not remove it
    path = tmp_path / "save_checkpoint, killed.pt"
    save_checkpoint({"epoch": 3}, path)  # the next save overwrites it
    assert load_checkpoint(path) == {"epoch": 3} and not Path(f"{path}.tmp").exists()


def test_accidents_require_unix(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "fork")
    with pytest.raises(OSError, match="Unix"):
        demos.accidents(tmp_path)


def test_accidents_report_a_failed_child(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="_accidents failed in a child process: no message"):
        demos.accidents(tmp_path)


# ---------------------------------------------------------------- loading


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_truncated_file_raises(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "x.pt"
    save_checkpoint({"weight": torch.randn(100)}, path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(CheckpointError, match=r"x\.pt is (truncated|empty|damaged)"):
        load_checkpoint(path)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 399), st.integers(0, 7))
def test_flipped_bit_in_a_weight_raises(tmp_path_factory, byte, bit):
    path = tmp_path_factory.mktemp("bit") / "x.pt"
    weight = torch.arange(1.0, 101)
    save_checkpoint({"weight": weight}, path)
    raw = bytearray(path.read_bytes())
    raw[raw.find(weight.numpy().tobytes()) + byte] ^= 1 << bit
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match="checksum of .*/data/0"):
        load_checkpoint(path)
    assert not torch.equal(load_checkpoint(path, verify=False)["weight"], weight)


def test_missing_file_error_lists_existing_files(tmp_path, path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint rum\.pt .*there is run\.pt"):
        load_checkpoint(tmp_path / "rum.pt")
    with pytest.raises(FileNotFoundError, match="the folder does not exist"):
        load_checkpoint(tmp_path / "no" / "x.pt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="it is empty"):
        load_checkpoint(tmp_path / "empty" / "x.pt")
    with pytest.raises(FileNotFoundError, match="it is a folder"):
        load_checkpoint(tmp_path / "empty")


def test_load_rejects_files_that_are_not_checkpoints(tmp_path):
    import zipfile

    page, archive = tmp_path / "page.pt", tmp_path / "a.zip"
    page.write_text("<html>")
    with pytest.raises(CheckpointError, match=r"not a checkpoint \(6 bytes\)"):
        load_checkpoint(page)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "a")
    with pytest.raises(CheckpointError, match="contains no checkpoint: torch.save did not finish"):
        load_checkpoint(archive)


def test_format_before_1_6_loads(path):
    torch.save(OLD, path, _use_new_zipfile_serialization=False)
    assert is_old(path)


def old_format(value, path):
    torch.save(value, path, _use_new_zipfile_serialization=False)


def test_damaged_format_before_1_6_raises_a_fitting_error(path):
    old_format({"args": argparse.Namespace(a=1)}, path)
    with pytest.raises(CheckpointError, match=r"imports argparse\.Namespace; only"):
        load_checkpoint(path)
    old_format(OLD, path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=r"is truncated or not a checkpoint"):
        load_checkpoint(path)


def test_format_before_1_6_from_a_gpu_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    old_format({"w": torch.ones(2)}, tmp_path / "x.pt")
    assert load_checkpoint(tmp_path / "x.pt")["w"].tolist() == [1, 1]
    with demos.without_gpu(), pytest.raises(RuntimeError, match="Attempting to deserialize"):
        load_checkpoint(tmp_path / "x.pt", map_location=None)


def test_tar_format_of_0_1_appears_in_the_error(tmp_path):
    import tarfile

    for name in ("sys_info", "pickle", "storages", "tensors"):
        (tmp_path / name).write_bytes(b"")
    with tarfile.open(tmp_path / "x.pt", "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            archive.add(tmp_path / name, arcname=name)
    with pytest.raises(CheckpointError, match=r"tar format of PyTorch 0\.1"):
        load_checkpoint(tmp_path / "x.pt")


def test_pickled_payload_does_not_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    torch.save({"weight": Payload()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="imports .*open"):
        load_checkpoint(tmp_path / "x.pt")
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "x.pt", weights_only=False)["weight"].close()
    assert (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("protocol", [4, 5])
def test_pickle_protocol_above_2_raises(tmp_path, protocol):
    torch.save({"w": torch.ones(2)}, tmp_path / "x.pt", pickle_protocol=protocol)
    with pytest.raises(CheckpointError, match="pickle that weights_only=True cannot read"):
        load_checkpoint(tmp_path / "x.pt")


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_torchscript_archive_raises(tmp_path):
    torch.jit.script(nn.Linear(2, 1)).save(tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match="is a TorchScript archive"):
        load_checkpoint(tmp_path / "x.pt")


def test_checkpoint_from_a_gpu_loads_on_the_cpu(tmp_path):
    demos.save_as_from_gpu({"w": torch.ones(2)}, tmp_path / "x.pt", "cuda:3")
    assert load_checkpoint(tmp_path / "x.pt")["w"].device.type == "cpu"
    with (
        demos.without_gpu(),
        pytest.raises(RuntimeError, match="deserialize object on a CUDA device"),
    ):
        load_checkpoint(tmp_path / "x.pt", map_location=None)
    assert torch.serialization.location_tag(torch.ones(1).untyped_storage()) == "cpu"


# ---------------------------------------------------------------- load_weights


def network(out=2):
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, out))


def last(value):
    return network().state_dict() | {"2.bias": value}


def quantized(x, scale):
    return torch.quantize_per_tensor(x, scale, 0, torch.qint8)


def changed(weights, change):
    change(weights)
    return weights


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (lambda: network(5).state_dict(), r"shape: 2\.weight is \(5, 4\), the model has \(2, 4\)"),
        (lambda: changed(network().state_dict(), lambda w: w.pop("0.bias")), r"missing: 0\.bias$"),
        (lambda: network().state_dict() | {"x": torch.ones(1)}, r"unexpected: x$"),
        (lambda: nn.DataParallel(network()).state_dict(), r"begins with 'module\.'"),
        (lambda: torch.compile(network()).state_dict(), r"begins with '_orig_mod\.'"),
        (lambda: {"net": network().state_dict(), "epoch": 1}, r"pass its entry 'net'$"),
        (lambda: network().state_dict() | {"0.bias": [1.0] * 4}, r"0\.bias is list, .*\(4,\)"),
        (lambda: {}, r"missing: 0\.weight, 0\.bias"),
        (lambda: last(torch.ones(2, device="meta")), r"kind: 2\.bias is .*meta\), the model has"),
        (lambda: last(torch.ones(2) * 1j), r"kind: 2\.bias is torch\.complex64"),
        (lambda: last(torch.ones(2).to_sparse()), r"kind: 2\.bias is .*sparse_coo"),
        (lambda: last(quantized(torch.ones(2), 0.1)), r"kind: 2\.bias is torch\.qint8"),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_load_weights_rejects_wrong_weights_and_loads_nothing(weights, says):
    model = network()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CheckpointError, match=f"^nothing was loaded; .*{says}"):
        load_weights(model, weights())
    assert checkpoints.differences(model.state_dict(), before) == []


def test_load_weights_loads_matching_weights():
    model, other = network(), network()
    load_weights(model, other.state_dict())
    assert checkpoints.differences(model.state_dict(), other.state_dict()) == []
    load_weights(model, {k: v.double() for k, v in network().state_dict().items()})
    with pytest.raises(CheckpointError, match=r"kind: weight is .*cpu\), .*meta\)"):
        load_weights(nn.Linear(1, 1, device="meta"), nn.Linear(1, 1).state_dict())


def test_lazy_layer_takes_the_shape_of_the_file():
    model, other = nn.LazyLinear(2), nn.Linear(3, 2)
    load_weights(model, other.state_dict())
    assert torch.equal(model.weight, other.weight)
    lazy = nn.LazyLinear(2).state_dict()
    load_weights(nn.LazyLinear(2), lazy)
    with pytest.raises(CheckpointError, match="weight is uninitialized, the model has"):
        load_weights(other, lazy)


def test_load_weights_into_an_expanded_parameter_loads_nothing():
    model = network()
    model[2].weight = nn.Parameter(torch.ones(1, 4).expand(2, 4))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CheckpointError, match=r"kind: 2\.weight is .*cpu\), .*cpu, expanded\)$"):
        load_weights(model, network().state_dict())
    assert checkpoints.differences(model.state_dict(), before) == []
    model[2].weight = nn.Parameter(torch.ones(1, 4).expand(1, 4))  # no element is shared
    model[2].bias = nn.Parameter(torch.ones(1))
    load_weights(model, network(1).state_dict())


def test_extra_state_can_have_any_type():
    class Counted(nn.Linear):
        count = None

        def get_extra_state(self):
            return self.count

        def set_extra_state(self, state):
            self.count = state

    old, new = Counted(1, 1), Counted(1, 1)
    old.count = {"steps": torch.tensor(3)}
    load_weights(new, old.state_dict())
    assert new.count == old.count


@pytest.mark.parametrize("weights", [None, "run.pt", Path("run.pt"), nn.Linear(1, 1)])
def test_load_weights_rejects_non_state_dicts(weights):
    with pytest.raises(TypeError, match=r"names must be strings, got 0 \(int\)"):
        load_weights(nn.Linear(1, 1), {0: torch.ones(1)})
    with pytest.raises(TypeError, match=f"state_dict, got {type(weights).__name__}; read a file"):
        load_weights(nn.Linear(1, 1), weights)


def test_torch_loads_matching_weights_before_a_size_mismatch_raises():
    model, other = network(), network(5)
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict(other.state_dict())
    assert torch.equal(model[0].weight, other[0].weight)


def test_torch_raises_on_a_wrong_optimizer_state_only_at_the_step():
    def used(layer):
        optimizer = torch.optim.Adam(layer.parameters())
        layer(torch.ones(1, layer.in_features)).sum().backward()
        return optimizer

    old = used(nn.Linear(2, 2))
    old.step()
    new = used(nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())  # raises nothing
    with pytest.raises(RuntimeError, match="must match the size"):
        new.step()


# ---------------------------------------------------------------- resuming


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 5), st.integers(0, 10**6))
def test_resumed_run_equals_the_uninterrupted_run(tmp_path_factory, stop, seed):
    end = copy.deepcopy(state_of(Run(seed).train(5)))
    path = tmp_path_factory.mktemp("run") / "run.pt"
    save_checkpoint(state_of(Run(seed).train(stop)), path)
    random.seed(), np.random.seed(), torch.seed()
    resumed = restore(Run(seed), load_checkpoint(path)).train(5)
    assert checkpoints.differences(state_of(resumed), end) == []
    assert len(resumed.weights) == 4 * (5 - stop)


CHILD = """
import sys; sys.path.insert(0, sys.argv[2])
from test_checkpoints import *
resumed = restore(Run(), load_checkpoint(sys.argv[1])).train(4)
save_checkpoint(state_of(resumed), sys.argv[1])
"""


def test_run_resumed_in_another_process_is_exact(tmp_path):
    end = copy.deepcopy(state_of(Run().train(4)))
    save_checkpoint(state_of(Run().train(2)), tmp_path / "run.pt")
    here = os.path.dirname(__file__)
    command = [sys.executable, "-c", CHILD, tmp_path / "run.pt", here]
    subprocess.run(command, check=True, timeout=120)
    assert checkpoints.differences(load_checkpoint(tmp_path / "run.pt"), end) == []


@pytest.mark.parametrize(
    ("part", "differs"),
    [
        ("model", True),
        ("optimizer", True),
        ("scheduler", True),
        ("scaler", False),
        ("sampler", True),
        ("rng", True),
    ],
)
def test_resume_without_any_part_differs(part, differs):
    end = copy.deepcopy(state_of(Run().train(6)))
    saved = copy.deepcopy(state_of(Run().train(3)))
    fresh = copy.deepcopy(state_of(Run()))
    resumed = restore(Run(), saved | {part: fresh[part]}).train(6)
    message = checkpoints.differences(state_of(resumed), end)
    assert part in message and ("model" in message) == differs


@pytest.mark.parametrize("kind", ["python", "numpy", "torch"])
def test_set_rng_state_restores_each_generator(kind):
    def draw():
        return random.random(), np.random.rand(), torch.rand(()).item()

    state = checkpoints.rng_state()
    index = ["python", "numpy", "torch"].index(kind)
    first = [draw()[index] for _ in range(700)]  # NumPy regenerates its 624 state words in between
    checkpoints.set_rng_state(state)
    assert [draw()[index] for _ in range(700)] == first


def test_set_rng_state_restores_the_cached_normal_of_numpy():
    np.random.standard_normal()  # draws two numbers and caches one
    state = checkpoints.rng_state()
    kept = np.random.standard_normal()
    checkpoints.set_rng_state(state)
    assert np.random.standard_normal() == kept


def test_rng_state_on_another_device_raises():
    state = checkpoints.rng_state()
    with pytest.raises(TypeError, match="ByteTensor"):
        checkpoints.set_rng_state(state | {"torch": state["torch"].to("meta")})


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (1, 1.0),
        ([1, 2], [1]),
        ({"a": 1}, {"b": 1}),
        ((1,), [1]),
        (True, 1),
        (0.0, -0.0),
        (torch.ones(2, device="meta"), torch.ones(2)),
        (torch.ones(2, device="meta"), torch.ones(3, device="meta")),
    ],
)
def test_differences_reports_changed_values(a, b):
    assert checkpoints.differences({"x": a, "y": 1}, {"x": b, "y": 1}) == ["x"]
    assert checkpoints.differences({"x": [{"deep": a}]}, {"x": [{"deep": b}]}) == ["x"]


def test_differences_of_equal_values_is_empty():
    x = {"n": torch.tensor(float("nan")), "f": float("nan"), "e": torch.empty(0), "b": True}
    assert checkpoints.differences(x, copy.deepcopy(x)) == []
    assert checkpoints.differences({"x": torch.ones(2, 3).t()}, {"x": torch.ones(3, 2)}) == []
    meta = {"x": torch.ones(2, device="meta")}
    assert checkpoints.differences(meta, copy.deepcopy(meta)) == []
    assert checkpoints.differences({"x": 1}, {}) == ["x"]
    assert checkpoints.differences({"x": float("nan")}, {"x": 1.0}) == ["x"]
    assert checkpoints.differences({"x": 1.0}, {"x": float("nan")}) == ["x"]
    assert checkpoints.differences({}, {"x": 1}) == ["x"]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantized_tensors_differ_in_integers_or_scale():
    x, scales = torch.tensor([[0.5, 1.0]]), torch.ones(2)
    zeros = torch.zeros(2, dtype=int)
    channels = torch.quantize_per_channel(x, scales, zeros, 1, torch.quint8)
    kinds = {"x": quantized(x, 0.1), "channels": channels, "zero": quantized(0 * x, 0.1)}
    assert checkpoints.differences(kinds, {k: v.clone() for k, v in kinds.items()}) == []
    other = {"x": quantized(2 * x, 0.1), "zero": quantized(0 * x, 0.2)}
    other["channels"] = torch.quantize_per_channel(x, 2 * scales, zeros, 1, torch.quint8)
    assert checkpoints.differences(kinds, other) == ["x", "channels", "zero"]


def test_draw_distances_draws_each_run_and_requires_one():
    figure = demos.draw_distances({"a": [0.0, 0.1], "b": [0.01, 1e-9]}, start=4)
    lines = figure.axes[0].lines
    assert [line.get_label() for line in lines] == ["a", "b"]
    assert list(lines[0].get_xdata()) == [5, 6]
    assert list(lines[1].get_ydata()) == [0.01, 1e-5]
    with pytest.raises(ValueError, match="at least one"):
        demos.draw_distances({}, start=0)


def test_import_text_creates_an_importable_module():
    module = demos.import_text("made_up_here", "x = 1")
    import made_up_here

    assert made_up_here is module and module.x == 1
    del sys.modules["made_up_here"]


# ---------------------------------------------------------------- exercises


def matching(model, saved):
    own = model.state_dict()
    fits = {k: v for k, v in saved.items() if k in own and v.shape == own[k].shape}
    if not fits:
        raise ValueError
    return sorted(model.load_state_dict(fits, strict=False).missing_keys)


def matching_by_hand(model, saved):
    left, done = [], 0
    for name, value in model.state_dict().items():
        if name in saved and saved[name].shape == value.shape:
            value.copy_(saved[name])
            done += 1
        else:
            left.append(name)
    if not done:
        raise ValueError("nothing fits")
    return sorted(left)


def never_raises(model, saved):
    try:
        return matching(model, saved)
    except ValueError:
        return sorted(model.state_dict())


def loads_nothing(model, saved):
    return sorted(model.state_dict())


def assigns(model, saved):
    own = model.state_dict()
    fits = {k: v for k, v in saved.items() if k in own and v.shape == own[k].shape}
    if not fits:
        raise ValueError
    return sorted(model.load_state_dict(fits, strict=False, assign=True).missing_keys)


def points_at_saved(model, saved):
    left = matching(model, saved)
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if name in saved and name not in left and saved[name].dtype == value.dtype:
            value.data = saved[name]
    return left


def raises_for_names_only(model, saved):
    if not model.state_dict().keys() & saved.keys():
        raise ValueError("no entry fits")
    return never_raises(model, saved)


def names_of_parameters_only(model, saved):
    left = matching(model, saved)
    return [name for name in left if name in dict(model.named_parameters())]


def names_of_shapes_only(model, saved):
    own = model.state_dict()
    matching(model, saved)
    return sorted(k for k in own if k in saved and saved[k].shape != own[k].shape)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (matching, None),
        (raises_for_names_only, "no ValueError was raised"),
        (lambda m, s: matching(m, s) if s else sorted(m.state_dict()), "no ValueError was raised"),
        (names_of_parameters_only, "is not that of the names"),
        (matching_by_hand, None),
        (lambda m, s: m.load_state_dict(s, strict=False).missing_keys, "RuntimeError: Error(s) in"),
        (never_raises, "no ValueError was raised"),
        (loads_nothing, "fits and was not loaded"),
        (assigns, "was changed"),
        (lambda m, s: assigns(m, copy.deepcopy(s)), "was changed"),
        (points_at_saved, "shares the memory of saved"),
        (names_of_shapes_only, "is not that of the names"),
        (lambda m, s: print(end="") or matching(m, s) and None, "expected a list of names"),
    ],
)
def test_check_load_matching_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_load_matching(answer), says)


def continue_with(optimizer, saved, lr):
    optimizer.load_state_dict(copy.deepcopy(saved))
    for group in optimizer.param_groups:
        group["lr"] = lr


def change_the_copy(optimizer, saved, lr):
    saved = copy.deepcopy(saved)
    for group in saved["param_groups"]:
        group["lr"] = lr
    optimizer.load_state_dict(saved)


def set_before(optimizer, saved, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.load_state_dict(saved)


def no_copy(optimizer, saved, lr):
    optimizer.load_state_dict(saved)
    for group in optimizer.param_groups:
        group["lr"] = lr


def only_the_first(optimizer, saved, lr):
    optimizer.load_state_dict(saved)
    optimizer.param_groups[0]["lr"] = lr


def no_state(optimizer, saved, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr


def own_settings(optimizer, saved, lr):
    mine = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": copy.deepcopy(saved["state"]), "param_groups": mine})
    no_state(optimizer, saved, lr)


def new_initial_lr(optimizer, saved, lr):
    continue_with(optimizer, saved, lr)
    for group in optimizer.param_groups:
        group["initial_lr"] = lr


def zeroed_weights(optimizer, saved, lr):
    continue_with(optimizer, saved, lr)
    for p in optimizer.param_groups[1]["params"]:
        p.data.zero_()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (zeroed_weights, "was changed"),
        (continue_with, None),
        (change_the_copy, None),
        (set_before, "the learning rates are the saved ones"),
        (no_copy, "saved changed"),
        (only_the_first, "not every group"),
        (no_state, "has no state"),
        (own_settings, "the other settings"),
        (new_initial_lr, "initial_lr is 0.0"),
    ],
)
def test_check_continue_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_continue(answer), says)


def make_plain(value):
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, dict):
        return {key: make_plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(make_plain(v) for v in value)
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    value = value.item() if isinstance(value, np.generic) else value
    return str(value) if isinstance(value, Path) else value


def make_plain_otherwise(value):
    match value:
        case argparse.Namespace():
            return make_plain_otherwise(vars(value))
        case dict():
            return {key: make_plain_otherwise(v) for key, v in value.items()}
        case list():
            return [make_plain_otherwise(v) for v in value]
        case tuple():
            return tuple(make_plain_otherwise(v) for v in value)
        case np.ndarray():
            return torch.tensor(value.copy())
        case np.generic():
            return value.item()
        case Path():
            return str(value)
        case torch.Tensor():
            return value.clone()
    return value


def aliases(value):
    if isinstance(value, argparse.Namespace):
        return aliases(vars(value))
    if isinstance(value, dict):
        return {key: aliases(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(aliases(v) for v in value)
    if isinstance(value, np.ndarray) and min(value.strides, default=1) > 0:
        return torch.from_numpy(value)
    return make_plain(value)


def unknown_as_text(value):
    if isinstance(value, (dict, argparse.Namespace)):
        entries = value if isinstance(value, dict) else vars(value)
        return {key: unknown_as_text(v) for key, v in entries.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(unknown_as_text, value))
    value = make_plain(value)
    return value if isinstance(value, (int, float, torch.Tensor, type(None))) else str(value)


def no_tuples(value):
    return {k: v if isinstance(v, tuple) else make_plain(v) for k, v in value.items()}


def from_any_array(value):
    return {k: torch.from_numpy(v) if k == "flipped" else make_plain(v) for k, v in value.items()}


def flat_namespaces(value):
    flat = make_plain(value)
    args = {k: make_plain(v) if k != "sizes" else v for k, v in vars(value["args"]).items()}
    return flat | {"args": args}


def some_numbers(value):
    if isinstance(value, (dict, argparse.Namespace)):
        entries = value if isinstance(value, dict) else vars(value)
        return {key: some_numbers(v) for key, v in entries.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(some_numbers, value))
    rest = isinstance(value, np.generic)
    rest = rest and not isinstance(value, (np.float32, np.float64, np.int64, np.bool_))
    return value if rest else make_plain({"v": value})["v"]


def in_place(value):
    for key, v in make_plain(value).items():
        value[key] = v
    return value


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (make_plain, None),
        (make_plain_otherwise, None),
        (aliases, "shares the array's memory"),
        (no_tuples, "raises for the entry 'betas'"),
        (from_any_array, "At least one stride"),
        (flat_namespaces, "raises for the entry 'args'"),
        (lambda s: s, "raises for the entry 'best'"),
        (lambda s: {k: float(v) if k == "best" else v for k, v in s.items()}, "entry 'history'"),
        (lambda s: {}, "the entry 'weight' is missing"),
        (lambda s: None, "expected a dict, got None"),
        (lambda s: {k: str(v) for k, v in s.items()}, "'weight' has another value or type"),
        (lambda s: make_plain(s) | {"done": 1}, "'done' has another value or type"),
        (in_place, "the state was changed"),
        (some_numbers, "raises for the entry 'others'"),
        (unknown_as_text, "'others' has another value or type"),
    ],
)
def test_check_plain_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_plain(answer), says)


def test_check_load_matching_rejects_matching_by_element_count():
    def by_count(model, saved):
        own = model.state_dict()
        fits = {k: v for k, v in saved.items() if k in own and v.numel() == own[k].numel()}
        if not fits:
            raise ValueError("nothing fits")
        return sorted(model.load_state_dict(fits, strict=False).missing_keys)

    found = exercises.check_load_matching(by_count)
    assert not found.passed and "RuntimeError" in found.message


def test_check_plain_rejects_shallow_tuples():
    def flat_tuples(value):
        if isinstance(value, argparse.Namespace):
            value = vars(value)
        if isinstance(value, dict):
            return {key: flat_tuples(v) for key, v in value.items()}
        if isinstance(value, list):
            return [flat_tuples(v) for v in value]
        if isinstance(value, tuple):
            return tuple(v.item() if isinstance(v, np.generic) else v for v in value)
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value.copy())
        value = value.item() if isinstance(value, np.generic) else value
        return str(value) if isinstance(value, Path) else value

    found = exercises.check_plain(flat_tuples)
    assert not found.passed and "'runs'" in found.message


COMPLEX = torch.tensor([1 + 2j, 3 - 1j])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (COMPLEX.conj(), COMPLEX),
        (COMPLEX.imag.neg(), COMPLEX.imag),
        (torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse()),
        (torch.eye(2).to_sparse_csr(), torch.eye(2).flip(0).to_sparse_csr()),
        (torch.eye(2).to_sparse_csc(), torch.eye(2).flip(0).to_sparse_csc()),
        (torch.eye(2).to_sparse(), torch.eye(2)),
        (np.ones(3), np.zeros(3)),
        (np.ones(3), np.ones(3, np.float32)),
        (np.ones((1, 3)), np.ones(3)),
        (torch.ones(()), torch.ones(1)),
        (torch.empty(0, 2), torch.empty(0, 3)),
    ],
)
def test_differences_compares_every_kind_of_array(a, b):
    assert checkpoints.differences({"x": a}, {"x": b}) == ["x"]
    for value in (a, b):
        twin = value.clone() if isinstance(value, torch.Tensor) else value.copy()
        assert checkpoints.differences({"x": value}, {"x": twin}) == []
    assert checkpoints.differences({"x": COMPLEX.conj()}, {"x": COMPLEX.conj().clone()}) == []


def test_compiled_submodule_appears_in_the_error():
    model = nn.Sequential(nn.Linear(2, 2))
    compiled = nn.Sequential(torch.compile(nn.Linear(2, 2), backend="eager"))
    with pytest.raises(checkpoints.CheckpointError, match=r"remove '_orig_mod\.' from the names"):
        checkpoints.load_weights(model, compiled.state_dict())
