"""Test the helpers of `distributed` in two processes, torchrun's report, and the checkers."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from verdicts import expect

from helpers import ddp_worker, distributed
from helpers.demos import distributed as demos
from helpers.exercises import distributed as exercises


def test_gather_has_a_graph_and_no_second_derivative():
    with distributed.alone():
        x = torch.randn(4, 3).T.requires_grad_()
        (part,) = distributed.Gather.apply(x)
        assert torch.equal(part, x) and part.is_contiguous()
        (grad,) = torch.autograd.grad(part.square().sum(), x)
        torch.testing.assert_close(grad, 2 * x)
        (part,) = distributed.Gather.apply(x)
        (grad,) = torch.autograd.grad(part.square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            grad.sum().backward()


def test_alone_opens_and_closes_a_group():
    import torch.distributed as dist

    hook = sys.excepthook
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), distributed.alone():
            assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
            x, y = ddp_worker.samples()
            model = DistributedDataParallel(ddp_worker.network())
            loss = ddp_worker.weighted_loss(model(x), y)
            torch.testing.assert_close(loss, F.mse_loss(model(x), y))
            raise ZeroDivisionError
        assert not dist.is_initialized() and sys.excepthook is hook
    with distributed.alone():
        dist.destroy_process_group()  # as the script of the chapter does at its end
    assert not dist.is_initialized() and sys.excepthook is hook


# ---------------------------------------------------------------- figures


def test_draw_processes_draws_both_kinds():
    figure = demos.draw_processes()
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        "DataParallel",
        "DistributedDataParallel",
    ]
    assert any("averaged" in text.get_text() for text in figure.axes[1].texts)


# ---------------------------------------------------------------- processes


@pytest.mark.parametrize(
    ("interfaces", "variables"),
    [
        (["eth0", "lo"], {"GLOO_SOCKET_IFNAME": "lo"}),
        (["en0", "lo0"], {"GLOO_SOCKET_IFNAME": "lo0"}),
        (["eth0", "local"], {}),
    ],
)
def test_child_environment_selects_the_loopback_interface(monkeypatch, interfaces, variables):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [*enumerate(interfaces, 1)])
    assert ddp_worker.child_environment() == variables


@pytest.fixture(scope="module")
def run():
    return demos.launch()


def test_two_processes_match_one_process(run):
    x, y = ddp_worker.samples()
    model = ddp_worker.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = demos.global_batches(epochs=2)
    assert len(steps) == 4
    assert sorted(sum(steps[:2], [])) == sorted(sum(steps[2:], [])) == list(range(16))
    assert steps[:2] != steps[2:]
    for batch in steps:
        optimizer.zero_grad()
        F.mse_loss(model(x[batch]), y[batch]).backward()
        optimizer.step()
    assert not torch.equal(model.weight, ddp_worker.network().weight)
    for found in run:
        for name, weight in model.state_dict().items():
            torch.testing.assert_close(found["trained"][name], weight)


def test_gradients_of_two_processes_are_averaged(run):
    x, y = ddp_worker.samples()
    model = ddp_worker.network()
    F.mse_loss(model(x), y).backward()
    means = []
    for part in (slice(0, 12), slice(12, 16)):
        other = ddp_worker.network()
        F.mse_loss(other(x[part]), y[part]).backward()
        means.append(other.weight.grad)
    for found in run:
        torch.testing.assert_close(found["8 + 8"], model.weight.grad)
        torch.testing.assert_close(found["12 + 4, weighted"], model.weight.grad)
        torch.testing.assert_close(found["12 + 4"], (means[0] + means[1]) / 2)
        assert not torch.allclose(found["12 + 4"], model.weight.grad, atol=1e-2)


def test_first_weights_and_statistics_come_from_rank_0(run):
    first, second = (found["first weights"] for found in run)
    assert not torch.equal(first["before"], second["before"])
    assert torch.equal(first["after"], first["before"])
    assert torch.equal(second["after"], first["before"])
    assert torch.equal(first["other dtype"], ddp_worker.network().half().weight.float())
    assert not torch.allclose(first["other dtype"], second["other dtype"])
    zero, one = (found["batch norm"] for found in run)
    torch.testing.assert_close(one["first"], 0.1 * one["mine"])
    torch.testing.assert_close(one["second"], 0.9 * zero["first"] + 0.1 * one["mine"])
    torch.testing.assert_close(zero["second"], 0.9 * zero["first"] + 0.1 * zero["mine"])
    for key, before in (("under no_grad", zero["second"]), ("after no_grad", one["under no_grad"])):
        torch.testing.assert_close(one[key], 0.9 * before + 0.1 * one["mine"])


def test_layer_unfrozen_after_wrapping_is_never_averaged(run):
    zero, one = (found["thawed"] for found in run)
    assert not torch.allclose(zero, one, atol=0.01)
    again = [found["thawed, wrapped again"] for found in run]
    torch.testing.assert_close(*again, rtol=0, atol=0)


def test_no_sync_averages_once_and_returns_the_same_gradient(run):
    x, y = ddp_worker.samples()
    model = ddp_worker.network()
    F.mse_loss(model(x), y).backward()
    for found in run:
        for key, times in (("accumulated", 2), ("accumulated, no_sync", 1)):
            gradient, syncs = found[key]
            torch.testing.assert_close(gradient, model.weight.grad)
            assert syncs == times


def test_forward_on_rank_0_only_times_out(run):
    assert [found["only rank 0"] for found in run] == ["RuntimeError", "nothing"]
    assert ddp_worker.raises(lambda: None) == "nothing"


def test_no_sync_around_backward_only_has_no_effect():
    with distributed.alone():
        for early in (False, True):
            model = DistributedDataParallel(nn.Linear(2, 1))
            syncs = ddp_worker.count_syncs(model)
            with model.no_sync() if early else contextlib.nullcontext():
                loss = model(torch.ones(3, 2)).mean()
            with model.no_sync():
                loss.backward()
            assert len(syncs) == (0 if early else 1)


def test_chapter_script_runs_and_saves_an_unwrapped_model(tmp_path):
    path = tmp_path / "model.pt"
    command = ["--standalone", "--nproc-per-node=2", "-m", "helpers.ddp_train", str(path)]
    demos._torchrun([command], str(tmp_path), timeout=100)
    assert list(torch.load(path)) == ["weight", "bias"]


def test_quoted_errors_are_raised():
    import torch.distributed as dist

    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        DistributedDataParallel(nn.Linear(2, 1))
    unset = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}
    env = {key: value for key, value in os.environ.items() if key not in unset}
    with (
        mock.patch.dict(os.environ, env, clear=True),
        pytest.raises(ValueError, match="environment variable RANK expected, but not set"),
    ):
        dist.init_process_group("gloo")


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the new name came with 2.13")
def test_buffer_sync_can_be_disabled():
    with distributed.alone():
        model = DistributedDataParallel(nn.BatchNorm1d(2), forward_sync_buffers=False)
        assert not model.broadcast_buffers
        with pytest.warns(FutureWarning, match="broadcast_buffers"):
            DistributedDataParallel(nn.BatchNorm1d(2), broadcast_buffers=False)


def test_ranks_of_two_machines_are_consecutive(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = demos.two_machines()
    assert [r["RANK"] for r in found] == [0, 1, 2, 3]
    assert [(r["GROUP_RANK"], r["LOCAL_RANK"]) for r in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert {r["WORLD_SIZE"] for r in found} == {4}
    assert not list(tmp_path.iterdir())  # torchrun's folders are gone too


def processes_with(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if mark in file.read() and int(pid) != os.getpid():
                    found.append(pid)
        except OSError:
            pass
    return found


@pytest.fixture
def sleeper(tmp_path):
    """Return a torchrun command whose two processes sleep for minutes, and the script's path."""
    script = tmp_path / "sleeper.py"
    script.write_text(
        "import os, time\nopen(__file__ + os.environ['RANK'], 'w').close()\ntime.sleep(300)\n"
    )
    return ["--standalone", "--nproc-per-node=2", str(script)], str(script).encode()


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="reads /proc to find processes")
def test_end_stops_torchrun_and_its_processes(sleeper, tmp_path):
    command, script = sleeper
    run = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *command],
        env=demos._environment(str(tmp_path)),
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            if len(list(tmp_path.glob("sleeper.py?"))) == 2:
                break
            time.sleep(0.1)
        time.sleep(1)  # until torchrun has registered both processes
        assert len(processes_with(script)) == 3  # torchrun and its two processes
    finally:
        demos._end(run)
    assert not processes_with(script)


