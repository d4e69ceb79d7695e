"""Test the helpers of `reproducibility`, and its checkers with wrong answers."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from verdicts import expect

from helpers import reproducibility as r
from helpers.demos import reproducibility as demos
from helpers.exercises import reproducibility as exercises
from helpers.exercises.tools import random_states


def test_environment_reports_versions_and_switches(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with r.deterministic(), torch.backends.cudnn.flags(benchmark=True, deterministic=False):
        record = r.environment()
    assert record["torch"] == torch.__version__ and record["numpy"] == np.__version__
    assert record["python"] == sys.version.split()[0]
    assert record["deterministic"] and record["cudnn.benchmark"]
    assert not record["cudnn.deterministic"]
    assert record["threads"] == torch.get_num_threads()
    assert record["CUBLAS_WORKSPACE_CONFIG"] == ":16:8" and record["CUDA_VISIBLE_DEVICES"] is None
    assert torch.cuda.is_available() or torch.backends.cpu.get_cpu_capability() in record["device"]
    assert json.loads(json.dumps(record)) == record
    assert not r.environment()["deterministic"]


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="PyTorch before 2.9"
)
def test_environment_supports_the_new_precision_api():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        assert r.environment()["matmul precision"] == "tf32"
        with pytest.raises(RuntimeError):
            _ = matmul.allow_tf32
    finally:
        matmul.fp32_precision = before
    assert matmul.allow_tf32 is False
    assert r.environment()["cudnn precision"] == "tf32"
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert r.environment()["cudnn precision"] != "tf32"


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_seed_everything_seeds_all_three_generators(seed):
    message = r.seed_everything(seed)
    first = r.draws()
    other = r.draws()
    assert list(message) == list(first)
    assert all(first[name] != other[name] for name in first)
    r.seed_everything(seed)
    assert r.draws() == first
    assert torch.initial_seed() == seed


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        (-1, ValueError),
        (2**32, ValueError),
        (1.0, TypeError),
        ("1", TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_invalid_seed_raises_and_keeps_all_states(seed, error):
    r.seed_everything(0)
    before = random_states()
    with pytest.raises(error, match="seed must be"):
        r.seed_everything(seed)
    assert random_states() == before


def test_deterministic_mode_makes_accumulating_sums_reproducible():
    index, values = torch.randint(100, (100_000,)), torch.rand(100_000)

    def gradient():
        table = torch.zeros(100, requires_grad=True)
        (table[index] * values).sum().backward()
        return table.grad

    def added():
        return torch.zeros(100).put_(index, values, accumulate=True)

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for function in (gradient, added):
            with r.deterministic():
                assert len({function().numpy().tobytes() for _ in range(10)}) == 1
    finally:
        torch.set_num_threads(threads)


def test_deterministic_restores_the_previous_setting():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with pytest.raises(ZeroDivisionError), r.deterministic():
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
            _ = 1 / 0
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    with r.deterministic(warn_only=True):
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


@given(
    values=st.lists(st.floats(-1e6, 1e6, width=32), max_size=60),
    parts=st.integers(1, 70),
)
@settings(max_examples=50, deadline=None)
def test_sum_in_parts_approximates_the_sum(values, parts):
    x = torch.tensor(values, dtype=torch.float32)
    exact = math.fsum(x.tolist())
    size = x.double().abs().sum().item()
    assert abs(demos.sum_in_parts(x, parts) - exact) <= 1e-5 * size + 1e-30


def test_sum_in_parts_adds_in_order():
    assert demos.sum_in_parts(torch.tensor([1e8, 1.0, -1e8])) == 0.0
    assert demos.sum_in_parts(torch.tensor([1e8, -1e8, 1.0])) == 1.0
    assert demos.sum_in_parts(torch.tensor([1.0, 1e8, -1e8, 1.0]), 2) == 0.0
    assert demos.sum_in_parts(torch.tensor([])) == 0.0


@pytest.mark.parametrize(
    ("x", "parts", "says"),
    [
        (torch.ones(2, dtype=torch.double), 1, "values must be float32"),
        (torch.ones(2, 2), 1, r"got torch.float32, \(2, 2\)"),
        (torch.ones(2), 0, "parts must be at least 1, got 0"),
    ],
)
def test_sum_in_parts_rejects_invalid_arguments(x, parts, says):
    with pytest.raises(ValueError, match=says):
        demos.sum_in_parts(x, parts)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
@settings(max_examples=50, deadline=None)
def test_to_tf32_keeps_ten_mantissa_bits(value):
    x = torch.tensor([value], dtype=torch.float32)
    got = r.to_tf32(x)
    if torch.isfinite(got).all():
        assert (got.view(torch.int32) & 0x1FFF).item() == 0
        assert abs(got - x).item() <= 2**-11 * abs(x).item()
    assert torch.equal(r.to_tf32(got), got)


def test_to_tf32_handles_ties_infinities_and_nan():
    x = torch.tensor([0.0, -0.0, 1.0, 1 + 2**-11, 1 + 3 * 2**-11, float("inf"), -float("inf")])
    message = r.to_tf32(x).tolist()
    assert message == [0.0, 0.0, 1.0, 1.0, 1 + 2**-9, float("inf"), -float("inf")]  # ties to even
    payloads = torch.tensor([0x7F800001, 0x7FFFFFFF], dtype=torch.int32)  # NaN, one bit or all set
    assert r.to_tf32(payloads.view(torch.float32)).isnan().all()
    assert not r.to_tf32(torch.ones(1, requires_grad=True)).requires_grad
    with pytest.raises(ValueError, match="x must be float32"):
        r.to_tf32(torch.ones(1, dtype=torch.half))


def test_toy_cudnn_follows_its_switches():
    values = torch.rand(200, generator=torch.Generator().manual_seed(1))

    def names(**switches):
        return {demos.toy_cudnn(values, run, **switches)[0] for run in range(60)}

    assert names(benchmark=False, deterministic=False) == {"atomic"}
    assert names(benchmark=False, deterministic=True) == {"one pass"}
    assert names(benchmark=True, deterministic=True) == {"one pass", "tiles"}
    assert names(benchmark=True, deterministic=False) == {"atomic", "one pass", "tiles"}
    one = demos.toy_cudnn(values, 3, True, False)
    assert one == demos.toy_cudnn(values, 3, True, False)


def test_figures_show_the_given_numbers():
    figure = demos.draw_sums([1.0, 1.0, 1.0 + 2**-23], 1.0)
    bars = figure.axes[0].patches
    assert [bar.get_height() for bar in bars] == [2, 1]
    assert bars[1].get_x() + bars[1].get_width() / 2 == pytest.approx(1)
    figure = demos.draw_switches({"a": 3, "b": 1})
    assert [bar.get_width() for bar in figure.axes[0].patches] == [3, 1]
    with pytest.raises(ValueError, match="at least one sum"):
        demos.draw_sums([], 1.0)
    with pytest.raises(ValueError, match="at least one setting"):
        demos.draw_switches({})


def test_visible_in_child_returns_the_devices():
    seen = demos.visible_in_child("1", "", "0,0")
    assert seen["set in the shell"] == [1] and seen["CUDA started"] is False
    assert seen["then ''"] == [] and seen["then '0,0'"] == []  # a duplicate hides all devices


def test_visible_in_child_raises_if_the_child_fails(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="_visible failed in a child process: no message"):
        demos.visible_in_child("0")


def test_job_cleans_up_only_on_sigterm():
    for sent, left, code in (
        (signal.SIGTERM, [], 143),
        (signal.SIGKILL, ["worker", "cache file"], -9),
    ):
        with demos.job() as job:
            assert job.left_behind() == ["process", "worker", "cache file"]
            job.process.send_signal(sent)
            assert job.process.wait(timeout=20) == code
            assert job.left_behind() == left
            assert os.path.exists(job.cache) == bool(left)


def gone(pid):
    """Return whether a process has ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_job_stops_all_processes_after_an_error():
    with pytest.raises(ZeroDivisionError), demos.job(deaf=True) as job:
        job.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            job.process.wait(timeout=0.3)
        _ = 1 / 0
    assert job.process.poll() == -signal.SIGKILL
    assert not job.cache.exists()
    end = time.monotonic() + 10
    while not gone(job.worker) and time.monotonic() < end:
        time.sleep(0.02)
    assert gone(job.worker)


