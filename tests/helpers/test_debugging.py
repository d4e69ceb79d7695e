"""Test the helpers, checkers and statements of `debugging` against PyTorch."""

from __future__ import annotations

import copy
import math
import threading
from collections import UserDict
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from verdicts import expect

from helpers import debugging
from helpers.exercises import debugging as exercises
from helpers.fake import fake_tensors

X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3


def build(width=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


def snapshot(model, optimizer):
    state = {name: t.clone() for name, t in model.state_dict().items()}
    return state, [p.grad for p in model.parameters()], copy.deepcopy(optimizer.state_dict())


def same(a, b):
    return (
        a[0].keys() == b[0].keys()
        and all(torch.equal(t, b[0][name]) for name, t in a[0].items())
        and all(one is two for one, two in zip(a[1], b[1], strict=True))
        and str(a[2]) == str(b[2])
    )


# ---------------------------------------------------------------- overfit and movement

BATCHES = {
    "tensors": lambda m, data: F.cross_entropy(m(data["x"]), data["y"]),
    "several losses": lambda m, data: m(data["x"]).square().mean() + m(data["x"]).mean(),
}
OPTIMIZERS = {
    "SGD": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda ps: torch.optim.Adam(ps, 0.01),
    "Adagrad": lambda ps: torch.optim.Adagrad(ps, 0.1),
    "LBFGS": lambda ps: torch.optim.LBFGS(ps, 0.5, max_iter=3),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("warm", [False, True])
def test_overfit_and_movement_restore_all_state(kind, warm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = OPTIMIZERS[kind](model.parameters())

    def loss():
        return F.cross_entropy(model(X), Y)

    loss().backward()
    if warm:
        debugging._step(loss, optimizer)
    before, drawn = snapshot(model, optimizer), torch.get_rng_state()
    losses = debugging.overfit(model, loss, optimizer, steps=5)
    debugging.movement(model, loss, optimizer)
    assert len(losses) == 5 and losses[-1] < losses[0] * 1.2
    assert same(before, snapshot(model, optimizer)) and torch.equal(drawn, torch.get_rng_state())


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_overfit_losses_match_the_plain_loop(kind):
    def loop(model):
        optimizer, losses = OPTIMIZERS[kind](model.parameters()), []
        for _ in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            losses.append(loss.item())
            loss.backward()

            def again():
                optimizer.zero_grad()
                value = F.cross_entropy(model(X), Y)
                value.backward()
                return value

            optimizer.step(again if kind == "LBFGS" else None)
        return losses

    model = build()
    optimizer = OPTIMIZERS[kind](model.parameters())
    found = debugging.overfit(model, lambda: F.cross_entropy(model(X), Y), optimizer, 6)
    assert found == pytest.approx(loop(build()))


def test_failing_loss_keeps_all_state():
    model, calls = build(), []
    optimizer = torch.optim.Adam(model.parameters())

    def loss():
        calls.append(1)
        if len(calls) == 3:
            raise KeyError("label")
        return model(X).mean()

    before = snapshot(model, optimizer)
    with pytest.raises(KeyError):
        debugging.overfit(model, loss, optimizer)
    assert same(before, snapshot(model, optimizer))


@pytest.mark.parametrize("wrong", [lambda: X, lambda: 0.5, lambda: (X.mean(), X)])
def test_loss_must_return_one_number(wrong):
    model = build()
    with pytest.raises(ValueError, match="must return one number"):
        debugging.overfit(model, wrong, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(ValueError, match="at least 1"):
        debugging.overfit(model, wrong, torch.optim.SGD(model.parameters(), 0.1), steps=0)


class Parts(nn.Module):
    """Map a dictionary to a tuple, with one layer for each reason why a weight stays unchanged."""

    def __init__(self):
        super().__init__()
        names = ("learns", "frozen", "detached", "dead", "forgotten", "still", "unused")
        for name in names:
            setattr(self, name, nn.Linear(4, 4))
        self.frozen.requires_grad_(False)
        nn.init.constant_(self.dead.bias, -1000.0)

    def forward(self, batch):
        x = batch["x"]
        parts = [self.learns(x), self.frozen(x), self.detached(x).detach(), self.dead(x).relu()]
        parts += [self.forgotten(x), self.still(x)]
        return sum(parts), {"extra": parts[0]}


def parts_and_optimizer(kind=torch.optim.SGD, **options):
    torch.manual_seed(0)
    model = Parts()
    rates = [("learns", 0.1), ("frozen", 0.1), ("detached", 0.1), ("dead", 0.1), ("still", 0.0)]
    groups = [{"params": getattr(model, n).parameters(), "lr": rate} for n, rate in rates]
    groups.append({"params": model.unused.parameters(), "lr": 0.1})
    return model, kind(groups, **options), lambda: model({"x": X})[0].square().mean()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_movement_reports_each_reason_to_stay(kind):
    model, optimizer, loss = parts_and_optimizer(kind)
    found = dict(debugging.movement(model, loss, optimizer))
    assert list(found) == [name for name, _ in model.named_parameters()]
    for weight in ("weight", "bias"):
        assert found[f"learns.{weight}"].startswith("moves by")
        assert found[f"frozen.{weight}"] == "frozen"
        assert found[f"detached.{weight}"] == found[f"unused.{weight}"] == "no gradient"
        assert found[f"dead.{weight}"] == "gradient is 0"
        assert found[f"forgotten.{weight}"] == "not in the optimizer"
        assert found[f"still.{weight}"] == "learning rate is 0"


def test_movement_reports_missing_gradients_and_frozen_models():
    model = build()
    optimizer = torch.optim.LBFGS(model.parameters())
    found = debugging.movement(model, lambda: model(X).detach().mean(), optimizer)
    assert set(found.values()) == {"no gradient"}
    found = debugging.movement(model.requires_grad_(False), lambda: model(X).mean(), optimizer)
    assert set(found.values()) == {"frozen"}


def test_weight_decay_moves_parameters_with_zero_gradients():
    model, optimizer, loss = parts_and_optimizer(weight_decay=0.5)
    found = debugging.movement(model, loss, optimizer)
    assert found["dead.weight"] == "moves by 5 %, gradient is 0"


@given(st.floats(0.001, 1), st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_reported_share_equals_the_ratio_of_norms(rate, seed):
    torch.manual_seed(seed)
    layer = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(layer.parameters(), rate)
    found = debugging.movement(layer, lambda: layer(X[:, :3]).square().sum(), optimizer)
    layer(X[:, :3]).square().sum().backward()
    for name, p in layer.named_parameters():
        share = 100 * rate * p.grad.norm() / p.detach().norm()
        assert float(found[name].split()[2]) == pytest.approx(share.item(), rel=0.06)


def test_movement_reports_nan_inf_and_zero_starts():
    layer = nn.Linear(4, 2)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    found = debugging.movement(layer, lambda: layer(X).square().sum(), optimizer)
    assert found["bias"] == "moves away from 0"
    found = debugging.movement(layer, lambda: (layer(X) - layer(X)).norm() * math.nan, optimizer)
    assert set(found.values()) == {"gradient is nan or inf"}
    optimizer.param_groups[0]["lr"] = math.inf
    found = debugging.movement(layer, lambda: layer(X).square().sum(), optimizer)
    assert set(found.values()) == {"becomes nan or inf"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_movement_reports_steps_that_are_rounded_away(dtype):
    weight = nn.Parameter(torch.ones(3, dtype=dtype))
    model = nn.ParameterDict({"w": weight})
    optimizer = torch.optim.SGD([weight], 1e-4)
    assert debugging.movement(model, lambda: weight.sum(), optimizer)["w"] == (
        "step is rounded away"
    )
    model, optimizer = model.float(), torch.optim.SGD(model.parameters(), 1e-4)
    assert debugging.movement(model, lambda: model["w"].sum(), optimizer)["w"] == "moves by 0.01 %"


def test_movement_supports_lazy_shared_sparse_and_complex_parameters():
    lazy = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(lazy.parameters(), 0.1)
    found = debugging.movement(lazy, lambda: lazy(X).square().mean(), optimizer)
    assert list(found) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert all(p.grad is None for p in lazy.parameters())

    tied = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    tied[1].weight = tied[0].weight
    optimizer = torch.optim.SGD(tied.parameters(), 0.1)
    found = debugging.movement(tied, lambda: tied(torch.tensor([1])).square().mean(), optimizer)
    assert list(found) == ["0.weight"]

    table = nn.Embedding(5, 4, sparse=True)
    for kind in (torch.optim.SGD, torch.optim.SparseAdam):
        optimizer = kind(table.parameters(), 0.1)
        found = debugging.movement(table, lambda: table(torch.tensor([1])).sum(), optimizer)
        assert found["weight"].startswith("moves by")

    wave = nn.ParameterDict({"w": nn.Parameter(torch.tensor([1j, 2j]))})
    optimizer = torch.optim.SGD(wave.parameters(), 0.1)
    found = debugging.movement(wave, lambda: wave["w"].abs().sum(), optimizer)
    assert found["w"] == "moves by 6.3 %"


def test_buffer_replaced_in_forward_is_restored():
    class Counts(nn.Linear):
        def __init__(self):
            super().__init__(4, 1)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls = self.calls + 1
            return super().forward(x)

    model = Counts()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    debugging.overfit(model, lambda: model(X).mean(), optimizer, 3)
    assert model.calls == 0


def test_state_in_another_dtype_and_groups_are_restored():
    class Master(torch.optim.Optimizer):  # has float32 copies and no learning rate
        @torch.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                own = self.state[p]
                own.setdefault("master", p.float().clone())
                own["master"] -= 0.1 * p.grad.float()
                p.copy_(own["master"])

    model = nn.Linear(4, 3, bias=False).bfloat16()
    optimizer = Master(model.parameters(), {})

    def loss():
        return F.cross_entropy(model(X.bfloat16()), Y)

    loss().backward()
    optimizer.step()
    group, before = optimizer.param_groups[0], optimizer.state[model.weight]["master"].clone()
    debugging.overfit(model, loss, optimizer, 3)
    assert debugging.movement(model, loss, optimizer)["weight"].startswith("moves by")
    after = optimizer.state[model.weight]["master"]
    assert after.dtype == torch.float32 and torch.equal(after, before)
    assert optimizer.param_groups[0] is group


@given(st.floats(1e-3, 1), st.integers(0, 99))
@settings(deadline=None, max_examples=10)
def test_first_step_of_adam_moves_by_the_learning_rate(rate, seed):
    torch.manual_seed(seed)
    layer = nn.Linear(4, 3)
    before = layer.weight.detach().clone()
    F.cross_entropy(layer(X), Y).backward()
    torch.optim.Adam(layer.parameters(), rate).step()
    torch.testing.assert_close(
        (layer.weight.detach() - before).abs(), torch.full((3, 4), rate), rtol=0.01, atol=1e-6
    )


# ---------------------------------------------------------------- neighbours


@given(st.integers(1, 6), st.integers(0, 5))
@settings(deadline=None, max_examples=20)
def test_neighbours_of_a_samplewise_model_is_the_sample_itself(n, sample):
    sample %= n
    torch.manual_seed(n)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    assert debugging.neighbours(model, torch.randn(n, 4), sample) == [sample]


def test_neighbours_returns_the_samples_that_are_mixed():
    x, norm = torch.randn(4, 6), nn.BatchNorm1d(6)
    everyone = list(range(4))
    before = copy.deepcopy(norm.state_dict())
    assert debugging.neighbours(norm, x) == everyone
    assert norm.num_batches_tracked == before["num_batches_tracked"] == 0
    assert debugging.neighbours(norm.eval(), x, 2) == [2]
    assert debugging.neighbours(nn.Softmax(0), x, 1) == everyone
    assert debugging.neighbours(nn.Softmax(1), x, 1) == [1]
    assert debugging.neighbours(lambda x: x.roll(1, 0), x, 1) == [0]
    assert debugging.neighbours(lambda x: x.view(6, 4).T, x, 0) == everyone
    assert debugging.neighbours(lambda x: x.detach(), x) == []
    assert debugging.neighbours(lambda x: torch.ones(4, 1, requires_grad=True), x) == []
    rnn = nn.LSTM(6, 3)  # without batch_first the first dimension is time
    assert debugging.neighbours(lambda x: rnn(x)[0], torch.randn(4, 5, 6), 2) == [0, 1, 2]
    assert debugging.neighbours(lambda x: rnn(x)[0], torch.randn(4, 5, 6)) == [0, 1, 2, 3]
    with torch.no_grad():
        assert debugging.neighbours(nn.Linear(6, 2).double(), x.double(), 3) == [3]
    dropout = nn.Dropout()
    drawn = torch.get_rng_state()
    debugging.neighbours(dropout, x)
    assert torch.equal(drawn, torch.get_rng_state())


def test_neighbours_supports_in_place_models_and_scalars():
    x = torch.randn(5, 4)
    before = x.clone()
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2))
    nn.init.ones_(model[1].weight)
    assert debugging.neighbours(model, x.fill_(1), 3) == [3]
    assert debugging.neighbours(lambda x: x.mul_(2), before, 1) == [1]
    assert debugging.neighbours(lambda x: x + x.mean(), torch.randn(3), 1) == [0, 1, 2]
    with torch.inference_mode():
        assert debugging.neighbours(model, x, 2) == [2]
        assert debugging.neighbours(model, torch.ones(5, 4), 2) == [2]


def test_neighbours_rejects_integers_and_other_batch_sizes():
    with pytest.raises(ValueError, match="output must be of a floating point type, got torch.int"):
        debugging.neighbours(lambda x: x.argmax(1), torch.randn(4, 3))
    with pytest.raises(ValueError, match="floating point type, got torch.int64"):
        debugging.neighbours(nn.Embedding(4, 2), torch.arange(4))
    for model in (lambda x: (x, x), lambda x: x.sum(), lambda x: x[:2]):
        with pytest.raises(ValueError, match="one output for each of the 4 samples"):
            debugging.neighbours(model, torch.randn(4, 3))


# ---------------------------------------------------------------- broadcasting_lines


@given(st.integers(2, 6), st.integers(2, 6))
@settings(deadline=None, max_examples=15)
def test_broadcasting_lines_reports_lines_that_broadcast_both_sides(n, m):
    column, row = torch.ones(n, 1), torch.ones(m)

    def loss():
        fine = column - torch.ones(n, 1)
        fine = fine + 1 + row.sum()
        table = column - row
        return table.mean() + fine.mean()

    line = "table = column - row"
    assert debugging.broadcasting_lines(loss) == [f"({n}, 1) and ({m},) give ({n}, {m}) in: {line}"]


def test_broadcasting_lines_ignores_one_sided_broadcasts_and_checks_losses():
    x, y = torch.ones(5, 1, requires_grad=True), torch.ones(5)
    rows = torch.ones(5, 3)
    assert debugging.broadcasting_lines(lambda: (rows - torch.ones(3)).mean().item()) == []
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning, match="target size"):
            (line,) = debugging.broadcasting_lines(lambda loss=loss: loss(x, y).backward())
        assert line.startswith("(5, 1) and (5,) give (5, 5) in: (line,) =")


def test_broadcasting_lines_checks_ternary_operations_and_ignores_equal_expands():
    column, row = torch.ones(5, 1), torch.ones(5)
    for function in (
        lambda: torch.where(column > 0, column, row),
        lambda: torch.lerp(column, column, row),
        lambda: column == row,
    ):
        (line,) = debugging.broadcasting_lines(function)
        assert line.startswith("(5, 1) and (5,) give (5, 5)")
    assert debugging.broadcasting_lines(lambda: [t.expand(5, 5) for t in (column, column)]) == []


# ---------------------------------------------------------------- first_nonfinite


def log_of_zero(x):
    shifted = x - x.min()
    logs = shifted.log()
    return (shifted * logs).mean()


def zero_by_zero(x):
    return ((x - x) / (x - x)).mean()


def overflow(x):
    large = x.abs() + 60
    return (large.half() * 2000).mean()


def late(x):
    return (x - x.detach()).square().sum().sqrt()


@pytest.mark.parametrize(
    ("function", "result", "during", "operation", "line"),
    [
        (log_of_zero, "inf", "forward", "aten.log", "logs = shifted.log()"),
        (zero_by_zero, "nan", "forward", "aten.div", "return ((x - x) / (x - x)).mean()"),
        (overflow, "inf", "forward", "aten.mul", "return (large.half() * 2000).mean()"),
        (
            late,
            "inf",
            "backward",
            "aten.div",
            "return (x - x.detach()).square().sum().sqrt()",
        ),
    ],
)
def test_first_nonfinite_reports_the_operation(function, result, during, operation, line):
    x = X.clone().requires_grad_()
    found = debugging.first_nonfinite(lambda: function(x).backward())
    assert (found.value, found.during, found.line) == (result, during, line)
    assert found.operation == operation
    assert debugging.first_nonfinite(lambda: X.exp().sum()) is None


def test_first_nonfinite_ignores_intended_infinities():
    scores = torch.randn(3, 3)
    keep = torch.ones(3, 3, dtype=torch.bool).tril()

    def attend(keep, write):
        masked = write(keep)
        return (masked.softmax(-1) @ scores).sum()

    def fill(keep):
        return scores.masked_fill(~keep, -math.inf)

    def where(keep):
        return torch.where(keep, scores, -math.inf)

    def add(keep):
        return scores + torch.zeros(3, 3).masked_fill_(~keep, -math.inf)

    for write in (fill, where, add):
        assert debugging.first_nonfinite(lambda w=write: attend(keep, w)) is None
        empty = keep.clone()
        empty[0] = False
        found = debugging.first_nonfinite(lambda w=write, k=empty: attend(k, w))
        assert (found.value, found.operation) == ("nan", "aten._softmax")

    def by_log():
        return attend(keep, lambda keep: scores + keep.float().log())

    assert debugging.first_nonfinite(by_log).operation == "aten.log"
    assert debugging.first_nonfinite(by_log, infinities=False) is None


def test_first_nonfinite_reports_inputs_and_weights():
    model, x = build(), X.clone()
    x[2, 1] = math.nan
    found = debugging.first_nonfinite(lambda: model(x).sum(), model)
    assert (found.value, found.during, found.module) == ("nan", "input", "0")
    for bad in (math.nan, math.inf):
        with torch.no_grad():
            model[2].weight[0, 0] = bad
        found = debugging.first_nonfinite(lambda: model(X).sum(), model)
        assert (found.during, found.given) == ("input", "2.weight")


def test_first_nonfinite_reports_modules_in_both_passes():
    class Root(nn.Module):
        def forward(self, x):
            return (x * 0).sum(1, keepdim=True).sqrt()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.root = nn.Linear(4, 4), Root()

        def forward(self, batch):
            return {"out": self.root(self.body(batch["x"])) * 2}

    net = Net()
    found = debugging.first_nonfinite(lambda: net({"x": X})["out"].sum().backward(), net)
    assert (found.during, found.module) == ("backward", "root")
    assert found.line == "return (x * 0).sum(1, keepdim=True).sqrt()"
    net.root = nn.Identity()
    found = debugging.first_nonfinite(lambda: (net({"x": X})["out"] * 0 / 0).sum(), net)
    assert (found.during, found.module) == ("forward", "")
    assert not net._forward_hooks and not net.body._forward_pre_hooks
    assert not torch.is_anomaly_enabled()


def test_first_nonfinite_skips_a_failed_module_after_its_error_is_caught():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError

    class Tries(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Fails()

        def forward(self, x):
            with pytest.raises(ValueError):
                self.inner(x)
            return (x - x).log()

    model = Tries()
    assert debugging.first_nonfinite(lambda: model(X), model).module == "Tries"


def test_first_nonfinite_propagates_errors_without_an_earlier_nan():
    with pytest.raises(KeyError):
        debugging.first_nonfinite(lambda: {}["x"])

    def fails():
        (X * math.inf - X * math.inf).sum()
        (X * 1e38 * 1e38).sum()
        raise KeyError("later")

    assert debugging.first_nonfinite(fails).line == "(X * math.inf - X * math.inf).sum()"
    assert not torch.is_anomaly_enabled()


def test_first_nonfinite_reports_in_place_steps_of_optimizers():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), 1e38)

    def step():
        torch.empty(1000).fill_(0)
        model(X).square().sum().backward()
        optimizer.step()

    found = debugging.first_nonfinite(step, model)
    assert found.value == "inf" and "add" in found.operation


def test_first_nonfinite_ignores_uninitialized_memory():
    torch.use_deterministic_algorithms(True)  # fills uninitialized memory with nan
    try:
        assert torch.empty(3).isnan().all()
        assert debugging.first_nonfinite(lambda: torch.empty(3).fill_(1.0).sum()) is None
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_first_nonfinite_supports_other_dtypes(dtype):
    x = torch.zeros(3, dtype=dtype)
    assert debugging.first_nonfinite(lambda: x / 0).operation == "aten.div"
    assert debugging.first_nonfinite(lambda: x + 1) is None


def test_first_nonfinite_supports_layouts_and_ignores_infinities_in_ctc():
    for make in (
        lambda: torch.ones(3, 3).to_mkldnn().to_dense(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2,
        lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3, 3),
    ):
        assert debugging.first_nonfinite(make) is None

    def ctc(length, *frames):
        scores = torch.randn(5, len(frames), 4, requires_grad=True).log_softmax(2)
        target = torch.ones(len(frames), length, dtype=torch.long)
        lengths = torch.tensor([min(length, n) for n in frames] if len(frames) > 1 else [length])
        F.ctc_loss(scores, target, torch.tensor(frames), lengths).backward()

    assert debugging.first_nonfinite(lambda: ctc(2, 5)) is None
    assert debugging.first_nonfinite(lambda: ctc(4, 5)).operation == "aten._ctc_loss"
    for _ in range(20):  # a sample without frames: numbers in freed memory are not read
        junk = torch.full((2, 5, 5), math.nan)
        del junk
        assert debugging.first_nonfinite(lambda: ctc(2, 5, 0)) is None


def test_first_nonfinite_initializes_lazy_modules():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(1))
    assert debugging.first_nonfinite(lambda: model(X).sum().backward(), model) is None
    other = copy.deepcopy(model)
    assert debugging.first_difference(model, other, X) is None


def test_first_nonfinite_supports_compiled_functions():
    compiled = torch.compile(lambda x: (x - x).log().sum(), backend="eager")
    assert debugging.first_nonfinite(lambda: compiled(X)).operation == "aten.log"


# ---------------------------------------------------------------- first_difference


def test_first_difference_reports_the_changed_module():
    one = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.BatchNorm1d(6), nn.Linear(6, 2))
    one.eval()
    for change, place in (("0", 0), ("2", 2), ("3", 3)):
        two = copy.deepcopy(one)
        with torch.no_grad():
            two[place].bias.add_(0.1)
        found = debugging.first_difference(one, two, X)
        assert (found.module, found.at, found.call) == (change, "output", 0)
        assert found.largest == pytest.approx(0.1, rel=1e-3)
    assert debugging.first_difference(one, copy.deepcopy(one), X) is None


