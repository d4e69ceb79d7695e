"""Tests on a real card of what the book shows without one.

A test with the fixture `card` is skipped on a machine without a CUDA device, and fails there under
`BOOK_CUDA=1`. The others test the tools of these tests, and the CPU's side of a comparison.
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
