"""Checkers of the exercises of the chapter on saving checkpoints and resuming from them."""

from __future__ import annotations

import argparse
import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from helpers.checkpoints import differences
from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import in_two_modes, instance, unchanged, with_gradients


def _load_matching_case(dtype=torch.float32):
    sizes = torch.randperm(5)[:2] + 2
    model, other = (
        nn.Sequential(
            nn.Linear(3, 4, dtype=dtype),
            nn.BatchNorm1d(4, dtype=dtype),
            nn.Linear(4, int(n), dtype=dtype),
        )
        for n in sizes
    )
    model[0].bias.requires_grad_(False)
    return with_gradients(in_two_modes(model)), other.state_dict() | {
        "extra.weight": torch.randn(2)
    }


def _load_matching_call(f, model, saved):
    try:
        with unchanged(saved=saved), unchanged("values objects", model=model):
            return f(model, saved)
    except RuntimeError as error:
        first = str(error).partition("\n")[0].partition(" for ")[0]
        raise AssertionError(f"your code raised RuntimeError: {first}") from error


def _load_matching_loads(f):
    for dtype in (torch.float32, torch.float64):
        model, saved = _load_matching_case(dtype)
        _load_matching_call(f, model, saved)
        own = model.state_dict()
        for name in own:
            if own[name].shape == saved[name].shape:
                assert torch.equal(own[name], saved[name]), f"{name} fits and was not loaded"
                assert own[name].data_ptr() != saved[name].data_ptr(), (
                    f"{name} shares the memory of saved: training would change saved"
                )
    model, saved = _load_matching_case()
    _load_matching_call(
        f, model, {"1.running_mean": saved["1.running_mean"] + 1}
    )  # a buffer, nothing else
    assert torch.equal(model[1].running_mean, saved["1.running_mean"] + 1), (
        "only a buffer fits, and it was not loaded"
    )


def _load_matching_leaves(f):
    model, saved = _load_matching_case()
    before = copy.deepcopy(model.state_dict())
    saved["0.weight"] = saved["0.weight"].T  # as many numbers, another shape
    names = [n for n in before if before[n].shape != saved[n].shape]
    del saved["0.bias"], saved["1.running_mean"]
    got = _load_matching_call(f, model, saved)
    instance("a list of names", got, list)
    assert got == sorted([*names, "0.bias", "1.running_mean"]), (
        "the list is not that of the names that were not loaded"
    )
    for name in got:
        assert torch.equal(model.state_dict()[name], before[name]), f"{name} was changed"


def _load_matching_keeps(f):
    model, saved = _load_matching_case()
    before = list(model.parameters())
    _load_matching_call(f, model, {name: value.double() for name, value in saved.items()})
    loaded = torch.equal(model[0].weight, saved["0.weight"])
    assert loaded, "0.weight fits in name and shape, has another dtype, and was not loaded"
    same = all(old is new for old, new in zip(before, model.parameters(), strict=True))
    assert same and model[0].weight.dtype == torch.float32, (
        "the model's parameters were replaced: an optimizer would update the old ones"
    )


def _load_matching_refuses(f):
    model, saved = _load_matching_case()
    prefixed = {f"module.{name}": value for name, value in saved.items()}
    for wrong in (prefixed, {name: torch.zeros(2, 2, 2) for name in saved}, {}):
        try:
            _load_matching_call(f, model, wrong)
        except ValueError:
            continue
        raise AssertionError("no entry fits, and no ValueError was raised")


def check_load_matching(answer: Callable[[nn.Module, dict[str, Tensor]], list[str]]) -> Verdict:
    """Check `answer(model, saved)`: loads the entries that fit in name and shape.

    It returns the sorted names of the model's entries that it left alone, and raises `ValueError`
    if nothing fits. Entries of `saved` that the model lacks are ignored. The model keeps its own
    parameters, with their dtype and device.
    """
    return verdict(
        answer,
        [_load_matching_loads, _load_matching_leaves, _load_matching_keeps, _load_matching_refuses],
    )


def _continue_case():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).double()
    groups = [{"params": layer.parameters(), "lr": 0.1 / (n + 1)} for n, layer in enumerate(model)]
    old = torch.optim.AdamW(groups, weight_decay=0.3, betas=(0.8, 0.9), eps=1e-5)
    torch.optim.lr_scheduler.ExponentialLR(old, 0.9)  # writes initial_lr into the groups
    model(torch.randn(4, 2).double()).square().mean().backward()
    old.step()
    new = torch.optim.AdamW([{"params": layer.parameters()} for layer in model])
    return new, copy.deepcopy(old.state_dict()), 0.001 + float(torch.rand(())) / 100


def _continue_rate(f):
    new, saved, lr = _continue_case()
    f(new, saved, lr)
    got = [group["lr"] for group in new.param_groups]
    assert got != [0.1, 0.05], "the learning rates are the saved ones"
    assert got == [lr, lr], "not every group has the new learning rate"


