"""The four steps against torch, the stand-in's real forward, two real processes, the exercises."""

import contextlib
import copy
import os
import random
import subprocess
import sys
import time
from collections import OrderedDict
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.nn.parallel import DistributedDataParallel, scatter_gather

from helpers import data_parallel, ddp_worker
from helpers.demos import data_parallel as demos
from helpers.exercises import data_parallel as exercises

sizes = st.integers(1, 17)
counts = st.integers(1, 7)


class ScatterOnCPU:
    """Stands in for torch's Scatter, which needs GPUs; torch's own recursion runs around it."""

    @staticmethod
    def apply(target_gpus, chunk_sizes, dim, tensor):
        return tensor.chunk(len(target_gpus), dim)


class GatherOnCPU:
    @staticmethod
    def apply(target_device, dim, *tensors):
        if all(t.dim() == 0 for t in tensors):
            return torch.cat([t.view(1) for t in tensors])
        return torch.cat(tensors, dim)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def structures(n):
    return st.recursive(
        st.sampled_from([torch.arange(n * 2.0).view(n, 2), torch.arange(n), "word", 3, None]),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(st.sampled_from("abc"), inner, min_size=1)
        ),
        max_leaves=5,
    )


@given(n=sizes, replicas=counts, data=st.data())
@settings(deadline=None)
def test_scatter_is_torchs_scatter(n, replicas, data):
    inputs = data.draw(structures(n))
    with mock.patch.object(scatter_gather, "Scatter", ScatterOnCPU):
        expected = scatter_gather.scatter(inputs, list(range(replicas)))
    assert same(list(expected), data_parallel.scatter(inputs, replicas))


@given(n=sizes, replicas=counts, data=st.data())
@settings(deadline=None)
def test_gather_is_torchs_gather(n, replicas, data):
    outputs = data_parallel.scatter(
        data.draw(
            st.sampled_from(
                [torch.randn(n, 2), (torch.randn(n), [torch.randn(n, 1)]), {"a": torch.randn(n)}]
            )
        ),
        replicas,
    )
    with mock.patch.object(scatter_gather, "Gather", GatherOnCPU):
        expected = scatter_gather.gather(outputs, 0)
    assert same(expected, data_parallel.gather(outputs))


