"""Test the helpers of `training_loop`: uneven batches, modes, errors; and the checkers."""

from __future__ import annotations

import copy
import math
from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import training_loop
from helpers.autograd import saved_tensors
from helpers.demos import training_loop as demos
from helpers.evaluation import evaluating
from helpers.exercises import training_loop as exercises

seeds = st.integers(0, 10**6)


def data(seed: int, *sizes: int):
    g = torch.Generator().manual_seed(seed)
    return [(torch.randn(n, 3, generator=g), torch.randint(0, 4, (n,), generator=g)) for n in sizes]


def whole(batches):
    return [torch.cat(part) for part in zip(*batches, strict=True)]


# ---------------------------------------------------------------- evaluate


@settings(deadline=None, max_examples=40)
@given(seeds, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_evaluate_returns_the_mean_per_sample_for_any_batch_sizes(seed, sizes):
    model, batches = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.9)), data(seed, *sizes)
    found = training_loop.evaluate(
        model, batches, loss=F.cross_entropy, accuracy=training_loop.accuracy
    )
    x, y = whole(batches)
    scores = model.eval()(x)
    assert math.isclose(found["loss"], F.cross_entropy(scores, y).item(), rel_tol=1e-4)
    right = sum(int(s.argmax() == label) for s, label in zip(scores, y, strict=True))
    assert math.isclose(found["accuracy"], right / len(y), abs_tol=1e-6)
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_evaluate_restores_module_modes_even_after_an_error(mode, fails):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout()).train(mode)
    model[1].train(not mode)
    before = copy.deepcopy(model.state_dict())
    seen = []

    def measure(scores, y):
        seen.extend(m.training for m in model.modules())
        if fails:
            raise RuntimeError("planted")
        return F.cross_entropy(scores, y)

    if fails:
        with pytest.raises(RuntimeError, match="planted"):
            training_loop.evaluate(model, data(0, 4), loss=measure)
    else:
        training_loop.evaluate(model, data(0, 4), loss=measure)
    assert seen and not any(seen)
    assert [m.training for m in model.modules()] == [mode, mode, not mode, mode]
    assert torch.is_grad_enabled()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_evaluate_records_no_graph():
    model = nn.Linear(3, 4)
    flags = []

    def measure(scores, y):
        flags.append(scores.requires_grad)
        return F.cross_entropy(scores, y)

    saved = saved_tensors(lambda: training_loop.evaluate(model, data(0, 4, 2), loss=measure))
    assert saved == [] and flags == [False, False] and model.weight.grad is None


def test_evaluate_rejects_invalid_arguments():
    model = nn.Linear(3, 4)
    with pytest.raises(ValueError, match="at least one measure"):
        training_loop.evaluate(model, data(0, 4))
    with pytest.raises(ValueError, match="expected at least one batch, got none"):
        training_loop.evaluate(model, [], loss=F.cross_entropy)
    each = lambda s, y: F.cross_entropy(s, y, reduction="none")  # noqa: E731
    with pytest.raises(ValueError, match=r"each must be one number per batch, got shape \(4,\)"):
        training_loop.evaluate(model, data(0, 4), each=each)


def test_evaluate_accepts_a_model_without_parameters():
    found = training_loop.evaluate(
        nn.Identity(), [(torch.eye(4), torch.arange(4))], loss=F.nll_loss
    )
    assert found == {"loss": -1.0}


def test_batches_are_moved_to_the_device_of_the_model():
    batches = list(training_loop._on_device(nn.Linear(3, 4, device="meta"), data(0, 4, 2)))
    assert [(x.device.type, y.device.type) for x, y in batches] == [("meta", "meta")] * 2


# ---------------------------------------------------------------- fit


@settings(deadline=None, max_examples=30)
@given(seeds, st.lists(st.integers(1, 6), min_size=1, max_size=4), st.booleans())
def test_fit_matches_a_manual_loop(seed, sizes, clip):
    batches = data(seed, *sizes)
    model = nn.Linear(3, 4)
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.weight.grad = torch.ones(4, 3)  # a stale gradient
    history = training_loop.fit(
        model, batches, F.cross_entropy, optimizer, 2, max_norm=0.1 if clip else None
    )
    by_hand, expected = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(2):
        losses = []
        for x, y in batches:
            by_hand.zero_grad()
            loss = F.cross_entropy(other(x), y)
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(other.parameters(), 0.1)
            by_hand.step()
            losses += [loss.item()] * len(y)
        expected.append(sum(losses) / len(losses))
    assert torch.equal(model.weight, other.weight) and torch.equal(model.bias, other.bias)
    assert history == pytest.approx(expected)


