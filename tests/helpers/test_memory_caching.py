"""Test traces for the allocator model, and the tools that find references to memory."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from traces import notes_trace
from verdicts import expect

from helpers import allocator, memory_caching
from helpers.allocator import MIB, CachingAllocator, check_trace, random_trace, replay
from helpers.demos import memory_caching as demos
from helpers.demos.memory_caching import FRAGMENTATION_CAPACITY, fragmentation_trace
from helpers.exercises import memory_caching as exercises
from helpers.exercises.memory_caching import check_mean_loss, check_releasable, check_segment
from helpers.fake import fake_tensors
from helpers.memory_caching import (
    Footprint,
    TrainingMemory,
    allocations,
    footprint,
    run_on_card,
    training_memory,
    watch,
)

# Traces


def test_notes_trace_has_the_expected_allocations() -> None:
    trace = notes_trace()
    assert trace[0] == ("malloc", "weight", 10 * 3 * 3 * 3 * 4)
    assert trace[1] == ("malloc", "bias", 10 * 4)
    sizes = {name: nbytes for action, name, nbytes in (t for t in trace if t[0] == "malloc")}
    assert sizes["weight"] + sizes["bias"] == 1120
    assert sizes["images 1"] == sizes["images 3"] == torch.ones(1, 3, 321, 321).nbytes
    assert sizes["images 2"] == 3 * sizes["images 1"]
    assert sizes["output 1"] == 10 * 319 * 319 * 4
    assert sizes["output 2"] == 3 * sizes["output 1"]
    steps = replay(trace)
    # two small blocks in 2 MiB; every batch fits into one segment of 20 MiB, whatever its size
    assert [s.counters.reserved // MIB for s in steps] == [2, 2, *[22] * 12, 2]
    assert steps[-1].counters.allocated == 1536 + 512
    assert steps[-1].counters.max_allocated == 2048 + 3709952 + 12211712
    assert steps[0].events == (
        ("segment_alloc", 2 * MIB),
        ("split", 2 * MIB - 1536),
        ("alloc", 1536),
    )
    again = replay(notes_trace(repeats=5))
    assert len(again) == 2 + 3 * 5 * 4 + 1
    assert again[-1].counters == steps[-1].counters


def test_random_trace_is_reproducible_and_contains_all_actions() -> None:
    trace = random_trace(0)
    assert trace == random_trace(0)
    assert trace != random_trace(1)
    assert check_trace(trace) == trace
    assert len(trace) == 200
    assert {operation[0] for operation in trace} == {"malloc", "free", "empty_cache"}
    steps = replay(trace)
    assert max(step.counters.allocated for step in steps) < 2**30
    seen = {action for step in steps for action, _ in step.events}
    assert seen == {"segment_alloc", "segment_free", "alloc", "split", "free", "merge"}
    assert random_trace(0, 0) == []
    with pytest.raises(ValueError, match="must not be negative"):
        random_trace(0, -1)


def test_fragmentation_raises_despite_enough_free_memory() -> None:
    steps = replay(fragmentation_trace(), FRAGMENTATION_CAPACITY)
    failed = [step for step in steps if step.error]
    assert [step.operation for step in failed] == [("malloc", "big", 12 * MIB)]
    counters = failed[0].counters
    assert counters.reserved - counters.allocated == counters.inactive_split == 20 * MIB
    assert steps[-1].error is None
    assert steps[-1].counters.reserved == FRAGMENTATION_CAPACITY


def test_stats_match_documented_names() -> None:
    documented = torch.cuda.memory_stats.__doc__
    for key in allocator.STATS.values():
        family = key.split(".")[0]
        assert f'"{family}' in documented
    assert set(allocator.STATS) == set(allocator.Counters.__dataclass_fields__)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_storage_identity_and_expiry_include_views(device: str) -> None:
    """`StorageWeakRef` and `UntypedStorage._cdata` identify a view's storage and report its end."""
    x, other = (torch.empty(4, device=device) for _ in range(2))
    view = x[1:]
    same = memory_caching._identity(view.untyped_storage())
    assert same == memory_caching._identity(x.untyped_storage())
    assert same != memory_caching._identity(other.untyped_storage())
    gone = memory_caching._expiry(x.untyped_storage())
    del x
    assert not gone()
    del view
    assert gone()


