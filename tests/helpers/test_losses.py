import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers import losses
from helpers.demos import losses as demos
from helpers.exercises import Verdict
from helpers.exercises import losses as exercises

seeds = st.integers(0, 10**6)


def masks(seed: int, *shape: int, share: float = 0.5) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share).float()


# ---------------------------------------------------------------- soft IoU


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 4), st.integers(1, 3), st.integers(2, 9))
def test_on_binary_masks_it_is_one_minus_iou(seed, n, c, size):
    a, b = masks(seed, n, c, size, size), masks(seed + 1, n, c, size, size)
    overlap = torch.tensor(
        [
            1.0 if not (x.any() or y.any()) else ((x * y).sum() / ((x + y) > 0).sum()).item()
            for x, y in zip(a.flatten(0, 1), b.flatten(0, 1), strict=True)
        ]
    )
    assert torch.allclose(losses.soft_iou_loss(a, b), 1 - overlap.mean(), atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 4), st.integers(2, 9))
def test_it_lies_between_0_and_1_and_is_0_for_equal_soft_masks(seed, n, size):
    generator = torch.Generator().manual_seed(seed)
    p, t = torch.rand(2, n, 1, size, size, generator=generator)
    assert 0 <= losses.soft_iou_loss(p, t) <= 1
    assert losses.soft_iou_loss(p, p).abs() < 1e-5


def test_empty_masks_cost_nothing_and_a_miss_costs_1():
    empty, full = torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8)
    assert losses.soft_iou_loss(empty, empty) == 0
    assert losses.soft_iou_loss(empty, full) > 0.999
    assert losses.soft_iou_loss(full, full) == 0


def test_gradcheck():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(2, 1, 3, 3, dtype=torch.double, generator=generator).requires_grad_()
    t = masks(1, 2, 1, 3, 3)
    assert torch.autograd.gradcheck(lambda p: losses.soft_iou_loss(p, t), p)
    assert losses.soft_iou_loss(p, t).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype):
    p = torch.ones(1, 1, 300, 300, dtype=dtype, requires_grad=True)
    loss = losses.soft_iou_loss(p, torch.ones(1, 1, 300, 300))
    loss.backward()
    assert loss == 0 and loss.dtype == torch.float32
    assert p.grad.isfinite().all() and p.grad.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64])
def test_the_target_may_have_any_dtype(dtype):
    p, t = torch.rand(2, 3, 5, 5), masks(0, 2, 3, 5, 5)
    assert torch.equal(losses.soft_iou_loss(p, t.to(dtype)), losses.soft_iou_loss(p, t))


def test_spatial_dims_say_what_a_mask_is():
    p, t = torch.rand(4, 8, 8), masks(3, 4, 8, 8)
    images = losses.soft_iou_loss(p, t)
    assert torch.allclose(losses.soft_iou_loss(p.flatten(1), t.flatten(1), spatial_dims=1), images)
    volumes = losses.soft_iou_loss(p[None, None], t[None, None], spatial_dims=3)
    as_one = losses.soft_iou_loss(p.flatten()[None], t.flatten()[None], spatial_dims=1)
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
    ],
)
def test_bad_masks_are_refused(p, t, error, words):
    with pytest.raises(error, match=words):
        losses.soft_iou_loss(p, t)


def test_a_sure_empty_image_costs_1_and_less_with_the_eps_of_a_pixel():
    empty, sure = torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), -6.0).sigmoid()
    assert losses.soft_iou_loss(sure, empty) > 0.99
    assert losses.soft_iou_loss(sure, empty, eps=1.0) < 0.001


# ---------------------------------------------------------------- what a loss asks for


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.floats(0, 0.9), seeds)
def test_the_target_is_read_from_the_gradient(classes, eps, seed):
    label = torch.tensor([seed % classes])
    found = losses.target_distribution(
        lambda z: F.cross_entropy(z, label, label_smoothing=eps), classes
    )
    expected = F.one_hot(label, classes)[0] * (1 - eps) + eps / classes
    assert torch.allclose(found, expected, atol=1e-6) and found.shape == (classes,)
    soft = torch.softmax(torch.randn(1, classes), 1)
    read = losses.target_distribution(lambda z: F.cross_entropy(z, soft), classes)
    assert torch.allclose(read, soft[0], atol=1e-6) and not read.requires_grad
    with torch.no_grad():
        again = losses.target_distribution(lambda z: F.cross_entropy(z, soft), classes)
    assert torch.equal(again, read)


