"""Helpers of the chapter "Write a training loop that is right".

Source: "Optimizing Model Parameters",
https://pytorch.org/tutorials/beginner/basics/optimization_tutorial.html
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import child
from helpers.autograd import saved_tensors
from helpers.exercises import Verdict, verdict
from helpers.timing import device_ratios, wait

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.optim import Optimizer
    from torch.utils.data import TensorDataset

Measure = Callable[[Tensor, Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor]]


def digits(validation: int = 360) -> tuple[TensorDataset, TensorDataset]:
    """The handwritten digits of scikit-learn, shuffled once and split; nothing is downloaded.

    Args:
        validation: how many of the 1797 samples go to the second set.

    Returns:
        Training and validation set of pairs: an image, float32 of shape (1, 8, 8) in [0, 1], and
        its label, an int64 from 0 to 9. `.tensors` holds all images and all labels.

    Raises:
        ValueError: one of the sets would be empty.

    Source: https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html
    """
    from sklearn.datasets import load_digits
    from torch.utils.data import TensorDataset

    data = load_digits()
    count = len(data.target)
    if not 0 < validation < count:
        raise ValueError(f"validation must lie between 1 and {count - 1}, got {validation}")
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    first, second = order[validation:], order[:validation]
    return TensorDataset(images[first], labels[first]), TensorDataset(
        images[second], labels[second]
    )


# ---------------------------------------------------------------- the loop


def fit(
    model: nn.Module,
    loader: Batches,
    loss_function: Measure,
    optimizer: Optimizer,
    epochs: int = 1,
    max_norm: float | None = None,
) -> list[float]:
    """Train, and return the mean loss per sample of each epoch.

    The model is put in training mode at the start of every epoch. Batches go to the device of its
    parameters. The loss is checked in every step, which waits for a GPU.

    Args:
        loader: gives batches (x, y) with `len(y)` samples, again in every epoch.
        loss_function: `loss_function(model(x), y)` is the mean over the batch, of shape ().
        max_norm: if given, the norm of all gradients together is clipped to it.

    Raises:
        ValueError: `loader` gave no batch, or the loss is not a single number.
        FloatingPointError: the loss became inf or nan. The weights are those before this step.
    """
    history = []
    for epoch in range(epochs):
        model.train()
        total, count = 0.0, 0
        for x, y in _on_device(model, loader):
            loss = loss_function(model(x), y)
            value = _single(loss, "the loss")
            if not math.isfinite(value):
                raise FloatingPointError(f"the loss is {value} in epoch {epoch}, sample {count} on")
            optimizer.zero_grad()
            loss.backward()
            if max_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm, error_if_nonfinite=True)
            optimizer.step()
            total += value * len(y)
            count += len(y)
        history.append(total / count)
    return history


def evaluate(model: nn.Module, loader: Batches, **measures: Measure) -> dict[str, float]:
    """The mean per sample of each of `measures`, in eval mode and without a graph.

    Every module comes back to the mode that it had, also when something fails.

    Args:
        loader: gives batches (x, y) with `len(y)` samples.
        **measures: each gives the mean over a batch, of shape (), from `model(x)` and `y`: for
            example `loss=F.cross_entropy, accuracy=accuracy`. A mean over something else than
            samples, as with class weights or ignored labels, is not put together rightly.

    Raises:
        ValueError: `loader` gave no batch, no measure was given, or one is not a single number.
    """
    if not measures:
        raise ValueError("evaluate needs at least one measure, such as loss=F.cross_entropy")
    totals, count = dict.fromkeys(measures, 0.0), 0
    with _eval_mode(model), torch.no_grad():
        for x, y in _on_device(model, loader):
            output = model(x)
            for name, measure in measures.items():
                totals[name] += _single(measure(output, y), name) * len(y)
            count += len(y)
    return {name: total / count for name, total in totals.items()}


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """The share of samples whose largest score is that of their label: a float32 scalar.

    Args:
        scores: shape (N, C); logits will do, no softmax is needed.
        labels: integers of shape (N,).

    Raises:
        ValueError: other shapes, which `==` would broadcast in silence.
    """
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            "expected scores of shape (N, C) and labels of shape (N,), got "
            f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    return (scores.argmax(1) == labels).float().mean()


def untrained(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """The names of the parameters that want a gradient and that `optimizer` does not hold."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return [n for n, p in model.named_parameters() if p.requires_grad and id(p) not in held]


