"""Helpers of the chapter "Schedule the learning rate".

Source: "How to adjust learning rate" of `torch.optim`,
https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Make = Callable[[Optimizer], LRScheduler]


def one_weight(lr: float = 1.0) -> SGD:
    """An SGD optimizer (momentum 0.9) over one weight whose gradient is 0, so that it can step."""
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    return SGD([weight], lr=lr, momentum=0.9)


def rates(
    make: Make,
    epochs: int,
    lr: float = 1.0,
    metrics: Sequence[float] | None = None,
    scheduler_first: bool = False,
) -> list[float]:
    """The learning rate that each epoch trains with, read from a real optimizer.

    Args:
        make: builds the scheduler on the optimizer it is given.
        epochs: how many times the optimizer steps.
        lr: the rate given to the optimizer.
        metrics: what a `ReduceLROnPlateau` is told after each epoch; `epochs` numbers.
        scheduler_first: call `scheduler.step()` before the epoch, which is the wrong place;
            the warning about it is swallowed.

    Raises:
        ValueError: a plateau scheduler has no `metrics`, or not `epochs` of them.
    """
    optimizer = one_weight(lr)
    scheduler = make(optimizer)
    plateau = isinstance(scheduler, ReduceLROnPlateau)
    if plateau and len(metrics or ()) != epochs:
        raise ValueError(f"expected {epochs} metrics, one for each epoch, got {metrics!r}")
    used = []
    with warnings.catch_warnings():
        if scheduler_first:
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
        for epoch in range(epochs):
            arguments = [metrics[epoch]] if plateau else []
            if scheduler_first:
                scheduler.step(*arguments)
            used.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if not scheduler_first:
                scheduler.step(*arguments)
    return used


def changes(values: Sequence[float]) -> list[int]:
    """The epochs whose rate differs from that of the epoch before."""
    return [i for i in range(1, len(values)) if values[i] != values[i - 1]]


def _make(code: str) -> Make:
    """The scheduler that `code` builds, with `optimizer` and the names of `lr_scheduler`."""
    return lambda optimizer: eval(code, {**vars(lr_scheduler), "optimizer": optimizer})


# Falls for 14 epochs and then no further: what the plateau scheduler of the figures is told
LOSSES = [max(0.3, 1 - 0.05 * epoch) for epoch in range(60)]

GALLERY = (
    "StepLR(optimizer, step_size=15, gamma=0.3)",
    "MultiStepLR(optimizer, milestones=[30, 45], gamma=0.1)",
    "ExponentialLR(optimizer, gamma=0.95)",
    "LinearLR(optimizer, start_factor=0.1, total_iters=10)",
    "LambdaLR(optimizer, lambda t: 1 / (1 + t) ** 0.5)",
    "CosineAnnealingLR(optimizer, T_max=60)",
    "CosineAnnealingWarmRestarts(optimizer, T_0=20)",
    "OneCycleLR(optimizer, max_lr=1.0, total_steps=60)",
    "SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=10),"
    " CosineAnnealingLR(optimizer, T_max=50)], milestones=[10])",
    "ReduceLROnPlateau(optimizer, factor=0.3, patience=5)",
)


def gallery(epochs: int = 60) -> dict[str, list[float]]:
    """Each scheduler of `GALLERY`, as the code that made it, and its rates from a base of 1.0."""
    return {code: rates(_make(code), epochs, metrics=LOSSES[:epochs]) for code in GALLERY}


def draw_gallery(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Draw rates over epochs, a panel for each entry, two beside each other."""
    import matplotlib.pyplot as plt

    rows = math.ceil(len(curves) / 2)
    figure, axes = plt.subplots(rows, 2, figsize=(7, 1.35 * rows), sharex=True, squeeze=False)
    for axis in axes.flat[len(curves) :]:
        axis.set_visible(False)
    for axis, (code, values) in zip(axes.flat, curves.items(), strict=False):
        title = code.replace("optimizer, ", "").replace("), Cos", "),\nCos")
        axis.set_title(title, fontsize=8, loc="left")
        axis.plot(range(len(values)), values, drawstyle="steps-post", color="#0a6b7d", linewidth=2)
        axis.set(ylim=(-0.05, 1.1), yticks=[0, 1])
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("epoch")
    figure.tight_layout(h_pad=0.6)
    return figure


# ---------------------------------------------------------------- does warm-up help?


@dataclass(frozen=True)
class Run:
    """A training run: the loss of each step, and how the network ended.

    Attributes:
        losses: the training loss before each step; the run stops at the first that is not finite.
        accuracy: the share of held-out digits classified right, from 0 to 1.
    """

    losses: list[float]
    accuracy: float

    @property
    def diverged(self) -> bool:
        """Whether the loss became inf or nan."""
        return not math.isfinite(self.losses[-1])