# ---------------------------------------------------------------- saturation


def test_the_gradient_with_logits_is_the_sigmoid_and_the_other_is_lost():
    logits = torch.linspace(-20, 100, 61)
    curves = demos.saturation(logits)
    exact, lost = curves["BCEWithLogitsLoss"], curves["sigmoid, BCELoss"]
    assert torch.allclose(exact["gradient"], logits.sigmoid())
    assert torch.allclose(exact["loss"], F.softplus(logits), atol=1e-5)
    moderate, large = logits.abs() < 10, logits > 17
    assert torch.allclose(lost["loss"][moderate], exact["loss"][moderate], atol=1e-3)
    assert torch.allclose(lost["gradient"][moderate], exact["gradient"][moderate], rtol=1e-4)
    assert (lost["loss"][large] == 100).all() and not lost["gradient"][large].any()


def test_saturation_leaves_its_input_alone():
    logits = torch.zeros(2, requires_grad=True)
    demos.saturation(logits)
    assert logits.grad is None and logits.tolist() == [0, 0]


def test_the_figure_shows_both_losses_and_gradients():
    figure = demos.draw_saturation()
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["sigmoid, BCELoss", "BCEWithLogitsLoss"]
    assert left.lines[0].get_ydata()[-1] == 100 and right.lines[0].get_ydata()[-1] == 0
    assert right.lines[1].get_ydata()[-1] == 1


# ---------------------------------------------------------------- exercises


def cross_entropy(logits, target, weight, ignore_index):
    keep = target != ignore_index
    rows, labels = logits[keep].log_softmax(1), target[keep]
    each = -rows.gather(1, labels[:, None]).squeeze(1)
    w = weight[labels]
    return (w * each).sum() / w.sum()


def starter_cross_entropy(logits, target, weight, ignore_index):
    each = F.nll_loss(logits.log_softmax(1), target, reduction="none")
    return (weight[target] * each).mean()


def smoothed(logits, target, eps):
    c = logits.shape[1]
    return F.cross_entropy(logits, target, label_smoothing=eps * c / (c - 1))


def masked_mean(loss, keep):
    return loss[keep].sum() / keep.sum().clamp(min=1)


def test_the_solutions_pass_whatever_is_drawn():
    for _ in range(20):
        for found, checks in [
            (exercises.check_cross_entropy(cross_entropy), 5),
            (exercises.check_smoothing(smoothed), 4),
            (exercises.check_masked_mean(masked_mean), 4),
        ]:
            assert found == Verdict(True, f"correct: {checks} checks passed")


def with_softmax(logits, target, weight, ignore_index):
    keep = target != ignore_index
    p, w = logits[keep].softmax(1), weight[target[keep]]
    return -(w * p.gather(1, target[keep][:, None])[:, 0].log()).sum() / w.sum()


def unweighted(logits, target, weight, ignore_index):
    return F.cross_entropy(logits, target, ignore_index=ignore_index)


def over_all_samples(logits, target, weight, ignore_index):
    total = F.cross_entropy(
        logits, target, weight=weight, ignore_index=ignore_index, reduction="sum"
    )
    return total / weight[target % len(weight)].sum()


def half_weighted(logits, target, weight, ignore_index):
    return cross_entropy(logits, target, weight.sqrt(), ignore_index)


def clamped_divisor(logits, target, weight, ignore_index):
    total = F.cross_entropy(
        logits, target, weight=weight, ignore_index=ignore_index, reduction="sum"
    )
    return total / weight[target[target != ignore_index]].sum().clamp(min=1)


def forgets_ignored(logits, target, weight, ignore_index):
    return F.cross_entropy(logits, target, weight=weight)


def detached(logits, target, weight, ignore_index):
    return cross_entropy(logits.detach(), target, weight, ignore_index)