# References that keep memory alive


def test_watch_detects_memory_kept_after_del() -> None:
    x = torch.randn(64, requires_grad=True)
    h = torch.sigmoid(x)  # saves its own output for backward
    alive = watch(h)
    view = h[:2]
    y = h.sum()
    del h
    assert alive()
    y.backward()
    assert alive()  # the view shares the storage
    del y, view
    assert not alive()
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        watch([torch.ones(1)])


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
def test_watch_and_footprint_support_sparse_tensors(layout: str) -> None:
    dense = torch.eye(4)
    size = ((2, 2),) if layout == "bsr" else ()
    convert = getattr(dense, "to_sparse" if layout == "coo" else f"to_sparse_{layout}")
    x = convert(*size)
    alive, values = watch(x), x._values() if layout == "coo" else x.values()
    del x
    assert alive()
    del values
    assert not alive()
    assert footprint(lambda: convert(*size)).kept >= 4 * (4 + 8)  # values and indices


def test_a_sparse_gradient_grows_with_the_number_of_tokens() -> None:
    def gradient(tokens: int, sparse: bool) -> int:
        net = nn.Embedding(1000, 8, sparse=sparse)
        ids = torch.zeros(tokens, dtype=torch.long)
        return footprint(lambda: net(ids).sum().backward()).kept

    assert [gradient(n, sparse=True) for n in (10, 100)] == [10 * (32 + 8), 100 * (32 + 8)]
    assert gradient(10, sparse=False) == gradient(100, sparse=False) == 1000 * 32


NOTES_BATCHES = (1, 3, 1)


def notes_code() -> nn.Module:
    net = nn.Conv2d(3, 10, kernel_size=3).to("meta")
    for batch in NOTES_BATCHES:
        images = torch.ones(batch, 3, 321, 321)
        net(images.to("meta"))
    return net


def sizes(trace: list) -> list[int]:
    return [nbytes for action, _, *rest in trace if action == "malloc" for nbytes in rest]


def test_allocations_match_the_notes_trace() -> None:
    trace = allocations(notes_code, "meta")
    assert check_trace(trace) == trace
    assert sizes(trace) == sizes(notes_trace()[:-1])
    assert [step[1] for step in trace[:4]] == [
        "to_copy 1",
        "to_copy 2",
        "to_copy 3",
        "convolution 4",
    ]
    steps = replay([*trace, ("empty_cache",)])
    theirs = replay(notes_trace())
    assert steps[-1].counters == theirs[-1].counters
    # without a device, the images created on the CPU are counted too
    assert len(sizes(allocations(notes_code))) == len(sizes(trace)) + len(NOTES_BATCHES) + 2


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_footprint_matches_python_object_lifetimes(plan: list[tuple[int, bool]]) -> None:
    expected = [0]  # bytes held after each step
    kept = []

    def function() -> list[torch.Tensor]:
        for size, keep in plan:
            tensor = torch.zeros(size)
            expected.append(sum(t.nbytes for t in kept) + tensor.nbytes)
            if keep:
                kept.append(tensor.view(-1))  # a view keeps the memory
            tensor.add_(1)  # in place: no memory
            del tensor
        return kept

    used = footprint(function)
    assert used == Footprint(max(expected), sum(t.nbytes for t in kept))


def test_footprint_counts_saved_tensors_and_gradients() -> None:
    model, x = exercises._small_model(), torch.randn(4, 8)
    hidden, out = 4 * 16 * 4, 4 * 4
    # tanh saves its result, the second linear the same; square saves its input
    assert footprint(lambda: model(x).square().mean()).kept == hidden + out + 4
    with torch.no_grad():
        assert footprint(lambda: model(x).square().mean()).kept == 4
    assert footprint(lambda: None) == Footprint(0, 0)
    grads = sum(p.nbytes for p in model.parameters())
    assert footprint(lambda: model(x).square().mean().backward()).kept == grads
    assert str(Footprint(2 * MIB, 512)) == "peak 2.00 MiB, kept 512 bytes"


