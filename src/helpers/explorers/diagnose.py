"""Create training runs with one bug each, and run the chapter's tests on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import debugging, digits
from helpers.explorers import Explorer

CAUSES = ("optimizer", "softmax", "large", "small", "labels", "detach", "dead", "mixed", "nan")
TESTS = ("first", "batch", "moves", "finite", "neighbours", "valid")
# Order of the training runs; neighbours have different symptoms.
PATIENTS = ("labels", "optimizer", "nan", "softmax", "dead", "mixed", "large", "detach", "small")


# Recorded results of `results` with PyTorch 2.15 on a CPU; a test checks them. The last decimals of
# a run depend on the machine, so they are stored to make the page reproducible.
FOUND = {
    "optimizer": ("2.31", "2.31", "first, last: not in the optimizer", "None", "[0]", "5 %"),
    "softmax": ("2.30", "1.58", "first, last: moves, up to 10 %", "None", "[0]", "71 %"),
    "large": ("2.31", "2.13", "first, last: moves, up to 4000 %", "None", "[0]", "9 %"),
    "small": ("2.31", "2.31", "first, last: moves, up to 0.0001 %", "None", "[0]", "5 %"),
    "labels": ("2.33", "0.00", "first, last: moves, up to 10 %", "None", "[0]", "7 %"),
    "detach": ("2.31", "0.55", "first: no gradient; last: moves, up to 10 %", "None", "[]", "79 %"),
    "dead": ("2.30", "2.15", "first, last: gradient is 0", "None", "[]", "8 %"),
    "mixed": ("2.30", "0.07", "first, last: moves, up to 10 %", "None", "[0, 1, …, 15]", "43 %"),
    "nan": ("2.31", "nan", "first, last: gradient is nan or inf", "inf, backward", "[0]", "11 %"),
    "none": ("2.31", "0.00", "first, last: moves, up to 10 %", "None", "[0]", "94 %"),
}


@dataclass
class Training:
    """Model, optimizer, loss function and data of a training run with one bug."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    criterion: Callable[[Tensor, Tensor], Tensor]
    x: Tensor
    y: Tensor

    def loss(self, x: Tensor | None = None, y: Tensor | None = None) -> Tensor:
        """Return the loss of the given batch, or of the first 16 samples."""
        x, y = (self.x[:16], self.y[:16]) if x is None else (x, y)
        return self.criterion(self.model(x), y)


class _Detached(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        flat, first, relu, last = self
        return last(relu(first(flat(x))).detach())


class _Mixed(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        flat, first, relu, last = self
        return last(relu(first(flat(x)).softmax(0)))


def training(cause: str) -> Training:
    """Return the training run with the bug `cause`, one of `CAUSES`, or `"none"` for no bug."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        kind = {"detach": _Detached, "mixed": _Mixed}.get(cause, nn.Sequential)
        model = kind(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        x, y = (t[:1000] for t in digits.split()[0].tensors)
        if cause == "labels":
            y = y[torch.randperm(len(y))]
        if cause == "dead":
            nn.init.constant_(model[1].bias, -100.0)
            nn.init.zeros_(model[3].bias)
        rate = {"large": 3.0, "small": 1e-7}.get(cause, 0.01)
        held = nn.Linear(64, 32) if cause == "optimizer" else model
        optimizer = torch.optim.Adam(held.parameters(), lr=rate)
    criterion: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    if cause == "softmax":

        def criterion(scores: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(scores.softmax(1), y)

    if cause == "nan":  # penalize the distance of logits to themselves, with gradient 0 / 0

        def criterion(scores: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(scores, y) + (scores - scores).square().sum(1).sqrt().mean()

    return Training(model, optimizer, criterion, x, y)


def accuracy(run: Training, epochs: int = 5) -> int:
    """Return the accuracy on the 360 validation digits after `epochs` epochs, in percent."""
    x, y = digits.split()[1].tensors
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        for _ in range(epochs):
            for part in torch.randperm(len(run.x)).split(50):
                run.optimizer.zero_grad()
                run.loss(run.x[part], run.y[part]).backward()
                run.optimizer.step()
    with torch.no_grad():
        return round(100 * (run.model(x).argmax(1) == y).float().mean().item())


def results(cause: str) -> tuple[str, ...]:
    """Return the result of each test in `TESTS` on a training run, as short text."""
    run = training(cause)
    losses = debugging.overfit(run.model, run.loss, run.optimizer)
    changes = debugging.movement(run.model, run.loss, run.optimizer)
    first, last = (changes[name].partition(" by ")[0] for name in ("1.weight", "3.weight"))
    moves = f"first, last: {first}" if first == last else f"first: {first}; last: {last}"
    origin = debugging.first_nonfinite(lambda: run.loss().backward(), run.model)
    run.model.zero_grad()
    seen = debugging.neighbours(run.model, run.x[:16], sample=0)
    return (
        _number(losses[0]),
        _number(losses[-1]),
        moves + _largest(changes),
        f"{origin.value}, {origin.during}" if origin else "None",
        str(seen) if len(seen) < 3 else f"[{seen[0]}, {seen[1]}, …, {seen[-1]}]",
        f"{accuracy(training(cause))} %",
    )


def _largest(changes: dict[str, str]) -> str:
    """Return the largest relative change rounded to one digit: only its magnitude matters."""
    shares = [float(state.split()[2]) for state in changes.values() if state.startswith("moves by")]
    if not shares:
        return ""
    digits = math.floor(math.log10(max(shares)))
    return f", up to {round(max(shares), -digits):.{max(0, -digits)}f} %"


def _number(value: float) -> str:
    return "nan" if value != value else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def kinds(outcomes: tuple[str, ...]) -> tuple[str, ...]:
    """Return a category for each result; causes with equal categories are indistinguishable."""
    _, batch, moves, _, _, valid = outcomes
    value = float(batch)
    learned = "yes" if value < 0.1 else "part" if value < 2 else "no"  # nan: no
    right = float(valid.split()[0])
    guess = "guess" if right < 15 else "part" if right < 90 else "good"
    return ("guess", learned, moves, outcomes[3], outcomes[4], guess)


def diagnose_explorer(lang: str | None = None) -> Explorer:
    """Run tests on a failing training run, and find the cause with at most three of them."""
    return Explorer(
        "diagnose",
        {
            "causes": [CAUSES.index(cause) for cause in PATIENTS],
            "found": [FOUND[cause] for cause in CAUSES],
            "kinds": [kinds(FOUND[cause]) for cause in CAUSES],
            "sound": FOUND["none"],
        },
        {
            "en": (
                "Nine training runs with one bug each and six tests: the initial loss, the loss "
                "of one batch after 200 steps, which weights are updated, the first nan or "
                "infinity, which samples an output depends on, and the accuracy on validation "
                "data. No single test distinguishes all causes."
            ),
            "zh": (
                "九次训练各有一个错误，另有六项检查：初始损失、同一批训练 200 步后的损失、哪些权"
                "重被更新、第一个 nan 或无穷大、一个输出依赖哪些样本，以及验证集上的准确率。没有"
                "哪一项检查能单独区分所有原因。"
            ),
        },
        lang,
    )