def test_fit_sets_training_mode_in_every_epoch():
    model, modes = nn.Sequential(nn.Linear(3, 4), nn.Dropout()), []

    def loss(scores, y):
        modes.append(model[1].training)
        model.eval()  # as after a validation that does not restore the mode
        return F.cross_entropy(scores, y)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training_loop.fit(model.eval(), data(0, 4), loss, optimizer, epochs=3)
    assert modes == [True, True, True]
    assert len(training_loop.fit(model, data(0, 4), loss, optimizer)) == 1  # one epoch by default


def test_fit_keeps_still_modules_in_eval_mode():
    model, modes = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout()), []

    def loss(scores, y):
        modes.append([m.training for m in model])
        return F.cross_entropy(scores, y)

    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    still = (m for m in [model[1]])  # exhausted after one epoch
    training_loop.fit(model, data(0, 4), loss, optimizer, epochs=2, still=still)
    assert modes == [[True, False, True]] * 2 and model[1].running_mean.eq(0).all()


def test_fit_raises_before_a_non_finite_step():
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = data(0, 4, 4)
    batches[1][0][0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match="the loss is nan in epoch 0, sample 4 on"):
        training_loop.fit(model, batches, F.cross_entropy, optimizer)
    assert model.weight.isfinite().all()
    before = model.weight.detach().clone()
    infinite = lambda s, y: (s - s.detach()).abs().sum().sqrt()  # noqa: E731  value 0, gradient nan
    with pytest.raises(RuntimeError, match="non-finite"):
        training_loop.fit(model, data(0, 4), infinite, optimizer, max_norm=1.0)
    assert torch.equal(model.weight, before)


def test_fit_rejects_an_empty_loader_and_an_unreduced_loss():
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="expected at least one batch, got none"):
        training_loop.fit(model, [], F.cross_entropy, optimizer)
    with pytest.raises(ValueError, match="expected a loader for several epochs, got an iterator"):
        training_loop.fit(model, iter(data(0, 4)), F.cross_entropy, optimizer, epochs=2)
    each = nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(ValueError, match=r"the loss must be one number per batch, got shape \(4,"):
        training_loop.fit(model, data(0, 4), each, optimizer)
    assert training_loop.fit(model, data(0, 4), F.cross_entropy, optimizer, epochs=0) == []


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        (torch.ones(3, 4), "Tensor"),
        ({"x": torch.ones(3, 4)}, "dict"),
        ((torch.ones(3, 4),), "tuple of Tensor"),
        (({"ids": torch.ones(3)}, torch.ones(3)), "tuple of dict, Tensor"),
        ([torch.ones(3, 4), [0, 1, 2]], "list of Tensor, list"),
        ((torch.ones(3, 4),) * 3, "tuple of Tensor, Tensor, Tensor"),
    ],
)
def test_batches_other_than_tensor_pairs_raise(batch, kind):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    message = f"expected batches \\(x, y\\) of two tensors, got {kind}$"
    with pytest.raises(TypeError, match=message):
        training_loop.fit(model, [batch], F.cross_entropy, optimizer)
    with pytest.raises(TypeError, match=message):
        training_loop.evaluate(model, [batch], loss=F.cross_entropy)


# ---------------------------------------------------------------- other functions


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        ((4, 3), (4, 1)),
        ((4,), (4,)),
        ((4, 3), (3,)),
        ((4, 3, 2), (4, 2)),
        ((4, 1), (4,)),
        ((4, 0), (4,)),
    ],
)
def test_accuracy_rejects_shapes_that_would_broadcast(scores, labels):
    with pytest.raises(ValueError, match=r"shape \(N, C\), C above 1, and labels of shape \(N,\)"):
        training_loop.accuracy(torch.zeros(scores), torch.zeros(labels).long())


def test_compile_disables_validation_of_distributions():
    kind = torch.distributions.Distribution
    before = kind._validate_args
    try:
        torch.compile(nn.Linear(1, 1), backend="eager")
        assert torch.distributions.Beta(0.0, 0.0).sample() == 0.5
    finally:
        kind.set_default_validate_args(before)


def test_untrained_returns_parameters_in_no_group():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].bias.requires_grad_(False)
    optimizer = torch.optim.SGD([{"params": (p for p in [])}, {"params": model[0].parameters()}])
    assert training_loop.untrained(model, optimizer) == ["1.weight"]
    optimizer.add_param_group({"params": [model[1].weight]})
    assert training_loop.untrained(model, optimizer) == []


