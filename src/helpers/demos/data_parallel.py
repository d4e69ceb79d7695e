"""Demonstrations of the chapter on `nn.DataParallel`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def no_gpus() -> Iterator[None]:
    """Report no CUDA device inside the block, whatever the machine has."""
    with mock.patch("torch.cuda.is_available", return_value=False):
        yield