def test_torchrun_raises_after_the_timeout(sleeper, tmp_path):
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="torchrun: not done after 0.5 s"):
        demos._torchrun([sleeper[0]], str(tmp_path), timeout=0.5)
    assert time.monotonic() - begun < 60
    if os.path.isdir("/proc"):
        assert not processes_with(sleeper[1])


def test_torchrun_error_quotes_the_failed_process(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('the disk is on holiday')\n")
    with pytest.raises(RuntimeError, match="a process failed") as error:
        demos._torchrun(
            [["--standalone", "--nproc-per-node=1", str(script)]], str(tmp_path), timeout=60
        )
    assert "the disk is on holiday" in str(error.value)


def test_environment_removes_variables_of_an_outer_torchrun():
    strange = {"RANK": "7", "WORLD_SIZE": "9", "MASTER_PORT": "1", "PET_NNODES": "3"}
    with mock.patch.dict(os.environ, strange):
        env = demos._environment("somewhere")
    assert not set(strange) & set(env)
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["OMP_NUM_THREADS"] == "1"


def test_swapped_collectives_add_unrelated_tensors(run):
    assert [found["swapped"] for found in run] == [(101.0, 101.0)] * 2


def test_debug_detail_and_monitored_barrier_report_the_mismatch(run):
    for key, words in (("other shape", "Tensor shapes: 2vs 3"), ("other call", "Op type")):
        for found in run:
            assert "Detected mismatch between collectives on ranks" in found[key]
        assert words in run[0][key]
    assert run[0]["missing"].startswith("[Rank 0]: Rank 1 failed to pass monitoredBarrier")
    assert run[1]["missing"] == "nothing"


def test_join_supports_uneven_batches(run):
    assert [found["uneven"] for found in run] == [2, 3]


def test_objects_of_rank_0_reach_all_ranks(run):
    for found in run:
        expected = {"name": "run of rank 0", "parts": [["cat", "dog"], ["cow"]]}
        assert found["objects"] == expected
        assert found["metric"] == {"mean of means": 0.5, "mean": 0.25}
    assert [found["wrote"] for found in run] == [1, 0]


def test_seeds_per_rank_give_different_numbers(run):
    assert torch.equal(run[0]["one seed"], run[1]["one seed"])
    assert not torch.equal(run[0]["a seed per rank"], run[1]["a seed per rank"])


def test_gradients_are_averaged_only_through_the_wrapper(run):
    for found in run:
        assert found["around"] == {"parallel": [], "parallel.module": ["weight", "bias"]}
        assert list(found["gathered"].values()) == [True, False, True]
        assert found["two losses"] == {
            "at the end": ["weight", "bias"],
            "in turns": [],
            "of the sum": [],
        }


def test_sharded_model_trains_like_the_whole_model(run):
    x, y = ddp_worker.batch()
    model, start = ddp_worker.blocks(), ddp_worker.blocks().state_dict()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    zero, one = (found["sharded"] for found in run)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(zero["whole"][name], value, atol=1e-3, rtol=1e-3)
        assert torch.equal(run[0]["sharded, early"]["whole"][name], start[name])
        rows = (zero["shards"][name][0], one["shards"][name][0])
        assert sum(rows) == len(value) and rows[0] == -(-len(value) // 2)
    assert one["whole"] == {} and zero["saved"] == one["saved"] == "DTensor"
    assert zero["state"] == (3, 4)


# ---------------------------------------------------------------- helpers of a group


@pytest.mark.parametrize(
    "call",
    [
        lambda: distributed.rank_zero_first().__enter__(),
        lambda: distributed.from_rank_zero(int),
        lambda: distributed.mean_over_ranks(1.0, 1),
        lambda: distributed.differences(nn.Linear(1, 1)),
    ],
)
def test_helpers_require_a_process_group(call):
    with pytest.raises(ValueError, match="there is no process group"):
        call()


def test_helpers_work_in_a_group_of_one():
    with distributed.alone():
        assert distributed.from_rank_zero(lambda: [1, "a"]) == [1, "a"]
        assert distributed.mean_over_ranks(6.0, 4) == 1.5
        with pytest.raises(ValueError, match="no process had a sample"):
            distributed.mean_over_ranks(0.0, 0)
        with pytest.raises(ZeroDivisionError):
            distributed.from_rank_zero(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError), distributed.rank_zero_first():
            raise ZeroDivisionError
        model = nn.BatchNorm1d(2)
        model.weight.data[0] = float("nan")
        assert distributed.differences(model) == []
        assert distributed.differences(nn.Identity()) == []


def test_helpers_work_in_a_group_of_two(run):
    zero, one = (found["together"] for found in run)
    for found in (zero, one):
        assert found["equal"] == []
        assert found["differences"] == ["bias", "running_mean"]
        assert (
            found["other model"]
            == "expected models of the same names, shapes and dtypes on all ranks"
        )
        assert found["other dtype"] == found["other model"]
        assert found["no sample on rank 0"] == 5.0
    assert zero["rank 0 fails"] == "division by zero"
    assert one["rank 0 fails"] == "rank 0 failed: ZeroDivisionError: division by zero"
    assert "pickle" in zero["cannot travel"]
    assert one["cannot travel"] == f"rank 0 failed: {zero['type']}: {zero['cannot travel']}"


def test_parted_compares_tensors_of_any_dtype():
    many = ("int16", "uint16", "float8_e4m3fn", "complex64", "bool", "bfloat16", "int64")
    model = nn.Module()
    for name in many:
        model.register_buffer(f"of {name}", torch.ones(3).to(getattr(torch, name)))
    model.register_buffer("empty", torch.ones(0))
    model.register_buffer("scalar", torch.tensor(1.0))
    model.register_buffer("turned", torch.ones(3, 4).t())
    model.register_buffer("expanded", torch.ones(1, 4).expand(3, 4))
    model.register_buffer("conj", torch.ones(2, dtype=torch.complex64).conj())
    with distributed.alone():
        assert distributed.differences(model) == []


def test_parted_rejects_tensors_that_cannot_be_compared():
    from torch.distributed.fsdp import fully_shard

    sparse = nn.Module()
    sparse.register_buffer("table", torch.eye(3).to_sparse())
    others = nn.Module()
    others.register_buffer("a", torch.ones(2, device="meta"))
    others.register_buffer("b", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    others.register_buffer("c", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8))
    with distributed.alone():
        with pytest.raises(ValueError, match=r"expected dense replicas, got table \(sparse\)"):
            distributed.differences(sparse)
        with pytest.raises(ValueError, match=r"got a \(meta\), b \(nested\), c \(quantized\)"):
            distributed.differences(others)
        with pytest.raises(ValueError, match=r"got weight \(DTensor\), bias \(DTensor\)"):
            distributed.differences(fully_shard(nn.Linear(2, 2)))
        with pytest.raises(ValueError, match=r"got weight \(uninitialized\)"):
            distributed.differences(nn.LazyLinear(2, bias=False))
        with pytest.raises(TypeError, match="model must be an nn.Module, got dict"):
            distributed.differences({})


@pytest.mark.parametrize(
    ("total", "count", "error", "says"),
    [
        (torch.ones(3), 3, TypeError, r"total must be one real number, got Tensor of shape \(3,\)"),
        (6.0, [4, 3], TypeError, r"count must be one real number, got \[4, 3\]"),
        ("6", 4, TypeError, "total must be one real number, got '6'"),
        (6.0, -1, ValueError, "the counts must have a sum above 0, got -1.0"),
        (6.0, float("nan"), ValueError, "the counts must have a sum above 0, got nan"),
    ],
)
def test_mean_over_ranks_requires_two_numbers(total, count, error, says):
    with distributed.alone():
        assert (
            distributed.mean_over_ranks(torch.tensor(6.0, requires_grad=True), np.int64(4)) == 1.5
        )
        with pytest.raises(error, match=says):
            distributed.mean_over_ranks(total, count)
        with pytest.raises(TypeError, match="expected a function without arguments, got int"):
            distributed.from_rank_zero(5)


def test_mismatched_collectives_can_go_unnoticed(run):
    zero, one = (found["unnoticed"] for found in run)
    assert zero == {"other shape": [1.0, 1.0], "other dtype": [1.0]}
    assert one == {"other shape": [1.0, 1.0, 2.0], "other dtype": [1065353216]}


# ---------------------------------------------------------------- start errors and reports


def test_start_errors_match_the_chapter():
    assert demos.start_errors() == {
        "python train.py": "environment variable RANK expected, but not set",
        "a taken port": "EADDRINUSE",
        "called again": "trying to initialize the default process group twice",
    }
    assert not dist.is_initialized()


def test_torchrun_report_requires_record():
    def main():
        raise KeyError("speed")

    assert "To enable traceback see" in demos.reported(main)
    assert demos.reported(record(main)).endswith("KeyError: 'speed'")
    with pytest.raises(ValueError, match="does not fail"):
        demos.reported(lambda: None)


def test_notebook_function_cannot_be_spawned():
    function = type(demos.spawn)(compile("0", "cell", "exec"), {"__name__": "__main__"}, "lost")
    function.__module__, function.__qualname__ = "__main__", "lost"
    with mock.patch.object(sys.modules["__main__"], "lost", function, create=True):
        text = demos.spawn(function)
    assert "process 0 terminated with exit code 1" in text
    assert text.endswith("AttributeError: Can't get attribute 'lost'")


def test_spawned_process_writes_its_sum(tmp_path):
    with mock.patch.dict(os.environ):
        ddp_worker.spawned(0, 1, str(tmp_path))
    assert (tmp_path / "rank0").read_text() == "0" and not dist.is_initialized()


def test_torchrun_has_the_options_of_the_chapter():
    from torch.distributed.run import get_args_parser

    options = set(get_args_parser()._option_string_actions)
    names = "standalone nproc-per-node nnodes node-rank master-addr master-port local-ranks-filter"
    more = "log-dir redirects rdzv-id rdzv-backend rdzv-endpoint"
    assert {f"--{name}" for name in f"{names} {more}".split()} <= options


# ---------------------------------------------------------------- exercises


def mean(values, all_reduce):
    both = torch.stack([values.sum(), torch.tensor(float(len(values)))])
    all_reduce(both)
    return (both[0] / both[1]).item()


def mean_in_two_calls(values, all_reduce):
    total, count = values.double().sum(), torch.tensor(len(values))
    all_reduce(total)
    all_reduce(count)
    return total.item() / count.item()


def mean_in_a_buffer(values, all_reduce):
    buffer = torch.zeros(2, dtype=torch.float64)
    buffer[0], buffer[1] = values.sum(), values.numel()
    all_reduce(buffer)
    return float(buffer[0] / buffer[1])


def mean_of_means(values, all_reduce):
    total, ranks = values.mean(), torch.ones(())
    all_reduce(total)
    all_reduce(ranks)
    return (total / ranks).item()


def mean_of_two(values, all_reduce):
    total = values.mean()
    all_reduce(total)
    return total.item() / 2


def mean_of_mine(values, all_reduce):
    return values.mean().item()


def mean_skips_the_empty(values, all_reduce):
    if not len(values):
        return 0.0
    return mean(values, all_reduce)


def mean_without_a_count(values, all_reduce):
    total = values.sum()
    all_reduce(total)
    return total.item() / len(values) if len(values) else 0.0


def mean_reduces_the_values(values, all_reduce):
    all_reduce(values)
    return values.mean().item()


def mean_as_a_tensor(values, all_reduce):
    return torch.tensor(mean(values, all_reduce))


def mean_spoils(values, all_reduce):
    found = mean(values, all_reduce)
    values.zero_()
    return found


def mean_requires_grad(values, all_reduce):
    return mean(values.requires_grad_().detach(), all_reduce)


def mean_ignores_empty_ranks(values, all_reduce):
    both = torch.stack([values.mean().nan_to_num(), torch.tensor(float(len(values) > 0))])
    all_reduce(both)
    return (both[0] / both[1]).item()


def mean_in_half(values, all_reduce):
    both = torch.stack([values.sum(), torch.tensor(len(values))]).half()
    all_reduce(both)
    return (both[0] / both[1]).item()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (mean_in_half, "values of about 1000: rank 0 finds inf"),
        (mean_of_means, "values: rank 0 finds"),
        (mean_of_two, "values: rank 0 finds"),
        (mean_of_mine, "two ranks of 4 values: rank 0 finds"),
        (mean_skips_the_empty, "it hangs: 1 of 2 ranks wait in all_reduce"),
        (mean_without_a_count, "two ranks of 4 values: rank 0 finds"),
        (mean_reduces_the_values, "values[0] was changed"),
        (mean_as_a_tensor, "rank 0: expected a float, got Tensor"),
        (mean_spoils, "values[0] was changed"),
        (
            lambda v, all_reduce: mean(v.nan_to_num(), all_reduce),
            "a nan among the values is hidden",
        ),
        (mean_requires_grad, "requires_grad of values[0] was changed"),
        (mean_ignores_empty_ranks, "values: rank 0 finds"),
        (lambda values, all_reduce: all_reduce(1.0), "all_reduce takes a tensor, got float"),
        (lambda values, all_reduce: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_check_mean_rejects_wrong_answers(answer, says):
    before = threading.active_count()
    expect(exercises.check_mean(answer), says)
    assert threading.active_count() == before


def test_all_reduce_of_different_shapes_raises():
    def f(values, all_reduce):
        all_reduce(values.clone())
        return 0.0

    with pytest.raises(AssertionError, match="different shapes"):
        exercises._on_ranks(f, [torch.ones(1), torch.ones(2)])


def test_additional_all_reduce_of_one_rank_is_reported_as_hanging():
    def f(values, all_reduce):
        for _ in range(len(values)):
            all_reduce(torch.ones(()))

    with pytest.raises(AssertionError, match="it hangs: 1 of 2 ranks"):
        exercises._on_ranks(f, [torch.ones(1), torch.ones(2)])


@pytest.mark.parametrize("answer", [mean, mean_in_two_calls, mean_in_a_buffer])
def test_check_mean_accepts_right_answers(answer):
    for _ in range(20):
        verdict = exercises.check_mean(answer)
        assert verdict.passed, verdict


def partition(n, rank, world, epoch):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
    return order[rank::world].tolist()


def each_its_own_shuffle(n, rank, world, epoch):
    return torch.randperm(n)[rank::world].tolist()


def one_shuffle_for_all_epochs(n, rank, world, epoch):
    return partition(n, rank, world, 0)


def seeded_by_rank(n, rank, world, epoch):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch + rank))
    return order[rank::world].tolist()


def seeded_by_the_process(n, rank, world, epoch):
    generator = torch.Generator().manual_seed(torch.initial_seed() % 2**32 + epoch)
    return torch.randperm(n, generator=generator)[rank::world].tolist()


def padded(n, rank, world, epoch):
    sampler = torch.utils.data.DistributedSampler(range(n), world, rank)
    sampler.set_epoch(epoch)
    return list(sampler)


def dropped(n, rank, world, epoch):
    share = n // world
    return partition(n - n % world, 0, 1, epoch)[rank * share : (rank + 1) * share]


def up_to_four(n, rank, world, epoch):
    return partition(n, rank, min(world, 4), epoch)


def the_first_sixty(n, rank, world, epoch):
    return partition(min(n, 60), rank, world, epoch)


def unshuffled(n, rank, world, epoch):
    return list(range(rank, n, world))


def shuffled_within(n, rank, world, epoch):
    mine = torch.arange(rank, n, world)
    generator = torch.Generator().manual_seed(epoch)
    return mine[torch.randperm(len(mine), generator=generator)].tolist()


def uneven(n, rank, world, epoch):
    order = partition(n, 0, 1, epoch)
    return order[rank:] if rank == world - 1 else order[rank : rank + 1]


def seeds_everything(n, rank, world, epoch):
    torch.manual_seed(epoch)
    return torch.randperm(n)[rank::world].tolist()


def seeds_python(n, rank, world, epoch):
    random.seed(epoch)
    return random.sample(range(n), n)[rank::world]


def with_a_generator_of_python(n, rank, world, epoch):
    return random.Random(epoch).sample(range(n), n)[rank::world]


def from_one(n, rank, world, epoch):
    return [index + 1 for index in partition(n, rank, world, epoch)]


def two_shuffles(n, rank, world, epoch):
    return partition(n, rank, world, epoch % 2)


def rotated(n, rank, world, epoch):
    order = torch.tensor(partition(n, 0, 1, 0))
    return order.roll(epoch)[rank::world].tolist()


def in_steps(n, rank, world, epoch):
    return ((torch.arange(n) + 7 * epoch + 3) % n)[rank::world].tolist()


def backwards_first(n, rank, world, epoch):
    return partition(n, rank, world, epoch) if epoch else list(range(n))[::-1][rank::world]


def as_floats(n, rank, world, epoch):
    return [float(index) for index in partition(n, rank, world, epoch)]


def requires_many(n, rank, world, epoch):
    assert n >= world
    return partition(n, rank, world, epoch)


def seeds_numpy(n, rank, world, epoch):
    np.random.seed(epoch)
    return np.random.permutation(n)[rank::world].tolist()


def restores_the_state(n, rank, world, epoch):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 * epoch + world)
        return torch.randperm(n)[rank::world]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (each_its_own_shuffle, "random state of torch was changed"),
        (one_shuffle_for_all_epochs, "two epochs have the same order"),
        (two_shuffles, "two epochs have the same order"),
        (rotated, "draw a new permutation"),
        (in_steps, "the order is not shuffled"),
        (backwards_first, "the order is not shuffled"),
        (as_floats, "which is no integer"),
        (requires_many, "assert 3 >= 4"),
        (seeds_numpy, "the random state of numpy.random was changed"),
        (seeded_by_rank, "used twice"),
        (seeded_by_the_process, "used twice"),
        (up_to_four, "used twice"),
        (the_first_sixty, "never used"),
        (padded, "used twice"),
        (dropped, "never used"),
        (unshuffled, "the order is not shuffled"),
        (shuffled_within, "the same samples in every epoch"),
        (uneven, "uneven shares"),
        (from_one, "is not an index"),
        (seeds_everything, "the random state of torch was changed"),
        (seeds_python, "the random state of random was changed"),
    ],
)
def test_check_partition_rejects_wrong_answers(answer, says):
    expect(exercises.check_partition(answer), says)


