"""Provide fixtures for tests that compare the book's simulations with a real GPU.

A test with the fixture `card` is skipped without a CUDA device, or fails if
`BOOK_CUDA=1`. The other tests cover the tools and the CPU side of a comparison.
"""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(scope="session")
def card() -> torch.device:
    """Return the first CUDA device."""
    mode = os.environ.get("BOOK_CUDA")
    if torch.cuda.is_available() and mode != "0":
        return torch.device("cuda", 0)
    reason = "PyTorch finds no CUDA device: `make gpu` runs this test on a machine with one"
    if mode == "1":
        pytest.fail(reason)
    pytest.skip("BOOK_CUDA=0 excludes the GPU" if mode == "0" else reason)
