"""Checkers of the exercises of the chapter on debugging."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import a_float, in_two_modes, ints, random_states, unchanged


def _blind_loss_compare(f: Callable, labels: Tensor, classes: int, complaint: str) -> None:
    before = labels.clone()
    got = f(labels, classes)
    assert torch.equal(labels, before), "the labels have changed"
    got = a_float(got)
    share = labels.bincount(minlength=classes).double() / len(labels)
    right = torch.special.entr(share).sum().item()
    assert not math.isnan(got), "nan: 0 · log 0 is 0 for a class that never occurs"
    assert math.isclose(got, right, rel_tol=1e-5, abs_tol=1e-6), (
        f"{complaint}: {got:.3f} instead of {right:.3f}"
    )


def _blind_loss_balanced(f: Callable) -> None:
    classes = int(torch.randint(2, 30, ()))
    _blind_loss_compare(
        f, torch.arange(classes).repeat(5), classes, "wrong even for balanced classes"
    )


def _blind_loss_rare(f: Callable) -> None:
    labels = (torch.rand(500) < 0.05).long()
    labels[:2] = torch.tensor([0, 1])
    _blind_loss_compare(f, labels, 2, "wrong where one class is rare")
    _blind_loss_compare(f, (torch.arange(5000) == 0).long(), 2, "wrong where one class is rare")


def _blind_loss_several(f: Callable) -> None:
    labels = torch.multinomial(torch.rand(7) + 0.1, 300, replacement=True)
    labels[:7] = torch.arange(7)
    _blind_loss_compare(f, labels, 7, "wrong for seven classes")


def _blind_loss_missing(f: Callable) -> None:
    _blind_loss_compare(f, torch.randint(1, 4, (50,)), 9, "wrong where classes are missing")
    _blind_loss_compare(f, torch.tensor([3, 259, 299]), 300, "wrong where classes are missing")


def _blind_loss_one(f: Callable) -> None:
    _blind_loss_compare(f, torch.full((6,), 2), 4, "wrong where all labels are equal")


def check_blind_loss(answer: Callable[[Tensor, int], float]) -> Verdict:
    """Check `answer(labels, classes)`: the smallest mean cross-entropy without looking at inputs.

    `labels` is int64 of shape (n,), of 0 to `classes` - 1. Expected is the entropy of their
    frequencies in nats, as a float.
    """

    return verdict(
        answer,
        [
            _blind_loss_balanced,
            _blind_loss_rare,
            _blind_loss_several,
            _blind_loss_missing,
            _blind_loss_one,
        ],
    )


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(3, 4), nn.Linear(3, 4)
        self.unused.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def _guarded_step_fine(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


def _guarded_step_steep_but_fine(model: nn.Module, x: Tensor) -> Tensor:
    return 1e4 * _guarded_step_fine(model, x)


def _guarded_step_huge_but_fine(model: nn.Module, x: Tensor) -> Tensor:
    return 1e25 * _guarded_step_fine(model, x)  # the square of a gradient overflows


def _guarded_step_root(model: nn.Module, x: Tensor) -> Tensor:  # its gradient is nan at equal pairs
    return (model(x) - model(x.clone())).square().sum(1).sqrt().mean()


def _guarded_step_blank(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).mean() * math.nan


def _guarded_step_run(
    f: Callable, loss: Callable, name: str, dirty: float = 0
) -> tuple[Any, bool, Any]:
    model = in_two_modes(_Model())
    kinds = {"SGD": (torch.optim.SGD, {"momentum": 0.9}), "Adam": (torch.optim.Adam, {})}
    kind, options = kinds[name]
    optimizer = kind([{"params": [p]} for p in model.parameters()], lr=0.1, **options)
    x = torch.randn(5, 3)
    _guarded_step_fine(model, x).backward()  # the state of the optimizer is there
    optimizer.step()
    optimizer.zero_grad()
    twin = copy.deepcopy(model)
    other = kind([{"params": [p]} for p in twin.parameters()], lr=0.1, **options)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    state = copy.deepcopy(optimizer.state_dict())
    if dirty:
        for p in model.used.parameters():
            p.grad = torch.full_like(p, dirty)
    modes: list[bool] = []
    model.register_forward_pre_hook(lambda m, _: modes.append(m.training))
    with unchanged("values gradients", model=model):
        taken = f(model, lambda: loss(model, x), optimizer)
    assert all(modes), "the loss was computed in eval mode"
    assert isinstance(taken, bool | np.bool_ | Tensor), (
        f"return whether the parameters were updated, got {taken!r}"
    )
    same = all(map(torch.equal, model.parameters(), twin.parameters()))
    if not taken:
        assert str(optimizer.state_dict()) == str(state), (
            "the step was skipped, but the state of the optimizer has changed"
        )
    finite = (_guarded_step_steep_but_fine, _guarded_step_huge_but_fine)
    (loss if loss in finite else _guarded_step_fine)(twin, x).backward()
    other.step()
    stepped = all(map(torch.allclose, model.parameters(), twin.parameters()))
    left = [p.grad for p in model.parameters() if p.grad is not None]
    return bool(taken), same if not taken else stepped, left


def _guarded_step_takes(f: Callable) -> None:
    for name in ("SGD", "Adam"):
        taken, right, _ = _guarded_step_run(f, _guarded_step_fine, name)
        large = _guarded_step_run(f, _guarded_step_steep_but_fine, name)
        huge = _guarded_step_run(f, _guarded_step_huge_but_fine, name)
        assert taken and large[0] and huge[0], (
            "the loss and all gradients are finite, but the step was skipped "
            "(a parameter without a gradient, or a norm that overflows?)"
        )
        assert right and large[1] and huge[1], (
            "the step is not that of the optimizer with the gradient of this loss"
        )


def _guarded_step_clean(f: Callable) -> None:
    for dirty in (math.nan, 1):
        taken, right, _ = _guarded_step_run(f, _guarded_step_fine, "SGD", dirty)
        assert taken and right, "the update contains old gradients: clear them first"


def check_guarded_step(answer: Callable[[nn.Module, Callable, Optimizer], Any]) -> Verdict:
    """Check `answer(model, loss, optimizer)`: a step only if the loss and all gradients are finite.

    It returns whether it took the step. Otherwise the parameters and the optimizer stay as they
    are, and no gradient is left. Gradients from before do not count.
    """

    side = [1, 1]  # the dimensions of the parameter with a bad gradient, and the sign

    def steep(model: nn.Module, x: Tensor) -> Tensor:  # a finite loss, an infinite gradient
        p = next(p for p in model.used.parameters() if p.dim() == side[0])
        root = (p - p.detach()).flatten()[-1].sqrt()
        return side[1] * root + _guarded_step_fine(model, x)  # other gradients are finite

    def endless(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).mean() * 0 + side[1] * math.inf

    def refuses(loss: Callable, complaint: str) -> Callable[[Any], None]:
        def test(f: Callable) -> None:
            for name, dirty, *case in (
                ("SGD", 0, 1, 1),
                ("Adam", 0, 1, -1),
                ("SGD", 1, 2, 1),
                ("Adam", 1, 2, -1),
            ):
                side[:] = case
                taken, right, left = _guarded_step_run(f, loss, name, dirty)
                assert not taken, f"{complaint}, but the step was not skipped"
                assert right, "a parameter has changed although the step was skipped"
                assert not any(g.any() for g in left), (
                    "the step was skipped, but .grad still contains a gradient"
                )

        return test

    return verdict(
        answer,
        [
            _guarded_step_takes,
            refuses(_guarded_step_blank, "the loss is nan"),
            refuses(endless, "the loss is infinite"),
            refuses(_guarded_step_root, "the loss is finite, a gradient is nan"),
            refuses(steep, "the loss is finite, a gradient is infinite"),
            _guarded_step_clean,
        ],
    )


def _bad_samples_case() -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3))
    n = int(torch.randint(8, 14, ()))
    return model, torch.randn(4, n).T, torch.randint(3, (n,))


def _bad_samples_compare(
    f: Callable, model: nn.Module, x: Tensor, y: Tensor, right: list[int]
) -> None:
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    first = next(model.parameters()).requires_grad_(False)
    modes = [m.training for m in model.modules()]
    state = {name: t.clone() for name, t in model.state_dict().items()}
    before = x.clone(), y.clone()
    streams = random_states()
    with unchanged("values gradients modes objects requires_grad", **{"the model": model}):
        got = f(model, x, y)
    drawn = random_states() != streams
    got = ints(got, "return a list of ints")
    assert [m.training for m in model.modules()] == modes, "the mode of a module has changed"
    same = torch.allclose(x, before[0], rtol=0, atol=0, equal_nan=True)
    assert same and torch.equal(y, before[1]) and not x.requires_grad, "`x` or `y` has changed"
    now = model.state_dict()
    same = [t.dtype == now[n].dtype and torch.equal(t, now[n]) for n, t in state.items()]
    assert all(same), "a parameter or buffer of the model has changed"
    assert all(p.requires_grad == (p is not first) for p in model.parameters()), (
        "`requires_grad` of a parameter has changed"
    )
    assert all(p.grad is not None and (p.grad == 1).all() for p in model.parameters()), (
        "the gradients have changed"
    )
    assert got == right, f"{got} instead of {right}"
    assert not drawn, "random numbers were drawn: the random state has changed"


def _bad_samples_none(f: Callable) -> None:
    _bad_samples_compare(f, *_bad_samples_case(), [])


def _bad_samples_nan(f: Callable) -> None:
    model, x, y = _bad_samples_case()
    bad = sorted(torch.randperm(len(x))[:2].tolist())
    x[bad, 1] = math.nan
    _bad_samples_compare(f, model, x, y, bad)


def _bad_samples_infinite(f: Callable) -> None:
    class Scores(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, 1:] + 0 * super().forward(torch.zeros_like(x))

    y = torch.tensor([0, 1, 2, 0, 1, 2])
    for dtype, large in ((torch.float32, 1e30), (torch.float64, 1e300)):
        x = torch.randn(6, 4, dtype=dtype)
        x[:, 0] = math.inf  # unused
        x[1, 2] = -math.inf  # the label's score: the loss is inf
        x[3, 3] = -math.inf  # another one's: the loss is finite
        x[4, 2] = -large  # the label's score: the loss is large and finite
        _bad_samples_compare(f, Scores(4, 3).to(dtype), x, y, [1])


def _bad_samples_ignored(f: Callable) -> None:
    model, x, y = _bad_samples_case()
    x[2], x[5] = math.nan, math.nan
    y[[0, 5]] = -100
    _bad_samples_compare(f, model.eval(), x, y, [2])


def _bad_samples_single(f: Callable) -> None:
    model, x, y = _bad_samples_case()
    _bad_samples_compare(f, model.eval(), x[:1], y[:1], [])


def _bad_samples_mixed(f: Callable) -> None:
    model, x, y = _bad_samples_case()
    model[1].eval()
    x[0] = math.nan
    _bad_samples_compare(f, model, x, y, [0])


def check_bad_samples(answer: Callable[[nn.Module, Tensor, Tensor], Any]) -> Verdict:
    """Check `answer(model, x, y)`: which samples have a cross-entropy that is not finite.

    `x` is float of shape (n, 4), `y` int64 of shape (n,) with labels of 0 to 2, or -100 for
    samples to ignore. Expected is a list of ints in ascending order. `x` and `y` stay as they are,
    and the model keeps its modes, its buffers and its gradients.
    """
    return verdict(
        answer,
        [
            _bad_samples_none,
            _bad_samples_nan,
            _bad_samples_infinite,
            _bad_samples_ignored,
            _bad_samples_single,
            _bad_samples_mixed,
        ],
        draws=True,  # a test reports them in its own words
    )
