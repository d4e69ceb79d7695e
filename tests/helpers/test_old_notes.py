"""Test statements of the page on errors in the old notes."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from helpers.timing import time_ratio


def test_saving_only_the_parameters_is_no_gain_worth_having():
    net = nn.Sequential(*[nn.Linear(500, 500) for _ in range(4)])
    whole, state = (lambda v=v: torch.save(v, io.BytesIO()) for v in (net, net.state_dict()))
    assert time_ratio(whole, state, rounds=9) < 5


def test_legacy_classes_with_a_type_in_their_name_ignore_the_default():
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.Tensor([1]).dtype == torch.float64
        assert torch.FloatTensor([1]).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("n", "k"), [(15, 8), (16, 8), (30, 7), (30, 3)])
def test_the_end_of_a_clip_is_drawn_only_if_the_parts_fit(n, k):
    drawn = torch.randint(n // k, (3000, k)) + n // k * torch.arange(k)
    assert (drawn.max() == n - 1) == (n % k == 0)
