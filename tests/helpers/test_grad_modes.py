"""Test the helpers of `grad_modes` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import autograd, grad_modes
from helpers.demos import grad_modes as demos
from helpers.exercises import grad_modes as exercises
from helpers.timing import time_ratio

# ---------------------------------------------------------------- effects of a forward pass


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize(
    ("layer", "drops", "moves"),
    [(nn.Identity(), False, False), (nn.Dropout(), True, False), (nn.BatchNorm1d(4), False, True)],
    ids=["nothing", "dropout", "batchnorm"],
)
def test_effects_matches_each_layer_in_each_mode(training, record, layer, drops, moves):
    net = nn.Sequential(nn.Linear(4, 4), layer).train(training)
    with torch.set_grad_enabled(record):
        found = grad_modes.effects(net, torch.randn(32, 4))
    assert found == {
        "dropout": training and drops,
        "statistics": training and moves,
        "graph": record,
    }


def test_effects_restores_buffers():
    net = nn.BatchNorm1d(4)
    before = {name: b.clone() for name, b in net.named_buffers()}
    assert grad_modes.effects(net, torch.randn(8, 4))["statistics"]
    assert all(torch.equal(b, before[name]) for name, b in net.named_buffers())
    with pytest.raises(RuntimeError):
        grad_modes.effects(nn.Sequential(net, nn.Linear(3, 3)), torch.randn(8, 4))
    assert all(torch.equal(b, before[name]) for name, b in net.named_buffers())


class Propagate(nn.Module):
    """Multiply by a sparse buffer like a graph layer; autograd saves the buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("matrix", torch.eye(4).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.matrix, self.linear(x)).relu()


def test_effects_and_saved_bytes_accept_sparse_buffers():
    found = grad_modes.effects(Propagate(), torch.randn(4, 3))
    assert found == {"dropout": False, "statistics": False, "graph": True}
    assert grad_modes.saved_bytes(Propagate(), torch.randn(4, 3)) == 4 * 2 * 4  # of the ReLU


def test_effects_reports_and_restores_a_filled_buffer():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", None)

        def forward(self, x):
            self.cache = x
            return x

    net = Cached()
    assert grad_modes.effects(net, torch.ones(2))["statistics"]
    assert net._buffers == {"cache": None}


def test_effects_reports_no_graph_in_inference_mode():
    with torch.inference_mode():
        assert not grad_modes.effects(nn.Linear(2, 2), torch.ones(1, 2))["graph"]


def test_effects_reports_no_graph_for_a_frozen_network():
    net = nn.Linear(2, 2).requires_grad_(False)
    assert not grad_modes.effects(net, torch.ones(1, 2))["graph"]


def test_effects_treats_equal_nans_as_equal():
    class Nan(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = nn.Buffer(torch.full((2,), torch.nan))

        def forward(self, x):
            return x * torch.nan

    assert grad_modes.effects(Nan(), torch.ones(2, requires_grad=True)) == {
        "dropout": False,
        "statistics": False,
        "graph": True,
    }


# ---------------------------------------------------------------- inference tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_uses_returns_false_only_for_inference_tensors(dtype, shape):
    with torch.no_grad():
        quiet = torch.ones(shape, dtype=dtype)
    with torch.inference_mode():
        inference = torch.ones(shape, dtype=dtype)
        inside = demos.uses(inference)  # the result must not depend on the mode
    assert all(demos.uses(quiet).values())
    found = demos.uses(inference)
    assert [use for use, works in found.items() if works] == ["add it to a parameter"]
    assert inside == found
    assert all(demos.uses(inference.clone()).values())
    assert torch.equal(quiet, torch.ones(shape, dtype=dtype))


def test_uses_keeps_requires_grad():
    tensor = torch.ones(2)
    demos.uses(tensor)
    assert not tensor.requires_grad


# ---------------------------------------------------------------- memory


@settings(max_examples=30, deadline=None)
@given(depth=st.integers(1, 6), batch=st.integers(1, 20), width=st.integers(1, 20))
def test_memory_by_mode_counts_activations_per_block(depth, batch, width):
    one = batch * width * 4
    assert demos.memory_by_mode(depth, batch, width) == {
        "train()": (3 * depth - 1) * one,
        "eval()": depth * one,
        "no_grad()": 0,
        "inference_mode()": 0,
    }
    assert torch.is_grad_enabled()


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 9), features=st.integers(1, 9), out=st.integers(1, 9))
def test_saved_bytes_matches_a_manual_count(n, features, out):
    x = torch.randn(n, features)
    linear = nn.Linear(features, out)
    assert grad_modes.saved_bytes(linear, x) == 0  # saves x, which exists anyway
    sigmoids = nn.Sequential(linear, nn.Sigmoid(), nn.Sigmoid())
    assert grad_modes.saved_bytes(sigmoids, x) == 2 * n * out * 4  # each saves its output
    shared = nn.Sequential(linear, nn.Sigmoid(), nn.Linear(out, 1))
    assert grad_modes.saved_bytes(shared, x) == n * out * 4  # saved by both, counted once
    assert grad_modes.saved_bytes(sigmoids.double(), x.double()) == 2 * n * out * 8


