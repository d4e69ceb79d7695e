import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from verdicts import expect

from helpers import binary_losses
from helpers.demos import binary_losses as demos
from helpers.exercises import Verdict
from helpers.exercises import binary_losses as exercises

seeds = st.integers(0, 10**6)


def masks(seed: int, *shape: int, share: float = 0.5) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share).float()


# ---------------------------------------------------------------- soft IoU


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 4), st.integers(1, 3), st.integers(2, 9))
def test_soft_iou_loss_of_binary_masks_is_1_minus_iou(seed, n, c, size):
    a, b = masks(seed, n, c, size, size), masks(seed + 1, n, c, size, size)
    overlap = torch.tensor(
        [
            1.0 if not (x.any() or y.any()) else ((x * y).sum() / ((x + y) > 0).sum()).item()
            for x, y in zip(a.flatten(0, 1), b.flatten(0, 1), strict=True)
        ]
    )
    assert torch.allclose(binary_losses.soft_iou_loss(a, b), 1 - overlap.mean(), atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 4), st.integers(2, 9))
def test_soft_iou_loss_is_between_0_and_1_and_0_for_equal_masks(seed, n, size):
    generator = torch.Generator().manual_seed(seed)
    p, t = torch.rand(2, n, 1, size, size, generator=generator)
    assert 0 <= binary_losses.soft_iou_loss(p, t) <= 1
    assert binary_losses.soft_iou_loss(p, p).abs() < 1e-5


def test_soft_iou_loss_is_0_for_empty_masks_and_1_for_a_miss():
    empty, full = torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8)
    assert binary_losses.soft_iou_loss(empty, empty) == 0
    assert binary_losses.soft_iou_loss(empty, full) > 0.999
    assert binary_losses.soft_iou_loss(full, full) == 0


def test_soft_iou_loss_passes_gradcheck():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(2, 1, 3, 3, dtype=torch.double, generator=generator).requires_grad_()
    t = masks(1, 2, 1, 3, 3)
    assert torch.autograd.gradcheck(lambda p: binary_losses.soft_iou_loss(p, t), p)
    assert binary_losses.soft_iou_loss(p, t).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_soft_iou_loss_in_half_precision_does_not_overflow(dtype):
    p = torch.ones(1, 1, 300, 300, dtype=dtype, requires_grad=True)
    loss = binary_losses.soft_iou_loss(p, torch.ones(1, 1, 300, 300))
    loss.backward()
    assert loss == 0 and loss.dtype == torch.float32
    assert p.grad.isfinite().all() and p.grad.dtype == dtype


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.uint16, torch.int64, torch.float64]
)
def test_soft_iou_loss_accepts_any_target_dtype(dtype):
    p, t = torch.rand(2, 3, 5, 5), masks(0, 2, 3, 5, 5)
    assert torch.equal(
        binary_losses.soft_iou_loss(p, t.to(dtype)), binary_losses.soft_iou_loss(p, t)
    )


def test_spatial_dims_set_the_dimensions_of_a_mask():
    p, t = torch.rand(4, 8, 8), masks(3, 4, 8, 8)
    images = binary_losses.soft_iou_loss(p, t)
    assert torch.allclose(
        binary_losses.soft_iou_loss(p.flatten(1), t.flatten(1), spatial_dims=1), images
    )
    volumes = binary_losses.soft_iou_loss(p[None, None], t[None, None], spatial_dims=3)
    as_one = binary_losses.soft_iou_loss(p.flatten()[None], t.flatten()[None], spatial_dims=1)
    assert torch.allclose(volumes, as_one) and not torch.allclose(volumes, images)