def half_detached(logits, target, weight, ignore_index):
    value = cross_entropy(logits, target, weight, ignore_index)
    return (value / 2) + (value / 2).detach()


def vector(logits, target, weight, ignore_index):
    return F.cross_entropy(
        logits, target, weight=weight, ignore_index=ignore_index, reduction="none"
    )


def double_softmax(logits, target, weight, ignore_index):
    return cross_entropy(logits.softmax(1), target, weight, ignore_index)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (starter_cross_entropy, "sum of the weights, not by N"),
        (lambda *_: None, "expected a tensor, got None"),
        (vector, "expected one number"),
        (double_softmax, "not the mean of -log softmax"),
        (unweighted, "the class weights change nothing"),
        (half_weighted, "wrong value with class weights"),
        (clamped_divisor, "wrong value with class weights"),
        (over_all_samples, "they still count in the divisor"),
        (forgets_ignored, "Target 255 is out of bounds"),
        (with_softmax, "take log_softmax"),
        (detached, "no graph"),
        (half_detached, "the gradient is not"),
    ],
)
def test_wrong_cross_entropies_are_named(wrong, words):
    for _ in range(3):
        found = exercises.check_cross_entropy(wrong)
        assert not found.passed and words in found.message, found


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x, y, e: F.cross_entropy(x, y, label_smoothing=e), "this is torch's recipe"),
        (lambda x, y, e: F.cross_entropy(x, y), "the labels are not smoothed"),
        (lambda x, y, e: F.cross_entropy(x, y, label_smoothing=e * 1.25), "for 2 classes"),
        (lambda x, y, e: smoothed(x, y, 0.1), "for 2 classes and eps = 0.05"),
        (
            lambda x, y, e: F.cross_entropy(
                x, y, label_smoothing=e * (x.shape[1] - 1) / x.shape[1]
            ),
            "not that of the smoothed target for 5 classes",
        ),
        (lambda x, y, e: smoothed(x, y, e) * (e > 0), "for 4 classes and eps = 0.0"),
        (lambda x, y, e: ..., "expected a tensor, got ellipsis"),
        (lambda x, y, e: smoothed(x.detach(), y, e), "no graph"),
        (lambda x, y, e: smoothed(x.detach(), y, e) + 0 * x.sum(), "the gradient is not"),
    ],
)
def test_wrong_smoothings_are_named(wrong, words):
    for _ in range(3):
        found = exercises.check_smoothing(wrong)
        assert not found.passed and words in found.message, found


def only_nan_removed(loss, keep):
    clean = torch.where(loss.isnan() & ~keep, 0.0, loss)
    return (clean * keep).sum() / keep.sum().clamp(min=1)


def constant_when_empty(loss, keep):
    return loss[keep].mean() if keep.any() else torch.tensor(0.0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda loss, keep: (loss * keep).sum() / keep.sum(), "0 / 0"),
        (lambda loss, keep: (loss * keep).mean(), "by the number of losses kept"),
        (lambda loss, keep: loss.mean(), "not the mean of the losses kept"),
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
    ],
)
def test_wrong_masked_means_are_named(wrong, words):
    for _ in range(3):
        found = exercises.check_masked_mean(wrong)
        assert not found.passed and words in found.message, found


def built_in(logits, target, weight, ignore_index):
    return F.cross_entropy(logits, target, weight, ignore_index=ignore_index)


def in_double(logits, target, weight, ignore_index):
    return cross_entropy(logits.double(), target, weight.double(), ignore_index)


def with_where(loss, keep):
    return torch.where(keep, loss, 0.0).sum() / keep.sum().clamp(min=1)


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (exercises.check_cross_entropy, built_in),
        (exercises.check_cross_entropy, in_double),
        (exercises.check_smoothing, lambda x, y, eps: smoothed(x.double(), y, eps)),
        (exercises.check_masked_mean, with_where),
    ],
)
def test_another_right_way_passes(check, right):
    for _ in range(5):
        assert check(right).passed


# ---------------------------------------------------------------- sentences of the chapter