def test_saved_bytes_counts_the_whole_storage_of_a_view():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, x):
            return self.linear(x)[:, :2].square()

    assert grad_modes.saved_bytes(Half(), torch.ones(5, 3)) == 5 * 4 * 4


def test_saved_bytes_ignores_buffers_and_accepts_meta_tensors():
    x = torch.ones(8, 3, device="meta")
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh()).to("meta")
    assert grad_modes.saved_bytes(net, x) == 8 * 5 * 4
    norm = nn.BatchNorm1d(3).eval()  # saves its running mean
    assert grad_modes.saved_bytes(norm, torch.ones(8, 3)) == 0


def test_watch_saved_excludes_buffers_on_cpu_and_meta():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Buffer(torch.full((3,), 2.0))

        def forward(self, x):
            return x * self.scale  # saves the buffer

    for device in ("cpu", "meta"):
        model, x = Scale().to(device), torch.ones(8, 3, device=device, requires_grad=True)
        with autograd.watch_saved() as alive:
            y = model(x).exp()  # saves its result
        assert alive.bytes(but=model) == 8 * 3 * 4
        assert alive.bytes() == 8 * 3 * 4 + 3 * 4
        del y
        assert alive.bytes() == 0


def test_tower_and_memory_by_mode_require_positive_sizes():
    assert len(demos.tower(2, 3)) == 6
    assert demos.tower(2, 3)(torch.ones(4, 3)).shape == (4, 3)
    for depth, width in ((0, 1), (1, 0), (-1, 3)):
        with pytest.raises(ValueError, match=f"positive depth and width, got {depth} and {width}"):
            demos.tower(depth, width)
    with pytest.raises(ValueError, match="positive batch size, got 0"):
        demos.memory_by_mode(1, 0)


def test_memory_figure_plots_the_counts():
    figure = demos.memory_figure(depths=(1, 3), batches=(2, 4))
    left, right = figure.axes
    for axis, cases in ((left, [(1, 64), (3, 64)]), (right, [(8, 2), (8, 4)])):
        lines = {line.get_label(): line for line in axis.lines}
        assert list(lines) == list(demos.MODES)
        for mode, line in lines.items():
            expected = [demos.memory_by_mode(d, b)[mode] / 2**20 for d, b in cases]
            assert list(line.get_ydata()) == expected
    assert list(left.lines[0].get_xdata()) == [1, 3]
    assert list(right.lines[0].get_xdata()) == [2, 4]


# ---------------------------------------------------------------- exercises


def restored(net, x):
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        with torch.no_grad():
            return net(x)
    finally:
        for module, training in modes.items():
            module.training = training


@torch.inference_mode()
def on_a_copy(net, x):
    import copy

    return copy.deepcopy(net).eval()(x)


def only_no_grad(net, x):
    with torch.no_grad():
        return net(x)


def stays_in_eval(net, x):
    with torch.no_grad():
        return net.eval()(x)


def train_for_all(net, x):
    net.eval()
    try:
        with torch.no_grad():
            return net(x)
    finally:
        net.train()


def one_flag(net, x):
    training = net.training
    net.eval()
    try:
        with torch.no_grad():
            return net(x)
    finally:
        net.train(training)


def not_after_an_error(net, x):
    modes = {module: module.training for module in net.modules()}
    net.eval()
    with torch.no_grad():
        out = net(x)
    for module, training in modes.items():
        module.training = training
    return out


def with_a_graph(net, x):
    modes = {module: module.training for module in net.modules()}
    out = net.eval()(x)
    for module, training in modes.items():
        module.training = training
    return out


def switched_off(net, x):
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        torch.set_grad_enabled(False)
        out = net(x)
        torch.set_grad_enabled(True)
        return out
    finally:
        for module, training in modes.items():
            module.training = training


def enables_grad_afterwards(net, x):
    torch.set_grad_enabled(False)
    try:
        return on_a_copy(net, x)
    finally:
        torch.set_grad_enabled(True)


def train_then_eval(net, x):
    still = [module for module in net.modules() if not module.training]
    net.eval()
    try:
        with torch.no_grad():
            return net(x)
    finally:
        net.train()
        for module in still:
            module.eval()