def test_draw_lines_draws_each_line():
    x, y = torch.arange(3.0).unsqueeze(1), torch.arange(3.0)
    figure = demos.draw_lines(x, y, {"up": y, "down": -y})
    drawn = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert drawn == {"data": [0, 1, 2], "up": [0, 1, 2], "down": [0, -1, -2]}
    for lines in ({}, dict.fromkeys("abcd", y)):
        with pytest.raises(ValueError, match=f"1 to 3 lines, got {len(lines)}"):
            demos.draw_lines(x, y, lines)


def test_draw_mixup_shows_the_weighted_mean():
    one, other = torch.rand(2, 8, 8)
    figure = demos.draw_mixup(one, other, 0.7)
    shown = [torch.from_numpy(a.images[0].get_array().data) for a in figure.axes]
    torch.testing.assert_close(shown, [one, other, 0.7 * one + 0.3 * other])
    assert figure.axes[2].get_title(loc="left") == "0.7 x + 0.3 x′"


# ---------------------------------------------------------------- exercise 1


def evaluator(modes=True, sums=True, grad=False, eval_=True, out=float):
    """Return a right answer, or one with a planted fault."""

    def answer(model, loader):
        before = [(m, m.training) for m in model.modules()]
        if eval_:
            model.eval()
        with torch.set_grad_enabled(grad):
            total = count = 0
            try:
                for x, y in loader:
                    loss = F.cross_entropy(model(x), y)
                    total += loss * len(y) if sums else loss
                    count += len(y) if sums else 1
            finally:
                if modes in ("train", "train and eval"):
                    model.train()
                    for m in (m for m, mode in before if modes != "train" and not mode):
                        m.eval()
                elif modes:
                    for m, mode in before:
                        m.training = mode
            result = total / count
        return out(result.detach())

    return answer


def seeded(model, loader):
    torch.manual_seed(0)
    return evaluator()(model, loader)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (evaluator(), None),
        (evaluator(out=lambda t: t), None),
        (lambda m, b: training_loop.evaluate(m, b, loss=F.cross_entropy)["loss"], None),
        (evaluator(sums=False), "the last batch has one sample"),
        (evaluator(eval_=False), "dropout was active"),
        (seeded, "the random state of torch was changed"),
        (evaluator(modes=False), "training=True before the call and has training=False"),
        (evaluator(modes="train"), "training=False before the call and has training=True"),
        (evaluator(modes="train and eval"), "in training mode inside a model in eval mode"),
        (evaluator(grad=True), "autograd recorded the forward passes"),
        (evaluator(out=lambda t: t[None]), "got a tensor of shape (1,)"),
        (evaluator(out=lambda t: None), "expected a float, got None"),
        (evaluator(out=lambda t: 2 * t), "it is not the mean cross-entropy"),
    ],
)
def test_check_evaluate_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_evaluate, answer, says)


def test_check_evaluate_reports_a_second_pass_and_a_lost_mode():
    def twice(model, loader):
        with evaluating(model):
            total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in loader)
            return total / sum(len(y) for _, y in loader)

    @torch.no_grad()
    def careless(model, loader):
        before, total, count = [(m, m.training) for m in model.modules()], 0.0, 0
        model.eval()
        for x, y in loader:
            total += F.cross_entropy(model(x), y, reduction="sum").item()
            count += len(y)
        for m, mode in before:
            m.training = mode
        return total / count

    assert_verdict(exercises.check_evaluate, twice, "an iterator can be read only once")
    assert_verdict(exercises.check_evaluate, careless, "after an error in the loader")


def test_check_evaluate_sees_a_swallowed_error():
    def answer(model, loader):
        total = count = 0
        with evaluating(model), suppress(OSError):
            for x, y in loader:
                total += F.cross_entropy(model(x), y, reduction="sum").item()
                count += len(y)
        return total / count

    assert_verdict(exercises.check_evaluate, answer, "an error in the loader is not raised")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: setattr(p, "grad", None), "the gradient of 0.weight of model was"),
        (lambda p: p.data.mul_(2), "0.weight of model was changed"),
    ],
)
def test_check_evaluate_reports_a_model_changed_after_an_error(spoil, says):
    def answer(model, loader):
        try:
            return training_loop.evaluate(model, loader, loss=F.cross_entropy)["loss"]
        except OSError:
            for p in model.parameters():
                spoil(p)
            raise

    assert_verdict(exercises.check_evaluate, answer, says)