def test_allocations_propagates_errors_of_the_function() -> None:
    with pytest.raises(ZeroDivisionError):
        allocations(lambda: 1 / 0)
    assert allocations(lambda: torch.ones(2)) == [("malloc", "ones 1", 8)]


def test_memory_functions_without_a_gpu_return_0_or_raise() -> None:
    answers = demos.without_gpu()
    raising = {name.rpartition(".")[2] for name, answer in answers.items() if answer == "raises"}
    assert raising == {
        "reset_peak_memory_stats()",
        "memory_summary()",
        "mem_get_info()",
        "synchronize()",
    }
    assert set(answers.values()) == {"raises", 0, None}
    assert answers["torch.accelerator.memory_reserved()"] == 0


def test_child_process_runs_without_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], env: dict[str, str], **_: object) -> object:
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        return subprocess.CompletedProcess(command, 0, stdout="{}")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(subprocess, "run", run)
    assert demos.without_gpu() == {}


def test_failing_child_process_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="_call_without_gpu failed in a child process"):
        demos.without_gpu()


def test_footprint_counts_a_resized_storage_as_a_new_block() -> None:
    def grow() -> torch.Tensor:
        x = torch.empty(0)
        x.resize_(1000)
        torch.add(torch.ones(2000), 1, out=x.resize_(0))
        return x

    assert footprint(grow) == Footprint(peak=4000 + 8000 + 8000, kept=8000)
    outside = torch.empty(0)
    assert footprint(lambda: torch.add(torch.ones(500), 1, out=outside)).kept == 2000


# Parts of training memory


