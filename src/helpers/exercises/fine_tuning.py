"""Checkers of the exercises of the chapter "Fine-tune a pretrained network"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import (
    close,
    in_two_modes,
    instance,
    leaves,
    random_state_kept,
    unchanged,
    with_gradients,
)


def _groups_case() -> tuple[nn.Module, float]:
    model = nn.Module()
    model.stem = nn.Linear(3, 4).requires_grad_(False)
    model.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model.body.add_module("head", nn.Linear(4, 4))  # the body's, not the model's
    model.head_norm = nn.LayerNorm(4)  # its name begins like the head's
    model.head = nn.Linear(4, int(torch.randint(2, 6, ())))
    model.head.scale = nn.Parameter(torch.ones(1), requires_grad=False)
    model.token = nn.Parameter(torch.ones(4))  # of the model, of no child
    return with_gradients(in_two_modes(model)), 10 ** -(1 + 2 * torch.rand(()).item())


def _groups_form(f: Callable) -> None:
    model, lr = _groups_case()
    with unchanged("requires_grad", model=model):
        groups = f(model, "head", lr)
    assert isinstance(groups, list | tuple) and len(groups) == 2, "expected a list of two groups"
    for group in groups:
        assert isinstance(group, dict) and {"params", "lr"} <= group.keys(), (
            "each group is a dict with the keys 'params' and 'lr'"
        )


def _groups_reusable(f: Callable) -> None:
    model, lr = _groups_case()
    groups = f(model, "head", lr)
    first, second = ([len(list(g["params"])) for g in groups] for _ in range(2))
    assert first == second, "a group is empty the second time it is read: it is an iterator"


def _groups_members(f: Callable) -> None:
    model, lr = _groups_case()
    _groups_rates(f, model, "head", lr)
    _groups_rates(f, nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), "1", lr)


def _groups_tied(f: Callable) -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5))
    model[2].weight = model[0].weight
    found = [id(p) for group in f(model, "2", 0.1) for p in group["params"]]
    assert len(found) == len(set(found)), (
        "a weight of the head that another layer shares is in the groups twice: "
        "an optimizer raises an error"
    )
    assert set(found) == set(map(id, model.parameters())), (
        "a weight of the head that another layer shares, or another parameter, is in no group"
    )


def _groups_rates(f: Callable, model: nn.Module, head: str, lr: float) -> None:
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.SGD(f(model, head, lr), lr=1.0)
    for group in optimizer.param_groups:
        same = all(
            group[name] == optimizer.defaults[name] for name in optimizer.defaults.keys() - {"lr"}
        )
        assert same, "a group has another setting besides its learning rate"
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    for name, p in model.named_parameters():
        assert p.requires_grad == (name not in frozen), "requires_grad has changed"
        if name in frozen:
            assert id(p) not in rates, f"{name} is frozen and must be in no group"
            continue
        assert id(p) in rates, f"{name} is in no group"
        right = lr if name.startswith(f"{head}.") else lr / 10
        assert abs(rates[id(p)] - right) < 1e-3 * right, (
            f"{name} has the wrong learning rate: expected lr{'' if right == lr else ' / 10'}"
        )


def check_groups(answer: Callable[[nn.Module, str, float], Any]) -> Verdict:
    """Check `answer(model, head, lr)`: two groups, the head at `lr`, the rest at `lr / 10`.

    `head` names a child of `model`. Frozen parameters are in no group.
    """
    return verdict(answer, [_groups_form, _groups_reusable, _groups_members, _groups_tied])


def _train_mode_case() -> nn.Module:
    block = nn.Sequential(_norm(frozen=True), _norm(frozen=False))
    stem = nn.Sequential(_norm(frozen=True), nn.Dropout(0.5))
    deep = nn.Sequential(nn.Sequential(_norm(frozen=True), nn.Linear(3, 3)))
    model = nn.Sequential(stem, block, nn.Dropout(0.5), nn.Linear(3, 3), deep)
    return with_gradients(model.train(bool(torch.rand(()) < 0.5)))


def _train_mode_statistics(f: Callable) -> None:
    model = _train_mode_case()
    f(model)
    model(torch.randn(8, 3) + 1)
    for name in ("0.0", "1.0", "4.0.0"):
        norm = model.get_submodule(name)[1]
        assert norm.running_mean.eq(0).all(), (
            "a frozen BatchNorm layer still updates its statistics"
        )
    assert model[1][1][1].running_mean.ne(0).any(), (
        "a trained BatchNorm layer does not update its statistics"
    )


def _train_mode_modes(f: Callable) -> None:
    model = _train_mode_case()
    f(model)
    assert not model[0][1].training, "the dropout inside a frozen part is still on"
    assert model[2].training, "the dropout outside of the frozen parts is off"
    for name, module in model.named_modules():
        frozen = re.match(r"(0|1\.0|4\.0\.0)(\.|$)", name)
        assert module.training != bool(frozen), (
            f"{name} is frozen and must be in evaluation mode"
            if frozen
            else "modules that are trained must be in training mode"
        )
    model.requires_grad_(False)
    f(model)
    assert not any(m.training for m in model.modules()), (
        "the whole model is frozen and must be in evaluation mode"
    )


def _train_mode_again(f: Callable) -> None:
    model = _train_mode_case()
    f(model)
    model[0].requires_grad_(True)
    f(model)
    assert model[0][0][1].training, "a part that was unfrozen must be in training mode again"
    assert not model[1][0][1].training, "the second call lost the frozen part"
    flags = [p.requires_grad for p in model[1].parameters()]
    assert flags == [False] * 4 + [True] * 4, "requires_grad has changed"


def check_train_mode(answer: Callable[[nn.Module], Any]) -> Verdict:
    """Check `answer(model)`: training mode, but evaluation mode wherever everything is frozen.

    A module with parameters that are all frozen is in evaluation mode, with all it contains;
    every other module is in training mode, also one without parameters.
    """

    return verdict(
        leaves(answer, "the model", but="modes"),
        [_train_mode_statistics, _train_mode_modes, _train_mode_again],
    )


def _norm(frozen: bool) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).requires_grad_(not frozen)


def _capture_case(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    block = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True))
    model = nn.Sequential(block, nn.Linear(5, 2), nn.Dropout())
    model.eval()
    block[1].running_mean.uniform_(-1, 1)
    block[1].running_var.uniform_(0.5, 2)
    return with_gradients(model.to(dtype)), torch.randn(
        3, int(torch.randint(8, 16, ())), dtype=dtype
    ).T


def _capture_alike(name: str, got: Any, right: Tensor) -> None:
    assert isinstance(got, Tensor), f"{name!r} is not a tensor"
    close(got, right, f"{name!r} is not the output of that module")
    assert not got.requires_grad, f"{name!r} still has a graph"


def _capture_values(f: Callable, dtype: torch.dtype = torch.float32) -> None:
    model, x = _capture_case(dtype)
    model[0][0].bias.requires_grad_(False)
    with torch.no_grad():
        linear = model[0][0](x)
        norm = model[0][1](linear)
        right = {"0.0": linear, "0.1": norm, "1": model[1](norm.relu())}
    names = list(right)
    drawn = random_state_kept("random numbers were drawn: the random state of {} has changed")
    with drawn, unchanged("modes hooks settings", model=model, names=names, x=x):
        got = f(model, names, x)
    instance("a dict", got, dict)
    assert sorted(got) == sorted(right), f"expected one key per name, got {list(got)}"
    overwritten = got["0.1"]
    lost = isinstance(overwritten, Tensor) and torch.equal(overwritten, norm.relu())
    assert not lost or torch.equal(norm, norm.relu()), (
        "the output of '0.1' was overwritten by the in-place ReLU"
    )
    for name, value in right.items():
        _capture_alike(name, got[name], value)


def _capture_tuples(f: Callable) -> None:
    model, x = nn.Sequential(nn.GRU(3, 4)), torch.randn(5, 3)
    with torch.no_grad():
        right = model[0](x)
    got = f(model, ["0"], x)["0"]
    assert isinstance(got, (tuple, list)) and len(got) == 2, (
        "a GRU returns a tuple of two tensors: keep both"
    )
    for mine, value in zip(got, right, strict=True):
        _capture_alike("0", mine, value)
    model, x = nn.Sequential(_Pair(), _FirstRelu()), torch.randn(8)
    got = f(model, ["0"], x)["0"]
    for mine, value in zip((got[0], *got[1]), (x, 2 * x, 3 * x), strict=True):
        assert torch.equal(mine, value), (
            "in a tuple, a tensor was overwritten by an in-place operation"
        )


def _capture_shared(f: Callable) -> None:
    layer, x = nn.Linear(3, 3), torch.randn(4, 3)
    model = nn.Sequential(nn.Sequential(layer), nn.ModuleDict({"again": layer})["again"])
    with torch.no_grad():
        right = layer(layer(x))
    got = f(model, ["1"], x)
    assert list(got) == ["1"], f"a layer that is used twice: expected the key '1', got {list(got)}"
    _capture_alike("1", got["1"], right)


class _Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return x.clone(), (2 * x, 3 * x)


class _FirstRelu(nn.Module):
    def forward(self, pair: tuple[Tensor, tuple[Tensor, Tensor]]) -> Tensor:
        return pair[0].relu_() + pair[1][0].relu_()


def _capture_modes(f: Callable) -> None:
    model, x = _capture_case()
    with torch.no_grad():
        right = model(x)
    model.train()
    model[0][0].eval()
    before = [m.training for m in model.modules()]
    mean = model[0][1].running_mean.clone()
    got = f(model, ["2"], x)["2"]
    assert torch.equal(model[0][1].running_mean, mean), (
        "the running statistics of a model in training mode have changed"
    )
    _capture_alike("2", got, right)
    assert [m.training for m in model.modules()] == before, "the mode of a module has changed"


def _capture_clean(f: Callable) -> None:
    model, x = _capture_case()
    f(model, ["0.1"], x)
    assert not _hooks(model), "a hook is still registered on the model"
    assert model[0][2].inplace, "`inplace` of a layer has changed"
    calls: list[int] = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    f(model, ["0.1"], x)
    assert _hooks(model) == 1, "remove your own hooks, but not those of others"


def _capture_errors(f: Callable) -> None:
    for name, of in (("relu", "a missing name"), ("0.1", "an input of the wrong shape")):
        model, x = _capture_case()
        model.train()
        model[0][1].eval()
        before = [m.training for m in model.modules()]
        try:
            f(model, ["0.0", name], x if name == "relu" else x.T)
        except Exception:  # whatever the answer raises is an error, as asked
            assert not _hooks(model), f"after the error for {of}, a hook is still registered"
            after = [m.training for m in model.modules()]
            assert after == before, f"after the error for {of}, a mode has changed"
        else:
            raise AssertionError(f"{of} must raise an error")


def check_capture(answer: Callable[[nn.Module, Sequence[str], Tensor], Any]) -> Verdict:
    """Check `answer(model, names, x)`: the outputs of the modules named, by name.

    As they were when the module returned, in evaluation mode, without a graph; a module may return
    a tuple. No hook stays on the model, and modes and statistics are what they were, also after an
    error; a name that does not exist is one.
    """
    return verdict(
        answer,
        [
            _capture_values,
            lambda f: _capture_values(f, torch.float64),
            _capture_tuples,
            _capture_modes,
            _capture_clean,
            _capture_errors,
            _capture_shared,
        ],
        draws=True,
    )


def _hooks(model: nn.Module) -> int:
    """Return the number of forward hooks in `model`."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
