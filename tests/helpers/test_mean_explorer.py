"""The mean explorer: its numbers are torch's."""

from __future__ import annotations

import json

import pytest
import torch

from helpers.explorers import mean


@pytest.fixture(scope="module")
def data() -> dict:
    return json.loads(mean.mean_explorer().data)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("number", range(16))
def test_every_state_of_the_explorer_is_what_torch_computes(data, weighted, number):
    kept = [bool(number >> i & 1) for i in range(4)]
    shown = data["rows"][weighted][number]
    weight = mean.WEIGHTS if weighted else torch.ones(3)
    rows = -mean.BATCH.log_softmax(1)[torch.arange(4), mean.LABELS]
    each = weight[mean.LABELS] * rows * torch.tensor(kept)
    divisor = sum(weight[c].item() for c, k in zip(mean.LABELS, kept, strict=True) if k)
    assert shown["each"] == [f"{v:.3f}" for v in each.tolist()]
    assert shown["sum"] == f"{each.sum():.3f}" and float(shown["divisor"]) == divisor
    assert shown["mean"] == (f"{each.sum() / divisor:.3f}" if divisor else "nan")
    assert shown["plain"] == f"{each.mean():.3f}"
    assert data["labels"] == mean.LABELS.tolist()
    assert data["weights"] == mean.WEIGHTS.tolist()