def test_gather_of_scalars_and_none():
    assert data_parallel.gather([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert data_parallel.gather([None, None]) is None
    with pytest.raises(ValueError, match="at least one output"):
        data_parallel.gather([])


@pytest.mark.parametrize("function", [data_parallel.scatter, data_parallel.replicate])
def test_no_replicas(function):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        function(nn.Linear(1, 1), 0)


@given(n=sizes, replicas=counts)
@settings(deadline=None, max_examples=30)
def test_gradients_of_the_replicas_add_up(n, replicas):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x, y = torch.randn(n, 3), torch.randn(n, 1)
    parameters = list(model.parameters())
    whole = torch.autograd.grad(F.mse_loss(model(x), y), parameters)
    out = data_parallel.StandIn(model, replicas)(x)
    split = torch.autograd.grad(F.mse_loss(out, y), parameters)
    for a, b in zip(whole, split, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_torch_s_private_copy_of_a_module_is_what_replicate_expects():
    """`nn.Module._replicate_for_data_parallel`: an object of its own, to be filled in."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    twin = data_parallel._shallow_copy(model[1])
    assert type(twin) is nn.BatchNorm1d and twin is not model[1] and not twin.training
    assert twin._parameters == {} and twin._buffers == model[1]._buffers
    assert twin._buffers is not model[1]._buffers
    whole = data_parallel._shallow_copy(model)
    assert whole._modules == model._modules and whole._modules is not model._modules


def test_replicas_share_memory_as_torch_promises():
    model = nn.BatchNorm1d(2)
    first, second = data_parallel.replicate(model, 2)
    for name in ("weight", "bias", "running_mean"):
        original = getattr(model, name)
        assert getattr(first, name).data_ptr() == original.data_ptr()
        assert getattr(second, name).data_ptr() != original.data_ptr()
        assert torch.equal(getattr(second, name), original)
    assert not list(first.parameters()) and len(list(model.parameters())) == 2
    second.running_mean.add_(1)
    assert model.running_mean.tolist() == [0.0, 0.0]
    first.running_mean.add_(1)
    assert model.running_mean.tolist() == [1.0, 1.0]


def test_tied_weights_and_empty_slots_survive_replication():
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    replica = data_parallel.replicate(model, 2)[1]
    assert replica["a"].weight is replica["b"].weight
    assert replica["a"].bias is None and replica["a"] is not model["a"]


def test_recurrent_modules_replicate():
    model, x = nn.LSTM(3, 4, batch_first=True), torch.randn(5, 2, 3)
    out = torch.cat([r(x)[0] for r in data_parallel.replicate(model, 2)])
    torch.testing.assert_close(out, torch.cat([model(x)[0]] * 2))


def test_stand_in_runs_the_real_forward():
    assert data_parallel.StandIn.forward is nn.DataParallel.forward
    model = nn.Bilinear(2, 2, 1)
    x = torch.randn(5, 2)
    parallel = data_parallel.StandIn(model, 2)
    torch.testing.assert_close(parallel(x, input2=x), model(x, x))
    torch.testing.assert_close(parallel.module.weight, model.weight)
    assert list(parallel.state_dict()) == ["module.weight", "module.bias"]


def test_stand_in_checks_places_and_moves_inputs():
    with pytest.raises(RuntimeError, match="on device meta.*but found one of them on device: cpu"):
        data_parallel.StandIn(nn.Linear(2, 1), device="meta")(torch.ones(2, 2))
    out = data_parallel.StandIn(nn.Linear(2, 1).to("meta"), device="meta")(torch.ones(3, 2))
    assert out.is_meta and out.shape == (3, 1)


def test_no_gpus_hides_gpus_that_are_there():
    with mock.patch("torch.cuda.is_available", return_value=True), demos.no_gpus():
        wrapped = nn.DataParallel(nn.Linear(2, 1), device_ids=[1, 3])
    assert wrapped.device_ids == [] and wrapped(torch.ones(3, 2)).shape == (3, 1)


def test_alone_opens_and_closes_a_group_and_leaves_nothing_behind():
    import torch.distributed as dist

    hook = sys.excepthook
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), data_parallel.alone():
            assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
            x, y = ddp_worker.samples()
            model = DistributedDataParallel(ddp_worker.network())
            loss = ddp_worker.weighted_loss(model(x), y)
            torch.testing.assert_close(loss, F.mse_loss(model(x), y))
            raise ZeroDivisionError
        assert not dist.is_initialized() and sys.excepthook is hook


# ---------------------------------------------------------------- figures


def test_drawing_names_both_kinds():
    figure = demos.draw_processes()
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        "DataParallel",
        "DistributedDataParallel",
    ]
    assert any("averaged" in text.get_text() for text in figure.axes[1].texts)


# ---------------------------------------------------------------- processes


@pytest.fixture(scope="module")
def run():
    return demos.launch()


def test_two_processes_train_like_one(run):
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


def test_gradients_of_two_processes(run):
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


def test_first_weights_and_statistics_of_two_processes(run):
    first, second = (found["first weights"] for found in run)
    assert not torch.equal(first["before"], second["before"])
    assert torch.equal(first["after"], first["before"])
    assert torch.equal(second["after"], first["before"])
    zero, one = (found["batch norm"] for found in run)
    torch.testing.assert_close(one["first"], 0.1 * one["mine"])
    torch.testing.assert_close(one["second"], 0.9 * zero["first"] + 0.1 * one["mine"])
    torch.testing.assert_close(zero["second"], 0.9 * zero["first"] + 0.1 * zero["mine"])


def test_a_layer_thawed_after_wrapping_is_never_averaged(run):
    zero, one = (found["thawed"] for found in run)
    assert not torch.allclose(zero, one, atol=0.01)
    again = [found["thawed, wrapped again"] for found in run]
    torch.testing.assert_close(*again, rtol=0, atol=0)


def test_no_sync_averages_once_and_gives_the_same_gradient(run):
    x, y = ddp_worker.samples()
    model = ddp_worker.network()
    F.mse_loss(model(x), y).backward()
    for found in run:
        for key, times in (("accumulated", 2), ("accumulated, no_sync", 1)):
            gradient, syncs = found[key]
            torch.testing.assert_close(gradient, model.weight.grad)
            assert syncs == times


def test_what_rank_0_does_alone_times_out(run):
    assert [found["only rank 0"] for found in run] == ["RuntimeError", "nothing"]
    assert ddp_worker.raises(lambda: None) == "nothing"


def test_no_sync_around_backward_alone_does_nothing():
    with data_parallel.alone():
        for early in (False, True):
            model = DistributedDataParallel(nn.Linear(2, 1))
            syncs = ddp_worker.count_syncs(model)
            with model.no_sync() if early else contextlib.nullcontext():
                loss = model(torch.ones(3, 2)).mean()
            with model.no_sync():
                loss.backward()
            assert len(syncs) == (0 if early else 1)


def test_the_script_of_the_chapter_runs_and_saves_a_bare_model(tmp_path):
    path = tmp_path / "model.pt"
    command = ["--standalone", "--nproc-per-node=2", "-m", "helpers.ddp_train", str(path)]
    demos._torchrun([command], str(tmp_path), timeout=100)
    assert list(torch.load(path)) == ["weight", "bias"]


def test_messages_that_the_chapter_quotes():
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
def test_buffers_can_stay_apart():
    with data_parallel.alone():
        model = DistributedDataParallel(nn.BatchNorm1d(2), forward_sync_buffers=False)
        assert not model.broadcast_buffers
        with pytest.warns(FutureWarning, match="broadcast_buffers"):
            DistributedDataParallel(nn.BatchNorm1d(2), broadcast_buffers=False)


def test_two_machines_number_their_processes(tmp_path, monkeypatch):
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
    """A torchrun command whose two processes would sleep for minutes, and the script's path."""
    script = tmp_path / "sleeper.py"
    script.write_text(
        "import os, time\nopen(__file__ + os.environ['RANK'], 'w').close()\ntime.sleep(300)\n"
    )
    return ["--standalone", "--nproc-per-node=2", str(script)], str(script).encode()


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="reads /proc to find processes")
def test_ending_a_torchrun_ends_its_processes(sleeper, tmp_path):
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
        time.sleep(1)  # torchrun, too, knows that both have started
        assert len(processes_with(script)) == 3  # torchrun and its two processes
    finally:
        demos._end(run)
    assert not processes_with(script)


def test_a_run_that_takes_too_long_is_an_error(sleeper, tmp_path):
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="torchrun: not done after 0.5 s"):
        demos._torchrun([sleeper[0]], str(tmp_path), timeout=0.5)
    assert time.monotonic() - begun < 60
    if os.path.isdir("/proc"):
        assert not processes_with(sleeper[1])


def test_a_process_that_fails_is_quoted(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('the disk is on holiday')\n")
    with pytest.raises(RuntimeError, match="a process failed") as error:
        demos._torchrun(
            [["--standalone", "--nproc-per-node=1", str(script)]], str(tmp_path), timeout=60
        )
    assert "the disk is on holiday" in str(error.value)


def test_a_torchrun_around_us_does_not_confuse_ours():
    strange = {"RANK": "7", "WORLD_SIZE": "9", "MASTER_PORT": "1", "PET_NNODES": "3"}
    with mock.patch.dict(os.environ, strange):
        env = demos._environment("somewhere")
    assert not set(strange) & set(env)
    assert env["CUDA_VISIBLE_DEVICES"] == "" and env["OMP_NUM_THREADS"] == "1"


# ---------------------------------------------------------------- exercises


def by_share(model, shards):
    total = sum(len(x) for x, _ in shards)
    loss = sum(len(x) / total * F.mse_loss(model(x), y) for x, y in shards)
    return torch.autograd.grad(loss, list(model.parameters()))


def mean_of_means(model, shards):
    losses = [F.mse_loss(model(x), y) for x, y in shards]
    return torch.autograd.grad(sum(losses) / len(losses), list(model.parameters()))


def sum_of_means(model, shards):
    losses = [F.mse_loss(model(x), y) for x, y in shards]
    return torch.autograd.grad(sum(losses), list(model.parameters()))


def sum_of_sums(model, shards):
    losses = [F.mse_loss(model(x), y, reduction="sum") for x, y in shards]
    return torch.autograd.grad(sum(losses), list(model.parameters()))


def joined(model, shards):
    x, y = (torch.cat(column) for column in zip(*shards, strict=True))
    return torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))