def network(batch: int = 64, kind: type = torch.optim.Adam, width: int = 32) -> tuple:
    net = nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.BatchNorm1d(width), nn.Linear(width, 1))
    optimizer = kind(net.parameters(), lr=0.1)

    def step() -> None:
        net(torch.randn(batch, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return net, optimizer, step


KINDS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)


@given(st.integers(2, 300), st.integers(1, 300), st.sampled_from(KINDS))
@settings(max_examples=8, deadline=None)
def test_training_memory_matches_a_manual_count(batch: int, width: int, kind: type) -> None:
    net, optimizer, step = network(batch, kind, width)
    step()
    weights = sum(t.nbytes for t in [*net.parameters(), *net.buffers()])
    state = sum(v.nbytes for entry in optimizer.state.values() for v in entry.values())
    counted = training_memory(lambda: network(batch, kind, width))
    assert counted.weights == weights
    assert counted.optimizer >= state
    assert counted.peak == weights + state + footprint(step).peak
    parts = counted.weights + counted.gradients + counted.optimizer + counted.activations
    assert counted.peak == parts


def test_training_memory_matches_saved_tensors() -> None:
    """At a large batch the peak's activations are little more than the tensors the graph saved."""
    net, _, _ = network(4096)
    saved = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[memory_caching._identity(tensor.untyped_storage())] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = net(torch.randn(4096, 16)).square().mean()
    own = {memory_caching._identity(p.untyped_storage()) for p in net.parameters()}
    total = sum(t.untyped_storage().nbytes() for key, t in saved.items() if key not in own)
    assert loss.requires_grad
    counted = training_memory(lambda: network(4096)).activations
    assert total <= counted <= 1.5 * total


def test_only_activations_grow_with_the_batch_size() -> None:
    small, large = (training_memory(lambda n=n: network(n)) for n in (1000, 2000))
    assert 1.9 < large.activations / small.activations < 2.1
    assert (large.weights, large.optimizer) == (small.weights, small.optimizer)
    assert training_memory(lambda: network(1000, torch.optim.SGD)).optimizer == 0
    assert repr(TrainingMemory(MIB, 0, 2 * MIB, 3 * MIB, 6 * MIB)) == (
        "weights 1, gradients 0, optimizer 2, activations 3, peak 6 MiB"
    )


def test_frozen_weights_have_neither_gradients_nor_state() -> None:
    def half_frozen(frozen: bool) -> tuple:
        net = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
        net[0].requires_grad_(not frozen)
        optimizer = torch.optim.Adam(net.parameters(), foreach=False)

        def step() -> None:
            net(torch.randn(2, 256)).square().mean().backward()
            optimizer.step()

        return net, optimizer, step

    whole, half = (training_memory(lambda f=f: half_frozen(f)) for f in (False, True))
    assert half.weights == whole.weights and half.gradients * 2 == whole.gradients
    for frozen, count in ((False, 4), (True, 2)):
        _, optimizer, step = half_frozen(frozen)
        step()
        assert len(optimizer.state) == count


@pytest.mark.parametrize(
    "function", [allocations, footprint, training_memory, lambda f: run_on_card(f, MIB)]
)
def test_helpers_require_a_function(function) -> None:
    for wrong in (3, None, torch.ones(1), (n for n in range(2))):
        with pytest.raises(TypeError, match=f"must be a function, got {type(wrong).__name__}"):
            function(wrong)


def test_allocations_require_a_kind_of_device() -> None:
    for wrong in (3, torch.device("cpu")):
        with pytest.raises(TypeError, match="device must be a text such as 'cuda', got"):
            allocations(lambda: None, wrong)
    for wrong in ("gpu", "cuda:0", ""):
        with pytest.raises(ValueError, match=f"device must be a kind .* got {wrong!r}"):
            allocations(lambda: None, wrong)


@pytest.mark.parametrize(
    ("built", "names"),
    [
        (lambda net, sgd: net, "Linear"),
        (lambda net, sgd: (net, sgd), "Linear, SGD"),
        (lambda net, sgd: (sgd, net, len), "SGD, Linear, builtin_function_or_method"),
        (lambda net, sgd: (net, None, len), "Linear, NoneType, builtin_function_or_method"),
        (lambda net, sgd: (net, sgd, 3), "Linear, SGD, int"),
        (lambda net, sgd: None, "NoneType"),
    ],
)
def test_training_memory_requires_three_parts(built, names) -> None:
    def build():
        net = nn.Linear(1, 1)
        return built(net, torch.optim.SGD(net.parameters(), lr=0.1))

    with pytest.raises(TypeError, match=f"and a step function, got {names}$"):
        training_memory(build)


@pytest.mark.skipif(torch.version.cuda is None, reason="a PyTorch built without CUDA")
def test_training_memory_rejects_other_devices() -> None:
    def elsewhere() -> tuple:
        net, optimizer, _ = network()
        return net, optimizer, lambda: torch.ones(3, device="cuda")

    with pytest.raises(
        ValueError, match=r"expected a step on the CPU alone, got one on \['cpu', 'cuda'\]"
    ):
        training_memory(elsewhere)


@pytest.mark.skipif(torch.version.cuda is None, reason="a PyTorch built without CUDA")
def test_a_gpu_saves_a_bool_mask_for_dropout_and_a_cpu_one_of_the_input_s_dtype() -> None:
    saved = {}
    with fake_tensors():
        for device in ("cpu", "cuda"):
            x = torch.randn(4, 8, device=device, requires_grad=True)
            pack = partial(saved.__setitem__, device)
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                nn.functional.dropout(x)
    assert {device: mask.dtype for device, mask in saved.items()} == {
        "cpu": torch.float32,
        "cuda": torch.bool,
    }


def test_mem_tracker_returns_four_parts_and_a_total() -> None:
    """`MemTracker` reports weights, gradients, optimizer, activations and total per device."""
    snapshot = memory_caching._fullest_moment(*network())
    assert set(snapshot) == {"cpu"}
    *parts, total = snapshot["cpu"]
    assert sum(parts) == total and len(parts) == 4


def test_run_on_card_raises_out_of_memory_on_a_small_card() -> None:
    def work() -> None:
        torch.ones(3 * MIB).add(1)  # 12 MiB each

    counters = run_on_card(work, 24 * MIB).counters
    assert (counters.max_allocated, counters.allocated) == (24 * MIB, 0)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 12.00 MiB"):
        run_on_card(work, 22 * MIB)


def test_draw_memory_draws_one_bar_per_part() -> None:
    figure = demos.draw_memory({"a": TrainingMemory(*[MIB * n for n in (1, 2, 3, 4, 10)])})
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == [1, 2, 3, 4]
    assert [bar.get_x() for bar in bars] == [0, 1, 3, 6]
    with pytest.raises(ValueError, match="at least one bar"):
        demos.draw_memory({})


# Exercises


def right_segment(nbytes: int) -> int:
    block = (nbytes + 511) // 512 * 512
    if block <= 2**20:
        return 2 * 2**20
    if block < 10 * 2**20:
        return 20 * 2**20
    return (block + 2**21 - 1) // 2**21 * 2**21


def right_releasable(snapshot: list[dict]) -> int:
    return sum(
        s["total_size"]
        for s in snapshot
        if "active_allocated" not in {b["state"] for b in s["blocks"]}
    )


def right_mean(model: torch.nn.Module, batches: object, loss_fn: object) -> float:
    total = count = 0
    with torch.no_grad():
        for x, y in batches:
            total += loss_fn(model(x), y).item() * len(x)
            count += len(x)
    return total / count


def test_right_answers_pass() -> None:
    assert check_segment(right_segment).passed
    assert check_mean_loss(right_mean).passed
    assert check_releasable(right_releasable).passed
    assert check_releasable(
        lambda snapshot: sum(s["total_size"] for s in snapshot if not s["allocated_size"])
    ).passed

    def item_is_enough(model, batches, loss_fn):
        losses = [(loss_fn(model(x), y).item(), len(y)) for x, y in batches]
        return sum(loss * n for loss, n in losses) / sum(n for _, n in losses)

    def detached(model, batches, loss_fn):
        losses = [(loss_fn(model(x), y).detach() * len(y), len(y)) for x, y in batches]
        return float(sum(loss for loss, _ in losses)) / sum(n for _, n in losses)

    @torch.inference_mode()
    def named(model, batches, loss_fn):
        total, count = 0.0, 0
        for x, y in batches:
            output = model(x)
            loss = loss_fn(output, y)
            total += float(loss) * x.shape[0]
            count += x.shape[0]
        return total / count

    assert check_mean_loss(named).passed
    assert check_mean_loss(item_is_enough).passed
    assert check_mean_loss(detached).passed


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda nbytes: None, "for nbytes = 1 your function returned None"),
        (lambda nbytes: ..., "expected a whole number of bytes"),
        (lambda nbytes: float(right_segment(nbytes)), "expected a whole number of bytes"),
        (lambda nbytes: nbytes + missing, "NameError"),  # noqa: F821
        (lambda nbytes: nbytes, "from a segment of 2 MiB"),
        (lambda n: 2 * MIB if n < MIB else right_segment(n + 1), "from a segment of 2 MiB"),
        (lambda n: -(-n // (2 * MIB)) * 2 * MIB, "from a segment of 20 MiB"),
        (lambda n: 20 * MIB if 2 * MIB < n < 10 * MIB else right_segment(n), "rounded up to 512"),
        (lambda n: right_segment(n) if n < 10 * MIB else -(-n // 512) * 512, "multiple of 2 MiB"),
        (lambda n: right_segment(n) if n < 10 * MIB else 20 * MIB, "multiple of 2 MiB"),
    ],
)
def test_check_segment_rejects_wrong_answers(answer: object, says: str) -> None:
    expect(check_segment(answer), says)


def only_inactive(snapshot: list[dict]) -> int:
    return sum(
        s["total_size"] for s in snapshot if {b["state"] for b in s["blocks"]} == {"inactive"}
    )


def free_bytes(snapshot: list[dict]) -> int:
    return sum(b["size"] for s in snapshot for b in s["blocks"] if b["state"] == "inactive")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda snapshot: ..., "without a segment expected a whole number of bytes"),
        (lambda snapshot: None, "without a segment your function returned None"),
        (
            free_bytes,
            "with 1 segment you said 15728640, empty_cache gives back 0: you counted every",
        ),
        (lambda s: sum(x["total_size"] for x in s), "also those that tensors still use"),
        (lambda s: sum(x["allocated_size"] for x in s), "what tensors hold"),
        (lambda s: sum(not x["allocated_size"] for x in s), "each with its whole size"),
        (lambda s: 0, "each with its whole size"),
        (lambda s: right_releasable([x for x in s if x["segment_type"] == "large"]), "each with"),
        (lambda s: s[0]["total_size"], "your code raised IndexError"),
        (only_inactive, "it first waits for the other stream"),
        (
            lambda s: sum(
                x["total_size"] for x in s if x["blocks"][0]["state"] != "active_allocated"
            ),
            "each with its whole size",
        ),
    ],
)
def test_check_releasable_rejects_wrong_answers(answer: object, says: str) -> None:
    expect(check_releasable(answer), says)