def test_first_difference_supports_float64():
    one = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2)).double()
    two = copy.deepcopy(one)
    with torch.no_grad():
        two[0].bias[0], one[0].bias[0] = -50.0, -10.0  # the ReLU maps both to 0
    found = debugging.first_difference(one, two, X.double())
    assert (found.module, found.largest) == ("0", pytest.approx(40))


def test_first_difference_supports_in_place_compiled_and_complex_models():
    one, two = nn.Linear(4, 2), nn.Linear(4, 2)
    assert debugging.first_difference(one, two, X).module == ""
    assert debugging.first_difference(one, copy.deepcopy(one), X) is None
    x = X.clone()
    writes = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2))
    assert debugging.first_difference(writes, copy.deepcopy(writes), x) is None
    assert torch.equal(x, X)
    compiled = torch.compile(copy.deepcopy(writes), backend="eager")
    assert debugging.first_difference(writes, compiled, x) is None
    with torch.no_grad():
        compiled._orig_mod[1].bias += 1
    assert debugging.first_difference(writes, compiled, x).module == "1"

    class Turn(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.last, self.factor = nn.Identity(), factor

        def forward(self, x):
            return self.last(x * self.factor)

    assert debugging.first_difference(Turn(1j), Turn(1j), X) is None
    assert debugging.first_difference(Turn(1j), Turn(2j), X).at == "input"


def test_first_difference_between_modules_is_reported_as_an_input():
    class Net(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.a, self.b, self.scale = nn.Linear(4, 4), nn.Linear(4, 4), scale

        def forward(self, batch):
            h = self.a(batch["x"]) * self.scale
            return self.b(self.b(h))

    one, two = Net(1.0), Net(1.5)
    two.load_state_dict(one.state_dict())
    found = debugging.first_difference(one, two, {"x": X})
    assert (found.module, found.at, found.call) == ("b", "input", 0)


def test_first_difference_supports_tolerances_modes_names_and_nan():
    one = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(6, 2))
    half = copy.deepcopy(one).bfloat16().eval()
    one.eval()
    assert debugging.first_difference(one, half, X).module == "0"
    assert debugging.first_difference(one, half, X, rtol=3e-2) is None
    train = copy.deepcopy(one).train()
    assert debugging.first_difference(train, copy.deepcopy(train), X) is None  # the same dropout
    assert train[2].num_batches_tracked == 0
    assert debugging.first_difference(one, train, X).module == "1"

    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = copy.deepcopy(one)

        def forward(self, x):
            return self.inner(x)

    with pytest.raises(ValueError, match="no module of the same name"):
        debugging.first_difference(one, Other(), X)
    names = {str(n): f"inner.{n}" for n in range(4)}
    assert debugging.first_difference(one, Other(), X, names=names) is None

    wide = nn.Sequential(nn.Linear(4, 7))
    found = debugging.first_difference(nn.Sequential(nn.Linear(4, 6)), wide, X)
    assert found.largest == math.inf
    x = X.clone()
    x[0, 0] = math.nan
    assert debugging.first_difference(one, copy.deepcopy(one), x) is None


# ---------------------------------------------------------------- census


def test_census_counts_parameters_buffers_attributes_and_batches():
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.LazyLinear(2))
    model[0].bfloat16()
    model[1].scale = torch.ones(2)
    found = debugging.census(model, {"x": X, "y": [Y]})
    assert found["bfloat16 on cpu"] == ["0.weight", "0.bias"]
    assert "1.scale (plain attribute)" in found["float32 on cpu"]
    assert found["int64 on cpu"] == ["1.num_batches_tracked", "[0]['y'][0]"]
    assert {"2.weight", "[0]['x']"} <= {*found["float32 on cpu"]}
    sizes = [len(names) for names in found.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_census_supports_fake_and_meta_tensors():
    with fake_tensors():
        model = nn.Linear(2, 2).to("cuda")
        model.mask = torch.ones(2)
        found = debugging.census(model)
    assert found == {"float32 on cuda:0": ["weight", "bias"], "float32 on cpu": [MASK]}
    assert list(debugging.census(nn.Linear(2, 2, device="meta"))) == ["float32 on meta"]
    batch = UserDict(image=torch.ones(1, dtype=torch.double))  # as a tokenizer returns
    assert debugging.census(nn.ReLU(), batch) == {"float64 on cpu": ["[0]['image']"]}
    nested = debugging.census(nn.ReLU(), [UserDict(views=batch)])
    assert nested == {"float64 on cpu": ["[0][0]['views']['image']"]}
    model = nn.ReLU()
    model.stored = batch
    assert debugging.census(model) == {"float64 on cpu": ["stored['image'] (plain attribute)"]}


MASK = "mask (plain attribute)"


@dataclass
class Batch:
    x: dict
    y: torch.Tensor


def test_census_searches_containers():
    model = nn.Module()
    model.rnn, model.masks, model.by = nn.LSTM(2, 2), [torch.ones(2)], {"k": torch.ones(1)}
    plain = [name for name in debugging.census(model)["float32 on cpu"] if "plain" in name]
    assert plain == ["masks[0] (plain attribute)", "by['k'] (plain attribute)"]
    batch = debugging.census(nn.ReLU(), [Batch({"x": torch.ones(1)}, torch.ones(1).double())])
    assert batch == {"float32 on cpu": ["[0][0]['x']['x']"], "float64 on cpu": ["[0][0]['y']"]}


# ---------------------------------------------------------------- leaks


def stepper(keep):
    model, kept = build(), []
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        hidden = model(X)
        loss = F.cross_entropy(hidden, Y)
        loss.backward()
        optimizer.step()
        keep(kept, hidden, loss)

    return step


@pytest.mark.parametrize(
    ("keep", "lines"),
    [
        (lambda kept, hidden, loss: None, set()),
        (lambda kept, hidden, loss: kept.append(loss.item()), set()),
        (lambda kept, hidden, loss: kept.__setitem__(slice(None), [hidden]), set()),
        (lambda kept, hidden, loss: kept.append(loss), {"loss = F.cross_entropy(hidden, Y)"}),
        (lambda kept, hidden, loss: kept.append(hidden.detach()), {"hidden = model(X)"}),
    ],
)
def test_leaks_reports_tensors_kept_after_each_step(keep, lines):
    assert set(debugging.leaks(stepper(keep))) == lines


def test_leaks_runs_four_rounds_by_default():
    calls = []
    debugging.leaks(lambda: calls.append(1))
    assert len(calls) == 4


def test_random_state_of_all_devices_is_kept(monkeypatch):
    """Record the calls of PyTorch's function, because the machine may lack the devices."""
    asked = []
    monkeypatch.setattr(
        torch.random, "fork_rng", lambda *devices, **options: asked.append((*devices, options))
    )
    for names in ([], ["cpu", "meta"], ["cuda:1", "cpu", "cuda:0", "cuda:1"], ["xpu"]):
        debugging._random_state(SimpleNamespace(device=torch.device(n)) for n in names)
    assert asked == [
        ([], {}),
        ([], {}),
        ([0, 1], {"device_type": "cuda"}),
        ([0], {"device_type": "xpu"}),
    ]


def test_leaks_reports_bytes_and_graphs():
    kept, weight = [], torch.ones(100, requires_grad=True)

    def plain():
        kept.append(torch.zeros(25))

    def graph():
        big = weight * 2
        kept.append(big.square().sum())

    def again():
        torch.ones(25).sum()  # freed before the next allocation
        kept.append(torch.zeros(25))

    def now_and_then(calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) % 2:
            kept.append(torch.zeros(25))

    for function in (plain, again):
        assert debugging.leaks(function) == {"kept.append(torch.zeros(25))": 100}
    assert debugging.leaks(now_and_then) == {}
    assert debugging.leaks(graph, 5)["big = weight * 2"] == 400
    with pytest.raises(ValueError, match="at least 3"):
        debugging.leaks(plain, 2)


# ---------------------------------------------------------------- watchdog


def test_watchdog_reports_the_blocking_function(tmp_path):
    lock, path = threading.Lock(), tmp_path / "stacks.txt"
    lock.acquire()

    def inner():
        lock.acquire(timeout=0.6)

    def outer():
        inner()

    with debugging.watchdog(0.15, path):
        outer()
    assert debugging.waiting_in(path)[:2] == ["inner", "outer"]
    with debugging.watchdog(5, path):
        pass
    assert debugging.waiting_in(path) == []


def test_waiting_in_ignores_other_threads(tmp_path):
    stop, path = threading.Event(), tmp_path / "stacks.txt"

    def elsewhere():
        stop.wait(5)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with debugging.watchdog(0.15, path):
        threading.Event().wait(0.5)
    stop.set()
    thread.join()
    assert "elsewhere" in path.read_text() and "elsewhere" not in debugging.waiting_in(path)


def test_waiting_in_rejects_a_dump_without_the_main_thread(tmp_path):
    stop, path = threading.Event(), tmp_path / "stacks.txt"
    threads = [threading.Thread(target=stop.wait, args=(9,)) for _ in range(110)]
    for thread in threads:
        thread.start()
    with debugging.watchdog(0.15, path):
        threading.Event().wait(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    with pytest.raises(ValueError, match="ends after 100 others"):
        debugging.waiting_in(path)


def test_waiting_in_keeps_the_innermost_functions(tmp_path):
    path = tmp_path / "stacks.txt"

    def down(n):
        return down(n - 1) if n else threading.Event().wait(0.5)

    with debugging.watchdog(0.15, path):
        down(150)
    assert debugging.waiting_in(path).count("down") > 90


# ---------------------------------------------------------------- exercises


def blind(labels, classes):
    counts = torch.bincount(labels, minlength=classes).double()
    return torch.special.entr(counts / counts.sum()).sum().item()


def blind_by_loss(labels, classes):
    share = labels.bincount(minlength=classes) / len(labels)
    return F.cross_entropy(share.log().expand(len(labels), -1), labels).item()


def blind_by_loop(labels, classes):
    shares = [(labels == c).double().mean().item() for c in range(classes)]
    return float(-sum(p * math.log(p) for p in shares if p))


def blind_clamped(labels, classes):
    share = labels.bincount(minlength=classes).double() / len(labels)
    return -(share * share.clamp(min=1e-3).log()).sum().item()


def blind_nan(labels, classes):
    share = labels.bincount(minlength=classes) / len(labels)
    return -(share * share.log()).sum().item()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (blind, None),
        (blind_by_loss, None),
        (blind_by_loop, None),
        (lambda y, c: math.log(c), "wrong where one class is rare"),
        (lambda y, c: torch.tensor(blind(y, c)), "expected a float, got Tensor"),
        (lambda y, c: blind(y, c) / math.log(2), "wrong even for balanced classes"),
        (lambda y, c: -math.log(y.bincount().max() / len(y)), "wrong where one class is rare"),
        (lambda y, c: round(blind(y, c), 4), "wrong"),
        (blind_nan, "nan: 0 · log 0"),
        (blind_clamped, "wrong where one class is rare"),
        (lambda y, c: blind(y.to(torch.uint8), c), "wrong where classes are missing"),
        (lambda y, c: math.log(len(y.unique())), "wrong where one class is rare"),
        (lambda y, c: ..., "expected a float, got ellipsis"),
        (lambda y, c: blind(y.sub_(0).clamp_(max=0), c), "the labels have changed"),
    ],
)
def test_check_blind_loss_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_blind_loss(answer), says)


