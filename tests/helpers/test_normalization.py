"""Test the helpers of `normalization` against PyTorch and theory, and its checkers."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.swa_utils import update_bn
from verdicts import expect

from helpers import distributed, normalization
from helpers.demos import normalization as demos
from helpers.exercises import normalization as exercises

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


# ---------------------------------------------------------------- moving


def test_moving_returns_changed_buffers_and_preserves_the_model():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    x = torch.randn(4, 2)
    before = {name: b.clone() for name, b in model.named_buffers()}
    assert normalization.moving(model, x) == list(before)
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
    assert model.training and normalization.moving(model.eval(), x) == []


def test_moving_handles_zero_momentum_and_missing_buffers():
    x = torch.randn(4, 3)
    assert normalization.moving(nn.BatchNorm1d(3, momentum=0.0), x) == ["num_batches_tracked"]
    assert normalization.moving(nn.BatchNorm1d(3, track_running_stats=False), x) == []
    assert normalization.moving(nn.Linear(3, 1), x) == []


def test_moving_reports_replaced_buffers_of_an_uncopyable_model():
    class Keeps(nn.Linear):
        def __init__(self):
            super().__init__(3, 3)
            self.register_buffer("mean", torch.zeros(3), persistent=False)
            self.register_buffer("nothing", torch.tensor(float("nan")))

        def forward(self, x):
            self.out = super().forward(x)
            self.mean = x.mean(0)
            return self.out

    model, x = Keeps(), torch.randn(4, 3)
    model(x)  # deepcopy would now raise
    kept = model.mean
    assert normalization.moving(model, x + 1) == ["mean"]
    assert model.mean is kept and torch.equal(kept, x.mean(0))


def test_moving_treats_equal_nans_as_unchanged():
    bn = nn.BatchNorm1d(3)
    bn(torch.full((4, 3), float("nan")))
    assert normalization.moving(bn, torch.randn(4, 3)) == ["num_batches_tracked"]


# ---------------------------------------------------------------- noise


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 200))
def test_statistics_noise_matches_theory(size):
    noise = demos.statistics_noise(size, trials=3000)
    assert noise["mean"] == pytest.approx(1 / math.sqrt(size), rel=0.08)
    assert noise["variance"] == pytest.approx(math.sqrt(2 / (size - 1)), rel=0.15)


def test_only_batchnorm_in_training_mode_depends_on_the_batch():
    for layer in (nn.LayerNorm(16), nn.GroupNorm(4, 16), nn.BatchNorm1d(16).eval()):
        assert demos.neighbour_noise(layer, 4, trials=20) < 1e-6
    bn = nn.BatchNorm1d(16)
    by_size = [demos.neighbour_noise(bn, size, trials=100) for size in (2, 8, 32)]
    assert by_size == sorted(by_size, reverse=True) and by_size[2] > 0.1


def test_neighbour_noise_equals_the_standard_deviation():
    class Sum(nn.Module):
        def forward(self, x):
            return x + x.sum(0)  # sums one standard normal neighbour and the sample itself

    assert demos.neighbour_noise(Sum(), 2, trials=3000) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("size", [1, 0, -3])
def test_batch_of_fewer_than_two_raises(size):
    for function in (
        demos.statistics_noise,
        lambda size: demos.neighbour_noise(nn.BatchNorm1d(16), size),
    ):
        with pytest.raises(ValueError, match=f"at least 2, got {size}"):
            function(size)


# ---------------------------------------------------------------- signal


@settings(deadline=None, max_examples=15)
@given(st.floats(0.001, 1))
def test_per_layer_factor_equals_std_times_sqrt_half_fan_in(std):
    sizes = demos.signal(lambda w: nn.init.normal_(w, std=std), depth=8, width=128)
    factor = std * math.sqrt(128 / 2)
    assert demos.per_layer(sizes["forward"]) == pytest.approx(factor, rel=0.08)
    backwards = demos.per_layer(sizes["backward"][::-1])
    assert backwards == pytest.approx(factor, rel=0.08)


def test_signal_is_reproducible_and_keeps_the_random_state():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = demos.signal(None, depth=3, width=8)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(8)
    assert first == demos.signal(None, depth=3, width=8)
    assert [len(sizes) for sizes in first.values()] == [3, 3]


def test_identity_weights_halve_the_power_once():
    sizes = demos.signal(nn.init.eye_, depth=3, width=64)
    assert sizes["forward"][0] == pytest.approx(1, abs=0.02)
    for later in sizes["forward"][1:]:  # later ReLUs receive no negative values
        assert later == pytest.approx(math.sqrt(0.5), abs=0.02)
    assert sizes["backward"][-1] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("size", [{"depth": 0}, {"width": 0}])
def test_signal_rejects_depth_or_width_below_1(size):
    with pytest.raises(ValueError, match="must be at least 1"):
        demos.signal(None, **size)


def test_per_layer_returns_the_geometric_mean_factor():
    assert demos.per_layer([8.0, 4.0, 2.0, 1.0]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="at least two sizes, got 1"):
        demos.per_layer([1.0])


# ---------------------------------------------------------------- figures


def test_figures_match_the_functions():
    noise = demos.draw_batch_noise()
    lines = {line.get_label(): line for axis in noise.axes for line in axis.lines}
    assert set(lines) == {"batch mean", "batch variance", "BatchNorm1d", "LayerNorm"}
    assert lines["batch mean"].get_ydata()[0] == demos.statistics_noise(2)["mean"]
    assert max(lines["LayerNorm"].get_ydata()) < 1e-6 < min(lines["BatchNorm1d"].get_ydata())

    signal = demos.draw_signal({"own": None, "Xavier": nn.init.xavier_normal_})
    own = demos.signal(None)
    for axis, sizes in zip(signal.axes, own.values(), strict=True):
        assert list(axis.lines[0].get_ydata()) == sizes and axis.get_yscale() == "log"
    with pytest.raises(ValueError, match="at least one init"):
        demos.draw_signal({})


# ---------------------------------------------------------------- exercises


def recompute(model, batches, reset=True, momentum=None, train=True, restore=True, back=True):
    norms = [m for m in model.modules() if isinstance(m, NORMS)]
    momenta, modes = [m.momentum for m in norms], {m: m.training for m in model.modules()}
    for norm in norms:
        if reset:
            norm.reset_running_stats()
        norm.momentum = momentum
    model.train(train)
    with torch.no_grad():
        for x in batches:
            model(x)
    for norm, before in zip(norms, momenta, strict=True):
        norm.momentum = before if restore else norm.momentum
    for module, mode in modes.items():
        module.training = mode if back else True


def only_the_norms(model, batches):
    norms = [m for m in model.modules() if isinstance(m, NORMS)]
    came = [(norm.training, norm.momentum) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
        norm.momentum = None
    with torch.no_grad():
        for x in batches:
            model(x)
    for norm, (mode, momentum) in zip(norms, came, strict=True):
        norm.train(mode)
        norm.momentum = momentum


def starter(model, batches):
    model.train()
    with torch.no_grad():
        for x in batches:
            model(x)


def first_level_only(model, batches):
    norms = [m for m in model.children() if isinstance(m, NORMS)]
    recompute(nn.Sequential(*list(model.children())[:5]), batches)
    assert len(norms) == 2


def with_biased_variance(model, batches):
    recompute(model, batches)
    for norm in (m for m in model.modules() if isinstance(m, NORMS)):
        norm.running_var *= 7 / 8


def without_3d(model, batches):
    kept = copy.deepcopy(model.state_dict())
    recompute(model, batches)
    norms = {n: m for n, m in model.named_modules() if isinstance(m, nn.BatchNorm3d)}
    for name, norm in norms.items():
        for key, buffer in norm.named_buffers():
            buffer.copy_(kept[f"{name}.{key}"])


def and_trained(model, batches):
    recompute(model, batches)
    with torch.no_grad():
        next(model.parameters()).add_(1)


def and_frozen(model, batches):
    recompute(model, batches)
    model.requires_grad_(False)


def and_backward(model, batches):
    recompute(model, batches)
    model(batches[0].clone()).sum().backward()
    recompute(model, batches)


def and_seeded(model, batches):
    torch.manual_seed(0)
    recompute(model, batches)


def with_new_buffers(model, batches):
    recompute(model, batches)
    for norm in (m for m in model.modules() if isinstance(m, NORMS)):
        norm.running_mean = norm.running_mean.clone()


def with_new_parameters(model, batches):
    recompute(model, batches)
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (recompute, None),
        (only_the_norms, None),
        (lambda m, b: recompute(m, (x for x in b)), None),
        (with_new_buffers, None),
        (with_new_parameters, "the parameter 0.weight has changed"),
        (lambda m, b: update_bn(b, m), "1 had training=False"),
        (starter, "1.running_mean is not the average over the batches"),
        (lambda m, b: recompute(m, b, reset=False), "1.running_mean is not the average"),
        (lambda m, b: recompute(m, b, momentum=0.1), "1.running_mean is not the average"),
        (lambda m, b: recompute(m, b, train=False), "1.running_mean is not the average"),
        (lambda m, b: recompute(m, b[:-1]), "1.running_mean is not the average"),
        (with_biased_variance, "1.running_var is not the average"),
        (lambda m, b: recompute(m, b, restore=False), "a setting of 1 of model"),
        (lambda m, b: recompute(m, b, back=False), "the model had training=False"),
        (lambda m, b: recompute(m, b) or m.eval(), "the model had training=True"),
        (and_trained, "the parameter 0.weight has changed"),
        (and_frozen, "requires_grad of 0.weight"),
        (and_backward, "the gradient of 0.weight"),
        (and_seeded, "the random state of torch was changed"),
        (lambda m, b: ..., "1.running_mean is not the average"),
        (without_3d, "5.3.running_mean is not the average"),
        (first_level_only, "5.1.running_mean is not the average"),
    ],
)
def test_check_recompute_returns_the_expected_verdict(answer, says):
    expect(exercises.check_recompute(answer), says)


def merge(means, variances, counts):
    share = (counts.to(means) / counts.sum())[:, None]
    mean = (share * means).sum(0)
    return mean, (share * (variances + (means - mean) ** 2)).sum(0)


def merge_by_squares(means, variances, counts):
    share = (counts.to(means) / counts.sum())[:, None]
    mean, square = (share * means).sum(0), (share * (variances + means**2)).sum(0)
    return mean, square - mean**2


def merge_pairwise(means, variances, counts):
    mean, square, n = means[0], variances[0] * counts[0], counts[0]
    for m, v, c in zip(means[1:], variances[1:], counts[1:], strict=True):
        delta, total = m - mean, n + c
        mean = mean + delta * c / total
        square, n = square + v * c + delta**2 * n * c / total, total
    return mean, square / n


def shares_in_float32(means, variances, counts):
    mean, variance = merge(means, variances, counts / counts.sum())
    return mean.to(means), variance.to(means)


def mean_of_halves(means, variances, counts):
    mean, variance = merge(means, variances, counts)
    return (mean.half().float() if mean.dtype == torch.float else mean), variance


def unbiased(means, variances, counts):
    mean, variance = merge(means, variances, counts)
    return mean, variance * counts.sum() / (counts.sum() - 1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (merge, None),
        (merge_pairwise, None),
        (lambda m, v, c: list(merge(m, v, c)), None),
        (lambda m, v, c: torch.stack(merge(m, v, c)).unbind(), None),
        (merge_by_squares, "two large squares were subtracted"),
        (shares_in_float32, "a mean with the digits of float32"),
        (lambda m, v, c: [t.float() for t in merge(m, v, c)], "give a mean of torch.float32"),
        (lambda m, v, c: merge(m.double(), v.double(), c), "give a mean of torch.float64"),
        (lambda m, v, c: (merge(m, v, c)[0], merge(m, v, c)[1].float().double()), "a variance wi"),
        (mean_of_halves, "near 30000: the mean is not"),
        (lambda m, v, c: (m.mean(0), v.mean(0)), "the shards have different sizes"),
        (lambda m, v, c: (merge(m, v, c)[0], v.mean(0)), "the variance is too small"),
        (lambda m, v, c: (merge(m, v, c)[0], 2 * merge(m, v, c)[1]), "not that of the whole"),
        (unbiased, "that is the unbiased variance"),
        (lambda m, v, c: (m, v), "one number per channel, got (4, 3)"),
        (lambda m, v, c: merge(m, v, c)[0], "return two tensors"),
        (lambda m, v, c: None, "return two tensors"),
    ],
)
def test_check_merge_returns_the_expected_verdict(answer, says):
    expect(exercises.check_merge(answer), says)


KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def initialize(model, kinds=KINDS, fill=nn.init.kaiming_normal_, bias=nn.init.zeros_, **how):
    for layer in model.modules():
        if isinstance(layer, kinds):
            with torch.no_grad():
                weight = fill(layer.weight.clone(), **how)
                if hasattr(layer, "parametrizations"):
                    layer.weight = weight
                else:
                    layer.weight.copy_(weight)
            if layer.bias is not None:
                bias(layer.bias)


def exact_types(model):
    subclass = nn.modules.linear.NonDynamicallyQuantizableLinear
    initialize(nn.ModuleList([layer for layer in model if type(layer) is not subclass]))


def by_randn(weight):
    return torch.randn_like(weight) * (2 / weight[0].numel()) ** 0.5


def shifted(weight):
    return by_randn(weight) + 1


def laplace(weight):
    draw = torch.distributions.Laplace(0, weight[0].numel() ** -0.5)
    return draw.sample(weight.shape)


def first_level(model):
    for layer in model.children():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)


def new_objects(model):
    for layer in model.modules():
        if isinstance(layer, KINDS) and not hasattr(layer, "parametrizations"):
            layer.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty_like(layer.weight)))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def without_a_check(model):
    for layer in model.modules():
        if isinstance(layer, KINDS):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)


def in_place(model):
    for layer in model.modules():
        if isinstance(layer, KINDS):
            nn.init.kaiming_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def frozen(model):
    initialize(model)
    model.requires_grad_(False)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (initialize, None),
        (lambda m: m.apply(lambda layer: initialize(nn.ModuleList([layer]))), None),
        (lambda m: initialize(m, fill=shifted), "not drawn from a normal"),
        (lambda m: initialize(m, fill=laplace), "not drawn from a normal"),
        (lambda m: initialize(m, fill=by_randn), None),
        (
            lambda m: initialize(m) or nn.init.kaiming_normal_(m[8].weight, mode="fan_out"),
            "8.weight of ConvTranspose2d has changed",
        ),
        (first_level, "layer 1.2.0, Conv1d: std is 0.4 times"),
        (lambda m: initialize(m, (nn.Linear, nn.Conv2d)), "layer 1.2.0, Conv1d"),
        (lambda m: initialize(m, (nn.Linear, nn.Conv1d, nn.Conv2d)), "layer 5, Conv3d"),
        (exact_types, "layer 9, NonDynamicallyQuantizableLinear: std is 0.4 times"),
        (lambda m: initialize(m, mode="fan_out"), "layer 0, Conv2d: std is 0.7 times"),
        (lambda m: initialize(m, fill=nn.init.xavier_normal_), "layer 0, Conv2d: std is 0.6"),
        (lambda m: initialize(m, fill=nn.init.kaiming_uniform_), "not drawn from a normal"),
        (lambda m: initialize(m, bias=nn.init.ones_), "layer 0, Conv2d: the bias is not zero"),
        (lambda m: initialize(m, (*KINDS, nn.Embedding)), "raised AttributeError"),
        (lambda m: initialize(m) or nn.init.normal_(m[4].weight), "4.weight of Embedding"),
        (lambda m: initialize(m) or nn.init.ones_(m[1][0].weight), "1.0.weight of BatchNorm2d"),
        (lambda m: initialize(m) or new_objects(m), "0.weight is a new object"),
        (without_a_check, "raised AttributeError"),
        (in_place, "layer 7, ParametrizedLinear: std is 0.4 times"),
        (frozen, "0.weight can no longer be trained"),
        (lambda m: None, "layer 0, Conv2d: std is 0.4 times"),
    ],
)
def test_check_init_returns_the_expected_verdict(answer, says):
    expect(exercises.check_init(answer), says)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize("training", [True, False])
def test_single_value_groupnorm_raises_only_for_batch_size_one(training):
    norm = nn.GroupNorm(8, 8).train(training)
    assert norm(torch.randn(2, 8, 1, 1)).abs().max() < 1e-3
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        norm(torch.randn(1, 8, 1, 1))


@pytest.mark.parametrize("stepped", [True, False])
def test_training_recovers_from_nan_only_without_a_step(stepped):
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    bad = torch.randn(8, 2)
    bad[0, 0] = math.nan
    net(bad).mean().backward()
    if stepped:
        optimizer.step()
    assert bool(net(torch.randn(8, 2)).isnan().any()) == stepped
    assert net[1].running_mean.isnan().any()


@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_batchnorm_running_statistics_keep_nan(momentum):
    norm = nn.BatchNorm1d(1, momentum=momentum)
    for batch in (torch.tensor([[math.nan], [1.0]]), *torch.randn(5, 4, 1)):
        norm(batch)
    assert norm.running_mean.isnan() and norm.running_var.isnan()


def test_syncbatchnorm_raises_on_cpu_only_in_training():
    norm, x = nn.SyncBatchNorm(3), torch.randn(8, 3)
    with distributed.alone():
        assert norm.eval()(x).shape == x.shape
        with pytest.raises(ValueError, match="to be on GPU"):
            norm.train()(x)


def test_convert_sync_batchnorm_drops_hooks():
    net, ran = nn.Sequential(nn.BatchNorm1d(2)), []
    net[0].register_forward_hook(lambda *_: ran.append(1))
    nn.SyncBatchNorm.convert_sync_batchnorm(net)(torch.randn(4, 2))
    assert ran == []


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_transposed_convolution_fan_in_shrinks_by_stride_and_groups(stride, groups):
    layer = nn.ConvTranspose2d(64, 64, 4, stride, groups=groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    power = layer(torch.randn(4, 64, 20, 20).relu())[..., 8:-8, 8:-8].square().mean().item()
    assert abs(power * stride**2 * groups - 1) < 0.25


def test_groupnorm_weights_are_per_channel():
    assert nn.GroupNorm(1, 8).weight.shape == (8,)
    assert nn.LayerNorm([8, 5, 5]).weight.shape == (8, 5, 5)


def test_moving_keeps_the_random_state():
    net, state = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()), torch.get_rng_state()
    assert normalization.moving(net, torch.arange(12.0).view(4, 3))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("how", ["filled", "added", "emptied", "deleted"])
def test_moving_reports_added_and_removed_buffers(how):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(2))
            self.register_buffer("cache", None if how == "filled" else torch.zeros(2))

        def forward(self, x):
            if how == "filled":
                self.cache = x
            elif how == "added":
                self.register_buffer("new", x)
            elif how == "emptied":
                self.cache = None
            else:
                del self.cache
            return x

    net = Net()
    before = dict(net._buffers)
    changed = normalization.moving(net, torch.ones(2))
    assert changed == ["new" if how == "added" else "cache"]
    assert {name: id(b) for name, b in net._buffers.items()} == {
        n: id(b) for n, b in before.items()
    }


@pytest.mark.parametrize("kind", [dict, tuple])
def test_moving_accepts_dict_and_tuple_batches(kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, batch):
            return self.norm(batch["x"] if isinstance(batch, dict) else batch[0])

    x = torch.randn(4, 2)
    batch = {"x": x} if kind is dict else (x, x)
    assert "norm.running_mean" in normalization.moving(Net(), batch)
