"""Test the helpers of `learning_rate`, and its checkers with solutions and wrong answers."""

from __future__ import annotations

import copy
import io
import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, lr_scheduler
from verdicts import expect

from helpers import learning_rate
from helpers.demos import learning_rate as demos
from helpers.exercises import learning_rate as exercises


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0, 3), min_size=1, max_size=20),
    st.floats(1e-4, 10),
    st.booleans(),
)
def test_rates_equal_base_times_factor_of_each_epoch(factors, lr, scheduler_first):
    def make(optimizer):
        return lr_scheduler.LambdaLR(optimizer, lambda t: [*factors, 7.0][t])

    used = learning_rate.rates(make, len(factors), lr=lr, scheduler_first=scheduler_first)
    want = [*factors, 7.0][scheduler_first:][: len(factors)]
    assert used == pytest.approx([lr * factor for factor in want])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.floats(0.1, 0.9), st.integers(0, 30))
def test_rates_of_step_lr_match_the_formula(step, gamma, epochs):
    used = learning_rate.rates(lambda o: lr_scheduler.StepLR(o, step, gamma), epochs)
    assert used == pytest.approx([gamma ** (t // step) for t in range(epochs)])
    assert learning_rate.changes(used) == list(range(step, epochs, step))


def test_rates_suppresses_only_the_order_warning():
    def make(optimizer):
        return lr_scheduler.ExponentialLR(optimizer, 0.5)

    def loud(optimizer):
        def factor(epoch):
            if epoch:
                warnings.warn("something else", UserWarning, stacklevel=2)
            return 1.0

        return lr_scheduler.LambdaLR(optimizer, factor)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learning_rate.rates(make, 3) == [1, 0.5, 0.25]
        assert learning_rate.rates(make, 3, scheduler_first=True) == [0.5, 0.25, 0.125]
        with pytest.raises(UserWarning, match="something else"):
            learning_rate.rates(loud, 3, scheduler_first=True)


@pytest.mark.parametrize("metrics", [None, [], [1.0], [1.0] * 4, torch.ones(4)])
def test_plateau_requires_one_metric_per_epoch(metrics):
    with pytest.raises(ValueError, match="expected 3 metrics, one for each epoch, got"):
        learning_rate.rates(lr_scheduler.ReduceLROnPlateau, 3, metrics=metrics)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=25), st.integers(0, 4))
def test_plateau_receives_each_metric_once(metrics, patience):
    def make(optimizer):
        return lr_scheduler.ReduceLROnPlateau(optimizer, patience=patience)

    best, bad, lr, want = math.inf, 0, 1.0, []
    for metric in metrics:
        want.append(lr)
        better = metric < best * (1 - 1e-4)
        best, bad = (metric, 0) if better else (best, bad + 1)
        if bad > patience:
            # PyTorch skips a change of the learning rate by 1e-8 or less
            lr, bad = (lr * 0.1 if lr - lr * 0.1 > 1e-8 else lr), 0
    assert learning_rate.rates(make, len(metrics), metrics=metrics) == pytest.approx(want)


def test_rates_returns_floats_for_tensor_metrics_and_rates():
    def make(optimizer):
        return lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

    used = learning_rate.rates(make, 3, lr=torch.tensor(1.0), metrics=torch.ones(3))
    assert used == pytest.approx([1, 1, 0.1]) and set(map(type, used)) == {float}


def test_changes_accepts_short_lists():
    assert learning_rate.changes([]) == learning_rate.changes([1.0]) == []
    assert learning_rate.changes([1, 1, 2, 2, 1]) == [2, 4]


def test_gallery_covers_and_draws_ten_schedulers():
    curves = demos.gallery(epochs=60)
    names = [code.split("(")[0] for code in curves]
    assert sorted(names) == sorted(
        ["StepLR", "MultiStepLR", "ExponentialLR", "LinearLR", "LambdaLR", "CosineAnnealingLR",
         "CosineAnnealingWarmRestarts", "OneCycleLR", "SequentialLR", "ReduceLROnPlateau"]
    )  # fmt: skip
    by_name = dict(zip(names, curves.values(), strict=True))
    assert by_name["MultiStepLR"] == pytest.approx([1.0] * 30 + [0.1] * 15 + [0.01] * 15)
    assert by_name["LambdaLR"] == pytest.approx([1 / math.sqrt(1 + t) for t in range(60)])
    assert by_name["CosineAnnealingLR"] == pytest.approx(
        [(1 + math.cos(math.pi * t / 60)) / 2 for t in range(60)]
    )
    assert learning_rate.changes(by_name["ReduceLROnPlateau"])[0] == 21
    figure = demos.draw_gallery(curves)
    for axis, values in zip(figure.axes, curves.values(), strict=True):
        assert axis.lines[0].get_ydata().tolist() == values
        assert axis.lines[0].get_drawstyle() == "steps-post"  # constant within an epoch
    assert len(demos.draw_gallery(dict(list(curves.items())[:3])).axes) == 3


@pytest.mark.parametrize("code", demos.GALLERY)
def test_scheduler_state_loads_safely_and_resumes(code):
    def build():
        optimizer = learning_rate.one_weight(0.5)
        return optimizer, demos.build(code)(optimizer)

    def train(optimizer, scheduler, epochs):
        used = []
        for epoch in epochs:
            used.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
            scheduler.step(*[demos.LOSSES[epoch]] * plateau)
        return used

    whole, half, fresh = build(), build(), build()
    train(*whole, range(17))
    train(*half, range(17))
    buffer = io.BytesIO()
    torch.save([part.state_dict() for part in half], buffer)
    buffer.seek(0)
    for part, state in zip(fresh, torch.load(buffer, weights_only=True), strict=True):
        part.load_state_dict(state)
    rest = train(*fresh, range(17, 50))
    assert rest == train(*whole, range(17, 50)) and len(set(rest)) > (code[:6] != "Linear")


def test_sequential_lr_rejects_reduce_lr_on_plateau():
    optimizer = learning_rate.one_weight()
    parts = [lr_scheduler.LinearLR(optimizer), lr_scheduler.ReduceLROnPlateau(optimizer)]
    with pytest.raises(ValueError, match="does not support `ReduceLROnPlateau`"):
        lr_scheduler.SequentialLR(optimizer, parts, milestones=[5])


@pytest.mark.parametrize("seed", [11, 12])
def test_warm_up_prevents_divergence_of_a_bad_start(seed):
    bad = [demos.train_digits(0.05, n, gain=2.0, seed=seed) for n in (0, 75)]
    assert [run.diverged for run in bad] == [True, False]
    assert len(bad[0].losses) <= 10 and len(bad[1].losses) == 150
    assert bad[1].accuracy > 0.5 > bad[0].accuracy
    good = demos.train_digits(0.1, 0, seed=seed)
    assert not good.diverged and good.accuracy > 0.5


def test_train_digits_starts_at_the_first_warm_up_rate():
    """The second loss equals that of a run at lr / n without warm-up."""
    slow = demos.train_digits(0.01, steps=2)
    warm = demos.train_digits(0.1, warm_up=10, steps=2)
    fast = demos.train_digits(0.1, steps=2)
    assert warm.losses == slow.losses and warm.losses[0] == fast.losses[0]
    assert warm.losses[1] != fast.losses[1]
    with pytest.raises(ValueError, match="at least one step, got 0"):
        demos.train_digits(0.1, steps=0)
    assert len(demos.train_digits(0.1, steps=1).losses) == 1


def test_draw_runs_draws_every_loss():
    runs = [demos.Run([2.0, 1.0], 0.5), demos.Run([3.0, math.inf], 0.1)]
    assert [run.diverged for run in runs] == [False, True]
    figure = demos.draw_runs({"a": {"x": runs, "y": runs[:1]}, "b": {"z": runs}})
    drawn = [[list(line.get_ydata()) for line in axis.lines] for axis in figure.axes]
    assert drawn == [
        [[2.0, 1.0], [3.0, math.inf], [2.0, 1.0]],
        [[2.0, 1.0], [3.0, math.inf]],
    ]


RULES = {
    lr_scheduler.ConstantLR: lambda o: lr_scheduler.ConstantLR(o, 0.5, 6),
    lr_scheduler.CosineAnnealingLR: lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    lr_scheduler.ExponentialLR: lambda o: lr_scheduler.ExponentialLR(o, 0.7),
    lr_scheduler.LambdaLR: lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.5**t),
    lr_scheduler.LinearLR: lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=7),
    lr_scheduler.MultiplicativeLR: lambda o: lr_scheduler.MultiplicativeLR(o, lambda t: 0.9),
    lr_scheduler.MultiStepLR: lambda o: lr_scheduler.MultiStepLR(o, [2, 6]),
    lr_scheduler.PolynomialLR: lambda o: lr_scheduler.PolynomialLR(o, 9, 2.0),
    lr_scheduler.StepLR: lambda o: lr_scheduler.StepLR(o, 3),
}


