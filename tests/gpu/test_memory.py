"""Compare the allocator model and the predicted memory of a training step with a GPU.

Chapter: `memory_caching`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest
import torch
from card_worker import in_fresh_process, run_trace
from traces import notes_trace

from helpers.allocator import MIB, STATS, CachingAllocator, Step, random_trace, replay
from helpers.demos.memory_caching import FRAGMENTATION_CAPACITY, fragmentation_trace
from helpers.explorers.memory import training
from helpers.memory_caching import TrainingMemory, training_memory


def one_after_the_other(*sizes: int) -> list[tuple[Any, ...]]:
    """Return a trace that allocates and frees one tensor after another, with sizes in MiB."""
    pairs = ((("malloc", f"t{n}", size * MIB), ("free", f"t{n}")) for n, size in enumerate(sizes))
    return [operation for pair in pairs for operation in pair]


# name: trace, capacity in bytes, max_split_size_mb; the chapter shows the first seven
TRACES: dict[str, tuple[list[tuple[Any, ...]], int | None, int | None]] = {
    "old notes": (notes_trace(repeats=5), None, None),
    "fragmentation": (fragmentation_trace(), FRAGMENTATION_CAPACITY, None),
    "growing batches": (one_after_the_other(12, 14, 16, 18, 20), None, None),
    "shrinking batches": (one_after_the_other(20, 18, 16, 14, 12), None, None),
    "freed": (one_after_the_other(5), None, None),
    "empty_cache": (
        [
            *(("malloc", name, size * MIB) for name, size in (("a", 5), ("b", 5), ("c", 30))),
            ("free", "a"),
            ("free", "c"),
            ("empty_cache",),
        ],
        None,
        None,
    ),
    "retry": ([*one_after_the_other(12), ("malloc", "all", 40 * MIB)], 40 * MIB, None),
    "peaks": ([*one_after_the_other(30), ("reset_peak",), *one_after_the_other(5)], None, None),
    "random": (random_trace(seed=0), None, None),
    "max_split_size": (random_trace(seed=1), 640 * MIB, 32),
}


def differences(model: list[Step], card: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each value in which the model and the GPU differ."""
    sentences = [] if len(model) == len(card) else [f"{len(model)} steps, {len(card)} on the card"]
    for number, (step, real) in enumerate(zip(model, card, strict=False)):
        ours = {**asdict(step.counters), "failed": step.error is not None, "address": step.address}
        theirs = {**real, "failed": real["error"] is not None}
        sentences += [
            f"step {number} {step.operation}: {key} is {value}, {theirs[key]} on the card"
            for key, value in ours.items()
            if value != theirs[key]
        ]
    return sentences


def compare(name: str, steps: list[dict[str, Any]]) -> list[str]:
    """Return the differences between the model and a trace on the GPU, start included."""
    trace, capacity, split = TRACES[name]
    start, *steps = steps
    assert (start["allocated"], start["reserved"]) == (0, 0)
    lowest = min((step["address"] for step in steps if step["address"]), default=0)
    steps = [
        step | {"address": step["address"] - lowest if step["address"] else None} for step in steps
    ]
    addresses = [step["address"] for step in steps]  # break ties between equal blocks
    return differences(replay(trace, capacity, max_split_size_mb=split, addresses=addresses), steps)


