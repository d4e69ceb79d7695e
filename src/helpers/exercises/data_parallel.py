"""Checkers of the exercises of the chapter on `nn.DataParallel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.modes import called_in_its_modes
from helpers.exercises.tools import (
    between,
    close,
    in_two_modes,
    instance,
    unchanged,
    with_gradients,
)

Shards = list[tuple[Tensor, Tensor]]


def _shards(sizes: Sequence[int], dtype: torch.dtype = torch.float32, width: int = 2) -> Shards:
    return [(torch.randn(3, n, dtype=dtype).T, torch.randn(width, n, dtype=dtype).T) for n in sizes]


def _uneven() -> list[int]:
    """Return two to five sizes from 1 to 6, not all the same."""
    sizes = torch.randint(1, 7, (int(torch.randint(2, 6, ())),)).tolist()
    return [*sizes, sizes[0] + 1]


def _shard_gradients_compare(f: Any, shards: Shards, what: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, shards[0][1].shape[1]))
    in_two_modes(model.to(shards[0][0].dtype))
    x, y = (torch.cat(column) for column in zip(*shards, strict=True))
    right = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
    seen: list[int] = []
    handles = [
        part.register_forward_hook(lambda m, args, out: seen.append(len(args[0])))
        for part in model.modules()
    ]
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with called_in_its_modes(model), unchanged(model=model, shards=shards):
        got = f(model, shards)
    for handle in handles:
        handle.remove()
    instance("a list", got, list, tuple)
    shapes = [tuple(p.shape) for p in right]
    given = [tuple(g.shape) for g in got]
    assert given == shapes, f"expected gradients of shapes {shapes}, got {given}"
    if x.dtype == torch.float64:
        for g, r in zip(got, right, strict=True):
            close(g, r, f"with {what} in float64, digits are lost")
        return
    assert not seen or max(seen) <= max(len(a) for a, _ in shards), (
        "the shards were joined for the forward pass; a replica gets one of them"
    )
    assert {*seen} <= {len(a) for a, _ in shards}, (
        "a shard was divided for the forward pass; a replica gets a whole shard"
    )
    factors = [(g * r).sum() / (r * r).sum() for g, r in zip(got, right, strict=True)]
    if all(torch.allclose(g, r, atol=1e-5) for g, r in zip(got, right, strict=True)):
        return
    factor = torch.stack(factors).mean().item()
    scaled = all(
        torch.allclose(g, factor * r, rtol=1e-3, atol=1e-5) for g, r in zip(got, right, strict=True)
    )
    assert not scaled, f"with {what}, the gradients are {factor:.2f} times too large"
    raise AssertionError(f"with {what}, these are not the gradients of the full batch")


def _shard_gradients_equal(f: Any) -> None:
    _shard_gradients_compare(f, _shards([4, 4]), "two shards of 4 samples")


def _shard_gradients_uneven(f: Any) -> None:
    for dtype in (torch.float32, torch.float32, torch.float64):
        sizes = _uneven()
        _shard_gradients_compare(
            f,
            _shards(sizes, dtype, between(1, 3)),
            f"shards of {' + '.join(map(str, sizes))} samples",
        )


def check_shard_gradients(
    answer: Callable[[nn.Module, Shards], Sequence[Tensor]],
) -> Verdict:
    """Check `answer(model, shards)`: the full-batch gradients, from one shard at a time.

    `shards` are pairs `x` (n, 3), `y` (n, 1 to 3), float32 or float64, of sizes that differ; the
    answer is the gradient of the mean squared error over all samples for each parameter of the
    model, in order.
    """
    return verdict(answer, [_shard_gradients_equal, _shard_gradients_uneven])


class _Inner(nn.Module):
    """Model with a child that has the name of a wrapper's attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(3, 2)


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()


def _load_saved(prefix: str, make: Callable[[], nn.Module] = _network) -> tuple[dict, dict]:
    source = make()
    with torch.no_grad():
        for p in source.parameters():
            p.add_(torch.randn_like(p))
    return source.state_dict(), source.state_dict(prefix=prefix)


def _load_try_loading(f: Any, prefix: str, make: Callable[[], nn.Module], of: str) -> None:
    plain, checkpoint = _load_saved(prefix, make)
    keys, versions, model = list(checkpoint), dict(checkpoint._metadata), in_two_modes(make())
    next(model.parameters()).requires_grad_(False)
    with_gradients(model)
    what = f"{of} with the prefix {prefix!r}" if prefix else f"{of} without a prefix"
    try:
        # loading into a compiled module changes a setting of the module
        with (
            unchanged("values objects settings", model=model),
            unchanged("entries objects", checkpoint=checkpoint),
        ):
            f(model, checkpoint)
    except (RuntimeError, KeyError) as error:
        line = str(error).strip().splitlines()[-1].strip()
        raise AssertionError(f"a checkpoint {what} does not load: {line}") from None
    for key, value in model.state_dict().items():
        assert torch.equal(value, plain[key]), (
            f"a checkpoint {what} was accepted, but {key} did not change"
        )
    values = [value.clone() for value in checkpoint.values()]
    same = list(checkpoint) == keys and checkpoint._metadata == versions
    assert same, f"the checkpoint {what} was changed; copy it first"
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)  # the model learns
    assert all(map(torch.equal, checkpoint.values(), values)), (
        f"the model shares its weights with the checkpoint {what}: training changes both"
    )


_PREFIXES = ("", "module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod.")


def _load_loads(f: Any) -> None:
    for prefix in _PREFIXES:
        _load_try_loading(f, prefix, _network, "of a model")


def _load_loads_inner(f: Any) -> None:
    for prefix in _PREFIXES:
        _load_try_loading(f, prefix, _Inner, "of a model that has a child `module`,")


def _load_complains(f: Any) -> None:
    for prefix in _PREFIXES:
        for key, lacks in (
            ("2.bias", True),
            ("1.num_batches_tracked", True),
            ("head.weight", False),
            ("x2.weight", False),  # ends with a name of the model
        ):
            _, checkpoint = _load_saved(prefix)
            if lacks:
                del checkpoint[prefix + key]
            else:
                own = checkpoint.get(prefix + key.removeprefix("x"), torch.zeros(1))
                checkpoint[prefix + key] = own.clone()
            fault = f"a checkpoint that {'lacks' if lacks else 'adds'} {key}"
            try:
                f(_network(), checkpoint)
            except Exception as error:
                assert key in str(error), (
                    f"the error for {fault} does not name it: {type(error).__name__}: {error}"
                )
            else:
                raise AssertionError(f"{fault} was loaded without an error")


def check_load(answer: Callable[[nn.Module, Mapping[str, Tensor]], Any]) -> Verdict:
    """Check `answer(model, checkpoint)`: loads a state_dict whatever wrapper wrote it.

    Prefixes `module.` and `_orig_mod.` come in any order, also where the model has a child that
    is called `module`; a checkpoint that lacks an entry, or has one too many, must raise an error
    that names it; the checkpoint itself stays as it was.
    """

    return verdict(answer, [_load_loads, _load_complains, _load_loads_inner])