@pytest.mark.parametrize("kind", learning_rate.SCALABLE)
@pytest.mark.parametrize("at", [0, 4, 7])
def test_rescale_scales_the_rest_of_the_schedule(kind, at):
    def rest(scale):
        optimizer, used = learning_rate.one_weight(0.5), []
        scheduler = RULES[kind](optimizer)
        for epoch in range(14):
            if epoch == at and scale != 1:
                learning_rate.rescale(optimizer, scheduler, scale)
                assert optimizer.param_groups[0]["initial_lr"] == pytest.approx(0.5 * scale)
            used.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return used

    plain, scaled = rest(1), rest(0.2)
    assert scaled[:at] == plain[:at]
    assert scaled[at:] == pytest.approx([0.2 * rate for rate in plain[at:]], abs=1e-12)


def test_rescale_scales_a_group_added_later():
    optimizer = learning_rate.one_weight(1.0)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.4})
    learning_rate.rescale(optimizer, scheduler, 0.5)
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.1]


def test_rescale_scales_a_shared_tensor_once():
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))]} for _ in range(2)]
    optimizer = torch.optim.SGD(groups, lr=torch.tensor(0.5))
    shared = [group["lr"] for group in optimizer.param_groups]
    scheduler = lr_scheduler.StepLR(optimizer, 3)
    learning_rate.rescale(optimizer, scheduler, 2.0)
    for group, tensor in zip(optimizer.param_groups, shared, strict=True):
        assert group["lr"] is tensor and group["lr"] == group["initial_lr"] == 1.0


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, "2", None])
def test_rescale_rejects_scales_that_are_not_positive(scale):
    optimizer = learning_rate.one_weight(0.5)
    scheduler = lr_scheduler.StepLR(optimizer, 3)
    with pytest.raises(ValueError, match="scale must be a positive number, got"):
        learning_rate.rescale(optimizer, scheduler, scale)
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1, 10), TypeError),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2), TypeError),
        (lr_scheduler.ReduceLROnPlateau, TypeError),
        (lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o)] * 2, [3]), TypeError),
        (lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.LinearLR(o)]), TypeError),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 10, eta_min=0.01), ValueError),
        (lambda o: lr_scheduler.StepLR(learning_rate.one_weight(), 3), ValueError),
    ],
)
def test_rescale_rejects_unsupported_schedulers(make, error):
    optimizer = learning_rate.one_weight(0.5)
    scheduler = make(optimizer)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(error, match="build"):
        learning_rate.rescale(optimizer, scheduler, 0.2)
    assert optimizer.state_dict() == before