def starter(model, batches, loss_fn):
    total = ...  # noqa: F841


def keeps_the_sum(model, batches, loss_fn):
    total, count = 0.0, 0
    for x, y in batches:
        total += loss_fn(model(x), y) * len(y)
        count += len(y)
    return total / count


def keeps_the_sum_until_the_end(model, batches, loss_fn):
    return keeps_the_sum(model, batches, loss_fn).item()


def keeps_a_list(model, batches, loss_fn):
    losses = [(loss_fn(model(x), y) * len(y), len(y)) for x, y in list(batches)]
    return (sum(loss for loss, _ in losses) / sum(n for _, n in losses)).item()


def forgets_to_divide(model, batches, loss_fn):
    return sum(loss_fn(model(x), y).item() for x, y in batches)


def divides_by_samples(model, batches, loss_fn):
    total, count = 0.0, 0
    for x, y in batches:
        total += loss_fn(model(x), y).item()
        count += len(x)
    return total / count


def averages_the_batches(model, batches, loss_fn):
    losses = [loss_fn(model(x), y).item() for x, y in batches]
    return sum(losses) / len(losses)


def switches_the_mode(model, batches, loss_fn):
    result = right_mean(model, batches, loss_fn)
    model.train()
    return result


def last_only(model, batches, loss_fn):
    for x, y in batches:
        loss = loss_fn(model(x), y).item()
    return loss