def joined_layer_by_layer(model, shards):
    x, y = (torch.cat(column) for column in zip(*shards, strict=True))
    for layer in model:
        x = layer(x)
    return torch.autograd.grad(F.mse_loss(x, y), list(model.parameters()))


def last_shard(model, shards):
    return mean_of_means(model, shards[-1:])


def reversed_order(model, shards):
    return by_share(model, shards)[::-1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (mean_of_means, "not the gradients of the full batch"),
        (sum_of_means, "2.00 times too large"),
        (sum_of_sums, "16.00 times too large"),
        (joined, "joined"),
        (joined_layer_by_layer, "joined"),
        (last_shard, "not the gradients of the full batch"),
        (reversed_order, "expected gradients of shapes"),
        (lambda model, shards: None, "expected a list"),
    ],
)
def test_wrong_shard_gradients(answer, message):
    for _ in range(5):
        verdict = exercises.check_shard_gradients(answer)
        assert not verdict.passed and message in verdict.message, verdict


def by_sums(model, shards):
    """Another right way: sums over the total, added up in `.grad`."""
    count = sum(y.numel() for _, y in shards)
    for x, y in shards:
        (F.mse_loss(model(x), y, reduction="sum") / count).backward()
    return [p.grad for p in model.parameters()]


def outputs_joined(model, shards):
    """Another right way: each shard goes through the model alone, and one loss sees all outputs."""
    outputs = torch.cat([model(x) for x, _ in shards])
    loss = F.mse_loss(outputs, torch.cat([y for _, y in shards]))
    return torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("answer", [by_share, by_sums, outputs_joined])