@pytest.mark.parametrize(
    ("p", "t", "error", "words"),
    [
        (torch.randn(1, 1, 9, 9) * 9, torch.zeros(1, 1, 9, 9), ValueError, "sigmoid or softmax"),
        (torch.full((1, 2, 2), 1.5), torch.zeros(1, 2, 2), ValueError, "from 1.5 to 1.5"),
        (torch.full((1, 2, 2), -0.5), torch.zeros(1, 2, 2), ValueError, "from -0.5 to -0.5"),
        (torch.rand(1, 2, 2), torch.full((1, 2, 2), 255), ValueError, "target .* by 255"),
        (torch.rand(2, 4, 4), torch.zeros(2, 1, 4, 4), ValueError, r"\(2, 4, 4\) and \(2, 1, 4"),
        (torch.rand(4, 64), torch.zeros(4, 64), ValueError, "spatial_dims=1"),
        (torch.ones(1, 2, 2).long(), torch.zeros(1, 2, 2), TypeError, "floating point.*int64"),
        ([[1.0]], torch.zeros(1, 1), TypeError, "probability must be a tensor, got list"),
        (torch.zeros(1, 1, 1), None, TypeError, "target must be a tensor, got NoneType"),
        (torch.zeros(1, 1, 1) * 1j, torch.zeros(1, 1, 1), TypeError, "probability must be real"),
        (torch.zeros(1, 1, 1), torch.zeros(1, 1, 1) * 1j, TypeError, "target must be real"),
    ],
)
def test_soft_iou_loss_rejects_invalid_masks(p, t, error, words):
    with pytest.raises(error, match=words):
        binary_losses.soft_iou_loss(p, t)


def test_soft_iou_loss_of_a_confident_empty_image_depends_on_eps():
    empty, sure = torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), -6.0).sigmoid()
    assert binary_losses.soft_iou_loss(sure, empty) > 0.99
    assert binary_losses.soft_iou_loss(sure, empty, eps=1.0) < 0.001


def test_soft_iou_loss_of_an_empty_image_is_0_only_for_sigmoid_0():
    empty = torch.zeros(1, 1, 8, 8)
    assert torch.tensor(-60.0).sigmoid() > 0
    assert binary_losses.soft_iou_loss(torch.full_like(empty, -12.0).sigmoid(), empty) > 0.001
    assert binary_losses.soft_iou_loss(torch.full_like(empty, -120.0).sigmoid(), empty) == 0


@pytest.mark.parametrize("spatial_dims", [0, -1])
def test_spatial_dims_below_1_raises(spatial_dims):
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match=f"spatial_dims must be at least 1, got {spatial_dims}"):
        binary_losses.soft_iou_loss(x, x, spatial_dims=spatial_dims)


@pytest.mark.parametrize("spatial_dims", [1.5, "2", None, True])
def test_spatial_dims_must_be_an_integer(spatial_dims):
    x = torch.ones(2, 3)
    with pytest.raises(TypeError, match="spatial_dims must be an integer, got"):
        binary_losses.soft_iou_loss(x, x, spatial_dims=spatial_dims)


@pytest.mark.parametrize("eps", [0, -5, 1e-50, math.inf, math.nan, None, "a"])
def test_eps_must_be_positive(eps):
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="eps must be a positive number in float32, got"):
        binary_losses.soft_iou_loss(x, x, 1, eps=eps)


def test_nan_inputs_and_empty_batches_return_nan():
    x = torch.ones(2, 3)
    assert binary_losses.soft_iou_loss(x * math.nan, x, 1).isnan()
    assert binary_losses.soft_iou_loss(x, x * math.nan, 1).isnan()
    assert binary_losses.soft_iou_loss(x[:0], x[:0], 1).isnan()


def test_binary_cross_entropy_requires_float_targets():
    x = torch.rand(4)
    for dtype in (torch.int64, torch.bool):
        for loss in (F.binary_cross_entropy, F.binary_cross_entropy_with_logits):
            with pytest.raises(RuntimeError):
                loss(x, torch.ones(4).to(dtype))
    with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
        F.binary_cross_entropy(x, torch.ones(4).double())
    assert F.binary_cross_entropy_with_logits(x, torch.ones(4).double()).isfinite()


# ---------------------------------------------------------------- saturation


