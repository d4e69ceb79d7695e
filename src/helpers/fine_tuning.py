"""Helpers of the chapter "Fine-tune a pretrained network".

Source: torchvision's models, https://pytorch.org/vision/stable/models.html, and parameter groups,
https://pytorch.org/docs/stable/optim.html#per-parameter-options
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.exercises import Verdict, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KNOWN = 700  # of the 901 pictures of 0 to 4, those that the pretrained network was trained on


# ---------------------------------------------------------------- a small pretrained network


class DigitNet(nn.Module):
    """A convolutional network for pictures of shape (N, 1, 8, 8); gives logits (N, classes)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = _block(1, 16)
        self.layer1 = _block(16, 32)
        self.layer2 = _block(32, 32)
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of `x`; two of the poolings and the flattening are no modules."""
        x = F.max_pool2d(self.layer1(self.stem(x)), 2)
        return self.head(F.max_pool2d(self.layer2(x), 2).flatten(1))


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def digits(classes: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Scikit-learn's handwritten digits of these classes, in the order of the data set.

    Returns:
        The pictures, float32 of shape (N, 1, 8, 8), from 0 to 1; and the labels, int64 of shape
        (N,), numbered from 0 in the order of `classes`.

    Raises:
        ValueError: a class is not one of 0 to 9, or there is none, or one is named twice.
    """
    wanted = list(classes)
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(range(10)):
        raise ValueError(f"classes must be different digits from 0 to 9, got {wanted}")
    x, y = _all_digits()
    labels = torch.full((10,), -1)
    labels[wanted] = torch.arange(len(wanted))
    y = labels[y]
    return x[y >= 0], y[y >= 0]


@cache
def _all_digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).div(16).unsqueeze(1)
    return x, torch.tensor(data.target)


def pretrained() -> DigitNet:
    """A `DigitNet` that knows the digits 0 to 4: trained once per process, in about a second.

    It has seen the first `KNOWN` pictures of `digits(range(5))`; each call returns a copy of its
    own, in training mode, with gradients on. No random number is drawn.
    """
    return copy.deepcopy(_trained())


