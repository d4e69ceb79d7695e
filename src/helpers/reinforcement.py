"""Helpers of the chapter on reinforcement learning: replay and soft updates.

Source: Sutton and Barto, "Reinforcement Learning: An Introduction", second edition,
http://incompleteideas.net/book/the-book-2nd.html
"""

from __future__ import annotations

from numbers import Integral

import numpy as np
import torch
from torch import Tensor, nn

from helpers.checks import fraction


class ReplayBuffer:
    """Store the last `capacity` transitions as copies, without their graphs.

    The first transition determines the shape and dtype of each field. Python's floats are stored
    as float32, bools as bool, ints as int64. Arrays keep their dtype, tensors dtype and device.

    Args:
        capacity: number of transitions; the oldest are overwritten.

    Raises:
        TypeError: `capacity` is not an int.
        ValueError: `capacity` is below 1.
    """

    def __init__(self, capacity: int) -> None:
        _count("capacity", capacity, 1)
        self.capacity, self.added, self.fields = capacity, 0, []

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, *transition: Tensor | float) -> None:
        """Copy one transition, such as state, action, reward, next state, terminated.

        Raises:
            TypeError: a field cannot be converted to a tensor, or the dtype of the first transition
                cannot represent it, such as a float where the first transition has an int.
            ValueError: the transition is empty, or the number of fields or a shape differs from
                the first transition's.
        """
        values = [_field(i, value) for i, value in enumerate(transition)]
        if not values:
            raise ValueError("expected at least one field, got none")
        if not self.fields:
            with torch.inference_mode(False):  # later steps may run outside of it
                self.fields = [v.new_zeros((self.capacity, *v.shape)) for v in values]
        if len(values) != len(self.fields):
            raise ValueError(f"expected {len(self.fields)} fields, got {len(values)}")
        for i, (field, value) in enumerate(zip(self.fields, values, strict=True)):
            if value.shape != field.shape[1:]:
                raise ValueError(
                    f"field {i}: expected shape {tuple(field.shape[1:])}, got {tuple(value.shape)}"
                )
            floats = field.is_floating_point() and value.is_floating_point()
            if not floats and torch.promote_types(field.dtype, value.dtype) != field.dtype:
                raise TypeError(f"field {i}: expected {field.dtype}, got {value.dtype}")
        for field, value in zip(self.fields, values, strict=True):
            field[self.added % self.capacity] = value
        self.added += 1

    def sample(self, size: int, generator: torch.Generator | None = None) -> list[Tensor]:
        """Return `size` random transitions, drawn with replacement: one (size, …) tensor per field.

        Raises:
            TypeError: `size` is not an int.
            ValueError: the buffer is empty, or `size` is below 0.
        """
        _count("size", size, 0)
        if not len(self):
            raise ValueError("the buffer is empty: add a transition first")
        rows = torch.randint(len(self), (size,), generator=generator)
        return [field[rows.to(field.device)] for field in self.fields]


def _field(i: int, value: Tensor | float) -> Tensor:
    try:
        if isinstance(value, np.ndarray):
            value = value.copy()  # from_numpy rejects negative strides, such as those of a flip
        if isinstance(value, float):
            return torch.tensor(value, dtype=torch.float32)
        return torch.as_tensor(value).detach()
    except (RuntimeError, TypeError, ValueError):
        name = type(value).__name__
        raise TypeError(f"field {i}: expected a tensor or numbers, got {name}") from None


@torch.no_grad()
def soft_update(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Change each parameter of `target` in place to (1 - tau) * target + tau * online.

    Buffers, such as the running statistics of BatchNorm, are copied. With a small `tau` a bfloat16
    or float16 parameter may not change, because the result is rounded.

    Args:
        target: the network that changes slowly.
        online: the network in training, of the same architecture.
        tau: from 0 (no change) to 1 (a copy); usually 0.005 to 0.05.

    Raises:
        TypeError: `target` or `online` is not a module.
        ValueError: `tau` is outside [0, 1], the names, shapes or dtypes of parameters or buffers
            differ, or the two networks share a parameter or its memory. Nothing is changed then.
    """
    fraction("tau", tau)
    for module in (target, online):
        if not isinstance(module, nn.Module):
            raise TypeError(f"expected two modules, got {type(module).__name__}")
    new, old = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (online, target))
    if new.keys() != old.keys():
        raise ValueError(
            f"the networks differ in {sorted(new.keys() ^ old.keys())}: use copy.deepcopy(online)"
        )
    for name, tensor in old.items():
        got, expected = ((tuple(t.shape), t.dtype) for t in (tensor, new[name]))
        if got != expected:
            raise ValueError(f"{name}: expected {expected} as in the online network, got {got}")
    for name, parameter in target.named_parameters():
        if parameter is new[name] or _same_memory(parameter, new[name]):
            raise ValueError(
                f"the networks share the parameter {name}: use copy.deepcopy(online) as the target"
            )
    for name, parameter in target.named_parameters():
        parameter.lerp_(new[name], tau)
    for name, buffer in target.named_buffers():
        buffer.copy_(new[name])


def _same_memory(a: Tensor, b: Tensor) -> bool:
    """Return whether both begin at one address, as after `load_state_dict(…, assign=True)`."""
    return a.numel() > 0 and not a.is_meta and a.data_ptr() == b.data_ptr()


def _count(name: str, value: int, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