def test_check_evaluate_reports_a_frozen_layer_set_to_training():
    def answer(model, loader):
        mode = model.training
        value = evaluator(modes=False)(model, loader)
        model.train(mode)
        return value

    assert_verdict(exercises.check_evaluate, answer, "was put into training mode")


def test_check_evaluate_reports_batch_norm_in_training_mode():
    def answer(model, loader):
        off = [m for m in model.modules() if isinstance(m, nn.Dropout) and m.training]
        for m in off:
            m.eval()
        try:
            return evaluator(eval_=False)(model, loader)
        finally:
            for m in off:
                m.train()

    assert_verdict(exercises.check_evaluate, answer, "model was changed")


def assert_verdict(check, answer, says):
    for seed in range(8):
        torch.manual_seed(seed)
        expect(check(answer), says)


# ---------------------------------------------------------------- exercise 2


def split(model, decay, spared, source=None):
    source = source or list(model.named_parameters())
    first = [p for n, p in source if not spared(n, p)]
    second = [p for n, p in source if spared(n, p)]
    return [{"params": first, "weight_decay": decay}, {"params": second, "weight_decay": 0.0}]


TABLES = "words", "positions", "latent", "table_norm"


def vector_or_word(name, p):
    return p.ndim < 2 or name.startswith(TABLES)


def by_type(model, decay):
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]
    return split(model, decay, lambda n, p: all(p is not m.weight for m in layers))


def by_exact_type(model, decay):
    kinds = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d
    layers = [m for m in model.modules() if type(m) in kinds]
    return split(model, decay, lambda n, p: all(p is not m.weight for m in layers))


def as_generators(model, decay):
    first, second = split(model, decay, vector_or_word)
    return [{**g, "params": (p for p in g["params"])} for g in (first, second)]


def spent(model, decay):
    groups = as_generators(model, decay)
    list(groups[0]["params"])
    return groups


def without_own_decay(model, decay):
    first, second = split(model, decay, vector_or_word)
    return [first, {"params": second["params"]}]


def wrong_key(model, decay):
    return [{"parameters": g.pop("params"), **g} for g in split(model, decay, vector_or_word)]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda m, d: split(m, d, vector_or_word), None),
        (as_generators, None),
        (by_type, None),
        (by_exact_type, "block.0.weight has decay 0.0, expected"),
        (lambda m, d: split(m, d, lambda n, p: n[-4:] == "bias"), "positions is decayed"),
        (lambda m, d: split(m, d, lambda n, p: p.ndim < 2), "positions is decayed"),
        (
            lambda m, d: split(m, d, lambda n, p: p.ndim < 2 or n.startswith(TABLES[:3])),
            "table_norm.weight is decayed",
        ),
        (
            lambda m, d: split(m, d, lambda n, p: p.ndim < 2 or n.startswith(TABLES[1:])),
            "words.weight is decayed",
        ),
        (
            lambda m, d: split(m, d, lambda n, p: n[-4:] == "bias" or n.startswith(TABLES)),
            "batch_norm.weight is decayed",
        ),
        (lambda m, d: split(m, 0.0, vector_or_word), "has decay 0.0, expected"),
        (without_own_decay, "a group has no weight_decay of its own"),
        (spent, "is in no group and would not be trained"),
        (lambda m, d: split(m, d, vector_or_word)[:1], "is in no group"),
        (wrong_key, "KeyError: 'params'"),
        (lambda m, d: split(m, d, vector_or_word) * 2, "is listed more than once"),
        (
            lambda m, d: split(
                m, d, vector_or_word, list(m.named_parameters(remove_duplicate=False))
            ),
            "first.weight is listed more than once",
        ),
        (lambda m, d: None, "expected a list, got None"),
        (
            lambda m, d: [{"params": [nn.Parameter(torch.ones(1))], "weight_decay": d}],
            "not a parameter of the model",
        ),
    ],
)
def test_check_decay_groups_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_decay_groups, answer, says)


# ---------------------------------------------------------------- sentences of the chapter


def leaves_autograd_off(model, loader):
    torch.set_grad_enabled(False)
    with evaluating(model):
        pairs = [(F.cross_entropy(model(x), y, reduction="sum"), len(y)) for x, y in loader]
    return float(sum(a for a, _ in pairs) / sum(n for _, n in pairs))


