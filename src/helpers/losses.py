"""Helpers of the chapter "Choose and read a loss".

Source: "Loss functions" of `torch.nn`, https://pytorch.org/docs/stable/nn.html#loss-functions
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.figures import Explorer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def soft_iou_loss(
    probability: Tensor, target: Tensor, spatial_dims: int = 2, eps: float = 1e-6
) -> Tensor:
    """One minus the soft intersection over union of predicted and true masks, averaged.

    With p the prediction and t the target of one image and class, summed over its pixels,

        loss = 1 - (sum(p t) + eps) / (sum(p²) + sum(t²) - sum(p t) + eps).

    On masks of zeros and ones this is 1 - IoU; two empty masks give 0. It is differentiable in
    `probability`. The sums are taken in float32 at least, so half precision does not overflow.

    Args:
        probability: floating point in [0, 1], shape (N, *spatial) or (N, C, *spatial). Put a
            sigmoid or softmax before it: logits are refused.
        target: the same shape, any dtype, values in [0, 1]: a mask, or soft labels.
        spatial_dims: how many of the last dimensions make up one mask: 2 for images, 3 for
            volumes, 1 for flattened masks (N, pixels).
        eps: keeps the ratio defined where both masks are empty.

    Returns:
        A scalar in [0, 1], float64 for float64 input and float32 for all other.

    Raises:
        TypeError: `probability` is not floating point.
        ValueError: shapes differ, there is no dimension left for the batch, or a value lies
            outside [0, 1] (on a GPU this check waits for the device).

    Source: the Tanimoto loss of Diakogiannis et al. 2020, "ResUNet-a",
    https://arxiv.org/abs/1904.00592
    """
    if not probability.is_floating_point():
        raise TypeError(f"probability must be floating point, got {probability.dtype}")
    if probability.shape != target.shape:
        raise ValueError(
            "probability and target must have the same shape, got "
            f"{tuple(probability.shape)} and {tuple(target.shape)}"
        )
    if probability.ndim < spatial_dims + 1:
        raise ValueError(
            f"expected a batch dimension before {spatial_dims} spatial ones, got shape "
            f"{tuple(probability.shape)}; pass spatial_dims=1 for flattened masks (N, pixels)"
        )
    _in_unit_interval("probability", probability, "apply sigmoid or softmax to logits first")
    _in_unit_interval("target", target, "divide a mask of 0 and 255 by 255")
    dtype = torch.float64 if probability.dtype == torch.float64 else torch.float32
    p, t = probability.to(dtype), target.to(dtype)
    dims = tuple(range(-spatial_dims, 0))
    both = (p * t).sum(dims)
    either = (p * p + t * t - p * t).sum(dims)
    return (1 - (both + eps) / (either + eps)).mean()


def _in_unit_interval(name: str, tensor: Tensor, advice: str) -> None:
    if tensor.numel() and (tensor.min() < 0 or tensor.max() > 1):
        raise ValueError(
            f"{name} must lie between 0 and 1, got values from {tensor.min().item():.3g} "
            f"to {tensor.max().item():.3g}; {advice}"
        )


def target_distribution(loss: Callable[[Tensor], Tensor], classes: int) -> Tensor:
    """The distribution over classes that a cross-entropy asks for, read from its gradient.

    The gradient of a cross-entropy in the logits is softmax(logits) - target, so the target is
    softmax(logits) - gradient.

    Args:
        loss: maps logits of shape (1, classes) to a scalar, for example
            `lambda z: F.cross_entropy(z, torch.tensor([0]), label_smoothing=0.1)`.
        classes: the number of classes.

    Returns:
        float32 of shape (classes,).
    """
    logits = torch.zeros(1, classes, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(logits), logits)
    return (logits.softmax(1) - gradient)[0].detach()


def saturation(logits: Tensor) -> dict[str, dict[str, Tensor]]:
    """Loss and gradient of both binary cross-entropies for a sample with the label 0.

    Args:
        logits: shape (n,), one sample each.

    Returns:
        Under `"sigmoid, BCELoss"` and `"BCEWithLogitsLoss"` the tensors `loss` and `gradient`
        (in the logit), each of shape (n,).
    """
    forms = {
        "sigmoid, BCELoss": lambda z, t: F.binary_cross_entropy(z.sigmoid(), t, reduction="none"),
        "BCEWithLogitsLoss": lambda z, t: F.binary_cross_entropy_with_logits(
            z, t, reduction="none"
        ),
    }
    curves = {}
    for name, form in forms.items():
        z = logits.detach().clone().requires_grad_()
        loss = form(z, torch.zeros_like(z))
        (gradient,) = torch.autograd.grad(loss.sum(), z)
        curves[name] = {"loss": loss.detach(), "gradient": gradient}
    return curves


def draw_saturation(last: float = 30.0) -> Figure:
    """Draw `saturation` for logits from 0 to `last`: the losses left, the gradients right."""
    import matplotlib.pyplot as plt

    logits = torch.linspace(0, last, 301)
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.8))
    styles = {"sigmoid, BCELoss": ("#c2410c", "-"), "BCEWithLogitsLoss": ("#0a6b7d", "--")}
    for name, curve in saturation(logits).items():
        color, line = styles[name]
        for axis, what in zip(axes, ("loss", "gradient"), strict=True):
            axis.plot(logits, curve[what], line, color=color, label=name, linewidth=2)
            axis.set(title=what, xlabel="logit of a sample with label 0")
    axes[0].legend(frameon=False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


# ---------------------------------------------------------------- explorer

BATCH = torch.tensor([[2.0, 0.5, 0.0], [0.0, 1.0, 1.5], [1.0, 0.0, 0.5], [0.0, 0.5, 3.0]])
LABELS = torch.tensor([0, 1, 2, 2])
WEIGHTS = torch.tensor([1.0, 2.0, 5.0])


def read_mean(weighted: bool, kept: list[bool]) -> dict[str, object]:
    """What `F.cross_entropy` makes of the explorer's batch of four samples.

    Args:
        weighted: whether to pass the class weights 1, 2 and 5.
        kept: for each sample whether it counts; the label of the others is the ignored -100.

    Returns:
        Numbers as text with three decimals (or `"nan"`): `each` (a list, reduction "none"),
        `sum` and `mean` (those reductions), `plain` (the mean of the vector `each`), and
        `divisor`, the sum of the class weights of the samples kept.
    """
    weight = WEIGHTS if weighted else torch.ones(3)
    keep = torch.tensor(kept)
    labels = LABELS.where(keep, -100)
    each, total, mean = (
        F.cross_entropy(BATCH, labels, weight=weight, reduction=r) for r in ("none", "sum", "mean")
    )
    return {
        "each": [f"{loss:.3f}" for loss in each.abs().tolist()],
        "sum": f"{total:.3f}",
        "divisor": f"{weight[LABELS[keep]].sum():g}",
        "mean": f"{mean:.3f}",
        "plain": f"{each.mean():.3f}",
    }


def mean_explorer(lang: str | None = None) -> Explorer:
    """Switch class weights on, ignore samples, and see what 'mean' divides by."""
    subsets = [[bool(n >> i & 1) for i in range(4)] for n in range(16)]
    data = {
        "labels": LABELS.tolist(),
        "weights": [int(w) for w in WEIGHTS],
        "rows": [[read_mean(weighted, kept) for kept in subsets] for weighted in (False, True)],
    }
    return Explorer(
        "mean-explorer",
        data,
        "Four samples whose losses cross-entropy adds up, and the number that 'mean' divides by.",
        lang,
    )


# ---------------------------------------------------------------- exercises


def _scalar(value: object) -> Tensor:
    assert isinstance(value, Tensor), f"expected a tensor, got {type(value).__name__}"
    assert value.shape == (), "expected one number, a tensor of shape (), got a tensor with axes"
    return value


def check_cross_entropy(answer: Callable[[Tensor, Tensor, Tensor, int], Tensor]) -> Verdict:
    """Check `answer(logits, target, weight, ignore_index)`: `F.cross_entropy` with 'mean'.

    `logits` is float32 of shape (N, C), `target` int64 of shape (N,) with labels below C or
    `ignore_index`, `weight` float32 of shape (C,). At least one sample is not ignored.
    """

    def batch() -> tuple[Tensor, Tensor, Tensor]:
        c = int(torch.randint(3, 7, ()))
        y = torch.cat([torch.arange(c), torch.randint(0, c, (3,))])
        return torch.randn(len(y), c) * 3, y[torch.randperm(len(y))], torch.rand(c) * 4 + 0.5

    def same(got: object, want: Tensor) -> bool:
        return torch.allclose(_scalar(got), want, rtol=1e-4, atol=1e-5)

    def plain(f):
        x, y, w = batch()
        assert same(f(x, y, torch.ones_like(w), -100), F.cross_entropy(x, y)), (
            "with equal weights and nothing ignored it is not the mean of -log softmax"
        )

    def weights(f):
        for _ in range(3):
            x, y, w = batch()
            got = f(x, y, w, -100)
            if same(got, F.cross_entropy(x, y, weight=w)):
                continue
            each = F.cross_entropy(x, y, weight=w, reduction="none")
            assert not same(got, F.cross_entropy(x, y)), "the class weights change nothing"
            assert not same(got, each.mean()), (
                "with class weights 'mean' divides by the sum of the weights, not by N"
            )
            raise AssertionError("wrong value with class weights")

    def ignored(f):
        for marker in (-100, 255, 0):
            x, y, w = batch()
            y[:2] = marker
            got = f(x, y, w, marker)
            if same(got, F.cross_entropy(x, y, weight=w, ignore_index=marker)):
                continue
            total = F.cross_entropy(x, y, weight=w, ignore_index=marker, reduction="sum")
            full = w[y % len(w)].sum()
            assert not same(got, total / full) and not same(got, total / len(y)), (
                "ignored samples add no loss, but they still count in the divisor"
            )
            raise AssertionError("wrong value with ignored labels")

    def stable(f):
        x, y, w = batch()
        got = _scalar(f(x * 1000, y, w, -100))
        assert got.isfinite(), "large logits give inf or nan: take log_softmax, not log(softmax)"

    def gradient(f):
        x, y, w = batch()
        x.requires_grad_()
        got = f(x, y, w, -100)
        assert got.requires_grad, "the result has no graph, so nothing can learn from it"
        (mine,) = torch.autograd.grad(got, x)
        (theirs,) = torch.autograd.grad(F.cross_entropy(x, y, weight=w), x)
        assert torch.allclose(mine, theirs, atol=1e-5), "the value is right, the gradient is not"

    return verdict(answer, [plain, weights, ignored, stable, gradient])


def check_smoothing(answer: Callable[[Tensor, Tensor, float], Tensor]) -> Verdict:
    """Check `answer(logits, target, eps)`: cross-entropy smoothed as in the notes.

    The true class gets 1 - eps, each of the C - 1 others eps / (C - 1). `logits` is float32 of
    shape (N, C), `target` int64 of shape (N,), and eps is at most 0.4.
    """

    def compare(f, c: int, eps: float) -> None:
        lead = torch.zeros(())
        while lead.abs() < 0.3:  # else the loss hardly depends on how the labels are smoothed
            x, y = torch.randn(5, c) * 2, torch.randint(0, c, (5,))
            true = F.one_hot(y, c)
            lead = (x * true - x * (1 - true) / (c - 1)).sum(1).mean()
        soft = true * (1 - eps) + (1 - true) * eps / (c - 1)
        got = _scalar(f(x, y, eps))
        if torch.allclose(got, F.cross_entropy(x, soft), rtol=1e-4, atol=1e-5):
            return
        assert not torch.allclose(got, F.cross_entropy(x, y)), "the labels are not smoothed"
        assert not torch.allclose(got, F.cross_entropy(x, y, label_smoothing=eps)), (
            "this is torch's recipe: it gives a share of eps to the true class as well"
        )
        raise AssertionError(
            f"the loss is not that of the smoothed target for {c} classes and eps = {eps}"
        )

    def tenth(f):
        compare(f, 5, 0.1)

    def other(f):
        for c in (2, 3, 10):
            for eps in (0.05, 0.2, 0.4):
                compare(f, c, eps)

    def none(f):
        compare(f, 4, 0.0)

    return verdict(answer, [tenth, other, none])


def check_masked_mean(answer: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(loss, keep)`: the mean of the losses kept, and 0 where none is.

    `loss` is float32 and `keep` bool, both of shape (n,). The result always has a graph, so that
    `backward` works; losses that are not kept may be anything, nan included.
    """

    def draw() -> tuple[Tensor, Tensor]:
        keep = torch.tensor([True, False, True, False, False, True])
        return torch.rand(6, requires_grad=True), keep[torch.randperm(6)]

    def value(f):
        loss, keep = draw()
        got = _scalar(f(loss, keep))
        if torch.allclose(got, loss[keep].mean()):
            return
        assert not torch.allclose(got, (loss * keep).mean()), (
            "divide by the number of losses kept, not by all of them"
        )
        raise AssertionError("not the mean of the losses kept")

    def nothing(f):
        loss, _ = draw()
        got = _scalar(f(loss, torch.zeros(6, dtype=torch.bool)))
        assert not got.isnan(), "with nothing kept the result is nan: 0 / 0"
        assert got == 0, "with nothing kept the result is not 0"
        assert got.requires_grad, "with nothing kept the result has no graph: backward() raises"
        (gradient,) = torch.autograd.grad(got, loss)
        assert not gradient.any(), "with nothing kept the gradient is not 0"

    def garbage(f):
        loss, keep = draw()
        spoiled = torch.where(keep, loss, torch.nan)
        got = _scalar(f(spoiled, keep))
        assert torch.allclose(got, loss[keep].mean()), (
            "a nan among the losses that are not kept spoils the mean: 0 * nan is nan"
        )

    def honest(f):
        loss, keep = draw()
        got = _scalar(f(torch.where(keep, torch.nan, loss), keep))
        assert got.isnan(), "a nan among the losses kept is hidden: the reader must see it"

    return verdict(answer, [value, nothing, garbage, honest])