def test_job_that_does_not_start_raises(monkeypatch):
    monkeypatch.setattr(demos, "_JOB", "raise SystemExit")
    with pytest.raises(RuntimeError, match="did not start"), demos.job():
        pass


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_process_info_returns_owner_and_command():
    message = r.process_info(os.getpid())
    assert message["mine"] and message["command"]
    with demos.job() as job:
        assert str(job.cache) in r.process_info(job.process.pid)["command"]
        job.process.kill()
        job.process.wait()
        with pytest.raises(ProcessLookupError, match="no process"):
            r.process_info(job.process.pid)


# ---------------------------------------------------------------- exercises


def undisturbed(function, seed):
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            r.seed_everything(seed)
            return function()
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def all_by_hand(function, seed):
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        r.seed_everything(seed)
        return function()
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def torch_only(function, seed):
    with torch.random.fork_rng():
        r.seed_everything(seed)
        return function()


def torch_by_its_seed(function, seed):
    python, numpy, first = random.getstate(), np.random.get_state(), torch.initial_seed()
    try:
        r.seed_everything(seed)
        return function()
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.manual_seed(first)


def not_after_errors(function, seed):
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    r.seed_everything(seed)
    result = function()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    return result


def not_after_interrupts(function, seed):
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    r.seed_everything(seed)
    try:
        result = function()
    except Exception:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        raise
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    return result