def test_right_shard_gradients(answer):
    for _ in range(20):
        verdict = exercises.check_shard_gradients(answer)
        assert verdict.passed, verdict


def plain(checkpoint):
    stripped = {}
    for key, value in checkpoint.items():
        while key.startswith(("module.", "_orig_mod.")):
            key = key.partition(".")[2]
        stripped[key] = value
    return stripped


def load(model, checkpoint):
    state = copy.copy(checkpoint)
    if hasattr(state, "_metadata"):
        state._metadata = state._metadata.copy()
    names = model.state_dict().keys()
    while state and not names & state.keys():
        prefix = next(iter(state)).partition(".")[0] + "."
        if prefix not in ("module.", "_orig_mod."):
            break
        consume_prefix_in_state_dict_if_present(state, prefix)
    model.load_state_dict(state)


def load_by_metadata(model, checkpoint):
    """Another right way: where the model's own name ends in a name of the checkpoint."""
    first = next(iter(checkpoint))
    prefix = ""
    while first.removeprefix(prefix) not in model.state_dict():
        prefix += first.removeprefix(prefix).partition(".")[0] + "."
        if prefix == first + ".":
            prefix = ""
            break
    state = OrderedDict((k.removeprefix(prefix), v) for k, v in checkpoint.items())
    state._metadata = {
        key[len(prefix) :]: value
        for key, value in checkpoint._metadata.items()
        if f"{key}.".startswith(prefix)
    }
    model.load_state_dict(state)


def load_without_metadata(model, checkpoint):
    model.load_state_dict(plain(checkpoint))


def load_greedily(model, checkpoint):
    state = copy.copy(checkpoint)
    state._metadata = state._metadata.copy()
    for prefix in ("module.", "_orig_mod.", "module."):
        consume_prefix_in_state_dict_if_present(state, prefix)
    model.load_state_dict(state)


def load_shares_metadata(model, checkpoint):
    state = copy.copy(checkpoint)
    for prefix in ("module.", "_orig_mod.", "module."):
        consume_prefix_in_state_dict_if_present(state, prefix)
    model.load_state_dict(state)


def load_nothing(model, checkpoint):
    model.load_state_dict(checkpoint, strict=False)


def load_strictly(model, checkpoint):
    model.load_state_dict(checkpoint)


def load_data_parallel_only(model, checkpoint):
    model.load_state_dict({k.removeprefix("module."): v for k, v in checkpoint.items()})


def load_always_cut(model, checkpoint):
    model.load_state_dict({k.partition(".")[2]: v for k, v in checkpoint.items()})


def load_silently(model, checkpoint):
    model.load_state_dict(plain(checkpoint), strict=False)


def load_in_place(model, checkpoint):
    for prefix in ("module.", "_orig_mod.", "module."):
        consume_prefix_in_state_dict_if_present(checkpoint, prefix)
    model.load_state_dict(checkpoint)


def load_shared(model, checkpoint):
    for prefix in ("_orig_mod.module.", "module._orig_mod.", "_orig_mod.", "module.", ""):
        state = OrderedDict((k.removeprefix(prefix), v) for k, v in checkpoint.items())
        if state.keys() & model.state_dict().keys():
            break
    model.load_state_dict(state, assign=True)