@settings(deadline=None, max_examples=50)
@given(seeds, st.integers(1, 6), st.integers(0, 2), st.floats(0.01, 100))
def test_the_weight_of_the_only_class_cancels_in_a_mean_and_nowhere_else(seed, n, c, w):
    logits = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    y = torch.full((n,), c)
    y[1:2] = -100  # does not count
    weight = torch.rand(3, dtype=torch.float64) + 0.5
    weight[c] = w
    plain = F.cross_entropy(logits, y)
    assert torch.allclose(F.cross_entropy(logits, y, weight), plain)
    summed = F.cross_entropy(logits, y, weight, reduction="sum")
    assert torch.allclose(summed, w * F.cross_entropy(logits, y, reduction="sum"))
    weight[c] = 0
    assert F.cross_entropy(logits, y, weight).isnan()


def test_smoothing_or_a_second_class_brings_the_weights_back():
    logits, weight = torch.tensor([[1.0, 2.0, 3.0]] * 2), torch.tensor([1.0, 5.0, 2.0])
    one, two = torch.tensor([0, 0]), torch.tensor([0, 1])
    for y, smoothing in ((one, 0.1), (two, 0.0)):
        options = {"label_smoothing": smoothing}
        with_weight = F.cross_entropy(logits, y, weight, **options)
        assert not torch.allclose(with_weight, F.cross_entropy(logits, y, **options))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_log_softmax_survives_logits_that_lie_far_apart(dtype):
    z = torch.tensor([[0.0, 2000.0]], dtype=dtype, requires_grad=True)
    loss = F.nll_loss(z.log_softmax(1), torch.tensor([0]))
    (grad,) = torch.autograd.grad(loss, z)
    assert loss == 2000 and grad.tolist() == [[-1.0, 1.0]]
    assert z.softmax(1).log().isinf().any()
    for bad in (float("inf"), float("nan")):
        assert torch.tensor([0.0, bad]).log_softmax(0).isnan().all()
    assert torch.tensor([0.0, -float("inf")]).log_softmax(0).tolist() == [0, -float("inf")]


def test_the_shape_of_reduction_none():
    for extra in ((), (4,), (4, 5)):
        logits, y = torch.randn(2, 3, *extra), torch.zeros(2, *extra, dtype=torch.long)
        assert F.cross_entropy(logits, y, reduction="none").shape == y.shape
        soft = logits.softmax(1)  # the class dimension goes
        assert F.cross_entropy(logits, soft, reduction="none").shape == y.shape != soft.shape


def test_with_logits_has_the_value_and_the_gradient_of_the_stable_formula():
    x = torch.linspace(-300, 300, 601, dtype=torch.float64).requires_grad_()
    for t in (0.0, 0.3, 1.0):
        target = torch.full_like(x, t)
        loss = F.binary_cross_entropy_with_logits(x, target, reduction="none")
        assert torch.allclose(loss, x.clamp(min=0) - x * t + (-x.abs()).exp().log1p())
        (grad,) = torch.autograd.grad(loss.sum(), x)
        assert torch.allclose(grad, x.sigmoid() - t)


def test_a_sigmoid_reaches_0_far_below_and_then_an_empty_image_is_free():
    empty = torch.zeros(1, 1, 8, 8)
    assert torch.tensor(-60.0).sigmoid() > 0
    assert losses.soft_iou_loss(torch.full_like(empty, -12.0).sigmoid(), empty) > 0.001
    assert losses.soft_iou_loss(torch.full_like(empty, -120.0).sigmoid(), empty) == 0


def test_the_triplet_loss_is_the_margin_without_a_collapse_too():
    anchor, step = torch.zeros(4, 8), torch.eye(8)[:4]
    loss = F.triplet_margin_loss(anchor, step, -step, margin=0.3)
    assert torch.allclose(loss, torch.tensor(0.3), atol=1e-4)


@pytest.mark.parametrize("spatial_dims", [0, -1])
def test_a_mask_without_dimensions_is_an_error(spatial_dims):
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match=f"spatial_dims must be at least 1, got {spatial_dims}"):
        losses.soft_iou_loss(x, x, spatial_dims=spatial_dims)
