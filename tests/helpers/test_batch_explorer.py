"""The batch explorer: splits and gradients are torch's."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.explorers import batch


@given(n=st.integers(1, 20), replicas=st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_split_gradients_against_the_formula(n, replicas):
    x, y = torch.randn(n), torch.randn(n)
    got = batch.split_gradients(x, y, replicas)
    assert got["sizes"] == [len(part) for part in torch.ones(n).chunk(replicas)]
    per_sample = 2 * (x - y) * x  # the derivative of (w x - y)^2 at w = 1
    means = [part.mean() for part in per_sample.split(got["sizes"])]
    assert got["exact"] == pytest.approx(per_sample.mean().item(), abs=2e-3)
    assert got["averaged"] == pytest.approx(torch.stack(means).mean().item(), abs=2e-3)


def test_explorer_shows_what_torch_computes():
    rows = json.loads(batch.batch_explorer().data)
    assert len(rows) == batch.LARGEST_BATCH
    for n, row in enumerate(rows, 1):
        assert row["exact"] == round(sum(2 * (1 - k / 2) for k in range(1, n + 1)) / n, 3)
        assert len(row["splits"]) == batch.MOST_REPLICAS
        for replicas, (shards, averaged) in enumerate(row["splits"], 1):
            assert shards == [len(part) for part in torch.ones(n).chunk(replicas)]
            if len(set(shards)) == 1:
                assert averaged == row["exact"]
    assert rows[9]["splits"][3] == [[3, 3, 3, 1], -4.25] and rows[9]["exact"] == -3.5