def test_check_partition_rejects_an_irreproducible_order():
    asked = []

    def restless(n, rank, world, epoch):
        if rank == 0:
            asked.append(n)
        return partition(n, rank, world, len(asked))

    verdict = exercises.check_partition(restless)
    assert not verdict.passed and "another order the second time" in verdict.message, verdict


def in_blocks(n, rank, world, epoch):
    order = np.random.default_rng((7, epoch)).permutation(n)
    return np.array_split(order, world)[rank].tolist()


@pytest.mark.parametrize(
    "answer", [partition, in_blocks, with_a_generator_of_python, restores_the_state]
)
def test_check_partition_accepts_right_answers(answer):
    for _ in range(5):
        verdict = exercises.check_partition(answer)
        assert verdict.passed, verdict


# ---------------------------------------------------------------- sentences of the chapter


def test_default_timeouts_are_30_and_10_minutes():
    from torch.distributed import constants

    assert constants.default_pg_timeout.total_seconds() == 30 * 60
    if constants.default_pg_nccl_timeout is not None:  # built with NCCL
        assert constants.default_pg_nccl_timeout.total_seconds() == 10 * 60


def test_sync_batch_norm_in_a_group_raises_on_the_cpu():
    layer, x = nn.SyncBatchNorm(3), torch.ones(2, 3)
    assert layer(x).shape == (2, 3)  # without a process group: plain BatchNorm
    with distributed.alone():
        with pytest.raises(ValueError, match="expected input tensor to be on GPU"):
            layer(x)
        assert layer.eval()(x).shape == (2, 3)