def test_bce_with_logits_keeps_the_gradient_that_bce_loses():
    logits = torch.linspace(-20, 100, 61)
    curves = demos.saturation(logits)
    exact, lost = curves["BCEWithLogitsLoss"], curves["sigmoid, BCELoss"]
    assert torch.allclose(exact["gradient"], logits.sigmoid())
    assert torch.allclose(exact["loss"], F.softplus(logits), atol=1e-5)
    moderate, large = logits.abs() < 10, logits > 17
    assert torch.allclose(lost["loss"][moderate], exact["loss"][moderate], atol=1e-3)
    assert torch.allclose(lost["gradient"][moderate], exact["gradient"][moderate], rtol=1e-4)
    assert (lost["loss"][large] == 100).all() and not lost["gradient"][large].any()


def test_saturation_keeps_its_input():
    logits = torch.zeros(2, requires_grad=True)
    demos.saturation(logits)
    assert logits.grad is None and logits.tolist() == [0, 0]


def test_draw_saturation_draws_both_losses_and_gradients():
    figure = demos.draw_saturation()
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["sigmoid, BCELoss", "BCEWithLogitsLoss"]
    assert left.lines[0].get_ydata()[-1] == 100 and right.lines[0].get_ydata()[-1] == 0
    assert right.lines[1].get_ydata()[-1] == 1


# ---------------------------------------------------------------- exercises


def dice_loss(p, t, eps=1e-6):
    p, t = p.float(), t.float()
    both = (p * t).sum((-2, -1))
    sizes = p.sum((-2, -1)) + t.sum((-2, -1))
    return (1 - (2 * both + eps) / (sizes + eps)).mean()


def masked_mean(loss, keep):
    return loss[keep].sum() / keep.sum().clamp(min=1)


def test_solutions_pass_with_any_random_inputs():
    for _ in range(20):
        for found, checks in [
            (exercises.check_dice(dice_loss), 4),
            (exercises.check_masked_mean(masked_mean), 5),
        ]:
            assert found == Verdict(True, f"correct: {checks} checks passed")


def dice_over(*dims):
    def f(p, t):
        p, t = p.float(), t.float()
        both, sizes = (p * t).sum(dims), (p + t).sum(dims)
        return (1 - (2 * both + 1e-6) / (sizes + 1e-6)).mean()

    return f


def starter_dice(p, t):
    return 1 - 2 * (p * t).sum() / (p.sum() + t.sum())


def squares(p, t):
    p, t = p.float(), t.float()
    both, sizes = (p * t).sum((-2, -1)), (p * p + t * t).sum((-2, -1))
    return (1 - (2 * both + 1e-6) / (sizes + 1e-6)).mean()


def without_eps(p, t):
    return dice_loss(p, t, eps=0.0)


def eps_below_only(p, t):
    p, t = p.float(), t.float()
    both, sizes = (p * t).sum((-2, -1)), (p + t).sum((-2, -1))
    return (1 - 2 * both / (sizes + 1e-6)).mean()


def present_only(p, t):
    present = t.flatten(2).any(2)
    return dice_loss(p[present][:, None], t[present][:, None])


def in_half(p, t):
    t = t.to(p.dtype)
    both = (p * t).sum((-2, -1))
    return (1 - (2 * both + 1e-6) / (p.sum((-2, -1)) + t.sum((-2, -1)) + 1e-6)).mean()


def without_mean(p, t):
    p, t = p.float(), t.float()
    return 1 - (2 * (p * t).sum((-2, -1)) + 1e-6) / ((p + t).sum((-2, -1)) + 1e-6)


def hard(p, t):
    return dice_loss((p > 0.5).float(), t) + 0 * p.sum()