def test_check_evaluate_reports_disabled_autograd():
    found = exercises.check_evaluate(leaves_autograd_off)
    assert not found.passed and "gradients stay switched off" in found.message
    torch.set_grad_enabled(True)


def test_check_decay_groups_reports_a_missing_convolution_type():
    def groups(model, weight_decay, kinds=(nn.Linear, nn.Conv1d)):
        chosen = {id(m.weight) for m in model.modules() if isinstance(m, kinds)}
        parts = [[p for p in model.parameters() if (id(p) in chosen) == yes] for yes in (1, 0)]
        return [
            {"params": parts[0], "weight_decay": weight_decay},
            {"params": parts[1], "weight_decay": 0.0},
        ]

    for kinds, name in (
        ((nn.Linear, nn.Conv1d), "pixels"),
        ((nn.Linear, nn.Conv1d, nn.Conv2d), "voxels"),
    ):
        found = exercises.check_decay_groups(lambda m, w, kinds=kinds: groups(m, w, kinds))
        assert not found.passed and f"{name}.weight has decay 0" in found.message, found
    every = (nn.Linear, nn.modules.conv._ConvNd)
    assert exercises.check_decay_groups(lambda m, w: groups(m, w, every)).passed


def test_weight_decay_requires_a_gradient():
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        idle, used = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        used.grad = torch.zeros(1)
        kind([idle, used], lr=0.1, weight_decay=0.5).step()
        assert idle == 1 and used < 1


def test_mixing_losses_equals_mixing_labels_only_unweighted():
    scores, y, index = torch.randn(6, 4), torch.arange(6) % 4, torch.tensor([1, 2, 3, 4, 5, 0])
    for weight, equal in ((None, True), (torch.tensor([1.0, 2.0, 5.0, 3.0]), False)):
        two = 0.3 * F.cross_entropy(scores, y, weight) + 0.7 * F.cross_entropy(
            scores, y[index], weight
        )
        soft = 0.3 * F.one_hot(y, 4) + 0.7 * F.one_hot(y[index], 4)
        assert torch.allclose(two, F.cross_entropy(scores, soft, weight)) == equal


def test_losses_run_in_float32_under_autocast():
    x = torch.rand(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = x @ x
        found = [
            F.cross_entropy(out, torch.arange(4)),
            F.mse_loss(out, x),
            F.l1_loss(out, out),
            F.huber_loss(out, out),
            F.binary_cross_entropy_with_logits(out, x),
        ]
        by_hand = (out - out).square().mean()
    assert out.dtype == by_hand.dtype == torch.bfloat16
    assert {loss.dtype for loss in found} == {torch.float32}


def test_evaluate_rejects_a_measure_that_is_not_a_tensor():
    batches = [(torch.ones(2, 3), torch.ones(2, 1))]
    with pytest.raises(TypeError, match="error must be a tensor of one number, got float"):
        training_loop.evaluate(nn.Linear(3, 1), batches, error=lambda output, y: 0.5)


def test_empty_batches_are_skipped():
    model, (full, empty) = nn.Linear(3, 4), data(0, 4, 0)
    found = training_loop.evaluate(model, [full, empty], loss=F.cross_entropy)
    assert found == training_loop.evaluate(model, [full], loss=F.cross_entropy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert math.isfinite(
        training_loop.fit(model, [empty, full], F.cross_entropy, optimizer, max_norm=1.0)[0]
    )
    with pytest.raises(ValueError, match="expected at least one batch, got none"):
        training_loop.evaluate(model, [empty], loss=F.cross_entropy)


def test_checks_include_layers_inside_a_block():
    def children_only(model, loader):
        before = [(m, m.training) for m in [model, *model.children()]]
        value = evaluator(modes=False)(model, loader)
        for m, mode in before:
            m.training = mode
        return value

    def layers_of(model, decay, kinds=(nn.Linear, nn.modules.conv._ConvNd)):
        chosen = {id(m.weight) for m in model.children() if isinstance(m, kinds)}
        return split(model, decay, lambda n, p: id(p) not in chosen)

    def without_norm_in_the_name(model, decay):
        return split(model, decay, lambda n, p: any(k in n for k in ("bias", "norm", *TABLES)))

    assert_verdict(
        exercises.check_evaluate, children_only, "a layer inside a block was left in eval mode"
    )
    assert_verdict(exercises.check_decay_groups, layers_of, "block.0.weight has decay 0")
    assert_verdict(
        exercises.check_decay_groups, without_norm_in_the_name, "block.1.weight is decayed"
    )
