"""Detect an answer that calls a model in a mode other than the model's original one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def called_in_its_modes(model: nn.Module) -> Iterator[None]:
    """Raise if the block calls `model` with a changed mode of a submodule."""

    def modes() -> list[bool]:
        return [module.training for module in model.modules()]

    given, calls = modes(), []
    handle = model.register_forward_pre_hook(lambda *_: calls.append(modes()))
    try:
        yield
    finally:
        handle.remove()
    assert all(call == given for call in calls), (
        "the model was called in another mode: leave its mode unchanged"
    )