def guarded(model, loss, optimizer, clear=True, test=torch.isfinite, tidy=True, late=False):
    if clear:
        model.zero_grad()
    value = loss()
    value.backward()
    if late:
        optimizer.step()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    fine = bool(all(test(t).all() for t in [value, *gradients]))
    if fine and not late:
        optimizer.step()
    elif not fine and tidy:
        optimizer.zero_grad()
    return fine


def guarded_by_norm(model, loss, optimizer):
    optimizer.zero_grad()
    value = loss()
    if not value.isfinite():
        return False
    value.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if not nn.utils.get_total_norm(gradients).isfinite():
        optimizer.zero_grad()
        return False
    optimizer.step()
    return True


def guarded_by_largest(model, loss, optimizer):
    model.zero_grad()
    value = loss()
    value.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    largest = nn.utils.get_total_norm(gradients, math.inf)
    finite = bool(value.isfinite() & largest.isfinite())
    optimizer.step() if finite else model.zero_grad()
    return finite


def guarded_rolled_back(model, loss, optimizer):
    before = copy.deepcopy(model.state_dict())
    fine = guarded(model, loss, optimizer, late=True)
    if not fine:
        model.load_state_dict(before)
    return fine


def guarded_loss_only(model, loss, optimizer):
    model.zero_grad()
    value = loss()
    if not value.isfinite():
        return False
    value.backward()
    optimizer.step()
    return True