def swallows(function, seed):
    try:
        return undisturbed(function, seed)
    except Exception:
        return None


def seeds_torch_only(function, seed):
    torch.manual_seed(seed)
    return function()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (undisturbed, None),
        (torch_by_its_seed, "the stream of torch"),
        (all_by_hand, None),
        (torch_only, "random was seeded for all that follows"),
        (not_after_errors, "after a ZeroDivisionError the random states"),
        (not_after_interrupts, "after a KeyboardInterrupt the random states"),
        (lambda f, seed: (undisturbed(f, seed), undisturbed(f, seed))[1], "called 2 times"),
        (swallows, "is not raised"),
        (seeds_torch_only, "random draws other numbers"),
        (lambda f, seed: undisturbed(f, 0), "the same numbers under another seed"),
        (lambda f, seed: None, "is not returned"),
    ],
)
def test_check_undisturbed_returns_the_expected_verdict(answer, says):
    expect(exercises.check_undisturbed(answer), says)


def by_size(x):
    ascending = x.double()[x.abs().argsort(stable=True)]  # a and -a stay in their order
    return ascending.cumsum(0)[-1].item()


def sorts_in_place(x):
    x.copy_(x.sort().values)
    return x.sum().item()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: math.fsum(x.tolist()), None),
        (lambda x: x.sort().values.sum(), None),
        (lambda x: float(sum(map(Fraction, x.tolist()))), None),
        (lambda x: math.fsum(set(x.tolist())), "the result is not the sum"),
        (lambda x: x[x.abs().argsort()].double().sum().item(), "a different order"),
        (by_size, "a different order"),
        (lambda x: 0.0, "the result is not the sum"),
        (lambda x: (torch.manual_seed(0), math.fsum(x.tolist()))[1], "random state of torch"),
        (lambda x: round(math.fsum(x.tolist()), 2), "the result is not the sum"),
        (lambda x: x.sum(), "a different order"),
        (lambda x: x.sum(dtype=torch.float64).item(), "a different order"),
        (lambda x: 0.0 * x.sum() + x.max(), "the result is not the sum"),
        (sorts_in_place, "x was changed"),
        (lambda x: None, "raised TypeError"),
    ],
)
def test_check_sum_returns_the_expected_verdict(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        expect(exercises.check_sum(answer), says)


def stop(process):
    process.terminate()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_by_signal(process):
    process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 2
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
    process.wait()


def communicates(process):
    process.terminate()
    try:
        process.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def kills_without_waiting(process):
    process.terminate()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()


def kills_at_once(process):
    process.terminate()
    process.kill()
    process.wait()


def kill(process):
    process.kill()
    process.wait()


def ask_only(process):
    process.terminate()
    process.wait(timeout=1)


def insists(process):
    if process.poll() is not None:
        raise RuntimeError("nothing to stop")
    stop(process)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (stop, None),
        (stop_by_signal, None),
        (communicates, None),
        (kills_without_waiting, "after kill(), wait for the process"),
        (kills_at_once, "killed before it could clean up"),
        (kill, "killed before it could clean up"),
        (ask_only, "ignores SIGTERM is left running"),
        (lambda process: None, "the process is still running"),
        (insists, "raised RuntimeError: nothing to stop"),
    ],
)
def test_check_stop_returns_the_expected_verdict(answer, says):
    expect(exercises.check_stop(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize(
    ("options", "draws"),
    [
        ({}, [1, 1]),
        ({"shuffle": True}, [2, 2]),
        ({"num_workers": 1, "persistent_workers": True}, [1, 0]),
        ({"num_workers": 1, "persistent_workers": True, "shuffle": True}, [2, 1]),
    ],
)
def test_data_loader_draws_the_expected_random_numbers_per_loop(options, draws):
    loader = DataLoader(range(4), **options)
    for expected in draws:
        torch.manual_seed(0)
        list(loader)
        after = torch.get_rng_state()
        torch.manual_seed(0)
        for _ in range(expected):
            torch.empty((), dtype=torch.int64).random_()
        assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize(
    ("dtype", "filled"),
    [(torch.float16, math.nan), (torch.complex64, math.nan), (torch.int8, 127), (torch.uint8, 255)],
)
def test_deterministic_mode_fills_empty_memory(dtype, filled):
    with r.deterministic():
        for x in (torch.empty(3, dtype=dtype), torch.ones(1, dtype=dtype).new_empty(3)):
            assert x.isnan().all() if math.isnan(filled) else (x == filled).all()


def test_rand_in_half_precision_matches_float32_unlike_float64():
    def draw(dtype):
        torch.manual_seed(0)
        return torch.rand(16, dtype=dtype).double()

    for dtype in (torch.float16, torch.bfloat16):
        assert torch.allclose(draw(dtype), draw(torch.float32), atol=1e-2)
    assert not torch.allclose(draw(torch.float64), draw(torch.float32), atol=1e-2)


def test_random_functions_accept_a_generator():
    for seed in (0, 0, 1):
        g = torch.Generator().manual_seed(seed)
        before = torch.get_rng_state()
        torch.randn(3, generator=g)
        torch.randperm(3, generator=g)
        torch.nn.init.kaiming_uniform_(torch.empty(3, 3), generator=g)
        torch.utils.data.random_split(range(3), [1, 2], generator=g)
        list(torch.utils.data.RandomSampler(range(3), generator=g))
        list(torch.utils.data.WeightedRandomSampler([1.0, 2.0], 2, generator=g))
        assert torch.equal(torch.get_rng_state(), before)
    torch.distributions.Normal(0.0, 1.0).sample()
    assert not torch.equal(torch.get_rng_state(), before)


def test_environment_loads_from_a_checkpoint(tmp_path):
    torch.save({"environment": r.environment()}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt")["environment"] == r.environment()
    assert all(type(v) in (str, int, bool, type(None)) for v in r.environment().values())