def straight_through(p, t):
    value = dice_loss(p, t)
    return value.detach() + 0 * p.float().sum()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (starter_dice, "over the whole batch"),
        (dice_over(0, 1, 2, 3), "over the whole batch"),
        (dice_over(1, 2, 3), "classes of an image are added up"),
        (dice_over(0, 2, 3), "images of a batch are added up"),
        (lambda p, t: 1 - dice_loss(p, t), "the loss is 1 minus it"),
        (lambda p, t: -dice_loss(p, t), "wrong value for soft masks"),
        (lambda p, t: (1 + dice_loss(p, t)) / 2, "the factor 2"),
        (squares, "contains squares"),
        (lambda p, t: 1 - (1 - binary_losses.soft_iou_loss(p, t)), "wrong value for soft masks"),
        (
            lambda p, t: (
                1 - ((p * t).sum((2, 3)) / (p + t - p * t).sum((2, 3)).clamp(min=1e-6)).mean()
            ),
            "this is the IoU loss",
        ),
        (hard, "wrong value for soft masks"),
        (lambda p, t: dice_loss(p, t, eps=1.0), "wrong value for soft masks"),
        (lambda p, t: dice_loss(p, (t > 0.5).float()), "wrong value for soft masks"),
        (lambda p, t: dice_loss(p, t, eps=1e-5), "is eps 1e-6?"),
        (lambda p, t: dice_loss(p, t, eps=1e-8), "is eps 1e-6?"),
        (without_mean, "expected one number"),
        (lambda p, t: None, "expected a tensor, got None"),
        (without_eps, "0 / 0"),
        (eps_below_only, "two empty masks cost 1"),
        (lambda p, t: without_eps(p, t).nan_to_num(), "empty"),
        (present_only, "empty"),
        (in_half, "exceeds 65504"),
        (lambda p, t: dice_loss(p.detach(), t), "no graph"),
        (straight_through, "the gradient is not"),
    ],
)
def test_check_dice_rejects_wrong_answers(wrong, says):
    for _ in range(5):
        expect(exercises.check_dice(wrong), says)


def only_nan_removed(loss, keep):
    clean = torch.where(loss.isnan() & ~keep, 0.0, loss)
    return (clean * keep).sum() / keep.sum().clamp(min=1)


def constant_when_empty(loss, keep):
    return loss[keep].mean() if keep.any() else torch.tensor(0.0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda loss, keep: (loss * keep).sum() / keep.sum(), "0 / 0"),
        (lambda loss, keep: (loss * keep).mean(), "by the number of losses kept"),
        (lambda loss, keep: loss.mean(), "not the mean of the losses kept"),
        (lambda loss, keep: loss[keep].sum() / 3, "not the mean of the losses kept"),
        (lambda loss, keep: loss[keep].sum() / sum(keep).clamp(min=1), "with axes"),
        (lambda loss, keep: loss[keep.nonzero().squeeze(1)].sum() / keep.sum().clamp(min=1), "not"),
        (
            lambda loss, keep: (
                loss[keep].mean() if keep.any() else torch.tensor(0.0, requires_grad=True)
            ),
            "is not computed from the losses",
        ),
        (constant_when_empty, "no graph: backward() raises"),
        (lambda loss, keep: (loss * keep).sum() / keep.sum().clamp(min=1), "0 * nan is nan"),
        (lambda loss, keep: loss[keep].mean().nan_to_num(), "is hidden"),
        (lambda loss, keep: (loss[keep].sum() + 1e-3) / (keep.sum() + 1e-3), "not the mean"),
        (
            lambda loss, keep: loss[keep].mean() if keep.any() else loss.mean(),
            "the result is not 0",
        ),
        (
            lambda loss, keep: loss[keep].mean() if keep.any() else loss.sum() - loss.sum().item(),
            "the gradient is not 0",
        ),
        (
            lambda loss, keep: loss[keep].mean() if keep.any() else loss.sum() * 0,
            "nothing kept and nan",
        ),
        (lambda loss, keep: masked_mean(loss.detach(), keep) + 0 * loss.sum(), "gradient is not"),
        (only_nan_removed, "an inf among the losses"),
        (
            lambda loss, keep: (
                loss.where(keep, torch.nan).nanmean() if keep.any() else loss[keep].sum()
            ),
            "a nan among the losses kept is hidden",
        ),
        (
            lambda loss, keep: (
                loss[keep].sum() / torch.where(keep, loss, 0).count_nonzero().clamp(min=1)
            ),
            "not the mean of the losses kept",
        ),
        (
            lambda loss, keep: loss[keep].sum() / keep.sum().clamp(1, 9),
            "not the mean of the losses kept",
        ),
    ],
)
def test_check_masked_mean_rejects_wrong_answers(wrong, says):
    for _ in range(3):
        expect(exercises.check_masked_mean(wrong), says)