# ---------------------------------------------------------------- exercises


def assert_verdict(check, answer, says):
    for seed in range(3):
        torch.manual_seed(seed)
        expect(check(answer), says)


def cosine(p):
    return (1 + math.cos(math.pi * p)) / 2


def warm_cosine(t, warm_up, total):
    if t < warm_up:
        return (t + 1) / warm_up
    return cosine((t - warm_up) / (total - warm_up)) if t < total else 0.0


def no_edges(t, warm_up, total):
    if t < warm_up:
        return (t + 1) / warm_up
    return cosine(min(1.0, (t - warm_up) / (total - warm_up)))


def unlimited(t, warm_up, total):
    return (t + 1) / warm_up if t < warm_up else cosine((t - warm_up) / (total - warm_up))


def alternative_answer(t, warm_up, total):
    if t >= total:
        return 0
    rise = (t + 1) / max(warm_up, 1)
    return min(rise, cosine(max(0, t - warm_up) / max(1, total - warm_up)))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (warm_cosine, None),
        (alternative_answer, None),
        (lambda t, w, n: t / w, "epoch 0 would have a learning rate of 0"),
        (lambda t, w, n: (t + 1) / w, "overshoots 1"),
        (lambda t, w, n: min(1.0, (t + 1) / w), "the cosine that begins at warm_up"),
        (lambda t, w, n: (t + 1) / (w + 1), "in the warm-up it should be"),
        (
            lambda t, w, n: (t + 1) / w if t < w else cosine(min(1, t / n)),
            "the cosine that begins at warm_up",
        ),
        (unlimited, "after total it is 0"),
        (no_edges, "ZeroDivisionError"),
        (lambda t, w, n: ..., "expected a number, got ellipsis"),
    ],
)
def test_check_factor_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_factor, answer, says)


def counted(count):
    return lambda o, e, b, a: lr_scheduler.CosineAnnealingLR(o, T_max=count(e, b, a))