def _on_device(model: nn.Module, loader: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    empty = True
    for x, y in loader:
        empty = False
        yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    if empty:
        raise ValueError(
            "the loader gave no batch: fewer samples than batch_size with drop_last=True, "
            "or an iterator that is used up?"
        )


def _single(value: Tensor, name: str) -> float:
    if value.numel() != 1:
        raise ValueError(f"{name} must be one number per batch, got shape {tuple(value.shape)}")
    return value.item()


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


# ---------------------------------------------------------------- figures


def draw_lines(x: Tensor, y: Tensor, lines: Mapping[str, Tensor]) -> Figure:
    """Draw the points (x, y) and up to three lines over them, with a legend.

    Args:
        x: n numbers, of shape (n,) or (n, 1); `y` and each of `lines` have shape (n,).

    Raises:
        ValueError: there is no line, or there are more than three.
    """
    import matplotlib.pyplot as plt

    styles = [("#c2410c", "--"), ("#0a6b7d", "-"), ("#222", ":")]
    if not 1 <= len(lines) <= len(styles):
        raise ValueError(f"draw_lines needs 1 to {len(styles)} lines, got {len(lines)}")
    figure, axis = plt.subplots(figsize=(7, 2.8))
    axis.plot(x.flatten(), y, ".", color="#888", label="data")
    for (name, values), (color, line) in zip(lines.items(), styles, strict=False):
        axis.plot(x.flatten(), values, line, color=color, linewidth=2.5, label=name)
    axis.set(xlabel="x", ylabel="y")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- measurements on a GPU


def recordings() -> dict[str, Callable[[], Any]]:
    """What a GPU can tell this chapter: names of recordings and the functions that measure them."""
    return {"device_mixed_precision": record_mixed_precision}


def record_mixed_precision() -> dict[str, Any]:
    """What 16 bits change in a training step on a GPU; see `_mixed_precision`.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    return child.on_gpu(_mixed_precision)


def _mixed_precision(
    device: str, width: int = 2048, batch: int = 8192, layers: int = 6, times: int = 5
) -> dict[str, Any]:
    """Train the same perceptron in float32 and under autocast, and compare.

    Args:
        device: "cuda", or "cpu" to test this function.
        width: of the input and of each layer.
        batch: samples in a step.
        layers: how many linear layers there are.
        times: how often each ratio of times is measured.

    Returns:
        For bfloat16 and float16: the dtypes of weights, scores and gradients; how many times longer
        a float32 step takes; on a GPU, the peak memory of a step beyond what is kept between steps,
        as a share of the float32 step's. For float16, how many steps GradScaler skips before the
        first that it takes, from its usual scale of 2**16 and from 2**40.
    """
    x = torch.randn(batch, width, device=device)
    y = torch.randint(0, 10, (batch,), device=device)

    def trainer(dtype: torch.dtype, scale: float = 2.0**16) -> tuple[nn.Module, Callable[[], Any]]:
        torch.manual_seed(0)
        body = [part for _ in range(layers - 1) for part in (nn.Linear(width, width), nn.ReLU())]
        model = nn.Sequential(*body, nn.Linear(width, 10)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        half = dtype is torch.float16
        scaler = torch.amp.GradScaler(device, init_scale=scale, enabled=half)

        def step() -> tuple[Tensor, bool]:
            with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
                scores = model(x)
                loss = F.cross_entropy(scores, y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            return scores, scaler.get_scale() < before

        return model, step

    def peak(step: Callable[[], Any]) -> int:
        step()
        wait(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        wait(device)
        return torch.cuda.max_memory_allocated() - before

    _, plain = trainer(torch.float32)
    values: dict[str, Any] = {}
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        model, step = trainer(dtype)
        scores, _ = step()
        kinds = (model[0].weight, scores, model[0].weight.grad)
        values[f"{name}: weights, scores, gradients"] = " ".join(
            str(tensor.dtype).removeprefix("torch.") for tensor in kinds
        )
        values[f"{name}: time of float32 / its own"] = device_ratios(plain, step, device, times)
        if device == "cuda":
            values[f"{name}: peak memory / that of float32"] = peak(step) / peak(plain)
    for power in (16, 40):
        _, step = trainer(torch.float16, 2.0**power)
        skips = 0
        while skips < power and step()[1]:
            skips += 1
        values[f"float16: steps skipped from 2**{power}"] = skips
    return values


# ---------------------------------------------------------------- exercises


def check_evaluate(answer: Callable[[nn.Module, Batches], float]) -> Verdict:
    """Check `answer(model, loader)`: the mean cross-entropy per sample of a model at rest.

    `loader` is a list of batches (x, y), float32 of shape (n, 3) and int64 of shape (n,), whose
    last one may be smaller. The model keeps its modes, and autograd records nothing.
    """

    def net(drop: float = 0.0) -> nn.Sequential:
        return nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Dropout(drop), nn.Linear(32, 4))

    def batches(*sizes: int) -> list[tuple[Tensor, Tensor]]:
        return [(torch.randn(n, 3) * 3, torch.randint(0, 4, (n,))) for n in sizes]

    def right(model: nn.Module, loader: list) -> float:
        x, y = (torch.cat(part) for part in zip(*loader, strict=True))
        with _eval_mode(model), torch.no_grad():
            return F.cross_entropy(model(x), y).item()

    def number(got: object) -> float:
        assert isinstance(got, float | Tensor), f"expected a float, got {type(got).__name__}"
        if isinstance(got, Tensor):
            assert got.shape == (), "expected one number, got a tensor with axes"
            return got.item()
        return got

    def close(a: float, b: float) -> bool:
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5)

    def even(f):
        model, loader = net().eval(), batches(4, 4)
        assert close(number(f(model, loader)), right(model, loader)), (
            "on batches of equal size it is not the mean cross-entropy per sample"
        )

    def uneven(f):
        model, naive, want = net().eval(), 0.0, 0.0
        while abs(naive - want) < 0.05:
            loader = batches(8, 8, 1)
            want = right(model, loader)
            naive = sum(right(model, [batch]) for batch in loader) / 3
        got = number(f(model, loader))
        assert not close(got, naive), (
            "the last batch holds one sample and counts as much as the others with eight"
        )
        assert close(got, want), "with a smaller last batch the mean is wrong"

    def dropout(f):
        model, loader = net(drop=0.9).train(), batches(64, 32)
        assert close(number(f(model, loader)), right(model, loader)), (
            "dropout was active: the model was not in eval mode"
        )

    def modes(f):
        for mode in (True, False):
            model = net(drop=0.5).train(mode)
            f(model, batches(4, 3))
            assert model.training == mode and model[2].training == mode, (
                f"the model came in with training={mode} and was left with training={not mode}"
            )
        model = net(drop=0.5).train()
        model[2].eval()
        f(model, batches(4, 3))
        assert model.training and not model[2].training, (
            "a layer that was in eval mode inside a training model was switched to training"
        )

    def graph(f):
        model, loader, got = net(), batches(4, 3), []
        saved = saved_tensors(lambda: got.append(f(model, loader)))
        assert not saved, "autograd recorded the forward passes: nobody will go backward"
        assert all(p.grad is None for p in model.parameters()), "parameters have gradients now"

    return verdict(answer, [even, uneven, dropout, modes, graph])


def check_decay_groups(answer: Callable[[nn.Module, float], list[dict]]) -> Verdict:
    """Check `answer(model, weight_decay)`: parameter groups that decay matrices only.

    Weights of linear and convolutional layers get `weight_decay`; biases, the scales of
    normalization layers and embeddings get 0. A weight that two layers share comes once.
    """

    class Net(nn.Module):
        def __init__(self, tied: bool) -> None:
            super().__init__()
            self.words = nn.Embedding(7, 4)
            self.conv = nn.Conv1d(4, 4, 3)
            self.batch_norm = nn.BatchNorm1d(4)
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.layer_norm = nn.LayerNorm(4)
            if tied:
                self.second.weight = self.first.weight

    def groups(f, model: nn.Module, weight_decay: float) -> dict[int, float]:
        given = f(model, weight_decay)
        assert isinstance(given, list | tuple), f"expected a list, got {type(given).__name__}"
        given = [{**g, "params": list(g["params"])} for g in given]
        ids = [id(p) for g in given for p in g["params"]]
        names = {id(p): n for n, p in model.named_parameters()}
        for one in ids:
            assert one in names, "a group holds something that is no parameter of the model"
            assert ids.count(one) == 1, f"{names[one]} comes more than once"
        optimizer = torch.optim.SGD([g for g in given if g["params"]], lr=0.1)
        missing = untrained(model, optimizer)
        assert not missing, f"{missing[0]} is in no group and would never learn"
        return {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}

    def compare(f, tied: bool) -> None:
        weight_decay = round(0.01 + torch.rand(()).item(), 3)
        model = Net(tied)
        found = groups(f, model, weight_decay)
        matrices = {"conv.weight", "first.weight", "second.weight"}
        for name, p in model.named_parameters():
            decay = found[id(p)]
            if name in matrices:
                assert decay == weight_decay, f"{name} has decay {decay}, not the one asked for"
            else:
                assert decay == 0, f"{name} is decayed, and should not be"

    def plain(f):
        compare(f, False)

    def shared(f):
        compare(f, True)

    return verdict(answer, [plain, shared])


def check_scaled_step(answer: Callable[..., None]) -> Verdict:
    """Check `answer(model, x, y, optimizer, scaler, max_norm)`: one scaled, clipped step.

    The loss is `F.mse_loss(model(x), y)`, `x` and `y` are float32 of shapes (8, 3) and (8, 2),
    `scaler` is a `torch.amp.GradScaler("cpu")`. The step must equal that without a scaler, and a
    batch with infinite gradients must be skipped.
    """
    scale, lr = 1024.0, 0.1

    def flat_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        grads = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        return torch.cat([g.flatten() for g in grads])

    def flat(model: nn.Module) -> Tensor:
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    def tools(model: nn.Module) -> tuple[Optimizer, torch.amp.GradScaler]:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        return optimizer, torch.amp.GradScaler("cpu", init_scale=scale)

    def draw() -> tuple[nn.Module, Tensor, Tensor]:
        return nn.Linear(3, 2), torch.randn(8, 3), torch.randn(8, 2) * 5

    def run(f, share: float, stale: bool = False) -> None:
        """One step with `max_norm` at `share` of the norm, so `min(1, share)` of it is taken."""
        model, x, y = draw()
        gradient, before = flat_gradient(model, x, y), flat(model)
        if stale:
            for p in model.parameters():
                p.grad = torch.full_like(p, scale * gradient.norm().item())
        f(model, x, y, *tools(model), gradient.norm().item() * share)
        moved = (before - flat(model)) / lr
        taken = (moved @ gradient / gradient.square().sum()).item()  # 1: the whole gradient
        straight = (moved - taken * gradient).norm() <= 0.02 * moved.norm()

        def close(factor: float) -> bool:
            return math.isclose(taken, factor, rel_tol=0.02) and bool(straight)

        if close(min(1.0, share)):
            return
        assert moved.any(), "the weights did not move"
        assert not close(share / scale), (
            "the scaled gradients were clipped: unscale_ comes before the clipping"
        )
        assert not close(1.0), "the gradients were not clipped"
        assert not stale, "gradients of an earlier step were still there"
        raise AssertionError("the step is not that of SGD on clipped gradients")

    def clipped(f):
        run(f, 0.3)

    def untouched(f):
        run(f, 3.0)

    def zeroed(f):
        run(f, 0.5, stale=True)

    def skipped(f):
        model, x, y = draw()
        before = flat(model)
        optimizer, scaler = tools(model)
        f(model, x, y * math.inf, optimizer, scaler, 1.0)
        assert torch.equal(flat(model), before), (
            "infinite gradients reached the weights: let the scaler take the step"
        )
        assert scaler.get_scale() == scale / 2, (
            "after infinite gradients the scale must be halved: call scaler.update()"
        )

    return verdict(answer, [clipped, untouched, zeroed, skipped])
