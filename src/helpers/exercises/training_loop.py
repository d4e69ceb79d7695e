"""Checkers of the exercises of the chapter on training loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.autograd import saved_tensors
from helpers.evaluation import evaluating
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import (
    in_two_modes,
    instance,
    kind,
    leaves,
    random_state_kept,
    unchanged,
)
from helpers.training_loop import Batches, untrained


def _evaluate_net(drop: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Dropout(drop), nn.Linear(32, 4))


def _evaluate_batches(*sizes: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(n, 3) * 3, torch.randint(0, 4, (n,))) for n in sizes]


def _evaluate_right(model: nn.Module, loader: list) -> float:
    x, y = (torch.cat(part) for part in zip(*loader, strict=True))
    with evaluating(model):
        return F.cross_entropy(model(x), y).item()


def _evaluate_number(got: object) -> float:
    assert isinstance(got, Real | Tensor), f"expected a float, got {kind(got)}"
    if isinstance(got, Tensor):
        assert got.shape == (), f"expected one number, got a tensor of shape {tuple(got.shape)}"
        return got.item()
    return got


def _evaluate_double(f):
    model = _evaluate_net().double()
    loader = [(x.double(), y) for x, y in _evaluate_batches(4, 3)]
    assert _evaluate_close(_evaluate_number(f(model, loader)), _evaluate_right(model, loader)), (
        "wrong for a model in float64"
    )


def _evaluate_close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5)


def _evaluate_even(f):
    model, loader = _evaluate_net().eval(), _evaluate_batches(4, 4)
    assert _evaluate_close(_evaluate_number(f(model, loader)), _evaluate_right(model, loader)), (
        "on batches of equal size it is not the mean cross-entropy per sample"
    )
    loader[0][0][0] = math.nan
    shown = math.isnan(_evaluate_number(f(model, loader)))
    assert shown, "a loss of nan is hidden: the mean must be nan"


def _evaluate_uneven(f):
    model, naive, want = _evaluate_net().eval(), 0.0, 0.0
    while abs(naive - want) < 0.05:
        loader = _evaluate_batches(8, 8, 1)
        want = _evaluate_right(model, loader)
        naive = sum(_evaluate_right(model, [batch]) for batch in loader) / 3
    got = _evaluate_number(f(model, loader))
    assert not _evaluate_close(got, naive), (
        "the last batch has one sample and the same weight as the others, which have eight"
    )
    assert _evaluate_close(got, want), "with a smaller last batch the mean is wrong"


def _evaluate_dropout(f):
    model, loader = _evaluate_net(drop=0.9).train(), _evaluate_batches(64, 32)
    assert _evaluate_close(_evaluate_number(f(model, loader)), _evaluate_right(model, loader)), (
        "dropout was active: the model was not in eval mode"
    )


def _evaluate_modes(f):
    for mode in (True, False):
        model = _evaluate_net(drop=0.5).train(mode)
        f(model, _evaluate_batches(4, 3))
        assert model.training == mode and model[2].training == mode, (
            f"the model had training={mode} before the call and has training={not mode} after it"
        )
    model = _evaluate_net(drop=0.5).train()
    model[2].eval()
    f(model, _evaluate_batches(4, 3))
    assert model.training and not model[2].training, (
        "a layer that was in eval mode inside a training model was put into training mode"
    )
    model.eval()[2].train()
    f(model, _evaluate_batches(4, 3))
    assert model[2].training and not model[0].training, (
        "a layer that was in training mode inside a model in eval mode has changed its mode"
    )
    nested = nn.Sequential(_evaluate_net(drop=0.5)).train()
    f(nested, _evaluate_batches(4, 3))
    assert nested[0][2].training, (
        "a layer inside a block was left in eval mode: restore the mode of every submodule"
    )


def _evaluate_graph(f):
    model, loader, got = _evaluate_net(), _evaluate_batches(4, 3), []
    saved = saved_tensors(lambda: got.append(f(model, loader)))
    assert not saved, "autograd recorded the forward passes, but no backward pass follows"
    assert all(p.grad is None for p in model.parameters()), "parameters have gradients now"


def _evaluate_once(f):
    model = nn.Sequential(*_evaluate_net(), nn.BatchNorm1d(4)).train()
    loader = _evaluate_batches(4, 3)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    seeded = "the random state of {} was changed: an evaluation must not seed"
    with unchanged(model=model, loader=loader), random_state_kept(seeded):
        f(model, loader)
    assert _evaluate_close(
        _evaluate_number(f(model, iter(loader))), _evaluate_right(model, loader)
    ), "the loader is read twice, but an iterator can be read only once"


def _evaluate_broken(f):
    model = _evaluate_net(drop=0.5).train()

    def loader():
        yield from _evaluate_batches(4)
        raise OSError("planted")

    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with unchanged(model=model):
        with suppress(OSError):
            f(model, loader())
            raise AssertionError("an error in the loader is not raised: leave it uncaught")
        assert model.training and model[2].training, (
            "after an error in the loader the model was left in eval mode"
        )


def check_evaluate(answer: Callable[[nn.Module, Batches], float]) -> Verdict:
    """Check `answer(model, loader)`: the mean cross-entropy per sample, in eval mode.

    `loader` gives batches (x, y), floating point of shape (n, 3) and int64 of shape (n,), whose
    last one may be smaller; it may give them only once. The model keeps its modes, also after an
    error, and autograd records nothing.
    """
    return verdict(
        answer,
        [
            _evaluate_even,
            _evaluate_uneven,
            _evaluate_double,
            _evaluate_dropout,
            _evaluate_modes,
            _evaluate_graph,
            _evaluate_once,
            _evaluate_broken,
        ],
        draws=True,
    )


class _Net(nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.conv = nn.Conv1d(4, 4, 3)
        self.pixels, self.voxels = nn.Conv2d(1, 2, 3), nn.Conv3d(1, 2, 3)
        self.batch_norm = nn.BatchNorm1d(4)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.layer_norm, self.table_norm = nn.LayerNorm(4), nn.LayerNorm((2, 4))
        self.positions = nn.Parameter(torch.zeros(7, 4))
        self.latent = nn.Parameter(torch.zeros(1, 7, 4))
        subclass = nn.modules.linear.NonDynamicallyQuantizableLinear  # of nn.Linear
        self.block = nn.Sequential(subclass(4, 4), nn.BatchNorm1d(4))
        if tied:
            self.second.weight = self.first.weight


def _decay_groups_groups(f, model: nn.Module, weight_decay: float) -> dict[int, float]:
    given = leaves(f, "the model")(in_two_modes(model), weight_decay)
    instance("a list", given, list, tuple)
    given = [{**g, "params": list(g["params"])} for g in given]
    ids = [id(p) for g in given for p in g["params"]]
    names = {id(p): n for n, p in model.named_parameters()}
    for one in ids:
        assert one in names, "a group contains something that is not a parameter of the model"
        assert ids.count(one) == 1, f"{names[one]} is listed more than once"
    for group in given:
        assert "weight_decay" in group, "a group has no weight_decay of its own"
    optimizer = torch.optim.SGD([g for g in given if g["params"]], lr=0.1)
    missing = untrained(model, optimizer)
    assert not missing, f"{missing[0]} is in no group and would not be trained"
    return {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}


def _decay_groups_compare(f, tied: bool) -> None:
    weight_decay = round(0.01 + torch.rand(()).item(), 3)
    model = _Net(tied)
    decays = _decay_groups_groups(f, model, weight_decay)
    layers = ("conv", "pixels", "voxels", "first", "second", "block.0")
    matrices = {f"{layer}.weight" for layer in layers}
    for name, p in model.named_parameters():
        decay = decays[id(p)]
        if name in matrices:
            assert decay == weight_decay, f"{name} has decay {decay}, expected {weight_decay}"
        else:
            assert decay == 0, f"{name} is decayed, but should have weight_decay 0"


def _decay_groups_plain(f):
    _decay_groups_compare(f, False)


def _decay_groups_shared(f):
    _decay_groups_compare(f, True)


def check_decay_groups(answer: Callable[[nn.Module, float], list[dict]]) -> Verdict:
    """Check `answer(model, weight_decay)`: parameter groups that decay the weights of layers only.

    Weights of linear and convolutional layers get `weight_decay`; all other parameters get 0, also
    those with two axes. A weight that two layers share comes once.
    """
    return verdict(answer, [_decay_groups_plain, _decay_groups_shared])