def _continue_rest(f):
    new, saved, lr = _continue_case()
    expected = copy.deepcopy(saved)
    weights = [(p, p.detach().clone()) for group in new.param_groups for p in group["params"]]
    for p, _ in weights:
        p.grad = torch.ones_like(p)
    with unchanged(saved=saved, parameters=[p for p, _ in weights]):
        f(new, saved, lr)
    got = new.state_dict()
    now = [p for group in new.param_groups for p in group["params"]]
    same = len(now) == len(weights) and all(
        p is old and torch.equal(p, value) for p, (old, value) in zip(now, weights, strict=True)
    )
    assert same, "the optimizer's parameters were changed: only load its state"
    assert got["state"], "the optimizer has no state: load the saved one"
    assert not differences(got["state"], expected["state"]), "the state is not the saved one"
    for mine, theirs in zip(got["param_groups"], expected["param_groups"], strict=True):
        for key in theirs.keys() - {"lr"}:
            assert mine.get(key) == theirs[key], (
                f"the other settings are not the saved ones: {key} is {mine.get(key)}"
            )


def _continue_untouched(f):
    new, saved, lr = _continue_case()
    before = copy.deepcopy(saved)
    f(new, saved, lr)
    for p in (p for group in new.param_groups for p in group["params"]):
        p.grad = torch.ones_like(p)
    new.step()
    assert not differences(saved, before), (
        "saved changed: the optimizer uses its tensors and updates them"
    )


def check_continue(
    answer: Callable[[torch.optim.Optimizer, dict[str, Any], float], None],
) -> Verdict:
    """Check `answer(optimizer, saved, lr)`: the saved state, but the learning rate `lr`.

    Every group gets `lr` and keeps the rest of its saved settings; `saved` stays as it is when
    training goes on.
    """
    return verdict(answer, [_continue_rate, _continue_rest, _continue_untouched])


def _plain_case():
    x, n = float(torch.rand(())), int(torch.randint(2, 9, ()))
    array = np.arange(n) * x
    args = argparse.Namespace(lr=np.float32(0.5), out=Path("runs") / str(n), sizes=[np.int64(n)])
    state = {
        "weight": torch.randn(n, dtype=torch.float64),
        "best": np.float64(x),
        "history": [np.int64(n), x, {"deep": array}],
        "groups": {0: [np.int64(n)], "0": np.float64(x)},
        "done": np.bool_(n > 4),
        "args": args,
        "name": "run",
        "betas": (np.float64(x), 0.999),
        "runs": [({"args": argparse.Namespace(out=Path("old"))},)],
        "flipped": array[::-1],
        "counts": np.arange(n),
        "mask": np.arange(n) > 2,
        "column": array[:, None],
        "single": np.ones(()),
        "others": [np.int32(n), np.uint8(n), np.float16(0.5), torch.float16, None],
    }
    expected = {
        "weight": state["weight"],
        "best": x,
        "history": [n, x, {"deep": torch.from_numpy(array.copy())}],
        "groups": {0: [n], "0": x},
        "done": n > 4,
        "args": {"lr": 0.5, "out": str(Path("runs") / str(n)), "sizes": [n]},
        "name": "run",
        "betas": (x, 0.999),
        "runs": [({"args": {"out": "old"}},)],
        "flipped": torch.from_numpy(array[::-1].copy()),
        "counts": torch.arange(n),
        "mask": torch.arange(n) > 2,
        "column": torch.from_numpy(array.copy())[:, None],
        "single": torch.ones((), dtype=torch.float64),
        "others": [n, n, 0.5, torch.float16, None],
    }
    return state, expected


def _plain_loads(f):
    state, expected = _plain_case()
    got = f(state)
    instance("a dict", got, dict)
    for key in expected:
        assert key in got, f"the entry {key!r} is missing"
        file = io.BytesIO()
        torch.save(got[key], file)
        file.seek(0)
        try:
            torch.load(file, weights_only=True)
        except pickle.UnpicklingError as error:
            raise AssertionError(f"torch.load raises for the entry {key!r}") from error


def _plain_values(f):
    state, expected = _plain_case()
    wrong = differences(f(state), expected)
    assert not wrong, f"the entry {wrong[0]!r} has another value or type than expected"


def _plain_original(f):
    state, _ = _plain_case()
    with unchanged(**{"the state": state}):
        f(state)
    kept = isinstance(state["best"], np.float64) and isinstance(state["history"][0], np.int64)
    kept = kept and isinstance(state["history"][2]["deep"], np.ndarray)
    kept = kept and isinstance(state["args"].lr, np.float32)
    assert kept and isinstance(state["args"], argparse.Namespace), "the state was changed"


def _plain_copies(f):
    state, expected = _plain_case()
    f(state)["history"][2]["deep"].fill_(-1)
    deep = torch.from_numpy(state["history"][2]["deep"])
    assert torch.equal(deep, expected["history"][2]["deep"]), (
        "your tensor shares the array's memory: changing it changes the original"
    )


def check_plain(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Verdict:
    """Check `answer(state)`: a copy that `weights_only=True` loads, with equal values.

    NumPy numbers become Python's, arrays become tensors, a `Namespace` becomes a dict, a `Path`
    a string, in dicts, lists and tuples of any depth. Tensors and plain values stay; an array's
    numbers are copied, whatever its strides.
    """
    return verdict(answer, [_plain_loads, _plain_values, _plain_original, _plain_copies])