def test_fully_shard_shards_parameters_gradients_and_state():
    from torch.distributed.fsdp import fully_shard

    with distributed.alone():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        for block in model:
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        for p in model.parameters():
            held = p, p.grad, optimizer.state[p]["exp_avg"]
            assert all(type(tensor.data).__name__ == "DTensor" for tensor in held)


def test_layer_frozen_after_wrapping_raises_in_the_next_forward():
    with distributed.alone():
        model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
        model.module[0].requires_grad_(False)
        model(torch.ones(1, 2)).sum().backward()
        with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
            model(torch.ones(1, 2))


def test_layer_used_twice_gets_the_right_gradient():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(self.layer(x))

    x = torch.ones(1, 2)
    bare = Twice()
    bare(x).sum().backward()
    for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}):
        twin = Twice()
        twin.load_state_dict(bare.state_dict())
        with distributed.alone():
            model = DistributedDataParallel(twin, **options)
            for _ in range(2):
                twin.zero_grad()
                model(x).sum().backward()
        torch.testing.assert_close(twin.layer.weight.grad, bare.layer.weight.grad)


def test_parameter_in_two_reentrant_checkpoints_raises():
    class Twice(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.layer, self.reentrant = nn.Linear(2, 2), reentrant

        def forward(self, x):
            for _ in range(2):
                x = checkpoint(self.layer, x, use_reentrant=self.reentrant)
            return x

    x = torch.ones(1, 2, requires_grad=True)
    with distributed.alone():
        for reentrant in (True, False):
            model = DistributedDataParallel(Twice(reentrant), find_unused_parameters=True)
            expected = (
                pytest.raises(RuntimeError, match="Expected to mark a variable ready only once")
                if reentrant
                else contextlib.nullcontext()
            )
            with expected:
                model(x).sum().backward()


def test_wrapper_copies_buffers_in_eval_mode(monkeypatch):
    copied = []
    monkeypatch.setattr(DistributedDataParallel, "_sync_buffers", lambda self: copied.append(self))
    with distributed.alone():
        parallel = DistributedDataParallel(nn.BatchNorm1d(3)).eval()
        parallel.module(torch.ones(2, 3))
        assert not copied
        parallel(torch.ones(2, 3))
    assert copied == [parallel]


def test_forward_after_no_sync_or_no_grad_copies_no_buffers(monkeypatch):
    copied = []
    monkeypatch.setattr(DistributedDataParallel, "_sync_buffers", lambda self: copied.append(self))
    with distributed.alone():
        parallel = DistributedDataParallel(nn.BatchNorm1d(3))
        for block in (parallel.no_sync, torch.no_grad):
            for number, context in enumerate((block, contextlib.nullcontext) * 2):
                copied.clear()
                with context():
                    out = parallel(torch.ones(2, 3))
                    if out.requires_grad:
                        out.sum().backward()
                assert bool(copied) == (number % 2 == 0)


def test_autograd_grad_is_not_averaged():
    with distributed.alone():
        parallel = DistributedDataParallel(nn.Linear(3, 1))
        syncs = ddp_worker.count_syncs(parallel)
        torch.autograd.grad(parallel(torch.ones(2, 3)).sum(), list(parallel.parameters()))
        assert not syncs
        parallel(torch.ones(2, 3)).sum().backward()
        assert syncs


def test_group_skipped_by_one_rank_shifts_later_group_names():
    names = []
    for omitted in False, True, False:
        with distributed.alone():
            if not omitted:
                dist.new_group([0])
            names.append(dist.new_group([0]).group_name)
    assert names[0] == names[2] != names[1]
