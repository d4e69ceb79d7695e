"""Checkers of the exercises of the chapter on binary and segmentation losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from helpers.exercises import Verdict, verdict
from helpers.exercises.losses import nan_remains, one_number, same_gradient
from helpers.exercises.tools import between, in_dtypes, leaves


def _dice(p: Tensor, t: Tensor, dims: tuple[int, ...] = (-2, -1), power: int = 1) -> Tensor:
    """Return the Dice coefficient over `dims`."""
    sizes = (p**power).sum(dims) + (t**power).sum(dims)
    return (2 * (p * t).sum(dims) + 1e-6) / (sizes + 1e-6)


def _dice_masks() -> tuple[Tensor, Tensor]:
    """Return predictions, and masks of very different sizes, each with an object."""
    n, c = between(2, 3), between(2, 3)
    h, w = between(5, 8), between(9, 12)
    target = (torch.rand(n, c, h, w) < torch.rand(n, c, 1, 1)).float()
    target[0, 0], target[-1, -1] = 1, 0
    target[:, :, 0, 0] = 1
    return (torch.rand(n, c, h, w) * 0.8 + 0.2 * target), target


def _dice_same(got: Tensor, want: Tensor) -> bool:
    return torch.allclose(got, want, rtol=1e-4, atol=1e-5)


def _dice_value(f):
    for soft in (False, False, True):
        p, t = _dice_masks()
        t = t * (torch.rand_like(t) if soft else 1)
        got = one_number(f(p, t))
        want = 1 - _dice(p, t).mean()
        if _dice_same(got, want):
            continue
        both, either = (p * t).sum((-2, -1)), (p + t - p * t).sum((-2, -1))
        mistakes = (
            (1 - want, "this is the Dice coefficient: the loss is 1 minus it"),
            (
                1 - _dice(p, t, (0, 1, 2, 3)),
                "the sums run over the whole batch: sum over the pixels of each mask",
            ),
            (
                1 - _dice(p, t, (1, 2, 3)).mean(),
                "the classes of an image are added up as if they were one mask",
            ),
            (
                1 - _dice(p, t, (0, 2, 3)).mean(),
                "the images of a batch are added up as if they were one mask",
            ),
            (1 - (both / either).mean(), "this is the IoU loss: the divisor is another one"),
            (
                1 - _dice(p, t, power=2).mean(),
                "the divisor contains squares: add up the values themselves",
            ),
            (1 - _dice(p, t).mean() / 2, "the factor 2 of the numerator is missing"),
        )
        nearest, words = min(mistakes, key=lambda mistake: (got - mistake[0]).abs().item())
        assert not _dice_same(got, nearest), words
        raise AssertionError("wrong value for soft masks")


def _dice_empty(f):
    p, t = _dice_masks()
    p[0, 0] = t[0, 0] = 0
    got = one_number(f(p, t))
    assert not got.isnan(), "with an empty mask the result is nan: 0 / 0"
    if not _dice_same(got, 1 - _dice(p, t).mean()):
        missing = (1 - _dice(p, t).mean()) + 1 / t[:, :, 0, 0].numel()
        assert not _dice_same(got, missing), (
            "two empty masks cost 1: add eps to the numerator as well"
        )
        raise AssertionError("wrong value if prediction and target of one mask are empty")
    p, t = _dice_masks()
    t[0, 0] = 0  # the prediction is not empty
    assert _dice_same(one_number(f(p, t)), 1 - _dice(p, t).mean()), (
        "wrong value if the mask is empty and the prediction is not"
    )
    p, t = _dice_masks()
    t[0, 0], p[0, 0] = 0, 2e-8  # their sum is as small as eps
    assert _dice_same(one_number(f(p, t)), 1 - _dice(p, t).mean()), (
        "wrong value if the mask is empty and the prediction nearly: is eps 1e-6?"
    )


def _dice_half(f):
    p = torch.ones(1, 1, 300, 300, dtype=torch.half)
    t = torch.ones(1, 1, 300, 300)
    t[..., :100, :] = 0
    got = one_number(f(p, t))
    assert _dice_same(got, 1 - _dice(p.float(), t).mean()), (
        "float16 probabilities give another loss: their sum exceeds 65504, convert to float32 first"
    )


def _dice_gradient(f):
    p, t = _dice_masks()
    p.requires_grad_()
    same_gradient(f(p, t), 1 - _dice(p, t).mean(), p)
    nan_remains(f, p, t)


def check_dice(answer: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(p, t)`: the Dice loss of each image and class, averaged.

    `p` is float32 or float16 and `t` float32, both of shape (N, C, H, W) with values in [0, 1].
    A mask may be empty, in the prediction as well.
    """
    return verdict(leaves(answer, "p", "t"), [_dice_value, _dice_empty, _dice_half, _dice_gradient])


