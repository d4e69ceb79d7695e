"""Test statements of the page on errors in the old notes."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from helpers.timing import time_ratio


def test_saving_a_state_dict_is_not_much_faster():
    net = nn.Sequential(*[nn.Linear(500, 500) for _ in range(4)])
    whole, state = (lambda v=v: torch.save(v, io.BytesIO()) for v in (net, net.state_dict()))
    assert time_ratio(whole, state, rounds=9) < 5


def test_typed_legacy_tensor_classes_ignore_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.Tensor([1]).dtype == torch.float64
        assert torch.FloatTensor([1]).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("n", "k"), [(15, 8), (16, 8), (30, 7), (30, 3)])
def test_last_frame_is_drawn_only_if_segments_divide_the_clip(n, k):
    drawn = torch.randint(n // k, (3000, k)) + n // k * torch.arange(k)
    assert (drawn.max() == n - 1) == (n % k == 0)