@pytest.fixture
def default_allocator(monkeypatch):
    """Remove the variables that configure PyTorch's allocator."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("card", "default_allocator")
@pytest.mark.parametrize("name", TRACES)
def test_model_counters_match_the_gpu_after_each_step(name):
    trace, capacity, split = TRACES[name]
    variables = {"PYTORCH_ALLOC_CONF": f"max_split_size_mb:{split}"} if split else {}
    assert compare(name, in_fresh_process(run_trace, trace, capacity, **variables)) == []


@pytest.mark.usefixtures("card", "default_allocator")
def test_nvidia_smi_counts_the_context_and_reserved_memory():
    """Check order and differences; other processes on the GPU affect only the differences."""
    trace = [("malloc", "x", 256 * MIB), ("free", "x"), ("empty_cache",)]
    start, full, freed, emptied = in_fresh_process(run_trace, trace)
    assert start["used"] > 0 and start["reserved"] == 0  # the CUDA context
    assert [s["allocated"] // MIB for s in (full, freed, emptied)] == [256, 0, 0]
    assert [s["reserved"] // MIB for s in (full, freed, emptied)] == [256, 256, 0]
    assert all(s["used"] >= s["reserved"] >= s["allocated"] for s in (start, full, freed, emptied))
    assert full["used"] - emptied["used"] == pytest.approx(256 * MIB, abs=2 * MIB)


# ---------------------------------------------------------------- the trace, without a GPU


class ModelAsCard:
    """Replace the calls of `torch.cuda` and `torch.empty` in a trace by the allocator model."""

    BASE, TOTAL = 0x7F5A40000000, 139 * 2**30 + 12345

    def __init__(self, monkeypatch: pytest.MonkeyPatch, max_split_size_mb: int | None):
        self.model = CachingAllocator(max_split_size_mb=max_split_size_mb)
        monkeypatch.setattr(torch, "empty", self.empty)
        for name, function in {
            "synchronize": lambda: None,
            "memory_stats": self.memory_stats,
            "empty_cache": self.model.empty_cache,
            "reset_peak_memory_stats": self.model.reset_peak,
            "set_per_process_memory_fraction": self.set_fraction,
            "mem_get_info": lambda: (self.TOTAL - self.model.reserved, self.TOTAL),
        }.items():
            monkeypatch.setattr(torch.cuda, name, function)

    def empty(self, nbytes: int, dtype: torch.dtype, device: str) -> Any:
        assert (dtype, device) == (torch.uint8, "cuda")
        card, block = self, self.model.malloc(nbytes)

        class Tensor:
            def data_ptr(self) -> int:
                return card.BASE + block.address if block.size else 0

            def __del__(self) -> None:
                card.model.free(block)

        return Tensor()

    def memory_stats(self) -> dict[str, int]:
        return {key: getattr(self.model.counters, name) for name, key in STATS.items()}

    def set_fraction(self, fraction: float) -> None:
        self.model.capacity = int(fraction * self.TOTAL)


@pytest.mark.parametrize("name", TRACES)
def test_compare_accepts_a_matching_trace_and_reports_each_change(name, monkeypatch):
    trace, capacity, split = json.loads(json.dumps(TRACES[name]))
    with monkeypatch.context() as patch:
        ModelAsCard(patch, split)
        steps = run_trace(trace, capacity)
    assert compare(name, steps) == []
    if name == "old notes":
        for key in (*STATS, "address", "error"):
            changed = [dict(step) for step in steps]
            changed[4][key] = "full" if key == "error" else changed[4][key] + 512
            (sentence,) = compare(name, changed)
            assert sentence.startswith("step 3 ('malloc', 'output 1', 4070440): ")
        assert differences(replay(trace), steps[1:-1])[0] == "63 steps, 62 on the card"


def test_only_the_expected_traces_contain_failures():
    failed = {}
    for name, (trace, capacity, split) in TRACES.items():
        steps = replay(trace, capacity, max_split_size_mb=split)
        if errors := [step.operation for step in steps if step.error]:
            failed[name] = errors
    assert failed.keys() == {"fragmentation", "max_split_size"}
    assert failed["fragmentation"] == [("malloc", "big", 12 * MIB)]


# ---------------------------------------------------------------- a training step

WAYS: dict[str, dict[str, Any]] = {
    "batch 1": {"batch": 1},
    "batch 8": {},
    "batch 16": {"batch": 16},
    "8, SGD": {"kind": torch.optim.SGD},
    "8, bfloat16": {"half": True},
    "8, checkpoints": {"again": True},
}
TEMPORARY = 0.15  # limit of the share that GPU kernels add to the prediction; 0.12 on an H100


def measured_peak(**how: Any) -> int:
    """Return the peak of the second step's tensors on the GPU in bytes, without workspaces."""
    training(device="cuda", **how | {"batch": 1})[2]()  # cuBLAS allocates its workspaces
    workspace = torch.cuda.memory_allocated()
    net, optimizer, step = training(device="cuda", **{"foreach": False, **how})
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    del net, optimizer
    return torch.cuda.max_memory_allocated() - workspace


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("way", WAYS)
def test_measured_step_memory_matches_the_prediction(way):
    """Measure with `foreach=False`, which the prediction on the CPU uses."""
    predicted = training_memory(partial(training, **WAYS[way])).peak
    assert predicted * 0.999 <= measured_peak(**WAYS[way]) <= predicted * (1 + TEMPORARY)


@pytest.mark.usefixtures("card")
def test_foreach_adds_at_most_one_copy_of_the_weights():
    weights = training_memory(partial(training, batch=1)).weights
    more = measured_peak(batch=1, foreach=True) - measured_peak(batch=1, foreach=False)
    assert 0 <= more <= weights * 1.1


def test_cpu_prediction_matches_the_chapter():
    predicted = {way: training_memory(partial(training, **how)) for way, how in WAYS.items()}
    assert all(isinstance(memory, TrainingMemory) for memory in predicted.values())
    assert predicted["batch 1"].gradients // MIB == predicted["batch 1"].weights // MIB == 64
    assert predicted["batch 8"].gradients // MIB == 8
    smaller = ("8, SGD", "8, bfloat16", "8, checkpoints")
    assert all(predicted[way].peak < predicted["batch 8"].peak for way in smaller)