def runs_twice(model, batches, loss_fn):
    twice = ((model(x), x, y) for x, y in batches)
    return right_mean(model, ((x, y) for _, x, y in twice), loss_fn)


@torch.no_grad()
def all_predictions_first(model, batches, loss_fn):
    outputs, targets = zip(*((model(x), y) for x, y in batches), strict=True)
    return loss_fn(torch.cat(outputs), torch.cat(targets)).item()


def ignores_loss_fn(model, batches, loss_fn):
    return right_mean(model, batches, torch.nn.MSELoss())


def trains_meanwhile(model, batches, loss_fn):
    model.train()
    found = right_mean(model, batches, loss_fn)
    model.eval()
    return found


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (trains_meanwhile, "runs the model in training mode"),
        (starter, "returned None"),
        (all_predictions_first, "the outputs of 2 earlier batches are still in memory"),
        (keeps_the_sum, "returned a tensor, and its graph with it"),
        (keeps_the_sum_until_the_end, "activations of an earlier batch are still in memory"),
        (keeps_a_list, "an earlier batch are still in memory"),
        (forgets_to_divide, "sum of the losses"),
        (averages_the_batches, "averaged the batches, and the last one is smaller"),
        (switches_the_mode, "switched the model to training mode"),
        (divides_by_samples, "the mean loss is"),
        (last_only, "the mean loss is"),
        (ignores_loss_fn, "over 2 batches the mean loss is"),
        (runs_twice, "there are 12 batches, your function ran the model on 24"),
        (lambda m, b, f: right_mean(m, list(b)[:-1] or [1], f), "your code raised"),
        (lambda m, b, f: int(right_mean(m, b, f)), "expected a float, got int"),
    ],
)
def test_check_mean_loss_rejects_wrong_answers(answer: object, says: str) -> None:
    expect(check_mean_loss(answer), says)


# Sentences of the chapter


def inplace_saves(activation: type, **options: object) -> list[float]:
    """Return the savings of the in-place form in sizes of x: forward peak, kept, step peak."""
    x = torch.ones(1024, 16)

    def memory(inplace: bool) -> list[float]:
        pairs = [(nn.Linear(16, 16), activation(inplace=inplace, **options)) for _ in range(4)]
        net = nn.Sequential(*sum(pairs, ()))
        forward = footprint(lambda: net(x))
        step = footprint(lambda: net(x).sum().backward())
        return [size / x.nbytes for size in (forward.peak, forward.kept, step.peak)]

    return [round(a - b) for a, b in zip(memory(False), memory(True), strict=True)]