def guarded_all_have_gradients(model, loss, optimizer):
    model.zero_grad()
    loss().backward()
    fine = all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    if fine:
        optimizer.step()
    return fine


def guarded_early(model, loss, optimizer):
    if not loss().isfinite():
        return False
    return guarded(model, loss, optimizer)


def guarded_clears_bad(model, loss, optimizer):
    for p in model.parameters():
        if p.grad is not None and not p.grad.isfinite().all():
            p.grad = None
    return guarded(model, loss, optimizer, clear=False)


def guarded_if(which):
    def answer(model, loss, optimizer):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None and which(p)]
        fine = bool(all(t.isfinite().all() for t in [value, *grads]))
        optimizer.step() if fine else optimizer.zero_grad()
        return fine

    return answer


def without(key):
    return lambda m, f, o: guarded(m, f, o, **{key: False})


def guarded_first_group(model, loss, optimizer):
    model.zero_grad()
    value = loss()
    value.backward()
    grads = [p.grad for p in optimizer.param_groups[0]["params"] if p.grad is not None]
    finite = all(bool(t.isfinite().all()) for t in [value, *grads])
    optimizer.step() if finite else model.zero_grad()
    return finite


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (guarded, None),
        (guarded_by_norm, "but the step was skipped"),
        (guarded_by_largest, None),
        (lambda m, f, o: np.bool_(guarded(m, f, o)), None),
        (without("clear"), "the update contains old gradients"),
        (without("tidy"), "still contains a gradient"),
        (guarded_early, "still contains a gradient"),
        (guarded_clears_bad, "the update contains old gradients"),
        (guarded_if(lambda p: p.dim() == 1), "a gradient is infinite"),
        (guarded_if(lambda p: p.dim() == 2), "a gradient is infinite"),
        (lambda m, f, o: guarded(m, f, o, test=lambda t: t.flatten()[:1].isfinite()), "infinite"),
        (lambda m, f, o: guarded(m, f, o, test=lambda t: t.max().isfinite()), "infinite"),
        (
            lambda m, f, o: guarded(m, f, o, test=lambda t: ~t.isnan()),
            "is infinite, but the step was not skipped",
        ),
        (guarded_loss_only, "a gradient is nan, but the step was not skipped"),
        (guarded_first_group, "a gradient is infinite, but the step was not skipped"),
        (guarded_rolled_back, "the state of the optimizer has changed"),
        (guarded_all_have_gradients, "but the step was skipped"),
        (lambda m, f, o: None, "return whether the parameters were updated"),
        (lambda m, f, o: True, "the step is not that of the optimizer"),
        (lambda m, f, o: False, "but the step was skipped"),
    ],
)
def test_check_guarded_step_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_guarded_step(answer), says)