def load_vague(model, checkpoint):
    state = plain(checkpoint)
    if set(state) != set(model.state_dict()):
        raise ValueError("something is wrong")
    model.load_state_dict(state)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (load_nothing, "was accepted, but 0.weight did not change"),
        (load_strictly, "with the prefix 'module.' does not load"),
        (load_data_parallel_only, "with the prefix '_orig_mod.' does not load"),
        (load_always_cut, "without a prefix does not load"),
        (load_silently, "lacks 2.bias was loaded without a word"),
        (load_in_place, "was changed; copy it first"),
        (load_without_metadata, "lacks 1.num_batches_tracked was loaded without a word"),
        (load_greedily, "a child `module`, without a prefix does not load"),
        (load_shares_metadata, "was changed; copy it first"),
        (load_shared, "training changes both"),
        (load_vague, "does not name it"),
    ],
)
def test_wrong_loading(answer, message):
    verdict = exercises.check_load(answer)
    assert not verdict.passed and message in verdict.message, verdict


@pytest.mark.parametrize("answer", [load, load_by_metadata])
def test_right_loading(answer):
    verdict = exercises.check_load(answer)
    assert verdict.passed, verdict


def test_the_solution_takes_checkpoints_of_real_wrappers_and_files(tmp_path):
    for wrap in (nn.DataParallel, torch.compile, lambda m: nn.DataParallel(torch.compile(m))):
        source, model = nn.Linear(2, 1), nn.Linear(2, 1)
        torch.save(wrap(source).state_dict(), tmp_path / "c.pt")
        load(model, torch.load(tmp_path / "c.pt"))
        assert torch.equal(model.weight, source.weight)
    with pytest.raises(RuntimeError, match="Missing key"):
        load(nn.Linear(2, 1), {})
    with pytest.raises(RuntimeError, match="Missing key"):
        load(nn.Linear(2, 1), {"other.weight": torch.ones(1, 2)})


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


def padded(n, rank, world, epoch):
    sampler = torch.utils.data.DistributedSampler(range(n), world, rank)
    sampler.set_epoch(epoch)
    return list(sampler)


def dropped(n, rank, world, epoch):
    share = n // world
    return partition(n - n % world, 0, 1, epoch)[rank * share : (rank + 1) * share]


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


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (each_its_own_shuffle, "seen twice"),
        (one_shuffle_for_all_epochs, "epochs 0 and 1 have the same order"),
        (seeded_by_rank, "seen twice"),
        (padded, "seen twice"),
        (dropped, "never seen"),
        (unshuffled, "the order is not shuffled"),
        (shuffled_within, "the same samples in every epoch"),
        (uneven, "uneven shares"),
        (from_one, "is not an index"),
        (seeds_everything, "the random state of the process changed"),
        (seeds_python, "the random state of the process changed"),
    ],
)
def test_wrong_partition(answer, message):
    verdict = exercises.check_partition(answer)
    assert not verdict.passed and message in verdict.message, verdict


def test_an_order_that_cannot_be_repeated_is_no_partition():
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


@pytest.mark.parametrize("answer", [partition, in_blocks, with_a_generator_of_python])
def test_right_partition(answer):
    for _ in range(5):
        verdict = exercises.check_partition(answer)
        assert verdict.passed, verdict


# ---------------------------------------------------------------- sentences of the chapter


def test_the_default_time_outs():
    from torch.distributed import constants

    assert constants.default_pg_timeout.total_seconds() == 30 * 60
    if constants.default_pg_nccl_timeout is not None:  # built with NCCL
        assert constants.default_pg_nccl_timeout.total_seconds() == 10 * 60


def test_in_a_group_sync_batch_norm_does_not_train_on_a_cpu():
    layer, x = nn.SyncBatchNorm(3), torch.ones(2, 3)
    assert layer(x).shape == (2, 3)  # in no group it is a plain BatchNorm
    with data_parallel.alone():
        with pytest.raises(ValueError, match="expected input tensor to be on GPU"):
            layer(x)
        assert layer.eval()(x).shape == (2, 3)


def test_of_a_buffer_only_a_change_in_place_survives():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("assigned", torch.zeros(()))
            self.register_buffer("in_place", torch.zeros(()))

        def forward(self, x):
            self.assigned = self.assigned + 1
            self.in_place.add_(1)
            return x

    counts = Counts()
    data_parallel.StandIn(counts, replicas=3)(torch.ones(6, 1))
    assert (counts.assigned.item(), counts.in_place.item()) == (0, 1)


def test_fully_shard_shards_parameters_gradients_and_state():
    from torch.distributed.fsdp import fully_shard

    with data_parallel.alone():
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
