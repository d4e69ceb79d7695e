"""Test queues, events, asynchronous errors and non-blocking copies on a GPU.

Chapters: `cuda_semantics`, `performance`, `data_loading`.
"""

from __future__ import annotations

import pytest
import torch
from card_worker import blamed_statement, busy, in_fresh_process
from torch.nn import functional as F
from torch.utils.data import DataLoader

from helpers import performance


def recorded_event():
    event = torch.cuda.Event()
    event.record()
    return event


@pytest.mark.usefixtures("card")
def test_gpu_call_returns_before_its_work_is_done():
    busy()
    event = recorded_event()
    assert not event.query()
    torch.accelerator.synchronize()
    assert event.query()


@pytest.mark.usefixtures("card")
def test_event_pair_measures_the_work():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    busy()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 0  # milliseconds


def test_reading_a_value_waits_for_the_queue(card):
    x = torch.ones(4, device=card)
    for read in (lambda: x[0].item(), x.tolist, lambda: str(x), x.cpu):
        busy()
        event = recorded_event()
        read()
        assert event.query()


def test_non_blocking_copy_from_the_gpu_can_be_read_too_early(card):
    ones, target = torch.ones(1 << 20, device=card), torch.zeros(1 << 20, pin_memory=True)
    busy()
    target.copy_(ones, non_blocking=True)
    assert not recorded_event().query()  # the copy is still queued, but the call has returned
    assert not target.any()
    torch.cuda.synchronize()
    assert target.all()


def test_non_blocking_copy_to_the_gpu_precedes_its_use(card):
    source = torch.ones(1 << 20, pin_memory=True)
    assert source.is_pinned() and not torch.ones(1).is_pinned()
    assert source.to(card, non_blocking=True).sum().item() == 1 << 20  # loads the kernels
    busy()
    moved = source.to(card, non_blocking=True)
    total = moved.sum()
    assert not recorded_event().query()
    assert total.item() == 1 << 20


def test_event_orders_two_streams(card):
    stream, x = torch.cuda.Stream(), torch.zeros(1 << 20, device=card)
    torch.cuda.synchronize()
    busy()
    x.fill_(1.0)
    event = recorded_event()
    with torch.cuda.stream(stream):
        stream.wait_event(event)
        total = x.sum()
    x.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    assert total.item() == 1 << 20


def test_data_loader_pins_each_batch(card):
    loader = DataLoader(torch.ones(4, 2), batch_size=2, pin_memory=True)
    batches = list(loader)
    assert all(batch.is_pinned() for batch in batches)
    assert all(batch.to(card, non_blocking=True).sum().item() == 4 for batch in batches)


# ---------------------------------------------------------------- asynchronous errors


@pytest.mark.usefixtures("card")
def test_index_error_on_the_gpu_is_raised_late():
    late = in_fresh_process(blamed_statement, "cuda", CUDA_LAUNCH_BLOCKING="0")
    blocking = in_fresh_process(blamed_statement, "cuda", CUDA_LAUNCH_BLOCKING="1")
    assert late["statement"] in ("y + 1", "synchronize")  # the first to report the error
    assert blocking["statement"] == "x[index]"
    for answer in (late, blocking):
        assert "device-side assert triggered" in answer["message"]
        assert answer["afterwards"] is not None  # the process can no longer use the GPU


def test_index_error_on_the_cpu_is_raised_at_once():
    answer = blamed_statement("cpu")
    assert answer["statement"] == "x[index]" and answer["afterwards"] is None
    assert "index 7 is out of bounds" in answer["message"]


# ---------------------------------------------------------------- synchronizing lines


def lines(device):
    """Return lines of the chapter, and whether each synchronizes with the GPU."""
    x = torch.randn(6, device=device)
    mask = torch.tensor([True, False] * 3, device=device)
    labels = torch.tensor([0, 2, 1], device=device)
    return {
        "x.sum().item()": (lambda: x.sum().item(), True),
        "x[mask]": (lambda: x[mask], True),
        "x.nonzero()": (lambda: x.nonzero(), True),
        "one_hot(labels)": (lambda: F.one_hot(labels), True),
        "repeat_interleave": (lambda: torch.repeat_interleave(labels, labels), True),
        "x.cpu()": (lambda: x.cpu(), True),
        "if x.isnan().any()": (lambda: bool(x.isnan().any()), True),
        "x.to_sparse()": (lambda: x.to_sparse(), True),
        "matrix_exp": (lambda: torch.linalg.matrix_exp(torch.outer(x, x)), True),
        "normal(0, x)": (lambda: torch.normal(0.0, x.abs()), True),
        "linspace(x[0], x[1])": (lambda: torch.linspace(x[0], x[1], 3, device=device), True),
        "x[mask] = 0": (lambda: x.__setitem__(mask, 0), False),
        "x.isnan().any()": (lambda: x.isnan().any(), False),
        "torch.where": (lambda: torch.where(mask, x, 0), False),
        "one_hot(labels, 3)": (lambda: F.one_hot(labels, 3), False),
        "output_size": (
            lambda: torch.repeat_interleave(labels, labels, output_size=3),
            False,
        ),
    }


LINES = list(lines("cpu"))


@pytest.mark.parametrize("line", LINES)
def test_waits_counts_match_the_chapter_on_the_cpu(line):
    run, waits = lines("cpu")[line]
    assert bool(performance.waits(run)) == waits


@pytest.mark.parametrize("line", LINES)
def test_sync_debug_mode_reports_the_same_waits(line, card):
    run, waits = lines(card)[line]
    run()  # the first call may load a library, which synchronizes
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        if waits:
            with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
                run()
        else:
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