def samples(model, x, y):
    judge = copy.deepcopy(model).eval()
    with torch.no_grad():
        losses = F.cross_entropy(judge(x), y, reduction="none")
    return (~losses.isfinite() & (y != -100)).nonzero().flatten().tolist()


def samples_with_modes(model, x, y):
    modes = {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        losses = F.cross_entropy(model(x), y, reduction="none")
    for module, mode in modes.items():
        module.training = mode
    return [i for i, v in enumerate(losses.tolist()) if not math.isfinite(v) and y[i] != -100]


def samples_left_in_eval(model, x, y):
    model.eval()
    return samples(model, x, y)


def samples_train_again(model, x, y):
    found = samples_left_in_eval(model, x, y)
    model.train()
    return found


def samples_in_training(model, x, y):
    with torch.no_grad():
        losses = F.cross_entropy(copy.deepcopy(model)(x), y, reduction="none")
    return (~losses.isfinite()).nonzero().flatten().tolist()


def samples_by_input(model, x, y):
    return (~x.isfinite().all(1) & (y != -100)).nonzero().flatten().tolist()


def samples_only_nan(model, x, y):
    with torch.no_grad():
        losses = F.cross_entropy(copy.deepcopy(model).eval()(x), y, reduction="none")
    return losses.isnan().nonzero().flatten().tolist()


def samples_by_mean(model, x, y):
    judge = copy.deepcopy(model).eval()
    with torch.no_grad():
        means = [F.cross_entropy(judge(x[i : i + 1]), y[i : i + 1]) for i in range(len(x))]
    return [i for i, v in enumerate(means) if not v.isfinite()]


def samples_by_scores(model, x, y):
    with torch.no_grad():
        scores = copy.deepcopy(model).eval()(x)
    return (~scores.isfinite().all(1) & (y != -100)).nonzero().flatten().tolist()


def samples_squeezed(model, x, y):
    found = samples(model, x, y)
    return found[0] if len(found) == 1 else found


def samples_large(model, x, y):
    with torch.no_grad():
        losses = F.cross_entropy(copy.deepcopy(model).eval()(x), y, reduction="none")
    return (~(losses < 1e4)).nonzero().flatten().tolist()


def samples_frozen(model, x, y):
    return samples(model.requires_grad_(False), x, y)


def samples_with_gradients(model, x, y):
    found = samples(model, x, y)
    model.zero_grad()
    return found


def samples_filled_in(model, x, y):
    found = samples(model, x, y)
    x.nan_to_num_()
    return found


def samples_ignored_after(model, x, y):
    found = samples(model, x, y)
    y[found] = -100
    return found


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (samples, None),
        (samples_filled_in, "has changed"),
        (samples_ignored_after, "has changed"),
        (lambda m, x, y: samples(m, x.requires_grad_(), y), "has changed"),
        (samples_with_modes, None),
        (samples_left_in_eval, "the mode of a module has changed"),
        (samples_train_again, "the mode of a module has changed"),
        (samples_in_training, "random numbers were drawn"),
        (samples_by_input, "instead of [1]"),
        (samples_only_nan, "[] instead of [1]"),
        (samples_by_mean, "instead of [2]"),
        (samples_by_scores, "[1, 3] instead of [1]"),
        (samples_squeezed, "return a list of ints"),
        (samples_with_gradients, "the gradients have changed"),
        (samples_large, "[1, 4] instead of [1]"),
        (samples_frozen, "`requires_grad` of a parameter has changed"),
        (lambda m, x, y: torch.tensor(samples(m, x, y)), "return a list of ints"),
        (lambda m, x, y: samples(m.double(), x.double(), y), "changed"),
    ],
)
def test_check_bad_samples_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_bad_samples(answer), says)