@cache
def _trained() -> DigitNet:
    x, y = digits(range(5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = DigitNet(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    fit(model, optimizer, x[:KNOWN], y[:KNOWN], epochs=6, batch_size=32)
    return model


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    epochs: int = 30,
    batch_size: int = 25,
    still: Sequence[nn.Module] = (),
) -> None:
    """Train with cross-entropy; each epoch `train()`, then `eval()` on the parts in `still`.

    The minibatches are the same in every call. A last one of a single sample is left out.
    """
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        model.train()
        for part in still:
            part.eval()
        for batch in torch.randperm(len(x), generator=generator).split(batch_size):
            if len(batch) > 1:
                optimizer.zero_grad()
                F.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of `x` whose largest logit is at `y`, in evaluation mode; the mode comes back.

    Raises:
        ValueError: `x` is empty.
    """
    if len(x) == 0:
        raise ValueError("accuracy needs at least one sample, got none")
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        right = model(x).argmax(1) == y
    for module, training in modes.items():
        module.training = training
    return right.float().mean().item()


def unseen() -> tuple[Tensor, Tensor]:
    """The pictures and labels of 0 to 4 that the pretrained network was not trained on."""
    x, y = digits(range(5))
    return x[KNOWN:], y[KNOWN:]


def few(per_class: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The digits 5 to 9 with few labels: the first `per_class` of each to train on, 400 to test.

    Raises:
        ValueError: `per_class` is not from 1 to 80.
    """
    if not 1 <= per_class <= 80:
        raise ValueError(f"per_class must be from 1 to 80, got {per_class}")
    x, y = digits(range(5, 10))
    chosen = torch.cat([(y == label).nonzero()[:per_class, 0] for label in range(5)])
    return (x[chosen], y[chosen]), (x[-400:], y[-400:])


# ---------------------------------------------------------------- look at a fine-tuning


def audit(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """What training will do to each child of `model` (and to each parameter of its own).

    Words used, joined by commas: `lr …` for parameters that the optimizer moves; `in no group` for
    those that require a gradient and are not in the optimizer; `frozen` or `partly frozen`;
    `gradient left` where a frozen parameter in the optimizer still holds one, so that a step moves
    it; `statistics move` where everything is frozen, but a BatchNorm layer is in training mode.
    Parameters that the optimizer holds and the model does not are counted in a last line.
    """
    rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    told = {name: _state([p], [], rates) for name, p in model.named_parameters(recurse=False)}
    for name, child in model.named_children():
        told[name] = _state(list(child.parameters()), list(child.modules()), rates)
    strangers = rates.keys() - {id(p) for p in model.parameters()}
    told["(not in the model)"] = f"{len(strangers)} parameters" if strangers else ""
    return {name: state for name, state in told.items() if state}


def _state(
    parameters: list[nn.Parameter], modules: list[nn.Module], rates: dict[int, float]
) -> str:
    learning = [p for p in parameters if p.requires_grad]
    frozen = [p for p in parameters if not p.requires_grad]
    words = sorted({f"lr {rates[id(p)]:g}" if id(p) in rates else "in no group" for p in learning})
    if frozen:
        words.append("partly frozen" if learning else "frozen")
    if any(p.grad is not None and id(p) in rates for p in frozen):
        words.append("gradient left")
    if frozen and not learning and any(_moves(module) for module in modules):
        words.append("statistics move")
    return ", ".join(words)


def _moves(module: nn.Module) -> bool:
    """Whether a forward pass changes the running statistics of this layer."""
    return module.training and getattr(module, "running_mean", None) is not None


def keep(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the state of `model`, to compare with later (see `changed`)."""
    return copy.deepcopy(model.state_dict())


def changed(before: dict[str, Tensor], model: nn.Module) -> list[str]:
    """The children of `model` in which a parameter or buffer differs from the `before` kept.

    `before` is a copy of `model.state_dict()`; entries that it lacks count as changed.
    """
    names = []
    for key, value in model.state_dict().items():
        child = key.partition(".")[0]
        same = key in before and torch.equal(before[key], value)
        if not same and child not in names:
            names.append(child)
    return names


def head_of(model: nn.Module) -> str:
    """The name of the last `nn.Linear` of `model`, which is the head of most classifiers.

    Raises:
        ValueError: there is none (SqueezeNet ends in a convolution, for example).
    """
    linear = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise ValueError(f"{type(model).__name__} has no nn.Linear")
    return linear[-1]


class _AskedError(Exception):
    """Raised in place of a download."""


def download_of(build: Callable[[], Any]) -> str | None:
    """The file of weights that `build()` would download first, or None; nothing is downloaded.

    The model is built on the meta device, and warnings are kept quiet.
    """
    from torchvision.models import WeightsEnum

    asked: list[str] = []

    def refuse(weights: Any, *args: Any, **options: Any) -> None:
        asked.append(weights.url.rpartition("/")[2])
        raise _AskedError

    with (
        mock.patch.object(WeightsEnum, "get_state_dict", refuse),
        warnings.catch_warnings(),
        torch.device("meta"),
        suppress(_AskedError),
    ):
        warnings.simplefilter("ignore")
        build()
    return asked[0] if asked else None


# ---------------------------------------------------------------- features


class ChildrenExtractor(nn.Module):
    """The old way to features: run the named children one after the other and keep some outputs.

    It is here to be looked at. Prefer
    `torchvision.models.feature_extraction.create_feature_extractor`.
    """

    def __init__(self, model: nn.Module, layers: Iterable[str]) -> None:
        super().__init__()
        self.model = model.eval()
        self.layers = set(layers)

    def forward(self, x: Tensor) -> list[Tensor]:
        """The outputs of the children asked for, in the order of the model, without a graph."""
        found = []
        with torch.no_grad():
            for name, child in self.model.named_children():
                x = child(x)
                if name in self.layers:
                    found.append(x)
        return found


# ---------------------------------------------------------------- the rate of the body


def body_rate(rate: float, seeds: int = 3) -> dict[str, float]:
    """Fine-tune on five pictures each of 5 to 9, the head at 0.05, the body at `rate`.

    BatchNorm stays in evaluation mode. 30 epochs of one step, momentum 0.9.

    Returns:
        Accuracy on unseen pictures, averaged over `seeds` new heads: `new` for the digits 5 to 9,
        `old` for 0 to 4, with the old head put back.

    Raises:
        ValueError: `rate` is negative or `seeds` below 1.
    """
    if rate < 0 or seeds < 1:
        raise ValueError(f"expected a rate of 0 or more and a seed, got {rate} and {seeds}")
    (x, y), (x_test, y_test) = few(5)
    x_old, y_old = unseen()
    new, old = [], []
    for seed in range(seeds):
        model = pretrained()
        old_head = model.head
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.head = nn.Linear(128, 5)
        body = [p for name, p in model.named_parameters() if not name.startswith("head.")]
        groups = [{"params": body, "lr": rate}, {"params": model.head.parameters()}]
        optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
        fit(model, optimizer, x, y, still=(model.stem, model.layer1, model.layer2))
        new.append(accuracy(model, x_test, y_test))
        model.head = old_head
        old.append(accuracy(model, x_old, y_old))
    return {"new": sum(new) / seeds, "old": sum(old) / seeds}


def draw_body_rates(found: dict[float, dict[str, float]]) -> Figure:
    """Accuracy on the new and on the old digits over the body's learning rate.

    Args:
        found: what `body_rate` returned, by rate; at least two rates above 0.

    Raises:
        ValueError: there are fewer than two rates, or one is not above 0.
    """
    import matplotlib.pyplot as plt

    if len(found) < 2 or min(found) <= 0:
        raise ValueError(f"expected at least two rates above 0, got {list(found)}")
    rates = sorted(found)
    figure, axis = plt.subplots(figsize=(7, 3))
    for key, style, color, label in (
        ("new", "o-", "#0a6b7d", "new digits, 5 to 9"),
        ("old", "s--", "#c2410c", "old digits, 0 to 4"),
    ):
        axis.plot(rates, [found[rate][key] for rate in rates], style, color=color, label=label)
    axis.axhline(0.2, color="#555", linewidth=1, linestyle=":")
    axis.text(rates[0], 0.22, "guessing", color="#555", fontsize=9)
    axis.axvline(0.05, color="#555", linewidth=1, linestyle=":")
    axis.annotate(
        "head", (0.05, 1.07), ha="center", fontsize=9, color="#555", annotation_clip=False
    )
    axis.set(xscale="log", ylim=(0, 1.05), ylabel="accuracy")
    axis.set_xlabel("learning rate of the body (the head's is 0.05)")
    axis.legend(frameon=False, loc="center left", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- exercises


def check_groups(answer: Callable[[nn.Module, str, float], Any]) -> Verdict:
    """Check `answer(model, head, lr)`: two groups, the head at `lr`, the rest at `lr / 10`.

    `head` names a child of `model`. Frozen parameters are in no group.
    """

    def case() -> tuple[nn.Module, float]:
        model = nn.Module()
        model.stem = nn.Linear(3, 4).requires_grad_(False)
        model.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        model.head_norm = nn.LayerNorm(4)  # its name begins like the head's
        model.head = nn.Linear(4, int(torch.randint(2, 6, ())))
        return model, 10 ** -(1 + 2 * torch.rand(()).item())

    def form(f: Callable) -> None:
        model, lr = case()
        groups = f(model, "head", lr)
        assert isinstance(groups, list) and len(groups) == 2, "expected a list of two groups"
        for group in groups:
            assert isinstance(group, dict) and {"params", "lr"} <= group.keys(), (
                "each group is a dict with the keys 'params' and 'lr'"
            )

    def reusable(f: Callable) -> None:
        model, lr = case()
        groups = f(model, "head", lr)
        first, second = ([len(list(g["params"])) for g in groups] for _ in range(2))
        assert first == second, "a group is empty the second time it is read: it is an iterator"

    def members(f: Callable) -> None:
        model, lr = case()
        optimizer = torch.optim.SGD(f(model, "head", lr), lr=1.0)
        rates = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
        for name, p in model.named_parameters():
            if not p.requires_grad:
                assert id(p) not in rates, f"{name} is frozen, leave it out"
                continue
            assert id(p) in rates, f"{name} is in no group"
            right = lr if name.startswith("head.") else lr / 10
            assert abs(rates[id(p)] - right) < 1e-3 * right, (
                f"{name} has the wrong learning rate: expected lr{'' if right == lr else ' / 10'}"
            )

    return verdict(answer, [form, reusable, members])


def check_train_mode(answer: Callable[[nn.Module], Any]) -> Verdict:
    """Check `answer(model)`: training mode, but evaluation mode wherever everything is frozen.

    A module with parameters that are all frozen is in evaluation mode, with all it contains;
    every other module is in training mode, also one without parameters.
    """

    def case() -> nn.Module:
        block = nn.Sequential(_norm(frozen=True), _norm(frozen=False))
        stem = nn.Sequential(_norm(frozen=True), nn.Dropout(0.5))
        model = nn.Sequential(stem, block, nn.Dropout(0.5), nn.Linear(3, 2))
        return model.train(bool(torch.rand(()) < 0.5))

    def statistics(f: Callable) -> None:
        model = case()
        f(model)
        model(torch.randn(8, 3) + 1)
        for name in ("0.0", "1.0"):
            norm = model.get_submodule(name)[1]
            assert norm.running_mean.eq(0).all(), "a frozen BatchNorm layer still moves"
        assert model[1][1][1].running_mean.ne(0).any(), "a BatchNorm layer that learns stands still"

    def modes(f: Callable) -> None:
        model = case()
        f(model)
        assert not model[0][1].training, "the dropout inside a frozen part is still on"
        assert model[2].training, "the dropout outside of the frozen parts is off"
        assert model.training and model[3].training, "what learns must be in training mode"

    def again(f: Callable) -> None:
        model = case()
        f(model)
        model[0].requires_grad_(True)
        f(model)
        assert model[0][0][1].training, "a part that was unfrozen must come back to training mode"
        assert not model[1][0][1].training, "the second call lost the frozen part"
        flags = [p.requires_grad for p in model[1].parameters()]
        assert flags == [False] * 4 + [True] * 4, "leave requires_grad as it is"

    return verdict(answer, [statistics, modes, again])


def _norm(frozen: bool) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).requires_grad_(not frozen)


def check_capture(answer: Callable[[nn.Module, Sequence[str], Tensor], Any]) -> Verdict:
    """Check `answer(model, names, x)`: the outputs of the modules named, by name.

    As they were when the module returned, without a graph; no hook stays on the model, also when a
    name does not exist, which is an error.
    """

    def case() -> tuple[nn.Module, Tensor]:
        block = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True))
        model = nn.Sequential(block, nn.Linear(5, 2)).eval()
        return model, torch.randn(int(torch.randint(8, 16, ())), 3)

    def values(f: Callable) -> None:
        model, x = case()
        got = f(model, ["0.0", "0.1", "1"], x)
        assert isinstance(got, dict), f"expected a dict, got {type(got).__name__}"
        assert sorted(got) == ["0.0", "0.1", "1"], f"expected a key for each name, got {list(got)}"
        with torch.no_grad():
            linear = model[0][0](x)
            norm = model[0][1](linear)
            right = {"0.0": linear, "0.1": norm, "1": model[1](norm.relu())}
        for name, value in right.items():
            assert isinstance(got[name], Tensor), f"{name!r} is not a tensor"
            if name == "0.1" and torch.allclose(got[name], value.relu(), atol=1e-6):
                raise AssertionError("the output of '0.1' was overwritten by the in-place ReLU")
            same = got[name].shape == value.shape and torch.allclose(got[name], value, atol=1e-6)
            assert same, f"{name!r} does not hold the output of that module"
            assert not got[name].requires_grad, f"{name!r} still has a graph"

    def clean(f: Callable) -> None:
        model, x = case()
        f(model, ["0.1"], x)
        assert not _hooks(model), "a hook is left on the model"

    def missing(f: Callable) -> None:
        model, x = case()
        try:
            f(model, ["0.0", "relu"], x)
        except Exception:  # whatever the answer raises is an error, as asked
            assert not _hooks(model), "after the error for a missing name a hook is left"
        else:
            raise AssertionError("a name that does not exist must be an error")

    return verdict(answer, [values, clean, missing])


def _hooks(model: nn.Module) -> int:
    """How many forward hooks are registered in `model`."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