def with_where(loss, keep):
    return torch.where(keep, loss, 0.0).sum() / keep.sum().clamp(min=1)


def dice_in_double(p, t):
    return dice_loss(p.double(), t.double())


def dice_flat(p, t):
    p, t = p.float().flatten(2), t.flatten(2)
    return 1 - ((2 * (p * t).sum(2) + 1e-6) / (p.sum(2) + t.sum(2) + 1e-6)).mean()


def dice_by_loop(p, t):
    pairs = zip(p.float().flatten(0, 1), t.flatten(0, 1), strict=True)
    each = [1 - (2 * (a * b).sum() + 1e-6) / (a.sum() + b.sum() + 1e-6) for a, b in pairs]
    return torch.stack(each).mean()


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (exercises.check_dice, dice_in_double),
        (exercises.check_dice, dice_flat),
        (exercises.check_dice, dice_by_loop),
        (exercises.check_masked_mean, with_where),
    ],
)
def test_checks_accept_other_right_answers(check, right):
    for _ in range(5):
        assert check(right).passed


# ---------------------------------------------------------------- sentences of the chapter


def test_bce_with_logits_matches_the_stable_formula():
    x = torch.linspace(-300, 300, 601, dtype=torch.float64).requires_grad_()
    for t in (0.0, 0.3, 1.0):
        target = torch.full_like(x, t)
        loss = F.binary_cross_entropy_with_logits(x, target, reduction="none")
        assert torch.allclose(loss, x.clamp(min=0) - x * t + (-x.abs()).exp().log1p())
        (grad,) = torch.autograd.grad(loss.sum(), x)
        assert torch.allclose(grad, x.sigmoid() - t)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("weight", [0.5, 3.0, 99.0])
def test_pos_weight_multiplies_the_odds_of_the_best_constant(share, weight):
    w = torch.tensor(weight, dtype=torch.float64)
    p = torch.tensor(share, dtype=torch.float64)
    best = (w * p / (w * p + 1 - p)).logit().requires_grad_()
    y = torch.tensor([1.0, 0.0], dtype=torch.float64)
    each = F.binary_cross_entropy_with_logits(best.expand(2), y, pos_weight=w, reduction="none")
    loss = p * each[0] + (1 - p) * each[1]
    (grad,) = torch.autograd.grad(loss, best)
    assert grad.abs() < 1e-9
    assert torch.allclose((best - w.log()).sigmoid(), p)


def test_gradient_of_the_label_minus_1_is_at_least_1():
    z = torch.linspace(-30, 30, 61, requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(z, torch.full_like(z, -1.0), reduction="sum")
    (grad,) = torch.autograd.grad(loss, z)
    assert (grad >= 1).all() and (grad <= 2).all()
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        F.binary_cross_entropy(z.sigmoid(), torch.full_like(z, -1.0))


@given(st.integers(1, 8), seeds)
def test_two_logits_equal_one_logit_of_their_difference(n, seed):
    two = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 9
    y, one = torch.arange(n) % 2, two[:, 1] - two[:, 0]
    binary = F.binary_cross_entropy_with_logits(one, y.double())
    assert torch.allclose(F.cross_entropy(two, y), binary)
    assert torch.equal(two.argmax(1), (one > 0).long())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_soft_iou_loss_accepts_rounding_above_1(dtype):
    mask = torch.ones(1, 1, 2, 2, dtype=dtype)
    above = mask * (1 + torch.finfo(dtype).eps)
    assert binary_losses.soft_iou_loss(above, mask) < 0.02
    with pytest.raises(ValueError, match="apply sigmoid or softmax"):
        binary_losses.soft_iou_loss(mask * 1.5, mask)