@dataclass
class Answer:
    logits: torch.Tensor
    name: str = "answer"


class Answers(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.layer, self.scale = nn.Linear(2, 2), scale
        nn.init.eye_(self.layer.weight)

    def forward(self, x):
        return {"deep": [Answer(self.layer(x) * self.scale)]}


def test_first_difference_supports_dataclasses_and_parallel_models():
    x = torch.randn(3, 2)
    with torch.no_grad():
        one, same, double = Answers(1), Answers(1), Answers(2)
        same.layer.bias.copy_(one.layer.bias)
        double.layer.bias.copy_(one.layer.bias)
    assert debugging.first_difference(one, same, x) is None
    assert debugging.first_difference(one, double, x).module == ""
    names = {"": "module", "layer": "module.layer"}
    assert debugging.first_difference(one, nn.DataParallel(same), x, names=names) is None
    assert debugging.neighbours(nn.DataParallel(same.layer), x, 0) == [0]


def test_first_difference_requires_tensors():
    class Text(nn.Module):
        def forward(self, x):
            return "text"

    with pytest.raises(TypeError, match="expected tensors in the output of the models, got none"):
        debugging.first_difference(Text(), Text(), torch.ones(1))


def test_operators_that_take_functions_are_inspected():
    from torch.nn.attention.flex_attention import flex_attention

    def branch():
        return torch.cond(torch.tensor(True), torch.log, torch.sin, (-torch.ones(2),))

    x = torch.randn(1, 1, 16, 8)
    assert debugging.first_nonfinite(branch).operation == "higher_order.cond"
    for function in (branch, lambda: flex_attention(x, x, x)):
        assert debugging.broadcasting_lines(function) == [] and debugging.leaks(function) == {}
    assert debugging.first_nonfinite(lambda: flex_attention(x, x, x)) is None