def one_mode_per_class(net, x):
    modes = {type(module): module.training for module in net.modules()}
    net.eval()
    try:
        with torch.no_grad():
            return net(x)
    finally:
        for module in net.modules():
            module.training = modes[type(module)]


PREDICT = [
    (one_mode_per_class, "in eval mode before is now in train mode"),
    (train_then_eval, "in train mode inside of a net in eval mode"),
    (restored, None),
    (enables_grad_afterwards, "the caller had switched gradients off"),
    (on_a_copy, None),
    (lambda net, x: torch.manual_seed(0) and on_a_copy(net, x), "the state of torch has changed"),
    (lambda net, x: None, "expected a tensor, got None"),
    (lambda net, x: x, "expected shape (n, 2)"),
    (only_no_grad, "not the output in eval mode"),
    (with_a_graph, "the output still has a graph"),
    (lambda net, x: with_a_graph(net, x).detach(), "built and then discarded"),
    (stays_in_eval, "the net stays in eval mode"),
    (one_flag, "in eval mode before is now in train mode"),
    (train_for_all, "in eval mode before is now in train mode"),
    (not_after_an_error, "after an error, the net stays in eval mode"),
    (switched_off, "after an error in the net, gradients stay off"),
]


@pytest.mark.parametrize(("answer", "says"), PREDICT)
def test_check_predict_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_predict, answer, says)


def train_when_done(net, x):
    try:
        return on_a_copy(net, x)
    finally:
        if not any(m.training for m in net.modules()):
            net.train()


def test_check_predict_reports_train_mode_after_eval_mode():
    assert_verdict(exercises.check_predict, train_when_done, "a net in eval mode was set to train")


def shares(values, dtype):
    return values.detach().to(dtype).requires_grad_()


def flags_the_source(values, dtype):
    if not values.requires_grad and values.is_floating_point():
        values.requires_grad_()
    return values.detach().to(dtype, copy=True).requires_grad_()


TRAINABLE = [
    (lambda v, dtype: v.detach().to(dtype, copy=True).requires_grad_(), None),
    (lambda v, dtype: nn.Parameter(v.detach().clone().to(dtype)), None),
    (lambda v, dtype: None, "expected a tensor, got None"),
    (lambda v, dtype: v.detach().clone().float().requires_grad_(), "expected torch.float64"),
    (lambda v, dtype: torch.zeros_like(v, dtype=dtype), "the values are not the same"),
    (lambda v, dtype: v.detach().to(dtype, copy=True), "does not require a gradient"),
    (lambda v, dtype: v.to(dtype).requires_grad_(), "a parameter: the result is not a leaf"),
    (
        lambda v, dtype: v.clone().to(dtype).requires_grad_(),
        "a parameter: the result is not a leaf",
    ),
    (shares, "training the result changes the source"),
    (lambda v, dtype: nn.Parameter(v.detach().to(dtype)), "training the result changes"),
    (
        lambda v, dtype: torch.empty_like(v, dtype=dtype).copy_(v).requires_grad_(),
        "a parameter: the result is not a leaf",
    ),
    (
        lambda v, d: v if v.is_inference() else v.detach().to(d, copy=True).requires_grad_(),
        "for an inference tensor, the result is one too",
    ),
    (
        lambda v, d: v.detach().float().to(d, copy=True).requires_grad_(),
        "float64: the values are not the same",
    ),
    (
        lambda v, d: torch.from_numpy(v.detach().numpy().copy()).to(d).requires_grad_(),
        "unsupported ScalarType BFloat16",
    ),
    (flags_the_source, "the source's requires_grad changed"),
]


@pytest.mark.parametrize(("answer", "says"), TRAINABLE)
def test_check_trainable_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_trainable, answer, says)


def inside(net, batches):
    for x in batches:
        with torch.no_grad():
            y = net(x)
        yield y


@torch.inference_mode()
def decorated(net, batches):
    for x in batches:
        yield net(x)


def paused_inside(net, batches):
    with torch.no_grad():
        for x in batches:
            yield net(x)


def recorded(net, batches):
    for x in batches:
        yield net(x)


def detached(net, batches):
    for x in batches:
        yield net(x).detach()


@torch.no_grad()
def all_at_once(net, batches):
    return [net(x) for x in batches]


def one_behind(net, batches):
    waiting = []
    for y in inside(net, batches):
        yield from waiting
        waiting = [y]
    yield from waiting


def first_only(net, batches):
    with torch.no_grad():
        y = net(next(iter(batches)))
    yield y


def by_hand(net, batches):
    for x in batches:
        torch.set_grad_enabled(False)
        y = net(x)
        torch.set_grad_enabled(True)
        yield y