def train_digits(
    lr: float, warm_up: int = 0, gain: float = 1.0, seed: int = 0, steps: int = 150
) -> Run:
    """Train a plain network of seven linear layers on scikit-learn's digits with SGD.

    Args:
        lr: the rate, reached after the warm-up.
        warm_up: how many steps the rate rises linearly, from `lr / warm_up`; 0 for none.
        gain: what Kaiming's initial weights are multiplied by; 1 is a good start, 2 a bad one.
        seed: of the initial weights and of the minibatches.
        steps: how many minibatches of 64.

    Raises:
        ValueError: `steps` is below 1.
    """
    if steps < 1:
        raise ValueError(f"expected at least one step, got {steps}")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    random = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for out in [64] * 6 + [10]:
        linear = nn.utils.skip_init(nn.Linear, 64, out)
        nn.init.kaiming_normal_(linear.weight, generator=random)
        nn.init.zeros_(linear.bias)
        linear.weight.data.mul_(gain)
        layers += [linear, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = SGD(model.parameters(), lr=lr)
    scheduler = lr_scheduler.LambdaLR(
        optimizer, lambda t: min(1.0, (t + 1) / warm_up) if warm_up else 1.0
    )
    losses = []
    for _ in range(steps):
        batch = torch.randint(0, 1400, (64,), generator=random)
        loss = F.cross_entropy(model(x[batch]), y[batch])
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    with torch.no_grad():
        accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
    return Run(losses, accuracy)


def draw_runs(panels: Mapping[str, Mapping[str, Sequence[Run]]]) -> Figure:
    """Draw the losses of runs over their steps: a panel for each title, a style for each name."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(panels), figsize=(7, 2.6), sharex=True, sharey=True, squeeze=False
    )
    styles = (("#c2410c", "--"), ("#0a6b7d", "-"))
    for axis, (title, groups) in zip(axes.flat, panels.items(), strict=True):
        for (name, runs), (color, line) in zip(groups.items(), styles, strict=False):
            for number, run in enumerate(runs):
                label = None if number else name
                axis.plot(run.losses, line, color=color, linewidth=1.2, label=label)
        axis.set_title(title, fontsize=9, loc="left")
        axis.set(yscale="log", xlabel="step", ylim=(1e-2, 1e4))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("training loss")
    axes[0, -1].legend(frameon=False)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- exercises


def _ints(low: int, high: int, count: int) -> list[int]:
    return torch.randint(low, high, (count,)).tolist()


def check_factor(answer: Callable[[int, int, int], float]) -> Verdict:
    """Check `answer(t, warm_up, total)`: linear warm-up, then half a cosine down to 0.

    The factor is (t + 1) / warm_up in epochs below `warm_up`, then
    (1 + cos(pi (t - warm_up) / (total - warm_up))) / 2, and 0 from epoch `total` on.
    """

    def case() -> tuple[int, int]:
        warm_up, rest = _ints(2, 12, 1)[0], _ints(4, 40, 1)[0]
        return warm_up, warm_up + rest

    def value(f, t, warm_up, total):
        got = f(t, warm_up, total)
        assert isinstance(got, (int, float)), f"expected a number, got {type(got).__name__}"
        return got

    def at(t, warm_up, total):
        return f"factor({t}, warm_up={warm_up}, total={total})"

    def rises(f):
        warm_up, total = case()
        assert value(f, 0, warm_up, total) != 0, "epoch 0 would train with a rate of 0"
        for t in range(warm_up):
            got = value(f, t, warm_up, total)
            assert math.isclose(got, (t + 1) / warm_up, abs_tol=1e-9), (
                f"{at(t, warm_up, total)} is {got:.3f}; in the warm-up it should be (t + 1) / "
                f"warm_up = {(t + 1) / warm_up:.3f}"
            )

    def falls(f):
        warm_up, total = case()
        for t in range(warm_up, total):
            got = value(f, t, warm_up, total)
            assert got <= 1 + 1e-9, f"{at(t, warm_up, total)} is {got:.3f}: it overshoots 1"
            want = (1 + math.cos(math.pi * (t - warm_up) / (total - warm_up))) / 2
            assert math.isclose(got, want, abs_tol=1e-9), (
                f"{at(t, warm_up, total)} is {got:.3f}; the cosine that begins at warm_up and "
                f"ends at total gives {want:.3f}"
            )

    def ends(f):
        warm_up, total = case()
        for t in (total, total + 1, 2 * total):
            got = value(f, t, warm_up, total)
            assert abs(got) < 1e-9, f"{at(t, warm_up, total)} is {got:.3f}: after total it is 0"

    return verdict(answer, [rises, falls, ends])


def check_per_step(answer: Callable[[Optimizer, int, int, int], LRScheduler]) -> Verdict:
    """Check `answer(optimizer, epochs, batches, accumulate)`: a cosine stepped with the optimizer.

    The optimizer steps after every `accumulate` batches and after the last batch of each epoch;
    the rate falls as half a cosine from the base rate and is 0 after the last of these steps.
    """

    def run(f, epochs, batches, accumulate):
        base = 0.1 + torch.rand(()).item()
        optimizer = one_weight(base)
        scheduler = f(optimizer, epochs, batches, accumulate)
        assert isinstance(scheduler, LRScheduler), (
            f"expected a scheduler, got {type(scheduler).__name__}"
        )
        assert scheduler.optimizer is optimizer, "the scheduler belongs to another optimizer"
        seen = [optimizer.param_groups[0]["lr"] / base]
        for _ in range(epochs):
            for batch in range(batches):
                if (batch + 1) % accumulate == 0 or batch + 1 == batches:
                    optimizer.step()
                    scheduler.step()
                    seen.append(optimizer.param_groups[0]["lr"] / base)
        return seen

    def compare(f, epochs, batches, accumulate):
        seen = run(f, epochs, batches, accumulate)
        where = f"{epochs} epochs of {batches} batches, accumulate={accumulate}"
        climbs = [i for i in range(1, len(seen)) if seen[i] > seen[i - 1] + 1e-9]
        assert not climbs, f"{where}: the rate climbs at step {climbs[0]} of {len(seen) - 1}"
        assert abs(seen[-1]) < 1e-6, (
            f"{where}: after the last step the rate is {seen[-1]:.3f} of the base, not 0"
        )
        for i, got in enumerate(seen):
            want = (1 + math.cos(math.pi * i / (len(seen) - 1))) / 2
            assert math.isclose(got, want, abs_tol=1e-6), (
                f"{where}: after step {i} the rate is {got:.3f} of the base, the cosine {want:.3f}"
            )

    def plain(f):
        compare(f, *_ints(2, 6, 1), *_ints(3, 12, 1), 1)

    def accumulated(f):
        compare(f, *_ints(2, 6, 1), 3 * _ints(2, 5, 1)[0], 3)

    def leftover(f):
        compare(f, *_ints(2, 6, 1), 4 * _ints(2, 5, 1)[0] + _ints(1, 4, 1)[0], 4)

    return verdict(answer, [plain, accumulated, leftover])


Build = Callable[[], tuple[nn.Module, Optimizer]]
Parts = tuple[nn.Module, Optimizer, LRScheduler]


def check_resume(answer: Callable[[dict[str, Any], Build, Make], Parts]) -> Verdict:
    """Check `answer(checkpoint, build, schedule)`: a run that goes on as if never interrupted.

    `checkpoint` holds the state dicts under "model", "optimizer" and "scheduler"; `build()` makes
    a fresh model and its optimizer, `schedule(optimizer)` a fresh scheduler.
    """

    def build():
        model = nn.Linear(3, 2).double()
        return model, SGD(model.parameters(), lr=0.1, momentum=0.9)

    def schedule(optimizer):
        return lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=10)

    def train(parts: Parts, x: Tensor) -> list[float]:
        model, optimizer, scheduler = parts
        used = []
        for batch in x:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            used.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return used

    def interrupted(f):
        epochs, x = _ints(3, 7, 1)[0], torch.randn(12, 4, 3, dtype=torch.float64)
        model, optimizer = build()
        straight = model, optimizer, schedule(optimizer)
        train(straight, x[:epochs])
        names = ("model", "optimizer", "scheduler")
        checkpoint = {
            name: copy.deepcopy(part.state_dict())
            for name, part in zip(names, straight, strict=True)
        }
        parts = f(checkpoint, build, schedule)
        kinds = (nn.Module, Optimizer, LRScheduler)
        assert isinstance(parts, tuple) and list(map(isinstance, parts, kinds)) == [True] * 3, (
            "expected the model, the optimizer and the scheduler, in this order"
        )
        return straight, parts, x[epochs:]

    def weights(f):
        straight, parts, _ = interrupted(f)
        assert parts[2].optimizer is parts[1], "the scheduler belongs to another optimizer"
        assert parts[0] is not straight[0], "build a fresh model"
        for mine, theirs in zip(parts[0].parameters(), straight[0].parameters(), strict=True):
            assert torch.equal(mine, theirs), "the weights are not those of the checkpoint"
        held = {id(p) for group in parts[1].param_groups for p in group["params"]}
        assert held == {id(p) for p in parts[0].parameters()}, (
            "the optimizer trains another model than the one returned"
        )

    def goes_on(f):
        straight, parts, x = interrupted(f)
        want, got = train(straight, x), train(parts, x)
        for number, (a, b) in enumerate(zip(want, got, strict=True)):
            assert math.isclose(a, b, rel_tol=1e-9), (
                f"epoch {number} after the resume trains with a rate of {b:.4f}, "
                f"the uninterrupted run with {a:.4f}"
            )
        for mine, theirs in zip(parts[0].parameters(), straight[0].parameters(), strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-9), (
                "the rates are right, but the weights move differently: the momentum is lost"
            )

    return verdict(answer, [weights, goes_on])
