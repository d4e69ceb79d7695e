"""The copy explorer: every row is what torch does."""

from __future__ import annotations

import torch

from helpers.explorers.copy import WAYS, try_way


def test_every_way_does_what_torch_says():
    told = {code: try_way(way) for code, way in WAYS.items()}
    x = torch.zeros(2, requires_grad=True)
    for code, way in WAYS.items():
        s = torch.sigmoid(x)
        y = way(s)
        assert told[code]["shares"] == (y.data_ptr() == s.data_ptr())
        assert told[code]["requires_grad"] == y.requires_grad
    assert {code: t["outcome"] for code, t in told.items()} == {
        "y = s": "RuntimeError",
        "y = s.detach()": "RuntimeError",
        "y = s.clone()": 0.25,
        "y = s.detach().clone()": 0.25,
        "y = s.data": 0.0,
    }