def off_at_the_end(net, batches):
    yield from inside(net, batches)
    torch.set_grad_enabled(False)


def restores_unless_raised(net, batches):
    for x in batches:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        y = net(x)
        torch.set_grad_enabled(before)
        yield y


def mode_of_the_first_call(net, batches):
    before = torch.is_grad_enabled()
    for x in batches:
        torch.set_grad_enabled(False)
        try:
            y = net(x)
        finally:
            torch.set_grad_enabled(before)
        yield y


STREAM = [
    (mode_of_the_first_call, "the next output changes it back"),
    (inside, None),
    (restores_unless_raised, "after an error in the net, gradients stay off"),
    (decorated, None),
    (lambda net, batches: map(torch.no_grad()(net), batches), None),
    (paused_inside, "between two outputs, gradients are off"),
    (recorded, "the outputs still have a graph"),
    (detached, "built and then discarded"),
    (all_at_once, "all batches are read before the first output"),
    (one_behind, "the next batch is read before an output"),
    (first_only, "outputs for as many batches, got 1"),
    (by_hand, "the caller had switched gradients off, and they are on"),
    (off_at_the_end, "gradients stay switched off"),
    (lambda net, batches: (x for x in batches), "expected shape"),
    (lambda net, batches: [None for _ in batches], "expected a tensor, got None"),
    (lambda net, batches: None, "your code raised TypeError"),
]


@pytest.mark.parametrize(("answer", "says"), STREAM)
def test_check_stream_returns_the_expected_verdict(answer, says):
    assert_verdict(exercises.check_stream, answer, says)


def assert_verdict(check, answer, says):
    """Assert the same verdict in both grad modes, and that the mode is kept."""
    for record in (True, False):
        with torch.set_grad_enabled(record):
            verdict = check(answer)
            assert torch.is_grad_enabled() == record
        expect(verdict, says)


def test_check_stream_passes_in_another_thread():
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.append(exercises.check_stream(inside)))
    thread.start()
    thread.join()
    assert [v.passed for v in verdicts] == [True]


# ---------------------------------------------------------------- sentences of the chapter


def test_views_of_a_small_tensor_are_faster_under_inference_mode():
    def chain(mode):
        with mode():
            x = torch.ones(8)
            for _ in range(300):
                x = x.view(2, 4).view(8)

    slow, fast = torch.no_grad, torch.inference_mode
    assert time_ratio(lambda: chain(slow), lambda: chain(fast)) > 1.1


@pytest.mark.parametrize("move", [lambda net: net.double(), lambda net: net.to("meta")])
def test_module_parameters_remain_leaves_after_a_move(move):
    net = move(nn.Linear(2, 2))
    assert all(p.is_leaf and p.requires_grad for p in net.parameters())


def test_no_grad_makes_new_tensors_leaves_and_keeps_edited_graphs():
    w = torch.ones(2, requires_grad=True)
    h, whole = w * 2, w * 2
    with torch.no_grad():
        new, view = whole * 2, whole.view(2, 1)
        h.mul_(2)
    assert new.is_leaf and view.is_leaf and new.grad_fn is view.grad_fn is None
    assert not h.is_leaf and h.grad_fn is not None


def test_inference_mode_parameters_raise_when_saved_for_backward():
    with torch.inference_mode():
        one, two = nn.Linear(3, 1), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    one(torch.ones(8, 3)).sum().backward()
    assert one.weight.grad is None and one.bias.grad is not None
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        two(torch.ones(8, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_effects_accepts_networks_with_several_outputs(dtype):
    x = torch.randn(4, 2, 3, dtype=dtype)
    lstm = nn.LSTM(3, 2, 2, dropout=0.5).to(dtype)
    assert grad_modes.effects(lstm, x) == {"dropout": True, "statistics": False, "graph": True}
    with torch.no_grad():
        effects = grad_modes.effects(lstm.eval(), x)
    assert not any(effects.values())


def test_effects_requires_tensors():
    class Text(nn.Module):
        def forward(self, x):
            return "text"

    with pytest.raises(TypeError, match="expected tensors in the output of net, got none"):
        grad_modes.effects(Text(), torch.ones(1))


def test_effects_keeps_the_random_state():
    state = torch.get_rng_state()
    assert grad_modes.effects(nn.Dropout(), torch.ones(20))["dropout"]
    assert torch.equal(torch.get_rng_state(), state)


def test_check_stream_reports_frozen_parameters_between_outputs():
    def frozen(net, batches):
        net.requires_grad_(False)
        for x in batches:
            yield net(x)
        net.requires_grad_(True)

    verdict = exercises.check_stream(frozen)
    assert not verdict.passed and "requires_grad of" in verdict.message, verdict
