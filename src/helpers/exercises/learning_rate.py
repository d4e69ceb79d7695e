"""Checkers of the exercises of the chapter on learning rates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from helpers.exercises import Verdict, verdict
from helpers.exercises.tools import instance, kind, leaves
from helpers.learning_rate import Make, one_weight


def _ints(low: int, high: int, count: int) -> list[int]:
    return torch.randint(low, high, (count,)).tolist()


def _factor_case() -> tuple[int, int]:
    warm_up, rest = _ints(2, 12, 1)[0], _ints(4, 40, 1)[0]
    return warm_up, warm_up + rest


def _factor_value(f, t, warm_up, total):
    got = f(t, warm_up, total)
    assert isinstance(got, Real), f"expected a number, got {kind(got)}"
    return got


def _factor_at(t, warm_up, total):
    return f"factor({t}, warm_up={warm_up}, total={total})"


def _factor_rises(f):
    warm_up, total = _factor_case()
    assert _factor_value(f, 0, warm_up, total) != 0, "epoch 0 would have a learning rate of 0"
    for t in range(warm_up):
        got = _factor_value(f, t, warm_up, total)
        assert math.isclose(got, (t + 1) / warm_up, abs_tol=1e-9), (
            f"{_factor_at(t, warm_up, total)} is {got:.3f}; in the warm-up it should be (t + 1) / "
            f"warm_up = {(t + 1) / warm_up:.3f}"
        )


def _factor_falls(f):
    warm_up, total = _factor_case()
    for t in range(warm_up, total):
        got = _factor_value(f, t, warm_up, total)
        assert got <= 1 + 1e-9, f"{_factor_at(t, warm_up, total)} is {got:.3f}: it overshoots 1"
        want = (1 + math.cos(math.pi * (t - warm_up) / (total - warm_up))) / 2
        assert math.isclose(got, want, abs_tol=1e-9), (
            f"{_factor_at(t, warm_up, total)} is {got:.3f}; the cosine that begins at warm_up and "
            f"ends at total gives {want:.3f}"
        )


def _factor_ends(f):
    warm_up, total = _factor_case()
    for t in (total, total + 1, 2 * total, 3 * total):
        got = _factor_value(f, t, warm_up, total)
        assert abs(got) < 1e-9, f"{_factor_at(t, warm_up, total)} is {got:.3f}: after total it is 0"


def _factor_edges(f):
    total = 2 * _ints(2, 10, 1)[0]
    for t, warm_up, want in (
        (0, 0, 1.0),
        (total // 2, 0, 0.5),
        (0, 1, 1.0),
        (total - 1, total, 1.0),
        (total, total, 0.0),
        (total + 1, total, 0.0),
    ):
        got = _factor_value(f, t, warm_up, total)
        assert math.isclose(got, want, abs_tol=1e-9), (
            f"{_factor_at(t, warm_up, total)} is {got:.3f}, expected {want:.3f}"
        )


def check_factor(answer: Callable[[int, int, int], float]) -> Verdict:
    """Check `answer(t, warm_up, total)`: linear warm-up, then half a cosine down to 0.

    The factor is (t + 1) / warm_up in epochs below `warm_up`, then
    (1 + cos(pi (t - warm_up) / (total - warm_up))) / 2, and 0 from epoch `total` on. `warm_up` is
    between 0 and `total`.
    """
    return verdict(answer, [_factor_rises, _factor_falls, _factor_ends, _factor_edges])


def _per_step_run(f, epochs, batches, accumulate):
    base = 0.1 + torch.rand(()).item()
    optimizer = one_weight(base)
    before = optimizer.param_groups[0].copy()
    scheduler = f(optimizer, epochs, batches, accumulate)
    instance("a scheduler", scheduler, LRScheduler)
    assert scheduler.optimizer is optimizer, "the scheduler belongs to another optimizer"
    (group,) = optimizer.param_groups
    changed = any(group[k] is not v for k, v in before.items() if k != "lr")
    assert not changed and not optimizer.state, (
        "the optimizer was changed: return the scheduler without a step"
    )
    seen = [optimizer.param_groups[0]["lr"] / base]
    for _ in range(epochs):
        for batch in range(batches):
            if (batch + 1) % accumulate == 0 or batch + 1 == batches:
                optimizer.step()
                scheduler.step()
                seen.append(optimizer.param_groups[0]["lr"] / base)
    return seen


def _per_step_compare(f, epochs, batches, accumulate):
    seen = _per_step_run(f, epochs, batches, accumulate)
    where = f"{epochs} epochs of {batches} batches, accumulate={accumulate}"
    climbs = [i for i in range(1, len(seen)) if seen[i] > seen[i - 1] + 1e-9]
    assert not climbs, f"{where}: the learning rate rises at step {climbs[0]} of {len(seen) - 1}"
    assert abs(seen[-1]) < 1e-6, (
        f"{where}: after the last step the factor is {seen[-1]:.3f}, expected 0"
    )
    for i, got in enumerate(seen):
        want = (1 + math.cos(math.pi * i / (len(seen) - 1))) / 2
        assert math.isclose(got, want, abs_tol=1e-6), (
            f"{where}: after step {i} the factor is {got:.3f}, expected {want:.3f}"
        )


def _per_step_plain(f):
    _per_step_compare(f, *_ints(2, 6, 1), *_ints(3, 12, 1), 1)


def _per_step_accumulated(f):
    _per_step_compare(f, *_ints(2, 6, 1), 3 * _ints(2, 5, 1)[0], 3)


def _per_step_leftover(f):
    for more in (1, 2, 3):
        _per_step_compare(f, *_ints(2, 6, 1), 4 * _ints(2, 5, 1)[0] + more, 4)


def check_per_step(answer: Callable[[Optimizer, int, int, int], LRScheduler]) -> Verdict:
    """Check `answer(optimizer, epochs, batches, accumulate)`: a cosine stepped with the optimizer.

    The optimizer steps after every `accumulate` batches and after the last batch of each epoch;
    the learning rate falls as half a cosine from its base and is 0 after the last of these steps.
    """

    return verdict(answer, [_per_step_plain, _per_step_accumulated, _per_step_leftover])


Build = Callable[[], tuple[nn.Module, Optimizer]]


Parts = tuple[nn.Module, Optimizer, LRScheduler]


def _resume_build():
    model = nn.Linear(3, 2).double()
    return model, SGD(model.parameters(), lr=0.1, momentum=0.9)


def _resume_schedule(optimizer):
    return lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=10)


def _resume_nested(optimizer):
    parts = [lr_scheduler.StepLR(optimizer, 2), lr_scheduler.LinearLR(optimizer, 0.1)]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])


def _resume_train(parts: Parts, x: Tensor) -> list[float]:
    model, optimizer, scheduler = parts
    used = []
    for batch in x:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return used


def _resume_interrupted(f, schedule=_resume_schedule, **changed):
    epochs, x = _ints(3, 7, 1)[0], torch.randn(12, 4, 3, dtype=torch.float64)
    model, optimizer = _resume_build()
    straight = model, optimizer, schedule(optimizer)
    vars(straight[2]).update(changed)  # during the run: only the saved state contains it
    _resume_train(straight, x[:epochs])
    names = ("model", "optimizer", "scheduler")
    checkpoint = {
        name: copy.deepcopy(part.state_dict()) for name, part in zip(names, straight, strict=True)
    }
    kept = copy.deepcopy(checkpoint)
    parts = leaves(f, "checkpoint")(checkpoint, _resume_build, schedule)
    kinds = (nn.Module, Optimizer, LRScheduler)
    assert isinstance(parts, tuple | list) and list(map(isinstance, parts, kinds)) == [True] * 3, (
        "expected the model, the optimizer and the scheduler, in this order"
    )

    def untouched() -> bool:
        left, state = checkpoint["optimizer"]["state"], kept["optimizer"]["state"]
        return all(
            torch.equal(checkpoint["model"][k], w) for k, w in kept["model"].items()
        ) and all(
            torch.equal(left[i]["momentum_buffer"], state[i]["momentum_buffer"]) for i in state
        )

    return straight, parts, x[epochs:], untouched


def _resume_weights(f):
    straight, parts, _, _ = _resume_interrupted(f)
    assert parts[2].optimizer is parts[1], "the scheduler belongs to another optimizer"
    assert parts[0] is not straight[0], "build a new model"
    left = [p for p in parts[0].parameters() if p.grad is not None]
    assert not left, "a parameter has a gradient already, which the next step would add to"
    assert parts[0].training, "the model is in evaluation mode: the training would not be the same"
    for mine, theirs in zip(parts[0].parameters(), straight[0].parameters(), strict=True):
        assert torch.equal(mine, theirs), "the weights are not those of the checkpoint"
    held = {id(p) for group in parts[1].param_groups for p in group["params"]}
    assert held == {id(p) for p in parts[0].parameters()}, (
        "the optimizer trains another model than the one returned"
    )


def _resume_goes_on(f, schedule=_resume_schedule, **changed):
    straight, parts, x, untouched = _resume_interrupted(f, schedule, **changed)
    want, got = _resume_train(straight, x), _resume_train(parts, x)
    for number, (a, b) in enumerate(zip(want, got, strict=True)):
        assert math.isclose(a, b, rel_tol=1e-9), (
            f"epoch {number} after resuming has a learning rate of {b:.4f}, "
            f"the uninterrupted run one of {a:.4f}"
        )
    for mine, theirs in zip(parts[0].parameters(), straight[0].parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-9), (
            "the learning rates are right, but the weights differ: the momentum is lost"
        )
    assert untouched(), "training changed the checkpoint: copy it before you load it"


def _resume_sequence(f):
    _resume_goes_on(f, _resume_nested)  # a scheduler whose state contains other schedulers


def _resume_longer(f):
    _resume_goes_on(f, total_iters=20)


def check_resume(answer: Callable[[dict[str, Any], Build, Make], Parts]) -> Verdict:
    """Check `answer(checkpoint, build, schedule)`: a run that continues as if never interrupted.

    `checkpoint` contains the state dicts under "model", "optimizer" and "scheduler"; `build()`
    returns a new model and its optimizer, `schedule(optimizer)` a new scheduler. The checkpoint
    must not change, also not by the training that follows.
    """
    return verdict(
        answer, [_resume_weights, _resume_goes_on, _resume_sequence, _resume_longer], draws=True
    )
