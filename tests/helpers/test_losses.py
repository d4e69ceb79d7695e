import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts import expect

from helpers import losses
from helpers.exercises import Verdict
from helpers.exercises import losses as exercises

seeds = st.integers(0, 10**6)


# ---------------------------------------------------------------- target_distribution


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.floats(0, 0.9), seeds)
def test_target_distribution_recovers_the_target(classes, eps, seed):
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
    with torch.inference_mode():
        once_more = losses.target_distribution(lambda z: F.cross_entropy(z, soft), classes)
    assert torch.equal(once_more, read)


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


def test_solutions_pass_for_every_draw():
    for _ in range(20):
        for found, checks in [
            (exercises.check_cross_entropy(cross_entropy), 6),
            (exercises.check_smoothing(smoothed), 5),
        ]:
            assert found == Verdict(True, f"correct: {checks} checks passed")


def with_softmax(logits, target, weight, ignore_index):
    keep = target != ignore_index
    p, w = logits[keep].softmax(1), weight[target[keep]]
    return -(w * p.gather(1, target[keep][:, None])[:, 0].log()).sum() / w.sum()


def with_softmax_and_eps(logits, target, weight, ignore_index):
    keep = target != ignore_index
    p, w = logits[keep].softmax(1), weight[target[keep]]
    return -(w * (p.gather(1, target[keep][:, None])[:, 0] + 1e-12).log()).sum() / w.sum()


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


def times_mask(logits, target, weight, ignore_index):
    keep = target != ignore_index
    labels = target.where(keep, 0)
    w = weight[labels] * keep
    return (w * F.cross_entropy(logits, labels, reduction="none")).sum() / w.sum()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (starter_cross_entropy, "sum of the weights, not by N"),
        (lambda *_: None, "expected a tensor, got None"),
        (vector, "expected one number"),
        (double_softmax, "not the mean of -log softmax"),
        (unweighted, "the class weights change nothing"),
        (half_weighted, "wrong value with class weights"),
        (clamped_divisor, "wrong value with class weights"),
        (over_all_samples, "they still count in the divisor"),
        (times_mask, "logits of nan in an ignored row"),
        (forgets_ignored, "Target 255 is out of bounds"),
        (with_softmax, "take log_softmax"),
        (with_softmax_and_eps, "wrong value for large logits"),
        (lambda x, y, w, i: cross_entropy(x.clamp(-50, 50), y, w, i), "value for large logits"),
        (detached, "no graph"),
        (half_detached, "the gradient is not"),
    ],
)
def test_wrong_cross_entropies_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_cross_entropy(wrong), says)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda x, y, e: F.cross_entropy(x, y, label_smoothing=e), "this is torch's recipe"),
        (lambda x, y, e: F.cross_entropy(x, y), "the labels are not smoothed"),
        (lambda x, y, e: F.cross_entropy(x, y, label_smoothing=e * 1.25), "for 2 classes"),
        (lambda x, y, e: smoothed(x, y, 0.1), "for 2 classes and eps = 0.05"),
        (
            lambda x, y, e: (
                smoothed(x, y, e) if x.shape[1] <= 10 else F.cross_entropy(x, y, label_smoothing=e)
            ),
            "this is torch's recipe",
        ),
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
def test_wrong_smoothings_are_reported(wrong, says):
    for _ in range(3):
        expect(exercises.check_smoothing(wrong), says)


def built_in(logits, target, weight, ignore_index):
    return F.cross_entropy(logits, target, weight, ignore_index=ignore_index)


def in_double(logits, target, weight, ignore_index):
    return cross_entropy(logits.double(), target, weight.double(), ignore_index)


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (exercises.check_cross_entropy, built_in),
        (exercises.check_cross_entropy, in_double),
        (exercises.check_smoothing, lambda x, y, eps: smoothed(x.double(), y, eps)),
    ],
)
def test_alternative_solutions_pass(check, right):
    for _ in range(5):
        assert check(right).passed


# ---------------------------------------------------------------- sentences of the chapter


@settings(deadline=None, max_examples=50)
@given(seeds, st.integers(1, 6), st.integers(0, 2), st.floats(0.01, 100))
def test_weight_of_a_single_class_cancels_only_in_the_mean(seed, n, c, w):
    logits = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    y = torch.full((n,), c)
    y[1:2] = -100  # ignored
    weight = torch.rand(3, dtype=torch.float64) + 0.5
    weight[c] = w
    plain = F.cross_entropy(logits, y)
    assert torch.allclose(F.cross_entropy(logits, y, weight), plain)
    summed = F.cross_entropy(logits, y, weight, reduction="sum")
    assert torch.allclose(summed, w * F.cross_entropy(logits, y, reduction="sum"))
    weight[c] = 0
    assert F.cross_entropy(logits, y, weight).isnan()


def test_smoothing_or_a_second_class_makes_weights_matter():
    logits, weight = torch.tensor([[1.0, 2.0, 3.0]] * 2), torch.tensor([1.0, 5.0, 2.0])
    one, two = torch.tensor([0, 0]), torch.tensor([0, 1])
    for y, smoothing in ((one, 0.1), (two, 0.0)):
        options = {"label_smoothing": smoothing}
        with_weight = F.cross_entropy(logits, y, weight, **options)
        assert not torch.allclose(with_weight, F.cross_entropy(logits, y, **options))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_log_softmax_is_stable_for_distant_logits(dtype):
    z = torch.tensor([[0.0, 2000.0]], dtype=dtype, requires_grad=True)
    loss = F.nll_loss(z.log_softmax(1), torch.tensor([0]))
    (grad,) = torch.autograd.grad(loss, z)
    assert loss == 2000 and grad.tolist() == [[-1.0, 1.0]]
    assert z.softmax(1).log().isinf().any()
    for bad in (float("inf"), float("nan")):
        assert torch.tensor([0.0, bad]).log_softmax(0).isnan().all()
    assert torch.tensor([0.0, -float("inf")]).log_softmax(0).tolist() == [0, -float("inf")]


def test_reduction_none_returns_the_target_shape():
    for extra in ((), (4,), (4, 5)):
        logits, y = torch.randn(2, 3, *extra), torch.zeros(2, *extra, dtype=torch.long)
        assert F.cross_entropy(logits, y, reduction="none").shape == y.shape
        soft = logits.softmax(1)  # the class dimension is reduced
        assert F.cross_entropy(logits, soft, reduction="none").shape == y.shape != soft.shape


def test_triplet_loss_equals_the_margin_without_collapse():
    anchor, step = torch.zeros(4, 8), torch.eye(8)[:4]
    loss = F.triplet_margin_loss(anchor, step, -step, margin=0.3)
    assert torch.allclose(loss, torch.tensor(0.3), atol=1e-4)


def test_zero_weights_return_nan_gradient_unlike_ignored_labels():
    x, weight = torch.randn(3, 3, requires_grad=True), torch.tensor([0.0, 1.0, 1.0])
    for label, broken in ((0, True), (-100, False)):
        loss = F.cross_entropy(x, torch.full((3,), label), weight=weight)
        (grad,) = torch.autograd.grad(loss, x)
        assert loss.isnan() and grad.isnan().all() == broken and grad.isnan().any() == broken