def without_the_momentum(optimizer, epochs, batches, accumulate):
    optimizer.param_groups[0]["momentum"] = 0
    return counted(lambda e, b, a: e * -(-b // a))(optimizer, epochs, batches, accumulate)


def with_weight_decay(optimizer, epochs, batches, accumulate):
    optimizer.param_groups[0]["weight_decay"] = 0.1
    return counted(lambda e, b, a: e * -(-b // a))(optimizer, epochs, batches, accumulate)


def with_a_step(optimizer, epochs, batches, accumulate):
    scheduler = counted(lambda e, b, a: e * -(-b // a))(optimizer, epochs, batches, accumulate)
    optimizer.step()
    return scheduler


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (counted(lambda e, b, a: e * math.ceil(b / a)), None),
        (
            lambda o, e, b, a: lr_scheduler.LambdaLR(o, lambda t: cosine(t / (e * -(-b // a)))),
            None,
        ),
        (counted(lambda e, b, a: e), "the learning rate rises at step"),
        (counted(lambda e, b, a: e * b), "accumulate=3: after the last step the factor is"),
        (counted(lambda e, b, a: e * b // a), "accumulate=4: the learning rate rises at step"),
        (counted(lambda e, b, a: e * (b // a)), "accumulate=4: the learning rate rises at step"),
        (counted(lambda e, b, a: e * b * 2), "after the last step the factor is"),
        (
            lambda o, e, b, a: lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=e * -(-b // a)),
            "after step 1 the factor is",
        ),
        (without_the_momentum, "the optimizer was changed"),
        (with_weight_decay, "the optimizer was changed"),
        (with_a_step, "the optimizer was changed"),
        (lambda o, e, b, a: None, "expected a scheduler, got None"),
        (
            lambda o, e, b, a: lr_scheduler.CosineAnnealingLR(learning_rate.one_weight(), e * b),
            "belongs to another optimizer",
        ),
    ],
)
def test_check_per_step_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_per_step, answer, says)


def resume(checkpoint, build, schedule):
    return aliased(copy.deepcopy(checkpoint), build, schedule)


def aliased(checkpoint, build, schedule):
    model, optimizer = build()
    scheduler = schedule(optimizer)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    return model, optimizer, scheduler


def loaded_twice(checkpoint, build, schedule):
    checkpoint = copy.deepcopy(checkpoint)
    model, optimizer, scheduler = without_scheduler(checkpoint, build, schedule)
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    return model, optimizer, scheduler


def without_scheduler(checkpoint, build, schedule):
    model, optimizer = build()
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer, schedule(optimizer)


def fresh_scheduler(checkpoint, build, schedule):
    model, optimizer = build()
    scheduler = schedule(optimizer)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer, scheduler


def repeated_steps(checkpoint, build, schedule):
    checkpoint = copy.deepcopy(checkpoint)
    model, optimizer = build()
    scheduler = schedule(optimizer)
    optimizer.step()
    for _ in range(checkpoint["scheduler"]["last_epoch"]):
        scheduler.step()
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer, scheduler


def last_epoch_only(checkpoint, build, schedule):
    parts = fresh_scheduler(copy.deepcopy(checkpoint), build, schedule)
    parts[2].last_epoch = checkpoint["scheduler"]["last_epoch"]
    return parts


def through_a_file(checkpoint, build, schedule):
    file = io.BytesIO()
    torch.save(checkpoint, file)
    file.seek(0)
    return loaded_twice(torch.load(file), build, schedule)


def built_too_late(checkpoint, build, schedule):
    model, optimizer, scheduler = without_scheduler(checkpoint, build, schedule)
    scheduler.load_state_dict(checkpoint["scheduler"])
    return model, optimizer, scheduler


def without_momentum(checkpoint, build, schedule):
    model, optimizer = build()
    scheduler = schedule(optimizer)
    model.load_state_dict(checkpoint["model"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
    return model, optimizer, scheduler


def without_weights(checkpoint, build, schedule):
    model, optimizer = build()
    return model, optimizer, schedule(optimizer)


def in_evaluation_mode(checkpoint, build, schedule):
    model, *rest = resume(checkpoint, build, schedule)
    return model.eval(), *rest


def two_models(checkpoint, build, schedule):
    model, _ = build()
    model.load_state_dict(checkpoint["model"])
    _, optimizer = build()
    return model, optimizer, schedule(optimizer)


def two_optimizers(checkpoint, build, schedule):
    model, optimizer = build()
    return model, optimizer, schedule(SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (resume, None),
        (aliased, "training changed the checkpoint"),
        (loaded_twice, None),
        (without_scheduler, "epoch 0 after resuming has a learning rate of"),
        (last_epoch_only, "after resuming has a learning rate of"),
        (through_a_file, None),
        (repeated_steps, "epoch 1 after resuming has a learning rate of"),
        (fresh_scheduler, "epoch 1 after resuming has a learning rate of"),
        (built_too_late, "epoch 0 after resuming has a learning rate of"),
        (without_momentum, "the momentum is lost"),
        (without_weights, "the weights are not those of the checkpoint"),
        (in_evaluation_mode, "the model is in evaluation mode"),
        (two_models, "the optimizer trains another model"),
        (two_optimizers, "the scheduler belongs to another optimizer"),
        (lambda c, b, s: b(), "expected the model, the optimizer and the scheduler"),
        (lambda c, b, s: None, "expected the model, the optimizer and the scheduler"),
    ],
)
def test_check_resume_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_resume, answer, says)


def test_one_weight_step_keeps_the_weight():

    optimizer = learning_rate.one_weight(0.25)
    (weight,) = optimizer.param_groups[0]["params"]
    optimizer.step()
    assert isinstance(weight, nn.Parameter) and weight.item() == 0
    assert optimizer.param_groups[0]["lr"] == 0.25


# ---------------------------------------------------------------- sentences of the chapter


def test_check_per_step_rejects_a_count_over_all_epochs():
    def over_all(optimizer, epochs, batches, accumulate):
        steps = math.ceil(epochs * batches / accumulate)
        return lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    for _ in range(20):
        assert not exercises.check_per_step(over_all).passed


def test_check_factor_rejects_a_factor_wrong_without_warm_up():
    def factor(t, warm_up, total):
        if t < warm_up:
            return (t + 1) / warm_up
        if t >= total:
            return 0.0
        return (1 + math.cos(math.pi * (t - warm_up) / (total - max(warm_up, 1)))) / 2

    assert not exercises.check_factor(factor).passed


def test_check_resume_accepts_a_list_of_parts():
    def resume(checkpoint, build, schedule):
        checkpoint = copy.deepcopy(checkpoint)
        model, optimizer = build()
        parts = [model, optimizer, schedule(optimizer)]
        for part, name in zip(parts, ("model", "optimizer", "scheduler"), strict=True):
            part.load_state_dict(checkpoint[name])
        return parts

    assert exercises.check_resume(resume).passed


def test_get_last_lr_ignores_a_manually_set_rate():
    optimizer = learning_rate.one_weight(lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=3)
    optimizer.param_groups[0]["lr"] = 0.5
    assert scheduler.get_last_lr() == [1.0]


def test_most_schedulers_continue_from_a_manually_set_rate():
    multiply = {
        "StepLR": (1, 0.5),
        "MultiStepLR": ([1], 0.5),
        "ExponentialLR": (0.5,),
        "MultiplicativeLR": (lambda t: 0.5,),
        "ConstantLR": (0.5, 3),
        "LinearLR": (0.5, 1.0, 3),
        "PolynomialLR": (3,),
        "CosineAnnealingLR": (3,),
    }
    forget = {"LambdaLR": (lambda t: 0.5**t,), "CosineAnnealingWarmRestarts": (3,)}
    for name, options in (multiply | forget).items():
        rates = []
        for by_hand in (1.0, 0.01):
            optimizer = learning_rate.one_weight(lr=1.0)
            scheduler = getattr(lr_scheduler, name)(optimizer, *options)
            optimizer.param_groups[0]["lr"] *= by_hand
            optimizer.step()
            scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
        assert math.isclose(rates[1] / rates[0], 0.01 if name in multiply else 1.0), name


@pytest.mark.parametrize(
    ("second", "rate", "momentum"),
    [
        (lambda o: lr_scheduler.LinearLR(o, 0.1), 0.5, 0.3),
        (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5), 0.5, 0.3),
        (lambda o: lr_scheduler.CyclicLR(o, 0.01, 1.0), 0.5, 0.9),
        (lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=10), 0.04, 0.95),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_sequential_lr_resets_rate_to_initial_lr_but_not_momentum(second, rate, momentum):
    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.5, momentum=0.3)
    first = lr_scheduler.ConstantLR(optimizer, 1.0)
    lr_scheduler.SequentialLR(optimizer, [first, second(optimizer)], [3])
    group = optimizer.param_groups[0]
    assert (group["lr"], group["momentum"]) == pytest.approx((rate, momentum))