def _masked_mean_draw() -> tuple[Tensor, Tensor]:
    size = between(6, 9)
    keep = torch.arange(size) < between(2, 4)
    return torch.rand(size, requires_grad=True), keep[torch.randperm(size)]


def _masked_mean_value(f):
    for _ in range(6):
        _masked_mean_compare(f, *_masked_mean_draw())
    for count in (1, 20, 40):
        loss, keep = torch.rand(40), torch.arange(40) < count
        loss[0], loss[5:9] = 0, 0  # a loss of 0 counts
        _masked_mean_compare(f, loss.requires_grad_(), keep)
    _masked_mean_compare(f, torch.rand(1, requires_grad=True), torch.ones(1, dtype=torch.bool))
    keep = (torch.randperm(12) < 5).view(3, 4)
    _masked_mean_compare(f, torch.rand(3, 4, requires_grad=True), keep)  # a loss per pixel or word


def _masked_mean_compare(f, loss: Tensor, keep: Tensor):
    got = one_number(f(loss, keep))
    if torch.allclose(got, loss[keep].mean()):
        same_gradient(got, loss[keep].mean(), loss)
        return
    assert not torch.allclose(got, (loss * keep).mean()), (
        "divide by the number of losses kept, not by all of them"
    )
    raise AssertionError("not the mean of the losses kept")


def _masked_mean_nothing(f):
    loss, _ = _masked_mean_draw()
    got = one_number(f(loss, torch.zeros(len(loss), dtype=torch.bool)))
    assert not got.isnan(), "with nothing kept the result is nan: 0 / 0"
    assert got == 0, "with nothing kept the result is not 0"
    assert got.requires_grad, "with nothing kept the result has no graph: backward() raises"
    (gradient,) = torch.autograd.grad(got, loss, allow_unused=True)
    assert gradient is not None, "with nothing kept the result is not computed from the losses"
    assert not gradient.any(), "with nothing kept the gradient is not 0"


def _masked_mean_left_out(f):
    loss, keep = _masked_mean_draw()
    for junk, name in ((torch.nan, "a nan"), (torch.inf, "an inf")):
        got = one_number(f(torch.where(keep, loss, junk), keep))
        assert torch.allclose(got, loss[keep].mean()), (
            f"{name} among the losses that are not kept changes the mean: 0 * nan is nan"
        )
    got = one_number(f(loss * torch.nan, torch.zeros(len(loss), dtype=torch.bool)))
    assert got == 0, "with nothing kept and nan among the losses the result is not 0"


def _masked_mean_kept(f):
    loss, keep = _masked_mean_draw()
    one = torch.arange(len(loss)) == keep.nonzero()[0]  # the others that are kept are finite
    got = one_number(f(torch.where(one, torch.nan, loss), keep))
    assert got.isnan(), "a nan among the losses kept is hidden: it must remain in the result"
    for inf in (torch.inf, -torch.inf):
        got = one_number(f(torch.where(one, inf, loss), keep))
        assert got == inf, "an inf among the losses kept is hidden: it must remain in the result"


def _masked_mean_dtypes(f):
    in_dtypes(f, lambda loss, keep: loss[keep].mean(), *_masked_mean_draw(), wider=True)


def check_masked_mean(answer: Callable[[Tensor, Tensor], Tensor]) -> Verdict:
    """Check `answer(loss, keep)`: the mean of the losses kept, and 0 where none is.

    `loss` is floating point and `keep` bool, of the same shape. The result always has a graph, so
    that `backward` works; losses that are not kept may be anything, nan and inf included. The
    number of losses and of those that are kept varies.
    """

    return verdict(
        leaves(answer, "loss", "keep"),
        [
            _masked_mean_value,
            _masked_mean_nothing,
            _masked_mean_left_out,
            _masked_mean_kept,
            _masked_mean_dtypes,
        ],
    )