@pytest.mark.parametrize(
    ("activation", "saved"),
    [
        (nn.ReLU, [1, 0, 0]),
        (nn.LeakyReLU, [4, 4, 3]),
        (nn.ELU, [4, 4, 3]),
        (nn.SiLU, [0, 0, 0]),
        (nn.Hardswish, [0, 0, 0]),
    ],
)
def test_inplace_activation_saves_the_expected_tensors(activation: type, saved: list[int]) -> None:
    assert inplace_saves(activation) == saved


def test_inplace_activation_saves_no_memory_under_no_grad() -> None:
    x = torch.ones(1024, 16)

    def peak(inplace: bool) -> int:
        net = nn.Sequential(*sum(((nn.Linear(16, 16), nn.ReLU(inplace)) for _ in range(4)), ()))
        with torch.no_grad():
            return footprint(lambda: net(x)).peak

    assert peak(True) == peak(False)


def test_empty_cache_prevents_oom_between_phases() -> None:
    def two_phases(between: bool) -> None:
        gpu = CachingAllocator(capacity=45 * MIB)
        gpu.free(gpu.malloc(30 * MIB))  # the first phase
        if between:
            gpu.empty_cache()
        gpu.malloc(12 * MIB)  # stays
        gpu.malloc(30 * MIB)

    with pytest.raises(torch.OutOfMemoryError):
        two_phases(between=False)
    two_phases(between=True)


def test_growing_batches_reserve_new_segments_only_above_10_mib() -> None:
    def reserved(sizes: list[int]) -> int:
        gpu = CachingAllocator()
        for mib in sizes:
            gpu.free(gpu.malloc(mib * MIB))
        return gpu.reserved // MIB

    assert reserved([12, 14, 16, 18, 20]) == 80
    assert reserved([2, 4, 6, 8, 9]) == 20


# The rest


def test_import_loads_no_heavy_modules() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import helpers.memory_caching; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "torchvision", "IPython", "sklearn"} & set(run.stdout.split())


def test_footprint_counts_tensors_of_python_numbers():
    numbers = [1.0] * 1000

    def doubled():
        x = torch.tensor(numbers)
        return x * 2

    assert memory_caching.footprint(lambda: torch.tensor(numbers)).peak == 4000
    assert memory_caching.footprint(doubled) == memory_caching.Footprint(8000, 4000)
    kept = torch.tensor(numbers)
    assert memory_caching.footprint(lambda: kept * 2).peak == 4000


def test_training_memory_of_a_small_model_is_shown_in_kib():
    def build():
        model = nn.Linear(30, 30)
        optimizer = torch.optim.Adam(model.parameters())

        def step():
            optimizer.zero_grad()
            model(torch.ones(8, 30)).sum().backward()
            optimizer.step()

        return model, optimizer, step

    assert repr(memory_caching.training_memory(build)).startswith("weights 4, gradients 4, opt")
    assert repr(memory_caching.training_memory(build)).endswith("KiB")


def test_model_built_outside_raises():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())

    def step():
        model(torch.ones(1, 2)).sum().backward()

    words = "uses a tensor from outside"
    with pytest.raises(ValueError, match=words):
        memory_caching.training_memory(lambda: (model, optimizer, step))
    with pytest.raises(ValueError, match=words):
        memory_caching.run_on_card(step, 2**30)


def test_training_memory_excludes_gradients_of_frozen_layers() -> None:
    def build(frozen: bool):
        model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
        model[0].requires_grad_(not frozen)
        optimizer, x = torch.optim.Adam(model.parameters()), torch.randn(4, 64)

        def step():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        return model, optimizer, step

    half, whole = (memory_caching.training_memory(lambda f=f: build(f)) for f in (True, False))
    layer = 64 * 64 * 4
    assert half.weights == whole.weights == 2 * layer
    assert (half.gradients, whole.gradients) == (layer, 2 * layer)
    assert half.optimizer < 5 * layer < whole.optimizer
