"""Checkers of the exercises of the chapter "DataLoader"."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import ints, learns, leaves, random_state_kept

RANDOM = "the state of {} was changed: this needs no random numbers"


def _share_ask(f, n, workers):
    shares = []
    with random_state_kept(RANDOM):
        for worker in range(workers):
            info = SimpleNamespace(id=worker, num_workers=workers)
            shares.append(list(f(n, info)))
            assert vars(info) == {"id": worker, "num_workers": workers}, "info was changed"
    return [ints(share, "expected indices, plain integers") for share in shares]


def _share_some():
    workers = int(torch.randint(2, 6, ()))
    return int(torch.randint(1, 6, ())) * workers + int(torch.randint(1, workers, ())), workers


def _share_alone(f):
    n, _ = _share_some()
    share = f(n, None)
    assert share is not None, "expected indices, got None"
    assert list(share) == list(range(n)), "without workers, expected all indices in order"


def _share_once(f):
    n, workers = _share_some()
    seen = [i for share in _share_ask(f, n, workers) for i in share]
    assert len(seen) == len(set(seen)), f"{workers} workers read some indices twice"
    assert set(seen) == set(range(n)), f"{workers} workers leave out some of {n} indices"


def _share_blocks(f):
    n, workers = _share_some()
    for share in _share_ask(f, n, workers):
        assert share == sorted(share), "expected the indices of a worker in ascending order"
        assert not share or share[-1] - share[0] == len(share) - 1, "a share is not one block"


def _share_even(f):
    for n, workers in (_share_some(), (2, 5), (6, 3), (7, 5), (22, 22), (61, 7), (0, 2)):
        sizes = [len(share) for share in _share_ask(f, n, workers)]
        assert sum(sizes) == n, f"{workers} workers do not read {n} indices in all"
        assert max(sizes) - min(sizes) <= 1, f"shares of {sizes} differ by more than one"


def check_share(answer: Callable[[int, Any], Iterable[int]]) -> Verdict:
    """Check `answer(n, info)`: the indices below `n` that this worker reads, one block in a row.

    `info` is what `get_worker_info()` returns: None, or an object with `id` and `num_workers`.
    """

    return verdict(answer, [_share_alone, _share_once, _share_blocks, _share_even])


def _pad_batch():
    lengths = torch.randperm(6)[:4] + 1
    # values often used as padding are real here
    real = torch.tensor([-1.0, 0.0, 1.0, -100.0, -999.0, 1e9, -1e9, math.inf, -math.inf])
    return [real[torch.randint(len(real), (int(n),))] for n in lengths]


def _pad_pair(f, samples):
    with random_state_kept(RANDOM):
        got = leaves(f, "samples")(samples)
    pair = isinstance(got, (tuple, list)) and len(got) == 2
    assert pair and all(isinstance(t, Tensor) for t in got), "expected a pair of tensors"
    return got


def _pad_values(f):
    samples = _pad_batch()
    values, _ = _pad_pair(f, samples)
    shape = (len(samples), max(map(len, samples)))
    assert values.shape == shape, f"expected values of shape {shape}, got {tuple(values.shape)}"
    for row, sample in zip(values, samples, strict=True):
        assert torch.equal(row[: len(sample)], sample), "a sample is not at the start of its row"
        assert not row[len(sample) :].any(), "the padding is not 0"
    for sizes in ([3], [1, 1]):
        shape = (len(sizes), max(sizes))
        values, real = _pad_pair(f, [torch.ones(n) for n in sizes])
        assert values.shape == shape, f"expected values of shape {shape}, got {tuple(values.shape)}"
        assert real.shape == shape, "expected a mask of the shape of the values"


def _pad_mask(f):
    samples = _pad_batch()
    samples[0][:] = 0  # real zeros are not padding
    values, real = _pad_pair(f, samples)
    assert real.dtype == torch.bool, f"expected a mask of bool, got {real.dtype}"
    assert real.shape == values.shape, "expected a mask of the shape of the values"
    lengths = torch.tensor([len(sample) for sample in samples])
    want = torch.arange(values.shape[1]) < lengths[:, None]
    assert not torch.equal(real, ~want), "the mask is True at the padding: invert it"
    assert torch.equal(real, want), "the mask is wrong: a real 0 is not padding"
    for marker in (-100.0, -1.0, math.inf, -math.inf, math.nan):
        marked, seen = _pad_pair(f, [torch.full((1,), marker), torch.ones(2)])
        kept = str(marked[0, 0].item()) == str(marker)  # nan, too
        assert kept and seen.tolist() == [[True, False], [True, True]], (
            f"the mask is wrong: a real value may be {marker}; use the lengths"
        )


def _pad_dtypes(f):
    for dtype in (torch.int64, torch.float64, torch.float16, torch.uint8):
        limit = 1 / 3 if dtype.is_floating_point else torch.iinfo(dtype).max
        samples = [torch.tensor([0, limit, 1], dtype=dtype), torch.arange(1).to(dtype)]
        values, _ = _pad_pair(f, samples)
        name = str(dtype).removeprefix("torch.")
        assert values.dtype == dtype, f"{name} samples became {values.dtype}"
        assert torch.equal(values[0], samples[0]), f"{name} samples were rounded: keep {name}"
    for dtype in (torch.bfloat16, torch.uint8):  # 257 is no number of these dtypes
        _, real = _pad_pair(f, [torch.ones(n, dtype=dtype) for n in (257, 300, 1)])
        assert real.sum(1).tolist() == [257, 300, 1], (
            f"the mask is wrong for 257 {dtype} values: keep the lengths as int64"
        )


def _pad_gradient(f):
    samples = [torch.rand(3, requires_grad=True), torch.rand(1, requires_grad=True)]
    values, _ = _pad_pair(f, samples)
    lost = "the gradient does not flow from the padded batch to the samples"
    for got in learns(values, samples, lost):
        assert torch.equal(got, torch.ones_like(got)), "the gradient of a sample is wrong"


def check_pad(answer: Callable[[list[Tensor]], tuple[Tensor, Tensor]]) -> Verdict:
    """Check `answer(samples)`: 1-D tensors padded with 0 to (N, T), and a mask of the real values.

    Returns the padded tensor, of the samples' dtype, and a bool tensor (N, T), True at real
    values.
    """

    return verdict(answer, [_pad_values, _pad_mask, _pad_dtypes, _pad_gradient])
